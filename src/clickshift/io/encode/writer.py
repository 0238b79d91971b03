"""Encode a log once: from batches of raw ids to the memory-mapped numbers of an `EncodedLog`.

Threads read and hash batches; one numbers what is new and writes. Pairs get their numbers as they appear. At the end
the vocabulary is sorted, as any other, and the numbers in the file become those of the vocabulary: the same log gives
the same numbers, however it was read.
"""

from __future__ import annotations

import os
import secrets
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any, no_type_check

import numpy as np
from jaxtyping import Int
from numba import njit

from clickshift.core.parallel import for_each, map_in_order
from clickshift.data.encoded_log import CLICKS, FOLDER, PAIRS, Block, EncodedLog, header_of
from clickshift.data.vocabulary import UNSEEN, Vocabulary, pack_vocabulary, unpack_vocabulary
from clickshift.errors import ClickshiftWarning, DataError, FileError
from clickshift.io.encode._hash_batch import HashedBatch, TextIdsFound, hash_batch
from clickshift.io.encode._id_table import IdTable
from clickshift.io.encode.batches import DamagedFile, ReadBatch

_DATES = "<M8[us]"
_KINDS = {"count": "<i8", "log_prob": "<f8", "user": "<i8"}


@dataclass
class _SkippedInput:
    """What was left out, and why."""

    sessions: int = 0
    first: str = ""
    files: list[DamagedFile] = field(default_factory=list)

    def report(self) -> None:
        told = [f"skipped {self.sessions:,} sessions, the first: {self.first}"] if self.sessions else []
        if self.files:
            first = f"{self.files[0].path}: {self.files[0].problem}"
            told.append(f"skipped what cannot be read of {len(self.paths):,} file(s), the first: {first}")
        if told:
            warnings.warn(f"{'; '.join(told)}.", ClickshiftWarning, stacklevel=3)

    @property
    def paths(self) -> list[str]:
        """Of a file, some parts may have been read and others not."""
        return list(dict.fromkeys(str(damaged.path) for damaged in self.files))


def write_encoded_log(
    batches: Callable[[], Iterator[ReadBatch | DamagedFile]],
    folder: Path,
    *,
    skip_bad: bool,
    told: str,
    facts: dict[str, Any],
    progress: Callable[[int], None] = lambda rows: None,
) -> EncodedLog:
    """Write a log's numbers to a folder, which is there complete or not at all.

    With `skip_bad` sessions that break a rule and files that cannot be read are left out, counted, and told in one
    warning; otherwise the first one is an error.
    """
    text = frozenset(["user"])
    while True:
        try:
            return _encode(batches(), folder, skip_bad, told, facts, progress, text)
        except TextIdsFound as found:
            text |= found.columns


def open_encoded(folder: Path) -> EncodedLog:
    """What `write_encoded_log` wrote. A folder of another kind, damaged or newer is refused."""
    header, arrays = FOLDER.read(folder)
    try:
        blocks = tuple(Block(*places) for places in header["blocks"])
        found = EncodedLog(
            folder, unpack_vocabulary(header["vocabulary"], arrays), blocks, header["kinds"], header["facts"]
        )
        wanted = 4 * sum(block.rows * block.ranks for block in blocks)
        if (folder / PAIRS).stat().st_size != wanted:
            raise ValueError(f"{PAIRS} must have {wanted:,} bytes")
        sessions, files = int(header["facts"]["sessions_left_out"]), len(header["facts"]["files_left_out"])
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise FOLDER.damaged(folder, error) from None
    if sessions or files:
        said = f"{sessions:,} bad sessions and what could not be read of {files:,} file(s) were left out of this log."
        warnings.warn(f"{folder}: {said}", ClickshiftWarning, stacklevel=3)
    return found


def _encode(
    batches: Iterator[ReadBatch | DamagedFile],
    folder: Path,
    skip_bad: bool,
    told: str,
    facts: dict[str, Any],
    progress: Callable[[int], None],
    text: frozenset[str],
) -> EncodedLog:
    left = _SkippedInput()
    with _new_folder(folder) as place:
        with ExitStack() as stack:
            writer = _Writer(place, stack)
            for many in map_in_order(partial(_prepare, skip_bad=skip_bad, text=text), batches):
                if isinstance(many, DamagedFile):
                    left.files.append(many)
                    continue
                for some in many:
                    left.sessions += some.skipped
                    left.first = left.first or some.first_fault
                    if len(some.start) > 1:
                        writer.add(some)
                        progress(len(some.start) - 1)
        if not writer.blocks:
            raise FileError(told, f"there must be at least one session to read: {left.first or 'it has no rows'}.")
        vocabulary, final = writer.vocabulary()
        _renumber(place / PAIRS, writer.blocks, final)
        noted = {
            **facts,
            "sessions_left_out": left.sessions,
            "files_left_out": left.paths,
        }
        arrays: dict[str, np.ndarray] = {}
        header = header_of(tuple(writer.blocks), writer.kinds, noted)
        FOLDER.write(place, {"vocabulary": pack_vocabulary(vocabulary, arrays), **header}, arrays)
    left.report()
    return EncodedLog(folder, vocabulary, tuple(writer.blocks), writer.kinds, noted)


