"""Off-policy estimates: the reward of a target policy by several estimators and clipping constants at once.

An estimate holds the value, its uncertainty, and whether the log has enough overlap with the target policy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, final

import numpy as np
from jaxtyping import Float

from clickshift.data.sessions import Rankings
from clickshift.errors import DataError
from clickshift.ope._accumulators import ClippingPath
from clickshift.ope.bound_estimator import BoundEstimator, ClusterTerms
from clickshift.ope.estimators import Estimator, checked_clip
from clickshift.ope.grouped_log import GroupedLog, tally_resampled
from clickshift.ope.intervals import (
    RESAMPLED_FIELDS,
    Bernstein,
    Bootstrap,
    Hoeffding,
    Interval,
    add_model_error,
    has_model_error,
    require_valid_bounds,
    session_moments,
)
from clickshift.ope.target_policy import Target, TargetProbabilities, as_target
from clickshift.ope.weights import CIPSWeights, LoggingPolicy

PAPER_ESTIMATORS = ("List", "IP", "PBM", "Item", "RCTR")
"""Estimators of Li et al. (2018), Offline evaluation of ranking policies with click models, KDD."""

Verdict = Literal["usable", "weak overlap", "not identified", "baseline"]
"""Whether the overlap of the log with the target policy is enough for the estimate; Item and RCTR are baselines."""

BASELINES = ("Item", "RCTR")
"""Estimators that ignore ranks, or the target itself: they are shown for comparison, and are never an answer."""

_USABLE_SHARE = 0.8
"""Share of the target policy that must be covered, neither clipped nor never logged, for a usable estimate."""
_IDENTIFIED_SHARE = 0.5
"""Share of the target policy that must be covered for the estimate to mean anything."""
_USABLE_SAMPLE_SIZE = 100
"""Effective sample size, in sessions, that a usable estimate needs."""
_NEGLIGIBLE = 0.0005
"""Lost mass that the explanation does not mention."""

_Limits = tuple[float, float, float, float, float]
"""Standard error, lower and upper limit, lower limit of the floor and upper limit of the ceiling."""


@final
@dataclass(frozen=True)
class Estimate:
    """One off-policy estimate with its interval, diagnostics and verdict.

    Masses are shares of the reward that the target policy would earn if everything that it shows were clicked.

    Parameters
    ----------
    estimator
        Name of the estimator.
    reward
        Name of the reward.
    clip
        Clipping constant: the largest importance weight.
    value
        Reward per session; NaN where nothing that the target policy shows was logged.
    error
        Standard error.
    low, high
        Confidence interval of the (clipped) estimator's expectation: it does not account for lost mass.
    interval
        Level and method of the interval.
    coverage
        Share of the target policy that was logged. Under a known logging policy, its mean importance weight, which is 1
        in expectation where the logging policy supports the target policy.
    never_logged
        Lost mass: share of the target policy that was never logged.
    clipped
        Lost mass: share that was logged, but with a weight above the clipping constant.
    effective
        Effective sample size, in sessions.
    largest_weight
        Largest importance weight before clipping.
    floor, ceiling
        Partial identification: the value if lost mass earns nothing, and if all of it is clicked.
    floor_low, ceiling_high
        The same range, widened by sampling error: each end by a one-sided interval with half of the error probability.
    sessions
        Number of sessions used.
    sessions_skipped
        Number of sessions of queries that the target policy, or a known logging policy, does not rank.
    queries
        Number of queries used.
    queries_skipped
        Number of queries that the target policy, or a known logging policy, does not rank.
    queries_without_overlap
        Number of used queries for which nothing that the target policy shows was logged.
    assumption
        What must hold of clicks, as the end of a sentence that begins with "if".
    notes
        Remarks, as sentences.
    mean_weight, mean_weight_error
        Mean importance weight before clipping, relative to the mass of the target, with its standard error: 1 in
        expectation where propensities are right and the logging policy may show everything that the target shows. NaN
        where the logging policy is estimated from the log.
    """

    estimator: str
    reward: str
    clip: float
    value: float
    error: float
    low: float
    high: float
    interval: str
    coverage: float
    never_logged: float
    clipped: float
    effective: float
    largest_weight: float
    floor: float
    ceiling: float
    floor_low: float
    ceiling_high: float
    sessions: int
    sessions_skipped: int
    queries: int
    queries_skipped: int
    queries_without_overlap: int
    assumption: str
    notes: tuple[str, ...] = ()
    mean_weight: float = math.nan
    mean_weight_error: float = math.nan

    @property
    def lost(self) -> float:
        """Share of the target policy that was never logged or is clipped."""
        return self.never_logged + self.clipped

    @property
    def verdict(self) -> Verdict:
        """Whether the overlap of the log with the target policy is enough."""
        if math.isnan(self.value) or 1 - self.lost < _IDENTIFIED_SHARE:
            return "not identified"
        if self.estimator.endswith(BASELINES):
            return "baseline"
        weak = 1 - self.lost < _USABLE_SHARE or self.effective < _USABLE_SAMPLE_SIZE
        return "weak overlap" if weak else "usable"

    @property
    def explanation(self) -> str:
        """Sentence that explains the verdict."""
        if not self.sessions:
            return "The target ranks no query of the log: there is no estimate."
        if math.isnan(self.value):
            return "Nothing that the target shows was ever logged: its reward is not identified from this log."
        parts = []
        if self.never_logged >= _NEGLIGIBLE:
            parts.append(f"{self.never_logged:.1%} of what the target shows was never logged")
        if self.clipped >= _NEGLIGIBLE:
            parts.append(f"clipping at {self.clip:g} removes {self.clipped:.1%} of it")
        lost = " and ".join(parts)
        lost = f"{lost[:1].upper()}{lost[1:]}"
        if self.verdict == "not identified":
            return f"{lost}: the value may be anything from {self.floor:.4g} to {self.ceiling:.4g}."
        effective = f"{self.effective:,.0f} of {self.sessions:,} sessions"
        if self.verdict == "weak overlap":
            reason = lost if self.lost > 1 - _USABLE_SHARE else f"Effective sample size is {effective}"
            return f"{reason}: treat this estimate as indicative only, and check the range of possible values."
        if self.verdict == "baseline":
            return f"A baseline: right only if {self.assumption}."
        condition = f", if {self.assumption}" if self.assumption else ""
        covered = f"The log covers {100 * (1 - self.lost):.3g}% of what the target shows"
        return f"{covered}, and the effective sample size is {effective}: the estimate is usable{condition}."

    def __str__(self) -> str:
        return f"{self.estimator} {self.value:.4g} [{self.low:.4g}, {self.high:.4g}] {self.verdict}: {self.explanation}"


@final
@dataclass(frozen=True, eq=False)
class Evaluation:
    """Estimates of one estimator, one per clipping constant.

    Parameters
    ----------
    estimates
        One estimate per clipping constant, in ascending order.
    replicates
        Values in resampled logs; None for finite-sample bounds.
    """

    estimates: tuple[Estimate, ...]
    replicates: Float[np.ndarray, "clip replicate"] | None


def evaluate_target(
    log: GroupedLog,
    target: Target | Rankings,
    estimators: Sequence[Estimator | str] = PAPER_ESTIMATORS,
    *,
    clip: Sequence[float] = (math.inf,),
    logging: Target | Rankings | str = "frequencies",
    interval: Interval | None = None,
) -> list[Evaluation]:
    """Estimate what a target policy would earn per session, from the log of another policy.

    Parameters
    ----------
    log
        The grouped log.
    target
        The target policy: rankings with one list per query, weighted lists, or a distribution over rankings.
    estimators
        Estimators, or their names.
    clip
        Clipping constants, ascending; inf for no clipping.
    logging
        The logging policy: "frequencies" of the log's lists, "propensities" that the log carries (those of whole lists
        for List, those by position for IP, PBM, Item and DR-IP), or a known policy.
    interval
        Method for confidence intervals; by default a bootstrap over sessions.

    Returns
    -------
    list of Evaluation
        One evaluation per estimator, with one estimate per clipping constant.

    Raises
    ------
    SpecError
        If an estimator ("unknown-name") or a clipping constant ("bad-clip") is not valid.
    CapabilityError
        If an estimator cannot be used with this reward, logging policy or interval ("nonlinear-reward",
        "list-propensities-only", "no-prefix-propensities", "frequencies-only", "invalid-bounds").
    DataError
        If the logging policy is not valid for this log ("bad-option", "missing-propensities", "zero-propensity").

    References
    ----------
    Li, S. et al. (2018). Offline evaluation of ranking policies with click models. KDD.

    Examples
    --------
    >>> from clickshift.data.sessions import Sessions
    >>> from clickshift.data.vocabulary import Vocabulary
    >>> vocabulary = Vocabulary.of(np.array([0, 0]), np.array([10, 11]))[0]
    >>> pairs = np.array([[0, 1], [0, 1], [1, 0], [1, 0]], np.int32)
    >>> lists = Rankings(vocabulary, np.zeros(4, np.int32), pairs)
    >>> log = GroupedLog.of(Sessions(lists, np.array([[1, 0], [0, 0], [1, 0], [1, 1]], bool)))
    >>> target = Rankings(vocabulary, np.array([0], np.int32), np.array([[1, 0]], np.int32))
    >>> [(e.estimates[0].estimator, e.estimates[0].value) for e in evaluate_target(log, target, ["List", "RCTR"])]
    [('List', 1.5), ('RCTR', 1.0)]
    """
    interval = Bootstrap() if interval is None else interval
    limits = checked_clip(clip)
    chosen = [Estimator.named(e) if isinstance(e, str) else e for e in estimators]
    target = as_target(target)
    prefixes = any(e.needs_prefixes for e in chosen)
    probabilities = TargetProbabilities.at(log, target, prefixes=prefixes)
    policy = logging_probabilities(log, logging, prefixes=prefixes)
    bound = [BoundEstimator.of(e, log, probabilities, policy, target=target) for e in chosen]
    paths = [b.path(log.total, limits) for b in bound]
    if isinstance(interval, Bootstrap):
        resampled = [
            add_model_error(r, b, path, probabilities, target, limits, interval.seed)
            for r, b, path in zip(_replicates(log, bound, limits, interval), bound, paths, strict=True)
        ]
        return [
            _with_bootstrap(b, path, r, limits, interval, probabilities)
            for b, path, r in zip(bound, paths, resampled, strict=True)
        ]
    for b in bound:
        require_valid_bounds(interval, b, limits)
    return [_with_bounds(b, path, limits, interval, probabilities) for b, path in zip(bound, paths, strict=True)]


@final
@dataclass(frozen=True)
class Difference:
    """Paired difference, second minus first, whose interval accounts for both resting on the same sessions.

    Parameters
    ----------
    value
        Difference of the rewards per session.
    error
        Standard error of the difference.
    low, high
        Limits of the confidence interval.
    """

    value: float
    error: float
    low: float
    high: float


def paired_difference(first: Evaluation, second: Evaluation, interval: Bootstrap, *, clip: int = -1) -> Difference:
    """Compute the difference of two evaluations by the same bootstrap of the same log.

    Parameters
    ----------
    first, second
        The evaluations.
    interval
        The bootstrap by which both were made.
    clip
        Index of the clipping constant.

    Returns
    -------
    Difference
        Second minus first, with its confidence interval.

    Raises
    ------
    DataError
        If the evaluations are not from the same bootstrap ("not-paired").
    """
    if first.replicates is None or second.replicates is None or first.replicates.shape != second.replicates.shape:
        raise DataError(
            "a paired difference needs two evaluations by the same bootstrap of the same log.", code="not-paired"
        )
    value = second.estimates[clip].value - first.estimates[clip].value
    return Difference(value, *interval.limits(value, second.replicates[clip] - first.replicates[clip]))


def logging_probabilities(
    log: GroupedLog, logging: Target | Rankings | str, *, prefixes: bool = False
) -> LoggingPolicy:
    """Resolve the `logging` argument of `evaluate_target`.

    Parameters
    ----------
    log
        The grouped log.
    logging
        "frequencies", "propensities" or a policy.
    prefixes
        Whether the probabilities of list prefixes are needed.

    Raises
    ------
    DataError
        If it is another text ("bad-option").
    """
    if not isinstance(logging, str):
        return TargetProbabilities.at(log, logging, prefixes=prefixes)
    if logging == "frequencies":
        return "frequencies"
    if logging == "propensities":
        return "propensities"
    raise DataError(
        f"logging must be 'frequencies', 'propensities' or a policy: got {logging!r}.",
        code="bad-option",
        value=logging,
        known=["frequencies", "propensities"],
    )


def _replicates(
    log: GroupedLog, bound: Sequence[BoundEstimator], clip: np.ndarray, interval: Bootstrap
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Compute value, floor and ceiling of each estimator in all replicates."""
    terms = [ClusterTerms.of(b, clip) for b in bound]
    clusters = log.clusters

    def paths(drawn: np.ndarray) -> list[ClippingPath]:
        if all(terms):
            return [t.path(drawn) for t in terms if t]
        tally = tally_resampled(log, clusters.entry, clusters.click, drawn, clusters.of_row, clusters.count)
        return [b.path(tally, clip) for b in bound]

    held = 0 if all(terms) else len(log.clicked[0]) + 6 * len(log.list_of)
    blocks = interval.resample(log, paths, held)
    joined = []
    for k in range(len(bound)):
        value, floor, ceiling = (
            np.concatenate([getattr(block[k], name) for block in blocks], 1) for name in RESAMPLED_FIELDS
        )
        joined.append((value, floor, ceiling))
    return joined


