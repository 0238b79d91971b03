"""SLOPE takes little clipping where it would cost more than chance, and much where chance costs more."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from clickshift.ope import Bootstrap, Evaluation, GroupedLog, evaluate_target
from clickshift.ope.daily_residuals import ResidualDrift
from clickshift.ope.slope import Choice, _slope_index, best_clip, choose_by_slope
from clickshift.ope.weights import IPWeights
from tests.ope.small_worlds import LISTS, World, by_place, pbm, whole_list
from tests.ope.test_estimate import GOOD

CLIP = (1.0, 3.0, 10.0, 30.0, math.inf)
RARE = tuple(2 if a == (1, 3) else 18 for a in LISTS)  # the best list, one session in a hundred
EVEN = (1,) * len(LISTS)
BEST = tuple(float(a == (1, 3)) for a in LISTS)
MIXED = tuple(float(1 + a[0]) for a in LISTS)


def plain_slope(value: list[float], error: list[float]) -> int:
    """By the definition: the last link up to which some point is in all intervals."""
    width = [2 * max(error[i:]) for i in range(len(error))]
    last = -1
    for i in range(len(value)):
        low, high = (f([v + sign * w for v, w in zip(value[: i + 1], width, strict=False)]) for f, sign in _ENDS)
        if low > high:
            break
        last = i
    return last


_ENDS = ((max, -1), (min, 1))


def test_slope_is_its_definition(rng: np.random.Generator) -> None:
    found = []
    for _ in range(300):
        n = int(rng.integers(1, 6))
        value, error = rng.normal(size=n), rng.random(n)
        found.append(_slope_index(value, error))
        assert found[-1] == plain_slope(value.tolist(), error.tolist())
    assert set(found) == set(range(5))


def test_an_unknown_value_ends_the_chain() -> None:
    assert _slope_index(np.array([0.5, np.nan, 0.5]), np.array([0.1, np.nan, 0.1])) == 0
    assert _slope_index(np.array([np.nan]), np.array([np.nan])) == -1


def chosen(world: World, sessions: int, names: tuple[str, ...] = ("List", "IP", "PBM"), seed: int = 1) -> Choice:
    return choose_by_slope(evaluated(world, sessions, names, seed))


def evaluated(world: World, sessions: int, names: tuple[str, ...], seed: int = 1) -> list[Evaluation]:
    log = world.draw(sessions, np.random.default_rng(seed))
    return evaluate_target(GroupedLog.of(log), world.lottery(world.h()), names, clip=CLIP, interval=Bootstrap(60))


@pytest.mark.parametrize("seed", range(3))
def test_large_constants_where_clipping_is_the_larger_error(seed: int) -> None:
    """The weight is 100: clipping at 10 takes nine tenths of the value, and 40,000 sessions know it to a fortieth."""
    (found,) = evaluated(World(RARE, BEST, pbm), 40_000, ("List",), seed)
    assert best_clip(found).clip == math.inf
    assert best_clip(found).value == pytest.approx(World(RARE, BEST, pbm).value(), rel=0.15)


@pytest.mark.parametrize("seed", range(3))
def test_small_constants_where_chance_is_the_larger_error(seed: int) -> None:
    """Under known propensities: the rare list is one of many, so clipping costs little; its weight makes noise."""
    target = tuple(0.5 if a == (1, 3) else 0.5 / 11 for a in LISTS)
    world = World(RARE, target, pbm)
    log = world.draw(150, np.random.default_rng(seed))
    found = evaluate_target(
        GroupedLog.of(log),
        world.lottery(world.h()),
        ["List"],
        clip=CLIP,
        logging="propensities",
        interval=Bootstrap(60),
    )[0]
    assert best_clip(found).clip <= 10
    assert best_clip(found).error < found.estimates[-1].error


def test_the_clipping_constant_is_explained() -> None:
    def reason(*values: tuple[float, float]) -> str:
        path = [replace(GOOD, estimator="List", clip=10.0**k, value=v, error=e) for k, (v, e) in enumerate(values)]
        return choose_by_slope([Evaluation(tuple(path), None)]).reason

    assert "Clipping at 1 changes the value by no more than sampling error" in reason((0.48, 0.01), (0.5, 0.02))
    assert "Stronger clipping changes the value by more than sampling error" in reason((0.3, 0.01), (0.5, 0.02))
    assert "lipping" not in reason((0.5, 0.02), (0.5, 0.02))


def test_constants_that_change_nothing_are_not_chosen() -> None:
    (found,) = evaluated(World(EVEN, MIXED, pbm), 2000, ("IP",))
    assert found.estimates[1].clipped == pytest.approx(0, abs=1e-12)
    assert best_clip(found).clip == math.inf


def test_the_strongest_assumption_that_holds_is_chosen() -> None:
    by_pbm = chosen(World(EVEN, MIXED, pbm), 20_000)
    assert by_pbm.estimate is not None
    assert by_pbm.estimate.estimator == "PBM"
    assert "agrees with List and IP within sampling error" in by_pbm.reason

    only_place = World(EVEN, BEST, by_place)
    found = chosen(only_place, 50_000)
    assert found.estimate is not None
    assert found.estimate.estimator == "IP"
    assert "PBM, which assumes still more, does not agree" in found.reason
    assert found.estimate.low <= only_place.value() <= found.estimate.high

    neighbours = World(EVEN, BEST, whole_list)
    found = chosen(neighbours, 50_000)
    assert found.estimate is not None
    assert found.estimate.estimator == "List"
    assert "IP assumes more, and differs" in found.reason
    assert found.estimate.low <= neighbours.value() <= found.estimate.high


def test_without_the_list_the_chain_begins_later_and_says_so() -> None:
    never = tuple(0 if a == (1, 3) else 5 for a in LISTS)
    found = chosen(World(never, BEST, pbm), 20_000)
    assert found.estimate is not None
    assert found.estimate.estimator == "PBM"
    assert f"List cannot test whether {IPWeights.assumption}" in found.reason


def test_without_support_a_backtest_is_asked_for() -> None:
    """Documents 1 and 3 were shown, never at these ranks: PBM alone covers the target."""
    swapped = tuple(5 if a in {(3, 1), (0, 1), (3, 2), (2, 0)} else 0 for a in LISTS)
    found = chosen(World(swapped, BEST, pbm), 5000)
    assert found.estimate is None
    assert found.reason == (
        "Of List, IP and PBM, only PBM covers everything that the target shows: choose by a backtest on past days."
    )
    unseen = tuple(5 if 1 not in a else 0 for a in LISTS)
    found = chosen(World(unseen, BEST, pbm), 5000, ("List", "IP", "PBM", "Item", "RCTR"))
    assert found.estimate is None
    assert found.reason.startswith("None of List, IP and PBM")


def test_without_support_the_days_of_the_log_choose_among_the_usable() -> None:
    swapped = tuple(5 if a in {(3, 1), (0, 1), (3, 2), (2, 0)} else 0 for a in LISTS)
    found = evaluated(World(swapped, BEST, pbm), 5000, ("List", "IP", "PBM", "Item", "RCTR"))
    off = {"List": 0.001, "PBM": 0.03, "Item": 0.02, "RCTR": 0.04}
    choice = choose_by_slope(found, [ResidualDrift(name, 0.0, rms, 0.01) for name, rms in off.items()])
    assert choice.estimate is not None
    assert choice.estimate.estimator == "Item", "List was closest, but has nothing of the target"
    assert "only PBM covers everything" in choice.reason
    assert "Item has the smallest daily residuals, with a root mean square of 0.0200" in choice.reason


def test_one_estimator_is_taken_if_it_is_usable() -> None:
    def alone(value: float, **changes: float) -> Choice:
        estimate = replace(GOOD, estimator="List", value=value, **changes)
        return choose_by_slope([Evaluation((estimate,), None)])

    assert alone(0.5).estimate is not None
    assert "only one" in alone(0.5).reason
    assert alone(0.5, never_logged=0.7).estimate is None
    assert alone(math.nan).estimate is None
    assert "its verdict is 'not identified'" in alone(math.nan).reason


def test_lost_mass_that_chance_hides_is_no_obstacle() -> None:
    hidden = replace(GOOD, never_logged=0.002, clipped=0.0, floor=0.5, ceiling=0.504, error=0.01)
    seen = replace(hidden, error=0.001)
    for estimate, covers in ((hidden, True), (seen, False)):
        found = choose_by_slope(
            [Evaluation((replace(estimate, estimator=name),), None) for name in ("List", "IP", "PBM")]
        )
        assert (found.estimate is not None) == covers
