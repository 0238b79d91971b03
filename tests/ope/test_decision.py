"""Decisions about a new ranker: ship, keep, test or unclear, for the reasons that they state."""

from __future__ import annotations

import math
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import clickshift as cs
from clickshift.ope import Decision, decision
from clickshift.ope.answer import Answer, Family
from tests.codes import raises_code

ATTRACTIVENESS = np.array([0.2, 0.35, 0.5, 0.65])
EXAMINATION = 1 / np.arange(1, 5)
BEST, WORST = [3, 2, 1, 0], [0, 1, 2, 3]


def log(sessions: int = 6000, *, seed: int = 0, queries: int = 3, trend: float = 0.0, days: int = 0) -> pd.DataFrame:
    """A ranker that shows all orders of four documents alike; PBM users who examine rank k with probability 1 / k."""
    rng = np.random.default_rng(seed)
    lists = np.array(list(permutations(range(4))))[rng.integers(24, size=sessions)]
    day = rng.integers(max(days, 1), size=sessions)
    a = ATTRACTIVENESS[lists] + trend * (day / max(days - 1, 1) - 0.5)[:, None] * np.where(lists % 2, 1, -1)
    click = rng.random(lists.shape) < a * EXAMINATION
    columns = {
        "query": rng.integers(queries, size=sessions),
        "docs": lists.tolist(),
        "clicks": click.astype(int).tolist(),
    }
    return pd.DataFrame(columns | ({"day": day} if days else {}))


def target(docs: list[int], queries: int = 3) -> pd.DataFrame:
    return pd.DataFrame({"query": range(queries), "docs": [docs] * queries})


def gain_of(docs: list[int]) -> float:
    return float(ATTRACTIVENESS[docs] @ EXAMINATION - ATTRACTIVENESS.mean() * EXAMINATION.sum())


def canned(monkeypatch: pytest.MonkeyPatch, low: float, high: float, verdict: str = "usable", **facts: Any) -> None:
    """Let every candidate have this answer."""
    middle, parts = (low + high) / 2, facts.get("parts", {"sampling": 0.02, "lost mass": 0.01})
    answer = Answer(
        verdict,  # type: ignore[arg-type]
        "List",
        *(1 + middle, 1 + low, 1 + high, 1.0, middle, low, high, 0.95, 0.0, 400.0),
        ("A reason.",),
        parts,
        facts.get("families", ()),
    )
    found = SimpleNamespace(answer=answer, residuals=(), notes={}, settings={"reward": "clicks"})
    monkeypatch.setattr(decision, "evaluate_policy", lambda *_, **__: found)


def test_a_clear_gain_is_shipped_and_its_interval_holds_the_truth() -> None:
    found = cs.decide(log(), target(BEST))
    facts = found.to_dict()
    assert found.decision == "ship"
    assert facts["gain_low"] > 0
    assert facts["gain_low"] <= gain_of(BEST) <= facts["gain_high"]
    assert facts["gain_percent"] == pytest.approx(100 * facts["gain"] / facts["rows"][0]["today"])
    assert facts["reasons"]


def test_a_clear_loss_keeps_the_current_ranker() -> None:
    found = cs.decide(log(), target(WORST))
    assert found.decision == "keep"
    assert found.best.cause == "loss"
    assert found.to_dict()["gain_high"] < 0


def test_a_gain_within_the_noise_is_tested() -> None:
    found = cs.decide(log(600), target([2, 1, 3, 0]))  # hardly better than chance
    assert found.decision == "test"
    assert found.to_dict()["gain_low"] < 0 < found.to_dict()["gain_high"]
    assert found.best.test_sessions > 0


def test_documents_that_the_log_never_shows_are_no_gain() -> None:
    found = cs.decide(log(), target([7, 8, 9, 10]))
    assert found.decision in {"unclear", "test"}


