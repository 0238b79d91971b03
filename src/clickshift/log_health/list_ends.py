"""Checks of where lists end: lists that were cut at the last click, or that end where the user stopped looking.

In a log of served lists, where a list ends does not depend on its clicks. Lists of the same query that end at a rank
are therefore compared with those that go on below it, by the Mantel-Haenszel statistic over queries and ranks. Lists
that end at the last result that was looked at are clicked there more often than longer ones; those that end with a
result or a screen below it, less often.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from clickshift.counts.cells import Cells
from clickshift.log_health._columns import LogColumns
from clickshift.log_health._tests import normal_tail
from clickshift.log_health.finding import NOTHING, Check, CheckOptions, Evidence

_PRIOR, _MAX_CTR = 5.0, 0.9
"""Impressions that the click-through rate of a rank counts for, in that of a query's results there; its maximum."""


class _ListEnds(NamedTuple):
    """Lists that end above the longest list of their query, and their clicks at the end.

    Parameters
    ----------
    short
        Mask of these lists.
    z
        Mantel-Haenszel statistic of clicks at the end, against longer lists of the query at the same rank.
    excess, variance
        Estimated number of lists that were cut at their last click, and its variance, if all of them end in a click.
    ctr_at_end, ctr_longer
        Click-through rates at the ends, and at the same ranks of longer lists.
    cut_at_clicks
        Whether the number of short lists with a click is nearer to what `excess` lists that were cut at one explain
        than to what the longest lists have.
    """

    short: Bool[np.ndarray, " row"]
    z: float
    excess: float
    variance: float
    ctr_at_end: float
    ctr_longer: float
    cut_at_clicks: bool


