"""Relevance without annotators: what users click on lists in random order.

On such lists every document of a query stands at every rank equally often, so that its click rate needs no click model:
position bias is the same for all. Chance still puts some documents higher than others, the more so the fewer sessions
there are, and the rates are noisy; both are corrected here.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float

from clickshift.counts.cells import Cells
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import UNSEEN
from clickshift.errors import ClickshiftWarning

_ROUNDS = 100
_TOLERANCE = 1e-9
_SURE = 1e-3
_MUCH = 0.01
"""The share up to which lists pass as random: that of a log in which a ranker with one order makes each tenth list."""
_HALF_WEIGHT = 20.0
"""Exposure at which a pair's rate has half of the weight that a sure one has in the mean and the spread of rates."""


def relevance_from_random_log(sessions: Sessions) -> Float[np.ndarray, " pair"]:
    """How often each pair is clicked at an average rank of random lists, shrunk; NaN where it was never shown.

    A document that chance put at good ranks is not better for it. With attention t_k to rank k (1 on average over all
    results), a pair that stood n_k times at rank k is clicked about relevance x sum_k n_k t_k times. Where every list
    is as long as any other, t_k is the rank's click rate over the overall one. Lists of different lengths would
    confound the rank with the queries that reach it, so relevance and attention are found together:

        relevance = clicks / sum_k n_k t_k,    t_k = clicks at k / sum over pairs of n_k x relevance

    Then rates are shrunk towards their mean, by how much of their spread is noise (`_shrunk`). Relevance is comparable
    between queries where attention does not depend on the other results, as in PBM. Of users who stop at what satisfies
    them, documents beside good ones get fewer clicks.

    Warns where the lists do not look random: see `randomisation_test`.
    """
    if said := randomisation_test(sessions.rankings, weight=sessions.count).warning():
        warnings.warn(said, ClickshiftWarning, stacklevel=2)
    cells = Cells.of(sessions)
    attention = _attention(cells)
    worth, n_pairs = attention[cells.situation], cells.vocabulary.n_pairs
    impressions, clicks = cells.by_pair()
    exposure, squares = (np.bincount(cells.pair, cells.impressions * worth**power, n_pairs) for power in (1, 2))
    relevance: np.ndarray = np.where(impressions > 0, _shrunk(clicks, exposure, squares, attention.max()), np.nan)
    return relevance


@final
@dataclass(frozen=True)
class RandomisationTest:
    """Whether documents stand where chance would put them."""

    share: float
    """Of the variance of ranks that belongs to the document: about 0 on random lists, 1 where its rank is fixed."""
    p_value: float
    """Of lists whose every order is equally likely: how often they would look at least this ordered."""

    def warning(self) -> str | None:
        """In plain words what is wrong; None where the lists may pass as random."""
        if not (self.p_value < _SURE and self.share > _MUCH):
            return None
        return (
            "the lists must be in random order, drawn anew for each session: here the document decides "
            f"{self.share:.0%} of the variance of its rank (on random lists 0%, p = {self.p_value:.1g}). "
            "Clicks on such lists carry position bias. Keep the randomised sessions alone."
        )


