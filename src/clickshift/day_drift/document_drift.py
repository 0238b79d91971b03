"""Drift of documents: whether the clicks on documents rise or fall over the days of a log, beyond chance.

Sessions that were shown the same list of the same query differ only by chance, however users browse: if nothing drifts,
their days could be permuted. The trend of each document's clicks over the days has an exact mean (zero) and covariance
under these permutations, so that neither a new ranker nor correlated clicks of a session raise a false alarm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float, Int

from clickshift.core.unique_rows import distinct_rows
from clickshift.data.sessions import Sessions
from clickshift.data.vocabulary import UNSEEN
from clickshift.day_drift._results import FALSE_ALARM_RATE

_RANKS = 10
"""Ranks whose clicks are tested."""
_QUERIES = 1000
"""Most frequent queries that are tested."""
_DOCUMENTS = 100
"""Most documents of a tested query: covariances are tables of two documents."""
_MIN_INFORMATION = 5.0
"""Least variance of a document's clicks: below it, a few clicks decide, and the statistic is not chi-square."""
CHANGE_THRESHOLD = 0.25
"""Change of log-odds from the first day to the last, root mean square over documents, above which values estimated
from all days should not be trusted for the next one: a click-through rate of 20 % becomes 24 % or 16 %."""


@final
@dataclass(frozen=True)
class DocumentDrift:
    """Trend of the clicks on documents over the days of a log.

    Parameters
    ----------
    statistic, degrees
        Sum over queries of the squared standardised trends of their documents, and its degrees of freedom: about equal
        if nothing drifts.
    p_value
        Probability of such a statistic if nothing drifts; NaN if no list was shown often enough on several days.
    change
        Root mean square, over documents, of the change of the log-odds of a click from the first day to the last.
    """

    statistic: float
    degrees: int
    p_value: float
    change: float

    @property
    def significant(self) -> bool:
        """Whether documents drift beyond chance."""
        return self.p_value < FALSE_ALARM_RATE

    @property
    def severe(self) -> bool:
        """Whether documents drift beyond chance, and so much that all days together do not tell about the next one."""
        return self.significant and self.change > CHANGE_THRESHOLD


def document_drift(sessions: Sessions, day: Int[np.ndarray, " row"]) -> DocumentDrift:
    """Test whether the clicks on documents have trends over days.

    Parameters
    ----------
    sessions
        The log, in memory.
    day
        Day of each row, from 0, as `days_of` numbers them.

    Returns
    -------
    DocumentDrift
        The test and the size of the drift.

    Examples
    --------
    >>> import clickshift as cs
    >>> log = cs.simulate(cs.builtin_corpus(queries=5), cs.Uniform(), cs.users.PBM(), 2000, rng=1)
    >>> document_drift(log, np.arange(2000) % 7).significant
    False
    """
    from scipy.special import chdtrc

    rankings = sessions.rankings
    pair = np.where(rankings.shown, rankings.pair, UNSEEN)[:, :_RANKS]
    click, count = sessions.click[:, :_RANKS], sessions.count.astype(np.float64)
    group, first = distinct_rows(np.concatenate([rankings.query[:, None], pair], axis=1).astype(np.int64))
    time = day / max(int(day.max()), 1) - 0.5
    trend, covariance = _trends_by_list(group, len(first), time, click, count)
    traffic = np.bincount(rankings.query, count, sessions.vocabulary.n_queries)
    statistic, degrees, excess, information = 0.0, 0, 0.0, 0.0
    lists_of = _rows_by(rankings.query[first], np.argsort(-traffic, kind="stable")[:_QUERIES])
    for lists in lists_of:
        found = _query_trends(pair[first[lists]], trend[lists], covariance[lists])
        if found is None:
            continue
        total, cov = found
        values, vectors = np.linalg.eigh(cov)
        kept = values > 1e-6 * values[-1]
        statistic += float(((vectors[:, kept].T @ total) ** 2 / values[kept]).sum())
        degrees += int(kept.sum())
        variance = np.diag(cov)
        excess += float((total**2 - variance).sum())
        information += float((variance**2).sum())
    if not degrees:
        return DocumentDrift(0.0, 0, float("nan"), float("nan"))
    change = float(np.sqrt(max(excess, 0.0) / information))
    return DocumentDrift(statistic, degrees, float(chdtrc(degrees, statistic)), change)


def _trends_by_list(
    group: Int[np.ndarray, " row"],
    n_groups: int,
    time: Float[np.ndarray, " row"],
    click: np.ndarray,
    count: Float[np.ndarray, " row"],
) -> tuple[Float[np.ndarray, "list rank"], Float[np.ndarray, "list rank rank"]]:
    """Return, for each list, the sum of centred time times click at each rank, and its covariance if days are permuted.

    Lists that were shown once, or on one day, have trend and covariance 0.
    """
    ranks = click.shape[1]
    n = np.bincount(group, count, n_groups)
    centred = time - (np.bincount(group, count * time, n_groups) / n)[group]
    spread = np.bincount(group, count * centred**2, n_groups) / np.maximum(n - 1, 1)
    trend, mean = np.empty((2, n_groups, ranks))
    for k in range(ranks):
        trend[:, k] = np.bincount(group, count * centred * click[:, k], n_groups)
        mean[:, k] = np.bincount(group, count * click[:, k], n_groups) / n
    covariance = np.empty((n_groups, ranks, ranks))
    for k in range(ranks):
        for other in range(k + 1):
            both = np.bincount(group, count * (click[:, k] & click[:, other]), n_groups)
            covariance[:, k, other] = covariance[:, other, k] = spread * (both - n * mean[:, k] * mean[:, other])
    return trend, covariance


def _rows_by(key: Int[np.ndarray, " row"], wanted: Int[np.ndarray, " value"]) -> list[Int[np.ndarray, " _"]]:
    """Return the rows of each wanted value of a key."""
    order = np.argsort(key, kind="stable")
    start, end = (np.searchsorted(key[order], wanted, side=side) for side in ("left", "right"))
    return [order[a:b] for a, b in zip(start, end, strict=True) if b > a]


def _query_trends(
    pair: Int[np.ndarray, "list rank"], trend: Float[np.ndarray, "list rank"], covariance: np.ndarray
) -> tuple[Float[np.ndarray, " document"], Float[np.ndarray, "document document"]] | None:
    """Add the trends of a query's lists by document; None if no document has enough clicks."""
    documents, index = np.unique(pair, return_inverse=True)
    index, size = index.reshape(pair.shape), len(documents)
    if size > _DOCUMENTS:
        return None
    total = np.bincount(index.ravel(), trend.ravel(), size)
    cell = index[:, :, None] * size + index[:, None, :]
    cov = np.bincount(cell.ravel(), covariance.ravel(), size * size).reshape(size, size)
    # the variance of time is 1/12 if sessions are spread evenly over the days
    kept = (documents != UNSEEN) & (12 * np.diag(cov) > _MIN_INFORMATION)
    return (total[kept], cov[np.ix_(kept, kept)]) if kept.any() else None
