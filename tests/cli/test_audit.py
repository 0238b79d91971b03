"""clickshift audit, log split and simulate --truth, as a user calls them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import clickshift as cs
from clickshift.debiasedness.scored_pairs import ScoredPairs
from clickshift.experiments._audit_report import AuditResult, ModelAudit
from tests.cli.shell import Shell, call
from tests.codes import raises_code, warns_code

NOISY = "PlackettLuce(NoisyOracle(sd=0.5, scale='label'), temperature=0.1)"
FEW: tuple[Any, ...] = ("--permutations", 19, "--subsamples", 20)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of PBM users on a good ranker's lists, what it hides, and two models that learned from most of it."""
    folder = tmp_path_factory.mktemp("audit")
    log = ("--queries", 150, "--documents", 10, "--user", "PBM", "--query-law", "uniform", "--sessions", 120_000)
    assert call("simulate", "-o", folder / "all.parquet", *log, "--policy", NOISY, "--truth", folder / "truth.csv") == 0
    parts = ("--train", folder / "log.parquet", "--test", folder / "new.parquet")
    assert call("log", "split", folder / "all.parquet", *parts) == 0
    for model in ("dCTR", "PBM"):
        assert call("fit", model, folder / "log.parquet", "-o", folder / model) == 0
    return folder


def audited(shell: Shell, work: Path, *options: object) -> dict[str, Any]:
    found = shell.json("audit", work / "dCTR", work / "PBM", work / "new.parquet", *options, *FEW)
    return {row["model"]: row for row in found["rows"]} | {"chosen": found["chosen"], "verdicts": found["verdicts"]}


def test_click_rates_know_the_ranker_and_a_click_model_hardly_does(shell: Shell, work: Path) -> None:
    truth = work / "truth.csv"
    found = audited(shell, work, "--labels", truth, "--logging-scores", truth, "--strategy", "mean dependence")
    ctr, pbm = found["dCTR"], found["PBM"]
    assert ctr["mean_dependence"] > 0.15
    assert ctr["mean_dependence_p_value"] <= 0.05
    assert ctr["mean_dependence_slope"] > 0
    assert ctr["mean_dependence_low"] > max(pbm["mean_dependence_high"], 0)
    assert ctr["cmip"] > pbm["cmip"] + 0.1
    assert found["chosen"]["model"] == "PBM"
    assert found["verdicts"][0]["verdict"] == "favours what the logging policy favoured"


def test_where_the_ranker_put_documents_tells_as_much_as_its_scores(shell: Shell, work: Path) -> None:
    for logging in ("rank", "exposure"):
        found = audited(shell, work, "--labels", work / "truth.csv", "--logging", logging)
        assert found["dCTR"]["mean_dependence_low"] > found["PBM"]["mean_dependence_high"]


def test_relevance_from_random_traffic_and_from_orderings(shell: Shell, work: Path) -> None:
    log = ("--queries", 150, "--documents", 10, "--user", "PBM", "--query-law", "uniform", "--sessions", 60_000)
    assert call("simulate", "-o", work / "random.parquet", *log, "--policy", "Uniform") == 0
    by_clicks = audited(shell, work, "--random-log", work / "random.parquet")
    truth = pyarrow.csv.read_csv(work / "truth.csv").to_pydict()
    query, doc, label = (np.array(truth[name]) for name in ("query", "doc", "label"))
    lists = [
        {"query": int(q), "docs": doc[query == q][np.argsort(-label[query == q], kind="stable")].tolist()}
        for q in np.unique(query)
    ]
    pq.write_table(pa.Table.from_pylist(lists), work / "best-first.parquet")
    by_order = audited(shell, work, "--orderings", work / "best-first.parquet")
    for found in (by_clicks, by_order):
        assert found["dCTR"]["mean_dependence"] > found["PBM"]["mean_dependence"]
        by_model = {one["model"]: one["verdict"] for one in found["verdicts"]}
        # noisy relevance makes every model look dependent: models are compared with each other only
        assert by_model == {
            "dCTR": "depends more on the logging policy than PBM",
            "PBM": "depends least of the audited models",
        }
    alone = cs.audit(work / "PBM", work / "new.parquet", random_log=work / "random.parquet", permutations=19)
    assert [one["verdict"] for one in alone.verdicts] == ["nothing to compare with"]
    assert alone.to_dict()["relative"] is True
    twice = {"one": cs.load_model(work / "PBM"), "two": cs.load_model(work / "PBM")}
    equal = cs.audit(twice, work / "new.parquet", random_log=work / "random.parquet", permutations=19, subsamples=9)
    assert equal.verdicts[1]["verdict"] == "cannot be told apart from one"


