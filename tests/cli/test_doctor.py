"""clickshift doctor: findings, exit codes and options."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import clickshift as cs
from tests.cli.shell import Shell
from tests.planted_logs import DEFECTS, clean_log


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clean log, and one whose refreshes are a warning."""
    folder = tmp_path_factory.mktemp("logs")
    clean = clean_log(np.random.default_rng(5), 6000)
    refreshed, _ = DEFECTS["refreshes"](clean, 0.06, np.random.default_rng(1))
    cs.write_log(clean.sessions(), folder / "clean.parquet")
    cs.write_log(refreshed.sessions(), folder / "refreshed.parquet")
    return folder


def test_the_exit_code_is_that_of_the_severity(logs: Path, shell: Shell) -> None:
    assert shell.run("doctor", logs / "clean.parquet", "--fail-on", "notice")[0] == 0
    codes = [
        shell.run("doctor", logs / "refreshed.parquet", "--no-effects", "--fail-on", severity)[0]
        for severity in ("notice", "warning", "severe", "never")
    ]
    assert codes == [1, 1, 0, 0]


def test_json_is_what_the_function_returns(logs: Path, shell: Shell, tmp_path: Path) -> None:
    path = logs / "refreshed.parquet"
    assert shell.json("doctor", path) == cs.check_log(path).to_dict()
    shell.text("doctor", path, "--check", "refreshes", "-o", tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size > 100_000


def test_events_are_imported_first(shell: Shell, tmp_path: Path) -> None:
    shell.text("simulate", "-o", tmp_path / "events.ndjson", "--layout", "ubi", "--sessions", 60, "--queries", 5)
    facts = shell.json("doctor", tmp_path / "events.ndjson", "--fail-on", "never")
    assert facts["sessions"] == 60
    assert {"ties", "late-clicks", "clicks-before-impressions"} <= set(facts["passed"])


def test_bad_options_are_named(logs: Path, shell: Shell, tmp_path: Path) -> None:
    path = logs / "clean.parquet"
    assert "--fail-on must be" in shell.error("doctor", path, "--fail-on", "bad")
    assert "refreshes" in shell.error("doctor", path, "--check", "refresh")
    assert "ARM=SHARE" in shell.error("doctor", path, "--arm-share", "new")
    assert "ARM=SHARE" in shell.error("doctor", path, "--arm-share", "new=x")
    (tmp_path / "notes.csv").write_text("a,b\n1,2\n")
    assert "must have the columns" in shell.error("doctor", tmp_path / "notes.csv")
