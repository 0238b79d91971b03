"""What a click is worth: P(signal | click) and the mean value per click of each document, with shrinkage and intervals.

The value of a click is the probability of a conversion times the mean value of a conversion. Both are shrunk towards
those of the query, which are shrunk towards those of all queries, by empirical Bayes: rates with beta-binomial
priors, mean values by credibility (Bühlmann and Straub 1970). Intervals come from the log alone, without priors: that
of a rate from its counts, that of a mean value from the variation of values within documents, and both together on the
logarithmic scale (Zou, Taleban and Huo 2009).

All of this is conditional on the click: position bias enters P(signal) through the click only, if the rate does not
depend on the rank at which a document was clicked. `rank_dependence` tests that.

References
----------
Bühlmann, H. and Straub, E. (1970). Glaubwürdigkeit für Schadensätze. Mitteilungen der Vereinigung Schweizerischer
Versicherungsmathematiker 70.

Zou, G. Y., Taleban, J. and Huo, C. Y. (2009). Confidence interval estimation for lognormal data with application to
health economics. Computational Statistics & Data Analysis 53.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float, Int

from clickshift.core.rng import generator
from clickshift.counts.conversion_counts import ConversionCounts
from clickshift.learners._priors import fit_beta_binomial
from clickshift.models.intervals import counts_interval, support_of

_MAX_SAMPLE = 20_000
"""Pairs that determine the strength of a prior well enough; more are subsampled."""
_STRENGTHS = (0.5, 1e4)
"""Range of pseudo-clicks at the rate of the query."""
_MAX_CREDIBILITY = 1e9
"""Pseudo-conversions where mean values do not differ."""


@final
@dataclass(frozen=True, eq=False)
class ConversionRates:
    """Rates, mean values and the value of a click, by pair.

    Parameters
    ----------
    clicks, conversions
        Clicks whose value is known, and those with a value above 0.
    rate
        P(value above 0 | click).
    amount
        Mean value of a conversion.
    value
        Mean value of a click: rate times amount.
    low, high
        Confidence interval of the value.
    support
        "log", "prior" (fewer than five conversions), or "not identified" (no click).
    strength
        Pseudo-clicks at the rate of the query.
    mean
        Mean value of a click over all queries, for pairs that the log does not hold.
    """

    clicks: Float[np.ndarray, " pair"]
    conversions: Float[np.ndarray, " pair"]
    rate: Float[np.ndarray, " pair"]
    amount: Float[np.ndarray, " pair"]
    value: Float[np.ndarray, " pair"]
    low: Float[np.ndarray, " pair"]
    high: Float[np.ndarray, " pair"]
    support: np.ndarray
    strength: float
    mean: float


def conversion_rates(counts: ConversionCounts, *, level: float = 0.95) -> ConversionRates:
    """Estimate the value of a click for each pair of a log's vocabulary.

    Parameters
    ----------
    counts
        Counts of one value.
    level
        Confidence level of the intervals.

    Returns
    -------
    ConversionRates
        The estimates.

    Raises
    ------
    DataError
        If the level is not between 0 and 1 ("bad-level").
    """
    query, n_queries = counts.vocabulary.pair_query, counts.vocabulary.n_queries
    clicks, conversions, total, squares = counts.by_pair()
    rate, strength, overall = _shrunk_rates(query, n_queries, clicks, conversions)
    amount, variation, spread, mean_amount = _shrunk_amounts(query, n_queries, conversions, total, squares)
    low, high = _value_interval(clicks, conversions, total, amount, variation, spread, level)
    support = support_of(np.stack([conversions, clicks]))
    return ConversionRates(
        clicks, conversions, rate, amount, rate * amount, low, high, support, strength, overall * mean_amount
    )


def rank_dependence(counts: ConversionCounts) -> tuple[float, float]:
    """Test whether the same documents convert more often, or less, when they were clicked at lower ranks.

    It is the stratified test of a linear trend (Mantel 1963): conversions of a pair are exchangeable over its clicks.

    Parameters
    ----------
    counts
        Counts of one value.

    Returns
    -------
    tuple of float
        Relative change of the rate per rank, and the two-sided p-value; (0, 1) where no document was clicked at
        several ranks.

    References
    ----------
    Mantel, N. (1963). Chi-square tests with one degree of freedom; extensions of the Mantel-Haenszel procedure. JASA.
    """
    return rank_trend(counts.pair, counts.rank, counts.clicks, counts.conversions)


def rank_trend(
    stratum: Int[np.ndarray, " cell"],
    rank: Int[np.ndarray, " cell"],
    clicked: Float[np.ndarray, " cell"],
    followed: Float[np.ndarray, " cell"],
) -> tuple[float, float]:
    """Test for a linear trend of conversions over ranks within strata, as `rank_dependence` does.

    Parameters
    ----------
    stratum
        Number of the stratum of each cell from 0, such as a pair, or a pair in a segment.
    rank
        Rank of each cell.
    clicked, followed
        Clicks and conversions of each cell.
    """
    from scipy.special import ndtr

    rank = rank.astype(np.float64)
    clicks, conversions, ranks, squares, converted = (
        np.bincount(stratum, weight)
        for weight in (clicked, followed, clicked * rank, clicked * rank**2, followed * rank)
    )
    n = np.maximum(clicks, 1e-12)
    within = np.maximum(squares - ranks**2 / n, 0.0)
    rate = conversions / n
    variance = np.where(clicks > 1, within * clicks * rate * (1 - rate) / np.maximum(clicks - 1, 1e-12), 0.0).sum()
    expected_slope = (within * rate).sum()
    if variance <= 0 or expected_slope <= 0:
        return 0.0, 1.0
    trend = float((converted - ranks * rate).sum())
    return trend / float(expected_slope), float(2 * ndtr(-abs(trend) / np.sqrt(variance)))


def _shrunk_rates(
    query: Int[np.ndarray, " pair"],
    n_queries: int,
    clicks: Float[np.ndarray, " pair"],
    conversions: Float[np.ndarray, " pair"],
) -> tuple[Float[np.ndarray, " pair"], float, float]:
    """Return shrunk rates, the strength of the prior of a pair, and the mean over all queries."""
    own_clicks, own = (np.bincount(query, counts, n_queries) for counts in (clicks, conversions))
    a, b = fit_beta_binomial(own_clicks, own)
    mean = ((own + a) / (own_clicks + a + b))[query]
    strength = _strength(clicks, conversions, mean)
    return (conversions + strength * mean) / (clicks + strength), strength, a / (a + b)


def _strength(
    clicks: Float[np.ndarray, " pair"], conversions: Float[np.ndarray, " pair"], mean: Float[np.ndarray, " pair"]
) -> float:
    """Return the pseudo-clicks at the rate of the query that make the conversions most likely (beta-binomial)."""
    from scipy.optimize import minimize_scalar
    from scipy.special import betaln

    rows = np.flatnonzero(clicks > 1)  # a single click says nothing of how much documents differ
    if len(rows) > _MAX_SAMPLE:
        rows = generator(0, "conversions").choice(rows, _MAX_SAMPLE, replace=False)
    n, k, m = clicks[rows], conversions[rows], np.clip(mean[rows], 1e-9, 1 - 1e-9)
    if not len(rows):
        return _STRENGTHS[1]

    def loss(log_strength: float) -> float:
        s = np.exp(log_strength)
        return float((betaln(s * m, s * (1 - m)) - betaln(k + s * m, n - k + s * (1 - m))).sum())

    return float(np.exp(minimize_scalar(loss, bounds=np.log(_STRENGTHS), method="bounded").x))


def _shrunk_amounts(
    query: Int[np.ndarray, " pair"],
    n_queries: int,
    conversions: Float[np.ndarray, " pair"],
    total: Float[np.ndarray, " pair"],
    squares: Float[np.ndarray, " pair"],
) -> tuple[Float[np.ndarray, " pair"], float, float, float]:
    """Return the mean value of a conversion of each pair, shrunk, and how much values vary, relative to their means.

    These are the squared coefficient of variation within a document, and that between the documents of a query; and
    last, the mean over all queries.
    """
    all_conversions, everything = conversions.sum(), total.sum()
    if all_conversions <= 0:
        return np.zeros(len(query)), 0.0, 0.0, 0.0
    overall = everything / all_conversions
    k = np.maximum(conversions, 1e-12)
    mean = np.where(conversions > 0, total / k, 0.0)
    deviations = np.maximum(squares - total * mean, 0.0).sum()
    scale = (np.maximum(conversions - 1, 0) * mean**2).sum()
    variation = float(deviations / scale) if scale > 0 else float(squares.sum() / everything * overall**-1 - 1)
    variation = variation if variation > 1e-12 else 0.0  # rounding
    own_conversions, own_total = (np.bincount(query, values, n_queries) for values in (conversions, total))
    own_mean = np.where(own_conversions > 0, own_total / np.maximum(own_conversions, 1e-12), overall)
    relative = mean / own_mean[query]
    spread = _excess_variance(query, n_queries, conversions, relative, variation)
    between = _excess_variance(
        np.zeros(n_queries, np.int64), 1, own_conversions, own_mean / overall, variation + spread
    )
    own = _credible(own_conversions, own_total, overall, variation + spread, between)
    return _credible(conversions, total, own[query], variation, spread), variation, spread, float(overall)


def _excess_variance(
    group: Int[np.ndarray, " n"], n_groups: int, weight: np.ndarray, value: np.ndarray, noise: float
) -> float:
    """Return the variance of values within groups beyond the noise / weight of each (DerSimonian and Laird 1986)."""
    seen = weight > 0
    group, weight, value = group[seen], weight[seen], value[seen]
    total = np.maximum(np.bincount(group, weight, n_groups), 1e-12)
    mean = np.bincount(group, weight * value, n_groups) / total
    statistic = (weight * (value - mean[group]) ** 2).sum()
    freedom = len(value) - len(np.unique(group))
    scale = weight.sum() - (weight**2 / total[group]).sum()
    return max(float((statistic - freedom * noise) / scale), 0.0) if scale > 1e-9 else 0.0


def _credible(
    conversions: np.ndarray, total: np.ndarray, prior: np.ndarray | float, noise: float, spread: float
) -> Float[np.ndarray, " n"]:
    """Return means shrunk towards a prior mean: noise / spread pseudo-conversions."""
    pseudo = float(np.clip(noise / spread, 1e-9, _MAX_CREDIBILITY)) if spread > 0 else _MAX_CREDIBILITY
    mean: np.ndarray = (total + pseudo * prior) / (conversions + pseudo)
    return mean


def _value_interval(
    clicks: Float[np.ndarray, " pair"],
    conversions: Float[np.ndarray, " pair"],
    total: Float[np.ndarray, " pair"],
    amount: Float[np.ndarray, " pair"],
    variation: float,
    spread: float,
    level: float,
) -> tuple[Float[np.ndarray, " pair"], Float[np.ndarray, " pair"]]:
    """Return intervals of the value of a click: of the rate and of the mean value, joined on the logarithmic scale.

    Where there is no conversion, the mean value is between those of other documents of the query.
    """
    from scipy.special import ndtri

    low, high = counts_interval(np.stack([conversions, clicks]), level)
    converted = conversions > 0
    k = np.maximum(conversions, 1e-12)
    mean = np.where(converted, total / k, amount)
    error = float(ndtri((1 + level) / 2)) * np.sqrt(np.where(converted, variation / k, spread + variation))
    rate = np.where(converted, conversions / np.maximum(clicks, 1e-12), (conversions + 0.5) / (clicks + 1))
    with np.errstate(divide="ignore"):
        down, up = np.log(rate / low), np.log(high / rate)
        lower = np.where(low > 0, rate * mean * np.exp(-np.hypot(down, error)), 0.0)
    return lower, rate * mean * np.exp(np.hypot(up, error))