def test_a_report_with_charts_and_words(shell: Shell, work: Path) -> None:
    labels = ("--labels", work / "truth.csv")
    said = shell.text("audit", work / "PBM", work / "dCTR", work / "new.parquet", *labels, *FEW, "-o", work / "out")
    assert "Random scores would be debiased too" in said
    assert "Recommended by the strategy" in said
    page = (work / "out" / "report.html").read_text()
    assert "Within labels" not in said, "for the page only"
    assert "label 0" in page
    assert "dCTR: favours what the logging policy favoured" in page
    assert pq.read_table(work / "out" / "rows.parquet").num_rows == 2


def facts_of(model: str, mean: float, cmip: float, slope: float = 0.05) -> ModelAudit:
    """An audit of made-up numbers, with intervals of .02 on each side."""
    numbers = {
        f"{name}{part}": value + change
        for name, value in (("mean_dependence", mean), ("cmip", cmip))
        for part, change in (("", 0.0), ("_low", -0.02), ("_high", 0.02))
    }
    about = {"model": model, "seeds": 1, "pairs": 1200, "queries": 100, "untestable": "", "perplexity": 1.2}
    null = {f"{name}_{part}": value for name in ("mean_dependence", "cmip") for part, value in NULL.items()}
    return ModelAudit(about | numbers | null | {"mean_dependence_slope": slope, "nDCG@10": 0.9}, ROWS, np.zeros(0))


NULL = {"null_mean": 0.001, "null_high": 0.01, "p_value": 0.05}
ROWS = ScoredPairs(*(np.array([0, 0, 1, 1]) for _ in range(1)), *(np.array([0.1, 0.2, 0.3, 0.4]) for _ in range(3)))


def test_two_models_never_have_the_same_heading_and_a_disagreement_is_explained() -> None:
    models = (facts_of("dCTR", 0.33, 0.05), facts_of("drCTR", 0.2, 0.28))
    found = AuditResult(models, "PPL", "drCTR", (), {"labels": "truth.csv", "logging": "rank"})
    assert len({one["verdict"] for one in found.verdicts}) == 1
    headings = [part.title for section in found.document.sections for part in section.parts][:2]
    assert headings == [
        "dCTR: favours what the logging policy favoured (33.0% of the variance within labels)",
        "drCTR: favours what the logging policy favoured (20.0% of the variance within labels)",
    ]
    assert "CMIP orders drCTR and dCTR the other way round" in found.conclusion
    assert found.document.data.startswith("1,200 judged pairs of 100 queries; relevance from labels of truth.csv")
    same = AuditResult((models[0], facts_of("PBM", 0.02, 0.01)), "PPL", "PBM", (), {})
    assert "the other way round" not in same.conclusion
    assert same.document.verdict == "hardly depends on the logging policy"
    models[1].facts["cmip_p_value"] = 0.2
    chance = AuditResult(models, "PPL", "drCTR", (), {})
    assert "the other way round" not in chance.conclusion, "a CMIP within chance orders nothing"
    assert "perplexity and nDCG" in chance.conclusion
    for one in models:
        one.facts["perplexity"] = math.nan
    assert "perplexity" not in AuditResult(models, "nDCG", "drCTR", (), {}).conclusion, "scores have none"


