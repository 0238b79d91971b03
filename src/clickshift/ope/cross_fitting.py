"""Policy optimisation with cross-fitting: a policy chosen from a log, judged on sessions that did not choose it.

The best of many noisy values is too high (the optimiser's curse): on the log that chose it, a policy looks better than
it is. So a policy is also optimised on each half of the log and evaluated on the other half.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np

from clickshift.data.days import earlier_half
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import UNSEEN
from clickshift.data.weighted_lists import WeightedLists
from clickshift.errors import CapabilityError, SpecError
from clickshift.ope._optimise import best_exposure, best_lists, best_placement
from clickshift.ope.bound_estimator import BoundEstimator
from clickshift.ope.estimate import Difference, Estimate, evaluate_target, paired_difference
from clickshift.ope.estimators import Estimator
from clickshift.ope.grouped_log import GroupedLog, sum_by_index
from clickshift.ope.intervals import Bernstein, Bootstrap
from clickshift.ope.rewards import Reward
from clickshift.ope.target_policy import TargetProbabilities
from clickshift.policies.birkhoff import Lottery

_VALUE_ONLY = Bootstrap(20)
"""The smallest bootstrap, for evaluations whose interval is not used."""
_ESTIMATORS = ("List", "IP", "PBM", "Item")


class PooledValue(NamedTuple):
    """Mean over both halves, weighted by sessions, with a 95 % interval."""

    value: float
    low: float
    high: float


@final
@dataclass(frozen=True, eq=False)
class OptimisedPolicy:
    """A policy that maximises an estimator, with in-sample and cross-fitted values.

    Parameters
    ----------
    policy
        The best policy according to the whole log.
    logging
        Reward of the log itself.
    in_sample
        Estimated reward of the policy on the log that chose it: biased upwards.
    cross_fitted
        Estimated reward on each half of the policy that the other half chose.
    gain
        The same, minus the reward of the half itself.
    lower
        95 % lower confidence bound of the cross-fitted reward: that of Li et al. (2018), theorems 4.5 and 4.6, with the
        range that clipped weights have, for a policy chosen on other sessions.
    lost
        Share of the cross-fitted policies that the evaluating half never shows or clips, which counts as earning
        nothing.
    halves
        How the log was split: "by time" or "at random".

    References
    ----------
    Li, S. et al. (2018). Offline evaluation of ranking policies with click models. KDD.
    """

    policy: WeightedLists
    logging: Estimate
    in_sample: Estimate
    cross_fitted: PooledValue
    gain: PooledValue
    lower: float
    lost: float
    halves: str


def optimise_policy(
    sessions: Sessions, reward: Reward, estimator: str, clip: float, interval: Bootstrap, *, seed: int = 0
) -> OptimisedPolicy:
    """Find the policy that maximises an estimator, and evaluate it with cross-fitting.

    Parameters
    ----------
    sessions
        The log.
    reward
        Reward of a list.
    estimator
        Name of the estimator: List, IP, PBM or Item.
    clip
        Clipping constant: how many times as often as logged something may be shown with gain.
    interval
        Bootstrap for the intervals of the cross-fitted values.
    seed
        Random seed of the halves, where the log has no time.

    Returns
    -------
    OptimisedPolicy
        The policy, with its in-sample and cross-fitted values.

    Raises
    ------
    SpecError
        If the estimator cannot be optimised ("unknown-name").
    CapabilityError
        If the reward is not a sum over clicks, as all estimators but List need ("nonlinear-reward").

    References
    ----------
    Li, S. et al. (2018). Offline evaluation of ranking policies with click models. KDD. Section 4.3.
    """
    policy = best_policy(GroupedLog.of(sessions, reward), estimator, clip)
    logging, in_sample, _ = _evaluate(policy, sessions, reward, estimator, clip, _VALUE_ONLY)
    halves, split = _split_in_halves(sessions, seed)
    held_out = [
        _evaluate(best_policy(GroupedLog.of(one, reward), estimator, clip), other, reward, estimator, clip, interval)
        for one, other in (halves, halves[::-1])
    ]
    estimates = [estimate for _, estimate, _ in held_out]
    n_sessions = [estimate.sessions for estimate in estimates]
    return OptimisedPolicy(
        policy,
        logging,
        in_sample,
        _pool([(e.value, e.error) for e in estimates], n_sessions),
        _pool([(gain.value, gain.error) for *_, gain in held_out], n_sessions),
        _lower_bound(halves, reward, estimator, clip),
        sum(e.lost * e.sessions for e in estimates) / max(sum(n_sessions), 1),
        split,
    )


def _lower_bound(halves: tuple[Sessions, Sessions], reward: Reward, estimator: str, clip: float) -> float:
    """95 % lower confidence bound of the cross-fitted reward.

    Each half evaluates the other half's policy with the other half's list frequencies as the logging policy, so that
    the terms are independent and between 0 and clip x largest reward: an empirical Bernstein bound, with half of the
    5 % for each half. Where those frequencies are too low, weights are too large: that excess is subtracted, as far as
    the evaluating half shows it.
    """
    lower, sessions = 0.0, 0.0
    for one, other in (halves, halves[::-1]):
        policy, frequencies = best_policy(GroupedLog.of(one, reward), estimator, clip), WeightedLists.frequencies(one)
        log = GroupedLog.of(other, reward)
        evaluation = evaluate_target(log, policy, [estimator], clip=[clip], logging=frequencies, interval=Bernstein())
        estimate = evaluation[0].estimates[0]
        bound = BoundEstimator.of(
            Estimator.named(estimator),
            log,
            TargetProbabilities.at(log, policy),
            TargetProbabilities.at(log, frequencies),
        )
        excess = _frequency_excess(bound, clip)
        lower += estimate.sessions * max(estimate.low - excess, 0.0)
        sessions += estimate.sessions
    return lower / max(sessions, 1)


def _frequency_excess(bound: BoundEstimator, clip: float) -> float:
    """Overestimation by too low logging frequencies: M F of the theorems, one-sided.

    Sum over units of mean reward x clipped weight x max(frequency in this half - frequency in the other half, 0).
    """
    units, total = bound.units, bound.log.total
    assert units.logging is not None, "frequencies of the other half"
    sessions, exposed = bound.sessions(total)[:, 0], units.exposed(total)[:, 0]
    seen = (exposed > 0) & (units.target > 0)
    reward = units.earned(total, bound.log.theta)[seen, 0] / exposed[seen]
    frequency = exposed[seen] / np.maximum(sessions[units.query[seen]], 1)
    with np.errstate(divide="ignore"):
        weight = np.minimum(units.target[seen] / units.logging[seen], clip)
    excess = reward * weight * np.maximum(frequency - units.logging[seen], 0) * sessions[units.query[seen]]
    return float(excess.sum() / max(sessions.sum(), 1))


def best_policy(log: GroupedLog, estimator: str, clip: float) -> WeightedLists:
    """Find the policy that maximises an estimator on a log; PBM uses the examination 1 / rank.

    Its estimated reward on the same log is biased upwards: evaluate it on other sessions, as `optimise_policy` does.

    Parameters
    ----------
    log
        The grouped log.
    estimator
        Name of the estimator: List, IP, PBM or Item.
    clip
        Clipping constant.

    Returns
    -------
    WeightedLists
        Lists with probabilities. Except for List, they need not have been logged.

    Raises
    ------
    SpecError
        If the estimator cannot be optimised ("unknown-name").
    CapabilityError
        If the reward is not a sum over clicks, as all estimators but List need ("nonlinear-reward").

    Examples
    --------
    >>> from clickshift.data.vocabulary import Vocabulary
    >>> vocabulary = Vocabulary.of(np.array([0, 0]), np.array([10, 11]))[0]
    >>> lists = Rankings(vocabulary, np.zeros(2, np.int32), np.array([[0, 1], [1, 0]], np.int32))
    >>> log = GroupedLog.of(Sessions(lists, np.array([[True, False], [True, True]]), np.array([30, 10])))
    >>> policy = best_policy(log, "List", clip=2.0)
    >>> policy.lists.pair.tolist(), policy.weight.tolist()
    ([[1, 0], [0, 1]], [0.5, 0.5])
    """
    if estimator not in _ESTIMATORS:
        raise SpecError(
            f"the estimator must be List, IP, PBM or Item to be optimised: got {estimator!r}.",
            code="unknown-name",
            value=estimator,
            known=list(_ESTIMATORS),
        )
    if estimator != "List" and not log.reward.is_linear:
        raise CapabilityError(
            f"{estimator} cannot be optimised for {log.reward}, which is not a sum over clicks. Choose List.",
            code="nonlinear-reward",
            estimator=estimator,
            reward=str(log.reward),
        )
    lottery = _optimise_lists(log, clip) if estimator == "List" else _optimise_placements(log, estimator, clip)
    return WeightedLists(Rankings(log.vocabulary, lottery.query.astype(np.int32), lottery.pair), lottery.weight)


def _optimise_lists(log: GroupedLog, clip: float) -> Lottery:
    """Maximise the List estimator."""
    lists, total = log.lists, log.total
    records, reward = (sum_by_index(log.list_of, x, len(lists))[:, 0] for x in (total.shown, total.earned))
    query, counts = lists.query.astype(np.int64), records.astype(np.int64)
    return best_lists(query, lists.pair, counts, reward, n_queries=log.n_queries, clip=clip).lottery


def _optimise_placements(log: GroupedLog, estimator: str, clip: float) -> Lottery:
    """Maximise the IP, PBM or Item estimator."""
    ranks, vocabulary = np.arange(log.n_ranks), log.vocabulary
    pair = log.lists.pair[log.list_of].astype(np.int64)
    cell = np.where(pair == UNSEEN, UNSEEN, pair * log.n_ranks + ranks).ravel()
    shown = np.repeat(log.total.shown, log.n_ranks, axis=1)
    impressions, clicks = (
        sum_by_index(cell, x.reshape(-1, 1), vocabulary.n_pairs * log.n_ranks).reshape(-1, log.n_ranks).astype(np.int64)
        for x in (shown, log.total.clicks[:, :, 0])
    )
    counts = vocabulary.query_offsets, impressions, clicks
    if estimator == "IP":
        return best_placement(*counts, theta=log.theta, clip=clip).lottery
    examination = 1 / (1.0 + ranks) if estimator == "PBM" else np.ones(log.n_ranks)
    return best_exposure(*counts, theta=log.theta, examination=examination, clip=clip).lottery


def _split_in_halves(sessions: Sessions, seed: int) -> tuple[tuple[Sessions, Sessions], str]:
    """Split a log into earlier and later days; at random where the log has no time, or only one day."""
    early = earlier_half(sessions.time, sessions.count)
    if early is not None:
        return (sessions[early], sessions[~early]), "by time"
    return sessions.split(0.5, rng=seed), "at random"


def _evaluate(
    policy: WeightedLists, sessions: Sessions, reward: Reward, estimator: str, clip: float, interval: Bootstrap
) -> tuple[Estimate, Estimate, Difference]:
    """Estimate the reward of the log itself, that of the policy, and the difference."""
    logging, estimated = evaluate_target(
        GroupedLog.of(sessions, reward), policy, ["RCTR", estimator], clip=[clip], interval=interval
    )
    return logging.estimates[0], estimated.estimates[0], paired_difference(logging, estimated, interval)


def _pool(parts: Sequence[tuple[float, float]], sessions: Sequence[int]) -> PooledValue:
    """Pool the values and standard errors of two halves, which are independent, by their sessions."""
    value, error = np.array(parts, np.float64).T
    share = np.array(sessions) / max(sum(sessions), 1)
    mean, half_width = float(share @ value), 1.96 * float(np.sqrt(share**2 @ error**2))
    return PooledValue(mean, mean - half_width, mean + half_width)
