"""clickshift shift logs: several logs of one engine from files to a report, and one log as in the paper's tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import clickshift as cs
from clickshift.display.tables import read_rows
from clickshift.display.values import Measured
from clickshift.errors import ClickshiftWarning
from clickshift.experiments._real_logs_report import RealLogsResult, _one_log_tables
from clickshift.io.read_log import read_log
from tests.cli.shell import Shell, call
from tests.rows import without_costs

PBM = "Gradient('PBM', embedding=8, hidden=(8,), rounds=2)"
POLICIES = {"old": "PlackettLuce(NoisyOracle, temperature=0.3, scores='log')", "new": "Uniform"}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two rankers' logs of the same six queries, and judgments of their documents."""
    folder = tmp_path_factory.mktemp("engine")
    options = ("--sessions", 3000, "--queries", 6, "--ranks", 5, "--query-law", "uniform")
    for name, policy in POLICIES.items():
        call("simulate", "-o", folder / f"{name}.parquet", "--policy", policy, *options, "--seed", 0)
    words = read_log(folder / "old.parquet").vocabulary
    lines = zip(words.query_ids[words.pair_query], words.doc_ids[words.pair_doc], strict=True)
    (folder / "labels.qrels").write_text("".join(f"{query} 0 {doc} {i % 3}\n" for i, (query, doc) in enumerate(lines)))
    return folder


def arguments(engine: Path, output: Path, *more: object) -> tuple[object, ...]:
    logs = ("--train", engine / "old.parquet", "--test", engine / "new.parquet")
    models = ("--model", "dCTR", "--model", "TopPop", "--model", PBM, "--seeds", 2)
    return ("shift", "logs", *logs, *models, "--held-out", 0.1, "-o", output, *more)


def test_several_logs(shell: Shell, engine: Path, tmp_path: Path) -> None:
    command = arguments(engine, tmp_path / "out", "--judgments", engine / "labels.qrels")
    code, _, err = shell.run(*command)
    assert code == 0, err
    assert [line.split("] ")[0] for line in err.splitlines() if line.startswith("[")] == ["[1/3", "[2/3", "[3/3"]
    code, text, err = shell.run(*command)
    assert "s left" not in err, "nothing runs again"
    said = shell.json(*command)
    assert {row["testing"] for row in said["rows"] if row["kind"] == "clicks"} == {"ind", "new"}
    assert [(row["testing"], row["train_sessions"]) for row in said["logs"]] == [("ind", 2400), ("new", 2400)]
    assert said["logs"][1]["unseen_pair_share"] > 0.2
    assert any("of the results of new were never shown in old" in text for text in said["warnings"])
    assert [verdict["model"] for verdict in said["verdicts"]] == [PBM]
    rows = read_rows(tmp_path / "out" / "rows.parquet")
    assert {row["kind"] for row in rows} >= {"log", "clicks", "ranking"}
    assert {(row["user"], row["training"]) for row in rows} == {("real", "old")}
    for title in ("Logs", "Held-out perplexity: old", "Held-out AUROC: old", "nDCG: old", "Recall: old"):
        assert title in text
    assert "ood: new" in text
    (file,) = (tmp_path / "out").rglob("ndcg-old.csv")
    lines = file.read_text(encoding="utf-8").splitlines()
    assert {line.split(",")[0] for line in lines} >= {"model", "dCTR", "TopPop", "logging policy"}
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "Held-out clicks and judged documents" in page
    assert "of the results of new were never shown in old" in page


def test_the_function_has_the_facts_of_the_command(shell: Shell, engine: Path, tmp_path: Path) -> None:
    command = arguments(engine, tmp_path / "out", "--judgments", engine / "labels.qrels")
    told = shell.json(*command)
    assert told.pop("output") == str(tmp_path / "out")
    with pytest.warns(ClickshiftWarning) as warned:
        result = cs.compare_logs(
            engine / "old.parquet",
            [engine / "new.parquet"],
            judgments=engine / "labels.qrels",
            models=["dCTR", "TopPop", PBM],
            seeds=2,
            held_out=0.1,
            output=tmp_path / "out",
        )
    assert told == result.to_dict()
    assert [str(one.message) for one in warned] == result.warnings == told["warnings"]
    assert told.keys() == {"conclusion", "logs", "sizes", "warnings", "rows", "verdicts", "failures"}


def test_logs_in_memory_are_compared_like_files(engine: Path, tmp_path: Path) -> None:
    """A data frame and sessions, named in a mapping, with a column of another name."""
    frame = pq.read_table(engine / "old.parquet").rename_columns({"docs": "results"})
    options: dict[str, Any] = {"models": ["dCTR", "EM('PBM')"], "held_out": 0.1, "workers": 1}
    with pytest.warns(ClickshiftWarning):
        files = cs.compare_logs(engine / "old.parquet", engine / "new.parquet", **options)
    new = read_log(engine / "new.parquet")
    with pytest.warns(ClickshiftWarning):
        logs = cs.compare_logs({"old": frame}, {"new": new}, columns={"docs": "results"}, **options)
    ours, theirs = logs.to_dict(), files.to_dict()
    assert without_costs(ours.pop("rows")) == without_costs(theirs.pop("rows"))
    assert ours == theirs


def test_one_log_has_no_verdict(shell: Shell, engine: Path, tmp_path: Path) -> None:
    models = ("--model", "dCTR", "--model", "EM('PBM')", "--model", "EM('DBN')")
    command = ("shift", "logs", "--train", engine / "old.parquet", *models, "-o", tmp_path)
    said = shell.json(*command)
    assert said["verdicts"] == []
    assert "predicts held-out clicks of old best" in said["conclusion"]
    assert "ood" not in shell.text(*command)
    assert {row["sessions"] for row in said["rows"]} == {100}, "a thirtieth, as in the paper"


