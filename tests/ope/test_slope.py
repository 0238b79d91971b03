"""SLOPE takes little clipping where it would cost more than chance, and much where chance costs more."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from clickshift.ope import Bootstrap, Evaluation, GroupedLog, evaluate_target
from clickshift.ope.slope import _slope_index, best_clip
from tests.ope.small_worlds import LISTS, World, pbm
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


def evaluated(world: World, sessions: int, names: tuple[str, ...], seed: int = 1) -> list[Evaluation]:
    log = world.draw(sessions, np.random.default_rng(seed))
    return evaluate_target(GroupedLog.of(log), world.lottery(world.h()), names, clip=CLIP, interval=Bootstrap(60))


@pytest.mark.parametrize("seed", range(3))
def test_large_constants_where_clipping_is_the_larger_error(seed: int) -> None:
    """Weights are large: clipping takes most of the value, and 40,000 sessions know it well."""
    (found,) = evaluated(World(RARE, BEST, pbm), 40_000, ("IP",), seed)
    assert best_clip(found).clip == math.inf
    assert best_clip(found).value == pytest.approx(World(RARE, BEST, pbm).value(), rel=0.15)


def test_small_constants_where_chance_is_the_larger_error() -> None:
    """Clipping moves the value by less than two standard errors of the unclipped one."""
    path = [
        replace(GOOD, estimator="IP", clip=c, value=v, error=e) for c, v, e in ((1.0, 0.48, 0.01), (10.0, 0.5, 0.02))
    ]
    assert best_clip(Evaluation(tuple(path), None)).clip == 1
    costly = (replace(path[0], value=0.3), path[1])
    assert best_clip(Evaluation(costly, None)).clip == 10


@pytest.mark.parametrize("name", ["List", "RIPS", "SN-List", "DR-RIPS"])
def test_weights_of_whole_lists_keep_the_largest_constant(name: str) -> None:
    """Under SLOPE's constants, their intervals held the true value in a quarter of logs."""
    path = [
        replace(GOOD, estimator=name, clip=c, value=v, error=e) for c, v, e in ((1.0, 0.48, 0.01), (10.0, 0.5, 0.02))
    ]
    assert best_clip(Evaluation(tuple(path), None)).clip == 10


def test_constants_that_change_nothing_are_not_chosen() -> None:
    (found,) = evaluated(World(EVEN, MIXED, pbm), 2000, ("IP",))
    assert found.estimates[1].clipped == pytest.approx(0, abs=1e-12)
    assert best_clip(found).clip == math.inf
