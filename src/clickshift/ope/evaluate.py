"""Off-policy evaluation: estimates of a target from a log, several estimators and clipping constants at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

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
from clickshift.ope.result import Estimate
from clickshift.ope.target_policy import Target, TargetProbabilities, as_target
from clickshift.ope.weights import CIPSWeights, LoggingPolicy

PAPER_ESTIMATORS = ("List", "IP", "PBM", "Item", "RCTR")
"""The estimators of Li et al. (2018)."""

_Limits = tuple[float, float, float, float, float]
"""Standard error, low, high, low of the floor and high of the ceiling."""


@final
@dataclass(frozen=True, eq=False)
class Evaluation:
    """One estimator along the clipping constants."""

    estimates: tuple[Estimate, ...]
    replicates: Float[np.ndarray, "clip replicate"] | None
    """Values in resampled logs; None for bounds."""


def evaluate_target(
    logged: GroupedLog,
    target: Target | Rankings,
    estimators: Sequence[Estimator | str] = PAPER_ESTIMATORS,
    *,
    clip: Sequence[float] = (math.inf,),
    logging: Target | Rankings | str = "frequencies",
    interval: Interval | None = None,
) -> list[Evaluation]:
    """What the target would earn per session, by each estimator and clipping constant (ascending).

    `logging` is the policy of the log: "frequencies" of its lists, "propensities" that it carries (for List), or a
    policy that is known. An interval is a bootstrap of sessions by default.
    """
    interval = Bootstrap() if interval is None else interval
    limits = checked_clip(clip)
    chosen = [Estimator.named(e) if isinstance(e, str) else e for e in estimators]
    target = as_target(target)
    prefixes = any(e.needs_prefixes for e in chosen)
    aim = TargetProbabilities.at(logged, target, prefixes=prefixes)
    policy = _logging(logged, logging, prefixes)
    ready = [BoundEstimator.of(e, logged, aim, policy, target=target) for e in chosen]
    paths = [p.path(logged.total, limits) for p in ready]
    if isinstance(interval, Bootstrap):
        drawn = [
            add_model_error(d, p, path, aim, target, limits, interval.seed)
            for d, p, path in zip(_replicates(logged, ready, limits, interval), ready, paths, strict=True)
        ]
        return [_resampled(p, path, d, limits, interval, aim) for p, path, d in zip(ready, paths, drawn, strict=True)]
    for p in ready:
        require_valid_bounds(interval, p, limits)
    return [_bounded(p, path, limits, interval, aim) for p, path in zip(ready, paths, strict=True)]


@final
@dataclass(frozen=True)
class Difference:
    """Second minus first, with an interval that knows that both rest on the same sessions."""

    value: float
    error: float
    low: float
    high: float


def paired_difference(first: Evaluation, second: Evaluation, interval: Bootstrap, *, clip: int = -1) -> Difference:
    """Of two evaluations by the same bootstrap of the same log, at one of the clipping constants (by its place)."""
    if first.replicates is None or second.replicates is None or first.replicates.shape != second.replicates.shape:
        raise DataError("a paired difference needs two evaluations by the same bootstrap of the same log.")
    value = second.estimates[clip].value - first.estimates[clip].value
    return Difference(value, *interval.limits(value, second.replicates[clip] - first.replicates[clip]))


def _logging(logged: GroupedLog, logging: Target | Rankings | str, prefixes: bool) -> LoggingPolicy:
    if not isinstance(logging, str):
        return TargetProbabilities.at(logged, logging, prefixes=prefixes)
    if logging == "frequencies":
        return "frequencies"
    if logging == "propensities":
        return "propensities"
    raise DataError(f"logging must be 'frequencies', 'propensities' or a policy: got {logging!r}.")


def _replicates(
    logged: GroupedLog, ready: Sequence[BoundEstimator], clip: np.ndarray, interval: Bootstrap
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Value, floor and ceiling of each estimator in all replicates."""
    terms = [ClusterTerms.of(p, clip) for p in ready]
    clusters = logged.clusters

    def ask(drawn: np.ndarray) -> list[ClippingPath]:
        if all(terms):
            return [t.path(drawn) for t in terms if t]
        tally = tally_resampled(logged, clusters.entry, clusters.click, drawn, clusters.of_row, clusters.count)
        return [t.path(drawn) if t else p.path(tally, clip) for t, p in zip(terms, ready, strict=True)]

    held = 0 if all(terms) else len(logged.list_of) * (logged.n_ranks + 6)
    blocks = interval.resample(logged, ask, held)
    joined = []
    for k in range(len(ready)):
        value, floor, ceiling = (
            np.concatenate([getattr(block[k], name) for block in blocks], 1) for name in RESAMPLED_FIELDS
        )
        joined.append((value, floor, ceiling))
    return joined