def test_the_figure_shows_both_metrics_with_intervals_and_chance() -> None:
    models = (facts_of("dCTR", 0.33, 0.05), facts_of("PBM", 0.02, 0.28))
    figure = AuditResult(models, "PPL", "PBM", (), {}).figure("dependence")
    for axis, expected in (("x", [0.02, 0.33]), ("x2", [0.28, 0.05])):
        estimate, chance = (trace for trace in figure.data if trace.xaxis == axis and trace.hoverinfo != "skip")
        assert list(estimate.y) == ["PBM", "dCTR"], "the least dependent on top"
        assert list(estimate.x) == expected
        assert estimate.error_x.array == pytest.approx([0.02, 0.02])
        assert list(chance.x) == [0.01, 0.01]


def test_one_document_lists_and_a_constant_preference_cannot_be_tested(work: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    query, doc = rng.integers(40, size=4000), rng.integers(6, size=4000)
    log = cs.read_log(
        pa.table({"query": query, "docs": doc[:, None].tolist(), "clicks": (rng.random((4000, 1)) < 0.3).tolist()})
    )
    truth = pa.table(
        {"query": np.repeat(np.arange(40), 6), "doc": np.tile(np.arange(6), 40), "label": np.arange(240) % 3}
    )
    pq.write_table(truth, tmp_path / "labels.parquet")
    models = {name: cs.fit(name, log) for name in ("dCTR", "PBM")}
    found = cs.audit(models, log, labels=tmp_path / "labels.parquet", permutations=19, subsamples=9)
    assert [one["verdict"] for one in found.verdicts] == ["cannot be tested"] * 2
    facts = found.to_dict()
    assert "no dependence" not in facts["conclusion"]
    assert facts["chosen"] == {}
    assert (facts["rows"][0]["mean_dependence"], facts["rows"][0]["cmip_p_value"]) == (None, None)
    assert cs.audit(models, log, labels=tmp_path / "labels.parquet", subsamples=0, strategy="PPL").chosen in models
    few = cs.audit(work / "PBM", work / "new.parquet", labels=work / "truth.csv", permutations=9, subsamples=0)
    assert few.verdicts[0]["verdict"] == "cannot be tested", "9 permutations give no p-value below .1"


def test_labels_that_the_audited_model_made_are_noticed(shell: Shell, work: Path, tmp_path: Path) -> None:
    """Labels by the command `judgments`: as qrels only their order tells, as Parquet also the name of the model."""
    assert call("judgments", work / "PBM", "-o", tmp_path / "own.qrels", "--grades", "quantile:5") == 0
    found = shell.json(
        "audit", work / "dCTR", work / "PBM", work / "new.parquet", "--labels", tmp_path / "own.qrels", *FEW
    )
    assert found["circular"] == ["PBM"]
    assert "PBM" in found["cautions"][0]
    graded = cs.judgments(work / "PBM")
    graded.write(tmp_path / "own.parquet")
    table = pq.read_table(tmp_path / "own.parquet")
    rng = np.random.default_rng(0)  # labels that were changed later are not in the model's order, but the name stays
    label = pa.array(table["grade"].to_numpy() + (rng.random(table.num_rows) < 0.01))
    pq.write_table(table.append_column("label", label), tmp_path / "renamed.parquet")
    models = [work / "dCTR", work / "PBM"]
    named = cs.audit(models, work / "new.parquet", labels=tmp_path / "renamed.parquet", permutations=19, subsamples=0)
    assert named.circular == ("PBM",)
    honest = cs.audit(models, work / "new.parquet", labels=work / "truth.csv", permutations=19, subsamples=0)
    assert honest.circular == ()


def test_qrels_are_labels_too(shell: Shell, work: Path) -> None:
    truth = pyarrow.csv.read_csv(work / "truth.csv").to_pydict()
    lines = [f"{q} 0 {d} {int(y)}\n" for q, d, y in zip(truth["query"], truth["doc"], truth["label"], strict=True)]
    (work / "labels.txt").write_text("".join(lines))
    both = [audited(shell, work, "--labels", work / name)["PBM"] for name in ("labels.txt", "truth.csv")]
    assert both[0] == both[1]


def test_strategies_that_an_audit_can_use_are_listed(shell: Shell, work: Path) -> None:
    listed = shell.text("audit", work / "PBM", work / "new.parquet", "--strategy", "?")
    best, among = next(line.split("│")[2:4] for line in listed.splitlines() if "│ PPL among top nDCG & CMIP" in line)
    assert (best.strip(), among.strip()) == ("PPL", "nDCG and CMIP"), "filters come first"
    for reference in ("random model", "best fixed model", "weighted PPL"):
        assert reference not in listed
        with raises_code("unknown-name", name=reference):  # before any work: the log is not even looked for
            cs.audit(work / "PBM", "nowhere.parquet", labels="nowhere.csv", strategy=reference)


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ((), ("one source", "got 0")),
        (("--labels", "{}/truth.csv", "--random-log", "{}/log.parquet"), ("one source", "got 2")),
        (("--labels", "{}/missing.csv"), ("missing.csv",)),
        (("--labels", "{}/truth.csv", "--logging", "mood"), ("rank, exposure", "'mood'")),
        (("--labels", "{}/truth.csv", "--strategy", "luck"), ("'luck'", "nDCG among top PPL & CMIP")),
        (("--labels", "{}/truth.csv", "--estimator", "luck"), ("'ksg' or 'classifier'", "'luck'")),
        (("--labels", "{}/log.parquet"), ("log.parquet", "columns query, doc, label")),
    ],
)
def test_slips(shell: Shell, work: Path, options: tuple[str, ...], facts: tuple[str, ...]) -> None:
    given = [option.format(work) for option in options]
    said = shell.error("audit", work / "PBM", work / "new.parquet", *given)
    for fact in facts:
        assert fact in said


