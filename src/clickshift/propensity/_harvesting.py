"""Intervention harvesting: the AllPairs estimator of Agarwal et al. (WSDM 2019).

Several rankers show a document at several ranks, which is as good as swapping it on purpose. With the weighted clicks c
and the weights w of `count_interventions`, examination p and, for each pair of ranks, the mean attractiveness r of the
documents that were seen at both,

    max over p, r of   sum over k != l of  c_kl ln(p_k r_kl) + (w_kl - c_kl) ln(1 - p_k r_kl),   r_kl = r_lk

In logarithms this is concave: x + ln(1 - exp(x)) are, for x = ln p_k + ln r_kl < 0. Newton's method finds the one
maximum; eliminating r leaves a Laplacian over ranks, so that ranks that no document joins cannot be compared.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from clickshift.counts.cells import Cells
from clickshift.propensity._bootstrap import ExaminationCurve
from clickshift.propensity._interventions import count_interventions

_STEPS, _STILL = 200, 1e-10
_MOST_CLICKS = 1 - 1e-4  # of the weight: where everything is clicked, the maximum is at the edge


def harvest(cells: Cells, *, replicates: int, rng: np.random.Generator) -> ExaminationCurve:
    """Examination from counts by pair and rank, relative to the best connected rank; NaN where nothing connects."""
    found = count_interventions(cells, replicates=replicates, rng=rng)
    curves = _fit_all_pairs(found.clicks, found.weight)
    return ExaminationCurve(curves[0], curves[1:], found.n_queries)


def _fit_all_pairs(
    clicks: Float[np.ndarray, "replicate rank rank"], weight: Float[np.ndarray, "replicate rank rank"]
) -> Float[np.ndarray, "replicate rank"]:
    """Maximise the likelihood above, for all replicates at once; they must have the same pairs of ranks.

    A rank of which no document that was seen elsewhere was clicked has examination 0.
    """
    from scipy.sparse.csgraph import connected_components

    n, ranks, _ = clicks.shape
    some = clicks[0].sum(axis=1) > 0
    joined = (weight[0] > 0) & some[:, None] & some[None, :] & (clicks[0] + clicks[0].T > 0)
    _, component = connected_components(joined, directed=False)
    top = int(np.argmax((weight[0] * joined).sum(axis=1)))
    curves = np.full((n, ranks), np.nan)
    if not joined[top].any():
        curves[:, top] = 1.0
        return curves
    inside = np.flatnonzero(component == component[top])
    chosen = np.ix_(np.arange(n), inside, inside)
    w = np.where(joined[np.ix_(inside, inside)], weight[chosen], 0.0)
    c = np.minimum(np.where(w > 0, clicks[chosen], 0.0), w * _MOST_CLICKS)
    curves[:, inside] = np.exp(_newton(c, w, int(np.flatnonzero(inside == top)[0])))
    never = ~some & (weight[0][:, component == component[top]] > 0).any(axis=1)
    curves[:, never] = 0.0
    return curves


def _newton(c: np.ndarray, w: np.ndarray, top: int) -> np.ndarray:
    """ln p, 0 at `top`."""
    n, ranks, _ = c.shape
    edge = w > 0
    log_p = np.zeros((n, ranks))
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = np.maximum(c + c.transpose(0, 2, 1), 1e-300) / np.where(edge, 2 * w, 1.0)
    log_r = np.where(edge, np.minimum(np.log(rate), -1e-9), -1.0)
    free = np.delete(np.arange(ranks), top)
    value = _value(c, w, log_p[:, :, None] + log_r)
    for _ in range(_STEPS):
        x = np.where(edge, log_p[:, :, None] + log_r, -1.0)
        odds = np.exp(x) / -np.expm1(x)
        slope = c - (w - c) * odds  # 0 where there is no edge
        curve = np.where(edge, np.maximum((w - c) * odds * (1 + odds), 1e-300), 0.0)
        both_slope, both = slope + slope.transpose(0, 2, 1), curve + curve.transpose(0, 2, 1)
        both = np.where(edge, both, 1.0)
        pull = (slope - curve * both_slope / both).sum(axis=2)
        tie = curve * curve.transpose(0, 2, 1) / both
        laplacian = -tie
        laplacian[:, np.arange(ranks), np.arange(ranks)] += tie.sum(axis=2)
        step_p = np.zeros((n, ranks))
        inner = laplacian[:, free[:, None], free[None, :]]
        step_p[:, free] = np.linalg.solve(inner, pull[:, free, None])[..., 0]
        against = curve * step_p[:, :, None]
        step_r = np.where(edge, (both_slope - against - against.transpose(0, 2, 1)) / both, 0.0)
        size = np.ones(n)
        while True:  # back until it is inside, and no worse
            new_p, new_r = log_p + size[:, None] * step_p, log_r + size[:, None, None] * step_r
            new_value = _value(c, w, new_p[:, :, None] + new_r)
            worse = ~(new_value >= value - 1e-12 * np.abs(value)) & (size > 1e-12)
            if not worse.any():
                break
            size[worse] /= 2
        log_p, log_r, value = new_p, new_r, new_value
        if np.abs(step_p).max() < _STILL:
            break
    return log_p


def _value(c: np.ndarray, w: np.ndarray, x: np.ndarray) -> np.ndarray:
    edge = w > 0
    outside = (edge & (x >= 0)).any(axis=(1, 2))
    x = np.where(edge & (x < 0), x, -1.0)
    total: np.ndarray = np.where(edge, c * x + (w - c) * np.log(-np.expm1(x)), 0.0).sum(axis=(1, 2))
    return np.where(outside, -np.inf, total)
