"""Values of a target policy without a click model: whole lists (List), with nothing assumed of clicks.

Where the log carries propensities by position, parts of lists may take their place: prefixes of lists (RIPS), if a
click depends on nothing below it, or documents at their ranks (IP), if it depends on nothing but the document and its
rank. They come in this order, from the weakest assumption to the strongest, and the first with enough sessions counts.

With list frequencies, the reward of a list that the target shows is its mean reward in the log. Lists with few sessions
count as lost mass: their mean is not known well enough, and its standard error even less. With propensities or a known
logging policy, sessions are weighted, and the tail of the weights decides whether the mean can be trusted (Pareto k).

References
----------
Vehtari, A., Simpson, D., Gelman, A., Yao, Y. and Gabry, J. (2024). Pareto smoothed importance sampling. JMLR.

Zhang, J. and Stephens, M. A. (2009). A new and efficient estimation method for the generalized Pareto distribution.
Technometrics.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float

from clickshift.core.rng import generator
from clickshift.ope.grouped_log import GroupedLog, Tally, tally_resampled
from clickshift.ope.model_value import TargetLists, Valuation
from clickshift.ope.session_groups import divide_sessions
from clickshift.ope.target_policy import TargetProbabilities
from clickshift.ope.weights import IPWeights, ListWeights, LoggingPolicy, RIPSWeights, Weights, WeightUnits

_MIN_SESSIONS = 10
"""Sessions that a list needs in the log for its mean reward to count."""
MAX_PARETO_K = 0.7
"""Shape of the weights' tail above which a weighted mean cannot be trusted (Vehtari et al.)."""
_MIN_TAIL = 5


@final
@dataclass(frozen=True, eq=False)
class ModelFree:
    """Value of a target by whole lists, by their prefixes, or by documents at their ranks.

    Parameters
    ----------
    estimator
        Name of the estimator: "List", "RIPS" or "IP".
    full
        Value, floor, ceiling and the log's reward.
    replicates
        The same without each group of sessions.
    lost
        Lost share of the target: lists that were logged too rarely.
    effective
        Effective sample size, in sessions.
    pareto_k
        Shape of the tail of the weights.
    known
        Whether the logging policy is known, by its propensities or by itself.
    """

    estimator: str
    full: Valuation
    replicates: tuple[Valuation, ...]
    lost: float
    effective: float
    pareto_k: float
    known: bool = False


def model_free_values(
    log: GroupedLog,
    probabilities: TargetProbabilities,
    target: TargetLists,
    logging: LoggingPolicy,
    *,
    n_groups: int,
    max_lost: float,
    seed: int = 0,
) -> tuple[ModelFree, ...]:
    """Estimate the reward of a target by whole lists and, with propensities by position, by parts of lists.

    Parameters
    ----------
    log
        The grouped log.
    probabilities
        Target-policy probabilities of the logged lists and, where the log gives those of prefixes, of prefixes.
    target
        The target's lists.
    logging
        The logging policy.
    n_groups
        Number of groups of the jackknife.
    max_lost
        Lost share of the target above which there is no value.
    seed
        Random seed of the groups.

    Returns
    -------
    tuple of ModelFree
        The values, from the weakest assumption to the strongest; none where too much of the target was logged too
        rarely, or where the log carries no propensities that the reward can be weighted by.
    """
    found = (
        _value(log, probabilities, target, logging, weights, n_groups=n_groups, max_lost=max_lost, seed=seed)
        for weights in _kinds_of_weights(log, logging)
    )
    return tuple(value for value in found if value is not None)


def _kinds_of_weights(log: GroupedLog, logging: LoggingPolicy) -> list[Weights]:
    """Return the weights that the logging policy serves."""
    if logging != "propensities":
        return [ListWeights()]
    carried = log.propensities
    kinds: list[Weights] = [ListWeights()] if carried.gives_lists else []
    if log.n_ranks > 1 and log.reward.is_linear:
        kinds += [RIPSWeights()] if carried.gives_prefixes else []
        kinds += [IPWeights()] if carried.gives_ranks else []
    return kinds


