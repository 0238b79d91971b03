"""Count tables by (query, document) pair and situation: sufficient statistics of PBM, UBM and click-through rates.

Counting reads the sessions once; after that, the cost of fitting depends on the number of distinct cells, not on the
number of sessions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, Literal, NamedTuple, no_type_check

import numpy as np
from jaxtyping import Float, Int
from numba import njit

from clickshift.core.parallel import for_each, n_threads
from clickshift.core.unique_rows import distinct_sorted
from clickshift.counts.segment_numbers import SegmentNumbers
from clickshift.data._columns import VIEWED
from clickshift.data.encoded_log import Log, split_at_queries, weighted_arrays, weighted_chunks
from clickshift.data.sessions import MAX_TOTAL, Sessions
from clickshift.data.vocabulary import UNSEEN, Vocabulary
from clickshift.errors import DataError

By = Literal["rank", "last_click", "prefix"]
"""Situation that examination depends on: rank; rank and last click above it; rank and all clicks above it (prefix)."""

_BY_FROM_COARSE_TO_FINE: tuple[By, ...] = ("rank", "last_click", "prefix")
_MAX_DENSE_CELLS = 1 << 22
"""Largest number of possible cells for which every thread has a dense table of all of them."""
_CELLS_PER_THREAD = 1 << 25
"""Number of cells that a thread has a table for in one pass, if there are more than `_MAX_DENSE_CELLS`."""
_MANY_SITUATIONS, _CELLS_PER_PLACE = 4096, 16
"""Number of situations, and of possible cells per place of the lists, from which cells are counted by sorting."""
_KEYS_SORTED = 1 << 24
"""Number of cells after which equal ones are added up while counting by sorting."""
_MAX_TABLE = 1 << 20
"""Number of situations up to which a table of their ranks is made."""
MAX_PREFIX_RANKS = 30
"""Longest lists that can be counted by prefix."""
_CellColumns = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Pair, situation, impressions and clicks of each cell."""
_TableSlice = tuple[np.ndarray, int, int, int]
"""Tables to be added up, the range of pairs (start, stop) to read from them, and the first pair of the tables."""


class CellViews(NamedTuple):
    """Clicks and skips of each cell of which it is known whether the result was viewed.

    A click on a result that is marked as not viewed counts as viewed: users examine what they click.

    Parameters
    ----------
    clicks
        Clicks on results whose view is known.
    skips
        Results that were viewed and not clicked.
    unviewed
        Results that were neither viewed nor clicked.
    contradicted
        Number of clicks in the log on results that are marked as not viewed.
    """

    clicks: Float[np.ndarray, " cell"]
    skips: Float[np.ndarray, " cell"]
    unviewed: Float[np.ndarray, " cell"]
    contradicted: float = 0.0