def _prepare(read: ReadBatch | DamagedFile, *, skip_bad: bool, text: frozenset[str]) -> list[HashedBatch] | DamagedFile:
    if isinstance(read, DamagedFile):
        if not skip_bad:
            raise FileError(read.path, read.problem)
        return read
    try:
        return [hash_batch(part, skip_bad=skip_bad, text=text) for part in read()]
    except FileError as error:
        if not skip_bad:
            raise
        return DamagedFile(error.path, error.problem)


class _Writer:
    """Appends blocks to the files, and numbers what is new."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.blocks: list[Block] = []
        self.kinds: dict[str, str] = {}
        self._folder, self._stack = folder, stack
        self._files: dict[str, IO[bytes]] = {}
        self._queries, self._docs, self._pairs = IdTable(), IdTable(), IdTable()
        self._query_names: list[Any] = []
        self._doc_names: list[Any] = []
        self._pair_query: list[np.ndarray] = []
        self._pair_doc: list[np.ndarray] = []
        self._row = self._place = self._byte = 0

    def add(self, some: HashedBatch) -> None:
        number, new = self._queries.number(some.query.hashes)
        self._query_names.append(some.query.taken(new))
        pair, fresh = self._pairs.number(some.pair)
        doc, new_docs = self._docs.number(some.doc.hashes[:, fresh])
        self._doc_names.append(some.doc.taken(fresh[new_docs]))
        self._pair_doc.append(doc)
        length = np.diff(some.start)
        owner = np.searchsorted(some.start, fresh, side="right") - 1
        self._pair_query.append(number[owner])
        rows, ranks = len(length), int(length.max())
        click = some.click
        if len(pair) < rows * ranks:
            shown = np.arange(ranks) < length[:, None]
            lists, clicks = np.full(shown.shape, UNSEEN, np.int32), np.zeros(shown.shape, bool)
            lists[shown], clicks[shown] = pair, click
            pair, click = lists, clicks
        bits = np.packbits(click.reshape(rows, ranks), axis=1)
        self._file(PAIRS).write(pair.data)
        self._file(CLICKS).write(bits.data)
        self._add_about(some.about)
        self.blocks.append(Block(self._row, rows, ranks, self._place, self._byte))
        self._row, self._place, self._byte = self._row + rows, self._place + rows * ranks, self._byte + bits.size

    def _add_about(self, about: dict[str, np.ndarray]) -> None:
        for name, values in about.items():
            kind = self.kinds.setdefault(name, _KINDS.get(name) or _time_kind(values))
            if (values.dtype.kind == "M") != (kind == _DATES):
                raise DataError("the time must be of one kind in all files: got numbers in some and dates in others.")
            self._file(f"{name}.bin").write(values.astype(kind).tobytes())

    def _file(self, name: str) -> IO[bytes]:
        if name not in self._files:
            self._files[name] = self._stack.enter_context((self._folder / name).open("wb"))
        return self._files[name]

    def vocabulary(self) -> tuple[Vocabulary, Int[np.ndarray, " pair_or_unseen"]]:
        """All pairs, sorted, and the number that each has there; the last place is what `UNSEEN` points at."""
        import pyarrow as pa

        names = self._query_names, self._doc_names
        places = self._pair_query, self._pair_doc
        self._query_names, self._doc_names, self._pair_query, self._pair_doc = [], [], [], []
        query, doc = (
            pa.DictionaryArray.from_arrays(pa.array(np.concatenate(place), pa.int32()), pa.concat_arrays(name))
            for place, name in zip(places, names, strict=True)
        )
        vocabulary, _, pair = Vocabulary.of(query, doc)
        return vocabulary, np.append(pair, np.int32(UNSEEN))


def _time_kind(values: np.ndarray) -> str:
    return {"M": _DATES, "f": "<f8"}.get(values.dtype.kind, "<i8")


def _renumber(path: Path, blocks: list[Block], final: Int[np.ndarray, " pair_or_unseen"]) -> None:
    pairs = np.memmap(path, np.int32, "r+")

    def work(k: int) -> None:
        block = blocks[k]
        _look_up(pairs[block.place : block.place + block.rows * block.ranks], final)

    for_each(work, len(blocks))
    pairs.flush()


@contextmanager
def _new_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder beside it, renamed when the block ends well and removed when it fails."""
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        _remove_forgotten(folder)
        temporary.mkdir(parents=True)
        yield temporary
        if folder.exists():  # another process was quicker, or what is there is of no use
            shutil.rmtree(folder, ignore_errors=True)
        temporary.rename(folder)
    except OSError as error:
        advice = "Choose a folder with room for it: clickshift log encode LOG -o FOLDER."
        raise FileError(folder, f"cannot be written: {error.strerror or error}. {advice}") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _remove_forgotten(folder: Path) -> None:
    """What killed processes left behind."""
    for other in folder.parent.glob(f".{folder.name}.*-*"):
        process = other.name.split(".")[-1].split("-")[0]
        if process.isdigit() and not Path(f"/proc/{process}").exists() and Path("/proc/self").exists():
            shutil.rmtree(other, ignore_errors=True)


@njit(cache=True, nogil=True)
@no_type_check
def _look_up(pairs, final):
    for i in range(len(pairs)):
        pairs[i] = final[pairs[i]]
