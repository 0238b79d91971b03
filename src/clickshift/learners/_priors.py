"""Beta: the prior of a probability, as pseudo-counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import no_type_check

import numpy as np
from jaxtyping import Float, Int
from numba import njit

from clickshift.core.newton import FAR, damped_newton_step, maximise
from clickshift.core.rng import generator
from clickshift.errors import SpecError

_MAX_SAMPLE = 4096
"""Probabilities that tell the two numbers of a Beta well, however many there are."""
_TOLERANCE, _MAX_STEPS, _MAX_HALVINGS = 1e-6, 100, 8


@dataclass(frozen=True)
class Beta:
    """`yes` pseudo-successes among `total` pseudo-trials, added to what was counted.

    The penalty is yes log p + (total - yes) log(1 - p), a Beta(1 + yes, 1 + total - yes) density: with it no estimate
    is 0 or 1.
    """

    yes: float = 0.1
    total: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.yes < self.total:
            raise SpecError(f"a prior needs 0 < yes < total pseudo-counts: got yes={self.yes}, total={self.total}.")

    @property
    def mean(self) -> float:
        """What is believed where nothing was seen."""
        return self.yes / self.total

    def mode(self, yes: Float[np.ndarray, " n"], total: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """The most probable p after `yes` successes in `total` trials."""
        mode: np.ndarray = (yes + self.yes) / (total + self.total)
        return mode

    def log_density(self, p: Float[np.ndarray, " n"]) -> float:
        """The penalty, summed."""
        return float((self.yes * np.log(p) + (self.total - self.yes) * np.log1p(-p)).sum())

    def information(self, p: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Minus the penalty's second derivative by the logit of p."""
        information: np.ndarray = self.total * p * (1 - p)
        return information


def prior_strength_by_moments(
    group: Int[np.ndarray, " n"], trials: Float[np.ndarray, " n"], successes: Float[np.ndarray, " n"]
) -> float:
    """Empirical Bayes in closed form: in how many trials chance spreads rates as much as the rates of a group differ
    beyond chance, one number for all groups (method of moments, Kleinman 1973).

    Rates weigh n / (n + 20), so that neither the rarest nor the commonest decide. What cannot be is kept within reason.
    """
    seen = trials > 0
    n = np.where(seen, trials, 1.0)
    rate, weight = successes / n, np.where(seen, n / (n + 20), 0.0)
    total = np.maximum(np.bincount(group, weight), 1e-12)[group]
    mean = np.clip((np.bincount(group, weight * rate))[group] / total, 1e-4, 1 - 1e-4)
    spread = (weight * (rate - mean) ** 2 / (mean * (1 - mean))).sum()
    share = weight * (1 - weight / total)
    by_chance, at_most = (share / n).sum(), share.sum()
    excess = (spread - by_chance) / max(at_most - by_chance, 1e-12)  # 1 / (1 + strength)
    return float(np.clip(1 / max(excess, 1e-9) - 1, 0.5, 100.0))


def beta_by_likelihood(trials: Float[np.ndarray, " n"], successes: Float[np.ndarray, " n"]) -> Beta:
    """Empirical Bayes for probabilities that are all alike: what `fit_beta_binomial` finds, kept within reason."""
    seen = np.flatnonzero(trials)
    if len(seen) < 2:
        return Beta()
    if len(seen) > _MAX_SAMPLE:
        seen = generator(0, "prior").choice(seen, _MAX_SAMPLE, replace=False)
    a, b = fit_beta_binomial(trials[seen], successes[seen])
    mean, strength = float(np.clip(a / (a + b), 1e-4, 1 - 1e-4)), float(np.clip(a + b, 0.5, 100.0))
    return Beta(mean * strength, strength)


_SHARED_PSEUDO_COUNTS = (1.0, 2.0)
SHARED_PRIOR = Beta(*_SHARED_PSEUDO_COUNTS)
"""The prior of parameters that all sessions share, such as examination: it only keeps them off 0 and 1."""


