"""Tails: what was shown below the last click. They hardly ever repeat, and are kept as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol, final, no_type_check, runtime_checkable

import numpy as np
from jaxtyping import Float, Int, UInt32
from numba import njit

from clickshift.core.parallel import for_each, n_threads
from clickshift.counts.tail_e_step import (
    SIDE_BY_SIDE,
    EStepSums,
    ExpectedTails,
    TailTransitions,
    TransitionDerivatives,
    e_step,
)

_WORTH_A_THREAD = 2048
_NEIGHBOURS, _MOST_NEIGHBOURHOODS = 512, 64
"""Pairs of which the nearest cache holds all that the E-step needs; and places that may be written to in turn."""


@runtime_checkable
class HiddenTails(Protocol):
    """The tails of a log, wherever they are."""

    def expect(self, walk: TailTransitions, turns: TransitionDerivatives | None = None) -> ExpectedTails:
        """The E-step; with `turns`, also how the likelihood curves."""

    def alike(self) -> HiddenTails:
        """One tail of each shape, as if all documents were pair 0."""

    @property
    def parts(self) -> Sequence[TailsByShape]:
        """Those that can be looked at from here."""


@dataclass(frozen=True, eq=False)
class ListsToLastClick:
    """The lists of a log, where their last clicks are, and how many tails of each shape each of some pieces has."""

    pair: Int[np.ndarray, "session rank"]
    length: Int[np.ndarray, " session"]
    last: Int[np.ndarray, " session"]
    """Rank of the last click, -1 for none."""
    count: Float[np.ndarray, " session"]
    pieces: list[slice]
    shapes: Int[np.ndarray, "piece neighbourhood start length"]
    unseen: int


@dataclass(frozen=True, eq=False)
class TailsByShape:
    """What was shown from the last click on, for sessions with a result below it.

    Sessions of one shape, whose tails begin and end at the same ranks, stand together, in blocks of `SIDE_BY_SIDE`, and
    among them those of one neighbourhood of pairs: so the E-step has them at hand, and takes two thirds of the time. A
    block has one row of pairs for each rank, from the bottom of the lists, where the E-step begins, up to `start`, and
    the clicked pairs above it, if there are any. The last block of a shape may have places that nobody takes.
    """

    start: Int[np.ndarray, " shape"]
    """The rank below the last click, ascending; 0 where there is none."""
    length: Int[np.ndarray, " shape"]
    """How many results the whole lists show."""
    sessions: Int[np.ndarray, " shape"]
    pair: UInt32[np.ndarray, " place"]
    """The number after the last pair stands for `UNSEEN`."""
    count: Float[np.ndarray, " tail"]

    @cached_property
    def plain(self) -> bool:
        """Whether every tail was seen once."""
        return bool((self.count == 1).all())

    @property
    def rows(self) -> Int[np.ndarray, " shape"]:
        rows: np.ndarray = self.length - self.start + (self.start > 0)
        return rows

    @property
    def first_place(self) -> Int[np.ndarray, " shape_or_end"]:
        return np.append(0, np.cumsum(-(-self.sessions // SIDE_BY_SIDE) * SIDE_BY_SIDE * self.rows))

    @property
    def first_tail(self) -> Int[np.ndarray, " shape_or_end"]:
        return np.append(0, np.cumsum(self.sessions))

    @classmethod
    def of(cls, lists: ListsToLastClick) -> TailsByShape:
        """Sort the sessions of a log."""
        by_hood = lists.shapes.swapaxes(0, 1)
        counts = by_hood.reshape(-1, *by_hood.shape[2:])
        number = (np.cumsum(counts, axis=0) - counts).reshape(by_hood.shape)
        every = counts.sum(axis=0)
        start, shown = np.nonzero(every)
        tails = cls.empty(start, shown, every[start, shown])
        place = np.zeros((2, *every.shape), np.int64)
        place[:, start, shown] = tails.first_tail[:-1], tails.first_place[:-1]

        def work(k: int) -> None:
            rows = lists.pieces[k]
            some = lists.pair[rows], lists.length[rows], lists.last[rows], lists.count[rows]
            _by_shape(*some, number[:, k].copy(), *place, lists.unseen, tails.pair, tails.count)

        for_each(work, len(lists.pieces))
        return tails

    @classmethod
    def empty(
        cls, start: Int[np.ndarray, " shape"], length: Int[np.ndarray, " shape"], sessions: Int[np.ndarray, " shape"]
    ) -> TailsByShape:
        """Room for so many sessions of these shapes, all of them of pair 0 and never seen."""
        tails = cls(start, length, sessions, np.empty(0, np.uint32), np.zeros(sessions.sum()))
        return replace(tails, pair=np.zeros(tails.first_place[-1], np.uint32))

    def alike(self) -> TailsByShape:
        """One tail of each shape, as if all documents were pair 0."""
        one = TailsByShape.empty(self.start, self.length, np.ones_like(self.sessions))
        return replace(one, count=np.add.reduceat(self.count, self.first_tail[:-1]) if len(self.start) else self.count)

    @property
    def parts(self) -> Sequence[TailsByShape]:
        return [self]

    def expect(self, walk: TailTransitions, turns: TransitionDerivatives | None = None) -> ExpectedTails:
        return run_e_step([self], walk, turns).tails()


def run_e_step(parts: Sequence[TailsByShape], walk: TailTransitions, turns: TransitionDerivatives | None) -> EStepSums:
    """The E-step of several parts of a log: each thread has a share of every shape of each of them."""
    threads = min(n_threads(), 1 + sum(len(tails.count) for tails in parts) // _WORTH_A_THREAD)
    found = [EStepSums.zeros(walk, turns) for _ in range(threads)]
    none = TransitionDerivatives(np.zeros(0), np.zeros((1, 1)), np.zeros((0, len(walk.h_rank))))

    def work(k: int) -> None:
        for tails in parts:
            shapes = tails.start, tails.length, tails.first_tail, tails.first_place
            turned = turns is not None, *(turns or none)
            e_step(*shapes, tails.pair, tails.count, tails.plain, k, threads, *walk, *turned, *found[k])

    for_each(work, threads)
    for other in found[1:]:
        for total, part in zip(found[0], other, strict=True):
            total += part
    return found[0]


@final
@dataclass(frozen=True, eq=False)
class TailsInParts:
    """Tails of a log in chunks, each part in memory or mapped from a file."""

    parts: Sequence[TailsByShape]

    def expect(self, walk: TailTransitions, turns: TransitionDerivatives | None = None) -> ExpectedTails:
        return run_e_step(self.parts, walk, turns).tails()

    def alike(self) -> TailsByShape:
        ones = [tails.alike() for tails in self.parts]
        ranks = 1 + max((int(one.length.max()) for one in ones if len(one.length)), default=0)
        count = np.zeros((ranks, ranks))
        for one in ones:
            count[one.start, one.length] += one.count
        start, length = np.nonzero(count)
        return replace(TailsByShape.empty(start, length, np.ones_like(start)), count=count[start, length])


def n_pair_blocks(n_pairs: int) -> int:
    return min(_MOST_NEIGHBOURHOODS, 1 + n_pairs // _NEIGHBOURS)


@njit(inline="always")
@no_type_check
def pair_block(pair, n_pairs, n):
    """Which of n a pair is in, and with it its session: the pairs of a query have numbers that follow each other."""
    return max(pair, 0) * n // max(n_pairs, 1)


@njit(cache=True, nogil=True)
@no_type_check
def _by_shape(pair, length, last, count, number, first_tail, first_place, unseen, tail_pair, tail_count):
    """`number` is that of the next session of each neighbourhood and shape."""
    for i in range(len(pair)):
        start, n = last[i] + 1, length[i]
        if start >= n:
            continue
        hood = pair_block(pair[i, 0], unseen, len(number))
        top, k = max(start - 1, 0), number[hood, start, n]
        number[hood, start, n] += 1
        tail_count[first_tail[start, n] + k] = count[i]
        block = k // SIDE_BY_SIDE * SIDE_BY_SIDE
        at = first_place[start, n] + block * (n - top) + k - block
        for r in range(n - 1, top - 1, -1):
            tail_pair[at] = pair[i, r] if pair[i, r] >= 0 else unseen
            at += SIDE_BY_SIDE
