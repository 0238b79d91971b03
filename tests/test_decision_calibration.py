"""The harness of the calibration study counts what it says it counts."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from tests.scripts import script


@pytest.fixture(scope="module")
def harness() -> Any:
    script("benchmarks/shops.py")  # the harness imports it by its name
    return script("benchmarks/decision_calibration.py")


def row(gain: float, low: float, high: float, *, decision: str, analyst: str = "", verdict: str = "usable") -> Any:
    ours = {"verdict": verdict, "decision": decision, "low": 1 + low, "high": 1 + high, "seconds": 1.0}
    strata = {name: "x" for name in ("family", "users", "ranker", "target", "days", "gain")} | {"sessions": 5000}
    made = {
        "seed": 1,
        "strata": strata,
        "gain": gain,
        "next_day_gain": gain,
        "target_value": 1 + gain,
        "ours": ours | {"difference_low": low, "difference_high": high},
    }
    return made | ({"analyst": ours | {"decision": analyst}} if analyst else {})


def test_shares_are_counted_over_the_right_shops(harness: Any) -> None:
    rows = [
        row(0.1, 0.05, 0.2, decision="ship", analyst="ship"),
        row(-0.1, 0.01, 0.2, decision="ship", analyst="keep"),  # a losing candidate is shipped, and the interval misses
        row(-0.1, -0.2, 0.1, decision="test", analyst="keep"),
        row(-0.1, -0.2, -0.15, decision="keep", verdict="weak"),  # misses, and is not usable
        row(0.0, -0.2, 0.15, decision="unclear", analyst="unclear"),
    ]
    found = harness.statistics(rows)
    counts = {name: (of["hits"], of["n"]) for name, of in found.items() if isinstance(of, dict)}
    assert found["shops"] == 5
    assert counts["coverage of difference"] == (3, 4)
    assert counts["coverage of value"] == (3, 4)
    assert counts["coverage of weak differences"] == (0, 1)
    assert counts["losers shipped"] == (1, 3)
    assert counts["ships that lose"] == (1, 2)
    assert counts["settled of what the analyst settles"] == (2, 3)
    assert counts["settled"] == (3, 5)


def test_intervals_of_shares_are_those_of_the_textbook(harness: Any) -> None:
    assert harness.clopper_pearson(0, 10) == (0.0, pytest.approx(0.3085, abs=1e-4))
    assert harness.clopper_pearson(5, 10) == (pytest.approx(0.1871, abs=1e-4), pytest.approx(0.8129, abs=1e-4))


def test_a_stratum_that_misses_its_goal_is_bold(harness: Any) -> None:
    assert harness.share_text(harness.share([True] * 50 + [False] * 50), 0.93).startswith("**")
    assert not harness.share_text(harness.share([True] * 9 + [False]), 0.93).startswith("**")
    assert harness.share_text(harness.share([True] * 50 + [False] * 50), 0.05, at_most=True).startswith("**")


def test_a_run_is_resumed_and_the_analyst_knows_the_family(harness: Any, tmp_path: Path) -> None:
    path, options = tmp_path / "rows.jsonl", Namespace(minutes=5, no_analyst=False)
    seed = next(s for s in range(100) if sys.modules["shops"].make_shop(s, sessions=500).strata["family"] == "PBM")
    harness.run(path, [seed], lambda shop, analyst: {"asked": analyst}, options)
    harness.run(path, [seed, seed + 1], lambda shop, analyst: {"asked": analyst}, options)
    assert [json.loads(line)["seed"] for line in path.read_text().splitlines()] == [seed, seed + 1]
    with harness.only(["PBM"]):
        answers = sys.modules["clickshift.ope._answer_targets"]
        assert answers.FAMILIES == ("PBM",)
    assert harness.FAMILIES == answers.FAMILIES
