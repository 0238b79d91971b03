"""Tails: the results shown below the last click of each session. They hardly ever repeat, so all of them are kept.

A hole in a tail is a result of attractiveness 0: it has the pair number after that of `UNSEEN` pairs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol, final, no_type_check, runtime_checkable

import numpy as np
from jaxtyping import Float, Int, UInt32
from numba import njit

from clickshift.core.newton import MAX_PROBABILITY
from clickshift.core.parallel import for_each, n_threads
from clickshift.core.unique_rows import distinct_rows, distinct_sorted
from clickshift.counts.cells import check_counts
from clickshift.counts.tail_e_step import (
    SESSIONS_PER_BLOCK,
    EStepSums,
    ExpectedTails,
    TailTransitions,
    TransitionDerivatives,
    e_step,
)

_MAX_SHAPES, _SHAPES_PER_LIST = 1 << 18, 16
"""Largest size of the table of the shapes of tails, and its size per list: for longer lists, shapes are numbered."""
_TAILS_PER_THREAD = 2048
"""Number of tails for which another thread pays off."""
_PAIRS_PER_BLOCK, _MAX_PAIR_BLOCKS = 512, 64
"""Number of pairs whose E-step sums fit in the first-level cache; and the largest number of blocks that are written to
alternately."""


@runtime_checkable
class HiddenTails(Protocol):
    """Interface to the tails of a log, in memory, on disk or on a cluster."""

    def expect(self, walk: TailTransitions, turns: TransitionDerivatives | None = None) -> ExpectedTails:
        """Run the E-step; with derivatives `turns`, also compute the curvature of the log-likelihood."""

    def pooled(self) -> HiddenTails:
        """Return one tail of each shape, as if all documents were pair 0."""

    @property
    def parts(self) -> Sequence[TailsByShape]:
        """Parts of the tails that this process can read; empty if they are on a cluster."""


@dataclass(frozen=True, eq=False)
class ListsToLastClick:
    """Lists of a log with their last clicks, and the number of tails of each shape.

    Parameters
    ----------
    pair
        Pair numbers of the lists; the number after the last pair at holes.
    length
        Rank of the last result of each list, from 1.
    last
        Rank of the last click of each list, -1 for none.
    count
        Weight of each list.
    pieces
        Ranges of rows, one for each thread.
    shapes
        Number of tails by piece, pair block, start rank and list length; see `empty_shapes`.
    unseen
        Number that stands for `UNSEEN` in the tails: the number of pairs.
    has_holes
        Whether a list has a hole.
    """

    pair: Int[np.ndarray, "session rank"]
    length: Int[np.ndarray, " session"]
    last: Int[np.ndarray, " session"]
    count: Float[np.ndarray, " session"]
    pieces: list[slice]
    shapes: Int[np.ndarray, "piece pair_block start length"]
    unseen: int
    has_holes: bool = False


@dataclass(frozen=True, eq=False)
class TailsByShape:
    """Results from the last click on, for sessions with a result below it, sorted for the E-step.

    The shape of a tail is where it begins and ends. Sessions of one shape are stored together, in blocks of
    `SESSIONS_PER_BLOCK`, sorted by block of pairs: the sums of the E-step then stay in the cache, and it takes two
    thirds of the time. A block has one row of pairs for each rank, from the bottom of the lists, where the
    E-step begins, up to `start`, and then the clicked pairs above it, if there are any. The last block of a shape may
    have unused positions.

    Parameters
    ----------
    start
        Rank below the last click, ascending; 0 for sessions without clicks.
    length
        Rank of the last result of the whole lists, from 1.
    sessions
        Number of tails of each shape.
    pair
        Pair numbers of all tails, block by block; the number after the last pair stands for `UNSEEN`.
    count
        Weight of each tail.
    hole
        Pair number that stands for a hole, the second after the last pair; None if no list has one.
    """

    start: Int[np.ndarray, " shape"]
    length: Int[np.ndarray, " shape"]
    sessions: Int[np.ndarray, " shape"]
    pair: UInt32[np.ndarray, " place"]
    count: Float[np.ndarray, " tail"]
    hole: int | None = None

    @cached_property
    def plain(self) -> bool:
        """Whether every tail has weight 1."""
        return bool((self.count == 1).all())

    @property
    def rows(self) -> Int[np.ndarray, " shape"]:
        """Number of pairs in a tail of each shape, the last clicked one included."""
        rows: np.ndarray = self.length - self.start + (self.start > 0)
        return rows

    @property
    def first_place(self) -> Int[np.ndarray, " shape_or_end"]:
        """Position in `pair` at which each shape begins."""
        return np.append(0, np.cumsum(-(-self.sessions // SESSIONS_PER_BLOCK) * SESSIONS_PER_BLOCK * self.rows))

    @property
    def first_tail(self) -> Int[np.ndarray, " shape_or_end"]:
        """Position in `count` at which each shape begins."""
        return np.append(0, np.cumsum(self.sessions))

    def validate(self, n_pairs: int, n_ranks: int) -> None:
        """Raise ValueError unless the tails are what counting gives, e.g. because a file was changed.

        The kernel of the E-step indexes tables by pair and rank without checks.

        Parameters
        ----------
        n_pairs
            Number of pairs in the vocabulary.
        n_ranks
            Number of ranks of the log.
        """
        shapes = self.start, self.length, self.sessions
        if (
            any(column.dtype != np.int64 or column.shape != self.start.shape for column in shapes)
            or self.start.ndim != 1
        ):
            raise ValueError("tails.start, length and sessions must be columns of 64-bit integers, equally long")
        if self.pair.dtype != np.uint32 or self.pair.ndim != 1:
            raise ValueError("tails.pair must be a column of unsigned 32-bit integers")
        if not ((self.start >= 0) & (self.start < self.length) & (self.length <= n_ranks)).all():
            raise ValueError(f"a tail must begin above its end, which must be at most {n_ranks}")
        if not ((self.sessions > 0) & (self.sessions <= len(self.count))).all():
            raise ValueError("the number of tails of each shape must be positive, and at most that of all tails")
        if len(self.count) != self.first_tail[-1] or len(self.pair) != self.first_place[-1]:
            raise ValueError("tails.count and tails.pair must have one entry for each tail and for each of its results")
        check_counts("tails.count", self.count, (len(self.count),))
        if not (self.count > 0).all():
            raise ValueError("tails.count must be positive")
        if len(self.pair) and self.pair.max() > (n_pairs if self.hole is None else n_pairs + 1):
            raise ValueError(f"tails.pair must be at most {n_pairs}: got {self.pair.max()}")

    @classmethod
    def of(cls, lists: ListsToLastClick) -> TailsByShape:
        """Sort the tails of lists by shape."""
        if not lists.shapes.size:
            return cls._of_long(lists)
        by_pair_block = lists.shapes.swapaxes(0, 1)
        counts = by_pair_block.reshape(-1, *by_pair_block.shape[2:])
        next_tail = (np.cumsum(counts, axis=0) - counts).reshape(by_pair_block.shape)
        total = counts.sum(axis=0)
        start, length = np.nonzero(total)
        tails = cls.empty(start, length, total[start, length])
        offsets = np.zeros((2, *total.shape), np.int64)
        offsets[:, start, length] = tails.first_tail[:-1], tails.first_place[:-1]

        def sort_piece(k: int) -> None:
            rows = lists.pieces[k]
            piece = lists.pair[rows], lists.length[rows], lists.last[rows], lists.count[rows]
            own = next_tail[:, k].copy()
            _sort_by_shape(*piece, lists.last[:0], own, *offsets, lists.unseen, tails.pair, tails.count)

        for_each(sort_piece, len(lists.pieces))
        return replace(tails, hole=lists.unseen + 1 if lists.has_holes else None)

    @classmethod
    def _of_long(cls, lists: ListsToLastClick) -> TailsByShape:
        """Sort the tails of long lists, of which few shapes occur: shapes are numbered as they are found."""
        begin, end = lists.last.astype(np.int64) + 1, lists.length.astype(np.int64)
        below = 1 + int(end.max())
        key, shape = distinct_sorted((begin * below + end)[begin < end])
        number = np.full(len(begin), -1, np.int32)
        number[begin < end] = shape
        tails = cls.empty(*np.divmod(key, below), np.bincount(shape, minlength=len(key)))
        offsets = (offset[None, :-1] for offset in (tails.first_tail, tails.first_place))
        next_tail = np.zeros((1, 1, len(key)), np.int64)
        whole = lists.pair, lists.length, lists.last, lists.count
        _sort_by_shape(*whole, number, next_tail, *offsets, lists.unseen, tails.pair, tails.count)
        return replace(tails, hole=lists.unseen + 1 if lists.has_holes else None)

    @classmethod
    def empty(
        cls, start: Int[np.ndarray, " shape"], length: Int[np.ndarray, " shape"], sessions: Int[np.ndarray, " shape"]
    ) -> TailsByShape:
        """Return tails of these shapes, all of pair 0 and of weight 0, as space to be filled."""
        tails = cls(start, length, sessions, np.empty(0, np.uint32), np.zeros(sessions.sum()))
        return replace(tails, pair=np.zeros(tails.first_place[-1], np.uint32))

    def pooled(self) -> TailsByShape:
        """Return one tail of each shape, and of its holes, as if all documents were pair 0."""
        if self.hole is not None:  # 2 if there is one pair
            return merge_tails(
                [replace(self, pair=np.where(self.pair == self.hole, np.uint32(2), np.uint32(0)), hole=2)]
            )
        one = TailsByShape.empty(self.start, self.length, np.ones_like(self.sessions))
        return replace(one, count=np.add.reduceat(self.count, self.first_tail[:-1]) if len(self.start) else self.count)

    @property
    def parts(self) -> Sequence[TailsByShape]:
        """The tails themselves, as their only part."""
        return [self]

    def expect(self, walk: TailTransitions, turns: TransitionDerivatives | None = None) -> ExpectedTails:
        """Run the E-step; with derivatives `turns`, also compute the curvature of the log-likelihood."""
        return run_e_step([self], walk, turns).tails()


def run_e_step(parts: Sequence[TailsByShape], walk: TailTransitions, turns: TransitionDerivatives | None) -> EStepSums:
    """Run the E-step on several parts of a log; each thread takes a share of every shape of each part.

    Parameters
    ----------
    parts
        Tails in memory or mapped from files.
    walk
        Continuation probabilities of the model.
    turns
        Derivatives of those by the shared parameters, if the curvature is wanted.

    Returns
    -------
    EStepSums
        Sums over all tails.
    """
    has_holes = any(tails.hole is not None for tails in parts)
    skip = np.maximum(walk.skip, 1 - MAX_PROBABILITY)
    walk = walk._replace(skip=np.append(skip, 1.0) if has_holes else skip)
    threads = min(n_threads(), 1 + sum(len(tails.count) for tails in parts) // _TAILS_PER_THREAD)
    sums = [EStepSums.zeros(walk, turns) for _ in range(threads)]
    no_derivatives = TransitionDerivatives(np.zeros(0), np.zeros((1, 1)), np.zeros((0, len(walk.h_rank))))
    with_curvature, derivatives = turns is not None, turns or no_derivatives

    def add(k: int) -> None:
        for tails in parts:
            shapes = tails.start, tails.length, tails.first_tail, tails.first_place
            tail_arrays = tails.pair, tails.count, tails.plain
            e_step(*shapes, *tail_arrays, k, threads, *walk, with_curvature, *derivatives, *sums[k])

    for_each(add, threads)
    for other in sums[1:]:
        for total, part in zip(sums[0], other, strict=True):
            total += part
    if has_holes:  # what is expected of holes has been added to the totals
        return sums[0]._replace(below=sums[0].below[:-1], clicked=sums[0].clicked[:-1])
    return sums[0]


@final
@dataclass(frozen=True, eq=False)
class TailsInParts:
    """Tails of a log in chunks.

    Parameters
    ----------
    parts
        Tails of each chunk, in memory or mapped from a file.
    """

    parts: Sequence[TailsByShape]

    def expect(self, walk: TailTransitions, turns: TransitionDerivatives | None = None) -> ExpectedTails:
        """Run the E-step; with derivatives `turns`, also compute the curvature of the log-likelihood."""
        return run_e_step(self.parts, walk, turns).tails()

    def pooled(self) -> TailsByShape:
        """Return one tail of each shape, and of its holes, as if all documents were pair 0."""
        ones = [tails.pooled() for tails in self.parts]
        if any(one.hole is not None for one in ones):
            return merge_tails(ones)
        start, length = (np.concatenate([getattr(one, name) for one in ones]) for name in ("start", "length"))
        below = 1 + int(length.max(initial=0))
        key, shape = distinct_sorted(start * below + length)
        count = np.bincount(shape, np.concatenate([one.count for one in ones]), len(key)).astype(np.float64)
        return replace(TailsByShape.empty(*np.divmod(key, below), np.ones_like(key)), count=count)


def merge_tails(parts: Sequence[TailsByShape]) -> TailsByShape:
    """Merge the tails of several logs in one vocabulary, shape by shape; the counts of equal tails are added.

    Parameters
    ----------
    parts
        Tails of each log.
    """
    by_shape: dict[tuple[int, int], list[tuple[TailsByShape, int]]] = {}
    for part in parts:
        for k, shape in enumerate(zip(part.start.tolist(), part.length.tolist(), strict=True)):
            by_shape.setdefault(shape, []).append((part, k))
    shapes = sorted(by_shape)
    merged = [_merge_shape([_unpack_shape(part, k) for part, k in by_shape[shape]]) for shape in shapes]
    start, length = np.array(shapes, np.int64).reshape(-1, 2).T.copy()
    return TailsByShape(
        start,
        length,
        np.array([len(count) for _, count in merged], np.int64),
        np.concatenate([np.empty(0, np.uint32), *(pair for pair, _ in merged)]),
        np.concatenate([np.empty(0), *(count for _, count in merged)]),
        next((part.hole for part in parts if part.hole is not None), None),
    )


def _merge_shape(parts: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Merge the tails of one shape, and return their pairs as `TailsByShape` stores them and their counts."""
    pair, count = _distinct_tails(*(np.concatenate(arrays, axis=-1) for arrays in zip(*parts, strict=True)))
    return _pack_shape(pair), count