def _with_bootstrap(
    bound: BoundEstimator,
    path: ClippingPath,
    resampled: Sequence[np.ndarray],
    clip: np.ndarray,
    interval: Bootstrap,
    probabilities: TargetProbabilities,
) -> Evaluation:
    """Make the estimates of one estimator, with intervals from replicates."""
    limits: list[_Limits] = []
    one_sided = replace(interval, level=(1 + interval.level) / 2)  # so that both ends together hold at the level
    for m in range(len(clip)):
        error, low, high = interval.limits(float(path.value[m, 0]), resampled[0][m])
        floor_low = one_sided.limits(float(path.floor[m, 0]), resampled[1][m])[1]
        ceiling_high = one_sided.limits(float(path.ceiling[m, 0]), resampled[2][m])[2]
        limits.append((error, low, high, floor_low, ceiling_high))
    return Evaluation(_estimates(bound, path, clip, interval, probabilities, limits), resampled[0])


def _with_bounds(
    bound: BoundEstimator,
    path: ClippingPath,
    clip: np.ndarray,
    interval: Hoeffding | Bernstein,
    probabilities: TargetProbabilities,
) -> Evaluation:
    """Make the estimates of one estimator, with finite-sample bounds."""
    moments, n = session_moments(bound, clip), float(path.sessions[0])
    limits: list[_Limits] = []
    for m in range(len(clip)):
        # without overlap there is no value, but there is a bound: that of a mean of zeros
        mean, variance = float(path.floor[m, 0]), float(moments[m, 1])
        largest = bound.log.largest * float(bound.limits(clip)[m])
        half_width = interval.half_width(n, largest, variance)
        # the ceiling is a mean of terms with the same range, but with another variance
        ceiling_high = float(path.ceiling[m, 0]) + Hoeffding(interval.level).half_width(n, largest, variance)
        low, high = mean - half_width, mean + half_width
        limits.append((math.sqrt(variance / max(n, 1)), low, high, low, ceiling_high))
    return Evaluation(_estimates(bound, path, clip, interval, probabilities, limits), None)


