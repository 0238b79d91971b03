"""The model-selection protocol from the command line."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import clickshift as cs
from clickshift.experiments.model_selection import _report
from clickshift.experiments.model_selection.strategies import STRATEGIES
from clickshift.io.datasets.letor import load_corpus, open_corpus, save_corpus
from tests.cli.shell import Shell, call
from tests.codes import raises_code

SMALL: tuple[Any, ...] = ("--queries", 20, "--sessions", 1000, "--seeds", 1, "--workers", 1)
SMALL += ("--user", "PBM", "--user", "DBN", "--model", "dCTR", "--model", "PBM", "--model", "DBN")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two of the four kinds of users."""
    folder = tmp_path_factory.mktemp("selection") / "out"
    assert call("selection", "run", "-o", folder, *SMALL, "--repeats", 5) == 0
    return folder


def test_the_function_has_the_facts_of_the_command(shell: Shell, done: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    studies: list[int] = []
    r2_rows = _report.r2_rows
    monkeypatch.setattr(_report, "r2_rows", lambda rows, **options: studies.append(1) or r2_rows(rows, **options))
    told = shell.json("selection", "run", "-o", done, *SMALL, "--repeats", 5)
    assert studies == [1], "the tables of the page and of --json are computed once"
    assert told.pop("output") == str(done)
    models = ["dCTR", "PBM", "DBN"]
    options = {"users": ["PBM", "DBN"], "models": models, "repeats": 5, "workers": 1}
    result = cs.model_selection(done, queries=20, sessions=1000, seeds=1, **options)
    assert told == result.to_dict() == cs.read_run(done).to_dict()
    assert told.keys() == {"conclusion", "rows", "regret", "r2", "failures"}


def test_a_run_has_tables_charts_and_a_page(shell: Shell, done: Path) -> None:
    page = (done / "report.html").read_text()
    for words in ("(lowest regret)", "nDCG among top PPL &amp; mean dependence", "leave one log out", "published"):
        assert words in page
    files = {file.name for file in (done / "exports").iterdir()}
    assert {"regret.csv", "r2.tex", "regret-by-users.csv"} <= files
    found = shell.json("selection", "report", "-o", done, "--repeats", 5)
    assert len(found["regret"]) == len(STRATEGIES) * 3 * 3
    assert {row["way"] for row in found["r2"]} == {"published protocol", "leave one model out", "leave one log out"}


def test_users_and_logging_policies_are_chosen_by_name_or_text(tmp_path: Path) -> None:
    small = {"queries": 20, "sessions": 500, "seeds": 1, "models": ["dCTR", "drCTR"], "workers": 0}
    result = cs.model_selection(tmp_path, users=["GradedDBN"], training=["NoisyOracle"], **small)
    assert {(row["user"], row["training"]) for row in result.rows()} == {("GradedDBN", "NoisyOracle")}
    frame = pa.table({"query": ["q"] * 10, "doc": list(range(10)), "label": [0, 1, 2, 3, 4] * 2, "f": [0.5] * 10})
    corpus = open_corpus(frame)
    with raises_code("failed-tasks"):  # too small to rank
        cs.model_selection(corpus=frame, users=["PBM"], training=["NoisyOracle"], **small)
    path, digest = save_corpus(corpus, tmp_path / "corpora")
    assert save_corpus(open_corpus(frame), tmp_path / "corpora") == (path, digest)
    path.write_bytes(b"damaged")
    with raises_code("damaged-file"):
        load_corpus(path)
    with raises_code("unknown-name"):
        cs.model_selection(tmp_path, users=["nobody"], **small)


def test_status(shell: Shell, done: Path, tmp_path: Path) -> None:
    found = shell.json("selection", "status", "-o", done)
    assert (found["done"], found["of"]) == (12, 12)
    part = shutil.copytree(done, tmp_path / "part")
    next(iter((part / "cells").glob("*.parquet"))).unlink()
    assert shell.json("selection", "status", "-o", part)["done"] == 11
    told = shell.text("selection", "status", "-o", done)
    assert "12 of 12" in " ".join(told.split())  # a long path may break the line there


def test_a_run_of_another_protocol_is_shown_as_what_it_is(shell: Shell, done: Path) -> None:
    assert shell.json("shift", "status", "-o", done) == shell.json("selection", "status", "-o", done)


def test_slips(shell: Shell, tmp_path: Path) -> None:
    assert "quick, paper" in shell.error("selection", "run", "--scale", "huge", "-o", tmp_path)
    assert str(tmp_path) in shell.error("selection", "report", "-o", tmp_path)