def test_a_model_without_opinions_cannot_be_audited(shell: Shell, work: Path) -> None:
    assert call("fit", "rCTR", work / "log.parquet", "-o", work / "rCTR") == 0
    said = shell.error("audit", work / "rCTR", work / "new.parquet", "--labels", work / "truth.csv")
    assert "RCTR" in said


def test_a_split_adds_up(shell: Shell, work: Path, tmp_path: Path) -> None:
    parts = ("--train", tmp_path / "a.parquet", "--test", tmp_path / "b.parquet")
    found = shell.json("log", "split", work / "new.parquet", *parts, "--fraction", 0.75)
    assert (found["train"], found["test"]) == (18_000, 6000)
    said = shell.error("log", "split", work / "new.parquet", *parts, "--split", "mood")
    assert "random, time, order, within-query" in said


def test_the_function_returns_what_the_command_prints(shell: Shell, work: Path, tmp_path: Path) -> None:
    models, log, truth = [work / "dCTR", work / "PBM"], work / "new.parquet", work / "truth.csv"
    options = ("--labels", truth, "--permutations", 19, "--subsamples", 0)
    wanted = cs.audit(models, log, labels=truth, permutations=19, subsamples=0)
    assert shell.json("audit", *models, log, *options) == wanted.to_dict()
    assert wanted.chosen == "PBM"
    assert set(wanted.figures) == {"dependence", "dCTR", "PBM"}
    # models in memory, and a log on disk that is read in chunks
    encoded = cs.encode_log(log, tmp_path / "encoded").log
    loaded = {path.name: cs.load_model(path) for path in models}
    found = cs.audit(loaded, encoded, labels=truth, permutations=19, subsamples=0)
    for one, other in zip(found.rows(), wanted.rows(), strict=True):
        assert one == pytest.approx(other, nan_ok=True)


