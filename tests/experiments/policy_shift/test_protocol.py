"""The policy-shift protocol: what the paper found holds at small scale, and cells are what their settings say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import clickshift as cs
from clickshift import models
from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import SpecError
from clickshift.experiments._rows import check_row, ranking_rows
from clickshift.experiments.click_vs_ips.checks import ChecksCell
from clickshift.experiments.click_vs_ips.losses import Analytic
from clickshift.experiments.click_vs_ips.protocol import PointwiseCell
from clickshift.experiments.click_vs_ips.tuning import TuningCell
from clickshift.experiments.experiment import open_run, start_run
from clickshift.experiments.model_selection.protocol import SelectionCell
from clickshift.experiments.models import LOGGING, ORACLE, PEEKING, TRUTH, Contender, candidate_model
from clickshift.experiments.off_policy_paper import BacktestTask
from clickshift.experiments.papers import TABLES_AND_FIGURES, section_6_1, table_or_figure
from clickshift.experiments.policy_shift._report import PolicyShiftResult
from clickshift.experiments.policy_shift.derived_policies import DerivedPolicies
from clickshift.experiments.policy_shift.protocol import Cell, PolicyShift
from clickshift.experiments.runner import RunFolder, copy_reference_rows, digest, process_pool, run_tasks
from clickshift.metrics.click_prediction import click_bits
from clickshift.metrics.ranking import JudgedPairs
from clickshift.models.base import ClickModel
from clickshift.simulation import users
from clickshift.simulation.search_engine import IND, World
from clickshift.simulation.simulate import simulate
from tests.codes import raises_code
from tests.rows import without_costs
from tests.suite import Study

Rows = list[dict[str, Any]]
BY_EM = tuple(Contender(name, name) for name in ("PBM", "UBM", "DBN"))
COUNTED = Contender("dCTR", "dCTR", "baseline")
NAIVE, MODELS = ("dCTR", "ARM NC"), ("PBM", "UBM", "DBN")
PEEKS = replace(PEEKING, learner="Gradient('ARM_NC', tower='free', embedding=4, state=4, rounds=10)")
RANDOM = (("random", "Uniform"),)
"""Test lists that cost no training of a LambdaMART, which the default ones do."""


def run(protocol: PolicyShift) -> Rows:
    return [row for cell in protocol.tasks() for row in cell.rows()]


def value(rows: Rows, model: str, metric: str, **where: Any) -> float:
    """The mean over seeds of a metric."""
    found = [
        r[metric] for r in rows if r["model"] == model and metric in r and all(r.get(k) == v for k, v in where.items())
    ]
    assert found, (model, metric, where)
    return float(np.mean(found))


def reversed_lists(
    contenders: Sequence[Contender], *, corpus: str = "builtin", queries: int, sessions: int, seeds: int = 1
) -> PolicyShift:
    """Section 6.1: near-optimal training lists, test lists in increasing relevance."""
    protocol = replace(section_6_1(), contenders=tuple(contenders), seeds=seeds)
    world = replace(protocol.world, queries=queries, sessions=sessions, test_sessions=sessions // 4)
    return replace(protocol, world=world.on_corpus(corpus))


@pytest.fixture(scope="module", params=["builtin", "mslr_sample"])
def corpus_name(request: pytest.FixtureRequest) -> str:
    return request.param if request.param == "builtin" else str(request.getfixturevalue("shared_data") / request.param)


@pytest.fixture(scope="module")
def strong_shift(corpus_name: str) -> Rows:
    """Both users, and the models that need no gradient."""
    return run(reversed_lists((TRUTH, COUNTED, *BY_EM), corpus=corpus_name, queries=60, sessions=20_000))


@pytest.fixture(scope="module")
def shifted() -> Rows:
    """One training policy, three users, test lists of three policies; derived policies on the third user."""
    policies = (("oracle", "Oracle"), ("random", "Uniform"), ("BM25", "BM25"))
    protocol = PolicyShift(
        training=PolicyShift().training[:1],
        contenders=(TRUTH, COUNTED, *BY_EM, Contender("TopPop", "TopPop", "baseline")),
        world=World(testing=policies, queries=30, sessions=20_000),
        derived=DerivedPolicies(sessions=1000),
    )
    return run(protocol)


def ranks_best_and_predicts_worst(
    rows: Rows, user: str, naive: Sequence[str], *, models: Sequence[str] = MODELS
) -> dict[str, dict[str, float]]:
    """Check tables 3 and 4: naive models rank best, and predict worse than all where the ranker changes.

    The perplexity of ARM NC is not comparable: it is held against its own on the training policy's lists.
    """
    ind, ood = (
        {name: value(rows, name, "perplexity", user=user, shift=shift) for name in (*models, *naive)}
        for shift in ("ind", "ood")
    )
    ndcg = {name: value(rows, name, "nDCG@3", user=user) for name in ood}
    rise = {name: ood[name] - ind[name] for name in ood}
    for name in naive:
        assert ndcg[name] > max(ndcg[other] for other in models)
        if name == "ARM NC":
            assert rise[name] > max(rise[other] for other in models) + 0.05
        else:
            assert ood[name] > max(ood[other] for other in models)
    return {"ind": ind, "ood": ood, "nDCG@3": ndcg}


@pytest.mark.parametrize("user", ["DBN", "CoCM"])
def test_high_ndcg_and_collapse_go_together(strong_shift: Rows, user: str) -> None:
    found = ranks_best_and_predicts_worst(strong_shift, user, NAIVE[:1])
    if user == "DBN":  # of CoCM users, reversed lists are not harder to predict
        rise = {name: found["ood"][name] - found["ind"][name] for name in found["ood"]}
        assert max(rise, key=rise.__getitem__) == "dCTR"


def test_a_peeking_model_ranks_best_and_collapses() -> None:
    """CoCM users alone, a tiny network: the perplexity of ARM NC rises by .09, that of the others by at most .022."""
    small = reversed_lists((COUNTED, *BY_EM, PEEKS), queries=50, sessions=10_000)
    ranks_best_and_predicts_worst(run(replace(small, users=small.users[1:])), "CoCM", NAIVE)


@pytest.mark.filterwarnings("ignore:.*examined less than once")
@pytest.mark.study
def test_high_ndcg_and_collapse_go_together_with_networks(corpus_name: str, study: Study) -> None:
    peeks = study.choose(smallest=PEEKS, full=replace(PEEKING, learner="Gradient('ARM_NC', embedding=16)"))
    queries, sessions, seeds = study.choose(smallest=(50, 2000, 1), full=(100, 40_000, 2))
    protocol = reversed_lists(
        (TRUTH, COUNTED, *BY_EM, peeks), corpus=corpus_name, queries=queries, sessions=sessions, seeds=seeds
    )
    users = study.choose(smallest=protocol.users[1:], full=protocol.users)
    rows = run(replace(protocol, users=users))
    peeking = [row for row in rows if row["model"] == "ARM NC" and row["kind"] == "clicks"]
    assert len(peeking) == len(users) * seeds * 2
    assert all(row["perplexity"] > 1 for row in peeking)
    if study.full:
        found = {user: ranks_best_and_predicts_worst(rows, user, NAIVE) for user, _ in users}
        study.record(f"section 6.1, {Path(corpus_name).name}", **found)


def test_nothing_predicts_better_than_the_user(strong_shift: Rows, shifted: Rows) -> None:
    for rows in (strong_shift, shifted):
        for row in rows:
            if row["kind"] == "clicks" and row["role"] != "peeking":
                least = value(rows, ORACLE, "log_likelihood", user=row["user"], testing=row["testing"])
                assert row["log_likelihood"] <= least + 1e-3, row


def test_dbn_is_best_for_dbn_users_and_brittle_for_others(shifted: Rows) -> None:
    def gap(user: str, testing: str, model: str) -> float:
        return value(shifted, model, "perplexity", user=user, testing=testing) - value(
            shifted, ORACLE, "perplexity", user=user, testing=testing
        )

    for testing in (IND, "oracle", "random", "BM25"):
        assert gap("DBN", testing, "DBN") < min(gap("DBN", testing, other) for other in ("PBM", "UBM"))
    assert gap("CoCM-mismatch", "random", "DBN") > gap("CoCM-mismatch", "random", "PBM")


def test_pbm_gains_from_max_reward_where_users_do_not_go_top_down(shifted: Rows) -> None:
    clicks = {
        policy: value(shifted, "PBM", "expected_clicks", user="CoCM-mismatch", policy=policy)
        for policy in ("Top-Down", "Max-Reward")
    }
    assert clicks["Max-Reward"] > clicks["Top-Down"] + 0.02


def test_rows_say_what_was_judged(shifted: Rows) -> None:
    assert {row["testing"] for row in shifted if row["kind"] == "clicks"} == {IND, "oracle", "random", "BM25"}
    assert not [row for row in shifted if row["kind"] == "clicks" and row["model"] == "TopPop"], "it predicts no clicks"
    logging = [row for row in shifted if row["model"] == LOGGING]
    assert len(logging) == 3
    assert all(0 < row["nDCG@10"] <= 1 and row["never_shown"] > 0 for row in logging)
    assert all(0 <= row["head nDCG@10"] <= 1 for row in shifted if row["kind"] == "ranking")
    assert {row["user"] for row in shifted if row["kind"] == "policy"} == {"CoCM", "CoCM-mismatch"}
    assert value(shifted, ORACLE, "nDCG@10") == pytest.approx(1)


def test_test_lists_show_only_what_training_showed() -> None:
    logs = World((*RANDOM, ("BM25", "BM25")), queries=50, sessions=2000, test_sessions=1000).logs(
        "DBN", PolicyShift().training[0][1]
    )
    shown = set(np.unique(logs.train.rankings.pair[logs.train.rankings.shown]).tolist())
    for name, log in logs.test.items():
        if name != IND:
            pairs = log.in_vocabulary(logs.train.vocabulary).rankings.pair[log.rankings.shown]
            assert set(pairs.tolist()) <= shown
    assert (logs.train.total, logs.held_out.total, logs.test[IND].total) == (1600, 200, 200)


def test_a_log_of_several_policies() -> None:
    """A mitigation of the paper: equal shares of the sessions."""
    world = World(RANDOM, queries=50, sessions=3000, test_sessions=500)
    oracle, random = "PlackettLuce(Oracle, temperature=0.1, scores='log')", "Uniform"
    mixed = world.logs("DBN", f"{oracle} + {random}")
    alone = world.logs("DBN", oracle)
    assert mixed.train.total == alone.train.total == 2400
    assert len(mixed.seen.label) > len(alone.seen.label)


def test_cells_are_the_grid() -> None:
    protocol = PolicyShift()
    cells = protocol.tasks()
    assert len(cells) == 9 * len(protocol.contenders)
    assert len({digest(cell) for cell in cells}) == len(cells)
    derived = {(cell.user[0], cell.contender.role) for cell in cells if cell.derived is not None}
    assert derived == {("CoCM", "click model"), ("CoCM-mismatch", "click model")}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[PolicyShift, Path, dict[str, Any]]:
    """A run of two cells in another process, its folder and its settings."""
    protocol = PolicyShift(
        users=(("DBN", "DBN"),),
        training=PolicyShift().training[:1],
        contenders=(TRUTH, Contender("PBM", "Gradient('PBM', tower='free', rounds=2)")),
        world=World(RANDOM, queries=30, sessions=1000, test_sessions=200),
        seeds=2,
    )
    path = tmp_path_factory.mktemp("run")
    folder = RunFolder(path)
    settings = start_run(protocol, folder)
    with process_pool(1) as pool:
        run_tasks(protocol.tasks(), folder, pool)
    return protocol, path, settings


def test_a_cell_gives_the_same_rows_in_any_process(finished: tuple[PolicyShift, Path, dict[str, Any]]) -> None:
    protocol, path, _ = finished
    assert _without_time(RunFolder(path).rows(protocol.tasks())) == _without_time(run(protocol))


def test_a_cell_says_how_far_it_is() -> None:
    """Rounds of training, by the learner; and each derived policy, before it is searched for."""
    heard: list[str] = []

    def progress(step: int | str, /, *, total: int | None = None) -> None:
        heard.append(str(step))

    cell = PolicyShift(
        users=(("CoCM", "CoCM"),),
        training=(("random", "PlackettLuce(Uniform)"),),
        contenders=(Contender("PBM", "Gradient('PBM', tower='free', rounds=2)"),),
        world=World(RANDOM, queries=30, sessions=1000, test_sessions=200),
        seeds=2,
        derived=DerivedPolicies(sessions=100),
    ).tasks()[0]
    cell.rows(progress)
    rounds = [text.split(":")[0] for text in heard if text.startswith("round")]
    assert rounds == ["round 1", "round 2"]
    derived = [text.partition(" of ")[0] + text.partition(",")[2] for text in heard if "queries" in text]
    assert derived == [f"{name}, seed {k} of 2".replace(",", "") for k in (1, 2) for name in ("Top-Down", "Max-Reward")]


def test_a_run_is_read_again(finished: tuple[PolicyShift, Path, dict[str, Any]]) -> None:
    protocol, path, settings = finished
    again, same, noted = open_run(path)
    assert (again, noted) == (protocol, settings)
    assert all(same.has(cell) for cell in again.tasks())
    assert len(same.rows(again.tasks())) == 2 + 2 + 2 * (2 + 1) + 1 + 2, "at last the check of PBM and its losses"


def _without_time(rows: Rows) -> Rows:
    return [{k: value for k, value in row.items() if value is not None} for row in without_costs(rows)]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """The shipped rows of the protocol and of section 6.1."""
    folder = RunFolder(tmp_path_factory.mktemp("reference"))
    for protocol in (PolicyShift(), section_6_1()):
        cells = protocol.tasks()
        assert copy_reference_rows(cells, folder) == len(cells), "a setting or VERSION has changed"
    return folder


def _made_again(cell: Cell, kept: Rows, testing: Sequence[str]) -> None:
    """Compare shipped rows with new ones; leaving out test policies does not change the logs of the others."""
    world = replace(cell.world, testing=tuple(test for test in cell.world.testing if test[0] in testing))
    fresh = [row for row in _without_time(replace(cell, world=world).rows()) if row["kind"] != "loss"]
    ranks_only = cell.contender.name in {"TopPop", "TopPopObs", "RankTopObs"}
    assert [row["testing"] for row in fresh if row["kind"] == "clicks"] == ([] if ranks_only else [IND, *testing])
    known = [row for row in _without_time(kept) if row["kind"] != "clicks" or row["testing"] in (IND, *testing)]
    assert len(known) == len(fresh)
    for new, old in zip(fresh, known, strict=True):
        numbers = {name for name, value in new.items() if isinstance(value, float)}
        assert {name: new[name] for name in new.keys() - numbers} == {name: old[name] for name in old.keys() - numbers}
        assert {name: new[name] for name in numbers} == pytest.approx({name: old[name] for name in numbers}, abs=1e-6)


UNTRAINED = ("oracle", "baseline")
"""Roles whose cells of the grid take less than a second, and give the same numbers to the last digits."""


def _is_cheapest(cell: Cell) -> bool:
    return cell.user[0] == "DBN" and cell.training[0] == "PL-oracle" and cell.contender.learner in {"", "dCTR"}


def test_reference_rows_are_those_of_this_very_protocol(reference: RunFolder) -> None:
    """A cell of each kind that is not trained: the users themselves, models of counts, and models that only rank.

    If this fails, a setting or VERSION has changed: make the rows again (benchmarks/policy_shift.py).
    """
    cells = PolicyShift().tasks()
    seeds = {row["seed"] for row in reference.rows(cells) if row["model"] == "NCM"}
    assert seeds == set(range(10))
    cheap = [cell for cell in cells if cell.log == "DBN users, PL-oracle log" and cell.contender.role in UNTRAINED]
    assert len(cheap) == 7
    for cell in cheap:
        _made_again(cell, reference.rows([cell]), ("oracle", "random", "BM25"))
    of_tables = [cell for cell in section_6_1().tasks() if cell.user[0] == "CoCM" and cell.contender.role in UNTRAINED]
    assert {cell.contender.name for cell in of_tables} == {ORACLE, "dCTR"}
    for cell in of_tables:
        _made_again(cell, reference.rows([cell]), [name for name, _ in cell.world.testing])


@pytest.mark.study
def test_reference_rows_of_gradient_models_are_near_those_of_this_very_protocol(
    reference: RunFolder, study: Study
) -> None:
    """The first seed of the ten, trained alone.

    Sums of float32 have another order where ten seeds are trained in one program, and training amplifies that. Largest
    differences when this was written: ARM .00011 and PBM .00024 of perplexity, .0007 of nDCG.
    """
    names = study.choose(smallest=("ARM",), full=("PBM", "UBM", "DBN", "NCM", "CACM-minus", "ARM"))
    user = study.choose(smallest="DBN", full="CoCM")
    for cell in PolicyShift().tasks():
        if cell.contender.name in names and cell.log == f"{user} users, PL-oracle log":
            fresh = replace(cell, world=replace(cell.world, testing=RANDOM), seeds=1).rows()
            old = [row for row in reference.rows([cell]) if row["seed"] == 0]
            assert {row["policy"] for row in fresh if row["kind"] == "policy"} == {
                row["policy"] for row in old if row["kind"] == "policy"
            }
            for new in fresh:
                keys = ("kind", "testing", "policy")
                same = [row for row in old if all(row.get(key) == new.get(key) for key in keys)]
                for name, within in (("perplexity", 0.001), ("nDCG@10", 0.005), ("expected_clicks", 0.02)):
                    if name in new:
                        assert [row[name] for row in same] == [pytest.approx(new[name], abs=within)]


@pytest.mark.study
def test_reference_rows_of_gradient_models_are_made_again(
    reference: RunFolder, study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All ten seeds in a worker process, as the rows were made: equal to the last digits."""
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "0")  # without optimisation, float32 sums have another order
    names = study.choose(smallest=(), full=("PBM", "ARM"))
    cells = [c for c in PolicyShift().tasks() if c.contender.name in names and c.log == "DBN users, PL-oracle log"]
    folder = RunFolder(tmp_path)
    with process_pool(2) as pool:
        run_tasks(cells, folder, pool)
    assert without_costs(folder.rows(cells)) == [pytest.approx(row) for row in without_costs(reference.rows(cells))]


