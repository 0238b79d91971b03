"""The comparison of click models and IPS rankers: its rows, its closed forms, and the paper's numbers."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from clickshift.data.corpus import Corpus
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import SpecError
from clickshift.experiments.click_vs_ips._report import ClickVsIps, best_settings, check_table
from clickshift.experiments.click_vs_ips.checks import NAIVE_PBM, PointwiseChecks
from clickshift.experiments.click_vs_ips.data import (
    COUNTS,
    IPS_TRUE,
    NAIVE,
    ONE_HOT_TWICE,
    PBM_TRUE,
    PRODUCTION,
    SESSIONS,
    PointwiseData,
    pointwise_data,
    read_corpus_split,
    values_by_seed,
)
from clickshift.experiments.click_vs_ips.protocol import (
    RANKERS_COMPARED,
    TRUE_BIAS_RANKERS,
    Pointwise,
    PointwiseCell,
    parse_learner,
    ranking_metrics,
    unlimited_click_scores,
)
from clickshift.experiments.click_vs_ips.tuning import Tuning, tuned
from clickshift.experiments.papers import (
    TABLES_AND_FIGURES,
    _ips_figure_4,
    _ips_figure_5,
    with_changes,
)
from clickshift.experiments.runner import RunFolder, run_tasks
from clickshift.io.datasets.letor import read_corpus
from clickshift.metrics.ranking import JudgedPairs, ranking_quality
from clickshift.metrics.significance import bootstrap_interval, paired_t_test
from clickshift.policies.lambdamart import LambdaMART
from clickshift.ranking import Run, fit_runs
from clickshift.simulation.search_engine import Named
from clickshift.simulation.users import PBM
from tests.codes import raises_code
from tests.golden import golden
from tests.suite import Study

GOLDEN = golden("pointwise")
SMALL = PointwiseData(documents=1000)


def limits(text: str, seeds: int, data: PointwiseData) -> list[float]:
    found = []
    for seed in range(seeds):
        engine = data.engine(seed)
        limit = unlimited_click_scores(parse_learner(text, data, seed), engine, PBM())
        assert limit is not None
        found.append(ranking_metrics(limit, engine, seed)["nDCG@10"])
    return found


def figure_4(rates: Sequence[float], seeds: int) -> dict[float, np.ndarray]:
    """nDCG@10 of both limits by rate of collisions, the mean over seeds; held against the published curves."""
    case, data = GOLDEN["figure4"], PointwiseData()
    learners = [parse_learner(text, data, 0) for _, text in TRUE_BIAS_RANKERS]
    means = {}
    for rate in rates:
        found = np.zeros((seeds, 2))
        for seed in range(seeds):
            engine = data.engine(seed, collisions=rate)
            for k, learner in enumerate(learners):
                limit = unlimited_click_scores(learner, engine, PBM())
                assert limit is not None
                found[seed, k] = ranking_metrics(limit, engine, seed)["nDCG@10"]
        means[rate] = found.mean(axis=0)
        number = case["rates"].index(rate)
        assert means[rate] == pytest.approx([case["pbm"][number], case["ips"][number]], abs=case["tolerance"])
        assert rate == 0 or means[rate][0] < means[rate][1], "the click model suffers more"
    return means


def test_the_closed_form_is_the_published_figure_4() -> None:
    """Four seeds leave standard errors of at most .003; the curves are .02 to .07 apart, the tolerance is .02."""
    figure_4((0.0, 0.3, 0.6, 0.9), seeds=4)


@pytest.mark.study
def test_the_closed_form_is_the_published_figure_4_at_all_rates(study: Study) -> None:
    rates, seeds = study.choose(smallest=([0.5], 3), full=(GOLDEN["figure4"]["rates"], 20))
    means = figure_4(rates, seeds)
    study.record("pointwise: figure 4", seeds=seeds, **{f"{rate:g}": mean.tolist() for rate, mean in means.items()})


def test_the_published_naive_row_has_every_document_twice() -> None:
    """Docs/decisions/0010: with documents in one query each, as the paper says, no naive ranker gets there."""
    case = GOLDEN["table2_synthetic"]
    naive = RANKERS_COMPARED[0][1]
    published = case[NAIVE][1][0]
    once = np.array(limits(naive, 10, PointwiseData()))
    twice = np.array(limits(naive, 10, pointwise_data(ONE_HOT_TWICE)))
    assert once.mean() == pytest.approx(case["naive_once"], abs=0.006)
    assert once.max() < published - 0.02
    assert twice.mean() == pytest.approx(published, abs=0.006)


def test_a_production_ranker_that_knows_nothing_is_the_published_one() -> None:
    case = GOLDEN["table2_synthetic"][PRODUCTION]
    found = np.array(
        [[*ranking_metrics(np.zeros(10_000), PointwiseData().engine(seed), seed).values()] for seed in range(20)]
    )
    for values, (mean, sd) in zip(found.T, case, strict=True):
        assert values.mean() == pytest.approx(mean, abs=4 * sd / np.sqrt(10))


@pytest.fixture(scope="module")
def table_2() -> list[dict[str, object]]:
    """Two seeds of a small one-hot set, 100 million sessions."""
    return PointwiseCell(SMALL, RANKERS_COMPARED, 10**8, 1.0, 0.0, 0.1, (0, 1)).rows()


def test_with_the_true_bias_the_truth_is_found(table_2: list[dict[str, object]]) -> None:
    for model in (PBM_TRUE, IPS_TRUE):
        for metric, (published, _) in zip(("nDCG@5", "nDCG@10"), GOLDEN["table2_synthetic"][model][:2], strict=True):
            found = values_by_seed(table_2, metric, kind="trained", model=model)
            assert [*found.values()] == pytest.approx([published] * 2, abs=0.0005)
    naive = [*values_by_seed(table_2, "nDCG@10", kind="trained", model=NAIVE).values()]
    limit = [*values_by_seed(table_2, "nDCG@10", kind="limit", model=NAIVE).values()]
    assert max(naive) < 0.85
    assert (np.array(naive) < np.array(limit) + 0.005).all(), "stopping early orders no document better"


def test_rows_of_a_cell(table_2: list[dict[str, object]]) -> None:
    names = [PRODUCTION, *(name for name, _ in RANKERS_COMPARED)]
    trained = [row for row in table_2 if row["kind"] == "trained"]
    assert {row["model"] for row in trained} == set(names)
    assert len(trained) == 10
    limits = {(row["model"], row["seed"]) for row in table_2 if row["kind"] == "limit"}
    assert limits == {(name, seed) for name in (NAIVE, PBM_TRUE, IPS_TRUE) for seed in (0, 1)}
    assert all(row["rounds"] >= 1 for row in trained if row["model"] != PRODUCTION)  # type: ignore[operator]


def test_training_reaches_the_closed_form() -> None:
    """Stopped by its own clicks and not by others', in one batch. Two or three documents share each column. Where the
    limit is 1, a logit would have to be infinite."""
    user, data = PBM(), PointwiseData(documents=250)
    engine = data.engine(0, collisions=0.6)
    clicks, _ = engine.clicks(user, 10**9, seed=0)
    examination = user.exposure(engine.n_ranks)
    learners = [
        replace(parse_learner(text, data, 0), batch=10, rounds=300, patience=300) for _, text in TRUE_BIAS_RANKERS
    ]
    runs = [Run(one, engine.parts.train, clicks, (engine.parts.train, clicks), examination) for one in learners]
    for learner, ranker in zip(learners, fit_runs(runs), strict=True):
        limit = unlimited_click_scores(learner, engine, user)
        assert limit is not None
        distance = np.abs(1 / (1 + np.exp(-ranker.scores(engine.parts.test))) - limit)
        assert distance[limit < 0.9].max() < 0.008
        assert distance.max() < 0.03
        assert distance.mean() < 0.003


def test_naive_click_model_and_naive_ips_are_one_and_counts_teach_what_sessions_teach() -> None:
    """One program trains all rankers of a seed. Means of three seeds differ by less than .01 where the law is one."""
    rows = [row for cell in PointwiseChecks(SMALL, sessions=4000, seeds=3).tasks() for row in cell.rows()]
    lines = {line["model"]: line for line in check_table(rows)}
    assert lines[NAIVE_PBM]["distance"] < 1e-3
    assert lines[NAIVE]["distance"] is None
    for line in lines.values():
        assert line["p"] > 0.001
        assert line[COUNTS] == pytest.approx(line[SESSIONS], abs=0.03)


def test_a_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """In a thread: that other processes give the same rows is tested with the policy-shift protocol."""
    protocol = Pointwise(SMALL, TRUE_BIAS_RANKERS[1:], sessions=(100, 1000), seeds=2)
    folder, heard = RunFolder(tmp_path), []
    with ThreadPoolExecutor(1) as pool:
        run_tasks(protocol.tasks()[:1], folder, pool, progress=lambda news: heard.append(news.error))
        run_tasks(protocol.tasks(), folder, pool, progress=lambda news: heard.append(news.error))
    assert heard == [None, None]
    rows = folder.rows(protocol.tasks())
    assert [row["sessions"] for row in rows] == sorted(row["sessions"] for row in rows)
    assert len(rows) == 2 * 2 * (2 + 1)
    assert pickle.loads(pickle.dumps(protocol.tasks())) == protocol.tasks()


def test_cells_of_networks_have_one_seed_each() -> None:
    cells = Pointwise(pointwise_data("builtin"), TRUE_BIAS_RANKERS, sessions=(100, 1000), seeds=3).tasks()
    assert [cell.seeds for cell in cells] == [(0,), (0,), (1,), (1,), (2,), (2,)]
    assert len(Pointwise().tasks()) == 7
    with raises_code("collisions-need-one-hot", SpecError, data="builtin"):
        Pointwise(pointwise_data("builtin"), collisions=(0.0, 0.5))
    with raises_code("unknown-name", SpecError, value="Unheard"):
        Pointwise(models=(("Mine", "Unheard"),))


def test_the_chosen_setting_has_the_least_loss() -> None:
    protocol = Tuning(SMALL, RANKERS_COMPARED[3:], ("adam", "sgd"), (0.1, 0.001), sessions=10_000, seeds=2)
    rows = [row for cell in protocol.tasks() for row in cell.rows()]
    lines = best_settings(rows)
    assert len(lines) == 4
    (best,) = [line for line in lines if line["best"]]
    losses = [np.mean([row["held_out_loss"] for row in rows if (row["optimiser"], row["rate"]) == setting])
              for setting in {(row["optimiser"], row["rate"]) for row in rows}]  # fmt: skip
    assert best["held_out_loss"] == pytest.approx(min(losses))
    assert (best["optimiser"], best["rate"]) == ("adam", 0.1)


def test_rankers_take_what_was_chosen_for_them() -> None:
    about = {"data": "one-hot", "model": IPS_TRUE, "seed": 0, "nDCG@10": 0.5, "rounds": 9}
    rows = [about | {"optimiser": "sgd", "rate": 0.05, "held_out_loss": 0.3}]
    rows += [about | {"optimiser": "adam", "rate": 0.01, "held_out_loss": 0.4}]
    ips = with_changes(Pointwise(models=RANKERS_COMPARED[3:]), tuning=rows)
    assert isinstance(ips, Pointwise)
    learner = parse_learner(ips.models[0][1], ips.data, 3)
    assert (ips.models[0][0], learner.loss, learner.optimiser, learner.rate) == (IPS_TRUE, "ips", "sgd", 0.05)
    failed = [{"data": "one-hot", "model": NAIVE, "seed": 0, "optimiser": "sgd", "rate": 0.1, "failed": "too high"}]
    for models, found, data, code, facts in (
        (RANKERS_COMPARED, rows, "one-hot", "missing-setting", {"model": "Naive"}),
        (RANKERS_COMPARED[:1], failed, "one-hot", "missing-setting", {"model": "Naive"}),
        (RANKERS_COMPARED[3:], rows, "builtin", "different-data", {"data": "builtin"}),
        (RANKERS_COMPARED[3:], [about], "one-hot", "not-tuning-rows", {}),
    ):
        with raises_code(code, SpecError, **facts):
            tuned(models, found, data=data)
    with raises_code("bad-option", SpecError, option="tuning"):
        with_changes(Tuning(), tuning=rows)


def test_exhibits_can_be_changed() -> None:
    ours = [
        one.make() for one in TABLES_AND_FIGURES.values() if one.paper.startswith("click models and IPS") and one.make
    ]
    assert len(ours) == 10
    assert all(isinstance(one, ClickVsIps) for one in ours)
    assert _ips_figure_4().collisions[-1] == 0.9
    assert _ips_figure_5().eta == (0.0, 0.5, 1.0, 1.5, 2.0)
    smaller = with_changes(Pointwise(), sessions=50_000, seeds=2)
    assert isinstance(smaller, Pointwise)
    assert (smaller.sessions, smaller.seeds) == ((100, 1000, 10_000, 50_000), 2)
    other = with_changes(_ips_figure_5(), corpus="builtin", queries=50, sessions=1000)
    assert isinstance(other, Pointwise)
    assert (other.sessions, other.data.queries) == ((1000,), 50)


def test_parts_of_files(shared_data: Path, tmp_path: Path) -> None:
    parts = read_corpus_split(shared_data / "mq2008")
    assert [part.n_queries for part in parts] == [471, 157, 156]
    assert {part.max_label for part in parts} == {2}
    for name, best in (("train", 4), ("vali", 1), ("test", 2)):
        (tmp_path / f"{name}.txt").write_text(f"{best} qid:{best} 1:1 {best + 1}:2\n0 qid:{best} 1:0\n")
    few = read_corpus_split(tmp_path)
    assert [part.max_label for part in few] == [4, 4, 4]
    assert [part.features.shape[1] for part in few if part.features is not None] == [5, 5, 5]
    assert few.held_out.features is not None
    assert few.held_out.features[0].tolist() == [1, 2, 0, 0, 0]


def test_letors_folds_take_turns(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fold 2 learns from S2, S3 and S4, stops by S5 and is tested on S1. A production ranker of one tree will do."""
    monkeypatch.setattr("clickshift.experiments.click_vs_ips.data._LAMBDAMART", LambdaMART(trees=1, rescale=False))
    folder = shared_data / "mq2008"
    first, second, sixth = (pointwise_data(str(folder)).engine(seed).parts for seed in (0, 1, 5))
    parts = [set(read_corpus(folder / f"S{k}.txt.gz").vocabulary.query_ids.tolist()) for k in range(1, 6)]

    def queries(corpus: Corpus) -> set[int]:
        return set(corpus.vocabulary.query_ids.tolist())

    assert [queries(part) for part in second] == [parts[1] | parts[2] | parts[3], parts[4], parts[0]]
    assert [queries(part) for part in first] == [queries(part) for part in sixth]
    assert queries(first.test) == parts[4]


