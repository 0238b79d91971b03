"""Encode a log once: from batches of raw ids to the memory-mapped row numbers of an `EncodedLog`.

Threads read and hash batches; one thread numbers new ids and writes. Pairs are numbered in order of appearance. At the
end the vocabulary is sorted, as every vocabulary is, and the numbers in the file are replaced by those of the
vocabulary: the same log gives the same numbers, however it was read.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, no_type_check

import numpy as np
from jaxtyping import Int
from numba import njit

from clickshift.core.parallel import for_each, map_in_order
from clickshift.core.progress import Progress, silent
from clickshift.data._encoded_columns import CODES, ResultColumns, blocks_of_similar_lists, pack_results
from clickshift.data.encoded_files import (
    CHECKSUM,
    CLICKS,
    COLUMNS,
    LOG_FORMAT,
    PAIRS,
    PLAIN_FORMAT,
    RESULTS,
    SEGMENTS,
    USERS,
    Block,
    LogFiles,
    checksums_of,
)
from clickshift.data.encoded_log import SMALL_BLOCK, EncodedLog
from clickshift.data.segments import UNKNOWN, check_number_of_labels
from clickshift.data.sessions import MAX_PADDING, as_matrix, check_total
from clickshift.data.vocabulary import UNSEEN, Vocabulary, pack_vocabulary, text_bytes, unpack_vocabulary
from clickshift.errors import ClickshiftWarning, DataError, FileError
from clickshift.io.encode._hash_batch import HashedBatch, HashedIds, TextIdsFound, hash_batch
from clickshift.io.encode._id_table import IdTable
from clickshift.io.encode.batches import DamagedFile, ReadBatch
from clickshift.io.read_report import ReadReport

_DATES = "<M8[us]"
_MAX_HOLES = 1 << 27
"""Number of places that the lists of a log may have, however few results there are."""


def write_encoded_log(
    batches: Callable[[], Iterator[ReadBatch | DamagedFile]],
    folder: Path,
    *,
    report: ReadReport,
    facts: dict[str, Any],
    progress: Progress = silent,
) -> EncodedLog:
    """Encode a log into a folder, which appears complete or not at all.

    Parameters
    ----------
    batches
        Function that starts reading the log from the beginning; it is called again if ids turn out to be text.
    folder
        Folder of the encoded log.
    report
        Whether sessions that break a rule and files that cannot be read are errors, or left out and counted here, and
        the name of the log in messages.
    facts
        Description of the log to be stored with it.
    progress
        Called with a text such as "65,536 sessions encoded".

    Returns
    -------
    EncodedLog
        The log in the folder.

    Raises
    ------
    FileError
        "empty-log" if there is no session, "not-writable" or "disk-full" if the folder cannot be written, and those of
        the readers.
    DataError
        "bad-column" if some files have numbers as times and others dates, "too-many-sessions" if the counts add up to
        2^62 or more.
    """
    text = frozenset[str]()
    while True:
        try:
            return _encode(batches(), folder, report.new(), facts, progress, text)
        except TextIdsFound as error:
            text |= error.columns


def open_encoded(folder: Path) -> EncodedLog:
    """Open a log that `write_encoded_log` wrote.

    Parameters
    ----------
    folder
        Folder of the encoded log.

    Returns
    -------
    EncodedLog
        The log; a warning (code "skipped-sessions") repeats what was left out when it was encoded.

    Raises
    ------
    FileError
        If the folder holds something else, is damaged, or is of a newer version.
    """
    header, arrays = LOG_FORMAT.read(folder)
    with LOG_FORMAT.checking(folder):
        vocabulary, facts = unpack_vocabulary(header["vocabulary"], arrays), header["facts"]
        users = (arrays[f"{USERS}.length"], arrays[USERS]) if USERS in arrays else None
        log = EncodedLog(LogFiles.of(folder, header, users), vocabulary, facts)
        n_sessions, n_files = int(facts["sessions_left_out"]), len(facts["files_left_out"])
    if n_sessions or n_files:
        message = (
            f"{folder}: {n_sessions:,} bad sessions and the unreadable parts of {n_files:,} file(s) were left out of "
            "this log."
        )
        warnings.warn(
            ClickshiftWarning(message, code="skipped-sessions", count=n_sessions, files=n_files), stacklevel=3
        )
    return log


def copy_encoded(log: EncodedLog, folder: Path) -> EncodedLog:
    """Copy an encoded log to another folder, after a check of all its blocks.

    Parameters
    ----------
    log
        Encoded log, all rows in its own vocabulary.
    folder
        Folder of the copy.

    Returns
    -------
    EncodedLog
        The copy.

    Raises
    ------
    FileError
        "folder-exists" if the folder has something else, "damaged-file" if the log is damaged, "not-writable" or
        "disk-full" if the folder cannot be written.
    DataError
        "part-of-a-log" if the log is a part of one, or was translated to another vocabulary.
    """
    if log.kept is not None or log.stored is not None:
        raise DataError(
            "a part of an encoded log cannot be copied: pass the log itself, or write the part with write_log.",
            code="part-of-a-log",
        )
    refuse_other_folder(folder)
    content = _Content.of(log.files)
    for name in log.kinds:
        log.files.column(name)
    for _ in log.lists() if content.is_plain else log.chunks():
        pass
    with LOG_FORMAT.replacing(folder) as temporary:
        for name in content.files:
            shutil.copyfile(log.folder / log.files.names[name], temporary / f"{name}.bin")
        header = _write_header(temporary, content, log.vocabulary, dict(log.facts))
    return EncodedLog(LogFiles.of(folder, header, content.users), log.vocabulary, log.facts)


def refuse_other_folder(folder: Path) -> None:
    """Raise if a folder exists and has no encoded log ("folder-exists"): nothing else is overwritten.

    Parameters
    ----------
    folder
        Folder for an encoded log.
    """
    if folder.exists() and not (folder / LOG_FORMAT.header).exists():
        raise FileError(
            folder, "exists already and is not an encoded log. Choose another directory.", code="folder-exists"
        )


def _encode(
    batches: Iterator[ReadBatch | DamagedFile],
    folder: Path,
    report: ReadReport,
    facts: dict[str, Any],
    progress: Progress,
    text: frozenset[str],
) -> EncodedLog:
    """Encode a log whose ids are text in the columns of `text` and integers in the others."""
    with LOG_FORMAT.replacing(folder) as temporary:
        with ExitStack() as stack:
            writer = _Writer(temporary, stack)
            for hashed in map_in_order(partial(_prepare, skip_bad=report.skip, text=text), batches):
                if isinstance(hashed, DamagedFile):
                    report.damaged_file(hashed.path, hashed.problem)
                    continue
                for batch in hashed:
                    report.skipped_sessions(batch.n_skipped, batch.n_read, batch.first_skipped)
                    if len(batch.start) > 1:
                        writer.add(batch)
                        progress(f"{writer.n_rows:,} sessions encoded")
        if not writer.blocks:
            report.fail_empty("session to read", "empty-log")
        vocabulary, numbers = writer.vocabulary()
        _renumber(temporary / f"{PAIRS}.bin", writer.blocks, numbers)
        content = writer.content()
        all_facts = {
            **facts,
            "sessions_left_out": report.n_sessions,
            "files_left_out": report.files,
        }
        header = _write_header(temporary, content, vocabulary, json.loads(json.dumps(all_facts)))
    report.report()
    return EncodedLog(LogFiles.of(folder, header, content.users), vocabulary, all_facts)


@dataclass(frozen=True, eq=False)
class _Content:
    """What the files of an encoded log hold besides its vocabulary, as `LogFiles` has it."""

    blocks: Sequence[Block]
    kinds: Mapping[str, str]
    has_holes: bool
    results: ResultColumns
    segments: Mapping[str, tuple[str, ...]]
    users: tuple[np.ndarray, np.ndarray] | None = None

    @classmethod
    def of(cls, files: LogFiles) -> _Content:
        """Return the content of the files of a log."""
        return cls(files.blocks, files.kinds, files.has_holes, files.results, files.segments, files.users)

    @property
    def is_plain(self) -> bool:
        """Whether the log has neither holes, nor columns of results, nor segments."""
        return not (self.has_holes or self.results.names or self.segments)

    @property
    def files(self) -> list[str]:
        """Names of the files."""
        extra = [RESULTS] * bool(self.results.names) + [SEGMENTS] * bool(self.segments)
        return [PAIRS, CLICKS, *extra, *self.kinds]

    def to_header(self) -> dict[str, Any]:
        """Return the entries of the header that a log without any of this does not have."""
        entries = self.results.to_header()
        entries |= {"segments": {name: list(labels) for name, labels in self.segments.items()}} if self.segments else {}
        entries |= {"holes": True} if self.has_holes else {}
        return entries | ({"format": PLAIN_FORMAT} if self.is_plain else {})


def _write_header(folder: Path, content: _Content, vocabulary: Vocabulary, facts: dict[str, Any]) -> dict[str, Any]:
    """Write the header and the vocabulary of a log whose other files are complete; they are named by a digest."""
    arrays: dict[str, np.ndarray] = {}
    if content.users is not None:
        arrays[f"{USERS}.length"], arrays[USERS] = content.users
    blocks, kinds = content.blocks, content.kinds
    positions = [[block.first_row, block.rows, block.ranks, block.first_pair, block.first_byte] for block in blocks]
    header = {
        "vocabulary": pack_vocabulary(vocabulary, arrays),
        "blocks": positions,
        "kinds": dict(kinds),
        "facts": facts,
        "checksum": CHECKSUM,
        "checksums": checksums_of(folder, blocks, kinds, content.results, len(content.segments)),
        **content.to_header(),
    }
    digest = hashlib.blake2b(json.dumps(header).encode(), digest_size=8).hexdigest()
    names = {name: f"{name}-{digest}.bin" for name in content.files}
    for name, file in names.items():
        (folder / f"{name}.bin").rename(folder / file)
    return LOG_FORMAT.write_files(folder, header, arrays, names)


def _prepare(read: ReadBatch | DamagedFile, *, skip_bad: bool, text: frozenset[str]) -> list[HashedBatch] | DamagedFile:
    """Read, check and hash a batch; a file that cannot be read is an error unless bad input is skipped."""
    if isinstance(read, DamagedFile):
        if not skip_bad:
            raise read.error()
        return read
    try:
        return [hash_batch(part, skip_bad=skip_bad, text=text) for part in read() if len(part.table) or part.unreadable]
    except FileError as error:
        if not skip_bad:
            raise
        return DamagedFile.of(error.path, error)


class _Writer:
    """Appends blocks of sessions to the files of an encoded log, and numbers new ids."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.blocks: list[Block] = []
        self.kinds: dict[str, str] = {}
        self._folder, self._stack = folder, stack
        self._files: dict[str, IO[bytes]] = {}
        self._queries, self._docs, self._pairs, self._users = IdTable(), IdTable(), IdTable(), IdTable()
        self._user_ids: list[Any] = []
        self._query_ids: list[Any] = []
        self._doc_ids: list[Any] = []
        self._pair_query: list[np.ndarray] = []
        self._pair_doc: list[np.ndarray] = []
        self.n_rows = self._pair_offset = self._click_offset = self._n_results = 0
        self._total = 0.0
        self._has_holes = False
        self._results: tuple[str, ...] = ()
        self._forms: list[str] = []
        self._results_of_block: list[int] = []
        self._labels: dict[str, dict[str, int]] = {}

    def add(self, batch: HashedBatch) -> None:
        """Append the sessions of a batch: in one block, or in several if their lists have very different lengths."""
        query, new_queries = self._queries.number(batch.query.hashes)
        self._query_ids.append(batch.query.take(new_queries))
        pair, new_pairs = self._pairs.number(batch.pair)
        doc, new_docs = self._docs.number(batch.doc.hashes[:, new_pairs])
        self._doc_ids.append(batch.doc.take(new_pairs[new_docs]))
        self._pair_doc.append(doc)
        length = np.diff(batch.start)
        owner = np.searchsorted(batch.start, new_pairs, side="right") - 1
        self._pair_query.append(query[owner])
        extent = length if batch.rank is None else batch.rank[batch.start[1:] - 1] + 1
        self._has_holes |= batch.rank is not None
        for rows in blocks_of_similar_lists(extent, length, MAX_PADDING, SMALL_BLOCK):
            results = slice(batch.start[rows.start], batch.start[rows.stop])
            rank = None if batch.rank is None else batch.rank[results]
            self._add_block(pair[results], batch.click[results], length[rows], int(extent[rows].max()), rank)
            self._add_results({name: values[results] for name, values in batch.results.items()}, len(pair[results]))
            self._add_segments({name: (labels, code[rows]) for name, (labels, code) in batch.segments.items()})
        self._n_results += len(pair)
        self._check_holes()
        self._add_attributes(batch.attributes | self._numbered_users(batch.user))

    def _numbered_users(self, users: HashedIds | None) -> dict[str, np.ndarray]:
        """Return the column of users: integer ids as they are, text ids by number, in order of appearance."""
        if users is None:
            return {}
        if (integers := users.integers()) is not None:
            return {"user": integers}
        number, new = self._users.number(users.hashes)
        self._user_ids.append(users.take(new))
        return {"user": number}

    def _check_holes(self) -> None:
        """Raise if nearly all places of the lists are holes, which are stored as results are."""
        places, results = self._pair_offset, self._n_results
        if self._has_holes and places > max(MAX_PADDING * results, _MAX_HOLES):
            raise DataError(
                f"lists must not consist of holes: {self.n_rows:,} lists with {results:,} results have "
                f"{places:,} ranks down to their last results. Are the ranks right? Remove results at very low ranks, "
                "or number ranks by what was shown.",
                code="lists-too-long",
                sessions=self.n_rows,
                ranks=places,
                results=results,
            )

    def _add_block(
        self, pair: np.ndarray, click: np.ndarray, length: np.ndarray, ranks: int, rank: np.ndarray | None
    ) -> None:
        """Append the lists of some sessions as a rectangle."""
        rows = len(length)
        if len(pair) < rows * ranks:
            if rank is None:
                shown = np.arange(ranks) < length[:, None]
            else:
                shown = np.zeros((rows, ranks), bool)
                shown[np.repeat(np.arange(rows), length), rank] = True
            pair, click = as_matrix(pair, shown, UNSEEN), as_matrix(click, shown, False)
        bits = np.packbits(click.reshape(rows, ranks), axis=1)
        self._file(PAIRS).write(np.ascontiguousarray(pair).data)
        self._file(CLICKS).write(bits.data)
        self.blocks.append(Block(self.n_rows, rows, ranks, self._pair_offset, self._click_offset))
        self.n_rows += rows
        self._pair_offset += rows * ranks
        self._click_offset += bits.size

    def _add_results(self, columns: dict[str, np.ndarray], n_results: int) -> None:
        """Append the columns of results of a block."""
        if not columns:
            return
        self._results = tuple(columns)  # files of one log have the same columns
        packed = [pack_results(values) for values in columns.values()]
        for _, content in packed:
            self._file(RESULTS).write(content)
        self._forms.append("".join(form for form, _ in packed))
        self._results_of_block.append(n_results)

    def _add_segments(self, segments: dict[str, tuple[Sequence[str], np.ndarray]]) -> None:
        """Append the codes of the segments of a block; labels are numbered in order of appearance."""
        for name, (labels, code) in segments.items():
            numbers = self._labels.setdefault(name, {})
            translation = [numbers.setdefault(label, len(numbers)) for label in labels]
            check_number_of_labels(len(numbers), name)
            self._file(SEGMENTS).write(np.array([*translation, UNKNOWN])[code].astype(CODES).tobytes())

    def content(self) -> _Content:
        """Return what the files hold, once the labels of segments are numbered in alphabetical order."""
        for k, numbers in enumerate(self._labels.values()):
            order = {label: number for number, label in enumerate(sorted(numbers))}
            new = np.array([*(order[label] for label in numbers), UNKNOWN], CODES)
            codes = np.memmap(self._folder / f"{SEGMENTS}.bin", CODES, "r+")
            for block in self.blocks:
                start = len(self._labels) * block.first_row + k * block.rows
                codes[start : start + block.rows] = new[codes[start : start + block.rows]]
            codes.flush()
        labels = {name: tuple(sorted(numbers)) for name, numbers in self._labels.items()}
        results = ResultColumns(self._results, tuple(self._forms), tuple(self._results_of_block))
        users = text_bytes(_concatenated(self._user_ids)) if self._user_ids else None
        return _Content(self.blocks, self.kinds, self._has_holes, results, labels, users)

    def _add_attributes(self, attributes: dict[str, np.ndarray]) -> None:
        """Append the values of the sessions, each attribute to its own file."""
        for name, values in attributes.items():
            dtype = self.kinds.setdefault(name, COLUMNS[name][0] if name != "time" else _time_dtype(values))
            if (values.dtype.kind == "M") != (dtype == _DATES):
                raise DataError(
                    "the time must have one type in all files: got numbers in some and dates in others.",
                    code="bad-column",
                    column="time",
                )
            if name == "count":
                self._total += float(values.sum(dtype=np.float64))
                check_total(self._total)
            self._file(name).write(values.astype(dtype).tobytes())

    def _file(self, name: str) -> IO[bytes]:
        """Return the open file of a name."""
        if name not in self._files:
            self._files[name] = self._stack.enter_context((self._folder / f"{name}.bin").open("wb"))
        return self._files[name]

    def vocabulary(self) -> tuple[Vocabulary, Int[np.ndarray, " pair_or_unseen"]]:
        """Return the sorted vocabulary of all pairs, and the number there of each pair in order of appearance.

        The last element of the numbers is `UNSEEN`, which is where the index `UNSEEN` (-1) points.
        """
        import pyarrow as pa

        ids = self._query_ids, self._doc_ids
        numbers = self._pair_query, self._pair_doc
        self._query_ids, self._doc_ids, self._pair_query, self._pair_doc = [], [], [], []
        query, doc = (
            pa.DictionaryArray.from_arrays(pa.array(np.concatenate(number), pa.int32()), pa.concat_arrays(names))
            for number, names in zip(numbers, ids, strict=True)
        )
        vocabulary, _, pair = Vocabulary.of(query, doc)
        return vocabulary, np.append(pair, np.int32(UNSEEN))


def _concatenated(texts: Sequence[Any]) -> Any:
    """Return several pyarrow arrays of texts as one."""
    import pyarrow as pa

    return pa.concat_arrays([array.cast(pa.large_string()) for array in texts])


def _time_dtype(values: np.ndarray) -> str:
    """Return the dtype in which times are stored: dates, floats or integers."""
    return {"M": _DATES, "f": "<f8"}.get(values.dtype.kind, "<i8")


def _renumber(path: Path, blocks: list[Block], numbers: Int[np.ndarray, " pair_or_unseen"]) -> None:
    """Replace the pair numbers of a file by those of the sorted vocabulary."""
    pairs = np.memmap(path, np.int32, "r+")

    def work(k: int) -> None:
        block = blocks[k]
        _look_up(pairs[block.first_pair : block.first_pair + block.rows * block.ranks], numbers)

    for_each(work, len(blocks))
    pairs.flush()


@njit(cache=True, nogil=True)
@no_type_check
def _look_up(pairs, numbers):
    """Replace pair numbers in place."""
    for i in range(len(pairs)):
        pairs[i] = numbers[pairs[i]]
