"""A policy chosen from a log, and what can be sworn to."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest

import clickshift as cs
from clickshift.data.sessions import Sessions
from clickshift.ope import GroupedLog, Reward, WeightedLists
from clickshift.ope.cross_fitting import OptimisedPolicy, _split_in_halves, best_policy, optimise_policy
from tests.ope.small_worlds import LISTS, RANKS, World, list_frequencies, pbm, records_of
from tests.suite import Study

PI = (1, 2, 3, 4, 5, 6, 7, 8, 9, 5, 6, 4)
CLIP = 3.0
BEST = max(sum(pbm(a, k) for k in range(RANKS)) for a in LISTS)


def lottery_of(policy: WeightedLists) -> dict[tuple[int, ...], float]:
    return dict(zip(map(tuple, policy.lists.pair.tolist()), policy.weight.tolist(), strict=True))


def value_of(policy: WeightedLists) -> float:
    return sum(w * sum(pbm(a, k) for k in range(RANKS)) for a, w in lottery_of(policy).items())


@functools.cache
def chosen(estimator: str, repeat: int) -> tuple[OptimisedPolicy, tuple[Sessions, Sessions]]:
    log = World(PI, PI, pbm).draw(1500, np.random.default_rng(repeat))
    found = optimise_policy(log, estimator=estimator, clip=CLIP, replicates=20, seed=repeat)
    return found, _split_in_halves(log, Reward(), repeat)[0]


def worth(halves: tuple[Sessions, Sessions], estimator: str) -> float:
    """What the policies that the halves choose earn, by the true click probabilities."""
    return float(np.mean([value_of(best_policy(GroupedLog.of(half, Reward()), estimator, CLIP)) for half in halves]))


def test_each_half_judges_the_policy_of_the_other_session_by_session() -> None:
    """The lower bound is Bernstein's, with the frequencies of the half that chose, less what they are too low by."""
    found, halves = chosen("List", 0)
    values, gains, bounds, n = [], [], [], []
    for one, other in (halves, halves[::-1]):
        h = lottery_of(best_policy(GroupedLog.of(one, Reward()), "List", CLIP))
        records = records_of(other, RANKS)
        known, here = (list_frequencies(records_of(half, RANKS))[0] for half in (one, other))
        clicks = np.array([sum(c) for _, _, c in records], float)
        weight, outside = (np.array([min(h.get(a, 0) / pi[a], CLIP) for _, a, _ in records]) for pi in (here, known))
        values.append((clicks * weight).mean())
        gains.append(values[-1] - clicks.mean())
        terms, log4, size = clicks * outside, math.log(4 / 0.05), len(records)
        reach = math.sqrt(2 * terms.var(ddof=1) * log4 / size) + 7 * RANKS * CLIP * log4 / (3 * (size - 1))
        too_much = sum(
            np.mean([sum(c) for _, b, c in records if b == a]) * min(p / known[a], CLIP) * max(here[a] - known[a], 0)
            for a, p in h.items()
        )
        assert too_much > 1e-3
        bounds.append(terms.mean() - reach - too_much)
        n.append(size)
    assert min(bounds) > 0
    assert found.cross_fitted.value == pytest.approx(np.average(values, weights=n), rel=1e-9)
    assert found.gain.value == pytest.approx(np.average(gains, weights=n), rel=1e-9)
    assert found.lower == pytest.approx(np.average(bounds, weights=n), rel=1e-9)


@pytest.mark.parametrize("estimator", ["List", "IP", "PBM"])
def test_the_lower_bound_is_below_what_the_policies_are_worth(estimator: str) -> None:
    found, halves = chosen(estimator, 0)
    earned = worth(halves, estimator)
    assert 0.5 * earned < found.lower <= earned
    assert found.lower <= found.cross_fitted.value
    assert found.cross_fitted.low < found.cross_fitted.value < found.cross_fitted.high
    assert value_of(found.policy) <= BEST + 1e-12