def _small_networks(rate: float) -> Named:
    options = f"hidden=(32,), dropout=(0.0,), learning_rate={rate}"
    return (
        (NAIVE, f"ClickRanker(bias='naive', {options})"),
        (PBM_TRUE, f"ClickRanker(loss='pbm', {options})"),
        (IPS_TRUE, f"ClickRanker({options})"),
    )


@pytest.mark.study
def test_rankers_of_real_features_beat_the_one_that_showed(
    shared_data: Path, monkeypatch: pytest.MonkeyPatch, study: Study
) -> None:
    """MQ2008, a small network. Naive is as good as the others there: docs/decisions/0010."""
    monkeypatch.setenv("CLICKSHIFT_THREADS", "1")
    queries, sessions, seeds = study.choose(smallest=(30, 1000, 1), full=(None, 10**6, 3))
    data = pointwise_data(str(shared_data / "mq2008"), queries=queries)
    models = study.choose(smallest=_small_networks(0.01)[:1], full=_small_networks(0.01))
    rows = [
        row for seed in range(seeds) for row in PointwiseCell(data, models, sessions, 1.0, 0.0, 0.1, (seed,)).rows()
    ]
    names = (PRODUCTION, *dict(models))
    assert [row["model"] for row in rows] == [*names] * seeds
    assert {row["kind"] for row in rows} == {"trained"}
    mean = {name: float(np.mean([*values_by_seed(rows, "nDCG@10", model=name).values()])) for name in names}
    assert all(0 < value < 1 for value in mean.values())
    if study.full:
        study.record("pointwise: nDCG@10 of rankers on MQ2008", seeds=seeds, **mean)
        for name in names[1:]:
            assert mean[name] > mean[PRODUCTION] + 0.005


