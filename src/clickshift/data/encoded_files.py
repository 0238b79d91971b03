"""Files of an encoded log: where its blocks are, their checksums, and the check of each block when it is first read.

Kernels index tables by pair number without checks, so that a changed file would corrupt memory. Each block is checked
once per process, by the thread that reads it: its checksum, which notices damage, and its numbers, because checksums
can be recomputed. `benchmarks/folder_checks.py` measures what that costs.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, final, no_type_check

import numpy as np
import xxhash
from numba import njit

from clickshift.core.artifacts import ArtifactFormat
from clickshift.core.parallel import for_each
from clickshift.data._encoded_columns import ResultColumns, check_codes, check_results, stored_segments
from clickshift.data.segments import Segment
from clickshift.data.sessions import MAX_TOTAL
from clickshift.data.vocabulary import UNSEEN, Ids, Vocabulary, texts_from_bytes
from clickshift.errors import FileError

PAIRS, CLICKS, RESULTS, SEGMENTS = "pair", "click", "result", "segment"
"""Names of the files of pair numbers, of click bits, of other columns of results, and of codes of segments."""
USERS = "user_ids"
"""Name of the array of text ids of users, whose numbers are the column "user"; integer ids are the column itself."""
COLUMNS = {"count": ("<i8",), "log_prob": ("<f8",), "user": ("<i8",), "time": ("<M8[us]", "<f8", "<i8")}
"""Columns of sessions, one file each, with the types that they may have."""
CHECKSUM = "xxh3_64"
"""Name of the checksum of new logs. It notices damage; it has no key, and so does not notice intent."""
CHECKSUMS: Mapping[str, Callable[[Any], int]] = {
    "xxh3_64": xxhash.xxh3_64_intdigest,
    "xxh64": xxhash.xxh64_intdigest,
    "crc32": zlib.crc32,
}
"""Checksums of an array of bytes by the name in the header; logs that name none have CRC-32, which takes longest."""
LOG_FORMAT = ArtifactFormat(
    "log", 4, "encode the log again", "clickshift log encode", (PAIRS, CLICKS, RESULTS, SEGMENTS, *COLUMNS)
)
"""Format of the directory's header and vocabulary."""
PLAIN_FORMAT = 3
"""Version of the format of logs without holes, columns of results and segments, which older programs read, too."""


QueryRanges = tuple[np.ndarray, np.ndarray]
"""Query of each pair, and bounds of the pairs of each query, in 32 bits: half of the memory, and of the time."""


def query_ranges(vocabulary: Vocabulary) -> QueryRanges:
    """Return the pairs of the queries of a vocabulary, for `LogFiles.check_lists`."""
    return vocabulary.pair_query.astype(np.int32), vocabulary.query_offsets.astype(np.int32)


