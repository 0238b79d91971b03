"""Cascade: sufficient counts of models whose users walk down the list and stop.

Up to the last click everything was examined, so that counts per pair say it all. What happened after the last click is
hidden; those tails hardly ever repeat, and are kept as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import no_type_check

import numpy as np
from jaxtyping import Float, Int, UInt32
from numba import njit

from clickshift.sessions import Sessions
from clickshift.threads import for_each, n_threads
from clickshift.vocabulary import Vocabulary

SIDE_BY_SIDE = 128
"""Sessions that a kernel has in hand at once: few enough that what it needs of them stays in the nearest cache."""


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


@dataclass(frozen=True, eq=False)
class Cascade:
    """Tables by pair have an extra last row for `UNSEEN` pairs. "Open" is a last click with a result below it."""

    vocabulary: Vocabulary
    n_ranks: int
    lists: Lists

    impressions: Float[np.ndarray, " pair_or_unseen"]
    examined: Float[np.ndarray, " pair_or_unseen"]
    """How often the pair was shown at or above the last click: there it was certainly examined."""
    clicks: Float[np.ndarray, " pair_or_unseen"]
    followed: Float[np.ndarray, " pair_or_unseen"]
    """Clicks that another click followed: the user certainly went on."""
    open_last: Float[np.ndarray, " pair_or_unseen"]
    followed_at_rank: Float[np.ndarray, " rank"]
    open_last_at_rank: Float[np.ndarray, " rank"]
    first_examined: Float[np.ndarray, " pair_or_unseen"]
    """How often the pair was shown at or above the first click, or without any click: what the cascade model looks
    at."""
    first_clicks: Float[np.ndarray, " pair_or_unseen"]
    passed: float
    """Skips above the last click: the user certainly went on."""

    @classmethod
    def of(cls, sessions: Sessions, *, weight: np.ndarray | None = None) -> Cascade:
        """Count a log; `weight` replaces the sessions' counts."""
        rankings, width, threads = sessions.rankings, sessions.n_ranks, n_threads()
        count = (sessions.count if weight is None else weight).astype(np.float64)
        length, last = np.empty(len(count), np.int32), np.empty(len(count), np.int32)
        cuts = np.linspace(0, len(count), threads + 1).astype(int)
        pieces = [slice(cuts[k], cuts[k + 1]) for k in range(threads)]
        tables, ranks = np.zeros((threads, sessions.vocabulary.n_pairs + 1, 8)), np.zeros((threads, width, 2))
        passed, shapes = np.zeros(threads), np.zeros((threads, width, width + 1), np.int64)

        def tally(k: int) -> None:
            rows = pieces[k]
            lists = rankings.pair[rows], rankings.shown[rows], sessions.click[rows], count[rows]
            passed[k] = _count(*lists, length[rows], last[rows], tables[k], ranks[k], shapes[k])

        for_each(tally, threads)
        without, to_first, to_last, below, first, clicks, followed, open_last = tables.sum(axis=0).T.copy()
        followed_at_rank, open_last_at_rank = ranks.sum(axis=0).T
        return cls(
            vocabulary=sessions.vocabulary,
            n_ranks=width,
            lists=Lists(rankings.pair, length, last, count, pieces, shapes, sessions.vocabulary.n_pairs),
            impressions=without + to_first + to_last + below,
            examined=to_first + to_last,
            clicks=clicks,
            followed=followed,
            open_last=open_last,
            followed_at_rank=followed_at_rank,
            open_last_at_rank=open_last_at_rank,
            first_examined=without + to_first,
            first_clicks=first,
            passed=float(passed.sum()),
        )

    @cached_property
    def tails(self) -> TailsByShape:
        """Sorted when first asked for: the cascade model and the shortcuts do without."""
        return TailsByShape.of(self.lists)

    def alike(self) -> Cascade:
        """The same clicks, as if all documents were one; its tails are `tails.alike()`."""
        return replace(
            self,
            impressions=_in_first_row(self.impressions),
            examined=_in_first_row(self.examined),
            clicks=_in_first_row(self.clicks),
            followed=_in_first_row(self.followed),
            open_last=_in_first_row(self.open_last),
            first_examined=_in_first_row(self.first_examined),
            first_clicks=_in_first_row(self.first_clicks),
        )


def _in_first_row(table: Float[np.ndarray, " pair_or_unseen"]) -> Float[np.ndarray, " 2"]:
    return np.array([table.sum(), 0.0])


@njit(cache=True, nogil=True)
@no_type_check
def _count(pair, shown, click, count, length, last, table, ranks, shapes):
    """Columns: shown without any click, up to the first, up to the last, below it; first clicks, clicks, followed ones,
    open last ones. UNSEEN is -1, which is the last row."""
    passed, width = 0.0, pair.shape[1]
    for i in range(len(pair)):
        weight, n, first_click, last_click = count[i], 0, width, -1
        while n < width and shown[i, n]:
            if click[i, n]:
                first_click = min(first_click, n)
                last_click = n
            n += 1
        length[i], last[i] = n, last_click
        if last_click + 1 < n:
            shapes[last_click + 1, n] += 1
        if last_click < 0:
            for r in range(n):
                table[pair[i, r], 0] += weight
            continue
        for r in range(first_click + 1):
            table[pair[i, r], 1] += weight
        for r in range(first_click + 1, last_click + 1):
            table[pair[i, r], 2] += weight
        for r in range(last_click + 1, n):
            table[pair[i, r], 3] += weight
        table[pair[i, first_click], 4] += weight
        passed += weight * first_click
        for r in range(first_click, last_click + 1):
            if not click[i, r]:
                passed += weight
                continue
            table[pair[i, r], 5] += weight
            if r < last_click:
                table[pair[i, r], 6] += weight
                ranks[r, 0] += weight
            elif r + 1 < n:
                table[pair[i, r], 7] += weight
                ranks[r, 1] += weight
    return passed


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
