"""What a log of rarely shown documents says about examination, and shrinkage where that is little.

Given a document's number of clicks, the situations of its clicks are multinomial with probabilities proportional to
impressions x examination (the conditional likelihood). Its information about examination does not depend on the
attractiveness of each document. The profile likelihood claims more where documents were shown once or twice: a document
that was clicked whenever it was shown counts as certainly attractive there.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from clickshift.core.newton import covariance, single_threaded_products
from clickshift.core.rng import generator
from clickshift.counts.cells import Cells

_MAX_PAIRS = 4096
"""Clicked pairs that determine the information well enough; more are subsampled."""
_PSEUDO_IMPRESSIONS = 2.0
"""Impressions at the mean rate that are added to those of a pair, so that no click rate is 1."""
_MAX_RATE = 0.95
"""Largest click rate of a pair in a situation that is taken as known."""
_DEVIATION = 1.0
"""Standard deviation of the logit of examination around what it is if documents of all ranks are alike."""
_VARIANCES = tuple(np.geomspace(1e-4, 10, 26).tolist())
"""Variances among which that of logits within a rank is chosen."""
_DISTANCES_MATTER = 10.83
"""Twice the gain in log-likelihood from which on deviations may depend on the distance to the last click: the .999
quantile of chi-squared."""
_LEAST_ALIKE = 0.05
"""Smallest examination, and smallest distance from 1, that estimates are shrunk towards."""

Covariance = Float[np.ndarray, "free free"]


def conditional_covariance(
    cells: Cells,
    e: Float[np.ndarray, " situation"],
    free: Int[np.ndarray, " free"],
    viewed: Float[np.ndarray, " situation"] | float = 0.0,
) -> Covariance:
    """Return the covariance of the logits of examination in the conditional likelihood.

    For click rates p that are not small, multinomial information is divided by 1 - p, as in a binomial likelihood.

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
    """
    impressions, clicks = cells.by_pair()
    pairs = np.flatnonzero(clicks > 0)
    scale = max(len(pairs) / _MAX_PAIRS, 1.0)
    if scale > 1:
        pairs = np.sort(generator(0, "examination").choice(pairs, _MAX_PAIRS, replace=False))
    first, size = cells.offsets[pairs], cells.offsets[pairs + 1] - cells.offsets[pairs]
    row = np.repeat(np.arange(len(pairs)), size)
    cell = np.arange(len(row)) + np.repeat(first - np.cumsum(size) + size, size)
    exposure, mean = np.zeros((len(e), len(pairs))), clicks.sum() / max(impressions.sum(), 1e-12)
    exposure[cells.situation[cell], row] = cells.impressions[cell] * e[cells.situation[cell]]
    total = exposure.sum(axis=0)
    rate = (clicks[pairs] + _PSEUDO_IMPRESSIONS * mean) / (impressions[pairs] + _PSEUDO_IMPRESSIONS)
    p = np.minimum(e[:, None] * (rate * impressions[pairs] / total), _MAX_RATE)
    weight = exposure * (scale * clicks[pairs] / total) / (1 - p)
    products = single_threaded_products(weight, weight / weight.sum(axis=0))
    information = (np.diag(weight.sum(axis=1)) - products) * (1 - e) * (1 - e)[:, None]
    return covariance((information + np.diag(np.broadcast_to(viewed, len(e))))[np.ix_(free, free)])


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
    return _posterior_mean(e, start, free, error, _DEVIATION**2 * np.eye(len(free)))


def shrink_towards_ranks(
    e: Float[np.ndarray, " situation"],
    by_rank: Float[np.ndarray, " situation"],
    distance: Int[np.ndarray, " situation"],
    free: Int[np.ndarray, " free"],
    error: Covariance,
) -> Float[np.ndarray, " situation"]:
    """Shrink the examination of UBM's situations towards that of their ranks (PBM), where the log cannot tell.

    It is the posterior mean on the logit scale, with a normal prior whose variances make the estimates most likely,
    given their errors (empirical Bayes; Morris 1983): next to 0 where the last click makes no difference, so that UBM
    becomes PBM, which it contains, and large where it does. Situations at the same distance from the last click deviate
    alike, if the log tells that they do.

    Parameters
    ----------
    e
        Estimates by situation.
    by_rank
        Examination of the rank of each situation, relative to the same reference.
    distance
        Ranks between each situation and the last click above it; 0 where there is none.
    free
        Situations whose examination is learned.
    error
        Covariance of the logits of the estimates.
    """
    beyond = _logit(e[free]) - _logit(by_rank[free])
    member = (distance[free, None] == np.arange(1, distance.max(initial=0) + 1)).astype(np.float64)
    within, between = learned_variances(beyond, error, member)
    prior = within * np.eye(len(free)) + between * single_threaded_products(member, member)
    return _posterior_mean(e, by_rank, free, error, prior)


def learned_variances(
    beyond: Float[np.ndarray, " free"], error: Covariance, member: Float[np.ndarray, "free group"]
) -> tuple[float, float]:
    """Return the variances of deviations around 0 that make their estimates most likely, given the estimates' errors.

    Each deviation is the sum of one of its own and one of its group; the variance of the latter is 0 unless the
    likelihood is significantly larger with it. Those of a group are integrated out by Woodbury's formula.

    Parameters
    ----------
    beyond
        Estimated deviations.
    error
        Their covariance.
    member
        Whether each belongs to each group, as 0 and 1.

    Returns
    -------
    tuple of float
        Variance of a deviation's own part, and of that of its group.
    """
    variance, axes = np.linalg.eigh(error)
    found, rotated = beyond @ axes, single_threaded_products(axes.T, member.T)
    between = np.array(_VARIANCES)[:, None]
    deviances = np.empty((len(_VARIANCES), 1 + len(_VARIANCES)))  # without groups, then by the variance of groups
    for k, within in enumerate(_VARIANCES):
        total = np.maximum(variance, 0) + within
        deviances[k, 0] = (np.log(total) + found**2 / total).sum()
        information, group_axes = np.linalg.eigh(single_threaded_products(rotated.T, (rotated / total[:, None]).T))
        slope = (found / total) @ rotated @ group_axes
        scale = 1 + between * np.maximum(information, 0)
        deviances[k, 1:] = deviances[k, 0] + (np.log(scale) - between * slope**2 / scale).sum(axis=1)
    alone, grouped = int(deviances[:, 0].argmin()), divmod(int(deviances[:, 1:].argmin()), len(_VARIANCES))
    if deviances[alone, 0] - deviances[:, 1:].min() < _DISTANCES_MATTER:
        return _VARIANCES[alone], 0.0
    return _VARIANCES[grouped[0]], _VARIANCES[grouped[1]]


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
    prior: Covariance,
) -> Float[np.ndarray, " situation"]:
    """Return the posterior mean of examination, whose logits have the covariance `prior` around those of `start`."""
    mean = _logit(start[free])
    shrunk = e.copy()
    moved = single_threaded_products(prior, np.linalg.solve(error + prior, _logit(e[free]) - mean)[None])[:, 0]
    shrunk[free] = 1 / (1 + np.exp(-mean - moved))
    return shrunk


def _logit(p: Float[np.ndarray, " free"]) -> Float[np.ndarray, " free"]:
    p = np.clip(p, 1e-6, 1 - 1e-6)
    logit: np.ndarray = np.log(p) - np.log1p(-p)
    return logit
