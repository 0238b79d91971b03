"""Count what follows a click: clicks, conversions and their values by (query, document) pair and rank."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float, Int

from clickshift.core.progress import Progress, silent
from clickshift.core.unique_rows import distinct_sorted
from clickshift.counts.cells import signal_names
from clickshift.counts.segment_numbers import SegmentNumbers
from clickshift.data.encoded_log import Log
from clickshift.data.sessions import Sessions
from clickshift.data.signal_values import SignalValue
from clickshift.data.vocabulary import UNSEEN, Vocabulary

_WAITING_CELLS = 1 << 22
"""Cells of chunks that are kept before equal ones are added up."""
_Part = tuple[np.ndarray, np.ndarray]
"""Keys of cells, and their counts."""


@final
@dataclass(frozen=True, eq=False)
class ConversionCounts:
    """Clicks of each pair at each rank, and the values that followed them: sufficient statistics of conversions.

    Parameters
    ----------
    vocabulary
        Vocabulary of the pair numbers.
    n_ranks
        Number of ranks of the log.
    pair, rank
        Pair and rank (from 0) of each cell, sorted; only cells with clicks are kept.
    clicks
        Clicks whose value is known.
    conversions
        Those with a value above 0.
    total, squares
        Sum of the values, and of their squares.
    unknown
        Clicks whose value is unknown, which are left out.
    without_click
        Results with a value above 0 that were not clicked.
    without_click_total
        Sum of their values.
    """

    vocabulary: Vocabulary
    n_ranks: int
    pair: Int[np.ndarray, " cell"]
    rank: Int[np.ndarray, " cell"]
    clicks: Float[np.ndarray, " cell"]
    conversions: Float[np.ndarray, " cell"]
    total: Float[np.ndarray, " cell"]
    squares: Float[np.ndarray, " cell"]
    unknown: float = 0.0
    without_click: float = 0.0
    without_click_total: float = 0.0

    @classmethod
    def of(
        cls, log: Log, values: Sequence[SignalValue], *, keep_without_click: bool = False, progress: Progress = silent
    ) -> list[ConversionCounts]:
        """Count the conversions of a log in one pass, for several values.

        Parameters
        ----------
        log
            Sessions or an encoded log. Pairs that are not in its vocabulary are left out.
        values
            What to count.
        keep_without_click
            Whether a conversion without a click counts as one with a click; else it is left out.
        progress
            Called after each chunk.

        Returns
        -------
        list of ConversionCounts
            One for each value.

        Raises
        ------
        SpecError
            "unknown-signal" if the log lacks a signal.
        """
        counted = []
        for key, columns, more in count_click_cells(
            log, values, keep_without_click=keep_without_click, progress=progress
        ):
            pair, rank = np.divmod(key, log.n_ranks)
            counted.append(cls(log.vocabulary, log.n_ranks, pair, rank, *columns, *more.tolist()))
        return counted

    def by_pair(self) -> Float[np.ndarray, "4 pair"]:
        """Return clicks, conversions, total and squares of each pair of the vocabulary."""
        return self._sums(self.pair, self.vocabulary.n_pairs)

    def by_rank(self) -> Float[np.ndarray, "4 rank"]:
        """Return clicks, conversions, total and squares of each rank."""
        return self._sums(self.rank, self.n_ranks)

    def expected_by_rank(self) -> Float[np.ndarray, " rank"]:
        """Return the conversions of each rank if every pair converted at its own rate at all ranks."""
        clicks, conversions, _, _ = self.by_pair()
        rate = conversions / np.maximum(clicks, 1e-12)
        expected: np.ndarray = np.bincount(self.rank, self.clicks * rate[self.pair], self.n_ranks)
        return expected

    def _sums(self, index: np.ndarray, size: int) -> Float[np.ndarray, "4 _"]:
        """Return the counts of each value of `index`, which has one entry per cell."""
        columns = (self.clicks, self.conversions, self.total, self.squares)
        return np.stack([np.bincount(index, column, size) for column in columns])


def count_click_cells(
    log: Log,
    values: Sequence[SignalValue],
    *,
    keep_without_click: bool = False,
    segments: SegmentNumbers | None = None,
    progress: Progress = silent,
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Count clicks, conversions, values and their squares by pair, segment and rank in one pass, for several values.

    Parameters
    ----------
    log
        Sessions or an encoded log.
    values
        What to count.
    keep_without_click
        Whether a conversion without a click counts as one with a click.
    segments
        Segment by which sessions are counted apart.
    progress
        Called after each chunk.

    Returns
    -------
    list of tuple
        Of each value: keys (pair x segments + segment) x ranks + rank, ascending; their counts; and clicks of unknown
        value, results with a value that were not clicked, and the sum of their values.
    """
    names = signal_names(log)
    for value in values:
        value.check(names)
    parts: list[list[_Part]] = [[] for _ in values]
    extra = np.zeros((len(values), 3))
    for chunk in log.chunks():
        start, n_situations = np.zeros(len(chunk), np.int64), log.n_ranks
        if segments is not None:
            start, n_situations = segments.of(chunk).astype(np.int64) * log.n_ranks, log.n_ranks * segments.n
        for k, value in enumerate(values):
            part, more = _count_chunk(chunk, value, start, n_situations, keep_without_click)
            extra[k] += more
            parts[k].append(part)
            if sum(len(key) for key, _ in parts[k][1:]) > max(_WAITING_CELLS, len(parts[k][0][0])):
                parts[k] = [_add(parts[k])]
        progress(f"{len(chunk):,} sessions counted")
    return [(*_add(own), more) for own, more in zip(parts, extra, strict=True)]


def _count_chunk(
    sessions: Sessions,
    value: SignalValue,
    start: Int[np.ndarray, " session"],
    n_situations: int,
    keep_without_click: bool,
) -> tuple[_Part, Float[np.ndarray, " 3"]]:
    """Count the clicks of one chunk; also the unknown values, and the conversions without a click with their value."""
    values, click, count = value.of(sessions), sessions.click, sessions.count.astype(np.float64)
    known = ~np.isnan(values)
    stray = ~click & known & (values > 0)
    more = [count @ part for part in ((click & ~known).sum(axis=1), stray.sum(axis=1))]
    more.append(count @ np.where(stray, values, 0.0).sum(axis=1))
    used = (click | stray if keep_without_click else click) & known & (sessions.rankings.pair != UNSEEN)
    row, rank = np.nonzero(used)
    pair, weight, x = sessions.rankings.pair[row, rank].astype(np.int64), count[row], values[row, rank]
    key, cell = distinct_sorted(pair * n_situations + start[row] + rank)
    columns = (weight, weight * (x > 0), weight * x, weight * x * x)
    return (key, _sums(cell, columns, len(key))), np.array(more)


def _add(parts: Sequence[_Part]) -> _Part:
    """Add up the cells of several chunks."""
    key, cell = distinct_sorted(np.concatenate([part for part, _ in parts]))
    counts = np.concatenate([part for _, part in parts], axis=1)
    return key, _sums(cell, counts, len(key))


def _sums(cell: np.ndarray, columns: Iterable[np.ndarray], size: int) -> Float[np.ndarray, "column cell"]:
    """Sum columns by cell, as floats also where there is none."""
    return np.stack([np.bincount(cell, column, size).astype(np.float64) for column in columns])