@pytest.mark.study
def test_reference_rows_of_a_trained_ranker_are_those_of_this_very_protocol(reference: RunFolder, study: Study) -> None:
    """The same with the lists of LambdaMART, which is trained anew."""
    cells = [cell for cell in PolicyShift().tasks() if _is_cheapest(cell)]
    testing = study.choose(smallest=("oracle",), full=("oracle", "random", "BM25", "LambdaMART"))
    for cell in study.choose(smallest=cells[:1], full=cells):
        _made_again(cell, reference.rows([cell]), testing)


def test_the_paper_findings_hold_in_the_reference_rows(reference: RunFolder) -> None:
    rows = reference.rows(PolicyShift().tasks())
    clicks = [row for row in rows if row["kind"] == "clicks"]
    models = ("PBM", "UBM", "DBN", "NCM", "CACM-minus", "ARM")
    for training in ("PL-oracle", "PL-BM25", "PL-LambdaMART"):
        ind = {name: value(clicks, name, "perplexity", user="DBN", training=training, testing=IND) for name in models}
        assert min(ind, key=ind.__getitem__) == "DBN"
    for user in ("DBN", "CoCM", "CoCM-mismatch"):
        for name in models:
            assert value(clicks, name, "perplexity", user=user) > value(clicks, ORACLE, "perplexity", user=user)


