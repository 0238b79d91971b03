"""Confidence intervals: a bootstrap over clusters of sessions, and finite-sample bounds where they hold.

Where importance weights are made of a fitted click model (CIPS), the standard errors of the model's shared parameters
are propagated into the bootstrap by the delta method: each parameter that all lists share, e.g. the examination of a
rank, is moved by a part of its standard error, and the change of the estimate gives the derivative. Every resampled log
gets a normal draw of each parameter, the same for every estimator and target, so that differences stay paired. Standard
errors of parameters of single documents are ignored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar, final, no_type_check

import numpy as np
from jaxtyping import Float, Num
from numba import njit

from clickshift.core.intervals import check_replicates, normal_quantile
from clickshift.core.parallel import in_threads, n_threads
from clickshift.core.random_streams import next_uniform, open_stream
from clickshift.core.rng import as_generator, generator, stream_key
from clickshift.errors import CapabilityError, SpecError
from clickshift.models.perturb import STEP, perturbed_models
from clickshift.ope._accumulators import ClippingPath
from clickshift.ope.bound_estimator import BoundEstimator
from clickshift.ope.grouped_log import GroupedLog
from clickshift.ope.target_policy import Target, TargetProbabilities
from clickshift.ope.weights import CIPSWeights

_Result = TypeVar("_Result")
_MEMORY = 1 << 28
"""Bytes of counts that a thread may hold: several replicates per pass over the log make the pass worth its cost."""
_BATCH, _MAX_BATCHES = 4, 8
"""Replicates are counted in multiples of four, where memory allows; more at a time only take more memory."""
RESAMPLED_FIELDS = ("value", "floor", "ceiling")
"""Fields of a `ClippingPath` that are computed in every resampled log."""


@final
@dataclass(frozen=True)
class Bootstrap:
    """Bootstrap interval: sessions, or clusters of them, are resampled.

    Logging frequencies and self-normalising sums are estimated again in every replicate. Every cluster is drawn a
    Poisson(1) number of times, so that equal sessions are drawn together. Replicate b is the same for every estimator
    and target policy, so that their differences are paired.

    Parameters
    ----------
    replicates
        Number of resampled logs, at least 20.
    level
        Confidence level.
    seed
        Random seed.

    Raises
    ------
    SpecError
        If there are too few or too many replicates ("too-few-replicates", "too-many-replicates"), or if the level is
        not between 0 and 1 ("bad-level").

    Examples
    --------
    >>> error, low, high = Bootstrap(level=0.95).limits(1.0, np.array([0.9, 1.0, 1.1]))
    >>> round(error, 3), round(low, 3), round(high, 3)
    (0.1, 0.804, 1.196)
    """

    replicates: int = 500
    level: float = 0.95
    seed: int = 0
    name: ClassVar[str] = "bootstrap"

    def __post_init__(self) -> None:
        _check_level(self.level)
        check_replicates(self.replicates, at_least=20)

    def resample(
        self, log: GroupedLog, compute: Callable[[Num[np.ndarray, "cluster part"]], _Result], held: int
    ) -> list[_Result]:
        """Compute something in blocks of resampled logs, on several threads.

        Parameters
        ----------
        log
            The grouped log.
        compute
            Function of how often each cluster is drawn, in several resampled logs at once.
        held
            How many numbers `compute` keeps in memory for each resampled log.

        Returns
        -------
        list
            The result of each block, in order, whatever the number of threads.
        """
        from scipy.special import pdtr

        clusters, key = log.clusters, stream_key(as_generator(self.seed))
        mode = np.floor(clusters.size)
        below, at_mode, once = pdtr(mode, clusters.size), _poisson_prob(mode, clusters.size), pdtr(np.arange(6.0), 1.0)
        memory = log.resampled_type.itemsize * (held + len(clusters.size))
        size = max(1, min(_MEMORY // memory, _BATCH * _MAX_BATCHES, -(-self.replicates // n_threads())))
        size -= size % _BATCH if size > _BATCH else 0

        def work(block: int) -> _Result:
            first = block * size
            drawn = np.empty((len(clusters.size), min(size, self.replicates - first)), log.resampled_type)
            _draw(key, first, clusters.size, mode, below, at_mode, once, drawn)
            return compute(drawn)

        return in_threads(work, -(-self.replicates // size))

    def limits(self, value: float, replicates: Float[np.ndarray, " replicate"]) -> tuple[float, float, float]:
        """Standard error, lower and upper limit, by the normal distribution with the replicates' standard deviation.

        Percentiles would count the estimator's bias twice: a list that was logged once is missing in a third of the
        replicates.
        """
        finite = replicates[np.isfinite(replicates)]
        if len(finite) < 2 or math.isnan(value):
            return math.nan, math.nan, math.nan
        error = float(finite.std(ddof=1))
        half_width = normal_quantile((1 + self.level) / 2) * error
        return error, value - half_width, value + half_width


@final
@dataclass(frozen=True)
class Hoeffding:
    """Hoeffding bound: value ± b sqrt(ln(2 / delta) / (2 n)), where b is the largest reward x the clipping constant.

    The bound that Li et al. (2018) print leaves the clipping constant out of b, and does not hold.

    Parameters
    ----------
    level
        Confidence level, 1 - delta.

    Raises
    ------
    SpecError
        If the level is not between 0 and 1 ("bad-level").

    References
    ----------
    Hoeffding, W. (1963). Probability inequalities for sums of bounded random variables. JASA.

    Examples
    --------
    >>> round(Hoeffding().half_width(sessions=1000, largest=1.0, variance=0.1), 4)
    0.0429
    """

    level: float = 0.95
    name: ClassVar[str] = "Hoeffding"

    def __post_init__(self) -> None:
        _check_level(self.level)

    def half_width(self, sessions: float, largest: float, variance: float) -> float:
        """Half of the width of the interval, for the largest possible term and the variance of the terms."""
        return largest * math.sqrt(math.log(2 / (1 - self.level)) / (2 * sessions)) if sessions else math.inf


@final
@dataclass(frozen=True)
class Bernstein:
    """Empirical Bernstein bound, with half of delta on each side.

    value ± sqrt(2 variance ln(4 / delta) / n) + 7 b ln(4 / delta) / (3 (n - 1)), where b is the largest reward x the
    clipping constant.

    Parameters
    ----------
    level
        Confidence level, 1 - delta.

    Raises
    ------
    SpecError
        If the level is not between 0 and 1 ("bad-level").

    References
    ----------
    Maurer, A. & Pontil, M. (2009). Empirical Bernstein bounds and sample variance penalization. COLT. Theorem 4.

    Examples
    --------
    >>> round(Bernstein().half_width(sessions=1000, largest=1.0, variance=0.01), 4)
    0.0196
    """

    level: float = 0.95
    name: ClassVar[str] = "empirical Bernstein"

    def __post_init__(self) -> None:
        _check_level(self.level)

    def half_width(self, sessions: float, largest: float, variance: float) -> float:
        """Half of the width of the interval, for the largest possible term and the variance of the terms."""
        if sessions < 2:
            return math.inf
        log = math.log(4 / (1 - self.level))
        return math.sqrt(2 * variance * log / sessions) + 7 * largest * log / (3 * (sessions - 1))


Interval = Bootstrap | Hoeffding | Bernstein
"""A method for confidence intervals."""


def require_valid_bounds(
    interval: Hoeffding | Bernstein, bound: BoundEstimator, clip: Float[np.ndarray, " clip"]
) -> None:
    """Check that a finite-sample bound holds: it needs a mean of independent terms with a known range.

    Raises
    ------
    CapabilityError
        If it does not hold ("invalid-bounds").
    """
    problem, reason = None, ""
    if bound.estimator.self_normalised or bound.estimator.model is not None:
        problem = f"{bound.estimator.name} is not a mean of independent terms between 0 and a largest one"
        reason = "not-a-mean"
    elif bound.units.signed:
        problem, reason = f"weights of {bound.estimator.name} may be negative", "not-a-mean"
    elif bound.units.logging is None:
        problem = "the logging policy is estimated from the same log, so that its sessions are not independent terms"
        reason = "estimated-logging-policy"
    elif not math.isfinite(clip[-1]):
        problem, reason = "weights without a clipping constant have no known range", "no-clipping"
    elif bound.log.cluster is not None:
        problem, reason = "sessions of one cluster are not independent", "clusters"
    if problem:
        raise CapabilityError(
            f"{interval.name} bounds do not hold here: {problem}. Choose the bootstrap, or plain weights with a finite "
            "clipping constant under a logging policy that is known or was estimated from another log.",
            code="invalid-bounds",
            interval=interval.name,
            reason=reason,
        )


def session_moments(bound: BoundEstimator, clip: Float[np.ndarray, " clip"]) -> Float[np.ndarray, "clip moment"]:
    """Mean and variance over sessions of reward x clipped weight, under a known logging policy."""
    log, units, clip = bound.log, bound.units, bound.limits(clip)
    weight = bound.known_weights()
    rows = np.flatnonzero(bound.used[log.query[log.entry_of]])
    theta = log.theta if units.by_rank else np.zeros(0)
    earned = np.zeros(0) if units.by_rank else log.reward.earned(log.click[rows])
    sums = np.zeros((len(clip), 2))
    entry, click, count = log.entry_of[rows], log.click[rows], log.count[rows]
    _sum_moments(entry, click, count, units.unit, theta, earned, weight, clip, sums)
    n = max(count.sum(), 1.0)
    mean = sums[:, 0] / n
    variance = np.maximum(sums[:, 1] - n * mean**2, 0) / max(n - 1, 1)
    return np.stack([mean, variance], axis=1)


def _check_level(level: float) -> None:
    """Check a confidence level."""
    if not 0 < level < 1:
        raise SpecError(
            f"the level of an interval must be between 0 and 1: got {level}.", code="bad-level", value=level
        )


def _poisson_prob(k: Float[np.ndarray, " n"], mean: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Probability of k under the Poisson distribution."""
    from scipy.special import gammaln

    prob: np.ndarray = np.exp(k * np.log(mean) - mean - gammaln(k + 1))
    return prob


