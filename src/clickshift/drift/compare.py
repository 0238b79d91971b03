"""How one day differs from an earlier one, beyond chance: what is shown where, what is new, how the same is clicked.

Whether sessions of one query differ between days is asked given what both days showed together: were the two days one
ranker's, which sessions fell on which day would be chance. What that chance alone gives is exact (hypergeometric), so
that a query with few sessions, or a ranker that varies its lists, raises no alarm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from clickshift.core.unique_rows import distinct_sorted
from clickshift.counts.daily import DayCounts, sort_by_time
from clickshift.data.sessions import union
from clickshift.data.vocabulary import Vocabulary
from clickshift.drift._results import ALARM, BeyondChance, Change, ClickChange, Day, DriftResult, quantile
from clickshift.errors import DataError

_MANY = 30
"""Queries that share the variance, from which on it can be told from them."""


def compare_days(days: Sequence[DayCounts], names: Sequence[str], *, ranks: int = 10) -> DriftResult:
    """Compare days in order of their times, or as given where these are not known; places down to `ranks`.

    Days that were weighted take part with their weights, as if they were fewer sessions: chance is overstated then.
    """
    if len(days) < 2 or len(names) != len(days):
        raise DataError(f"there must be two or more days to compare, each with a name: got {len(days)}.")
    if ranks < 1:
        raise DataError(f"ranks must be 1 or more: got {ranks}.")
    order = sort_by_time([day.last for day in days])
    days, names = [days[i] for i in order], [names[i] for i in order]
    last = len(days) - 1
    named = list(zip(names, days, strict=True))
    steps = [_change(named[d], named[d + 1], ranks) for d in range(last)]
    since = [_change(named[d], named[last], ranks) for d in range(last - 1)] + steps[-1:]
    alone = tuple(_day(day, name) for name, day in named)
    return DriftResult(alone, tuple(steps), tuple(since), order != list(range(len(days))))


def _day(day: DayCounts, name: str) -> Day:
    impressions, clicks = day.cells.by_rank()
    n, z = np.maximum(impressions, 1e-12), -quantile(0.025)
    ctr = clicks / n
    middle, spread = ctr + z**2 / (2 * n), z * np.sqrt(ctr * (1 - ctr) / n + z**2 / (4 * n**2))
    low, high = ((middle + side * spread) / (1 + z**2 / n) for side in (-1, 1))
    ends = np.where(impressions > 0, np.clip([ctr, low, high], 0, 1), np.nan)
    return Day(name, day.first, day.last, day.sessions, float(clicks.sum() / day.sessions), *ends)


class _Both(NamedTuple):
    """What two days showed where, side by side in one vocabulary."""

    words: Vocabulary
    n_ranks: int
    pair: Int[np.ndarray, " cell"]
    rank: Int[np.ndarray, " cell"]
    impressions: Float[np.ndarray, "day cell"]
    clicks: Float[np.ndarray, "day cell"]

    @property
    def query(self) -> Int[np.ndarray, " cell"]:
        query: np.ndarray = self.words.pair_query[self.pair]
        return query

    @classmethod
    def of(cls, days: Sequence[DayCounts]) -> _Both:
        words, ranks = union([day.vocabulary for day in days]), max(day.n_ranks for day in days)
        cells = [day.cells.rolled_up("rank") for day in days]
        keys = [
            words.pairs_of(day.vocabulary)[c.pair].astype(np.int64) * ranks + c.situation
            for day, c in zip(days, cells, strict=True)
        ]
        key, place = distinct_sorted(np.concatenate(keys))
        impressions, clicks = np.zeros((2, len(days), len(key)))
        places = np.split(place, [len(keys[0])])
        for d, c in enumerate(cells):
            impressions[d, places[d]], clicks[d, places[d]] = c.impressions, c.clicks
        return cls(words, ranks, *np.divmod(key, ranks), impressions, clicks)

    def sessions_by_query(self) -> Float[np.ndarray, "day query"]:
        """Those of its best-filled rank: what a vocabulary does not hold is not in the counts."""
        at = self.query * self.n_ranks + self.rank
        size = self.words.n_queries * self.n_ranks
        by_rank = np.stack([np.bincount(at, shown, size).reshape(-1, self.n_ranks) for shown in self.impressions])
        sessions: np.ndarray = by_rank.max(axis=2)
        return sessions


def _change(old: tuple[str, DayCounts], new: tuple[str, DayCounts], ranks: int) -> Change:
    (earlier, before), (later, after) = old, new
    both = _Both.of((before, after))
    sessions = both.sessions_by_query()
    common: np.ndarray = np.all(sessions > 0, axis=0)
    if not common.any():
        nothing = BeyondChance(math.nan, math.nan, math.inf, squared=False)
        return Change(earlier, later, new_queries=1.0, places=nothing, new_documents=nothing, clicks=())
    return Change(
        earlier,
        later,
        new_queries=float(sessions[1][~common].sum() / sessions[1].sum()),
        places=_places(both, sessions, common, ranks),
        new_documents=_new_documents(both, sessions, common),
        clicks=_clicks(both),
    )


def _places(both: _Both, sessions: np.ndarray, common: np.ndarray, ranks: int) -> BeyondChance:
    """Distance and what chance gives, query by query.

    The most that the error can be: one session more or less on a day of n moves a query's distance by at most 1/n,
    whatever its list, so that its variance is at most (1/n + 1/m) / 4 (bounded differences). With weights
    n m / (n + m) that is sum(weights) / 4.
    """
    ranks = min(ranks, both.n_ranks)
    cells = np.flatnonzero(common[both.query] & (both.rank < ranks))
    query, rank = both.query[cells], both.rank[cells]
    group, size = query * ranks + rank, len(common) * ranks
    shown = both.impressions[:, cells]
    depth = np.zeros(len(common), np.int64)
    np.maximum.at(depth, query, rank + 1)
    # lists that end above a rank show nothing there, which is one more thing to be shown
    at_rank = np.stack([np.bincount(group, s, size).reshape(-1, ranks) for s in shown])
    nothing = np.where(np.arange(ranks) < depth[:, None], np.maximum(sessions[:, :, None] - at_rank, 0), 0.0)
    distance, chance = np.zeros((2, len(common)))
    for counts, of in ((shown, query), (nothing.reshape(2, -1), np.repeat(np.arange(len(common)), ranks))):
        seen = np.flatnonzero(counts.sum(axis=0) > 1e-9)
        (a, b), (n, m) = counts[:, seen], sessions[:, of[seen]]
        distance += np.bincount(of[seen], np.abs(a / n - b / m), len(common)) / 2
        expected = _mean_deviation(a + b, n, m) * (1 / n + 1 / m)
        chance += np.bincount(of[seen], expected, len(common)) / 2
    distance, chance = (value[common] / depth[common] for value in (distance, np.minimum(chance, depth)))
    n, m = sessions[:, common]
    weight = n * m / (n + m)
    return _beyond(weight * distance, weight * chance, weight, at_most=math.sqrt(weight.sum()) / 2, squared=True)


def _new_documents(both: _Both, sessions: np.ndarray, common: np.ndarray) -> BeyondChance:
    """A pair stands once in a list, so that its impressions are sessions.

    The most that the error can be: as if all new results of a query came and went together.
    """
    impressions = np.stack([np.bincount(both.pair, s, both.words.n_pairs) for s in both.impressions])
    query = both.words.pair_query
    pairs = np.flatnonzero(common[query] & (impressions.sum(axis=0) > 0))
    (a, b), (n, m) = impressions[:, pairs], sessions[:, query[pairs]]
    missed = _prob_none(a + b, n, m)
    new, chance, total, error = (
        np.bincount(query[pairs], value, len(common))[common]
        for value in (np.where(a == 0, b, 0.0), (a + b) * missed, b, (a + b) * np.sqrt(missed * (1 - missed)))
    )
    return _beyond(new, chance, total, at_most=float(np.sqrt((error**2).sum())))


def _beyond(
    observed: Float[np.ndarray, " query"],
    chance: Float[np.ndarray, " query"],
    total: Float[np.ndarray, " query"],
    *,
    at_most: float,
    squared: bool = False,
) -> BeyondChance:
    """Shares over all queries, and the error of their difference: as queries vary where there are many, or the most
    that it can be."""
    whole = float(total.sum())
    seen, expected = (float(value.sum()) / max(whole, 1e-12) for value in (observed, chance))
    if expected > 1 - 1e-9 or not whole:
        return BeyondChance(math.nan, math.nan, math.inf, squared)
    squares = (observed - chance - (seen - expected) * total) ** 2
    effective = squares.sum() ** 2 / max((squares**2).sum(), 1e-300)
    error = min(math.sqrt(squares.sum()), at_most) if effective >= _MANY else at_most
    return BeyondChance(seen, expected, error / whole, squared)


def _clicks(both: _Both) -> tuple[ClickChange, ...]:
    """Ratios of rates over documents that stood at the rank on both days, and Greenland and Robins' variance."""
    cells = np.flatnonzero((both.impressions > 0).all(axis=0))
    if not len(cells):
        return ()
    rank, (n, m), (a, b) = both.rank[cells], both.impressions[:, cells], both.clicks[:, cells]
    size, total = both.n_ranks, n + m
    earlier, later = (np.bincount(rank, part, size) for part in (a * m / total, b * n / total))
    spread = np.bincount(rank, (a + b) * n * m / total**2 - a * b / total, size)
    shown, matched = np.bincount(rank, m, size), np.bincount(rank, minlength=size) > 0
    z, known = -quantile(ALARM / 2 / matched.sum()), (earlier > 0) & (later > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(known, later / earlier, np.nan)
        error = np.sqrt(np.maximum(spread, 0) / (earlier * later))
        low, high = np.where(known, ratio * np.exp([-z * error, z * error]), [[0.0], [np.inf]])
    return tuple(
        ClickChange(int(r), float(ratio[r]), float(low[r]), float(high[r]), float(shown[r]))
        for r in np.flatnonzero(matched)
    )


def _mean_deviation(
    marked: Float[np.ndarray, " n"], n: Float[np.ndarray, " n"], m: Float[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    """E|X - E X| of the number X of marked sessions among n, if `marked` of n + m were dealt at random.

    As De Moivre's for the binomial: 2 k (m - marked + k) P(X = k) / (n + m), k the first number above the mean.

    >>> mean_deviation(np.array([2.0]), np.array([2.0]), np.array([2.0])).round(6).tolist()  # 0, 1, 2: 1/6, 4/6, 1/6
    [0.333333]
    """
    total = n + m
    k = np.floor(marked * n / total + 1e-12) + 1
    log_prob = _log_choose(marked, k) + _log_choose(total - marked, n - k) - _log_choose(total, n)
    deviation: np.ndarray = 2 * k * np.maximum(m - marked + k, 0) / total * np.exp(log_prob)
    return deviation


def _prob_none(
    marked: Float[np.ndarray, " n"], n: Float[np.ndarray, " n"], m: Float[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    """P(X = 0), as above: none of the marked sessions is among the n.

    >>> prob_none(np.array([1.0, 2.0, 3.0]), np.full(3, 2.0), np.full(3, 2.0)).round(6).tolist()
    [0.5, 0.166667, 0.0]
    """
    prob: np.ndarray = np.exp(_log_choose(m, marked) - _log_choose(n + m, marked))
    return prob


def _log_choose(n: np.ndarray, k: np.ndarray) -> np.ndarray:
    """-inf where there is no way to choose. Weighted counts need not be whole."""
    from scipy.special import gammaln

    inside = (k > -1) & (n - k > -1) & (n > -1)
    k = np.where(inside, k, 0)
    chosen: np.ndarray = np.where(
        inside, gammaln(n + 1) - gammaln(k + 1) - gammaln(np.where(inside, n - k, 0) + 1), -np.inf
    )
    return chosen
