"""EncodedLog: a log as numbers in memory-mapped files, for logs that are larger than memory.

A folder holds the sessions in blocks. A block has a rectangle of pair numbers (`UNSEEN` where nothing is shown) and the
clicks as bits: 42 bytes for a list of ten. Whatever reads a log reads it block by block, as `Sessions`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np
from jaxtyping import Bool, Float, Int

from clickshift.core.artifacts import ArtifactFormat
from clickshift.core.parallel import map_in_order
from clickshift.core.rng import as_generator
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import UNSEEN, Vocabulary
from clickshift.errors import DataError

FOLDER = ArtifactFormat("log", 1, "encode the log again", "clickshift log encode")
PAIRS, CLICKS = "pair.bin", "click.bin"
SESSION_COLUMNS = ("count", "time", "user", "log_prob")
"""What a log may know of every session, each in a file of its own."""


@dataclass(frozen=True, eq=False)
class Block:
    """Some sessions: where they are in the files."""

    row: int
    rows: int
    ranks: int
    place: int
    """Of the first pair, in numbers; of the first byte of clicks it is `byte`."""
    byte: int


@final
@dataclass(frozen=True, eq=False)
class EncodedLog:
    """Sessions on disk. They are many, and come in `chunks`; a split is a log that leaves some rows out."""

    folder: Path
    vocabulary: Vocabulary
    blocks: tuple[Block, ...]
    kinds: Mapping[str, str]
    """Those of `SESSION_COLUMNS` that there are, and numpy's name for what each holds."""
    facts: Mapping[str, Any]
    """What was noted when it was made: which files, how many sessions were left out."""
    kept: Bool[np.ndarray, " row"] | None = None
    """The rows of a part of the log; None for all of them."""
    translation: Int[np.ndarray, " pair_or_unseen"] | None = None
    """The number of each pair of the files in the vocabulary, where that is another one..."""
    translated_query: Int[np.ndarray, " pair_or_unseen"] | None = None
    """...and the number of its query."""

    def __len__(self) -> int:
        """The number of rows; see `total` for the number of sessions."""
        return self._rows if self.kept is None else int(np.count_nonzero(self.kept))

    @property
    def _rows(self) -> int:
        return sum(block.rows for block in self.blocks)

    @cached_property
    def n_ranks(self) -> int:
        return max(block.ranks for block in self.blocks)

    @cached_property
    def total(self) -> int:
        """The number of sessions, counts included."""
        if not self.has_counts:
            return len(self)
        count = self._about("count")
        return int(count.sum() if self.kept is None else count[self.kept].sum())

    @property
    def has_counts(self) -> bool:
        """Whether a row may stand for several sessions."""
        return "count" in self.kinds

    def chunks(self) -> Iterator[Sessions]:
        """All sessions, some at a time, in the order of the log."""
        read, about = self._reader(), {name: self._about(name) for name in self.kinds}
        for block in self.blocks:
            rows = slice(block.row, block.row + block.rows)
            kept = None if self.kept is None else self.kept[rows]
            if kept is not None and not kept.any():
                continue
            part = self._sessions(*read(block), {name: np.asarray(of[rows]) for name, of in about.items()})
            yield part if kept is None or kept.all() else part[kept]

    def lists(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The pairs and clicks of all sessions, kept or not, some at a time and a few ahead of who asks: a third of the
        work of `chunks`."""
        for pair, click in map_in_order(self._reader(), self.blocks):
            yield pair if self.translation is None else self.translation[pair], click

    def _reader(self) -> Callable[[Block], tuple[np.ndarray, np.ndarray]]:
        """Of a block its pairs, as they are in the file, and its clicks."""
        pairs = np.memmap(self.folder / PAIRS, np.int32, "r")
        bits = np.memmap(self.folder / CLICKS, np.uint8, "r")

        def read(block: Block) -> tuple[np.ndarray, np.ndarray]:
            pair = np.asarray(pairs[block.place : block.place + block.rows * block.ranks])
            pair, width = pair.reshape(block.rows, block.ranks), -(-block.ranks // 8)
            packed = np.asarray(bits[block.byte : block.byte + block.rows * width]).reshape(block.rows, width)
            click = np.unpackbits(packed, axis=1, count=block.ranks).view(bool)
            if block.ranks < self.n_ranks:
                wider = ((0, 0), (0, self.n_ranks - block.ranks))
                pair, click = np.pad(pair, wider, constant_values=UNSEEN), np.pad(click, wider)
            return pair, click

        return read

    def _sessions(self, pair: np.ndarray, click: np.ndarray, about: Mapping[str, np.ndarray]) -> Sessions:
        shown = pair != UNSEEN
        if self.translation is None or self.translated_query is None:
            query = self.vocabulary.pair_query[pair[:, 0]].astype(np.int32)
        else:
            query, pair = self.translated_query[pair[:, 0]], self.translation[pair]
        rankings = Rankings.checked(self.vocabulary, query, pair, shown, about.get("log_prob"))
        count = about.get("count")
        count = np.ones(len(pair), np.int64) if count is None else count
        return Sessions.checked(rankings, click, count, about.get("time"), about.get("user"))

    def _about(self, name: str) -> np.ndarray:
        return np.memmap(self.folder / f"{name}.bin", np.dtype(self.kinds[name]), "r")

    def in_vocabulary(self, vocabulary: Vocabulary) -> EncodedLog:
        """The same log with the numbers of another vocabulary, translated as it is read."""
        if vocabulary.same_as(self.vocabulary):
            return self
        unseen = np.int32(UNSEEN)
        pairs = np.append(vocabulary.pairs_of(self.vocabulary), unseen)
        query = np.append(vocabulary.queries_of(self.vocabulary)[self.vocabulary.pair_query], unseen)
        if self.translation is not None:
            pairs, query = pairs[self.translation], query[self.translation]
        return replace(self, vocabulary=vocabulary, translation=pairs, translated_query=query)

    def sessions(self, queries: Bool[np.ndarray, " query"] | None = None) -> Sessions:
        """All sessions in memory, or those of some queries."""
        parts = (part if queries is None else part[queries[part.rankings.query]] for part in self.chunks())
        kept = [part for part in parts if len(part)]
        if not kept:
            raise DataError("no session of the log is of one of these queries.")
        return Sessions.concat(kept)

    def split(self, fraction: float, *, rng: int | np.random.Generator) -> tuple[EncodedLog, EncodedLog]:
        """Split rows at random; a row that stands for several sessions stays whole."""
        return self._parted(as_generator(rng).random(self._rows, np.float32) < fraction, fraction)

    def split_by_time(self, fraction: float) -> tuple[EncodedLog, EncodedLog]:
        """Split chronologically: about the earliest `fraction` of the rows; rows of one time stay together."""
        if "time" not in self.kinds:
            raise DataError("a chronological split needs a time: this log has none. Split at random or in order.")
        time = self._about("time")
        place = min(int(fraction * len(time)), len(time) - 1)
        return self._parted(np.asarray(time < np.partition(time, place)[place]), fraction)

    def split_in_order(self, fraction: float) -> tuple[EncodedLog, EncodedLog]:
        """The first `fraction` of the rows as they stand, and the rest."""
        return self._parted(np.arange(self._rows) < round(fraction * self._rows), fraction)

    def split_within_queries(self, fraction: float) -> tuple[EncodedLog, EncodedLog]:
        """The first `fraction` of each query's rows as they stand, and the rest."""
        seen, first = np.zeros(self.vocabulary.n_queries, np.int64), np.zeros(self._rows, bool)
        query = np.concatenate([part.rankings.query for part in replace(self, kept=None).chunks()])
        share = np.rint(fraction * np.bincount(query, minlength=len(seen)))
        for block in self.blocks:
            rows = slice(block.row, block.row + block.rows)
            of, order = query[rows], np.argsort(query[rows], kind="stable")
            start = np.r_[0, np.flatnonzero(np.diff(of[order])) + 1]
            sizes = np.diff(np.r_[start, len(order)])
            number = np.empty(len(order), np.int64)
            number[order] = np.arange(len(order)) - np.repeat(start, sizes)
            first[rows] = seen[of] + number < share[of]
            seen[of[order][start]] += sizes
        return self._parted(first, fraction)

    def _parted(self, first: Bool[np.ndarray, " row"], fraction: float) -> tuple[EncodedLog, EncodedLog]:
        here = np.ones(self._rows, bool) if self.kept is None else self.kept
        parts = here & first, here & ~first
        if not 0 < fraction < 1 or not (parts[0].any() and parts[1].any()):
            raise DataError(
                f"both parts of a split must get a session: fraction {fraction} of {len(self)} rows leaves one part "
                "empty. Choose a fraction between 0 and 1, or use a larger log."
            )
        return replace(self, kept=parts[0]), replace(self, kept=parts[1])

    def __repr__(self) -> str:
        return f"EncodedLog({len(self):,} rows, up to {self.n_ranks} ranks, {self.vocabulary})"


Log = Sessions | EncodedLog
"""What can be counted, fitted on and evaluated: both come in `chunks`."""


def folder_of(log: Log) -> Path | None:
    """Return the folder of an encoded log; None for sessions in memory."""
    return log.folder if isinstance(log, EncodedLog) else None


def weighted_chunks(log: Log, weight: np.ndarray | None) -> Iterator[tuple[Sessions, Float[np.ndarray, " session"]]]:
    """The chunks of a log, and how much each of their rows counts."""
    row = 0
    for part in log.chunks():
        count = part.count if weight is None else weight[row : row + len(part)]
        row += len(part)
        yield part, count.astype(np.float64)


def weighted_arrays(log: Log, weight: np.ndarray | None) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """The same as pairs, clicks and weights, which is all that counting looks at."""
    if isinstance(log, EncodedLog) and weight is None and log.kept is None and not log.has_counts:
        ones = np.ones(max((block.rows for block in log.blocks), default=0))
        yield from ((pair, click, ones[: len(pair)]) for pair, click in log.lists())
    else:
        yield from ((part.rankings.pair, part.click, count) for part, count in weighted_chunks(log, weight))


def split_at_queries(vocabulary: Vocabulary, parts: int) -> Int[np.ndarray, " bound"]:
    """Pair numbers that part the vocabulary in about equal shares, none of them in the middle of a query."""
    bounds = np.linspace(0, vocabulary.n_pairs, parts + 1)
    offsets = vocabulary.query_offsets
    return np.unique(offsets[np.searchsorted(offsets, bounds)])


def header_of(blocks: tuple[Block, ...], kinds: Mapping[str, str], facts: Mapping[str, Any]) -> dict[str, Any]:
    """What the folder's header keeps beside the vocabulary."""
    places = [[block.row, block.rows, block.ranks, block.place, block.byte] for block in blocks]
    return {"blocks": places, "kinds": dict(kinds), "facts": json.loads(json.dumps(facts))}
