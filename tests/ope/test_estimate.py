"""Verdicts and the sentences that explain them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from clickshift.models import PBM
from clickshift.models.base import pair_table
from clickshift.ope import PAPER_ESTIMATORS, Bootstrap, Estimate, Estimator, GroupedLog, evaluate_target
from tests.ope.small_worlds import LISTS, World, pbm

GOOD = Estimate(
    "IP",
    "clicks",
    10.0,
    0.5,
    0.01,
    0.48,
    0.52,
    "95% bootstrap",
    coverage=0.95,
    never_logged=0.05,
    clipped=0.01,
    effective=4321.4,
    largest_weight=12.0,
    floor=0.5,
    ceiling=0.62,
    floor_low=0.48,
    ceiling_high=0.64,
    sessions=10_000,
    sessions_skipped=0,
    queries=10,
    queries_skipped=0,
    queries_without_overlap=0,
    assumption="a click depends on the document and its rank alone",
)


@pytest.mark.parametrize(
    ("changes", "verdict", "words"),
    [
        (
            {},
            "usable",
            "94% of what the target shows, and the effective sample size is 4,321 of 10,000 sessions",
        ),
        ({"effective": 99.0}, "weak overlap", "Effective sample size is 99 of 10,000 sessions"),
        ({"never_logged": 0.25}, "weak overlap", "25.0% of what the target shows was never logged and clipping at 10"),
        ({"never_logged": 0.0, "clipped": 0.3}, "weak overlap", "Clipping at 10 removes 30.0% of it"),
        ({"never_logged": 0.6}, "not identified", "the value may be anything from 0.5 to 0.62."),
        ({"value": math.nan}, "not identified", "not identified from this log"),
        ({"value": math.nan, "sessions": 0}, "not identified", "ranks no query of the log"),
    ],
)
def test_verdicts_are_explained(changes: dict[str, float], verdict: str, words: str) -> None:
    estimate = replace(GOOD, **changes)
    assert estimate.verdict == verdict
    assert words in estimate.explanation
    assert (f"if {estimate.assumption}" in estimate.explanation) == (verdict == "usable")
    assert verdict in str(estimate)


def test_an_evaluation_says_all_that_it_should() -> None:
    logging = tuple(0 if a == (1, 0) else 5 for a in LISTS)
    world = World(logging, tuple(3.0 if a == (1, 0) else 1.0 for a in LISTS), pbm)
    log = world.draw(2000, np.random.default_rng(0))
    found = evaluate_target(
        GroupedLog.of(log), world.lottery(world.h()), PAPER_ESTIMATORS, clip=(0.5, 10.0), interval=Bootstrap(100)
    )
    assert [[e.clip for e in evaluation.estimates] for evaluation in found] == [[0.5, 10]] * 5
    names = [evaluation.estimates[0].estimator for evaluation in found]
    assert names == list(PAPER_ESTIMATORS)
    lists = found[0].estimates[1]
    assert lists.coverage == pytest.approx(11 / 14)
    assert lists.never_logged == pytest.approx(3 / 14)
    assert lists.clipped == 0
    assert lists.verdict == "weak overlap"
    assert lists.ceiling - lists.floor == pytest.approx(2 * 3 / 14)
    assert lists.floor_low <= lists.low <= lists.value <= lists.high <= lists.ceiling_high
    assert lists.sessions == 2000
    items = found[3].estimates[1]
    assert items.verdict == found[4].estimates[0].verdict == "baseline"
    assert found[4].estimates[0].value == found[4].estimates[1].value, "the mean of the log has no weights to clip"
    assert items.coverage == pytest.approx(1)
    assert items.assumption in items.explanation
    assert found[0].estimates[0].clipped > 0


def test_a_model_says_that_its_own_error_is_not_counted() -> None:
    world = World((5,) * 12, (1.0,) * 12, pbm)
    logged = GroupedLog.of(world.draw(500, np.random.default_rng(0)))
    model = PBM(logged.vocabulary, pair_table(np.full(4, 0.5), unseen=0.5), np.array([1.0, 0.5]))
    direct, robust = (
        evaluate_target(logged, world.lottery(world.h()), [Estimator.named(name, model)], interval=Bootstrap(50))[
            0
        ].estimates[0]
        for name in ("DM", "DR-IP")
    )
    assert direct.value == pytest.approx(0.75)
    assert math.isnan(direct.floor)
    assert "if the click model is right" in direct.explanation
    assert all("treats the click model as fixed" in e.notes[0] for e in (direct, robust))
    assert robust.error > direct.error