def _value(
    log: GroupedLog,
    probabilities: TargetProbabilities,
    target: TargetLists,
    logging: LoggingPolicy,
    weights: Weights,
    *,
    n_groups: int,
    max_lost: float,
    seed: int,
) -> ModelFree | None:
    """Estimate the reward of a target by one kind of weights."""
    used = target.ranked if not isinstance(logging, TargetProbabilities) else target.ranked & logging.ranked
    units = weights.units(log, probabilities, logging)
    exposed, sessions = units.exposed(log.total)[:, 0], log.total.sessions[:, 0] * used
    if not sessions.sum():
        return None
    prob = np.where(used[units.query], units.target, 0.0)
    counted = (prob > 0) & (exposed >= (_MIN_SESSIONS if units.logging is None else 1))
    if units.logging is None:
        lost = 1 - float((sessions[units.query] * prob)[counted].sum() / sessions.sum())
        weight = (sessions[units.query] * prob / np.maximum(exposed, 1))[counted]
    else:
        with np.errstate(divide="ignore"):
            weight = (prob / units.logging)[counted]
        if not np.isfinite(weight).all():
            return None
        mass = float(units.mass.sum(axis=1) @ sessions)  # 1 per session, or as many as the target shows documents
        mean = float(weight @ exposed[counted]) / mass
        error = float(np.sqrt(weight**2 @ exposed[counted])) / mass
        lost = max(0.0, 1 - mean - 2 * error)
    if lost > max_lost or not counted.any():
        return None
    square = float(weight**2 @ exposed[counted])
    effective = float(weight @ exposed[counted]) ** 2 / square if square > 0 else 0.0
    if units.by_rank:  # of impressions: as sessions
        effective *= float(sessions.sum() / (units.mass.sum(axis=1) @ sessions))
    k = pareto_k(np.repeat(weight, exposed[counted].astype(np.int64))) if len(weight) < 1 << 20 else 0.0
    left = _left_out(log, n_groups, seed)
    full = _values(log, units, prob * counted, log.total, target, used)[0]
    tally = tally_resampled(log, log.entry_of, log.click, left, np.arange(len(left)), np.ones(len(left)))
    replicates = tuple(_values(log, units, prob * counted, tally, target, used))
    return ModelFree(weights.name, full, replicates, lost, effective, k, units.logging is not None)


def _left_out(log: GroupedLog, n_groups: int, seed: int) -> Float[np.ndarray, "row group"]:
    """Sessions of each row without each group."""
    count = log.count.astype(np.int64)
    groups = divide_sessions(count, n_groups, generator(seed, "jackknife"), log.cluster)
    left: np.ndarray = (count[:, None] - groups).astype(np.float64)
    return left


def _values(
    log: GroupedLog,
    units: WeightUnits,
    prob: Float[np.ndarray, " unit"],
    tally: Tally,
    target: TargetLists,
    used: np.ndarray,
) -> list[Valuation]:
    """Value, floor, ceiling and the log's reward, for each part of a tally."""
    exposed, earned = units.exposed(tally), units.earned(tally, log)
    sessions = tally.sessions * used[:, None]
    total = sessions.sum(axis=0)
    today = log.per_query(tally.earned)[used].sum(axis=0) / total
    if units.logging is None:
        seen = exposed > 0
        covered = np.where(seen, prob[:, None] * sessions[units.query], 0.0)
        value = (covered * earned / np.where(seen, exposed, 1.0)).sum(axis=0) / total
        missing = 1 - covered.sum(axis=0) / total
    else:
        weight = np.where(prob > 0, prob / np.where(prob > 0, units.logging, 1.0), 0.0)
        value, missing = weight @ earned / total, np.zeros(len(total))
    ceiling = value + np.maximum(missing, 0) * log.largest
    point = value + np.maximum(missing, 0) * today  # what the log earns on average
    return [Valuation(*map(float, row)) for row in zip(point, value, ceiling, today, strict=True)]


def pareto_k(weight: Float[np.ndarray, " session"]) -> float:
    """Shape k of a generalised Pareto distribution of the largest weights.

    The tail has min(n / 5, 3 sqrt(n)) weights. The estimate is that of Zhang and Stephens (2009), with the weakly
    informative prior of Vehtari et al.

    Parameters
    ----------
    weight
        Importance weights.

    Returns
    -------
    float
        The shape; -inf where all weights of the tail are equal or there are too few of them.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> round(pareto_k(rng.pareto(2, 100_000)), 1)  # a Pareto distribution of index 2 has k = 1 / 2
    0.5
    """
    n = len(weight)
    size = int(min(n / 5, 3 * np.sqrt(n)))
    if size < _MIN_TAIL:
        return -np.inf
    ordered = np.partition(weight, n - size - 1)
    x = np.sort(ordered[n - size :] - ordered[n - size - 1])
    if not x[-1] > 0 or not x[int(size / 4 + 0.5) - 1] > 0:
        return -np.inf
    grid = 30 + int(np.sqrt(size))
    b = 1 - np.sqrt(grid / (np.arange(1, grid + 1) - 0.5))
    b = b / (3 * x[int(size / 4 + 0.5) - 1]) + 1 / x[-1]
    k = np.log1p(-b[:, None] * x).mean(axis=1)
    likelihood = size * (np.log(-b / k) - k - 1)
    posterior = 1 / np.exp(likelihood - likelihood[:, None]).sum(axis=1)
    mean_b = float((b * posterior).sum() / posterior.sum())
    shape = float(np.log1p(-mean_b * x).mean())
    return (size * shape + 10 * 0.5) / (size + 10)
