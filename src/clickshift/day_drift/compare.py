"""Comparison of days, corrected for chance: which documents are shown where, which are new, and how they are clicked.

Whether the sessions of a query differ between two days is tested conditionally on what both days showed together: if
one ranker served both days, the assignment of sessions to days is random. The expectation under that null hypothesis is
exact (hypergeometric, also for weighted counts that are not integers), so that neither a query with few sessions nor a
stochastic ranker raises a false alarm.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from clickshift.core.intervals import normal_quantile, wilson_interval
from clickshift.core.progress import Progress, silent
from clickshift.core.unique_rows import distinct_sorted
from clickshift.counts.daily import DayCounts
from clickshift.counts.open_log import LogLike, open_log_or_counts
from clickshift.data.days import days_of, sort_by_time
from clickshift.data.encoded_log import Log
from clickshift.data.sessions import union
from clickshift.data.vocabulary import Vocabulary
from clickshift.day_drift._report import DriftResult
from clickshift.day_drift._results import (
    FALSE_ALARM_RATE,
    ChanceCorrectedChange,
    Change,
    ClickChange,
    Day,
)
from clickshift.errors import ClickshiftWarning, DataError
from clickshift.io.read_report import OnBadLine

_MIN_EFFECTIVE_QUERIES = 30
"""Effective number of queries from which on the variance is estimated from the variation between queries."""


DaysLike = LogLike | DayCounts | Sequence[LogLike | DayCounts]
"""Days to compare: logs or counts of several days, or one log with several days."""


def drift(
    days: DaysLike,
    *,
    ranks: int = 10,
    columns: Mapping[str, str] | None = None,
    on_bad_line: OnBadLine = "error",
    progress: Progress = silent,
) -> DriftResult:
    """Compare days: click rates by rank, new documents, changes of the ranker, and whether an old model still holds.

    Every change is compared with what chance alone would give for two days of the same ranker, also of one that varies
    its lists. Days are compared in order of time, or as given if times are not known.

    Parameters
    ----------
    days
        Logs or counts of two or more days, each as :func:`open_log` opens it, a folder of counts or `DayCounts`; or one
        log with several days in its 'time' or 'day' column.
    ranks
        Number of ranks whose documents are compared.
    columns
        The logs' names of our columns, e.g. ``{"docs": "results"}``.
    on_bad_line
        "error" stops at the first bad session; "skip" leaves bad sessions out and warns.
    progress
        Called after each day.

    Returns
    -------
    DriftResult
        Summaries of the days and changes between them.

    Raises
    ------
    DataError
        "too-few-days" for fewer than two days, "missing-time" for a single log without times, "bad-days" for one whose
        times are not days, "mixed-times" for days of which some have dates and others numbers, "bad-ranks" if `ranks`
        is below 1.

    Examples
    --------
    >>> import clickshift as cs
    >>> corpus = cs.builtin_corpus(queries=5)
    >>> monday, tuesday = (cs.simulate(corpus, cs.Uniform(), cs.users.PBM(), 1000, rng=day) for day in range(2))
    >>> cs.drift([monday, tuesday]).trusted
    True
    """
    result = compare_days(*_read_days(days, columns, on_bad_line, progress), ranks=ranks)
    if result.reordered:
        names = ", ".join(day.name for day in result.days)
        message = f"days are compared in chronological order: {names}."
        warnings.warn(ClickshiftWarning(message, code="reordered-days"), stacklevel=2)
    return result


def compare_days(days: Sequence[DayCounts], names: Sequence[str], *, ranks: int = 10) -> DriftResult:
    """Compare days of a log, each with the day before and with the last one.

    Days are compared in order of time, or as given if times are not known. Weighted days enter with their weights, as
    if they had fewer sessions: chance is then overstated.

    Parameters
    ----------
    days
        Counts of two or more days.
    names
        Name of each day.
    ranks
        Number of ranks whose documents are compared.

    Returns
    -------
    DriftResult
        Summaries of the days and changes between them.

    Raises
    ------
    DataError
        "too-few-days" for fewer than two days; "unequal-lengths" if names and days differ in number; "bad-ranks" if
        `ranks` is below 1.
    """
    if len(days) < 2 or len(names) != len(days):
        raise DataError(
            f"there must be two or more days to compare, each with a name: got {len(days)}.",
            code="too-few-days" if len(days) < 2 else "unequal-lengths",
            count=len(days),
        )
    if ranks < 1:
        raise DataError(f"ranks must be 1 or more: got {ranks}.", code="bad-ranks", ranks=ranks)
    order = sort_by_time([day.last for day in days])
    days, names = [days[i] for i in order], [names[i] for i in order]
    last = len(days) - 1
    named = list(zip(names, days, strict=True))
    steps = [_change(named[d], named[d + 1], ranks) for d in range(last)]
    until_last = [_change(named[d], named[last], ranks) for d in range(last - 1)] + steps[-1:]
    summaries = tuple(_day(day, name) for name, day in named)
    return DriftResult(summaries, tuple(steps), tuple(until_last), order != list(range(len(days))), ranks)


def _read_days(
    days: DaysLike, columns: Mapping[str, str] | None, on_bad_line: OnBadLine, progress: Progress
) -> tuple[list[DayCounts], list[str]]:
    """Return the counts of each day with its name; a single log is split by its days."""
    given: Sequence[Any] = list(days) if isinstance(days, list | tuple) else [days]
    counts: list[DayCounts] = []
    for day in given:
        opened = open_log_or_counts(day, columns=columns, on_bad_line=on_bad_line, progress=progress)
        if len(given) == 1 and not isinstance(opened, DayCounts):
            return _split_by_day(opened, progress)
        counts.append(opened if isinstance(opened, DayCounts) else DayCounts.of(opened))
        progress(1, total=len(given))
    stems = [Path(day).stem if isinstance(day, str | Path) else f"day {k}" for k, day in enumerate(given, 1)]
    return counts, stems if len(set(stems)) == len(stems) else [str(day) for day in given]


def _split_by_day(log: Log, progress: Progress) -> tuple[list[DayCounts], list[str]]:
    """Count each day of one log, without more than the numbers of its days in memory."""
    if log.time is None:
        raise DataError(
            "there must be two or more days to compare: this log has no 'time' or 'day' column. Pass a log for each "
            "day.",
            code="missing-time",
        )
    day, names = days_of(log.time)
    counts = []
    for number in range(len(names)):
        counts.append(DayCounts.of(log[day == number]))
        progress(1, total=len(names))
    return counts, list(names)


def _day(day: DayCounts, name: str) -> Day:
    """Summarise one day."""
    impressions, clicks = day.cells.by_rank()
    n = np.where(impressions > 0, impressions, np.nan)
    rates = clicks / n, *wilson_interval(clicks, n)
    return Day(name, day.first, day.last, day.sessions, float(clicks.sum() / day.sessions), *rates)


class _DayPair(NamedTuple):
    """Impressions and clicks of two days by (pair, rank) cell, in one vocabulary."""

    vocabulary: Vocabulary
    n_ranks: int
    pair: Int[np.ndarray, " cell"]
    rank: Int[np.ndarray, " cell"]
    impressions: Float[np.ndarray, "day cell"]
    clicks: Float[np.ndarray, "day cell"]

    @property
    def query(self) -> Int[np.ndarray, " cell"]:
        """Query number of each cell."""
        query: np.ndarray = self.vocabulary.pair_query[self.pair]
        return query

    @classmethod
    def of(cls, days: Sequence[DayCounts]) -> _DayPair:
        """Align the counts of two days."""
        vocabulary, ranks = union([day.vocabulary for day in days]), max(day.n_ranks for day in days)
        cells = [day.cells.rolled_up("rank") for day in days]
        keys = [
            vocabulary.pairs_of(day.vocabulary)[c.pair].astype(np.int64) * ranks + c.situation
            for day, c in zip(days, cells, strict=True)
        ]
        key, index = distinct_sorted(np.concatenate(keys))
        impressions, clicks = np.zeros((2, len(days), len(key)))
        indices = np.split(index, [len(keys[0])])
        for d, c in enumerate(cells):
            impressions[d, indices[d]], clicks[d, indices[d]] = c.impressions, c.clicks
        return cls(vocabulary, ranks, *np.divmod(key, ranks), impressions, clicks)

    def sessions_by_query(self) -> Float[np.ndarray, "day query"]:
        """Return the sessions of each query, as the impressions of its most filled rank.

        Results outside a vocabulary are not in the counts, and nor are holes, so one rank alone may miss sessions.
        """
        cell = self.query * self.n_ranks + self.rank
        size = self.vocabulary.n_queries * self.n_ranks
        by_rank = np.stack([np.bincount(cell, shown, size).reshape(-1, self.n_ranks) for shown in self.impressions])
        sessions: np.ndarray = by_rank.max(axis=2)
        return sessions


def _change(old: tuple[str, DayCounts], new: tuple[str, DayCounts], ranks: int) -> Change:
    """Compare two named days."""
    (earlier, before), (later, after) = old, new
    both = _DayPair.of((before, after))
    sessions = both.sessions_by_query()
    common: np.ndarray = np.all(sessions > 0, axis=0)
    if not common.any():
        unknown = ChanceCorrectedChange(math.nan, math.nan, math.inf, squared=False)
        return Change(earlier, later, new_queries=1.0, places=unknown, new_documents=unknown, clicks=())
    return Change(
        earlier,
        later,
        new_queries=float(sessions[1][~common].sum() / sessions[1].sum()),
        places=_position_change(both, sessions, common, ranks),
        new_documents=_new_documents(both, sessions, common),
        clicks=_click_changes(both),
    )


def _position_change(both: _DayPair, sessions: np.ndarray, common: np.ndarray, ranks: int) -> ChanceCorrectedChange:
    """Return the total variation distance of the documents at each rank, and its expectation by chance.

    Upper bound of the error: one session more or less on a day of n changes a query's distance by at most 1/n, whatever
    its list, so that its variance is at most (1/n + 1/m) / 4 (bounded differences). With weights n m / (n + m) that is
    sum(weights) / 4.
    """
    ranks = min(ranks, both.n_ranks)
    cells = np.flatnonzero(common[both.query] & (both.rank < ranks))
    query, rank = both.query[cells], both.rank[cells]
    group, size = query * ranks + rank, len(common) * ranks
    shown = both.impressions[:, cells]
    depth = np.zeros(len(common), np.int64)
    np.maximum.at(depth, query, rank + 1)
    # an empty rank, below the end of a list or a hole, counts as one more document
    at_rank = np.stack([np.bincount(group, s, size).reshape(-1, ranks) for s in shown])
    empty = np.where(np.arange(ranks) < depth[:, None], np.maximum(sessions[:, :, None] - at_rank, 0), 0.0)
    distance, chance = np.zeros((2, len(common)))
    for counts, of in ((shown, query), (empty.reshape(2, -1), np.repeat(np.arange(len(common)), ranks))):
        seen = np.flatnonzero(counts.sum(axis=0) > 1e-9)
        (a, b), (n, m) = counts[:, seen], sessions[:, of[seen]]
        distance += np.bincount(of[seen], np.abs(a / n - b / m), len(common)) / 2
        expected = _mean_deviation(a + b, n, m) * (1 / n + 1 / m)
        chance += np.bincount(of[seen], expected, len(common)) / 2
    distance, chance = (value[common] / depth[common] for value in (distance, np.minimum(chance, depth)))
    n, m = sessions[:, common]
    weight = n * m / (n + m)
    max_error = math.sqrt(weight.sum()) / 2
    return _corrected_share(weight * distance, weight * chance, weight, max_error=max_error, squared=True)


def _new_documents(both: _DayPair, sessions: np.ndarray, common: np.ndarray) -> ChanceCorrectedChange:
    """Return the share of results that are new, and its expectation by chance.

    A pair occurs once in a list, so that its impressions are sessions. Upper bound of the error: all new results of a
    query perfectly correlated.
    """
    impressions = np.stack([np.bincount(both.pair, s, both.vocabulary.n_pairs) for s in both.impressions])
    query = both.vocabulary.pair_query
    pairs = np.flatnonzero(common[query] & (impressions.sum(axis=0) > 0))
    (a, b), (n, m) = impressions[:, pairs], sessions[:, query[pairs]]
    missed = _prob_none(a + b, n, m)
    new, chance, total, error = (
        np.bincount(query[pairs], value, len(common))[common]
        for value in (np.where(a == 0, b, 0.0), (a + b) * missed, b, (a + b) * np.sqrt(missed * (1 - missed)))
    )
    return _corrected_share(new, chance, total, max_error=float(np.sqrt((error**2).sum())))


def _corrected_share(
    observed: Float[np.ndarray, " query"],
    chance: Float[np.ndarray, " query"],
    total: Float[np.ndarray, " query"],
    *,
    max_error: float,
    squared: bool = False,
) -> ChanceCorrectedChange:
    """Return the shares over all queries, and the standard error of their difference.

    The error is estimated from the variation between queries where there are enough of them; else it is its upper
    bound.
    """
    whole = float(total.sum())
    seen, expected = (float(value.sum()) / max(whole, 1e-12) for value in (observed, chance))
    if expected > 1 - 1e-9 or not whole:
        return ChanceCorrectedChange(math.nan, math.nan, math.inf, squared)
    squares = (observed - chance - (seen - expected) * total) ** 2
    effective = squares.sum() ** 2 / max((squares**2).sum(), 1e-300)
    error = min(math.sqrt(squares.sum()), max_error) if effective >= _MIN_EFFECTIVE_QUERIES else max_error
    return ChanceCorrectedChange(seen, expected, error / whole, squared)


def _click_changes(both: _DayPair) -> tuple[ClickChange, ...]:
    """Return Mantel-Haenszel ratios of click-through rates by rank, over documents shown at the rank on both days.

    The variance is that of Greenland and Robins (1985).
    """
    cells = np.flatnonzero((both.impressions > 0).all(axis=0))
    if not len(cells):
        return ()
    rank, (n, m), (a, b) = both.rank[cells], both.impressions[:, cells], both.clicks[:, cells]
    size, total = both.n_ranks, n + m
    earlier, later = (np.bincount(rank, part, size) for part in (a * m / total, b * n / total))
    spread = np.bincount(rank, (a + b) * n * m / total**2 - a * b / total, size)
    shown, matched = np.bincount(rank, m, size), np.bincount(rank, minlength=size) > 0
    z, defined = -normal_quantile(FALSE_ALARM_RATE / 2 / matched.sum()), (earlier > 0) & (later > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(defined, later / earlier, np.nan)
        error = np.sqrt(np.maximum(spread, 0) / (earlier * later))
        low, high = np.where(defined, ratio * np.exp([-z * error, z * error]), [[0.0], [np.inf]])
    return tuple(
        ClickChange(int(r), float(ratio[r]), float(low[r]), float(high[r]), float(shown[r]))
        for r in np.flatnonzero(matched)
    )


def _mean_deviation(
    marked: Float[np.ndarray, " n"], n: Float[np.ndarray, " n"], m: Float[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    """Return E|X - E X| of the hypergeometric number X of marked sessions among n, if `marked` of n + m are marked.

    As De Moivre's formula for the binomial: 2 k (m - marked + k) P(X = k) / (n + m), k the first integer above the
    mean.

    >>> _mean_deviation(np.array([2.0]), np.array([2.0]), np.array([2.0])).round(6).tolist()  # 0, 1, 2: 1/6, 4/6, 1/6
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
    """Return P(X = 0) of the same distribution: no marked session is among the n.

    >>> _prob_none(np.array([1.0, 2.0, 3.0]), np.full(3, 2.0), np.full(3, 2.0)).round(6).tolist()
    [0.5, 0.166667, 0.0]
    """
    prob: np.ndarray = np.exp(_log_choose(m, marked) - _log_choose(n + m, marked))
    return prob


def _log_choose(n: np.ndarray, k: np.ndarray) -> np.ndarray:
    """Return the log of the binomial coefficient, -inf where it is 0; weighted counts need not be integers."""
    from scipy.special import gammaln

    inside = (k > -1) & (n - k > -1) & (n > -1)
    k = np.where(inside, k, 0)
    log_coefficient: np.ndarray = np.where(
        inside, gammaln(n + 1) - gammaln(k + 1) - gammaln(np.where(inside, n - k, 0) + 1), -np.inf
    )
    return log_coefficient