def test_scores_from_elsewhere_are_audited_like_the_model_that_gave_them(
    shell: Shell, work: Path, tmp_path: Path
) -> None:
    model = cs.load_model(work / "PBM")
    words = model.vocabulary
    table = {"query": words.query_ids[words.pair_query], "doc": words.doc_ids[words.pair_doc]}
    scores = pa.table(table | {"score": model.relevance(np.arange(words.n_pairs))})
    pa.csv.write_csv(scores, tmp_path / "mine.csv")
    options = ("--labels", work / "truth.csv", "--permutations", 19, "--subsamples", 0)
    found = shell.json("audit", work / "PBM", work / "new.parquet", "--scores", tmp_path / "mine.csv", *options)
    pbm, mine = found["rows"]
    assert (pbm["model"], mine["model"]) == ("PBM", "mine")
    for name in ("mean_dependence", "cmip", "nDCG@10", "pairs"):
        assert mine[name] == pytest.approx(pbm[name], rel=1e-9)
    assert mine["perplexity"] is None
    alone = {"labels": work / "truth.csv", "permutations": 0, "subsamples": 0}
    two = cs.audit(log=work / "new.parquet", scores={"a": scores, "b": scores}, **alone)
    assert [row["model"] for row in two.rows()] == ["a", "b"]
    assert two.chosen is None
    assert any("perplexity" in caution for caution in two.cautions)
    half = scores.slice(0, scores.num_rows // 2)
    without = cs.audit(log=work / "new.parquet", scores={"half": half}, **alone)
    left_out = mine["pairs"] - without.rows()[0]["pairs"]
    assert left_out > 0
    assert f"{left_out:,} judged pairs are left out for all models: {left_out:,} unknown to half." in without.cautions


def test_scores_that_contradict_each_other_are_left_out(work: Path) -> None:
    truth = pyarrow.csv.read_csv(work / "truth.csv").select(["query", "doc", "score"])
    second = truth.slice(0, 1).set_column(2, "score", pa.array([9.0]))
    facts = {"labels": (float(truth["score"][0].as_py()), 9.0), "left_out": {"conflicting-labels": 1}}
    with warns_code("skipped-input", **facts):
        cs.audit(
            log=work / "new.parquet",
            scores=pa.concat_tables([truth, second]),
            labels=work / "truth.csv",
            permutations=0,
            subsamples=0,
        )


def test_labels_of_a_public_log(work: Path, tmp_path: Path) -> None:
    """The file of labels of the WSCD 2012 log names queries by QueryID_RegionID; the log is renamed to fit."""
    truth = pd.read_csv(work / "truth.csv")
    truth["label"] = (truth["label"] > 1).astype(int)  # WSCD has two labels
    truth.to_csv(tmp_path / "truth.csv", index=False)
    lines = [f"{row.query}\t0\t{row.doc}\t{row.label}\n" for row in truth.itertuples()]
    (tmp_path / "labels.txt").write_text("".join(lines))
    log = pd.read_parquet(work / "new.parquet")
    log = log.assign(query=[f"{query}_0" for query in log["query"]])
    scores = truth.assign(query=[f"{query}_0" for query in truth["query"]])[["query", "doc", "score"]]
    options = {"permutations": 0, "subsamples": 0}
    found = cs.audit(
        log=log, scores=scores, labels=tmp_path / "labels.txt", labels_format="yandex-wscd", **options
    ).rows()[0]
    known = cs.audit(
        log=work / "new.parquet",
        scores=truth[["query", "doc", "score"]],
        labels=tmp_path / "truth.csv",
        **options,
    ).rows()[0]
    assert found["pairs"] == known["pairs"] > 100
    assert found["mean_dependence"] == pytest.approx(known["mean_dependence"], abs=0.02)
    for wrong, labels, code in (("nope", "labels.txt", "unknown-name"), ("trec", None, "bad-option")):
        with raises_code(code):
            cs.audit(log=log, scores=scores, labels=labels, labels_format=wrong)


def test_scores_that_cannot_be_audited(work: Path) -> None:
    log, labels = work / "new.parquet", work / "truth.csv"

    def table(*scores: float) -> pa.Table:
        return pa.table({"query": [0] * len(scores), "doc": list(range(len(scores))), "score": list(scores)})

    for scores, code in (
        ({"x": table(1.0, np.inf)}, "not-finite"),
        ({"x": table(1.0, 1.0)}, "cannot-rank-documents"),
        ([table(1.0, 2.0)], "no-common-pairs"),
        ([], "no-models"),
    ):
        with raises_code(code):
            cs.audit(log=log, scores=scores, labels=labels)
    for text in (f"={labels}", "mine="):
        with raises_code("bad-option", option="scores", value=text):
            cs.audit(log=log, scores=text, labels=labels)
    with raises_code("bad-option", option="log"):
        cs.audit(work / "PBM", labels=labels)