@njit(cache=True, nogil=True)
@no_type_check
def _draw(key, first, size, mode, below, at_mode, once, drawn):
    """Draw how often each cluster occurs: Poisson numbers by inversion, searched from the mode.

    `once` holds P(draw <= k) for clusters of size 1. Replicate b uses the random stream first + b, the same in any
    block.
    """
    parts = drawn.shape[1]
    states = np.empty((parts, 4), np.uint64)
    for p in range(parts):
        open_stream(states[p], key, first + p)
    for c in range(len(size)):
        for p in range(parts):
            u = next_uniform(states[p])
            if size[c] == 1.0 and u <= once[5]:  # nearly always, in a log without equal sessions: no branches
                drawn[c, p] = (u > once[0]) + (u > once[1]) + (u > once[2]) + (u > once[3]) + (u > once[4])
                continue
            k, upper, prob = mode[c], below[c], at_mode[c]  # upper = P(draw <= k)
            if u <= upper:
                while k > 0.0 and u <= upper - prob:
                    upper -= prob
                    prob *= k / size[c]
                    k -= 1.0
            else:
                while u > upper and prob > 0.0:
                    k += 1.0
                    prob *= size[c] / k
                    upper += prob
            drawn[c, p] = k


@njit(cache=True, nogil=True)
@no_type_check
def _sum_moments(entry, click, count, unit, theta, earned, weight, limits, out):
    """Sum reward x clipped weight of each session, and its square; an empty `theta` means that units are lists."""
    for m in range(len(limits)):
        for i in range(len(entry)):
            value = 0.0
            if len(theta) == 0:
                value = earned[i] * min(weight[unit[entry[i], 0]], limits[m]) if earned[i] > 0.0 else 0.0
            else:
                for r in range(click.shape[1]):
                    if click[i, r]:
                        value += click[i, r] * theta[r] * min(weight[unit[entry[i], r]], limits[m])
            out[m, 0] += count[i] * value
            out[m, 1] += count[i] * value * value


