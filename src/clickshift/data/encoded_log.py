"""EncodedLog: a log encoded as numbers in memory-mapped files, for logs that are larger than memory.

A directory holds the sessions in blocks. A block has a rectangle of pair numbers (`UNSEEN` where nothing is shown) and
the clicks as bits: 42 bytes for a list of ten. Readers of the log get it block by block, as `Sessions`. Where lists
have very different lengths, blocks are narrow or short, so that no rectangle is far larger than its results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np
from jaxtyping import Bool, Float, Int

from clickshift.core.parallel import map_in_order
from clickshift.core.rng import as_generator
from clickshift.data._columns import PROPENSITY_AT_RANK
from clickshift.data.encoded_files import CLICKS, PAIRS, RESULTS, SEGMENTS, Block, LogFiles, query_ranges
from clickshift.data.segments import Segment
from clickshift.data.sessions import MAX_PADDING, Rankings, Sessions, as_matrix
from clickshift.data.vocabulary import UNSEEN, Vocabulary
from clickshift.errors import DataError

_StoredLists = tuple[np.ndarray, np.ndarray, np.ndarray | None]
"""Pair numbers and clicks of a block, and the queries of its rows if a check has found them in passing."""
_StoredColumns = tuple[dict[str, np.ndarray], dict[str, Segment]]
"""Columns of the results of a block, and its segments."""
_PADDED_PLACES = 1 << 22
"""Number of places of the matrix of a chunk whose lists are padded to a much longer one."""
SMALL_BLOCK = 1 << 14
"""Number of places that the matrix of a block may have, however few results it has."""
_ROWS_AT_ONCE = 1 << 20
"""Number of rows that are sorted by query at a time."""


@final
@dataclass(frozen=True, eq=False)
class EncodedLog:
    """Sessions on disk, read in `chunks`. A split of the log is a view that masks some of its rows.

    Use `clickshift.open_log` to open one.

    Parameters
    ----------
    files
        Files with the pairs, clicks and session columns.
    vocabulary
        Vocabulary of the numbers that the log yields.
    facts
        Facts recorded when the log was encoded: the files, the number of skipped sessions.
    kept
        Mask of the rows of a part of the log; None for all rows.
    translation
        Number in `vocabulary` of each pair number in the files; None if they are the same. The last entry is `UNSEEN`.
    translated_query
        Query number in `vocabulary` of each pair number in the files, likewise.
    stored
        Vocabulary of the pair numbers in the files; None if it is `vocabulary`.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import clickshift as cs
    >>> sessions = cs.simulate(cs.builtin_corpus(5), cs.Uniform(), cs.users.PBM(), 100, rng=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     cs.write_log(sessions, Path(folder) / "clicks.parquet")
    ...     log = cs.open_log(Path(folder) / "clicks.parquet", in_memory=False)
    ...     (len(log), sum(len(chunk) for chunk in log.chunks()))
    (100, 100)
    """

    files: LogFiles
    vocabulary: Vocabulary
    facts: Mapping[str, Any]
    kept: Bool[np.ndarray, " row"] | None = None
    translation: Int[np.ndarray, " pair_or_unseen"] | None = None
    translated_query: Int[np.ndarray, " pair_or_unseen"] | None = None
    stored: Vocabulary | None = None

    @property
    def folder(self) -> Path:
        """Directory of the log."""
        return self.files.folder

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Positions of the blocks in the files."""
        return self.files.blocks

    @property
    def kinds(self) -> Mapping[str, str]:
        """Session columns that the log has (of count, time, user and log_prob), with the numpy type of each."""
        return self.files.kinds

    @property
    def signal_names(self) -> tuple[str, ...]:
        """Names of the signals of results, `viewed` included."""
        return tuple(name for name in self.files.results.names if name != PROPENSITY_AT_RANK)

    def __len__(self) -> int:
        """Return the number of rows; see `total` for the number of sessions."""
        return self._stored_rows if self.kept is None else int(np.count_nonzero(self.kept))

    @property
    def _stored_rows(self) -> int:
        """Number of rows in the files, masked ones included."""
        return sum(block.rows for block in self.blocks)

    @cached_property
    def n_ranks(self) -> int:
        """Number of ranks: the length of the longest list."""
        return max(block.ranks for block in self.blocks)

    @property
    def has_narrow_chunks(self) -> bool:
        """Whether lists have so different lengths that narrow chunks have fewer ranks than the log."""
        return self._padded_ranks < self.n_ranks

    @cached_property
    def _padded_ranks(self) -> int:
        """Number of ranks that chunks have at least: those of the log, unless its matrix would be far too large."""
        places = sum(block.rows * block.ranks for block in self.blocks)
        full = self._stored_rows * self.n_ranks <= MAX_PADDING * max(places, SMALL_BLOCK)
        return self.n_ranks if full else 0

    @cached_property
    def total(self) -> int:
        """Number of sessions: the sum of the counts of all rows."""
        if not self.has_counts:
            return len(self)
        count = self.files.column("count")
        return int(count.sum() if self.kept is None else count[self.kept].sum())

    @property
    def time(self) -> np.ndarray | None:
        """Time of each row; None if the log has no times."""
        if "time" not in self.kinds:
            return None
        time = self.files.column("time")
        return np.asarray(time if self.kept is None else time[self.kept])

    def __getitem__(self, rows: Bool[np.ndarray, " row"]) -> EncodedLog:
        """Return the part of the log with some of its rows, given as a mask."""
        kept = np.zeros(self._stored_rows, bool)
        kept[slice(None) if self.kept is None else self.kept] = rows
        return replace(self, kept=kept)

    @property
    def has_counts(self) -> bool:
        """Whether a row may represent more than one session."""
        return "count" in self.kinds

    def chunks(self, *, narrow: bool = False, user_ids: bool = False) -> Iterator[Sessions]:
        """Yield the sessions block by block, in the order of the log, with a few blocks read ahead.

        Parameters
        ----------
        narrow
            Whether a chunk may have fewer ranks than the log. Where lists have very different lengths, this is much
            faster: else, short lists are padded to the length of the longest one, a few rows at a time.
        user_ids
            Whether users have their ids. Else, users with text ids are numbers, which are read faster.
        """
        for part in self._blocks(user_ids=user_ids):
            if narrow or part.n_ranks == self.n_ranks:
                yield part
                continue
            rows = max(_PADDED_PLACES // self.n_ranks, 1)
            for start in range(0, len(part), rows):
                yield part[start : start + rows].padded_to(self.n_ranks)

    def _blocks(self, *, user_ids: bool) -> Iterator[Sessions]:
        """Yield the sessions block by block, with at least `_padded_ranks` ranks."""
        columns = {name: self.files.column(name) for name in self.kinds}
        kept = [None if self.kept is None else self.kept[block.row_slice] for block in self.blocks]
        numbers = [k for k, rows in enumerate(kept) if rows is None or rows.any()]
        read_lists, read_columns = self._block_reader(), self._column_reader()

        def read(number: int) -> tuple[_StoredLists, _StoredColumns]:
            lists = read_lists(number)
            return lists, read_columns(number, lists[0] != UNSEEN) if read_columns else ({}, {})

        for number, (lists, (results, segments)) in zip(numbers, map_in_order(read, numbers), strict=True):
            rows, mask = self.blocks[number].row_slice, kept[number]
            of_rows = {name: np.asarray(column[rows]) for name, column in columns.items()}
            if user_ids and "user" in of_rows:
                of_rows["user"] = self.files.user_ids(of_rows["user"])
            part = self._sessions(*lists, of_rows, results, segments)
            yield part if mask is None or mask.all() else part[mask]

    def lists(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the pairs and clicks of all stored rows (the mask is ignored), with a few blocks read ahead.

        This takes a third of the time of `chunks`.
        """
        for pair, click, _ in map_in_order(self._block_reader(), range(len(self.blocks))):
            yield pair if self.translation is None else self.translation[pair], click

    def _block_reader(self) -> Callable[[int], _StoredLists]:
        """Return a function that reads and checks a block, given its number.

        The function returns the stored pair numbers, the clicks, and the queries if they were found.
        """
        pairs, bits = self.files.map(PAIRS, "<i4"), self.files.map(CLICKS, "u1")
        checked = self.files.checked.issuperset(range(len(self.blocks)))
        queries = None if checked else query_ranges(self.stored or self.vocabulary)

        def read(number: int) -> _StoredLists:
            block = self.blocks[number]
            pair = np.asarray(pairs[block.pair_slice]).reshape(block.rows, block.ranks)
            packed = np.asarray(bits[block.click_slice]).reshape(block.rows, block.click_bytes)
            click = np.unpackbits(packed, axis=1, count=block.ranks).view(bool)
            query = None if queries is None else self.files.check_lists(number, pair, packed, click, queries)
            if block.ranks < self._padded_ranks:
                padding = ((0, 0), (0, self._padded_ranks - block.ranks))
                pair, click = np.pad(pair, padding, constant_values=UNSEEN), np.pad(click, padding)
            return pair, click, query

        return read

    def _column_reader(self) -> Callable[[int, np.ndarray], _StoredColumns] | None:
        """Return a function that reads the columns of results and the segments of a block; None if there are none.

        Its arguments are the number of the block, and where its lists show a document.
        """
        files = self.files
        results = files.map(RESULTS, "u1") if files.results.names else None
        codes = files.map(SEGMENTS, "<i2") if files.segments else None
        if results is None and codes is None:
            return None

        def read(number: int, shown: np.ndarray) -> _StoredColumns:
            matrices, segments = dict[str, np.ndarray](), dict[str, Segment]()
            if results is not None:
                values = files.read_results(number, np.asarray(results[files.results.block(number)]), shown)
                matrices = {name: as_matrix(column, shown, 0) for name, column in values.items()}
            if codes is not None:
                rows = self.blocks[number].row_slice
                width = len(files.segments)
                segments = files.read_segments(number, np.asarray(codes[width * rows.start : width * rows.stop]))
            return matrices, segments

        return read

    def _sessions(
        self,
        pair: np.ndarray,
        click: np.ndarray,
        query: np.ndarray | None,
        columns: Mapping[str, np.ndarray],
        results: Mapping[str, np.ndarray],
        segments: Mapping[str, Segment],
    ) -> Sessions:
        """Build the sessions of a block from what `_block_reader` and `_column_reader` return and its columns."""
        shown, has_holes = pair != UNSEEN, self.files.has_holes
        known_pair = pair.max(axis=1) if has_holes else pair[:, 0]
        if self.translation is None or self.translated_query is None:
            query = self.vocabulary.pair_query[known_pair].astype(np.int32) if query is None else query
        else:
            query, pair = self.translated_query[known_pair], self.translation[pair]
        rankings = Rankings.checked(
            self.vocabulary,
            query,
            pair,
            shown,
            columns.get("log_prob"),
            results.get(PROPENSITY_AT_RANK),
            segments,
            has_holes=None if has_holes else False,
        )
        count = columns.get("count")
        count = np.ones(len(pair), np.int64) if count is None else count
        signals = {name: values for name, values in results.items() if name != PROPENSITY_AT_RANK}
        return Sessions.checked(rankings, click, count, columns.get("time"), columns.get("user"), signals)

    def in_vocabulary(self, vocabulary: Vocabulary) -> EncodedLog:
        """Return the same log in the numbers of another vocabulary; blocks are translated as they are read."""
        if vocabulary.same_as(self.vocabulary):
            return self
        unseen = np.int32(UNSEEN)
        pairs = np.append(vocabulary.pairs_of(self.vocabulary), unseen)
        query = np.append(vocabulary.queries_of(self.vocabulary)[self.vocabulary.pair_query], unseen)
        if self.translation is not None:
            pairs, query = pairs[self.translation], query[self.translation]
        stored = self.stored or self.vocabulary
        return replace(self, vocabulary=vocabulary, translation=pairs, translated_query=query, stored=stored)

    def sessions(self, queries: Bool[np.ndarray, " query"] | None = None) -> Sessions:
        """Load all sessions, or those of some queries, into memory.

        Parameters
        ----------
        queries
            Mask of the queries to load; None for all.

        Raises
        ------
        DataError
            If there is no such session ("no-sessions").
        """
        chunks = self.chunks(narrow=True, user_ids=True)
        parts = (part if queries is None else part[queries[part.rankings.query]] for part in chunks)
        kept = [part for part in parts if len(part)]
        if not kept:
            raise DataError("no session of the log belongs to one of these queries.", code="no-sessions")
        return Sessions.concat(kept)

    def split(self, fraction: float, *, rng: int | np.random.Generator) -> tuple[EncodedLog, EncodedLog]:
        """Split the rows at random; a row that represents several sessions stays in one part.

        Parameters
        ----------
        fraction
            Expected share of the rows in the first part, between 0 and 1.
        rng
            Random seed or generator.

        Raises
        ------
        DataError
            If a part would be empty ("empty-split").
        """
        return self._split_at(as_generator(rng).random(len(self), np.float32) < fraction, fraction)

    def split_by_time(self, fraction: float) -> tuple[EncodedLog, EncodedLog]:
        """Split chronologically into the earliest `fraction` of the rows and the rest.

        Rows with the same time are in the order of the log, as in `Sessions.split_by_time`.

        Raises
        ------
        DataError
            If the log has no times ("missing-time") or a part would be empty ("empty-split").
        """
        if (time := self.time) is None:
            raise DataError(
                "a chronological split needs times: this log has none. Split at random or in order.",
                code="missing-time",
            )
        size = round(fraction * len(time))
        if not 0 < size < len(time):
            return self._split_at(np.full(len(time), size > 0), fraction)
        last = np.partition(time, size - 1)[size - 1]
        first = time < last
        first[np.flatnonzero(time == last)[: size - np.count_nonzero(first)]] = True
        return self._split_at(first, fraction)

    def split_in_order(self, fraction: float) -> tuple[EncodedLog, EncodedLog]:
        """Split into the first `fraction` of the rows, in the order of the log, and the rest."""
        return self._split_at(np.arange(len(self)) < round(fraction * len(self)), fraction)

    def split_within_queries(self, fraction: float) -> tuple[EncodedLog, EncodedLog]:
        """Split into the first `fraction` of each query's rows, in the order of the log, and the rest."""
        query = np.concatenate([part.rankings.query for part in self.chunks(narrow=True)])
        seen, first = np.zeros(self.vocabulary.n_queries, np.int64), np.zeros(len(query), bool)
        quota = np.rint(fraction * np.bincount(query, minlength=len(seen)))
        for begin in range(0, len(query), _ROWS_AT_ONCE):
            rows = slice(begin, begin + _ROWS_AT_ONCE)
            block_query, order = query[rows], np.argsort(query[rows], kind="stable")
            start = np.r_[0, np.flatnonzero(np.diff(block_query[order])) + 1]
            sizes = np.diff(np.r_[start, len(order)])
            row_of_query = np.empty(len(order), np.int64)
            row_of_query[order] = np.arange(len(order)) - np.repeat(start, sizes)
            first[rows] = seen[block_query] + row_of_query < quota[block_query]
            seen[block_query[order][start]] += sizes
        return self._split_at(first, fraction)

    def _split_at(self, first: Bool[np.ndarray, " row"], fraction: float) -> tuple[EncodedLog, EncodedLog]:
        """Return the parts inside and outside the mask `first`, or raise if one of them is empty."""
        if not 0 < fraction < 1 or first.all() or not first.any():
            raise DataError(
                f"both parts of a split must have a session: fraction {fraction} of {len(self)} rows leaves one part "
                "empty. Choose a fraction between 0 and 1, or use a larger log.",
                code="empty-split",
                fraction=fraction,
                total=len(self),
            )
        return self[first], self[~first]

    def __repr__(self) -> str:
        return f"EncodedLog({len(self):,} rows, up to {self.n_ranks} ranks, {self.vocabulary})"


Log = Sessions | EncodedLog
"""A log that can be counted, fitted on and evaluated; both kinds are read in `chunks`."""


def folder_of(log: Log) -> Path | None:
    """Return the directory of a log.

    Parameters
    ----------
    log
        Sessions or an encoded log.

    Returns
    -------
    Path or None
        Directory of an encoded log; None for sessions in memory.
    """
    return log.folder if isinstance(log, EncodedLog) else None


def weighted_chunks(log: Log, weight: np.ndarray | None) -> Iterator[tuple[Sessions, Float[np.ndarray, " session"]]]:
    """Yield the chunks of a log, each with the weight of its rows; a chunk may have fewer ranks than the log.

    Parameters
    ----------
    log
        Sessions or an encoded log.
    weight
        Weight of each row of the log; by default, its count.
    """
    row = 0
    for part in log.chunks(narrow=True):
        count = part.count if weight is None else weight[row : row + len(part)]
        row += len(part)
        yield part, count.astype(np.float64)


def weighted_arrays(log: Log, weight: np.ndarray | None) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield the chunks of a log as arrays of pairs, clicks and row weights, which is all that counting needs.

    Parameters
    ----------
    log
        Sessions or an encoded log.
    weight
        Weight of each row of the log; by default, its count.
    """
    if isinstance(log, EncodedLog) and weight is None and log.kept is None and not log.has_counts:
        ones = np.ones(max((block.rows for block in log.blocks), default=0))
        yield from ((pair, click, ones[: len(pair)]) for pair, click in log.lists())
    else:
        yield from ((part.rankings.pair, part.click, count) for part, count in weighted_chunks(log, weight))


def split_at_queries(vocabulary: Vocabulary, parts: int) -> Int[np.ndarray, " bound"]:
    """Return pair numbers that divide the vocabulary into about equal parts without dividing a query.

    Parameters
    ----------
    vocabulary
        The vocabulary to divide.
    parts
        Number of parts; fewer are returned if there are too few queries.

    Returns
    -------
    array
        Ascending bounds, from 0 to the number of pairs.
    """
    bounds = np.linspace(0, vocabulary.n_pairs, parts + 1)
    offsets = vocabulary.query_offsets
    return np.unique(offsets[np.searchsorted(offsets, bounds)])