def _resampled(
    prepared: BoundEstimator,
    path: ClippingPath,
    drawn: Sequence[np.ndarray],
    clip: np.ndarray,
    interval: Bootstrap,
    aim: TargetProbabilities,
) -> Evaluation:
    limits: list[_Limits] = []
    each_end = replace(interval, level=(1 + interval.level) / 2)  # so that both ends hold at the level
    for m in range(len(clip)):
        error, low, high = interval.limits(float(path.value[m, 0]), drawn[0][m])
        floor_low = each_end.limits(float(path.floor[m, 0]), drawn[1][m])[1]
        ceiling_high = each_end.limits(float(path.ceiling[m, 0]), drawn[2][m])[2]
        limits.append((error, low, high, floor_low, ceiling_high))
    return Evaluation(_estimates(prepared, path, clip, interval, aim, limits), drawn[0])


def _bounded(
    prepared: BoundEstimator,
    path: ClippingPath,
    clip: np.ndarray,
    interval: Hoeffding | Bernstein,
    aim: TargetProbabilities,
) -> Evaluation:
    moments, n = session_moments(prepared, clip), float(path.sessions[0])
    limits: list[_Limits] = []
    for m in range(len(clip)):
        # where nothing of the target was logged there is no value, but there is a bound: a mean of zeros
        mean, variance = float(path.floor[m, 0]), float(moments[m, 1])
        largest = prepared.logged.largest * float(clip[m])
        reach = interval.reach(n, largest, variance)
        # the ceiling is a mean of terms with the same range, but with another variance
        ceiling_high = float(path.ceiling[m, 0]) + Hoeffding(interval.level).reach(n, largest, variance)
        limits.append((math.sqrt(variance / max(n, 1)), mean - reach, mean + reach, mean - reach, ceiling_high))
    return Evaluation(_estimates(prepared, path, clip, interval, aim, limits), None)


def _estimates(
    prepared: BoundEstimator,
    path: ClippingPath,
    clip: np.ndarray,
    interval: Interval,
    aim: TargetProbabilities,
    limits: Sequence[_Limits],
) -> tuple[Estimate, ...]:
    logged, estimator, weights = prepared.logged, prepared.estimator, prepared.estimator.weights
    shown = logged.per_query(logged.total.shown)[:, 0]
    spread = prepared.spread(logged.total, clip)
    used = (shown > 0) & prepared.used
    sessions, most = int(shown[used].sum()), float(path.most[0])
    never, clipped = (x / most if most > 0 else 0.0 * x for x in (path.never[0], path.clipped[:, 0]))
    estimates = []
    for m, (error, *ends) in enumerate(limits):
        if estimator.model is None:  # nothing earns less than nothing, or more than all
            ends = [end if math.isnan(end) else min(max(end, 0.0), logged.largest) for end in ends]
        low, high, floor_low, ceiling_high = ends
        estimate = Estimate(
            estimator=estimator.name,
            reward=str(logged.reward),
            clip=float(clip[m]),
            value=float(path.value[m, 0]),
            error=error,
            low=low,
            high=high,
            interval=f"{interval.level:.0%} {interval.name}",
            coverage=float(1 - never) if most > 0 else 0.0,
            never_logged=float(never),
            clipped=float(clipped[m]),
            effective=float(spread.effective[m]),
            largest_weight=spread.largest_weight,
            floor=float(path.floor[m, 0]),
            ceiling=float(path.ceiling[m, 0]),
            floor_low=floor_low,
            ceiling_high=ceiling_high,
            sessions=sessions,
            sessions_skipped=int(shown.sum()) - sessions,
            queries=int(used.sum()),
            queries_skipped=int((shown > 0).sum() - used.sum()),
            queries_without_overlap=spread.queries_without_overlap,
            assumption="the model is right" if weights is None else weights.assumption,
            notes=_notes(prepared, aim),
        )
        estimates.append(estimate)
    return tuple(estimates)


def _notes(prepared: BoundEstimator, aim: TargetProbabilities) -> tuple[str, ...]:
    notes, name = [], prepared.estimator.name
    if aim.unlogged:
        names = ", ".join(aim.unlogged_names) + (" and others" if aim.unlogged > len(aim.unlogged_names) else "")
        what = "1 document" if aim.unlogged == 1 else f"{aim.unlogged:,} documents"
        notes.append(f"The target shows {what} that the log never does: {names}.")
    if has_model_error(prepared):
        notes.append(f"{name}: the interval has the errors of what lists share in the model, not of its documents.")
    elif prepared.estimator.model is not None or isinstance(prepared.estimator.weights, CIPSWeights):
        notes.append(f"{name}: the interval takes the model as given, the error of its parameters is not in it.")
    return tuple(notes)