def add_model_error(
    resampled: Sequence[np.ndarray],
    bound: BoundEstimator,
    path: ClippingPath,
    probabilities: TargetProbabilities,
    target: Target,
    clip: np.ndarray,
    seed: int,
) -> list[np.ndarray]:
    """Add the sampling error of the click model that the weights use to the replicates of `RESAMPLED_FIELDS`."""
    replicates = [np.array(values) for values in resampled]
    for number, derivatives in enumerate(_model_derivatives(bound, path, probabilities, target, clip)):
        normal = generator(seed, "model error", number).standard_normal(replicates[0].shape[1])
        for values, derivative in zip(replicates, derivatives, strict=True):
            values += derivative[:, None] * normal
    return replicates


def has_model_error(bound: BoundEstimator) -> bool:
    """Whether the weights use a click model with standard errors of its parameters."""
    weights = bound.estimator.weights
    return isinstance(weights, CIPSWeights) and next(perturbed_models(weights.model), None) is not None


def _model_derivatives(
    bound: BoundEstimator, path: ClippingPath, probabilities: TargetProbabilities, target: Target, clip: np.ndarray
) -> Iterator[list[Float[np.ndarray, " clip"]]]:
    """Change of each of `RESAMPLED_FIELDS` per standard error of one parameter of the click model."""
    weights, log = bound.estimator.weights, bound.log
    if not isinstance(weights, CIPSWeights):
        return
    for model in perturbed_models(weights.model):
        units = replace(weights, model=model).units(log, probabilities, "frequencies", target)
        moved = replace(bound, units=units).path(log.total, clip)
        yield [(getattr(moved, name) - getattr(path, name))[:, 0] / STEP for name in RESAMPLED_FIELDS]
