"""Policy optimisation with cross-fitting: a policy chosen from a log, judged on sessions that did not choose it.

The best of many noisy values is too high (the optimiser's curse): on the log that chose it, a policy looks better than
it is. So a policy is also optimised on each half of the log and evaluated on the other half.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from clickshift.core.progress import Progress, silent
from clickshift.counts.open_log import LogLike, open_log
from clickshift.data.days import earlier_half
from clickshift.data.encoded_log import Log
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import UNSEEN
from clickshift.data.weighted_lists import WeightedLists
from clickshift.errors import CapabilityError, SpecError
from clickshift.io.read_report import OnBadLine
from clickshift.ope._optimise import best_exposure, best_lists, best_placement
from clickshift.ope._optimised_policy import OptimisedPolicy as OptimisedPolicy
from clickshift.ope._optimised_policy import PooledAnswer, PooledValue
from clickshift.ope.bound_estimator import BoundEstimator
from clickshift.ope.compact_sessions import compact_sessions
from clickshift.ope.estimate import Difference, Estimate, evaluate_target, paired_difference
from clickshift.ope.estimators import Estimator
from clickshift.ope.evaluate import evaluate_policy
from clickshift.ope.grouped_log import GroupedLog, sum_by_index
from clickshift.ope.intervals import Bernstein, Bootstrap
from clickshift.ope.rewards import Reward
from clickshift.ope.target_policy import TargetProbabilities
from clickshift.policies.birkhoff import ListArrays

_VALUE_ONLY = Bootstrap(20)
"""The smallest bootstrap, for evaluations whose interval is not used."""
_ESTIMATORS = ("List", "IP", "PBM", "Item")
_VERDICTS = ("usable", "weak", "not identified")


def optimise_policy(
    log: LogLike,
    *,
    estimator: str = "IP",
    clip: float = 10.0,
    reward: str | Reward = "clicks",
    replicates: int = 200,
    seed: int = 0,
    columns: Mapping[str, str] | None = None,
    on_bad_line: OnBadLine = "error",
    progress: Progress = silent,
) -> OptimisedPolicy:
    """Find the policy that maximises an estimator, and evaluate it with cross-fitting.

    Parameters
    ----------
    log
        Anything that `open_log` opens. Of an encoded log, equal sessions are merged as they are read.
    estimator
        Name of the estimator: List, IP, PBM or Item.
    clip
        Clipping constant: how many times as often as logged something may be shown with gain.
    reward
        Reward of a session: "clicks", "dcg" or "any-click", with @K for the first K ranks, or a `Reward`.
    replicates
        Number of bootstrap replicates for the intervals of the cross-fitted values.
    seed
        Random seed for the bootstrap, and for the halves of a log without times.
    columns
        Names of the log's columns, by the names that `read_log` expects.
    on_bad_line
        "error", or "skip" to leave out bad sessions of the log.
    progress
        Called with a text on the state of the work.

    Returns
    -------
    OptimisedPolicy
        The policy, with its in-sample and cross-fitted values.

    Raises
    ------
    SpecError
        If the estimator cannot be optimised ("unknown-name").
    CapabilityError
        If the reward is not a sum over clicks ("nonlinear-reward"), or lists have holes ("lists-with-holes"): all
        estimators but List need neither.
    DataError
        If the clipping constant is not above 0 ("bad-clip"), or the log breaks a rule.

    References
    ----------
    Li, S. et al. (2018). Offline evaluation of ranking policies with click models. KDD. Section 4.3.

    Examples
    --------
    >>> import clickshift as cs
    >>> corpus = cs.builtin_corpus(queries=5)
    >>> log = cs.simulate(corpus, cs.PlackettLuce(cs.Oracle(), temperature=2.0), cs.users.PBM(), 2000, rng=1)
    >>> optimised = cs.optimise_policy(log, reward="clicks@3", replicates=20)
    >>> optimised.halves, optimised.in_sample.value > optimised.logging.value
    ('at random', True)
    """
    reward = Reward.named(reward) if isinstance(reward, str) else reward
    interval = Bootstrap(replicates, seed=seed)
    check_estimator(estimator, reward)
    opened = open_log(log, columns=columns, on_bad_line=on_bad_line, progress=progress)
    halves, split = _split_in_halves(opened, reward, seed)
    sessions = opened if isinstance(opened, Sessions) else compact_sessions(opened, reward)
    progress("optimising on the whole log")
    whole = GroupedLog.of(sessions, reward)
    policy = best_policy(whole, estimator, clip)
    logging, in_sample, _ = _evaluate(policy, whole, estimator, clip, _VALUE_ONLY)
    progress("optimising on each half of the log")
    logs = [GroupedLog.of(half, reward) for half in halves]
    policies = [best_policy(half, estimator, clip) for half in logs]
    held_out = [_evaluate(policies[1 - k], logs[k], estimator, clip, interval) for k in (1, 0)]
    estimates = [estimate for _, estimate, _ in held_out]
    n_sessions = [estimate.sessions for estimate in estimates]
    return OptimisedPolicy(
        policy,
        logging,
        in_sample,
        _pool([(e.value, e.error) for e in estimates], n_sessions),
        _pool([(gain.value, gain.error) for *_, gain in held_out], n_sessions),
        *_lower_bound(halves, logs, policies, estimator, clip),
        _pooled_answer(halves, policies, reward, seed, progress) if reward.is_linear else None,
        sum(e.lost * e.sessions for e in estimates) / max(sum(n_sessions), 1),
        split,
        {
            "log": str(log) if isinstance(log, str | Path) else "the log",
            "estimator": estimator,
            "clip": clip,
            "reward": str(reward),
            "replicates": replicates,
            "seed": seed,
        },
    )


def _lower_bound(
    halves: Sequence[Sessions],
    logs: Sequence[GroupedLog],
    policies: Sequence[WeightedLists],
    estimator: str,
    clip: float,
) -> tuple[float, float]:
    """95 % lower confidence bound of the cross-fitted reward, and its clipping constant.

    Each half evaluates the other half's policy with the other half's list frequencies as the logging policy, so that
    the terms are independent and between 0 and clip x largest reward: an empirical Bernstein bound, with half of the
    5 % for each half. Where those frequencies are too low, weights are too large: that excess is subtracted, as far as
    the evaluating half shows it.

    Without a clipping constant the terms have no known range. Then the largest weight of the half that chose the policy
    is the constant: it does not depend on the evaluating half, and clipping can only lower the estimate.
    """
    lower, sessions, largest = 0.0, 0.0, 0.0
    for one, policy, choosing, log in zip(halves, policies, logs, logs[::-1], strict=True):
        frequencies = WeightedLists.frequencies(one)
        limit = clip if math.isfinite(clip) else _largest_weight(choosing, estimator, policy, frequencies)
        evaluation = evaluate_target(log, policy, [estimator], clip=[limit], logging=frequencies, interval=Bernstein())
        estimate, largest = evaluation[0].estimates[0], max(largest, limit)
        bound = BoundEstimator.of(
            Estimator.named(estimator),
            log,
            TargetProbabilities.at(log, policy),
            TargetProbabilities.at(log, frequencies),
        )
        excess = _frequency_excess(bound, limit)
        lower += estimate.sessions * max(estimate.low - excess, 0.0)
        sessions += estimate.sessions
    return lower / max(sessions, 1), largest


def _pooled_answer(
    halves: Sequence[Sessions], policies: Sequence[WeightedLists], reward: Reward, seed: int, progress: Progress
) -> PooledAnswer:
    """Answer on each half what the policy that the other half chose earns more than the log."""
    answers, sessions = [], []
    for policy, other in zip(policies, halves[::-1], strict=True):
        evaluation = evaluate_policy(
            other, policy, reward=reward, replicates=_VALUE_ONLY.replicates, seed=seed, progress=progress
        )
        answers.append(evaluation.answer)
        sessions.append(other.total)
    found = [answer for answer in answers if answer is not None]
    share = np.array(sessions) / max(sum(sessions), 1)
    verdict = max((answer.verdict for answer in found), key=_VERDICTS.index)
    names = dict.fromkeys(answer.estimator for answer in found if answer.estimator)
    ends = ([getattr(a, name) for a in found] for name in ("difference", "difference_low", "difference_high"))
    difference, low, high = (float(share @ np.array(values)) for values in ends)
    reasons = tuple(dict.fromkeys(reason for answer in found for reason in answer.reasons))
    return PooledAnswer(verdict, "; ".join(names), difference, low, high, reasons)


def _largest_weight(log: GroupedLog, estimator: str, policy: WeightedLists, frequencies: WeightedLists) -> float:
    """Return the largest importance weight of a policy on the log that chose it; at least 1."""
    targets = TargetProbabilities.at(log, policy), TargetProbabilities.at(log, frequencies)
    units = BoundEstimator.of(Estimator.named(estimator), log, *targets).units
    assert units.logging is not None, "frequencies of the log"
    logged = units.logging > 0
    return float(np.max(units.target[logged] / units.logging[logged], initial=1.0))


def _frequency_excess(bound: BoundEstimator, clip: float) -> float:
    """Overestimation by too low logging frequencies: M F of the theorems, one-sided.

    Sum over units of mean reward x clipped weight x max(frequency in this half - frequency in the other half, 0).
    """
    units, total = bound.units, bound.log.total
    assert units.logging is not None, "frequencies of the other half"
    sessions, exposed = bound.sessions(total)[:, 0], units.exposed(total)[:, 0]
    seen = (exposed > 0) & (units.target > 0)
    reward = units.earned(total, bound.log)[seen, 0] / exposed[seen]
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
        If the reward is not a sum over clicks, or lists have holes ("nonlinear-reward", "lists-with-holes"): all
        estimators but List need sums over documents at ranks.

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
    check_estimator(estimator, log.reward)
    found = _optimise_lists(log, clip) if estimator == "List" else _optimise_placements(log, estimator, clip)
    pair = found.pair.astype(np.int32)
    return WeightedLists(
        Rankings.checked(log.vocabulary, found.query.astype(np.int32), pair, pair != UNSEEN), found.weight
    )


def check_estimator(estimator: str, reward: Reward) -> None:
    """Check that an estimator can be optimised for a reward; see `best_policy`."""
    if estimator not in _ESTIMATORS:
        raise SpecError(
            f"the estimator must be List, IP, PBM or Item to be optimised: got {estimator!r}.",
            code="unknown-name",
            value=estimator,
            known=list(_ESTIMATORS),
        )
    if estimator != "List" and not reward.is_linear:
        raise CapabilityError(
            f"{estimator} cannot be optimised for {reward}, which is not a sum over clicks. Choose List.",
            code="nonlinear-reward",
            estimator=estimator,
            reward=str(reward),
        )


def _optimise_lists(log: GroupedLog, clip: float) -> ListArrays:
    """Maximise the List estimator."""
    lists, total = log.lists, log.total
    records, reward = (sum_by_index(log.list_of, x, len(lists))[:, 0] for x in (total.shown, total.earned))
    query, counts = lists.query.astype(np.int64), records.astype(np.int64)
    return best_lists(query, lists.pair, counts, reward, n_queries=log.n_queries, clip=clip).lists


def _optimise_placements(log: GroupedLog, estimator: str, clip: float) -> ListArrays:
    """Maximise the IP, PBM or Item estimator."""
    if log.lists.has_holes or not log.lists.shown[:, 0].all():
        raise CapabilityError(
            f"{estimator} places documents at ranks, and cannot tell whether one may be shown where lists of the log "
            "have holes. Choose the estimator List, which optimises over logged lists with their holes, or remove the "
            "holes from the log.",
            code="lists-with-holes",
            estimator=estimator,
        )
    ranks, vocabulary = np.arange(log.n_ranks), log.vocabulary
    pair = log.lists.pair[log.list_of].astype(np.int64)
    cell = np.where(pair == UNSEEN, UNSEEN, pair * log.n_ranks + ranks)
    shown = np.repeat(log.total.shown, log.n_ranks, axis=1)
    impressions, clicks = (
        sum_by_index(cells, x, vocabulary.n_pairs * log.n_ranks).reshape(-1, log.n_ranks).astype(np.int64)
        for cells, x in ((cell.ravel(), shown.reshape(-1, 1)), (cell[log.clicked], log.total.clicks))
    )
    counts = vocabulary.query_offsets, impressions, clicks
    if estimator == "IP":
        return best_placement(*counts, theta=log.theta, clip=clip).lists
    examination = 1 / (1.0 + ranks) if estimator == "PBM" else np.ones(log.n_ranks)
    return best_exposure(*counts, theta=log.theta, examination=examination, clip=clip).lists


def _split_in_halves(log: Log, reward: Reward, seed: int) -> tuple[tuple[Sessions, Sessions], str]:
    """Split a log into earlier and later days; at random where the log has no time, or only one day."""
    if isinstance(log, Sessions):
        early = earlier_half(log.time, log.count)
        halves = log.split(0.5, rng=seed) if early is None else (log[early], log[~early])
        return halves, "at random" if early is None else "by time"
    if "time" in log.kinds:
        whole = compact_sessions(log, reward)
        if (early := earlier_half(whole.time, whole.count)) is not None:
            return (whole[early], whole[~early]), "by time"
    one, other = (compact_sessions(half, reward) for half in log.split(0.5, rng=seed))
    return (one, other), "at random"


def _evaluate(
    policy: WeightedLists, log: GroupedLog, estimator: str, clip: float, interval: Bootstrap
) -> tuple[Estimate, Estimate, Difference]:
    """Estimate the reward of the log itself, that of the policy, and the difference."""
    logging, estimated = evaluate_target(log, policy, ["RCTR", estimator], clip=[clip], interval=interval)
    return logging.estimates[0], estimated.estimates[0], paired_difference(logging, estimated, interval)


def _pool(parts: Sequence[tuple[float, float]], sessions: Sequence[int]) -> PooledValue:
    """Pool the values and standard errors of two halves, which are independent, by their sessions."""
    value, error = np.array(parts, np.float64).T
    share = np.array(sessions) / max(sum(sessions), 1)
    mean, half_width = float(share @ value), 1.96 * float(np.sqrt(share**2 @ error**2))
    return PooledValue(mean, mean - half_width, mean + half_width)
