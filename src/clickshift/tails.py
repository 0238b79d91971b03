"""Tails: what was shown below the last click, where nothing was clicked any more, and what probably happened there.

Tails hardly ever repeat, and are kept as they are. With u = 1 - attractiveness, g the continuation after a skip, and h
that after the last click (1 for a session without clicks, which begins at the top):

    B_r = u_r (1 - g + g B_{r+1})     no click from r on, if r is examined
    z   = 1 - h + h B_start           no click in the tail
    e_r = (h / z) F_r B_r             r was examined, given that;  F_start = 1, F_{r+1} = F_r u_r g

DBN, SDBN, DCM and CCM differ in g and h alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Protocol, final, no_type_check, runtime_checkable

import numpy as np
from jaxtyping import Float, Int, UInt32
from numba import njit

from clickshift.threads import for_each, n_threads

SIDE_BY_SIDE = 128
"""Sessions that a kernel has in hand at once: few enough that what it needs of them stays in the nearest cache."""
_WORTH_A_THREAD = 2048
_FACTORS = 16
"""Sessions that share a logarithm: more of them, each less likely than 1e-18, would be less than any number."""


@dataclass(frozen=True, eq=False)
class Tails:
    """Expected counts of the hidden part."""

    examined: Float[np.ndarray, " pair_or_unseen"]
    """Examinations after the last click."""
    went_on: Float[np.ndarray, " pair_or_unseen"]
    """Open last clicks on the pair after which the user went on."""
    inverse: Float[np.ndarray, " pair_or_unseen"]
    """Sum of 1 / z over the open last clicks on the pair."""
    went_on_at_rank: Float[np.ndarray, " rank"]
    log_likelihood: float
    """Sum of log z."""
    skip_went_on: float
    """Skips in tails after which the user went on..."""
    skip_could: float
    """...among those with a result below."""
    squares: Float[np.ndarray, "2 pair_or_unseen"] | None = None
    """Sums of the squares of `examined` and of `inverse`, session by session, where they were asked for."""


class Walk(NamedTuple):
    """How users walk down the tails: all that DBN, SDBN, DCM and CCM differ in."""

    skip: Float[np.ndarray, " pair_or_unseen"]
    """1 - attractiveness."""
    g: float
    h_pair: Float[np.ndarray, " pair_or_unseen"]
    h_rank: Float[np.ndarray, " rank"]
    """h = h_pair[last clicked pair] x h_rank[its rank]."""


@runtime_checkable
class HiddenTails(Protocol):
    """The tails of a log, wherever they are."""

    def expect(self, walk: Walk, *, squares: bool = False) -> Tails:
        """The E-step."""

    def alike(self) -> HiddenTails:
        """One tail of each shape, as if all documents were pair 0."""

    def starting_at(self, rank: int) -> HiddenTails:
        """The tails that begin at one rank."""


@dataclass(frozen=True, eq=False)
class Lists:
    """The lists of a log, where their last clicks are, and how many tails of each shape each of some pieces has."""

    pair: Int[np.ndarray, "session rank"]
    length: Int[np.ndarray, " session"]
    last: Int[np.ndarray, " session"]
    """Rank of the last click, -1 for none."""
    count: Float[np.ndarray, " session"]
    pieces: list[slice]
    shapes: Int[np.ndarray, "piece start length"]
    unseen: int


@dataclass(frozen=True, eq=False)
class TailsByShape:
    """What was shown from the last click on, for sessions with a result below it.

    Sessions of one shape, whose tails begin and end at the same ranks, stand together, in blocks of `SIDE_BY_SIDE`. A
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
    def of(cls, lists: Lists) -> TailsByShape:
        """Sort the sessions of a log."""
        shapes = lists.shapes
        start, shown = np.nonzero(shapes.sum(axis=0))
        tails = cls.empty(start, shown, shapes.sum(axis=0)[start, shown])
        number, place = np.cumsum(shapes, axis=0) - shapes, np.zeros((2, *shapes.shape[1:]), np.int64)
        place[:, start, shown] = tails.first_tail[:-1], tails.first_place[:-1]

        def work(k: int) -> None:
            rows = lists.pieces[k]
            some = lists.pair[rows], lists.length[rows], lists.last[rows], lists.count[rows]
            _by_shape(*some, number[k], *place, lists.unseen, tails.pair, tails.count)

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

    def starting_at(self, rank: int) -> TailsByShape:
        """The tails that begin at one rank."""
        first, end = np.searchsorted(self.start, [rank, rank + 1])
        places, tails = self.first_place[[first, end]], self.first_tail[[first, end]]
        shapes = self.start[first:end], self.length[first:end], self.sessions[first:end]
        return TailsByShape(*shapes, self.pair[slice(*places)], self.count[slice(*tails)])

    def expect(self, walk: Walk, *, squares: bool = False) -> Tails:
        return expect([self], walk, squares=squares)