@dataclass(frozen=True, eq=False)
class Cells:
    """Impressions and clicks of each pair in each situation; only cells that occur are kept, sorted by pair.

    Situations are numbered so that rank r (from 0) comes before rank r + 1. By rank: r. By last_click:
    r (r + 1) / 2 + rank of the last click from 1, or 0 if there is none. By prefix: 2^r - 1 + sum of 2^j over the
    clicked ranks j above. Counts by segment number the situations of one segment after those of another.

    Parameters
    ----------
    vocabulary
        Vocabulary of the pair numbers.
    n_ranks
        Number of ranks of the log.
    by
        Situation: "rank", "last_click" or "prefix".
    pair
        Pair number of each cell, ascending.
    situation
        Situation number of each cell, ascending within a pair.
    impressions
        Number of sessions in which the pair was shown in the situation.
    clicks
        Number of those sessions in which the pair was clicked.
    views
        Of those, the ones of which it is known whether the result was viewed; None if the log does not say.
    n_segments
        Number of segments by which the log was counted; 1 for the counts of all sessions.
    sessions
        Number of sessions, where whoever counted kept it: lists with holes may show nothing at the first rank.

    Examples
    --------
    >>> from clickshift import Rankings, Sessions
    >>> vocabulary, query, pair = Vocabulary.of(["cats"] * 2, [7, 12])
    >>> lists = Rankings(vocabulary, query, np.array([[0, 1], [1, 0]], np.int32))
    >>> cells = Cells.of(Sessions(lists, np.array([[1, 0], [1, 1]])))
    >>> cells.impressions.tolist(), cells.clicks.tolist()
    ([1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 0.0])
    """

    vocabulary: Vocabulary
    n_ranks: int
    by: By
    pair: Int[np.ndarray, " cell"]
    situation: Int[np.ndarray, " cell"]
    impressions: Float[np.ndarray, " cell"]
    clicks: Float[np.ndarray, " cell"]
    views: CellViews | None = field(default=None, kw_only=True)
    n_segments: int = field(default=1, kw_only=True)
    sessions: float | None = field(default=None, kw_only=True)

    @classmethod
    def of(
        cls,
        log: Log,
        by: By = "rank",
        *,
        weight: np.ndarray | None = None,
        views: bool = False,
        segments: SegmentNumbers | None = None,
    ) -> Cells:
        """Count a log. Pairs that are not in its vocabulary are left out.

        This takes one pass over the log; several, each for a part of the queries, if a table of all possible cells
        would not fit in memory.

        Parameters
        ----------
        log
            Sessions or an encoded log.
        by
            Situation: "rank", "last_click" or "prefix".
        weight
            Weight of each row of the log; by default, its count.
        views
            Whether to count views, too, in one more pass, where the log has the signal `viewed`.
        segments
            Segment by which sessions are counted apart.

        Raises
        ------
        DataError
            If `by` is "prefix" and lists are longer than 30 ("lists-too-long").
        """
        if by == "prefix" and log.n_ranks > MAX_PREFIX_RANKS:
            raise lists_too_long(log.n_ranks)
        n_situations = count_situations(by, log.n_ranks)
        size = log.vocabulary.n_pairs * n_situations * (1 if segments is None else segments.n)
        # of long lists, few of the possible cells occur: sorting takes less than tables of all cells
        few = n_situations > _MANY_SITUATIONS and size > _CELLS_PER_PLACE * n_places(log)
        count_large = _count_sparse if by == "prefix" or few else _count_by_query_range
        count = _count_dense if size <= _MAX_DENSE_CELLS else count_large
        columns = count(log, weight, by, n_situations, segments)
        cells = cls(log.vocabulary, log.n_ranks, by, *columns, n_segments=1 if segments is None else segments.n)
        return replace(cells, views=_count_views(log, weight, cells, segments)) if views and has_views(log) else cells

    def validate(self) -> None:
        """Raise ValueError unless the columns are what counting gives, e.g. because a file was changed.

        Kernels index tables by pair and situation without checks.
        """
        columns = {"pair": self.pair, "situation": self.situation}
        for name, column in columns.items():
            if column.ndim != 1 or column.dtype not in (np.int32, np.int64):
                raise ValueError(f"cells.{name} must be a column of integers")
        for name, column in (("impressions", self.impressions), ("clicks", self.clicks)):
            check_counts(f"cells.{name}", column, (len(self.pair),))
        if len(self.situation) != len(self.pair):
            raise ValueError("the columns of cells must have the same length")
        for name, column, stop in (
            ("pair", self.pair, self.vocabulary.n_pairs),
            ("situation", self.situation, self.n_situations),
        ):
            if len(column) and not (column.min() >= 0 and column.max() < stop):
                raise ValueError(f"cells.{name} must be from 0 to {stop - 1}: got {column.min()} to {column.max()}")
        key = self.pair.astype(np.int64) * self.n_situations + self.situation
        if not (key[1:] > key[:-1]).all():
            raise ValueError("cells must be sorted by pair and situation")
        check_at_most("clicks", self.clicks, "impressions", self.impressions)
        if self.views is not None:
            for name, column in zip(CellViews._fields, self.views[:3], strict=False):
                check_counts(f"cells.views.{name}", column, (len(self.pair),))
            check_at_most("views.clicks", self.views.clicks, "clicks", self.clicks)
            check_at_most("known views", np.sum(self.views[:3], axis=0), "impressions", self.impressions)

    @property
    def n_situations(self) -> int:
        """Number of possible situations: of each segment, if the log was counted by segment."""
        return self.n_segments * count_situations(self.by, self.n_ranks)

    def rank(self) -> Int[np.ndarray, " cell"]:
        """Return the rank of each cell, from 0."""
        if self.n_situations <= _MAX_TABLE:
            rank: np.ndarray = self.rank_of_situation()[self.situation]
            return rank
        first = np.array([count_situations(self.by, rank) for rank in range(self.n_ranks)])
        return np.searchsorted(first, self.situation % count_situations(self.by, self.n_ranks), side="right") - 1

    def rank_of_situation(self) -> Int[np.ndarray, " situation"]:
        """Return the rank of each situation, from 0."""
        return np.tile(rank_of(self.by, self.n_ranks), self.n_segments)

    @cached_property
    def offsets(self) -> Int[np.ndarray, " pair_or_end"]:
        """Bounds of the pairs: pair p has the cells from `offsets[p]` to `offsets[p + 1] - 1`."""
        return np.append(0, np.cumsum(np.bincount(self.pair, minlength=self.vocabulary.n_pairs)))

    def by_pair(self) -> tuple[Float[np.ndarray, " pair"], Float[np.ndarray, " pair"]]:
        """Return the impressions and clicks of each pair."""
        return self._by_pair

    @cached_property
    def _by_pair(self) -> tuple[Float[np.ndarray, " pair"], Float[np.ndarray, " pair"]]:
        """Impressions and clicks of each pair, computed once."""
        equal_weights = np.ones(self.n_situations)
        return self._weighted_sums(self.impressions, equal_weights), self._weighted_sums(self.clicks, equal_weights)

    def mean_rank(self) -> Float[np.ndarray, " pair"]:
        """Return the mean rank, from 1, at which each pair was shown; NaN where it was not shown."""
        impressions, _ = self.by_pair()
        ranks = self.weighted_impressions(self.rank_of_situation() + 1.0)
        mean: np.ndarray = np.where(impressions > 0, ranks / np.maximum(impressions, 1e-12), np.nan)
        return mean

    def weighted_impressions(self, weight: Float[np.ndarray, " situation"]) -> Float[np.ndarray, " pair"]:
        """Return the weighted impressions of each pair: the sum over its cells of impressions times `weight`."""
        return self._weighted_sums(self.impressions, weight)

    def _weighted_sums(self, count: Float[np.ndarray, " cell"], weight: Float[np.ndarray, " situation"]) -> np.ndarray:
        """Return the sum over each pair's cells of `count` times the weight of the situation."""
        total, cuts = np.empty(self.vocabulary.n_pairs), self.ranges(n_threads(len(self.pair)))
        for_each(lambda k: _weighted_sums(*cuts[k], self.offsets, self.situation, count, weight, total), len(cuts))
        return total

    def ranges(self, n: int) -> list[tuple[int, int]]:
        """Return up to n ranges of pairs with about equal numbers of cells, e.g. one for each thread."""
        cuts = np.searchsorted(self.offsets, np.linspace(0, len(self.pair), n + 1)[1:-1])
        return [(a, b) for a, b in pairwise([0, *cuts.tolist(), self.vocabulary.n_pairs]) if b > a]

    def by_situation(self) -> tuple[Float[np.ndarray, " situation"], Float[np.ndarray, " situation"]]:
        """Return the impressions and clicks of each situation."""
        return self._by_situation

    @cached_property
    def _by_situation(self) -> tuple[Float[np.ndarray, " situation"], Float[np.ndarray, " situation"]]:
        """Impressions and clicks of each situation, computed once."""
        return self._totals(self.situation, self.n_situations)

    def by_rank(self) -> tuple[Float[np.ndarray, " rank"], Float[np.ndarray, " rank"]]:
        """Return the impressions and clicks of each rank."""
        return self._totals(self.rank(), self.n_ranks)

    def _totals(self, index: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the impressions and clicks of each value of `index`, which has one entry per cell."""
        return np.bincount(index, self.impressions, size), np.bincount(index, self.clicks, size)

    def rolled_up(self, by: By) -> Cells:
        """Return the same counts aggregated to a coarser situation.

        Parameters
        ----------
        by
            Coarser situation: "rank", or "last_click" for counts by prefix.

        Raises
        ------
        DataError
            If `by` is finer than the counts ("counts-too-coarse").
        """
        if _BY_FROM_COARSE_TO_FINE.index(by) > _BY_FROM_COARSE_TO_FINE.index(self.by):
            raise DataError(
                f"counts by {self.by} cannot be refined to counts by {by}. Count the log again with by={by!r}.",
                code="counts-too-coarse",
                by=self.by,
                requested=by,
            )
        if by == self.by:
            return self
        segment, situation = np.divmod(self.situation, count_situations(self.by, self.n_ranks))
        if by == "rank" and self.by == "last_click":
            coarse = self.rank()  # without a table of all situations
        else:
            coarse = _coarse_situation(self.by, by, self.n_ranks)[situation]
        return self._regrouped(by, coarse + segment * count_situations(by, self.n_ranks), self.n_segments)

    def pooled_by_rank(self) -> Cells:
        """Return the same counts aggregated to ranks and added up over segments, in one pass."""
        if self.n_segments == 1:
            return self.rolled_up("rank")
        return self._regrouped("rank", self.rank(), 1)

    def with_known_ranks(self, n_ranks: int) -> Cells:
        """Return the counts with fewer ranks, as PBM and UBM with so many known ranks see lists.

        A result below the last known rank counts at it: at the same distance from the last click, but not above rank 1.

        Parameters
        ----------
        n_ranks
            Number of ranks; counts of fewer ranks are returned as they are.
        """
        if self.n_ranks <= n_ranks or self.by == "prefix":
            return self
        segment, situation = np.divmod(self.situation, count_situations(self.by, self.n_ranks))
        rank = self.rank()
        known = np.minimum(rank, n_ranks - 1)
        if self.by == "last_click":
            last = situation - rank * (rank + 1) // 2
            known_last = np.where(last == 0, 0, np.maximum(last - (rank - known), 1))
            known = known * (known + 1) // 2 + known_last
        known = known + segment * count_situations(self.by, n_ranks)
        return replace(self, n_ranks=n_ranks)._regrouped(self.by, known, self.n_segments)

    def _regrouped(self, by: By, situation: Int[np.ndarray, " cell"], n_segments: int) -> Cells:
        """Return the same counts with another situation of each cell."""
        n_situations = n_segments * count_situations(by, self.n_ranks)
        key = self.pair.astype(np.int64) * n_situations + situation
        size = self.vocabulary.n_pairs * n_situations
        if size <= _MAX_DENSE_CELLS:
            occurs = np.zeros(size, bool)
            occurs[key] = True
            distinct = np.flatnonzero(occurs)
            impressions, clicks = (np.bincount(key, table, size)[distinct] for table in (self.impressions, self.clicks))
        else:
            distinct, cell = distinct_sorted(key)
            impressions, clicks = (np.bincount(cell, table, len(distinct)) for table in (self.impressions, self.clicks))
        views = None
        if self.views is not None:
            views = add_views([self.views], [1.0], np.searchsorted(distinct, key), len(distinct))
        columns = *np.divmod(distinct, n_situations), impressions, clicks
        return Cells(self.vocabulary, self.n_ranks, by, *columns, views=views, n_segments=n_segments)


def has_views(log: Log) -> bool:
    """Return whether a log says which results were viewed.

    Parameters
    ----------
    log
        Sessions or an encoded log.
    """
    return VIEWED in signal_names(log)


def signal_names(log: Log) -> tuple[str, ...]:
    """Return the names of the signals of a log, `viewed` included.

    Parameters
    ----------
    log
        Sessions or an encoded log.
    """
    return tuple(log.signals) if isinstance(log, Sessions) else log.signal_names


def add_views(
    parts: Sequence[CellViews], factors: Sequence[float], cell: Int[np.ndarray, " row"], n_cells: int
) -> CellViews:
    """Add up views of several logs, or of several situations.

    Parameters
    ----------
    parts
        Views of the cells of each part.
    factors
        Weight of each part.
    cell
        Cell of the sum that each cell of all parts, in their order, belongs to.
    n_cells
        Number of cells of the sum.
    """
    columns: list[Any] = []
    for k in range(3):
        values = np.concatenate([factor * part[k] for factor, part in zip(factors, parts, strict=True)])
        columns.append(np.bincount(cell, values, n_cells))
    contradicted = sum(factor * part.contradicted for factor, part in zip(factors, parts, strict=True))
    return CellViews(columns[0], columns[1], columns[2], float(contradicted))


def mean_ranks(log: Log) -> Float[np.ndarray, " pair"]:
    """Return the mean rank, from 1, at which a log shows each pair; NaN where it does not show it.

    Parameters
    ----------
    log
        Sessions or an encoded log.
    """
    totals = np.zeros((log.vocabulary.n_pairs, 2))
    for part, count in weighted_chunks(log, None):
        _add_ranks(part.rankings.pair, count, totals)
    shown, ranks = totals.T
    return np.where(shown > 0, ranks / np.maximum(shown, 1e-12), np.nan)


@njit(cache=True, nogil=True)
@no_type_check
def _add_ranks(pair, count, totals):
    """Add the impressions of each pair, and the sum of their ranks from 1."""
    for i in range(len(pair)):
        for r in range(pair.shape[1]):
            p = pair[i, r]
            if p >= 0:
                totals[p, 0] += count[i]
                totals[p, 1] += count[i] * (r + 1)


def check_counts(name: str, counts: np.ndarray, shape: tuple[int, ...]) -> None:
    """Raise ValueError unless counts are numbers of 0 or more, below 2^62, of this shape.

    Parameters
    ----------
    name
        Name of the counts in the message.
    counts
        Counts to check.
    shape
        Shape that they must have.
    """
    if counts.dtype != np.float64 or counts.shape != shape:
        raise ValueError(f"{name} must be 64-bit floats of shape {shape}: got {counts.dtype} of {counts.shape}")
    if not ((counts >= 0) & (counts < MAX_TOTAL)).all():
        raise ValueError(f"{name} must be counts of 0 or more, below 2^62")


def check_at_most(
    name: str, counts: Float[np.ndarray, " count"], limit_name: str, limits: Float[np.ndarray, " count"]
) -> None:
    """Raise ValueError if a count is larger than the one that includes it; rounding of weighted sums is ignored.

    Parameters
    ----------
    name, limit_name
        Names in the message.
    counts, limits
        Counts, and the counts that include them.
    """
    above = counts > limits * (1 + 1e-9) + 1e-9
    if above.any():
        first = int(np.argmax(above))
        raise ValueError(f"{name} must be at most {limit_name}: got {counts[first]:g} and {limits[first]:g}")


def lists_too_long(n_ranks: int) -> DataError:
    """Return the error for lists that are too long to be counted by prefix ("lists-too-long").

    Parameters
    ----------
    n_ranks
        Length of the longest list.
    """
    return DataError(
        f"counting by all clicks above needs lists of at most {MAX_PREFIX_RANKS} results: got {n_ranks}. "
        "Truncate the lists, or use a model that depends on the last click only.",
        code="lists-too-long",
        value=n_ranks,
        limit=MAX_PREFIX_RANKS,
    )


def count_situations(by: By, n_ranks: int) -> int:
    """Return the number of possible situations in lists of `n_ranks` results.

    Parameters
    ----------
    by
        Situation: "rank", "last_click" or "prefix".
    n_ranks
        Length of the lists.

    Examples
    --------
    >>> [count_situations(by, 4) for by in ("rank", "last_click", "prefix")]
    [4, 10, 15]
    """
    if by == "prefix":
        return (1 << n_ranks) - 1  # a huge number of ranks, as in a damaged file, would need as many bits
    return {"rank": n_ranks, "last_click": n_ranks * (n_ranks + 1) // 2}[by]


def rank_of(by: By, n_ranks: int) -> Int[np.ndarray, " situation"]:
    """Return the rank of each situation, from 0.

    Parameters
    ----------
    by
        Situation: "rank", "last_click" or "prefix".
    n_ranks
        Length of the lists.

    Examples
    --------
    >>> rank_of("last_click", 3).tolist()
    [0, 1, 1, 2, 2, 2]
    """
    sizes = [count_situations(by, r + 1) - count_situations(by, r) for r in range(n_ranks)]
    return np.repeat(np.arange(n_ranks), sizes)


def situation_of(by: By, sessions: Sessions) -> Int[np.ndarray, "session rank"]:
    """Return the situation number of each result of a log.

    Parameters
    ----------
    by
        Situation: "rank", "last_click" or "prefix".
    sessions
        Lists with their clicks.
    """
    click, ranks = sessions.click, np.arange(sessions.n_ranks)
    start = np.array([count_situations(by, r) for r in range(sessions.n_ranks)])
    situation = np.broadcast_to(start, click.shape).copy()
    if by == "last_click":
        last = np.maximum.accumulate(np.where(click, ranks + 1, 0), axis=1)
        situation[:, 1:] += last[:, :-1]
    elif by == "prefix":
        situation[:, 1:] += np.cumsum(click.astype(np.int64) << ranks, axis=1)[:, :-1]
    return situation


def _coarse_situation(fine: By, coarse: By, n_ranks: int) -> np.ndarray:
    """Return the coarse situation of each fine situation."""
    rank = rank_of(fine, n_ranks)
    if coarse == "rank" or fine == coarse:
        return rank if coarse == "rank" else np.arange(len(rank))
    bits = np.arange(len(rank)) - ((1 << rank) - 1)
    last = np.floor(np.log2(np.maximum(bits, 0.5))).astype(np.int64) + 1  # 0 for no click
    situation: np.ndarray = rank * (rank + 1) // 2 + last
    return situation


def _count_dtype(log: Log, weight: np.ndarray | None) -> type:
    """Return the type of the count tables: unweighted sessions need half the memory."""
    return np.uint32 if weight is None and not log.has_counts else np.float64


def _segmented_chunks(
    log: Log, weight: np.ndarray | None, segments: SegmentNumbers | None
) -> Iterator[tuple[Sessions, np.ndarray | None, np.ndarray]]:
    """Yield the sessions of a log with the numbers of their segments, if there are any, and their counts."""
    for part, count in weighted_chunks(log, weight):
        yield part, None if segments is None else segments.of(part), count


def _numbered(pair: np.ndarray, segment: np.ndarray | None, n_segments: int, n_pairs: int) -> np.ndarray:
    """Number pairs by segment: those of one pair are consecutive, so that one table holds all segments of it."""
    if segment is None:
        return pair
    large = n_pairs * n_segments > np.iinfo(np.int32).max
    number: np.ndarray = np.array(pair, np.int64 if large else np.int32)
    number *= n_segments
    number += segment[:, None]
    number[pair == UNSEEN] = UNSEEN
    return number


def _count_dense(
    log: Log, weight: np.ndarray | None, by: By, n_situations: int, segments: SegmentNumbers | None
) -> _CellColumns:
    """Count with a dense table of all possible cells for each thread."""
    pairs, threads, n_segments = log.vocabulary.n_pairs, n_threads(len(log)), 1 if segments is None else segments.n
    shape = threads, 2, (pairs * n_segments + 1) * n_situations  # the extra last pair takes the counts of UNSEEN pairs
    tables: np.ndarray = np.zeros(shape, _count_dtype(log, weight))
    by_code = _BY_FROM_COARSE_TO_FINE.index(by)

    def add(part: Sessions, segment: np.ndarray | None, count: Float[np.ndarray, " session"]) -> None:
        cuts = np.linspace(0, len(part), threads + 1).astype(int)

        def work(k: int) -> None:
            rows = slice(cuts[k], cuts[k + 1])
            own = np.empty(0, np.int32) if segment is None else segment[rows]
            lists = part.rankings.pair[rows], part.rankings.shown[rows], part.rankings.has_holes
            numbers = own, n_segments, by_code, n_situations
            _add_all_pairs(*lists, part.click[rows], count[rows], *numbers, tables[k])

        for_each(work, threads)

    for chunk in _segmented_chunks(log, weight, segments):
        add(*chunk)
    cuts = np.linspace(0, pairs, threads + 1).astype(int).tolist()
    return _collect_cells([(tables, cuts[k], cuts[k + 1], 0) for k in range(threads)], n_segments * n_situations)


def _count_by_query_range(
    log: Log, weight: np.ndarray | None, by: By, n_situations: int, segments: SegmentNumbers | None
) -> _CellColumns:
    """Count in several passes, in each of which every thread counts the pairs of its own range of queries."""
    threads, vocabulary, dtype = n_threads(), log.vocabulary, _count_dtype(log, weight)
    all_situations = n_situations * (1 if segments is None else segments.n)
    cells_per_thread = 2 * _CELLS_PER_THREAD if dtype is np.uint32 else _CELLS_PER_THREAD
    n_ranges = -(-vocabulary.n_pairs * all_situations // cells_per_thread)
    bounds = split_at_queries(vocabulary, max(n_ranges, threads))
    ranges = list(pairwise(bounds.tolist()))
    # one buffer for all passes, since allocating memory costs more than zeroing it
    buffers = np.empty((threads, 2 * all_situations * max(stop - start for start, stop in ranges)), dtype)
    cells = None
    for first in range(0, len(ranges), threads):
        tables = _count_pass(log, weight, by, n_situations, ranges[first : first + threads], buffers, segments)
        cells = _collect_cells(tables, all_situations, cells)
    assert cells is not None
    return cells


def _count_pass(
    log: Log,
    weight: np.ndarray | None,
    by: By,
    n_situations: int,
    ranges: list[tuple[int, int]],
    buffers: np.ndarray,
    segments: SegmentNumbers | None,
) -> list[_TableSlice]:
    """Count the pairs of some ranges in one pass over the log, one range for each thread."""
    n_segments = 1 if segments is None else segments.n
    tables = [
        buffer[: 2 * n_segments * n_situations * (stop - start)].reshape(2, -1)
        for buffer, (start, stop) in zip(buffers, ranges, strict=False)
    ]
    for_each(lambda k: tables[k].fill(0), len(tables))
    by_code = _BY_FROM_COARSE_TO_FINE.index(by)

    def add(pair: np.ndarray, click: np.ndarray, count: np.ndarray) -> None:
        def work(k: int) -> None:
            start, stop = (n_segments * end for end in ranges[k])
            _add_pair_range(pair, click, count, start, stop, by_code, n_situations, tables[k])

        for_each(work, len(ranges))

    if segments is None:
        for arrays in weighted_arrays(log, weight):
            add(*arrays)
    else:
        for part, segment, count in _segmented_chunks(log, weight, segments):
            add(_numbered(part.rankings.pair, segment, n_segments, log.vocabulary.n_pairs), part.click, count)
    return [(table[None], start, stop, start) for table, (start, stop) in zip(tables, ranges, strict=True)]


def _collect_cells(parts: Sequence[_TableSlice], n_situations: int, before: _CellColumns | None = None) -> _CellColumns:
    """Append the cells that occur in some tables to those collected `before`, which are resized without a copy.

    Pairs and situations have 32 bits: a large log has a hundred million cells.
    """
    sizes = np.zeros(len(parts), np.int64)

    def count_cells(k: int) -> None:
        sizes[k] = _count_occurring(*parts[k], n_situations)

    for_each(count_cells, len(parts))
    if before is None:
        before = np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0), np.empty(0)
    old = len(before[0])
    for column in before:
        column.resize(old + int(sizes.sum()), refcheck=False)
    pair, situation, impressions, clicks = before
    end = old + np.cumsum(sizes)

    def compact(k: int) -> None:
        _compact(*parts[k], n_situations, end[k] - sizes[k], end[k], pair, situation, impressions, clicks)

    for_each(compact, len(parts))
    return pair, situation, impressions, clicks


@njit(cache=True, nogil=True)
@no_type_check
def _weighted_sums(start, stop, offsets, situation, count, weight, total):
    """Fill `total[p]` with the sum over the cells of pair p of count times the weight of the situation."""
    for p in range(start, stop):
        total[p] = 0.0
        for k in range(offsets[p], offsets[p + 1]):
            total[p] += count[k] * weight[situation[k]]


@njit(cache=True, nogil=True)
@no_type_check
def _count_occurring(tables, start, stop, first, n_situations):
    """Return the number of cells of the pairs from `start` to `stop` that occur in any table."""
    n = 0
    for key in range((start - first) * n_situations, (stop - first) * n_situations):
        total = tables[0, 0, key] + tables[0, 1, key]
        for k in range(1, len(tables)):
            total += tables[k, 0, key] + tables[k, 1, key]
        n += total > 0
    return n


@njit(cache=True, nogil=True)
@no_type_check
def _compact(tables, start, stop, first, n_situations, at, end, pair, situation, impressions, clicks):
    """Write the cells that occur in any table to the columns, from position `at` to `end`.

    The compaction has no branch: every cell is written, and the position advances only if the cell occurred. A branch
    would be unpredictable.
    """
    key = (start - first) * n_situations
    for p in range(start, stop):
        for s in range(n_situations):
            if at == end:
                return
            skipped, clicked = tables[0, 0, key], tables[0, 1, key]
            for k in range(1, len(tables)):
                skipped += tables[k, 0, key]
                clicked += tables[k, 1, key]
            pair[at], situation[at], impressions[at], clicks[at] = p, s, skipped + clicked, clicked
            at += skipped + clicked > 0
            key += 1


@njit(cache=True, nogil=True)
@no_type_check
def _add_all_pairs(pair, shown, has_holes, click, count, segment, n_segments, by, n_situations, table):
    """Add sessions to a table of all pairs, each with all segments; row 0 has the skips and row 1 the clicks.

    Clicks are rare: without them in between, skips are closer together in memory. UNSEEN pairs are counted after the
    last pair. A hole is no impression, but the ranks below it keep their numbers.
    """
    n, ranks = pair.shape
    last_row = table.shape[1] // n_situations - 1
    for i in range(n):
        first, above, weight = 0, 0, count[i]  # first situation of the rank, and offset by the clicks above
        own = segment[i] if n_segments > 1 else 0
        for r in range(ranks):
            if not shown[i, r] and not has_holes:
                break
            row, clicked = pair[i, r] * n_segments + own if pair[i, r] >= 0 else last_row, click[i, r]
            if shown[i, r]:
                # unsigned indices spare numba the check for negative ones
                table[np.uint64(clicked), np.uint64(row * n_situations + first + above)] += weight
            if by == 0:
                first += 1
            elif by == 1:
                first += r + 1
                above = r + 1 if clicked else above
            else:
                first += 1 << r
                above |= clicked << r


@njit(cache=True, nogil=True)
@no_type_check
def _add_pair_range(pair, click, count, start, stop, by, n_situations, table):
    """Add sessions to a table of the pairs from `start` to `stop`, which are all pairs of some queries.

    The first pair of a list, if it is known, decides whether the session's query is in the range. Where nothing is
    shown there is neither a pair nor a click.
    """
    n, ranks = pair.shape
    for i in range(n):
        if pair[i, 0] >= 0 and (pair[i, 0] < start or pair[i, 0] >= stop):
            continue
        first, above = 0, 0
        for r in range(ranks):
            p, clicked = pair[i, r], click[i, r]
            if p >= start and p < stop:
                table[np.uint64(clicked), np.uint64((p - start) * n_situations + first + above)] += count[i]
            if by == 0:
                first += 1
            else:
                first += r + 1
                above = r + 1 if clicked else above


def _count_views(log: Log, weight: np.ndarray | None, cells: Cells, segments: SegmentNumbers | None) -> CellViews:
    """Count the views of cells that were counted before; each thread counts the pairs of its own range."""
    counts, contradicted = np.zeros((3, len(cells.pair))), 0.0
    ranges, by_code = cells.ranges(n_threads(len(log))), _BY_FROM_COARSE_TO_FINE.index(cells.by)
    columns = cells.offsets, cells.situation.astype(np.int64), counts
    n_situations = count_situations(cells.by, cells.n_ranks)
    for part, segment, count in _segmented_chunks(log, weight, segments):
        viewed = part.viewed
        if viewed is None:
            continue
        state = np.where(viewed, np.int8(_VIEWED), np.int8(_UNVIEWED))
        if viewed.dtype != bool:
            state[np.isnan(viewed)] = 0
        contradicted += float(count @ (part.click & (state == _UNVIEWED)).sum(axis=1))
        start = np.zeros(len(part), np.int64) if segment is None else segment.astype(np.int64) * n_situations
        arrays = part.rankings.pair, part.click, state, count, start
        for_each(partial(_add_range_of_views, ranges, arrays, by_code, columns), len(ranges))
    return CellViews(counts[0], counts[1], counts[2], contradicted)


_VIEWED, _UNVIEWED = 1, 2
"""States of a result whose view is known."""


def _add_range_of_views(
    ranges: list[tuple[int, int]], arrays: tuple[np.ndarray, ...], by: int, columns: tuple[np.ndarray, ...], k: int
) -> None:
    """Add the views of a range of pairs."""
    _add_views(*arrays, *ranges[k], by, *columns)


@njit(cache=True, nogil=True)
@no_type_check
def _add_views(pair, click, state, count, first_situation, start, stop, by, offsets, situation, counts):
    """Add the known views of the pairs from `start` to `stop` to their cells: clicks, skips, and what was not viewed.

    A click is viewed, whatever its state says.
    """
    n, ranks = pair.shape
    for i in range(n):
        first, above = first_situation[i], 0  # first situation of the rank, and offset by the clicks above
        for r in range(ranks):
            p, clicked = pair[i, r], click[i, r]
            if p >= start and p < stop and state[i, r] != 0:
                low, high, wanted = offsets[p], offsets[p + 1] - 1, first + above
                while low < high:
                    middle = (low + high) // 2
                    if situation[middle] < wanted:
                        low = middle + 1
                    else:
                        high = middle
                counts[0 if clicked else state[i, r], low] += count[i]
            if by == 0:
                first += 1
            elif by == 1:
                first += r + 1
                above = r + 1 if clicked else above
            else:
                first += 1 << r
                above |= clicked << r


def n_places(log: Log) -> int:
    """Return the number of places of the matrices of a log: its results, and empty places below short lists.

    Parameters
    ----------
    log
        Sessions or an encoded log.
    """
    if isinstance(log, Sessions):
        return int(log.click.size)
    return sum(block.rows * block.ranks for block in log.blocks)


def _count_sparse(
    log: Log, weight: np.ndarray | None, by: By, n_situations: int, segments: SegmentNumbers | None
) -> _CellColumns:
    """Count by sorting keys, rank by rank to bound the memory: a cell belongs to one rank."""
    keys, counts, size = list[np.ndarray](), list[np.ndarray](), 0
    for part, segment, count in _segmented_chunks(log, weight, segments):
        n_segments = 1 if segments is None else segments.n
        numbers = _numbered(part.rankings.pair, segment, n_segments, log.vocabulary.n_pairs)
        situation = situation_of(by, part)
        for rank in range(part.n_ranks):
            pair = numbers[:, rank]
            rows = np.flatnonzero(pair != UNSEEN)
            key, cell = distinct_sorted(pair[rows].astype(np.int64) * n_situations + situation[rows, rank])
            clicked = count[rows] * part.click[rows, rank]
            keys.append(key)
            counts.append(np.stack([np.bincount(cell, w, len(key)) for w in (count[rows], clicked)], axis=1))
            size += len(key)
        if size > _KEYS_SORTED:
            key, summed = _add_equal(keys, counts)
            keys, counts, size = [key], [summed], 0
    key, summed = _add_equal(keys, counts)
    n_situations *= 1 if segments is None else segments.n
    return *np.divmod(key, n_situations), *summed.T.copy()


def _add_equal(keys: list[np.ndarray], counts: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct keys, ascending, and the sums of their counts."""
    key, cell = distinct_sorted(np.concatenate(keys))
    all_counts = np.concatenate(counts)
    return key, np.stack([np.bincount(cell, all_counts[:, k], len(key)) for k in range(2)], axis=1)