def randomisation_test(rankings: Rankings, *, weight: np.ndarray | None = None) -> RandomisationTest:
    """Compares the mean rank of every pair with the middle of the lists that show it (Friedman's test).

    In a random list of L results the rank from 0 has mean (L - 1) / 2 and variance (L^2 - 1) / 12. Of each pair, z is
    the sum of its deviations over the root of its variance. z^2 is 1 on average and 1 + (n - 1) share where a share
    of the variance belongs to the document. The sum of all z^2 is compared with the scaled chi-squared distribution
    that has its mean and variance; deviations in one list add up to 0, which makes the variance 2 L / (L - 1) per pair.
    Which documents are shown may be anything, only their order counts. `weight` says how often each list was shown.
    """
    from scipy.special import chdtrc

    n_pairs, length = rankings.vocabulary.n_pairs, rankings.length
    count = np.ones(len(rankings)) if weight is None else weight.astype(np.float64)
    impressions, deviation, variance = np.zeros(n_pairs), np.zeros(n_pairs), np.zeros(n_pairs)
    middle, spread = (length - 1) / 2, (length**2 - 1.0) / 12
    for rank in range(rankings.n_ranks):
        pair = rankings.pair[:, rank]
        use = np.flatnonzero((pair != UNSEEN) & (length > 1))
        here, times = pair[use], count[use]
        impressions += np.bincount(here, times, n_pairs)
        deviation += np.bincount(here, times * (rank - middle[use]), n_pairs)
        variance += np.bincount(here, times * spread[use], n_pairs)
    seen = impressions > 0
    pairs, more = int(seen.sum()), float((impressions[seen] - 1).sum())
    if not more:
        return RandomisationTest(0.0, 1.0)
    squares = float((deviation[seen] ** 2 / variance[seen]).sum())
    typical = np.sqrt(12 * variance[seen] / impressions[seen] + 1)  # of the length of the lists that show it
    scale = float((typical / (typical - 1)).mean())
    return RandomisationTest((squares - pairs) / more, float(chdtrc(pairs / scale, squares / scale)))


def _attention(cells: Cells) -> Float[np.ndarray, " rank"]:
    """To each rank, 1 on average over all results: the likeliest factors if clicks were Poisson."""
    impressions, clicks = cells.by_rank()
    attention, n_pairs = clicks / np.maximum(impressions, 1), cells.vocabulary.n_pairs
    if not clicks.any():
        return np.ones(cells.n_ranks)
    _, by_pair = cells.by_pair()
    for _ in range(_ROUNDS):
        before = attention = attention * impressions.sum() / (impressions @ attention)
        exposure = np.bincount(cells.pair, cells.impressions * attention[cells.situation], n_pairs)
        relevance = by_pair / np.where(exposure > 0, exposure, 1)
        expected = np.bincount(cells.situation, cells.impressions * relevance[cells.pair], cells.n_ranks)
        attention = clicks / np.where(expected > 0, expected, 1)
        if np.abs(attention - before).max() < _TOLERANCE:
            break
    scaled: np.ndarray = attention * impressions.sum() / (impressions @ attention)
    return scaled


def _shrunk(clicks: np.ndarray, exposure: np.ndarray, squares: np.ndarray, most: float) -> Float[np.ndarray, " pair"]:
    """The best linear guess of each pair's rate from its clicks (credibility; Buehlmann & Straub 1970).

    Let rates r have mean m and variance v. Of results with attention t, clicks have mean r sum t and, being 0 or 1,
    variance r sum t - r^2 sum t^2. Hence (clicks - m sum t)^2 is on average

        m sum t - (m^2 + v) sum t^2 + v (sum t)^2

    which, summed over pairs, gives v. No rate may exceed 1 / most: v is at most m / most - m^2. Neither the rarest nor
    the commonest pairs decide on m and v.
    """
    known = exposure > 0
    weight = exposure / (exposure + _HALF_WEIGHT)
    per_exposure = np.divide(1.0, exposure, out=np.zeros_like(exposure), where=known)
    rate = clicks * per_exposure
    mean = float(weight @ rate / weight.sum()) if known.any() else 0.0
    excess = (clicks - mean * exposure) ** 2 - mean * exposure + mean**2 * squares
    weight *= per_exposure**2
    seen_often = float(weight @ (exposure**2 - squares))
    variance = float(weight @ excess) / seen_often if seen_often > 0 else 0.0
    variance = min(max(variance, 0.0), max(mean / most - mean**2, 0.0))
    signal = variance * exposure**2
    noise = np.maximum(mean * exposure - (mean**2 + variance) * squares, 0.0)
    trust = np.divide(signal, signal + noise, out=np.zeros_like(signal), where=signal > 0)
    shrunk: np.ndarray = mean + trust * (rate - mean)
    return shrunk
