"""What a log of rarely shown documents says about examination, and shrinkage where that is little.

Given a document's number of clicks, the situations of its clicks are multinomial with probabilities proportional to
impressions x examination (the conditional likelihood). Its information about examination does not depend on the
attractiveness of each document. The profile likelihood claims more where documents were shown once or twice: a document
that was clicked whenever it was shown counts as certainly attractive there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int

from clickshift.core.newton import (
    covariance,
    damped_newton_step,
    halved_steps,
    maximise,
)
from clickshift.core.rng import generator
from clickshift.counts.cells import Cells
from clickshift.learners._position_kernels import add_products

_MAX_PAIRS = 4096
"""Clicked pairs that determine the information well enough; more are subsampled."""
_PSEUDO_IMPRESSIONS = 2.0
"""Impressions at the mean rate that are added to those of a pair, so that no click rate is 1."""
_MAX_RATE = 0.95
"""Largest click rate of a pair in a situation that is taken as known."""
_DEVIATION = 1.0
"""Standard deviation of the logit of examination around what it is if documents of all ranks are alike, and its largest
one within a rank."""
_VARIANCES = tuple(np.geomspace(1e-4, 10, 26).tolist())
"""Variances among which that of logits within a rank is chosen."""
_MOST = 0.99
"""Largest examination by rank that UBM's situations are shrunk towards."""
_NEAR = 1e-4
"""Difference of logits below which the chord between them is the tangent."""
_TOLERANCE, _MAX_STEPS = 1e-6, 100
"""Expected gain below which steps to the posterior mode end, and their largest number."""
_LEAST_ALIKE = 0.05
"""Smallest examination, and smallest distance from 1, that estimates are shrunk towards."""

Covariance = Float[np.ndarray, "free free"]


def conditional_covariance(
    cells: Cells,
    e: Float[np.ndarray, " situation"],
    free: Int[np.ndarray, " free"],
    viewed: Float[np.ndarray, " situation"] | float = 0.0,
    seen: tuple[Float[np.ndarray, " pair"], Float[np.ndarray, " pair"]] | None = None,
) -> Covariance:
    """Return the covariance of the logits of examination in the conditional likelihood.

    Parameters
    ----------
    cells
        Impressions and clicks by pair and situation.
    e
        Examination by situation.
    free
        Situations whose examination is learned.
    viewed
        Information of observed examination about the logits, by situation.
    seen
        Viewed impressions by pair, and clicks on them, which are not among the counts.
    """
    information = conditional_information(cells, e, seen) * (1 - e) * (1 - e)[:, None]
    return covariance((information + np.diag(np.broadcast_to(viewed, len(e))))[np.ix_(free, free)])