@dataclass(frozen=True, eq=False)
class Block:
    """Position of a block of sessions in the files of an encoded log.

    Parameters
    ----------
    first_row
        Number of the block's first row in the log.
    rows
        Number of rows.
    ranks
        Number of ranks: the length of the longest list.
    first_pair
        Position of the first pair number in the file of pairs, in numbers.
    first_byte
        Position of the first byte in the file of clicks.
    """

    first_row: int
    rows: int
    ranks: int
    first_pair: int
    first_byte: int

    @property
    def row_slice(self) -> slice:
        """Rows of the block in the log."""
        return slice(self.first_row, self.first_row + self.rows)

    @property
    def pair_slice(self) -> slice:
        """Pair numbers of the block."""
        return slice(self.first_pair, self.first_pair + self.rows * self.ranks)

    @property
    def click_slice(self) -> slice:
        """Bytes of the block's clicks."""
        return slice(self.first_byte, self.first_byte + self.rows * self.click_bytes)

    @property
    def click_bytes(self) -> int:
        """Number of bytes of the clicks of a row."""
        return -(-self.ranks // 8)


@final
@dataclass(frozen=True, eq=False)
class LogFiles:
    """Files of an encoded log.

    Parameters
    ----------
    folder
        Directory of the files.
    names
        Name of each file: "pair", "click" and the session columns.
    blocks
        Positions of the blocks.
    kinds
        Numpy type of each session column.
    checksums
        Checksum of each block of "pair" and "click", and of each session column as a whole; empty for a log that was
        encoded before there were checksums.
    checksum
        Name of the checksum.
    checked
        What this process has checked: names of columns and numbers of blocks.
    has_holes
        Whether a list may have a hole.
    results
        Positions of the columns of results.
    segments
        Labels of each segment.
    users
        Lengths and bytes of the text ids of users; None if users are integers.
    """

    folder: Path
    names: Mapping[str, str]
    blocks: tuple[Block, ...]
    kinds: Mapping[str, str]
    checksums: Mapping[str, Sequence[int]]
    checksum: str = CHECKSUM
    checked: set[str | int] = field(default_factory=set)
    has_holes: bool = False
    results: ResultColumns = field(default_factory=ResultColumns)
    segments: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    users: tuple[np.ndarray, np.ndarray] | None = None

    @classmethod
    def of(
        cls, folder: Path, header: Mapping[str, Any], users: tuple[np.ndarray, np.ndarray] | None = None
    ) -> LogFiles:
        """Read the positions from a header, and check them and the sizes of the files.

        Raises
        ------
        FileError
            If a file is missing ("file-not-found").
        ValueError
            If the positions or sizes are not those of an encoded log.
        """
        blocks = tuple(Block(*map(_integer, fields)) for fields in header["blocks"])
        kinds, names = dict(header["kinds"]), LOG_FORMAT.file_names(header)
        for name, kind in kinds.items():
            if kind not in COLUMNS.get(name, ()):
                raise ValueError(f"the column {name!r} cannot have the type {kind!r}")
        rows = pairs = bytes_ = 0
        for block in blocks:
            if block.rows < 1 or block.ranks < 1:
                raise ValueError("a block must have rows and ranks")
            if (block.first_row, block.first_pair, block.first_byte) != (rows, pairs, bytes_):
                raise ValueError("blocks must follow each other")
            rows, pairs, bytes_ = rows + block.rows, block.pair_slice.stop, block.click_slice.stop
        if not blocks:
            raise ValueError("there must be a block")
        results, segments = ResultColumns.of(header, len(blocks)), stored_segments(header)
        sizes = {PAIRS: 4 * pairs, CLICKS: bytes_, **dict.fromkeys(kinds, 8 * rows)}
        sizes |= {RESULTS: results.ends[-1]} if results.names else {}
        sizes |= {SEGMENTS: 2 * rows * len(segments)} if segments else {}
        for name, size in sizes.items():
            try:
                found = (folder / names[name]).stat().st_size
            except FileNotFoundError:
                raise FileError(
                    folder / names[name], f"is missing. {LOG_FORMAT.advice}", code="file-not-found"
                ) from None
            if found != size:
                raise ValueError(f"{names[name]} must have {size:,} bytes: it has {found:,}")
        checksums = header.get("checksums", {})
        lengths = {name: 1 if name in kinds else len(blocks) for name in sizes}
        if checksums and {name: len(sums) for name, sums in checksums.items()} != lengths:
            raise ValueError("there must be a checksum of each block and of each column")
        checksum = header.get("checksum", "crc32")
        if checksum not in CHECKSUMS:
            raise ValueError(f"a checksum must be one of {', '.join(CHECKSUMS)}: got {checksum!r}")
        has_holes = header.get("holes", False) is True
        return cls(
            *(folder, names, blocks, kinds, checksums, checksum),
            has_holes=has_holes,
            results=results,
            segments=segments,
            users=users,
        )

    def map(self, name: str, dtype: str) -> np.ndarray:
        """Map a file into memory.

        Raises
        ------
        FileError
            If the file is gone, e.g. because the log was encoded again ("file-not-found").
        """
        path = self.folder / self.names[name]
        try:
            return np.memmap(path, np.dtype(dtype), "r")
        except OSError as error:
            raise FileError(
                path,
                f"cannot be read ({error.strerror}): the log was removed or encoded again. Open it again.",
                code="file-not-found",
            ) from None

    def check_lists(
        self, number: int, pair: np.ndarray, packed: np.ndarray, click: np.ndarray, queries: QueryRanges
    ) -> np.ndarray | None:
        """Check the lists and clicks of a block that was read, unless this process has checked them before.

        Parameters
        ----------
        number
            Number of the block.
        pair
            Its pair numbers.
        packed
            Its clicks as they are stored.
        click
            Its clicks.
        queries
            Pairs of the queries in the vocabulary of the stored pair numbers.

        Returns
        -------
        array or None
            Query of each row, which the check finds in passing; None if there was nothing to check.

        Raises
        ------
        FileError
            If the block was changed ("damaged-file").
        """
        if number in self.checked:
            return None
        row = self.blocks[number].first_row
        for name, content in ((PAIRS, pair), (CLICKS, packed)):
            if self.checksums and self._checksum(content) != self.checksums[name][number]:
                raise self._damaged(name, "its checksum is wrong", row)
        query = np.empty(len(pair), np.int32)
        bad = int(_first_bad_row(pair, click, *queries, self.has_holes, query))
        if bad >= 0:
            rule = f"a list must have pairs of one query, from 0 to {len(queries[0]) - 1}, and clicks on them only"
            raise self._damaged(PAIRS, rule, row + bad)
        self.checked.add(number)
        return query

    def read_results(self, number: int, content: np.ndarray, shown: np.ndarray) -> dict[str, np.ndarray]:
        """Unpack the columns of results of a block, and check them if this process has not done that before.

        Parameters
        ----------
        number
            Number of the block.
        content
            Its bytes.
        shown
            Where its lists show a document.

        Raises
        ------
        FileError
            If the block was changed ("damaged-file").
        """
        row, key = self.blocks[number].first_row, f"{RESULTS} {number}"
        if self.results.n_results[number] != np.count_nonzero(shown):
            raise self._damaged(RESULTS, "there must be a value of each result", row)
        if key not in self.checked and self.checksums and self._checksum(content) != self.checksums[RESULTS][number]:
            raise self._damaged(RESULTS, "its checksum is wrong", row)
        try:
            values = self.results.unpack(number, content)
            if key not in self.checked:
                check_results(values)
        except ValueError as error:
            raise self._damaged(RESULTS, str(error), row) from None
        self.checked.add(key)
        return values

    def read_segments(self, number: int, codes: np.ndarray) -> dict[str, Segment]:
        """Return the segments of a block, and check them if this process has not done that before.

        Parameters
        ----------
        number
            Number of the block.
        codes
            Codes of its rows: one segment after the other.

        Raises
        ------
        FileError
            If the block was changed ("damaged-file").
        """
        row, key = self.blocks[number].first_row, f"{SEGMENTS} {number}"
        matrix = codes.reshape(len(self.segments), -1)
        if key not in self.checked:
            if self.checksums and self._checksum(codes) != self.checksums[SEGMENTS][number]:
                raise self._damaged(SEGMENTS, "its checksum is wrong", row)
            try:
                check_codes(matrix, list(self.segments.values()))
            except ValueError as error:
                raise self._damaged(SEGMENTS, str(error), row) from None
            self.checked.add(key)
        segments = zip(self.segments.items(), matrix, strict=True)
        return {name: Segment.checked(labels, column.astype(np.int32)) for (name, labels), column in segments}

    def column(self, name: str) -> np.ndarray:
        """Map a session column from its file, and check it if this process has not done that before.

        Raises
        ------
        FileError
            If the column was changed ("damaged-file").
        """
        column = self.map(name, self.kinds[name])
        if name not in self.checked:
            self.check_column(name, np.asarray(column))
            self.checked.add(name)
        return column

    def user_ids(self, number: np.ndarray) -> np.ndarray:
        """Return the ids of users by the values of their column.

        Raises
        ------
        FileError
            If there are no such ids ("damaged-file").
        """
        if self.users is None:
            return number
        try:
            ids = self._user_ids
        except ValueError as error:
            raise self._damaged("user", f"ids of users must be texts: {error}", 0) from None
        if len(number) and not 0 <= number.min() <= number.max() < len(ids):
            raise self._damaged("user", f"the number of a user must be from 0 to {len(ids) - 1:,}", 0)
        found: np.ndarray = ids[number]
        return found

    @cached_property
    def _user_ids(self) -> Ids:
        """Text ids of users by number."""
        assert self.users is not None
        return texts_from_bytes(*self.users)

    def check_column(self, name: str, column: np.ndarray) -> None:
        """Check a session column; it raises like `column`."""
        if self.checksums and self._checksum(column) != self.checksums[name][0]:
            raise self._damaged(name, "its checksum is wrong", 0)
        if name == "count" and not (column.min() >= 1 and column.sum(dtype=np.float64) < MAX_TOTAL):
            raise self._damaged(name, "a count must be 1 or more, and all counts together below 2^62", 0)
        # the smallest and the largest number are NaN or NaT if any is
        if name == "log_prob" and not (column.min() > -np.inf and column.max() <= 1e-9):
            raise self._damaged(name, "a propensity must be a probability above 0 and at most 1", 0)
        if name == "time" and not np.isfinite([column.min(), column.max()]).all():
            raise self._damaged(name, "a time must not be missing", 0)

    def _checksum(self, content: np.ndarray) -> int:
        """Return the checksum of an array by the rule of this log."""
        return CHECKSUMS[self.checksum](content.reshape(-1).view(np.uint8))

    def _damaged(self, name: str, rule: str, row: int) -> FileError:
        """Return the error for a file that was changed."""
        path = self.folder / self.names[name]
        problem = f"is damaged: {rule}. Delete {self.folder} and encode the log again."
        return FileError(path, problem, place=f"session {row + 1}", code="damaged-file", row=row + 1, rule=rule)


def checksums_of(
    folder: Path, blocks: Sequence[Block], kinds: Mapping[str, str], results: ResultColumns, n_segments: int
) -> dict[str, list[int]]:
    """Return the checksums of the files of a new encoded log, named pair.bin and so on, as `LogFiles` has them.

    Parameters
    ----------
    folder
        Directory of the files.
    blocks
        Positions of the blocks.
    kinds
        Numpy type of each session column.
    results
        Positions of the columns of results.
    n_segments
        Number of segments.
    """
    checksum = CHECKSUMS[CHECKSUM]
    parts = {PAIRS: [slice(4 * b.pair_slice.start, 4 * b.pair_slice.stop) for b in blocks]}
    parts |= {CLICKS: [block.click_slice for block in blocks]}
    parts |= {RESULTS: [results.block(k) for k in range(len(blocks))]} if results.names else {}
    if n_segments:
        ends = [2 * n_segments * block.row_slice.stop for block in blocks]
        parts |= {SEGMENTS: [slice(start, stop) for start, stop in pairwise([0, *ends])]}
    files = {name: np.memmap(folder / f"{name}.bin", "u1", "r") for name in parts}
    sums = {name: [0] * len(blocks) for name in parts}

    def add(k: int) -> None:
        for name, slices in parts.items():
            sums[name][k] = checksum(np.asarray(files[name][slices[k]]))

    for_each(add, len(blocks))
    return sums | {name: [checksum(np.asarray(np.memmap(folder / f"{name}.bin", "u1", "r")))] for name in kinds}


def _integer(value: Any) -> int:
    """Return a number of a header that must be an integer."""
    if type(value) is not int:
        raise ValueError(f"positions must be integers: got {value!r}")
    return value


@njit(cache=True, nogil=True)
@no_type_check
def _first_bad_row(pair, click, pair_query, query_offsets, has_holes, query):
    """Return the first row that is empty, has pairs out of range or of other queries, clicks on nothing, or a gap.

    A gap is a hole if the log may have holes. The row is -1 if all are right; `query` is filled with the query of each
    row. The pairs of a query are contiguous: one look-up gives the range for a whole list.
    """
    n, ranks = pair.shape
    for i in range(n):
        first = pair[i, 0]
        if has_holes:
            for r in range(1, ranks):
                if first != UNSEEN:
                    break
                first = pair[i, r]
        if first < 0 or first >= len(pair_query):
            return i
        low = high = first
        for r in range(1, ranks):
            low, high = min(low, pair[i, r]), max(high, pair[i, r])
        query[i] = pair_query[first]
        start, stop = query_offsets[query[i]], query_offsets[query[i] + 1]
        if high >= stop:
            return i
        if low >= start and pair[i, 0] >= start:  # a full list, as most are
            continue
        if has_holes:
            for r in range(ranks):
                if pair[i, r] < start and (pair[i, r] != UNSEEN or click[i, r]):
                    return i
            continue
        length = 1
        while length < ranks and pair[i, length] >= start:
            length += 1
        for r in range(length, ranks):
            if pair[i, r] != UNSEEN or click[i, r]:
                return i
    return -1
