"""Relevance without annotators: click-through rates on randomised lists.

On such lists every document of a query is shown at every rank equally often, so its click-through rate needs no click
model: position bias is the same for all documents. By chance some documents are still shown higher than others, the
more so the fewer sessions there are, and the rates are noisy; both are corrected here.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float

from clickshift.counts.cells import Cells
from clickshift.data.encoded_log import Log
from clickshift.data.sessions import Rankings
from clickshift.data.vocabulary import UNSEEN
from clickshift.errors import ClickshiftWarning

_MAX_ITERATIONS = 100
_TOLERANCE = 1e-9
_SIGNIFICANCE_LEVEL = 1e-3
_MAX_SHARE = 0.01
"""Share of the rank variance up to which lists count as random: that of a log in which every tenth list comes from a
deterministic ranker."""
_HALF_WEIGHT_EXPOSURE = 20.0
"""Exposure at which a pair's rate has half the weight of a precisely known one in the mean and variance of rates."""


def relevance_from_random_log(log: Log) -> Float[np.ndarray, " pair"]:
    """Estimate each pair's click-through rate at an average rank of randomised lists, with shrinkage.

    A document that chance showed at good ranks is not better for it. With examination t_k of rank k (1 on average over
    all results), a pair that was shown n_k times at rank k has about relevance x sum_k n_k t_k clicks. Where all lists
    are equally long, t_k is the rank's click-through rate over the overall one. Lists of different lengths would
    confound the rank with the queries that reach it, so relevance and examination are estimated jointly:

        relevance = clicks / sum_k n_k t_k,    t_k = clicks at k / sum over pairs of n_k x relevance

    Rates are then shrunk towards their mean, by the share of their variance that is noise (`_shrunk_rates`). Relevance
    is comparable between queries where examination does not depend on the other results, as in PBM. If users stop when
    they are satisfied, documents shown with good ones get fewer clicks.

    Parameters
    ----------
    log
        Randomised log, in memory or encoded.

    Returns
    -------
    Float[pair]
        Shrunk rate of each pair; NaN for a pair that was never shown.

    Warns
    -----
    ClickshiftWarning
        "not-randomised" if the lists do not look random: see `randomisation_test`.
    """
    test = randomisation_test(log)
    if message := test.warning():
        warnings.warn(
            ClickshiftWarning(message, code="not-randomised", share=test.share, p_value=test.p_value), stacklevel=2
        )
    cells = Cells.of(log)
    examination = _rank_examination(cells)
    cell_examination, n_pairs = examination[cells.situation], cells.vocabulary.n_pairs
    impressions, clicks = cells.by_pair()
    exposure, squares = (
        np.bincount(cells.pair, cells.impressions * cell_examination**power, n_pairs) for power in (1, 2)
    )
    rates = _shrunk_rates(clicks, exposure, squares, examination.max())
    relevance: np.ndarray = np.where(impressions > 0, rates, np.nan)
    return relevance


@final
@dataclass(frozen=True)
class RandomisationTest:
    """Result of a test that lists are in random order.

    Parameters
    ----------
    share
        Share of the variance of ranks that the document explains: about 0 on random lists, 1 where ranks are fixed.
    p_value
        Probability that lists in uniformly random order look at least this ordered.
    """

    share: float
    p_value: float

    def warning(self) -> str | None:
        """Explain why the lists are not random; None if they may be."""
        if not (self.p_value < _SIGNIFICANCE_LEVEL and self.share > _MAX_SHARE):
            return None
        return (
            "the lists must be in random order, drawn independently for each session: here the document explains "
            f"{self.share:.0%} of the variance of its rank (on random lists 0%, p = {self.p_value:.1g}). "
            "Clicks on such lists have position bias. Keep only the randomised sessions."
        )


