"""Intervals: a bootstrap over clusters, and finite-sample bounds where they hold."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar, final, no_type_check

import numpy as np
from jaxtyping import Float
from numba import njit

from clickshift.core.parallel import for_each, n_threads
from clickshift.core.random_streams import next_uniform, open_stream
from clickshift.core.rng import as_generator, generator, stream_key
from clickshift.errors import CapabilityError, SpecError
from clickshift.models.perturb import STEP, perturbed_models
from clickshift.ope._accumulators import ClippingPath
from clickshift.ope.bound_estimator import BoundEstimator
from clickshift.ope.grouped_log import GroupedLog
from clickshift.ope.target_policy import Target, TargetProbabilities
from clickshift.ope.weights import CIPSWeights

_Answer = TypeVar("_Answer")
_MEMORY = 1 << 28  # bytes of counts that a thread may hold: several replicates make a pass over the log worth it
_AT_ONCE = 4  # replicates are counted by fours, where there is memory for it


@final
@dataclass(frozen=True)
class Bootstrap:
    """Sessions, or clusters of them, are drawn again; logging frequencies and self-normalising sums are found anew.

    Every cluster is drawn a Poisson(1) number of times, so that equal sessions are drawn together. Replicate b is the
    same whatever estimator or target asks, so differences between those are paired.
    """

    replicates: int = 500
    level: float = 0.95
    seed: int = 0
    name: ClassVar[str] = "bootstrap"

    def __post_init__(self) -> None:
        _check_level(self.level)
        if self.replicates < 20:
            raise SpecError(f"a bootstrap needs at least 20 replicates: got {self.replicates}.")

    def resample(
        self, logged: GroupedLog, ask: Callable[[Float[np.ndarray, "cluster part"]], _Answer], held: int
    ) -> list[_Answer]:
        """What `ask` says of resampled logs, given how often each cluster is drawn in several of them.

        In order, on any number of threads. `held` is how many numbers it needs for each of them.
        """
        from scipy.special import pdtr

        clusters, key = logged.clusters, stream_key(as_generator(self.seed))
        mode = np.floor(clusters.size)
        below, at_mode, once = pdtr(mode, clusters.size), _poisson_prob(mode, clusters.size), pdtr(np.arange(6.0), 1.0)
        memory = logged.resampled_type.itemsize * held + 8 * len(clusters.size)
        size = max(1, min(_MEMORY // memory, -(-self.replicates // n_threads())))
        size -= size % _AT_ONCE if size > _AT_ONCE else 0
        blocks = -(-self.replicates // size)
        answers: dict[int, _Answer] = {}

        def work(block: int) -> None:
            first = block * size
            drawn = np.empty((len(clusters.size), min(size, self.replicates - first)))
            _draw(key, first, clusters.size, mode, below, at_mode, once, drawn)
            answers[block] = ask(drawn)

        for_each(work, blocks)
        return [answers[block] for block in range(blocks)]

    def limits(self, value: float, replicates: Float[np.ndarray, " replicate"]) -> tuple[float, float, float]:
        """Standard error, low and high: by the normal distribution with the replicates' spread.

        Percentiles would count the estimator's bias twice: a list that was logged once is missing in a third of the
        replicates.
        """
        known = replicates[np.isfinite(replicates)]
        if len(known) < 2 or math.isnan(value):
            return math.nan, math.nan, math.nan
        error = float(known.std(ddof=1))
        reach = _normal_quantile((1 + self.level) / 2) * error
        return error, value - reach, value + reach


@final
@dataclass(frozen=True)
class Hoeffding:
    """value ± b sqrt(ln(2 / delta) / (2 n)), where b is the largest reward times the clipping constant.

    The bound that Li et al. (2018) print leaves the clipping constant out, and does not hold.
    """

    level: float = 0.95
    name: ClassVar[str] = "Hoeffding"

    def __post_init__(self) -> None:
        _check_level(self.level)

    def reach(self, sessions: float, largest: float, variance: float) -> float:
        return largest * math.sqrt(math.log(2 / (1 - self.level)) / (2 * sessions)) if sessions else math.inf


@final
@dataclass(frozen=True)
class Bernstein:
    """Empirical Bernstein (Maurer & Pontil 2009, theorem 4), each side with half of delta:

    value ± sqrt(2 variance ln(4 / delta) / n) + 7 b ln(4 / delta) / (3 (n - 1))
    """

    level: float = 0.95
    name: ClassVar[str] = "empirical Bernstein"

    def __post_init__(self) -> None:
        _check_level(self.level)

    def reach(self, sessions: float, largest: float, variance: float) -> float:
        if sessions < 2:
            return math.inf
        log = math.log(4 / (1 - self.level))
        return math.sqrt(2 * variance * log / sessions) + 7 * largest * log / (3 * (sessions - 1))


Interval = Bootstrap | Hoeffding | Bernstein


def require_valid_bounds(
    interval: Hoeffding | Bernstein, prepared: BoundEstimator, clip: Float[np.ndarray, " clip"]
) -> None:
    """Bounds hold for means of independent terms with a known range."""
    problem = None
    if prepared.estimator.self_normalised or prepared.estimator.model is not None:
        problem = f"{prepared.estimator.name} is not a mean of independent terms between 0 and a largest one"
    elif prepared.strata.known is None:
        problem = "the logging policy is estimated from the same log, so that its sessions are not independent terms"
    elif not math.isfinite(clip[-1]):
        problem = "weights without a clipping constant have no known range"
    elif prepared.logged.cluster is not None:
        problem = "sessions of one cluster are not independent"
    if problem:
        raise CapabilityError(
            f"{interval.name} bounds do not hold here: {problem}. Take the bootstrap, or plain weights with a finite "
            "clipping constant under a logging policy that is known or was estimated from another log."
        )


def session_moments(prepared: BoundEstimator, clip: Float[np.ndarray, " clip"]) -> Float[np.ndarray, "clip moment"]:
    """Mean and variance over sessions of reward x clipped weight, under a known logging policy."""
    logged, strata = prepared.logged, prepared.strata
    weight = prepared.weight()
    rows = np.flatnonzero(prepared.used[logged.query[logged.entry_of]])
    theta = logged.theta if strata.by_rank else np.zeros(0)
    earned = np.zeros(0) if strata.by_rank else logged.reward.earned(logged.click[rows])
    out = np.zeros((len(clip), 2))
    entry, click, count = logged.entry_of[rows], logged.click[rows], logged.count[rows]
    _moments(entry, click, count, strata.unit, theta, earned, weight, clip, out)
    n = max(count.sum(), 1.0)
    mean = out[:, 0] / n
    variance = np.maximum(out[:, 1] - n * mean**2, 0) / max(n - 1, 1)
    return np.stack([mean, variance], axis=1)


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise SpecError(f"the level of an interval must be between 0 and 1: got {level}.")


def _normal_quantile(p: float) -> float:
    from scipy.special import ndtri

    return float(ndtri(p))


def _poisson_prob(k: Float[np.ndarray, " n"], mean: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    from scipy.special import gammaln

    prob: np.ndarray = np.exp(k * np.log(mean) - mean - gammaln(k + 1))
    return prob


@njit(cache=True, nogil=True)
@no_type_check
def _draw(key, first, size, mode, below, at_mode, once, drawn):
    """How often each cluster is drawn: Poisson numbers by inversion, searched from the mode.

    `once` has P(draw <= k) for clusters of size 1. Replicate b has the stream first + b, the same in any block.
    """
    parts = drawn.shape[1]
    states = np.empty((parts, 4), np.uint64)
    for p in range(parts):
        open_stream(states[p], key, first + p)
    for c in range(len(size)):
        for p in range(parts):
            u = next_uniform(states[p])
            if size[c] == 1.0 and u <= once[5]:  # nearly always in a log without equal sessions: no jumps
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
def _moments(entry, click, count, unit, theta, earned, weight, limits, out):
    for m in range(len(limits)):
        for i in range(len(entry)):
            value = 0.0
            if len(theta) == 0:
                value = earned[i] * min(weight[unit[entry[i], 0]], limits[m]) if earned[i] > 0.0 else 0.0
            else:
                for r in range(click.shape[1]):
                    if click[i, r]:
                        value += theta[r] * min(weight[unit[entry[i], r]], limits[m])
            out[m, 0] += count[i] * value
            out[m, 1] += count[i] * value * value


RESAMPLED_FIELDS = ("value", "floor", "ceiling")
"""What is followed through resampled logs."""


def add_model_error(
    drawn: Sequence[np.ndarray],
    prepared: BoundEstimator,
    path: ClippingPath,
    aim: TargetProbabilities,
    target: Target,
    clip: np.ndarray,
    seed: int,
) -> list[np.ndarray]:
    """Replicates of what is drawn, spread by the errors of the model that the weights ask."""
    spread = [np.array(values) for values in drawn]
    for number, slopes in enumerate(_slopes(prepared, path, aim, target, clip)):
        normal = generator(seed, "model error", number).standard_normal(spread[0].shape[1])
        for values, slope in zip(spread, slopes, strict=True):
            values += slope[:, None] * normal
    return spread


def has_model_error(prepared: BoundEstimator) -> bool:
    """Whether the weights ask a model that knows the errors of its parameters."""
    weights = prepared.estimator.weights
    return isinstance(weights, CIPSWeights) and next(perturbed_models(weights.model), None) is not None


def _slopes(
    prepared: BoundEstimator, path: ClippingPath, aim: TargetProbabilities, target: Target, clip: np.ndarray
) -> Iterator[list[Float[np.ndarray, " clip"]]]:
    """By how much one error of one number moves what is drawn."""
    weights, logged = prepared.estimator.weights, prepared.logged
    if not isinstance(weights, CIPSWeights):
        return
    for model in perturbed_models(weights.model):
        strata = CIPSWeights(model).strata(logged, aim, "frequencies", target)
        there = replace(prepared, strata=strata).path(logged.total, clip)
        yield [(getattr(there, name) - getattr(path, name))[:, 0] / STEP for name in RESAMPLED_FIELDS]