def conditional_information(
    cells: Cells,
    e: Float[np.ndarray, " situation"],
    seen: tuple[Float[np.ndarray, " pair"], Float[np.ndarray, " pair"]] | None = None,
) -> Float[np.ndarray, "situation situation"]:
    """Return the information of the conditional likelihood about the logarithms of examination.

    Viewed impressions are one more situation, whose examination is known to be 1: clicks on them give the others their
    scale. For click rates p that are not small, multinomial information is divided by 1 - p, as in a binomial
    likelihood.

    Parameters
    ----------
    cells
        Impressions and clicks by pair and situation.
    e
        Examination by situation.
    seen
        Viewed impressions by pair, and clicks on them, which are not among the counts.
    """
    impressions, clicks = cells.by_pair()
    if seen is not None:
        impressions, clicks = impressions + seen[0], clicks + seen[1]
    pairs = np.flatnonzero(clicks > 0)
    scale = max(len(pairs) / _MAX_PAIRS, 1.0)
    if scale > 1:
        pairs = np.sort(generator(0, "examination").choice(pairs, _MAX_PAIRS, replace=False))
    first, size = cells.offsets[pairs], cells.offsets[pairs + 1] - cells.offsets[pairs]
    row = np.repeat(np.arange(len(pairs)), size)
    cell = np.arange(len(row)) + np.repeat(first - np.cumsum(size) + size, size)
    n, e = len(e), np.append(e, 1.0)
    exposure, mean = np.zeros((n + 1, len(pairs))), clicks.sum() / max(impressions.sum(), 1e-12)
    exposure[cells.situation[cell], row] = cells.impressions[cell] * e[cells.situation[cell]]
    if seen is not None:
        exposure[n] = seen[0][pairs]
    total = exposure.sum(axis=0)
    rate = (clicks[pairs] + _PSEUDO_IMPRESSIONS * mean) / (impressions[pairs] + _PSEUDO_IMPRESSIONS)
    p = np.minimum(e[:, None] * (rate * impressions[pairs] / total), _MAX_RATE)
    weight = exposure * (scale * clicks[pairs] / total) / (1 - p)
    roots = np.zeros((-(-len(e) // 4) * 4, len(pairs)))
    np.divide(weight, np.sqrt(weight.sum(axis=0)), out=roots[: len(e)])
    products = np.zeros((len(roots), len(roots)))
    add_products(roots, roots, products, symmetric=True)
    shared = np.triu(products) + np.triu(products, 1).T
    information: np.ndarray = (np.diag(weight.sum(axis=1)) - shared[: len(e), : len(e)])[:n, :n]
    return information


def shrink_examination(
    e: Float[np.ndarray, " situation"],
    alike: Float[np.ndarray, " situation"],
    free: Int[np.ndarray, " free"],
    error: Covariance,
) -> Float[np.ndarray, " situation"]:
    """Shrink examination towards what it is if documents of all ranks are alike, where the log cannot tell.

    It is the posterior mean on the logit scale, with a normal prior.

    Parameters
    ----------
    e
        Estimates by situation.
    alike
        Examination if documents are alike: click-through rates relative to that of the reference situation.
    free
        Situations whose examination is learned.
    error
        Covariance of the logits of the estimates.
    """
    # rates of a ranker that hides its best documents may be equal everywhere: no reason to expect certain examination
    start = np.clip(alike, _LEAST_ALIKE, 1 - _LEAST_ALIKE)
    return _posterior_mean(e, start, free, error, _DEVIATION**2)


def shrink_towards_ranks(
    e: Float[np.ndarray, " situation"],
    by_rank: Float[np.ndarray, " situation"],
    free: Int[np.ndarray, " free"],
    error: Covariance,
) -> Float[np.ndarray, " situation"]:
    """Shrink the examination of UBM's situations towards that of their ranks (PBM), where the log cannot tell.

    It is the posterior mode, with a normal prior of logits whose variance makes the estimates most likely, given their
    errors (empirical Bayes; Morris 1983): next to 0 where the last click makes no difference, so that UBM becomes PBM,
    which it contains, and up to that of PBM's own prior where it does: estimates next to 1 would make it far larger.
    The likelihood is normal in the logarithm of examination, which clicks inform about (`_posterior_mode`).

    Parameters
    ----------
    e
        Estimates by situation.
    by_rank
        Examination of the rank of each situation, relative to the same reference.
    free
        Situations whose examination is learned.
    error
        Covariance of the logits of the estimates.
    """
    # the curve is cut at the reference's 1: no reason to expect certain examination
    logit, mean = _logit(e[free]), _logit(np.minimum(by_rank[free], _MOST))
    chord = _slopes_between(logit, mean) / _slope(logit)
    variance = min(learned_variance(logit - mean, error / (chord * chord[:, None])), _DEVIATION**2)
    shrunk = e.copy()
    shrunk[free] = np.exp(_log_expit(_posterior_mode(logit, mean, error, variance)))
    return shrunk


def _posterior_mode(
    logit: Float[np.ndarray, " free"], mean: Float[np.ndarray, " free"], error: Covariance, variance: float
) -> Float[np.ndarray, " free"]:
    """Return the likeliest logits, with a normal prior of them and a normal likelihood of the logarithms.

    Next to 1 the logit of an estimate may be anything, but values far below 1 are not likely for that reason: a normal
    likelihood of the logit would make them so.
    """
    slope = _slope(logit)
    precision = covariance(error * slope * slope[:, None])

    def posterior(point: Float[np.ndarray, " free"]) -> _Posterior:
        return _Posterior(point, _log_expit(point) - _log_expit(logit), precision, (point - mean) / variance, variance)

    # there may be several modes where errors are correlated
    modes = (maximise(posterior, start, tolerance=_TOLERANCE, max_steps=_MAX_STEPS)[0] for start in (logit, mean))
    return max(modes, key=lambda mode: mode.objective).point


@dataclass(frozen=True, eq=False)
class _Posterior:
    """Posterior of logits at one point: a `core.newton.LocalModel` of Gauss-Newton steps.

    Parameters
    ----------
    point
        Logits of examination.
    residual
        Logarithms of examination less their estimates.
    precision
        Inverse covariance of the residuals.
    pull
        Differences from the prior mean, divided by the prior's variance.
    variance
        Variance of the prior.
    """

    point: Float[np.ndarray, " free"]
    residual: Float[np.ndarray, " free"]
    precision: Covariance
    pull: Float[np.ndarray, " free"]
    variance: float

    @cached_property
    def objective(self) -> float:
        """Logarithm of the posterior density."""
        return float(self.residual @ self.precision @ self.residual + self.variance * self.pull @ self.pull) / -2

    @cached_property
    def _gradient(self) -> Float[np.ndarray, " free"]:
        gradient: np.ndarray = -_slope(self.point) * (self.precision @ self.residual) - self.pull
        return gradient

    @cached_property
    def _step(self) -> Float[np.ndarray, " free"]:
        slope = _slope(self.point)
        information = self.precision * slope * slope[:, None] + np.eye(len(slope)) / self.variance
        return damped_newton_step(information, self._gradient)

    def expected_gain(self) -> float:
        """Return the gain that the step is expected to make."""
        return float(self._gradient @ self._step) / 2

    def candidates(self) -> Iterator[Float[np.ndarray, " free"]]:
        """Yield the logits after the step, then after half of it, and so on."""
        for step in halved_steps(self._step):
            yield self.point + step


def _slopes_between(logit: Float[np.ndarray, " free"], mean: Float[np.ndarray, " free"]) -> np.ndarray:
    """Return the slopes of the logarithm of examination, as a function of its logit, of the chords to the means."""
    difference = logit - mean
    near = np.abs(difference) < _NEAR
    chord = (_log_expit(logit) - _log_expit(mean)) / np.where(near, 1.0, difference)
    slopes: np.ndarray = np.where(near, _slope((logit + mean) / 2), chord)
    return slopes


def _log_expit(logit: Float[np.ndarray, " free"]) -> np.ndarray:
    log_probability: np.ndarray = -np.logaddexp(0, -logit)
    return log_probability


def _slope(logit: Float[np.ndarray, " free"]) -> np.ndarray:
    """Return the derivative of `_log_expit`."""
    slope: np.ndarray = np.exp(_log_expit(-logit))
    return slope


def learned_variance(beyond: Float[np.ndarray, " free"], error: Covariance) -> float:
    """Return the variance of deviations around 0 that makes their estimates most likely, given the estimates' errors.

    Parameters
    ----------
    beyond
        Estimated deviations.
    error
        Their covariance.
    """
    variance, axes = np.linalg.eigh(error)
    squares = np.square(beyond @ axes)

    def log_likelihood(within: float) -> float:
        total = np.maximum(variance, 0) + within
        return float(-(np.log(total) + squares / total).sum())

    likeliest: float = max(_VARIANCES, key=log_likelihood)
    return likeliest


def _posterior_mean(
    e: Float[np.ndarray, " situation"],
    start: Float[np.ndarray, " situation"],
    free: Int[np.ndarray, " free"],
    error: Covariance,
    variance: float,
) -> Float[np.ndarray, " situation"]:
    """Return the posterior mean of examination, whose logits vary around those of `start`."""
    mean = _logit(start[free])
    total = error + variance * np.eye(len(free))
    shrunk = e.copy()
    shrunk[free] = 1 / (1 + np.exp(-mean - variance * np.linalg.solve(total, _logit(e[free]) - mean)))
    return shrunk


def _logit(p: Float[np.ndarray, " free"]) -> Float[np.ndarray, " free"]:
    p = np.clip(p, 1e-6, 1 - 1e-6)
    logit: np.ndarray = np.log(p) - np.log1p(-p)
    return logit