def _estimates(
    bound: BoundEstimator,
    path: ClippingPath,
    clip: np.ndarray,
    interval: Interval,
    probabilities: TargetProbabilities,
    limits: Sequence[_Limits],
) -> tuple[Estimate, ...]:
    """Assemble one estimate per clipping constant."""
    log, estimator, weights = bound.log, bound.estimator, bound.estimator.weights
    shown = log.total.sessions[:, 0]
    diagnostics = bound.diagnostics(log.total, clip)
    used = (shown > 0) & bound.used
    sessions, most = int(shown[used].sum()), float(path.most[0])
    never_logged, clipped = (x / most if most > 0 else 0.0 * x for x in (path.never_logged[0], path.clipped[:, 0]))
    mean_weight, mean_weight_error = bound.mean_weight()
    estimates = []
    for m, (error, *ends) in enumerate(limits):
        if estimator.model is None:  # no reward is below 0 or above the largest one
            ends = [end if math.isnan(end) else min(max(end, 0.0), log.largest) for end in ends]
        low, high, floor_low, ceiling_high = ends
        estimate = Estimate(
            estimator=estimator.name,
            reward=str(log.reward),
            clip=float(clip[m]),
            value=float(path.value[m, 0]),
            error=error,
            low=low,
            high=high,
            interval=f"{interval.level:.0%} {interval.name}",
            coverage=float(1 - never_logged) if most > 0 else 0.0,
            never_logged=float(never_logged),
            clipped=float(clipped[m]),
            effective=float(diagnostics.effective[m]),
            largest_weight=diagnostics.largest_weight,
            floor=float(path.floor[m, 0]),
            ceiling=float(path.ceiling[m, 0]),
            floor_low=floor_low,
            ceiling_high=ceiling_high,
            sessions=sessions,
            sessions_skipped=int(shown.sum()) - sessions,
            queries=int(used.sum()),
            queries_skipped=int((shown > 0).sum() - used.sum()),
            queries_without_overlap=diagnostics.queries_without_overlap,
            assumption="the click model is right" if weights is None else weights.assumption,
            notes=_notes(bound, probabilities),
            mean_weight=mean_weight,
            mean_weight_error=mean_weight_error,
        )
        estimates.append(estimate)
    return tuple(estimates)


