"""Intervention harvesting: position bias by the AllPairs estimator.

Several rankers show a document at several ranks, which is as good as swapping it on purpose. With the weighted clicks c
and the weights w of `_interventions`, examination p and, for each pair of ranks, the mean attractiveness r of the
documents that were shown at both, the estimate maximises

    sum over k != l of  c_kl ln(p_k r_kl) + (w_kl - c_kl) ln(1 - p_k r_kl),   r_kl = r_lk

over p and r. In logarithms this is concave: x and ln(1 - exp(x)) are, for x = ln p_k + ln r_kl < 0. Newton's method
finds the unique maximum; eliminating r leaves a Laplacian over ranks, so that ranks that no document connects cannot be
compared.

References
----------
Agarwal, A. et al. (2019). Estimating position bias without intrusive interventions. WSDM.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from clickshift.counts.cells import Cells
from clickshift.propensity._bootstrap import ExaminationCurve
from clickshift.propensity._interventions import count_interventions

_MAX_ITERATIONS, _TOLERANCE = 200, 1e-10
_MAX_CLICK_RATE = 1 - 1e-4
"""Largest share of clicks in the weight: where everything is clicked, the maximum is at the boundary."""


def harvest(cells: Cells, *, replicates: int, rng: np.random.Generator) -> ExaminationCurve:
    """Estimate examination from counts by pair and rank, relative to the best connected rank.

    The curve is NaN at ranks that no document connects with it.
    """
    interventions = count_interventions(cells, replicates=replicates, rng=rng)
    curves = _fit_all_pairs(interventions.clicks, interventions.weight)
    return ExaminationCurve(curves[0], curves[1:], interventions.n_queries)


def _fit_all_pairs(
    clicks: Float[np.ndarray, "replicate rank rank"], weight: Float[np.ndarray, "replicate rank rank"]
) -> Float[np.ndarray, "replicate rank"]:
    """Maximise the likelihood above for all replicates at once; all must have the same pairs of ranks.

    A rank has examination 0 if none of the documents that were also shown elsewhere was clicked there.
    """
    from scipy.sparse.csgraph import connected_components

    n, ranks, _ = clicks.shape
    has_clicks = clicks[0].sum(axis=1) > 0
    connected = (weight[0] > 0) & has_clicks[:, None] & has_clicks[None, :] & (clicks[0] + clicks[0].T > 0)
    _, component = connected_components(connected, directed=False)
    top = int(np.argmax((weight[0] * connected).sum(axis=1)))
    curves = np.full((n, ranks), np.nan)
    if not connected[top].any():
        curves[:, top] = 1.0
        return curves
    inside = np.flatnonzero(component == component[top])
    chosen = np.ix_(np.arange(n), inside, inside)
    w = np.where(connected[np.ix_(inside, inside)], weight[chosen], 0.0)
    c = np.minimum(np.where(w > 0, clicks[chosen], 0.0), w * _MAX_CLICK_RATE)
    curves[:, inside] = np.exp(_newton(c, w, int(np.flatnonzero(inside == top)[0])))
    never_clicked = ~has_clicks & (weight[0][:, component == component[top]] > 0).any(axis=1)
    curves[:, never_clicked] = 0.0
    return curves


def _newton(c: np.ndarray, w: np.ndarray, top: int) -> np.ndarray:
    """Maximise the likelihood by Newton's method; returns ln p, which is 0 at the rank `top`."""
    n, ranks, _ = c.shape
    edge = w > 0
    log_p = np.zeros((n, ranks))
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = np.maximum(c + c.transpose(0, 2, 1), 1e-300) / np.where(edge, 2 * w, 1.0)
    log_r = np.where(edge, np.minimum(np.log(rate), -1e-9), -1.0)
    free = np.delete(np.arange(ranks), top)
    value = _log_likelihood(c, w, log_p[:, :, None] + log_r)
    for _ in range(_MAX_ITERATIONS):
        x = np.where(edge, log_p[:, :, None] + log_r, -1.0)
        odds = np.exp(x) / -np.expm1(x)
        gradient = c - (w - c) * odds  # 0 where there is no edge
        curvature = np.where(edge, np.maximum((w - c) * odds * (1 + odds), 1e-300), 0.0)
        # r_kl appears in the terms of both (k, l) and (l, k)
        gradient_r, curvature_r = gradient + gradient.transpose(0, 2, 1), curvature + curvature.transpose(0, 2, 1)
        curvature_r = np.where(edge, curvature_r, 1.0)
        gradient_p = (gradient - curvature * gradient_r / curvature_r).sum(axis=2)
        coupling = curvature * curvature.transpose(0, 2, 1) / curvature_r
        laplacian = -coupling
        laplacian[:, np.arange(ranks), np.arange(ranks)] += coupling.sum(axis=2)
        step_p = np.zeros((n, ranks))
        reduced = laplacian[:, free[:, None], free[None, :]]
        step_p[:, free] = np.linalg.solve(reduced, gradient_p[:, free, None])[..., 0]
        change = curvature * step_p[:, :, None]
        step_r = np.where(edge, (gradient_r - change - change.transpose(0, 2, 1)) / curvature_r, 0.0)
        size = np.ones(n)
        while True:  # halve the step until it is inside the domain and does not decrease the likelihood
            new_p, new_r = log_p + size[:, None] * step_p, log_r + size[:, None, None] * step_r
            new_value = _log_likelihood(c, w, new_p[:, :, None] + new_r)
            worse = ~(new_value >= value - 1e-12 * np.abs(value)) & (size > 1e-12)
            if not worse.any():
                break
            size[worse] /= 2
        log_p, log_r, value = new_p, new_r, new_value
        if np.abs(step_p).max() < _TOLERANCE:
            break
    return log_p


def _log_likelihood(c: np.ndarray, w: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Log likelihood at x = ln p_k + ln r_kl, by replicate; -inf where a probability is 1 or more."""
    edge = w > 0
    outside = (edge & (x >= 0)).any(axis=(1, 2))
    x = np.where(edge & (x < 0), x, -1.0)
    total: np.ndarray = np.where(edge, c * x + (w - c) * np.log(-np.expm1(x)), 0.0).sum(axis=(1, 2))
    return np.where(outside, -np.inf, total)
