"""Commands on files in published formats, which stand in for the real samples."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from clickshift.display import export
from clickshift.experiments import runner
from clickshift.io.read_log import read_log
from tests.cli.shell import Shell
from tests.standins import (
    BANDIT_ROWS,
    MSLR_QUERIES,
    YANDEX_SIZES,
    bandit_rows,
    mslr_documents,
    trec_labelled,
    trec_pages,
    yandex_entries,
)

LOGS = [
    (
        "yandex-sample",
        "yandex_wscd/trainSample.gz",
        1200,
        [len(set(entry.clicked) & set(entry.docs)) for entry in yandex_entries()],
    ),
    (
        "trec",
        "trec_session2014/train_per_query_quid.txt.gz",
        294,
        [sum(page.clicks) for page in trec_pages("train") if not page.repeats],
    ),
    ("open-bandit", "open_bandit/random/men/men.csv.gz", BANDIT_ROWS, [row.click for row in bandit_rows("random")]),
]


@pytest.mark.parametrize(("format", "file", "sessions", "clicks"), LOGS, ids=[log[0] for log in LOGS])
def test_published_logs_are_converted(
    format: str, file: str, sessions: int, clicks: list[int], shell: Shell, standins: Path, tmp_path: Path
) -> None:
    clicked = sum(map(bool, clicks))
    convert = ("log", "convert", standins / file, "--format", format)
    facts = shell.json(*convert, "-o", tmp_path / "log.parquet")
    assert facts["sessions_read"] == facts["sessions_written"] == sessions
    assert shell.json("log", "info", tmp_path / "log.parquet")["sessions"] == sessions
    facts = shell.json(*convert, "--with-clicks", "-o", tmp_path / "log.csv.gz")
    assert (facts["sessions_read"], facts["sessions_written"]) == (sessions, clicked)
    kept = read_log(tmp_path / "log.csv.gz")
    assert kept.total == clicked
    assert kept.click.any(axis=1).all()
    assert (kept.count @ kept.click).sum() == sum(clicks)


def test_corpus_info_of_a_published_file(shell: Shell, standins: Path) -> None:
    facts = shell.json("corpus", "info", standins / "mslr_sample" / "web10k_fold1_test_5k.txt.gz")
    label = mslr_documents("test").label
    assert (facts["features"], facts["queries"]) == (136, MSLR_QUERIES)
    assert facts["label_shares"] == pytest.approx([(label == grade).mean() for grade in range(5)])


def test_models_of_a_log_whose_users_are_known(shell: Shell, standins: Path, tmp_path: Path) -> None:
    """The users of this log look as UBM says: UBM predicts them better than PBM, and PBM better than ranks alone."""
    log = tmp_path / "log.parquet"
    shell.text("log", "convert", standins / "yandex_wscd" / "trainSample.gz", "--format", "yandex-sample", "-o", log)
    models = [part for name in ("UBM", "PBM", "rCTR") for part in ("--model", name)]
    rows = shell.json("compare", log, *models, "--split", "within-query")["rows"]
    assert [row["model"] for row in rows if row["error"]] == []
    train = sum(round(0.8 * size) for size in YANDEX_SIZES.values())
    assert {(row["train_sessions"], row["test_sessions"]) for row in rows} == {(train, 1200 - train)}
    found = {row["model"]: row["conditional_perplexity"] for row in rows}
    assert found["UBM"] + 0.01 < found["PBM"]
    assert found["PBM"] + 0.01 < found["rCTR"]


def test_a_published_log_with_its_own_labels(
    shell: Shell, standins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "process_pool", lambda workers: ThreadPoolExecutor(1))
    monkeypatch.setattr(export, "draw", lambda figures: {})
    path = standins / "trec_session2014" / "human_label_for_GraphCM_per_query_quid.txt.gz"
    options = ("--format", "trec", "--judgments", path, "--annotated", "--with-clicks", "--held-out", 0.1)
    models = ("--model", "dCTR", "--model", "TopPop", "--seeds", 1)
    said = shell.json("shift", "logs", "--train", path, *options, *models, "-o", tmp_path)
    assert {row["model"] for row in said["rows"] if row["kind"] == "ranking"} == {"dCTR", "TopPop", "logging policy"}
    clicked = sum(any(page.clicks) for page in trec_labelled() if not page.repeats)
    assert {row["train_sessions"] + 2 * row["sessions"] for row in said["logs"]} == {clicked}