def _notes(bound: BoundEstimator, probabilities: TargetProbabilities) -> tuple[str, ...]:
    """Sentences on unlogged documents, and on what the interval includes of the click model's error."""
    notes, name = [], bound.estimator.name
    if probabilities.unlogged:
        more = " and others" if probabilities.unlogged > len(probabilities.unlogged_names) else ""
        names = ", ".join(probabilities.unlogged_names) + more
        documents = "1 document" if probabilities.unlogged == 1 else f"{probabilities.unlogged:,} documents"
        notes.append(f"The target shows {documents} that the log never shows: {names}.")
    model = bound.estimator.model or getattr(bound.estimator.weights, "model", None)
    if model is not None and model.approximate_marginals and bound.estimator.max_error > 0:
        notes.append(
            f"{name}: the click model's probabilities have an error of at most {bound.estimator.max_error:g}; "
            "`exact` computes them without one."
        )
    if has_model_error(bound):
        notes.append(
            f"{name}: the interval includes the standard errors of the click model's shared parameters, but not "
            "those of single documents."
        )
    elif bound.estimator.model is not None or isinstance(bound.estimator.weights, CIPSWeights):
        notes.append(
            f"{name}: the interval treats the click model as fixed: it does not include the error of its parameters."
        )
    return tuple(notes)