@pytest.mark.parametrize("estimator", ["List", "IP", "PBM", "Item"])
def test_without_a_clipping_constant_the_bound_clips_at_the_largest_weight(estimator: str) -> None:
    """The largest weight of List is 1 over the rarest list that a half chose; with it as M, nothing is clipped."""
    log = World(PI, PI, pbm).draw(1500, np.random.default_rng(0))
    found = optimise_policy(log, estimator=estimator, clip=math.inf, replicates=20)
    assert 0 <= found.lower <= found.cross_fitted.value
    assert 1 <= found.largest_weight < math.inf
    assert found.to_dict()["clip"] is None
    assert f"{found.largest_weight:.4g}" in found.conclusion
    if estimator == "List":
        halves = _split_in_halves(log, Reward(), 0)[0]
        chosen = [lottery_of(best_policy(GroupedLog.of(half, Reward()), "List", math.inf)) for half in halves]
        shares = [list_frequencies(records_of(half, RANKS))[0] for half in halves]
        expected = max(p / share[a] for h, share in zip(chosen, shares, strict=True) for a, p in h.items())
        assert found.largest_weight == pytest.approx(expected)


def test_the_conclusion_is_the_gain_over_click_models_then_the_bound_and_its_assumption() -> None:
    found, _ = chosen("PBM", 0)
    assert found.answer is not None
    first, second, *rest = found.conclusion.split("\n\n")
    assert f"interval {found.answer.low / found.logging.value:+.0%} to " in first
    assert f"{found.lower:.4f}" in second
    assert found.in_sample.assumption in second
    assert f"{found.gain.low:+.4f}" not in first + second, "the estimator's interval comes later, under its own name"
    assert any("sampling error only" in sentence for sentence in rest)
    facts = found.to_dict()
    assert facts["answer"]["low"] < facts["answer"]["difference"] < facts["answer"]["high"]


def test_the_answer_holds_where_users_are_not_those_of_the_estimator() -> None:
    """DBN users, policies by PBM: the gain of both halves' policies by the users' own model, on the other half."""
    corpus, user = cs.builtin_corpus(queries=15), cs.users.DBN()
    ranker = cs.PlackettLuce(cs.NoisyOracle(sd=0.3, scale="label"), temperature=0.8)
    log = cs.simulate(corpus, ranker, user, 4000, ranks=4, rng=0)
    found, truth = optimise_policy(log, estimator="PBM", replicates=20), user.on(corpus)
    gains, values, highs = [], [], []
    halves, _ = _split_in_halves(log, Reward(), 0)
    for one, other in (halves, halves[::-1]):
        policy = best_policy(GroupedLog.of(one, Reward()), "PBM", 10.0)
        answer = cs.evaluate_policy(other, policy, replicates=20).answer
        assert answer is not None
        highs.append(answer.difference_high)
        by_query = np.bincount(
            policy.lists.query, policy.weight * truth.expected_clicks(policy.lists), corpus.n_queries
        )
        ranked = np.isin(other.rankings.query, policy.lists.query)
        values.append(by_query[other.rankings.query[ranked]].mean())
        gains.append(values[-1] - truth.expected_clicks(other.rankings)[ranked].mean())
    assert found.answer is not None
    assert found.answer.low <= np.mean(gains) <= found.answer.high
    assert found.cross_fitted.low > np.mean(values), "PBM's own interval misses it"
    assert found.answer.high == pytest.approx(np.mean(highs))


@pytest.mark.study
@pytest.mark.parametrize("estimator", ["List", "IP", "PBM"])
def test_the_lower_bound_holds_and_says_something(study: Study, estimator: str) -> None:
    logs = study.choose(smallest=1, full=30)
    bound, true = [], []
    for repeat in range(logs):
        found, halves = chosen(estimator, repeat)
        bound.append(found.lower)
        true.append(worth(halves, estimator))
        assert found.lower <= found.cross_fitted.value
    held, part = np.mean(np.array(bound) <= true), np.mean(bound) / np.mean(true)
    study.record(f"lower bound of the policy chosen by {estimator}", held=held, share_of_worth=part, logs=logs)
    if study.full:
        assert held >= 0.95
        assert part > 0.5, "a bound that says nothing holds too"