def randomisation_test(lists: Rankings | Log, *, weight: np.ndarray | None = None) -> RandomisationTest:
    """Test whether lists are in random order, by the mean rank of every pair (Friedman's test).

    In a random list of L results the rank from 0 has mean (L - 1) / 2 and variance (L^2 - 1) / 12. For each pair, z is
    the sum of its deviations from the mean over the root of its variance. z^2 is 1 on average, and 1 + (n - 1) share
    where the document explains a share of the variance. The sum of all z^2 is compared with the scaled chi-squared
    distribution of the same mean and variance; deviations within a list sum to 0, which makes the variance
    2 L / (L - 1) per pair. Only the order of the shown documents matters, not which documents are shown, nor where a
    list has holes.

    Parameters
    ----------
    lists
        Lists, or a log, in memory or encoded.
    weight
        Number of sessions of each list, for lists without a log; None for one each.

    Returns
    -------
    RandomisationTest
        Explained share of the rank variance, and p-value.

    References
    ----------
    Friedman, M. (1937). The use of ranks to avoid the assumption of normality implicit in the analysis of variance.
    Journal of the American Statistical Association.
    """
    from scipy.special import chdtrc

    n_pairs = lists.vocabulary.n_pairs
    impressions, deviation, variance = np.zeros(n_pairs), np.zeros(n_pairs), np.zeros(n_pairs)
    parts = (
        [(lists, np.ones(len(lists)) if weight is None else weight.astype(np.float64))]
        if isinstance(lists, Rankings)
        else ((part.rankings, part.count.astype(np.float64)) for part in lists.chunks())
    )
    for rankings, count in parts:
        length = rankings.n_shown
        mean_rank, rank_variance = (length - 1) / 2, (length**2 - 1.0) / 12
        place = np.cumsum(rankings.shown, axis=1) - 1 if rankings.has_holes else None
        for rank in range(rankings.n_ranks):
            pair = rankings.pair[:, rank]
            use = np.flatnonzero((pair != UNSEEN) & (length > 1))
            used_pair, times = pair[use], count[use]
            impressions += np.bincount(used_pair, times, n_pairs)
            own = rank if place is None else place[use, rank]
            deviation += np.bincount(used_pair, times * (own - mean_rank[use]), n_pairs)
            variance += np.bincount(used_pair, times * rank_variance[use], n_pairs)
    seen = impressions > 0
    n_seen, repeats = int(seen.sum()), float((impressions[seen] - 1).sum())
    if not repeats:
        return RandomisationTest(0.0, 1.0)
    squares = float((deviation[seen] ** 2 / variance[seen]).sum())
    typical_length = np.sqrt(12 * variance[seen] / impressions[seen] + 1)  # of the lists that show the pair
    scale = float((typical_length / (typical_length - 1)).mean())
    return RandomisationTest((squares - n_seen) / repeats, float(chdtrc(n_seen / scale, squares / scale)))


def _rank_examination(cells: Cells) -> Float[np.ndarray, " rank"]:
    """Return the examination of each rank, 1 on average over all results: maximum likelihood for Poisson clicks."""
    impressions, clicks = cells.by_rank()
    examination, n_pairs = clicks / np.maximum(impressions, 1), cells.vocabulary.n_pairs
    if not clicks.any():
        return np.ones(cells.n_ranks)
    _, pair_clicks = cells.by_pair()
    for _ in range(_MAX_ITERATIONS):
        before = examination = examination * impressions.sum() / (impressions @ examination)
        exposure = np.bincount(cells.pair, cells.impressions * examination[cells.situation], n_pairs)
        relevance = pair_clicks / np.where(exposure > 0, exposure, 1)
        expected = np.bincount(cells.situation, cells.impressions * relevance[cells.pair], cells.n_ranks)
        examination = clicks / np.where(expected > 0, expected, 1)
        if np.abs(examination - before).max() < _TOLERANCE:
            break
    scaled: np.ndarray = examination * impressions.sum() / (impressions @ examination)
    return scaled


def _shrunk_rates(
    clicks: np.ndarray, exposure: np.ndarray, squares: np.ndarray, max_examination: float
) -> Float[np.ndarray, " pair"]:
    """Return the best linear predictor of each pair's rate from its clicks (credibility; Bühlmann & Straub 1970).

    Let rates r have mean m and variance v. For results with examination t, clicks have mean r sum t and, being 0 or 1,
    variance r sum t - r^2 sum t^2. Hence (clicks - m sum t)^2 is on average

        m sum t - (m^2 + v) sum t^2 + v (sum t)^2

    which, summed over pairs, gives v. No rate may exceed 1 / max_examination, so v is at most
    m / max_examination - m^2. The weights limit the influence of the rarest and the most frequent pairs on m and v.
    """
    exposed = exposure > 0
    weight = exposure / (exposure + _HALF_WEIGHT_EXPOSURE)
    per_exposure = np.divide(1.0, exposure, out=np.zeros_like(exposure), where=exposed)
    rate = clicks * per_exposure
    mean = float(weight @ rate / weight.sum()) if exposed.any() else 0.0
    excess = (clicks - mean * exposure) ** 2 - mean * exposure + mean**2 * squares
    weight *= per_exposure**2
    divisor = float(weight @ (exposure**2 - squares))
    variance = float(weight @ excess) / divisor if divisor > 0 else 0.0
    variance = min(max(variance, 0.0), max(mean / max_examination - mean**2, 0.0))
    signal = variance * exposure**2
    noise = np.maximum(mean * exposure - (mean**2 + variance) * squares, 0.0)
    credibility = np.divide(signal, signal + noise, out=np.zeros_like(signal), where=signal > 0)
    shrunk: np.ndarray = mean + credibility * (rate - mean)
    return shrunk
