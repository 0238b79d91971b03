"""Beta priors of probabilities, as pseudo-counts, and their estimation by empirical Bayes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import no_type_check

import numpy as np
from jaxtyping import Float, Int
from numba import njit

from clickshift.core.newton import MAX_PROBABILITY, damped_newton_step, halved_steps, maximise
from clickshift.core.rng import generator
from clickshift.errors import SpecError

_MAX_SAMPLE = 4096
"""Number of probabilities that determine the two parameters of a Beta well enough; more are subsampled."""
_TOLERANCE, _MAX_STEPS = 1e-6, 100


@dataclass(frozen=True)
class Beta:
    """Beta prior of a probability: `yes` pseudo-successes among `total` pseudo-trials, added to the counts.

    The penalty is yes log p + (total - yes) log(1 - p), a Beta(1 + yes, 1 + total - yes) density: with it no estimate
    is 0 or 1.

    Parameters
    ----------
    yes
        Pseudo-successes.
    total
        Pseudo-trials.

    Raises
    ------
    SpecError
        Unless 0 < yes < total ("bad-prior").
    """

    yes: float = 0.1
    total: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.yes < self.total:
            raise SpecError(
                f"a prior needs 0 < yes < total pseudo-counts: got yes={self.yes}, total={self.total}.",
                code="bad-prior",
                value=(self.yes, self.total),
            )

    @property
    def mean(self) -> float:
        """Estimate of a probability without data."""
        return self.yes / self.total

    def mode(self, yes: Float[np.ndarray, " n"], total: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Return the posterior mode of p after `yes` successes in `total` trials."""
        mode: np.ndarray = np.minimum((yes + self.yes) / (total + self.total), MAX_PROBABILITY)
        return mode

    def log_density(self, p: Float[np.ndarray, " n"]) -> float:
        """Return the sum of the penalties."""
        return self.log_density_of(np.log(p), np.log1p(-p))

    def log_density_of(self, log_p: Float[np.ndarray, " n"], log_not_p: Float[np.ndarray, " n"]) -> float:
        """Return the sum of the penalties of probabilities whose logarithms are known, as of their complements."""
        return float((self.yes * log_p + (self.total - self.yes) * log_not_p).sum())

    def slope(self, p: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Return the derivative of the penalty by the logit of p."""
        slope: np.ndarray = self.yes - self.total * p
        return slope

    def information(self, p: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Return minus the second derivative of the penalty by the logit of p."""
        information: np.ndarray = self.total * p * (1 - p)
        return information


def prior_strength_by_moments(
    group: Int[np.ndarray, " n"], trials: Float[np.ndarray, " n"], successes: Float[np.ndarray, " n"]
) -> float:
    """Estimate the strength of a prior within groups by the method of moments (Kleinman 1973).

    The strength is the number of trials at which binomial noise spreads rates as much as the rates of a group differ
    beyond that noise: one number for all groups. Rates have weight n / (n + 20), so that neither the rarest nor the
    most frequent ones dominate. The result is clipped to [0.5, 100].

    Parameters
    ----------
    group
        Group of each rate.
    trials
        Trials of each rate.
    successes
        Successes of each rate.

    Returns
    -------
    float
        Pseudo-trials of the prior.

    References
    ----------
    Kleinman, J. C. (1973). Proportions with extraneous variance: single and independent samples. JASA.
    """
    seen = trials > 0
    n = np.where(seen, trials, 1.0)
    rate, weight = successes / n, np.where(seen, n / (n + 20), 0.0)
    total = np.maximum(np.bincount(group, weight), 1e-12)[group]
    mean = np.clip((np.bincount(group, weight * rate))[group] / total, 1e-4, 1 - 1e-4)
    spread = (weight * (rate - mean) ** 2 / (mean * (1 - mean))).sum()
    share = weight * (1 - weight / total)
    noise, maximum = (share / n).sum(), share.sum()
    excess = (spread - noise) / max(maximum - noise, 1e-12)  # 1 / (1 + strength)
    return float(np.clip(1 / max(excess, 1e-9) - 1, 0.5, 100.0))


def beta_by_likelihood(trials: Float[np.ndarray, " n"], successes: Float[np.ndarray, " n"]) -> Beta:
    """Estimate the prior of exchangeable probabilities by empirical Bayes.

    It is the maximum of the beta-binomial likelihood (`fit_beta_binomial`), with the mean clipped to [1e-4, 1 - 1e-4]
    and the strength to [0.5, 100].

    Parameters
    ----------
    trials
        Trials of each probability.
    successes
        Successes of each probability.

    Returns
    -------
    Beta
        The prior; the default one if fewer than two probabilities have trials.
    """
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
"""Prior of parameters that all sessions share, such as continuation: it only keeps them off 0 and 1."""


def fit_beta_binomial(impressions: Float[np.ndarray, " n"], clicks: Float[np.ndarray, " n"]) -> tuple[float, float]:
    """Fit a beta-binomial distribution to counts by maximum likelihood (empirical Bayes).

    log-likelihood = sum log B(clicks + a, impressions - clicks + b) - log B(a, b)

    Parameters
    ----------
    impressions
        Trials of each rate.
    clicks
        Successes of each rate.

    Returns
    -------
    tuple of float
        The parameters a and b, each between 1e-3 and 1e6.
    """
    seen = impressions > 0
    if not seen.any():
        return _SHARED_PSEUDO_COUNTS[0], _SHARED_PSEUDO_COUNTS[1] - _SHARED_PSEUDO_COUNTS[0]
    both, weight = np.unique(impressions[seen] + 1j * clicks[seen], return_counts=True)
    counts = np.ascontiguousarray(both.imag), np.ascontiguousarray(both.real), weight.astype(np.float64)
    mean = float((counts[2] @ counts[0] + 0.5) / (counts[2] @ counts[1] + 1))
    start = np.log([10 * mean, max(10 * (1 - mean), 1e-11)])  # with some 1e15 clicks the mean is rounded to 1
    best, _ = maximise(
        lambda logs: _BetaBinomialLikelihood(*counts, logs), start, tolerance=_TOLERANCE, max_steps=_MAX_STEPS
    )
    a, b = np.exp(best.logs)
    return float(a), float(b)


class _BetaBinomialLikelihood:
    """Beta-binomial likelihood by ln a and ln b at one point: a `core.newton.LocalModel`."""

    def __init__(self, clicks: np.ndarray, impressions: np.ndarray, weight: np.ndarray, logs: np.ndarray) -> None:
        self.logs, (a, b) = logs, np.exp(logs)
        self.objective, d_a, d_b, d_aa, d_ab, d_bb = _beta_binomial_kernel(clicks, impressions, weight, a, b)
        self._gradient = np.array([a * d_a, b * d_b])
        information = -np.array([[a * a * d_aa + a * d_a, a * b * d_ab], [a * b * d_ab, b * b * d_bb + b * d_b]])
        self._step = damped_newton_step(information, self._gradient)

    def expected_gain(self) -> float:
        """Return the expected gain of the Newton step."""
        return float(self._gradient @ self._step) / 2

    def candidates(self) -> Iterator[np.ndarray]:
        """Yield the Newton step, then half of it, and so on."""
        for step in halved_steps(self._step):
            yield np.clip(self.logs + step, np.log(1e-3), np.log(1e6))


@njit(cache=True, nogil=True)
@no_type_check
def _beta_binomial_kernel(clicks, impressions, weight, a, b):
    """Return the log-likelihood and its first and second derivatives by a and b."""
    value, d_a, d_b, d_aa, d_ab, d_bb = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    lg_a, digamma_a, trigamma_a = _log_gamma_derivatives(a)
    lg_b, digamma_b, trigamma_b = _log_gamma_derivatives(b)
    lg_ab, digamma_ab, trigamma_ab = _log_gamma_derivatives(a + b)
    for i in range(len(clicks)):
        lg_yes, digamma_yes, trigamma_yes = _log_gamma_derivatives(clicks[i] + a)
        lg_no, digamma_no, trigamma_no = _log_gamma_derivatives(impressions[i] - clicks[i] + b)
        lg_total, digamma_total, trigamma_total = _log_gamma_derivatives(impressions[i] + a + b)
        value += weight[i] * (lg_yes + lg_no - lg_total - lg_a - lg_b + lg_ab)
        d_a += weight[i] * (digamma_yes - digamma_total - digamma_a + digamma_ab)
        d_b += weight[i] * (digamma_no - digamma_total - digamma_b + digamma_ab)
        d_aa += weight[i] * (trigamma_yes - trigamma_total - trigamma_a + trigamma_ab)
        d_ab += weight[i] * (trigamma_ab - trigamma_total)
        d_bb += weight[i] * (trigamma_no - trigamma_total - trigamma_b + trigamma_ab)
    return value, d_a, d_b, d_aa, d_ab, d_bb


@njit(cache=True, nogil=True)  # not inlined: six copies take three times as long to compile
@no_type_check
def _log_gamma_derivatives(x):
    """Return log gamma, digamma and trigamma of x: Stirling's series above 8, and the recurrence up to there."""
    product, digamma, trigamma = 1.0, 0.0, 0.0
    while x < 8:
        product *= x
        digamma -= 1 / x
        trigamma += 1 / (x * x)
        x += 1
    log, y = np.log(x), 1 / x
    z = y * y
    value = (x - 0.5) * log - x + 0.9189385332046727 - np.log(product)
    value += y * (1 / 12 - z * (1 / 360 - z * (1 / 1260 - z * (1 / 1680 - z / 1188))))
    digamma += log - y / 2 - z * (1 / 12 - z * (1 / 120 - z * (1 / 252 - z * (1 / 240 - z / 132))))
    trigamma += y + z / 2 + y * z * (1 / 6 - z * (1 / 30 - z * (1 / 42 - z * (1 / 30 - z * 5 / 66))))
    return value, digamma, trigamma
