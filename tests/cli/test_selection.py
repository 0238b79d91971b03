"""The model-selection protocol from the command line."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clickshift.experiments import papers
from clickshift.experiments.model_selection.strategies import STRATEGIES
from tests.cli.shell import Shell, call

SMALL: tuple[Any, ...] = ("--queries", 20, "--sessions", 1000, "--seeds", 1, "--workers", 1)
SMALL += ("--model", "dCTR", "--model", "PBM", "--model", "DBN")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two of the four kinds of users."""
    folder = tmp_path_factory.mktemp("selection") / "out"
    with pytest.MonkeyPatch.context() as patch:
        quick = papers.quick_model_selection()
        patch.setitem(papers.SELECTION_SCALES, "quick", lambda: replace(quick, users=quick.users[:2]))
        assert call("selection", "run", "-o", folder, *SMALL, "--repeats", 5) == 0
    return folder


def test_a_run_has_tables_charts_and_a_page(shell: Shell, done: Path) -> None:
    page = (done / "report.html").read_text()
    for words in ("Lowest regret", "nDCG among top PPL &amp; mean dependence", "leave one log out", "published"):
        assert words in page
    files = {file.name for file in (done / "exports").iterdir()}
    assert {"regret.csv", "r2.tex", "regret-by-users.csv"} <= files
    found = shell.json("selection", "report", "-o", done, "--repeats", 5)
    assert len(found["regret"]) == len(STRATEGIES) * 3 * 3
    assert {row["way"] for row in found["r2"]} == {"published", "leave one model out", "leave one log out"}


def test_status(shell: Shell, done: Path, tmp_path: Path) -> None:
    found = shell.json("selection", "status", "-o", done)
    assert (found["done"], found["of"]) == (12, 12)
    part = shutil.copytree(done, tmp_path / "part")
    next(iter((part / "cells").glob("*.parquet"))).unlink()
    assert shell.json("selection", "status", "-o", part)["done"] == 11
    told = shell.text("selection", "status", "-o", done)
    assert "12 of 12" in " ".join(told.split())  # a long path may break the line there


def test_a_run_of_another_protocol_is_told(shell: Shell, done: Path) -> None:
    assert "clickshift selection" in shell.error("shift", "status", "-o", done)


def test_slips(shell: Shell, tmp_path: Path) -> None:
    assert "quick, paper" in shell.error("selection", "run", "--scale", "huge", "-o", tmp_path)
    assert str(tmp_path) in shell.error("selection", "report", "-o", tmp_path)