def fit_beta_binomial(impressions: Float[np.ndarray, " n"], clicks: Float[np.ndarray, " n"]) -> tuple[float, float]:
    """Empirical Bayes: the a and b whose beta-binomial makes these counts most likely; kept within 1e-3 and 1e6.

    log-likelihood = sum log B(clicks + a, impressions - clicks + b) - log B(a, b)
    """
    seen = impressions > 0
    if not seen.any():
        return _SHARED_PSEUDO_COUNTS[0], _SHARED_PSEUDO_COUNTS[1] - _SHARED_PSEUDO_COUNTS[0]
    both, weight = np.unique(impressions[seen] + 1j * clicks[seen], return_counts=True)
    counts = np.ascontiguousarray(both.imag), np.ascontiguousarray(both.real), weight.astype(np.float64)
    mean = (counts[2] @ counts[0] + 0.5) / (counts[2] @ counts[1] + 1)
    start = np.log([10 * mean, 10 * (1 - mean)])
    best, _ = maximise(
        lambda logs: _BetaBinomialLikelihood(*counts, logs), start, tolerance=_TOLERANCE, max_steps=_MAX_STEPS
    )
    a, b = np.exp(best.logs)
    return float(a), float(b)


class _BetaBinomialLikelihood:
    """Its likelihood by ln a and ln b, as it looks from one point."""

    def __init__(self, clicks: np.ndarray, impressions: np.ndarray, weight: np.ndarray, logs: np.ndarray) -> None:
        self.logs, (a, b) = logs, np.exp(logs)
        self.objective, by_a, by_b, by_aa, by_ab, by_bb = _beta_binomial_kernel(clicks, impressions, weight, a, b)
        self._slope = np.array([a * by_a, b * by_b])
        self._bend = -np.array([[a * a * by_aa + a * by_a, a * b * by_ab], [a * b * by_ab, b * b * by_bb + b * by_b]])
        self._step = damped_newton_step(self._bend, self._slope)

    def promise(self) -> float:
        return float(self._slope @ self._step) / 2

    def ahead(self) -> Iterator[np.ndarray]:
        step = self._step * min(1.0, FAR / max(float(np.abs(self._step).max()), 1e-300))
        for _ in range(_MAX_HALVINGS):
            yield np.clip(self.logs + step, np.log(1e-3), np.log(1e6))
            step = step / 2


@njit(cache=True, nogil=True)
@no_type_check
def _beta_binomial_kernel(clicks, impressions, weight, a, b):
    """The log-likelihood and its derivatives by a and b, first and second."""
    value, by_a, by_b, by_aa, by_ab, by_bb = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    a_value, a_slope, a_bend = _log_gamma_derivatives(a)
    b_value, b_slope, b_bend = _log_gamma_derivatives(b)
    all_value, all_slope, all_bend = _log_gamma_derivatives(a + b)
    for i in range(len(clicks)):
        yes, yes_slope, yes_bend = _log_gamma_derivatives(clicks[i] + a)
        no, no_slope, no_bend = _log_gamma_derivatives(impressions[i] - clicks[i] + b)
        total, slope, bend = _log_gamma_derivatives(impressions[i] + a + b)
        value += weight[i] * (yes + no - total - a_value - b_value + all_value)
        by_a += weight[i] * (yes_slope - slope - a_slope + all_slope)
        by_b += weight[i] * (no_slope - slope - b_slope + all_slope)
        by_aa += weight[i] * (yes_bend - bend - a_bend + all_bend)
        by_ab += weight[i] * (all_bend - bend)
        by_bb += weight[i] * (no_bend - bend - b_bend + all_bend)
    return value, by_a, by_b, by_aa, by_ab, by_bb


@njit(inline="always")
@no_type_check
def _log_gamma_derivatives(x):
    """With its first two derivatives: Stirling's series above 8, and the recurrence up to there."""
    product, slope, bend = 1.0, 0.0, 0.0
    while x < 8:
        product *= x
        slope -= 1 / x
        bend += 1 / (x * x)
        x += 1
    log, y = np.log(x), 1 / x
    z = y * y
    value = (x - 0.5) * log - x + 0.9189385332046727 - np.log(product)
    value += y * (1 / 12 - z * (1 / 360 - z * (1 / 1260 - z * (1 / 1680 - z / 1188))))
    slope += log - y / 2 - z * (1 / 12 - z * (1 / 120 - z * (1 / 252 - z * (1 / 240 - z / 132))))
    bend += y + z / 2 + y * z * (1 / 6 - z * (1 / 30 - z * (1 / 42 - z * (1 / 30 - z * 5 / 66))))
    return value, slope, bend