@pytest.mark.study
def test_corrections_pay_on_the_built_in_corpus(monkeypatch: pytest.MonkeyPatch, study: Study) -> None:
    """Production < Naive < click model and IPS: docs/decisions/0010."""
    monkeypatch.setenv("CLICKSHIFT_THREADS", "1")
    queries, sessions = study.choose(smallest=(50, 1000), full=(None, 10**6))
    models = study.choose(smallest=_small_networks(0.003)[2:], full=_small_networks(0.003))
    rows = PointwiseCell(pointwise_data("builtin", queries=queries), models, sessions, 1.0, 0.0, 0.1, (0,)).rows()
    found = {str(row["model"]): float(row["nDCG@10"]) for row in rows}
    assert [*found] == [PRODUCTION, *dict(models)]
    assert all(0 < value < 1 for value in found.values())
    if study.full:
        study.record("pointwise: nDCG@10 of rankers on the built-in corpus", **found)
        assert found[PRODUCTION] + 0.03 < found[NAIVE]
        assert found[NAIVE] + 0.02 < min(found[PBM_TRUE], found[IPS_TRUE])


def test_graded_arp_and_queries_without_relevant_documents(rng: np.random.Generator) -> None:
    """By a loop over queries, as in the IPS paper's code."""
    size = rng.integers(1, 15, 60)
    words, _, _ = Vocabulary.of(np.repeat(np.arange(60), size), np.arange(size.sum()))
    label = rng.choice([0.0, 0.0, 1.0, 2.0, 4.0], size.sum())
    label[words.pair_query < 5] = 0
    corpus = Corpus(words, label.astype(np.float32))
    score = rng.permutation(len(label)).astype(float)
    ndcg, arp = [], []
    for start, stop in zip(corpus.offsets[:-1], corpus.offsets[1:], strict=True):
        here = label[start:stop][np.argsort(-score[start:stop])]
        gain, best = (
            sum((2**grade - 1) / np.log2(place + 2) for place, grade in enumerate(order[:5]))
            for order in (here, np.sort(here)[::-1])
        )
        ndcg.append(gain / best if best else 0.0)
        arp.append(sum(here * np.arange(1, len(here) + 1)) / sum(here) if sum(here) else 0.0)
    found = ranking_quality(score, JudgedPairs(words, label), cutoffs=(5,), graded_arp=True, rng=0).means(missing=0.0)
    assert found["nDCG@5"] == pytest.approx(np.mean(ndcg))
    assert found["ARP"] == pytest.approx(np.mean(arp))


def test_bootstrap_and_paired_tests_are_those_of_scipy(rng: np.random.Generator) -> None:
    a, b = rng.normal(size=10), rng.normal(0.5, size=10)
    mean, low, high = bootstrap_interval(a)
    other = stats.bootstrap((a,), np.mean, method="percentile", n_resamples=20_000, rng=1).confidence_interval
    assert (mean, low, high) == pytest.approx((a.mean(), other.low, other.high), abs=0.02)
    assert np.isnan(bootstrap_interval([1.0])[1])
    for alternative in ("two-sided", "less", "greater"):
        expected = stats.ttest_rel(a, b, alternative=alternative).pvalue
        assert paired_t_test(a, b, alternative=alternative) == pytest.approx(expected)
