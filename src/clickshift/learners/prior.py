"""Beta: the prior of a probability, as pseudo-counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from clickshift.errors import SpecError
from clickshift.seeds import generator

_ENOUGH = 4096
"""Probabilities that tell the two numbers of a Beta well, however many there are."""


@dataclass(frozen=True)
class Beta:
    """`yes` pseudo-successes among `total` pseudo-trials, added to what was counted.

    The penalty is yes log p + (total - yes) log(1 - p), a Beta(1 + yes, 1 + total - yes) density: with it no estimate
    is 0 or 1. Both are one number for all probabilities, or one for each.
    """

    yes: float | Float[np.ndarray, " n"] = 0.1
    total: float | Float[np.ndarray, " n"] = 1.0

    def __post_init__(self) -> None:
        if not np.all((np.asarray(self.yes) > 0) & (np.asarray(self.yes) < self.total)):
            raise SpecError(f"a prior needs 0 < yes < total pseudo-counts: got yes={self.yes}, total={self.total}.")

    @property
    def mean(self) -> float:
        """What is believed where nothing was seen; on average, where that differs."""
        return float(np.mean(np.asarray(self.yes) / self.total))

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


def beta_by_group(
    group: Int[np.ndarray, " n"], trials: Float[np.ndarray, " n"], successes: Float[np.ndarray, " n"]
) -> Beta:
    """Empirical Bayes in closed form: each group has the mean that its rates have, all have the strength that fits the
    spread of all rates (method of moments, Kleinman 1973).

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
    strength = np.full(len(trials), np.clip(1 / max(excess, 1e-9) - 1, 0.5, 100.0))
    return Beta(mean * strength, strength)


def beta_by_likelihood(trials: Float[np.ndarray, " n"], successes: Float[np.ndarray, " n"]) -> Beta:
    """Empirical Bayes for probabilities that are all alike: what `fit_beta` finds, kept within reason."""
    seen = np.flatnonzero(trials)
    if len(seen) < 2:
        return Beta()
    if len(seen) > _ENOUGH:
        seen = generator(0, "prior").choice(seen, _ENOUGH, replace=False)
    a, b = fit_beta(trials[seen], successes[seen])
    mean, strength = float(np.clip(a / (a + b), 1e-4, 1 - 1e-4)), float(np.clip(a + b, 0.5, 100.0))
    return Beta(mean * strength, strength)


_SHARED = (1.0, 2.0)
SHARED = Beta(*_SHARED)
"""The prior of parameters that all sessions share, such as examination: it only keeps them off 0 and 1."""


def fit_beta(impressions: Float[np.ndarray, " n"], clicks: Float[np.ndarray, " n"]) -> tuple[float, float]:
    """Empirical Bayes: the a and b whose beta-binomial makes these counts most likely; kept within 1e-3 and 1e6.

    log-likelihood = sum log B(clicks + a, impressions - clicks + b) - log B(a, b)
    """
    from scipy.optimize import minimize
    from scipy.special import digamma, gammaln

    seen = impressions > 0
    if not seen.any():
        return _SHARED[0], _SHARED[1] - _SHARED[0]
    both, weight = np.unique(impressions[seen] + 1j * clicks[seen], return_counts=True)
    n, c, total = both.real, both.imag, int(weight.sum())

    def loss(logs: np.ndarray) -> tuple[float, np.ndarray]:
        a, b = np.exp(logs)
        value = weight @ (gammaln(c + a) + gammaln(n - c + b) - gammaln(n + a + b))
        value += total * (gammaln(a + b) - gammaln(a) - gammaln(b))
        common = weight @ digamma(n + a + b) - total * digamma(a + b)
        slope_a = a * (weight @ digamma(c + a) - total * digamma(a) - common)
        slope_b = b * (weight @ digamma(n - c + b) - total * digamma(b) - common)
        return -float(value), -np.array([slope_a, slope_b])

    mean = (weight @ c + 0.5) / (weight @ n + 1)
    bounds = [(np.log(1e-3), np.log(1e6))] * 2
    found = minimize(loss, np.log([10 * mean, 10 * (1 - mean)]), jac=True, bounds=bounds, method="L-BFGS-B")
    a, b = np.exp(found.x)
    return float(a), float(b)