def test_drift_of_documents_is_unclear_whatever_the_gain() -> None:
    found = cs.decide(log(20_000, trend=0.3, days=6), target(BEST))
    assert found.decision == "unclear"
    assert found.best.cause == "drift"
    assert found.drift is not None
    assert found.drift.severe


def test_alike_days_are_shipped_and_backtested() -> None:
    found = cs.decide(log(days=6), target(BEST))
    status = {check.name: check.status for check in found.checks}
    assert found.decision == "ship"
    assert status["drift of documents"] == "ok"
    assert any(name.startswith("backtest") for name in status)


def test_a_log_with_hardly_a_click_is_unclear() -> None:
    frame = log(300)
    frame["clicks"] = [[0, 0, 0, 0]] * 299 + [[1, 0, 0, 0]]
    found = cs.decide(frame, target(BEST))
    assert found.decision == "unclear"
    assert {check.name: check.status for check in found.checks}["clicks"] == "severe"


@pytest.mark.parametrize(
    ("low", "high", "verdict", "expected", "cause"),
    [
        (0.01, 0.03, "usable", "ship", "gain"),
        (-0.03, -0.01, "usable", "keep", "loss"),
        (-0.01, 0.03, "usable", "test", "interval"),
        (0.0, 0.03, "usable", "test", "interval"),
        (0.01, 0.03, "weak", "ship", "gain"),
        (math.nan, math.nan, "not identified", "unclear", "not identified"),
    ],
)
def test_the_decision_follows_the_ends_of_the_interval(
    monkeypatch: pytest.MonkeyPatch, low: float, high: float, verdict: str, expected: str, cause: str
) -> None:
    canned(monkeypatch, low, high, verdict)
    found = cs.decide(log(500), target(BEST))
    assert (found.decision, found.best.cause) == (expected, cause)
    assert found.to_dict()["decision"] == expected


def test_a_candidate_for_few_queries_is_unclear(monkeypatch: pytest.MonkeyPatch) -> None:
    canned(monkeypatch, 0.01, 0.03)
    found = cs.decide(log(500), target(BEST, queries=1))
    assert (found.decision, found.best.cause) == ("unclear", "defect")


def test_a_candidate_with_shorter_lists_is_compared_over_as_many_ranks_and_says_so() -> None:
    """Two results earn more than the log's first two, and less than its four."""
    found = cs.decide(log(), target(BEST[:2]))
    (check,) = [check for check in found.checks if check.name.startswith("length of")]
    assert check.status == "caution"
    assert "over the first 2 ranks" in check.found
    assert check.found in found.best.reasons
    assert "clicks@2 per session" in found.conclusion
    assert not any(check.name.startswith("length of") for check in cs.decide(log(), target(BEST)).checks)


def test_sessions_of_an_ab_test_are_those_of_the_textbook(monkeypatch: pytest.MonkeyPatch) -> None:
    canned(monkeypatch, 0.0, 0.1)
    frame = log(500)
    reward = np.array([sum(clicks) for clicks in frame["clicks"]])
    arm = 2 * reward.var() * (1.959964 + 0.841621) ** 2 / 0.05**2
    assert cs.decide(frame, target(BEST)).best.test_sessions == pytest.approx(2 * arm, abs=3)


def test_the_share_of_other_users_at_which_the_gain_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    families = (
        Family("UBM", True, "", 0.0, 0.0, 0.5, 0.0, 1.02, 0.02, 0.01, 0.03),
        Family("DBN", False, "Rejected.", 0.1, 5.0, 0.0, 0.0, 0.96, -0.04, math.nan, math.nan),
        Family("CCM", False, "Rejected.", 0.1, 5.0, 0.0, 0.0, math.nan, math.nan, math.nan, math.nan),
    )
    canned(monkeypatch, 0.01, 0.03, families=families)
    points = {p.assumption: p.value for p in cs.decide(log(500), target(BEST)).best.turning_points}
    assert points["users"] == pytest.approx(0.2)  # .8 * .01 - .2 * .04 = 0