def test_a_public_log_with_its_own_labels(shell: Shell, shared_data: Path, tmp_path: Path) -> None:
    path = shared_data / "trec_session2014" / "human_label_for_GraphCM_per_query_quid.txt.gz"
    options = ("--format", "trec", "--judgments", path, "--annotated", "--with-clicks", "--held-out", 0.1)
    said = shell.json(
        "shift",
        "logs",
        "--train",
        path,
        *options,
        "--model",
        "dCTR",
        "--model",
        "EM('UBM')",
        "-o",
        tmp_path,
        "--seeds",
        1,
    )
    assert {row["model"] for row in said["rows"] if row["kind"] == "ranking"} == {"dCTR", "EM('UBM')", "logging policy"}
    clicked = {row["train_sessions"] + 2 * row["sessions"] for row in said["logs"]}
    assert clicked == {288}, "pages with a click, of 849"


def test_slips_are_said_in_one_line(shell: Shell, engine: Path, tmp_path: Path) -> None:
    log, out = engine / "old.parquet", tmp_path / "out"
    for options, facts in (
        (("--train", tmp_path / "none.parquet"), ("none.parquet",)),
        ((), ("'--train'",)),
        (("--train", log, "--model", "PMB"), ("'PMB'",)),
        (("--train", log, "--test", log), ("old", "same name")),
        (("--train", log, "--annotated"), ("judgments",)),
        (("--train", log, "--held-out", 0.5), ("0.5", "below 1")),
        (("--train", engine / "labels.qrels", "--format", "trec"), ("labels.qrels", "line 1")),
    ):
        said = shell.error("shift", "logs", *options, "-o", out)
        for fact in facts:
            assert fact in said, options
    assert not (out / "report.html").exists()


def clicks(model: str, role: str, perplexity: float, auroc: float, **more: Any) -> list[dict[str, Any]]:
    about = {"kind": "clicks", "user": "real", "training": "A", "testing": "ind", "shift": "ind"}
    return [
        {
            **about,
            "model": model,
            "role": role,
            "seed": seed,
            "perplexity": perplexity + noise,
            "auroc": auroc + noise,
            **more,
        }
        for seed, noise in enumerate((-0.001, 0.0, 0.001))
    ]


@pytest.mark.parametrize(("queries", "shown"), [(4991, True), (4950, True), (3000, False), (None, False)])
def test_the_published_numbers_stand_beside_those_of_the_same_log(queries: int | None, shown: bool) -> None:
    size = {"kind": "size", "training": "A", "queries": queries or 10, "documents": 255_000}
    published = {} if queries is None else {"published_queries": 4991, "published_documents": 255_467}
    rows = clicks("PBM", "click model", 1.3177, 0.8798, **{"perplexity@1": 1.7, "auroc@1": 0.7})
    result = RealLogsResult([*rows, size | published])
    lines = result.document.tables.get("published", [])
    verdicts = {(line["model"], line["metric"]): line["verdict"] for line in lines}
    agreeing = {("PBM", "PPL"): "agrees", ("PBM", "AUROC"): "agrees"}
    assert verdicts == ({**agreeing, ("PBM", "PPL@1"): "differs", ("PBM", "AUROC@1"): "differs"} if shown else {})


def test_marks_of_the_paper() -> None:
    rows = clicks("PBM", "click model", 1.3, 0.8, **{"perplexity@1": 1.5, "auroc@1": 0.7})
    rows += clicks("UBM", "click model", 1.3005, 0.9, **{"perplexity@1": 1.4, "auroc@1": 0.6})
    rows += clicks("dCTR", "baseline", 1.4, 0.7, **{"perplexity@1": 1.6, "auroc@1": 0.5})
    rows += clicks("ARM NC", "peeking", 1.1, float("nan"), **{"perplexity@1": 1.1, "auroc@1": float("nan")})
    ranking = {"kind": "ranking", "user": "real", "training": "A", "seed": 0}
    rows += [{**ranking, "model": "PBM", "role": "click model", "nDCG@1": 0.4, "Recall@1": 0.1}]
    rows += [{**ranking, "model": "ARM NC", "role": "peeking", "nDCG@1": 0.3, "Recall@1": 0.2}]
    tables = _one_log_tables(rows)
    assert list(tables) == [("A", title) for title in ("Held-out perplexity", "Held-out AUROC", "nDCG", "Recall")]

    def standing(title: str, column: str) -> dict[str, str]:
        found = {line["model"]: line[column] for line in tables["A", title]}
        return {model: cell.standing for model, cell in found.items() if isinstance(cell, Measured)}

    perplexity = standing("Held-out perplexity", "PPL")
    assert perplexity == {"PBM": "best", "UBM": "=", "dCTR": "", "ARM NC": ""}, "what peeks is not compared"
    assert standing("Held-out perplexity", "PPL@1")["UBM"] == "best"
    assert standing("Held-out AUROC", "AUROC") == {"PBM": "", "UBM": "best", "dCTR": ""}
    assert standing("Held-out AUROC", "AUROC@1") == {"PBM": "best", "UBM": "", "dCTR": ""}, (
        "higher is better at a rank, too"
    )
    (shown,) = (line["PPL"] for line in tables["A", "Held-out perplexity"] if line["model"] == "ARM NC")
    assert str(shown).startswith("(1.1000")
    metrics = ("nDCG", "Recall")
    daggers = {(name, line["model"]): line[f"{name}@1"].dagger for name in metrics for line in tables["A", name]}
    assert [key for key, dagger in daggers.items() if dagger] == [("nDCG", "PBM")]