def test_tables_3_and_4_hold_in_the_reference_rows(reference: RunFolder) -> None:
    """What ranks best predicts worst where the ranker changes; ARM NC is held against itself."""
    rows = reference.rows(section_6_1().tasks())
    for user in ("DBN", "CoCM"):
        ranks_best_and_predicts_worst(rows, user, NAIVE, models=(*MODELS, "NCM", "CACM-minus"))


def test_choosing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The function makes the protocol of a scale, with what is given in place of what the scale has, and runs it."""
    ran: list[PolicyShift] = []
    monkeypatch.setattr(PolicyShift, "run", lambda self, output, **options: ran.append(self) or PolicyShiftResult([]))
    cs.policy_shift(users=["CoCM"], training=["PL-BM25"], models=["PBM", "EM('UBM')"], seeds=2, sessions=500)
    (protocol,) = ran
    assert protocol.users == (("CoCM", "CoCM"),)
    assert protocol.training[0][1].startswith("PlackettLuce(BM25")
    assert [c.learner for c in protocol.contenders if c.role == "click model"] == ["Gradient('PBM')", "EM('UBM')"]
    assert (protocol.seeds, protocol.world.sessions) == (2, 500)
    cs.policy_shift(derived=False)
    assert ran[-1].derived is None
    for wrong in (dict(scale="huge"), dict(users=["Nobody"]), dict(models=["XYZ"])):
        with pytest.raises(SpecError):
            cs.policy_shift(**wrong)  # type: ignore[arg-type]
    assert len(ran) == 2


def test_a_candidate_is_known_by_the_file_it_is_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_shift_model.py").write_text(
        "from clickshift.models.arm import ARM\nclass MyModel(ARM):\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with mock.patch.dict(models.MODELS):  # the class of a candidate is registered
        mine = candidate_model("own_shift_model:MyModel")
    assert (mine.name, mine.role, mine.learner) == ("MyModel", "candidate", "Gradient('MyModel')")
    assert len(mine.content) > 8
    for wrong, code in (
        ("own_shift_model:Other", "not-importable"),
        ("math:pi", "not-a-model"),
        ("no.where:X", "not-importable"),
    ):
        with raises_code(code, SpecError, path=wrong):
            candidate_model(wrong)


CELLS = (Cell, SelectionCell, PointwiseCell, ChecksCell, TuningCell, BacktestTask)


def test_every_exhibit_that_is_ready_can_be_made() -> None:
    ready = [name for name, one in TABLES_AND_FIGURES.items() if one.state == "ready"]
    assert set(ready) >= {"table3", "table4", "figure1", "figure2", "ips-figure1"}
    for name in ready:
        make = table_or_figure(name).make
        assert make is not None
        protocol = make()
        if isinstance(protocol, Analytic):
            assert protocol.rows()
            continue
        cells = list(protocol.tasks())
        assert cells
        assert all(isinstance(cell, CELLS) for cell in cells)
    with raises_code("unknown-name", SpecError, name="table99"):
        table_or_figure("table99")


def test_the_user_of_a_world_is_the_one_that_clicks() -> None:
    logs = World(RANDOM, queries=50, sessions=20_000, test_sessions=100).logs("DBN", PolicyShift().training[0][1])
    assert isinstance(logs.user, cs.models.DBN)
    expected = logs.user.click_prob(logs.train.rankings).mean(axis=0)
    np.testing.assert_allclose(logs.train.ctr_by_rank(), expected, atol=0.02)


@dataclass(frozen=True, eq=False)
class Peeker(ClickModel):
    """A model that knows a little of the click it predicts, or of those below."""

    vocabulary: Vocabulary
    model: ClickModel
    below: bool = False

    def _click_prob(self, rankings: Rankings) -> np.ndarray:
        return self.model.click_prob(rankings)

    def _click_prob_given_history(self, sessions: Sessions) -> np.ndarray:
        prob = self.model.click_prob_given_history(sessions)
        hint = sessions.click[:, -1:] if self.below else sessions.click
        return prob * np.where(hint, 1.0, 0.97)

    def _relevance(self) -> np.ndarray:
        return self.model.relevance(np.arange(-1, self.vocabulary.n_pairs))


def test_a_model_that_knows_its_own_click_is_noticed() -> None:
    corpus: Corpus = cs.builtin_corpus(10)
    user = users.DBN().on(corpus)
    log = simulate(corpus, cs.Uniform(), users.DBN(), 3000, rng=0)
    other = simulate(corpus, cs.Uniform(), users.DBN(), 3000, rng=1)
    honest = check_row([user, cs.fit("PBM", other)], user, {"ind": log})
    assert (honest["kind"], honest["peeks"]) == ("check", False)
    assert honest["above_oracle"] <= 4
    for below in (False, True):
        assert check_row([Peeker(user.vocabulary, user, below)], user, {"ind": log})["peeks"]
    better = check_row([Peeker(user.vocabulary, user)], user, {"ind": log})["above_oracle"]
    gain = (click_bits(user, log) - click_bits(Peeker(user.vocabulary, user), log)).sum(axis=1)
    assert better == pytest.approx(gain.mean() / gain.std() * np.sqrt(len(gain)))
    assert better > 4


def test_the_relevance_of_dctr_is_the_raw_rate_and_its_predictions_are_smoothed() -> None:
    """A document with one click in one impression is before one with 9 of 10, which smoothing would reverse."""
    words = Vocabulary.of(["q"] * 2, ["often", "once"])[0]
    lists = Rankings(words, np.zeros(11, np.int32), np.array([[0]] * 10 + [[1]]))
    log = Sessions(lists, np.array([[True]] * 9 + [[False]] + [[True]]))
    judged = JudgedPairs.of(words, np.array([1.0, 0.0]))
    model = cs.fit("dCTR", log)
    (row,) = ranking_rows([model], judged, np.ones(1))
    assert row["nDCG@1"] == 0.0
    assert model.relevance(np.array([0]))[0] < 0.9, "the model itself is smoothed"
    fitted = cs.fit("Counting('dCTR', smoothing='fitted')", log)
    (row,) = ranking_rows([fitted], judged, np.ones(1))
    assert row["nDCG@1"] == float(fitted.relevance(np.array([0]))[0] > fitted.relevance(np.array([1]))[0])