def expect(parts: Sequence[TailsByShape], walk: Walk, *, squares: bool = False) -> Tails:
    """The E-step of several parts of a log: each thread has a share of every shape of each of them."""
    threads = min(n_threads(), 1 + sum(len(tails.count) for tails in parts) // _WORTH_A_THREAD)
    tables = np.zeros((threads, 5 if squares else 3, len(walk.skip)))
    ranks, totals = np.zeros((threads, len(walk.h_rank))), np.zeros((threads, 3))

    def work(k: int) -> None:
        for tails in parts:
            shapes = tails.start, tails.length, tails.first_tail, tails.first_place
            sums = tables[k], ranks[k], totals[k]
            _e_step(*shapes, tails.pair, tails.count, tails.plain, k, threads, *walk, *sums)

    for_each(work, threads)
    table = tables.sum(axis=0)
    log_likelihood, skip_went_on, skip_could = totals.sum(axis=0).tolist()
    return Tails(
        examined=table[0],
        went_on=table[1],
        inverse=table[2],
        went_on_at_rank=ranks.sum(axis=0),
        log_likelihood=log_likelihood,
        skip_went_on=skip_went_on,
        skip_could=skip_could,
        squares=table[3:] if squares else None,
    )


@final
@dataclass(frozen=True, eq=False)
class TailsInParts:
    """Tails of a log in chunks, each part in memory or mapped from a file."""

    parts: Sequence[TailsByShape]

    def expect(self, walk: Walk, *, squares: bool = False) -> Tails:
        return expect(self.parts, walk, squares=squares)

    def alike(self) -> TailsByShape:
        ones = [tails.alike() for tails in self.parts]
        ranks = 1 + max((int(one.length.max()) for one in ones if len(one.length)), default=0)
        count = np.zeros((ranks, ranks))
        for one in ones:
            count[one.start, one.length] += one.count
        start, length = np.nonzero(count)
        return replace(TailsByShape.empty(start, length, np.ones_like(start)), count=count[start, length])

    def starting_at(self, rank: int) -> TailsInParts:
        return TailsInParts([tails.starting_at(rank) for tails in self.parts])


@njit(cache=True, nogil=True)
@no_type_check
def _by_shape(pair, length, last, count, number, first_tail, first_place, unseen, tail_pair, tail_count):
    """`number` is that of the next session of each shape."""
    for i in range(len(pair)):
        start, n = last[i] + 1, length[i]
        if start >= n:
            continue
        top, k = max(start - 1, 0), number[start, n]
        number[start, n] += 1
        tail_count[first_tail[start, n] + k] = count[i]
        block = k // SIDE_BY_SIDE * SIDE_BY_SIDE
        at = first_place[start, n] + block * (n - top) + k - block
        for r in range(n - 1, top - 1, -1):
            tail_pair[at] = pair[i, r] if pair[i, r] >= 0 else unseen
            at += SIDE_BY_SIDE


@njit(cache=True, nogil=True, fastmath=True)
@no_type_check
def _e_step(
    starts,
    lengths,
    first_tail,
    first_place,
    pairs,
    count,
    plain,
    k,
    parts,
    skip,
    g,
    h_pair,
    h_rank,
    table,
    ranks,
    totals,
):
    """Part k of every shape.

    Many sessions side by side, with the looking up and the adding up in loops of their own: what remains is arithmetic
    on neighbours, which a processor does several at a time. Session by session took twice as long.
    """
    message, step = np.empty((len(h_rank), SIDE_BY_SIDE)), np.empty((len(h_rank), SIDE_BY_SIDE))
    onward, forward, first = np.empty(SIDE_BY_SIDE), np.empty(SIDE_BY_SIDE), np.empty(SIDE_BY_SIDE)
    z, inverse = np.empty(SIDE_BY_SIDE), np.empty(SIDE_BY_SIDE)
    squares, stop = len(table) > 3, 1 - g
    log_likelihood, all_examined, all_first, all_last = 0.0, 0.0, 0.0, 0.0
    of_examined, of_went_on, of_inverse = table[0], table[1], table[2]
    for shape in range(len(starts)):
        start, end, tail = starts[shape], first_tail[shape + 1], first_tail[shape]
        depth = lengths[shape] - start
        above = 1 if start > 0 else 0
        blocks, size = (end - tail + SIDE_BY_SIDE - 1) // SIDE_BY_SIDE, (depth + above) * SIDE_BY_SIDE
        for block in range(blocks * k // parts, blocks * (k + 1) // parts):
            begin = first_place[shape] + block * size
            pair = pairs[begin : begin + size].reshape((depth + above, SIDE_BY_SIDE))
            begin = tail + block * SIDE_BY_SIDE
            some = min(SIDE_BY_SIDE, end - begin)
            weight = count[begin : begin + some]
            onward[:] = 1.0  # beyond the list there is nothing to see
            for r in range(depth - 1, -1, -1):
                here, u, b = pair[depth - 1 - r], step[r], message[r]
                for j in range(some):
                    u[j] = skip[here[j]]
                for j in range(some):
                    below, through = onward[j], g * u[j]
                    b[j] = u[j] * below
                    u[j] = through
                    onward[j] = stop + through * below
            b = message[0]
            if above:
                clicked = pair[depth]
                for j in range(some):
                    first[j] = h_pair[clicked[j]]
                for j in range(some):
                    h = first[j] * h_rank[start - 1]
                    z[j] = 1 - h + h * b[j]
                    inverse[j] = weight[j] / z[j]
                    forward[j] = h * inverse[j]
                    first[j] = forward[j] * b[j]
                for j in range(some):
                    of_went_on[clicked[j]] += first[j]
                    of_inverse[clicked[j]] += inverse[j]
                    if squares:
                        table[4, clicked[j]] += inverse[j] / z[j]
            else:
                for j in range(some):
                    z[j] = b[j]
                    forward[j] = weight[j] / z[j]
                    first[j] = weight[j]
            if plain:
                for some_first in range(0, some, _FACTORS):
                    product = 1.0
                    for j in range(some_first, min(some_first + _FACTORS, some)):
                        product *= z[j]
                    log_likelihood += np.log(product)
            else:
                for j in range(some):
                    log_likelihood += weight[j] * np.log(z[j])
            went_on, examined = 0.0, 0.0
            for j in range(some):
                went_on += first[j]
            if above:
                ranks[start - 1] += went_on
            for r in range(depth):
                here, u, b = pair[depth - 1 - r], step[r], message[r]
                examined = 0.0
                for j in range(some):
                    arrived = forward[j]
                    e = arrived * b[j]
                    forward[j] = arrived * u[j]
                    b[j] = e
                    examined += e
                for j in range(some):
                    of_examined[here[j]] += b[j]
                if squares:
                    for j in range(some):
                        table[3, here[j]] += b[j] * (b[j] / weight[j])
                all_examined += examined
            all_first += went_on
            all_last += examined
    totals[0] += log_likelihood
    totals[1] += all_examined - all_first
    totals[2] += all_examined - all_last