def _unpack_shape(tails: TailsByShape, k: int) -> tuple[UInt32[np.ndarray, "row tail"], Float[np.ndarray, " tail"]]:
    """Return the pairs of shape k, one column per tail, and their counts."""
    positions, rows = slice(*tails.first_place[k : k + 2]), tails.rows[k]
    pair = tails.pair[positions].reshape(-1, rows, SESSIONS_PER_BLOCK).transpose(1, 0, 2).reshape(rows, -1)
    return pair[:, : tails.sessions[k]], tails.count[slice(*tails.first_tail[k : k + 2])]


def _distinct_tails(
    pair: UInt32[np.ndarray, "row tail"], count: Float[np.ndarray, " tail"]
) -> tuple[UInt32[np.ndarray, "row distinct"], Float[np.ndarray, " distinct"]]:
    """Return the distinct tails (columns) and the sums of their counts."""
    rows, n = pair.shape
    # two pair numbers in one integer: half as much to hash
    wide = np.zeros((n, rows + rows % 2), np.uint32)
    wide[:, :rows] = pair.T
    group, first = distinct_rows(wide.view(np.int64))
    return pair[:, first], np.bincount(group, count, len(first))


def _pack_shape(pair: UInt32[np.ndarray, "row tail"]) -> UInt32[np.ndarray, " place"]:
    """Arrange the pairs of one shape in blocks, as `TailsByShape` stores them: the inverse of `_unpack_shape`."""
    rows, n = pair.shape
    blocks = -(-n // SESSIONS_PER_BLOCK)
    padded = np.zeros((rows, blocks * SESSIONS_PER_BLOCK), np.uint32)
    padded[:, :n] = pair
    return padded.reshape(rows, blocks, SESSIONS_PER_BLOCK).transpose(1, 0, 2).ravel()


def n_pair_blocks(n_pairs: int) -> int:
    """Return the number of blocks into which the pairs are divided for sorting tails.

    Parameters
    ----------
    n_pairs
        Number of pairs in the vocabulary.
    """
    return min(_MAX_PAIR_BLOCKS, 1 + n_pairs // _PAIRS_PER_BLOCK)


def empty_shapes(
    pieces: int, n_pairs: int, lists: int, n_ranks: int
) -> Int[np.ndarray, "piece pair_block start length"]:
    """Return the table for the number of tails of each shape; an empty one if lists are so long that few shapes occur.

    Parameters
    ----------
    pieces
        Number of pieces of the log.
    n_pairs
        Number of pairs in the vocabulary.
    lists, n_ranks
        Number of lists, and of their ranks.
    """
    shape = pieces, n_pair_blocks(n_pairs), n_ranks, n_ranks + 1
    is_long = math.prod(shape) > max(_MAX_SHAPES, _SHAPES_PER_LIST * lists)
    return np.zeros((pieces, 1, 0, 0) if is_long else shape, np.int64)


@njit(inline="always")
@no_type_check
def pair_block(pair, n_pairs, n):
    """Return which of n blocks a pair, and with it its session, belongs to; the pairs of a query are contiguous.

    Parameters
    ----------
    pair
        Pair number; `UNSEEN` and a hole belong to the first block.
    n_pairs
        Number of pairs in the vocabulary.
    n
        Number of blocks.
    """
    return (pair if 0 <= pair < n_pairs else 0) * n // max(n_pairs, 1)


@njit(cache=True, nogil=True)
@no_type_check
def _sort_by_shape(
    pair, length, last, count, number, next_tail, first_tail, first_place, unseen, tail_pair, tail_count
):
    """Write the tails of some lists to their positions; `next_tail` is the next number by pair block and shape.

    A shape is the rank at which a tail starts and the length of its list; of long lists, it is (0, `number`).
    """
    for i in range(len(pair)):
        start, n = last[i] + 1, length[i]
        if start >= n:
            continue
        group = pair_block(pair[i, 0], unseen, len(next_tail))
        row, column = (0, number[i]) if len(number) else (start, n)
        top, k = max(start - 1, 0), next_tail[group, row, column]
        next_tail[group, row, column] += 1
        tail_count[first_tail[row, column] + k] = count[i]
        block = k // SESSIONS_PER_BLOCK * SESSIONS_PER_BLOCK
        at = first_place[row, column] + block * (n - top) + k - block
        for r in range(n - 1, top - 1, -1):
            p = pair[i, r]
            tail_pair[at] = unseen if p < 0 else p + (p == unseen)  # `unseen` stands for a hole in `pair`
            at += SESSIONS_PER_BLOCK
