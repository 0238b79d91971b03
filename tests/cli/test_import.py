"""clickshift import: events in, a log out."""

from __future__ import annotations

from pathlib import Path

import pytest

import clickshift as cs
from tests.cli.shell import Shell


@pytest.fixture
def events(shell: Shell, tmp_path: Path) -> Path:
    shell.text("simulate", "-o", tmp_path / "events.ndjson", "--layout", "ubi", "--sessions", 50, "--queries", 5)
    return tmp_path / "events.ndjson"


@pytest.mark.parametrize("name", ["log.parquet", "log.csv", "log.jsonl.gz"])
def test_simulated_events_become_a_log(name: str, events: Path, shell: Shell, tmp_path: Path) -> None:
    out = shell.json("import", events, "-o", tmp_path / name)
    assert out["format"] == "ubi"
    assert out["lists"] == out["lists_written"] == 50
    assert out == cs.read_events(events, output=tmp_path / name).to_dict()
    log = cs.read_log(tmp_path / name)
    assert log.total == 50
    assert log.click.sum() == out["clicks_written"]
    assert shell.json("log", "info", tmp_path / name)["sessions"] == 50


def test_options_reach_the_function(events: Path, shell: Shell, tmp_path: Path) -> None:
    out = shell.json(
        *("import", events, "-o", tmp_path / "log.parquet", "--format", "ubi", "--window", "10min", "--gaps", "close"),
        *("--click-types", "click,tap", "--application", "clickshift", "--normalise", "lower,strip"),
    )
    assert out["gaps"] == "close"
    assert "skip" in shell.error("import", events, "-o", tmp_path / "log.parquet", "--gaps", "skip")


def test_errors_name_the_options(tmp_path: Path, shell: Shell) -> None:
    (tmp_path / "e.csv").write_text("session,query,item,rank,event\n1,q,a,x,impression\n")
    error = shell.error("import", tmp_path / "e.csv", "-o", tmp_path / "log.parquet")
    assert "line 2" in error
    assert "--skip-bad" in error
    (tmp_path / "e.csv").write_text("visit,query,item,rank,event\n1,q,a,1,impression\n")
    assert "--column session=NAME" in shell.error("import", tmp_path / "e.csv", "-o", tmp_path / "log.parquet")
    (tmp_path / "e.csv").write_text("a,b\n1,2\n")
    assert "--format" in shell.error("import", tmp_path / "e.csv", "-o", tmp_path / "log.parquet")
    (tmp_path / "e.csv").write_text("session,query,item,rank,event\n1,q,a,1,seen\n")
    assert "--impression-types ..." in shell.error("import", tmp_path / "e.csv", "-o", tmp_path / "log.parquet")
    (tmp_path / "e.csv").write_text("session,query,item,rank\n1,q,a,1\n")
    assert "--clicks ..." in shell.error("import", tmp_path / "e.csv", "-o", tmp_path / "log.parquet")
    assert not (tmp_path / "log.parquet").exists()


def test_what_was_left_out_is_shown(tmp_path: Path, shell: Shell) -> None:
    rows = ["1,q,a,1,impression", "1,q,b,3,impression", "1,q,z,,click", "1,q,a,1,hover"]
    (tmp_path / "e.csv").write_text("\n".join(["session,query,item,rank,event", *rows]))
    text = shell.text("import", tmp_path / "e.csv", "-o", tmp_path / "log.parquet")
    for reason in ("click-without-impression", "other-action", "hole"):
        assert reason in text