def _list_ends(log: LogColumns) -> _ListEnds | None:
    """Compare clicks at the ends of lists with those at the same ranks of longer lists; None without such lists."""
    n_queries, n_ranks = log.log.vocabulary.n_queries, log.log.n_ranks
    known = (log.query >= 0) & (log.first_rank == log.first_rank.min())  # lists with other bases end elsewhere
    longest = np.zeros(n_queries, np.int64)
    np.maximum.at(longest, log.query[known], log.length[known])
    short = known & (log.length < np.where(known, longest[log.query], 0))
    if not short.any():
        return None
    # strata: queries with short lists, by rank
    number = np.cumsum(np.bincount(log.query[short], minlength=n_queries) > 0) - 1
    has_short = np.zeros(n_queries, bool)
    has_short[log.query[short]] = True
    size = int(has_short.sum()) * n_ranks
    cells = log.cells if known.all() else Cells.of(log.log, weight=log.count * known)
    query = cells.vocabulary.pair_query[cells.pair]
    kept = has_short[query]
    key = number[query[kept]] * n_ranks + cells.situation[kept]
    shown = np.bincount(key, cells.impressions[kept], size)
    clicks = np.bincount(key, cells.clicks[kept], size)
    rows = np.flatnonzero(known & has_short[np.where(known, log.query, 0)])
    end = number[log.query[rows]] * n_ranks + log.length[rows] - 1
    n = np.bincount(end, log.count[rows], size)
    at_end = np.bincount(end, log.count[rows] * (log.last_click[rows] == log.length[rows]), size)
    m, longer = shown - n, clicks - at_end
    use = (n > 0) & (m > 0)
    n, at_end, m, longer = n[use], at_end[use], m[use], longer[use]
    if not len(n):
        return None
    z = _mantel_haenszel(at_end, n, longer, m)
    mean = float((n @ (longer / m)) / n.sum())
    # a list that was cut ends in a click with certainty, another one as often as a longer list is clicked there
    rank = np.flatnonzero(use) % n_ranks
    at_rank = np.bincount(rank, longer, n_ranks) / np.maximum(np.bincount(rank, m, n_ranks), 1)
    ctr = np.minimum((longer + _PRIOR * at_rank[rank]) / (m + _PRIOR), _MAX_CTR)
    excess = float(((at_end - n * ctr) / (1 - ctr)).sum())
    others = np.clip(n - at_end, 0, None) / (1 - ctr)  # lists that were not cut
    variance = float((others * ctr * (1 - ctr) * (1 + others / (m + _PRIOR)) / (1 - ctr) ** 2).sum())
    clicked = log.n_clicks > 0
    by_query = [
        np.bincount(number[log.query[part]], log.count[part] * clicked[part], size // n_ranks)
        if counted
        else np.bincount(number[log.query[part]], log.count[part], size // n_ranks)
        for part in (short, _rest(rows, short))
        for counted in (True, False)
    ]
    cut = z > 0 and _cut_at_clicks(*by_query, excess=max(excess, 0.0))
    return _ListEnds(short, z, excess, variance, float(at_end.sum() / n.sum()), mean, cut)


def _cut_at_clicks(
    a: Float[np.ndarray, " query"],
    n: Float[np.ndarray, " query"],
    b: Float[np.ndarray, " query"],
    m: Float[np.ndarray, " query"],
    *,
    excess: float,
) -> bool:
    """Return whether a of n short lists have a click, against b of m, as if `excess` of them had been chosen for it."""
    a, n, b, m = (values[n + m > 0] for values in (a, n, b, m))
    without_click = 1 - b.sum() / max(m.sum(), 1)
    expected = excess * without_click * n / n.sum() * m / (n + m)
    return bool((a - (a + b) * n / (n + m)).sum() > expected.sum() / 2)


def _rest(rows: Int[np.ndarray, " some"], short: Bool[np.ndarray, " row"]) -> Bool[np.ndarray, " row"]:
    """Return the mask of some rows that are not short."""
    rest = np.zeros(len(short), bool)
    rest[rows] = True
    rest &= ~short
    return rest


def _mantel_haenszel(
    a: Float[np.ndarray, " stratum"],
    n: Float[np.ndarray, " stratum"],
    b: Float[np.ndarray, " stratum"],
    m: Float[np.ndarray, " stratum"],
) -> float:
    """Return the Mantel-Haenszel statistic of a of n against b of m, a standard normal variable.

    >>> round(_mantel_haenszel(np.array([8.0]), np.array([10.0]), np.array([2.0]), np.array([10.0])), 3)
    2.615
    """
    total = n + m
    kept = (n > 0) & (m > 0) & (total > 1)
    a, n, b, m, total = (values[kept] for values in (a, n, b, m, total))
    marked = a + b
    variance = float((marked * (total - marked) * n * m / (total**2 * (total - 1))).sum())
    return float((a - marked * n / total).sum() / np.sqrt(variance)) if variance > 0 else 0.0


def truncated_lists(log: LogColumns, options: CheckOptions) -> Evidence:
    """Measure how many lists end at their last click, beyond what clicks at these ranks explain."""
    ends = _list_ends(log)
    if ends is None:
        return NOTHING
    if not ends.cut_at_clicks:
        return Evidence("Short lists do not end in clicks more often.", 0.0, log.total, p_value=1.0)
    text = (
        f"{max(ends.excess, 0) / log.total:.1%} of the lists were cut at their last click: the last result of short "
        f"lists is clicked in {ends.ctr_at_end:.1%} of sessions, the same ranks of longer lists of the query in "
        f"{ends.ctr_longer:.1%}."
    )
    suspects = ends.short & (log.last_click == log.length)
    affected = max(ends.excess, 0.0)
    return Evidence(text, affected, log.total, variance=ends.variance, rows=suspects, p_value=normal_tail(ends.z))


def viewport_lists(log: LogColumns, options: CheckOptions) -> Evidence:
    """Measure whether lists end where users stopped looking instead of where the ranker ended them."""
    ends = _list_ends(log)
    if ends is None:
        return NOTHING
    if ends.cut_at_clicks:
        return Evidence("Short lists have clicks more often: they were cut at clicks.", 0.0, log.total, p_value=1.0)
    affected = log.sessions_of(ends.short)
    text = (
        f"{affected / log.total:.1%} of the lists end above the longest list of their query, and their last result is "
        f"clicked in {ends.ctr_at_end:.1%} of sessions, against {ends.ctr_longer:.1%} at the same ranks of longer "
        "lists: they end where users stopped looking (viewport), not where the ranker ended them."
    )
    return Evidence(text, affected, log.total, rows=ends.short, p_value=2 * normal_tail(abs(ends.z)))


CHECKS = (
    Check(
        "truncated-lists",
        "Lists cut at the last click",
        truncated_lists,
        "Log the whole list that was served. In a list that ends at a click, results below it were shown and not "
        "clicked, which is what examination is learned from.",
        0.001,
        0.01,
        0.1,
    ),
    Check(
        "viewport-lists",
        "Viewport or served",
        viewport_lists,
        "Decide what shown means. Log the list that was served (`clickshift import --shown hits` for UBI), and what "
        "was in the viewport as the signal `viewed`.",
        0.001,
        0.02,
        0.5,
    ),
)
"""Checks of where lists end."""
