"""clickshift decide, as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import clickshift as cs
from tests.cli.shell import Shell
from tests.ope.test_decision import BEST, WORST, log, target


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("decide")
    log().to_parquet(folder / "log.parquet")
    target(BEST).to_parquet(folder / "best.parquet")
    target(WORST).to_parquet(folder / "worst.parquet")
    return folder


def test_ship_exits_with_0_and_prints_the_facts_of_the_function(shell: Shell, work: Path) -> None:
    log_path, best = str(work / "log.parquet"), str(work / "best.parquet")
    printed = shell.json("decide", log_path, "--candidate", best)
    assert printed == json.loads(json.dumps(cs.decide(log_path, [best]).to_dict()))
    assert printed["decision"] == "ship"


def test_keep_exits_with_1_and_prints_its_page(shell: Shell, work: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    code, out, err = shell.run("decide", work / "log.parquet", "--candidate", work / "worst.parquet", "-o", page)
    assert code == 1
    assert "Keep the current ranker" in out
    assert "Traceback" not in err
    assert "Should the new ranker be shipped?" in page.read_text(encoding="utf-8")


def test_the_best_of_two_candidates_is_shipped(shell: Shell, work: Path) -> None:
    worst, best = work / "worst.parquet", work / "best.parquet"
    found = shell.json("decide", work / "log.parquet", "--candidate", worst, "--candidate", best)
    assert found["candidate"] == str(best)
    assert len(found["rows"]) == 2


def test_input_that_cannot_be_used_exits_with_2(shell: Shell, work: Path) -> None:
    best = work / "best.parquet"
    for arguments in (
        ("no.parquet", "--candidate", best),
        (work / "log.parquet", "--candidate", work / "log.parquet"),
        (work / "log.parquet", "--candidate", best, "--candidate", best),
        (work / "log.parquet", "--candidate", best, "--reward", "money"),
        (work / "log.parquet", "--candidate", best, "--cluster", "shop"),
    ):
        assert shell.run("decide", *arguments)[0] == 2
        shell.error("decide", *arguments)
