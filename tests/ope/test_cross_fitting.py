"""A policy chosen from a log, and what can be sworn to."""

from __future__ import annotations

import numpy as np
import pytest

from clickshift.ope import Bootstrap, Logged, Reward, WeightedLists
from clickshift.ope.cross_fitting import best_policy, in_halves, optimised
from tests.ope.small_worlds import LISTS, RANKS, World, pbm

PI = (1, 2, 3, 4, 5, 6, 7, 8, 9, 5, 6, 4)


def value_of(policy: WeightedLists) -> float:
    lists = [tuple(a) for a in policy.lists.pair.tolist()]
    return sum(w * sum(pbm(a, k) for k in range(RANKS)) for a, w in zip(lists, policy.weight.tolist(), strict=True))


@pytest.mark.parametrize("estimator", ["List", "IP", "PBM"])
def test_the_lower_bound_holds_and_says_something(estimator: str) -> None:
    world, reward, clip = World(PI, PI, pbm), Reward(), 3.0
    best = max(sum(pbm(a, k) for k in range(RANKS)) for a in LISTS)
    bounds, worth = [], []
    for repeat in range(30):
        sessions = world.draw(1500, np.random.default_rng(repeat))
        found = optimised(sessions, reward, estimator, clip, Bootstrap(20), seed=repeat)
        halves, _ = in_halves(sessions, repeat)
        values = [value_of(best_policy(Logged.of(half, reward), estimator, clip)) for half in halves]
        bounds.append(found.lower)
        worth.append(np.mean(values))
        assert found.lower <= found.cross_fitted.value
        assert value_of(found.policy) <= best + 1e-12
    assert np.mean(np.array(bounds) <= worth) >= 0.95
    assert np.mean(bounds) > 0.5 * np.mean(worth), "a bound that says nothing holds too"
