"""A policy chosen from a log, and what it is worth to sessions that did not choose it.

The best of many noisy values is too high: on the log that chose it, a policy looks better than it is. So each half of
the log also chooses a policy, which the other half judges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np

from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import UNSEEN
from clickshift.errors import CapabilityError, SpecError
from clickshift.ope._optimise import best_exposure, best_lists, best_placement
from clickshift.ope.bound_estimator import BoundEstimator
from clickshift.ope.estimators import Estimator
from clickshift.ope.evaluate import Difference, evaluate_target, paired_difference
from clickshift.ope.grouped_log import GroupedLog, sum_by_index
from clickshift.ope.intervals import Bernstein, Bootstrap
from clickshift.ope.result import Estimate
from clickshift.ope.rewards import Reward
from clickshift.ope.target_policy import TargetProbabilities, WeightedLists
from clickshift.policies.birkhoff import Lottery

_FEW = Bootstrap(20)
"""Where the value alone is wanted."""


class PooledValue(NamedTuple):
    """Of both halves, by their sessions, with a 95 % interval."""

    value: float
    low: float
    high: float


@final
@dataclass(frozen=True, eq=False)
class OptimisedPolicy:
    policy: WeightedLists
    """The best one according to the whole log."""
    logging: Estimate
    """What the log itself earned."""
    in_sample: Estimate
    """What the log that chose the policy says of it: too much."""
    cross_fitted: PooledValue
    """What each half says of the policy that the other has chosen."""
    gain: PooledValue
    """The same, above what the half itself earned."""
    lower: float
    """At least so much those policies earn, at 95 %: the bound of Li et al. (2018), theorems 4.5 and 4.6, with the
    range that weights have and a policy that others chose."""
    lost: float
    """Share of those policies that the judging half lacks or clips, and counts as earning nothing."""
    halves: str
    """How the log was parted."""


def optimise_policy(
    sessions: Sessions, reward: Reward, estimator: str, clip: float, interval: Bootstrap, *, seed: int = 0
) -> OptimisedPolicy:
    """The policy that an estimator (List, IP, PBM or Item) thinks best, and what it is worth."""
    policy = best_policy(GroupedLog.of(sessions, reward), estimator, clip)
    logging, in_sample, _ = _judged(policy, sessions, reward, estimator, clip, _FEW)
    halves, how = _split_in_halves(sessions, seed)
    outside = [
        _judged(best_policy(GroupedLog.of(one, reward), estimator, clip), other, reward, estimator, clip, interval)
        for one, other in (halves, halves[::-1])
    ]
    judged, n = [estimate for _, estimate, _ in outside], [estimate.sessions for _, estimate, _ in outside]
    return OptimisedPolicy(
        policy,
        logging,
        in_sample,
        _pooled([(e.value, e.error) for e in judged], n),
        _pooled([(gain.value, gain.error) for *_, gain in outside], n),
        _lower_bound(halves, reward, estimator, clip),
        sum(e.lost * e.sessions for e in judged) / max(sum(n), 1),
        how,
    )


def _lower_bound(halves: tuple[Sessions, Sessions], reward: Reward, estimator: str, clip: float) -> float:
    """Each half judges the other's policy with the other's list frequencies, so that the terms are independent and
    between 0 and clip x largest reward: an empirical Bernstein bound, each half with half of the 5 %. What those
    frequencies are too low by makes weights too large: it is taken off, as far as the judging half shows it."""
    lower, sessions = 0.0, 0.0
    for one, other in (halves, halves[::-1]):
        policy, frequencies = best_policy(GroupedLog.of(one, reward), estimator, clip), WeightedLists.frequencies(one)
        logged = GroupedLog.of(other, reward)
        bound = evaluate_target(logged, policy, [estimator], clip=[clip], logging=frequencies, interval=Bernstein())[0]
        estimate = bound.estimates[0]
        prepared = BoundEstimator.of(
            Estimator.named(estimator),
            logged,
            TargetProbabilities.at(logged, policy),
            TargetProbabilities.at(logged, frequencies),
        )
        too_much = _too_much(prepared, clip)
        lower += estimate.sessions * max(estimate.low - too_much, 0.0)
        sessions += estimate.sessions
    return lower / max(sessions, 1)


def _too_much(prepared: BoundEstimator, clip: float) -> float:
    """Sum over units of mean reward x weight x (logging now - logging as known)+: M F of the theorems, one-sided."""
    s, total = prepared.strata, prepared.logged.total
    assert s.known is not None, "frequencies of the other half"
    sessions, exposed = prepared.sessions(total)[:, 0], s.exposed(total)[:, 0]
    seen = (exposed > 0) & (s.target > 0)
    reward = s.earned(total, prepared.logged.theta)[seen, 0] / exposed[seen]
    here = exposed[seen] / np.maximum(sessions[s.query[seen]], 1)
    with np.errstate(divide="ignore"):
        weight = np.minimum(s.target[seen] / s.known[seen], clip)
    beyond = reward * weight * np.maximum(here - s.known[seen], 0) * sessions[s.query[seen]]
    return float(beyond.sum() / max(sessions.sum(), 1))


def best_policy(logged: GroupedLog, estimator: str, clip: float) -> WeightedLists:
    """The policy that an estimator thinks best on this log; PBM with an examination of 1 / rank."""
    if estimator not in {"List", "IP", "PBM", "Item"}:
        raise SpecError(f"the estimator must be List, IP, PBM or Item to be optimised: got {estimator!r}.")
    if estimator != "List" and not logged.reward.is_linear:
        raise CapabilityError(f"{estimator} cannot be optimised for {logged.reward}, which is no sum. Take List.")
    lottery = _of_lists(logged, clip) if estimator == "List" else _of_placements(logged, estimator, clip)
    return WeightedLists(Rankings(logged.vocabulary, lottery.query.astype(np.int32), lottery.pair), lottery.weight)


def _of_lists(logged: GroupedLog, clip: float) -> Lottery:
    lists, total = logged.lists, logged.total
    records, reward = (sum_by_index(logged.list_of, x, len(lists))[:, 0] for x in (total.shown, total.earned))
    query, counts = lists.query.astype(np.int64), records.astype(np.int64)
    return best_lists(query, lists.pair, counts, reward, n_queries=logged.n_queries, clip=clip).lottery


def _of_placements(logged: GroupedLog, estimator: str, clip: float) -> Lottery:
    ranks, words = np.arange(logged.n_ranks), logged.vocabulary
    pair = logged.lists.pair[logged.list_of].astype(np.int64)
    place = np.where(pair == UNSEEN, UNSEEN, pair * logged.n_ranks + ranks).ravel()
    shown = np.repeat(logged.total.shown, logged.n_ranks, axis=1)
    impressions, clicks = (
        sum_by_index(place, x.reshape(-1, 1), words.n_pairs * logged.n_ranks)
        .reshape(-1, logged.n_ranks)
        .astype(np.int64)
        for x in (shown, logged.total.clicks[:, :, 0])
    )
    counts = words.query_offsets, impressions, clicks
    if estimator == "IP":
        return best_placement(*counts, theta=logged.theta, clip=clip).lottery
    examination = 1 / (1.0 + ranks) if estimator == "PBM" else np.ones(logged.n_ranks)
    return best_exposure(*counts, theta=logged.theta, examination=examination, clip=clip).lottery


def _split_in_halves(sessions: Sessions, seed: int) -> tuple[tuple[Sessions, Sessions], str]:
    """Earlier and later sessions, days kept whole; random halves where the log has no time, or one day only."""
    time = sessions.time
    if time is not None:
        days, day = np.unique(time.astype("datetime64[D]") if time.dtype.kind == "M" else time, return_inverse=True)
        if len(days) > 1:
            so_far = np.cumsum(np.bincount(day, sessions.count))
            last = min(int(np.abs(so_far - so_far[-1] / 2).argmin()), len(days) - 2)
            early = day <= last
            return (sessions[early], sessions[~early]), "by time"
    return sessions.split(0.5, rng=seed), "at random"


def _judged(
    policy: WeightedLists, sessions: Sessions, reward: Reward, estimator: str, clip: float, interval: Bootstrap
) -> tuple[Estimate, Estimate, Difference]:
    """What the log itself earned, what the policy would earn, and how much more that is."""
    log, judged = evaluate_target(
        GroupedLog.of(sessions, reward), policy, ["RCTR", estimator], clip=[clip], interval=interval
    )
    return log.estimates[0], judged.estimates[0], paired_difference(log, judged, interval)


def _pooled(parts: Sequence[tuple[float, float]], sessions: Sequence[int]) -> PooledValue:
    """The halves are independent of each other."""
    value, error = np.array(parts, np.float64).T
    share = np.array(sessions) / max(sum(sessions), 1)
    mean, reach = float(share @ value), 1.96 * float(np.sqrt(share**2 @ error**2))
    return PooledValue(mean, mean - reach, mean + reach)