def test_the_power_of_examination_at_which_the_gain_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """With all orders logged alike, the gain of the best order at power g is a sum that can be written out."""
    canned(monkeypatch, 0.05, 0.30)
    frame = log(60_000)
    points = {p.assumption: p.value for p in cs.decide(frame, target(BEST)).best.turning_points}
    clicks = ATTRACTIVENESS * EXAMINATION.mean()  # per impression of each document, over all ranks

    def value(power: float) -> float:
        examined = EXAMINATION**power
        return float(np.minimum(clicks / examined.mean(), 1)[BEST] @ examined)

    assert points["examination"] < 1  # flatter curves gain less from a better order
    assert value(points["examination"]) - value(1) == pytest.approx(-0.05, abs=0.01)


def test_turning_points_rest_on_clicks_alone_as_the_gain_does(tmp_path: Path) -> None:
    """An encoded log is read without views, and the answer's click models do not use them."""
    frame = log(2000)
    rng = np.random.default_rng(1)
    frame["viewed"] = [[c or int(rng.random() < 0.3) for c in clicks] for clicks in frame["clicks"]]
    points = cs.decide(frame, target(BEST)).best.turning_points
    assert points
    assert points == cs.decide(frame.drop(columns="viewed"), target(BEST)).best.turning_points
    encoded = cs.encode_log(frame, tmp_path / "encoded")
    assert cs.decide(encoded.log, target(BEST)).best.turning_points == points


def test_what_lost_documents_must_earn(monkeypatch: pytest.MonkeyPatch) -> None:
    canned(monkeypatch, -0.01, 0.03, parts={"sampling": 0.001, "lost mass": 0.02})
    best = cs.decide(log(500), target(BEST)).best
    assert [(p.assumption, p.value) for p in best.turning_points] == [("lost documents", pytest.approx(0.25))]
    assert "does not" in best.risk


def test_several_candidates_share_the_level_and_the_best_leads() -> None:
    frame = log()
    alone = cs.decide(frame, target(BEST)).to_dict()
    found = cs.decide(frame, [target(WORST), target(BEST)])
    rows = {row["candidate"]: row for row in found.rows()}
    assert found.to_dict()["candidate"] == "candidate 2"
    assert (rows["candidate 1"]["decision"], rows["candidate 2"]["decision"]) == ("keep", "ship")
    wide, narrow = rows["candidate 2"], alone["rows"][0]
    assert wide["gain_high"] - wide["gain_low"] > narrow["gain_high"] - narrow["gain_low"]


def test_a_decision_describes_itself() -> None:
    found = cs.decide(log(), target(BEST))
    assert isinstance(found, Decision)
    assert found.conclusion in found.document.conclusion
    assert set(found.figures) == {"candidates"}
    assert "ship" in found._repr_html_()
    assert {"decision", "gain", "gain_low", "gain_high", "reasons"} <= found.to_dict().keys()


def test_bad_input_is_refused() -> None:
    frame = log(200)
    with raises_code("missing-target"):
        cs.decide(frame, [])
    with raises_code("bad-option", option="level"):
        cs.decide(frame, target(BEST), level=1.0)
    with raises_code("unknown-name"):
        cs.decide(frame, target(BEST), reward="money")
    with raises_code("no-common-queries"):
        cs.decide(frame, target(BEST).assign(query=[70, 71, 72]))


def test_an_encoded_log_is_decided_as_its_sessions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Equal sessions are merged by day; checks, drift and the size of an A/B test are those of the log itself."""
    canned(monkeypatch, 0.01, 0.03)
    frame = log(3000, days=5)
    cs.encode_log(frame, tmp_path / "encoded")
    plain, encoded = cs.decide(frame, target(BEST)), cs.decide(tmp_path / "encoded", target(BEST))
    assert encoded.checks == plain.checks
    assert encoded.best.test_sessions == plain.best.test_sessions
    assert encoded.drift is not None
    assert plain.drift is not None
    assert encoded.drift.statistic == pytest.approx(plain.drift.statistic)
