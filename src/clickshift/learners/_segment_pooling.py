"""Partial pooling of curves by segment, with a strength that is learned (docs/decisions/0019).

Estimates y of all segments, logarithms of examination or logits of continuation, have the joint covariance V, from a
fit in which attractiveness is shared. A segment's value of situation s is m_s + d, with d ~ N(0, t^2). The likelihood
of the contrasts between segments, in which every m_s cancels (restricted maximum likelihood), gives a posterior of t,
flat a priori: estimates are means over it. Segments that agree get one curve; segments that differ by more than their
errors keep their own.

References
----------
Morris, C. N. (1983). Parametric empirical Bayes inference: theory and applications. JASA.

Gelman, A. (2006). Prior distributions for variance parameters in hierarchical models. Bayesian Analysis.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

_DEVIATIONS = np.geomspace(0.005, 4.0, 18)
"""Standard deviations of segments around the common curve, over which estimates are averaged."""
_LEAST_WEIGHT = 1e-3
"""Weight of a standard deviation, relative to the largest one, below which it is left out."""

Covariance = Float[np.ndarray, "value value"]


class CurvePrior(NamedTuple):
    """Normal prior of the common curve.

    Parameters
    ----------
    mean
        Mean of each situation.
    variance
        Variance of each situation.
    """

    mean: Float[np.ndarray, " situation"]
    variance: float


class Pooled(NamedTuple):
    """Partially pooled values.

    Parameters
    ----------
    mean
        Posterior mean of each value.
    covariance
        Posterior covariance.
    """

    mean: Float[np.ndarray, " value"]
    covariance: Covariance


@dataclass(frozen=True, eq=False)
class SegmentEstimates:
    """Estimates of a parameter by segment and situation.

    Parameters
    ----------
    value
        Estimates, on a scale on which they are about normal.
    covariance
        Their covariance; 0 for a value that is fixed.
    situation
        Situation of each value, from 0; each occurs at least once.
    """

    value: Float[np.ndarray, " value"]
    covariance: Covariance
    situation: Int[np.ndarray, " value"]

    def pooled(self, prior: CurvePrior | None = None) -> Pooled:
        """Return the partially pooled values.

        Parameters
        ----------
        prior
            Prior of the common curve; None for a flat one.
        """
        weights = self.deviation_weights
        used = np.flatnonzero(weights >= _LEAST_WEIGHT * weights.max())
        share, axes = weights[used] / weights[used].sum(), self._axes
        parts = [axes.posterior(float(_DEVIATIONS[k]) ** 2, prior) for k in used]
        mean = np.einsum("k,kv->v", share, np.stack([part[0] for part in parts]))
        cov = (axes.vectors * np.einsum("k,kv->v", share, np.stack([part[1] for part in parts]))) @ axes.vectors.T
        for weight, (own, _, to_mean, spread) in zip(share, parts, strict=True):
            beyond = own - mean
            cov += weight * (to_mean @ spread @ to_mean.T + beyond[:, None] * beyond)
        return Pooled(mean, cov)

    @cached_property
    def _axes(self) -> _Axes:
        """The estimates in the axes of their covariance."""
        return _Axes.of(self)

    @cached_property
    def deviation_weights(self) -> Float[np.ndarray, " deviation"]:
        """Posterior of the standard deviation between segments on `_DEVIATIONS`, flat a priori."""
        contrasts = self.contrasts()
        variance, axes = np.linalg.eigh(contrasts @ self.covariance @ contrasts.T)
        beyond = np.square(axes.T @ (contrasts @ self.value))
        total = np.maximum(variance, 0)[None] + np.square(_DEVIATIONS)[:, None]
        log_likelihood = -(np.log(total) + beyond / total).sum(axis=1) / 2
        # points of a geometric grid: each stands for a range as wide as it is far from 0
        unscaled = np.exp(log_likelihood - log_likelihood.max()) * _DEVIATIONS
        weights: np.ndarray = unscaled / unscaled.sum()
        return weights

    def common(self) -> tuple[Float[np.ndarray, " situation"], Float[np.ndarray, "situation situation"]]:
        """Return the common curve by generalised least squares, and its covariance, at the likeliest deviation."""
        return self._axes.common(float(_DEVIATIONS[np.argmax(self.deviation_weights)]) ** 2, None)

    def contrasts(self) -> Float[np.ndarray, "contrast value"]:
        """Return orthonormal contrasts between the segments of each situation (Helmert contrasts)."""
        rows = []
        for s in range(int(self.situation.max()) + 1):
            values = np.flatnonzero(self.situation == s)
            for k in range(1, len(values)):
                row = np.zeros(len(self.situation))
                row[values[:k]], row[values[k]] = 1 / np.sqrt(k * (k + 1)), -np.sqrt(k / (k + 1))
                rows.append(row)
        return np.array(rows).reshape(len(rows), len(self.situation))


@dataclass(frozen=True, eq=False)
class _Axes:
    """Estimates in the axes of their covariance, in which a variance between segments is added to each eigenvalue.

    Parameters
    ----------
    estimates
        The estimates.
    variance, vectors
        Eigenvalues and eigenvectors of the covariance.
    membership
        Which situation each value has, in the axes.
    value
        The estimates, in the axes.
    """

    estimates: SegmentEstimates
    variance: Float[np.ndarray, " axis"]
    vectors: Float[np.ndarray, "value axis"]
    membership: Float[np.ndarray, "axis situation"]
    value: Float[np.ndarray, " axis"]

    @classmethod
    def of(cls, estimates: SegmentEstimates) -> _Axes:
        """Find the axes."""
        variance, vectors = np.linalg.eigh(estimates.covariance)
        # a situation is a column of zeros and ones: its product with the axes is a sum of their rows
        membership = np.zeros((len(variance), int(estimates.situation.max()) + 1))
        np.add.at(membership.T, estimates.situation, vectors)
        return cls(estimates, np.maximum(variance, 0), vectors, membership, vectors.T @ estimates.value)

    def common(self, between: float, prior: CurvePrior | None) -> tuple[np.ndarray, np.ndarray]:
        """Return the common curve and its covariance, for one variance between segments."""
        weighted = self.membership / (self.variance + between)[:, None]
        information, slope = self.membership.T @ weighted, weighted.T @ self.value
        if prior is not None:
            information = information + np.eye(len(information)) / prior.variance
            slope = slope + prior.mean / prior.variance
        spread = np.linalg.inv(information)
        return spread @ slope, spread

    def posterior(self, between: float, prior: CurvePrior | None) -> tuple[np.ndarray, ...]:
        """Return the posterior for one variance between segments.

        It is the mean of each value, the variance of each axis given the common curve, how much of the common curve
        each value takes, and the covariance of the common curve.
        """
        curve, spread = self.common(between, prior)
        kept = self.variance / (self.variance + between)  # the share of the common curve along each axis
        residual = self.value - self.membership @ curve
        mean = self.estimates.value - self.vectors @ (kept * residual)
        return mean, kept * between, self.vectors @ (kept[:, None] * self.membership), spread
