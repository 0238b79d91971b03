"""Sufficient counts: what a family of models looks at, and how often it happened.

Counting is the only pass over the sessions; after it, the cost of learning follows the number of distinct situations.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, no_type_check

import numpy as np
from jaxtyping import Float, Int
from numba import njit

from clickshift.errors import DataError
from clickshift.grouping import distinct_sorted
from clickshift.sessions import Sessions
from clickshift.threads import for_each, n_threads
from clickshift.vocabulary import UNSEEN, Vocabulary

By = Literal["rank", "last_click", "prefix"]
"""What examination may depend on: the rank; the rank and the last click above it; the rank and all clicks above it."""

_BY: tuple[By, ...] = ("rank", "last_click", "prefix")
_DENSE = 1 << 25  # cells: up to here a table over all of them is quicker than a search for those that occur
_MAX_PREFIX = 30


@dataclass(frozen=True, eq=False)
class Cells:
    """How often each pair was shown and clicked in each situation; only what occurs is kept, sorted by pair.

    Situations are numbered so that rank r (from 0) comes before rank r + 1:
    by rank: r;  by last_click: r (r + 1) / 2 + rank of the last click from 1, 0 for none;
    by prefix: 2^r - 1 + sum of 2^j over the clicked ranks j above.
    """

    vocabulary: Vocabulary
    n_ranks: int
    by: By
    pair: Int[np.ndarray, " cell"]
    situation: Int[np.ndarray, " cell"]
    impressions: Float[np.ndarray, " cell"]
    clicks: Float[np.ndarray, " cell"]

    @classmethod
    def of(cls, sessions: Sessions, by: By = "rank", *, weight: np.ndarray | None = None) -> Cells:
        """Count a log, in one pass; `weight` replaces the sessions' counts. Pairs outside its vocabulary are left
        out."""
        if by == "prefix" and sessions.n_ranks > _MAX_PREFIX:
            raise DataError(
                f"counting by all clicks above needs lists of at most {_MAX_PREFIX}: got {sessions.n_ranks}. "
                "Cut the lists, or use a model that looks at the last click only."
            )
        n_situations = situations(by, sessions.n_ranks)
        size = sessions.vocabulary.n_pairs * n_situations
        count = (sessions.count if weight is None else weight).astype(np.float64)
        key, counts = (_count_dense if size <= _DENSE else _count_sparse)(sessions, count, by, n_situations)
        pair, situation = np.divmod(key, n_situations)
        return cls(sessions.vocabulary, sessions.n_ranks, by, pair, situation, counts[:, 0], counts[:, 1])

    @property
    def n_situations(self) -> int:
        return situations(self.by, self.n_ranks)

    def rank(self) -> Int[np.ndarray, " cell"]:
        rank: np.ndarray = rank_of(self.by, self.n_ranks)[self.situation]
        return rank

    def by_pair(self) -> tuple[Float[np.ndarray, " pair"], Float[np.ndarray, " pair"]]:
        """Impressions and clicks of every pair."""
        return self._totals(self.pair, self.vocabulary.n_pairs)

    def by_situation(self) -> tuple[Float[np.ndarray, " situation"], Float[np.ndarray, " situation"]]:
        """Impressions and clicks of every situation."""
        return self._totals(self.situation, self.n_situations)

    def by_rank(self) -> tuple[Float[np.ndarray, " rank"], Float[np.ndarray, " rank"]]:
        """Impressions and clicks of every rank."""
        return self._totals(self.rank(), self.n_ranks)

    def _totals(self, index: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
        return np.bincount(index, self.impressions, size), np.bincount(index, self.clicks, size)

    def rolled_up(self, by: By) -> Cells:
        """The same counts by a coarser situation."""
        if _BY.index(by) > _BY.index(self.by):
            raise DataError(f"counts by {self.by} do not hold what counts by {by} need. Count the log again.")
        coarse = _coarser(self.by, by, self.n_ranks)[self.situation]
        n_situations = situations(by, self.n_ranks)
        key, cell = distinct_sorted(self.pair * n_situations + coarse)
        impressions, clicks = (np.bincount(cell, values, len(key)) for values in (self.impressions, self.clicks))
        return Cells(self.vocabulary, self.n_ranks, by, *np.divmod(key, n_situations), impressions, clicks)


def situations(by: By, n_ranks: int) -> int:
    """How many situations there are in lists of this length."""
    return {"rank": n_ranks, "last_click": n_ranks * (n_ranks + 1) // 2, "prefix": (1 << n_ranks) - 1}[by]


def rank_of(by: By, n_ranks: int) -> Int[np.ndarray, " situation"]:
    """The rank of every situation."""
    sizes = [situations(by, r + 1) - situations(by, r) for r in range(n_ranks)]
    return np.repeat(np.arange(n_ranks), sizes)


def situation_of(by: By, sessions: Sessions) -> Int[np.ndarray, "session rank"]:
    """The situation of every result of a log."""
    click, ranks = sessions.click, np.arange(sessions.n_ranks)
    start = np.array([situations(by, r) for r in range(sessions.n_ranks)])
    out = np.broadcast_to(start, click.shape).copy()
    if by == "last_click":
        last = np.maximum.accumulate(np.where(click, ranks + 1, 0), axis=1)
        out[:, 1:] += last[:, :-1]
    elif by == "prefix":
        out[:, 1:] += np.cumsum(click.astype(np.int64) << ranks, axis=1)[:, :-1]
    return out


def _coarser(fine: By, coarse: By, n_ranks: int) -> np.ndarray:
    """For every fine situation the coarse one that it belongs to."""
    rank = rank_of(fine, n_ranks)
    if coarse == "rank" or fine == coarse:
        return rank if coarse == "rank" else np.arange(len(rank))
    bits = np.arange(len(rank)) - ((1 << rank) - 1)
    last = np.floor(np.log2(np.maximum(bits, 0.5))).astype(np.int64) + 1  # 0 for no click
    coarser: np.ndarray = rank * (rank + 1) // 2 + last
    return coarser


def _count_dense(sessions: Sessions, count: np.ndarray, by: By, n_situations: int) -> tuple[np.ndarray, np.ndarray]:
    pieces = list(pairwise(np.linspace(0, len(sessions), n_threads() + 1).astype(int).tolist()))
    size = (sessions.vocabulary.n_pairs + 1) * n_situations  # the last pair's place takes what is UNSEEN
    tables = [np.zeros((size, 2)) for _ in pieces]

    def work(piece: int) -> None:
        rows = slice(*pieces[piece])
        part = sessions[rows]
        _count(
            part.rankings.pair, part.rankings.shown, part.click, count[rows], _BY.index(by), n_situations, tables[piece]
        )

    for_each(work, len(pieces))
    total = tables[0]
    for table in tables[1:]:
        total += table
    total[:, 0] += total[:, 1]  # impressions
    key = np.flatnonzero(total[: size - n_situations, 0])
    return key, total[key]


@njit(cache=True, nogil=True)
@no_type_check
def _count(pair, shown, click, count, by, n_situations, table):
    """Skips and clicks, side by side. UNSEEN is counted after the last pair."""
    n, ranks = pair.shape
    last_row = table.shape[0] // n_situations - 1
    for i in range(n):
        first, above, weight = 0, 0, count[i]  # the rank's first situation, and which of its situations this is
        for r in range(ranks):
            if not shown[i, r]:
                break
            row, clicked = pair[i, r] if pair[i, r] >= 0 else last_row, click[i, r]
            # unsigned, so that nobody asks whether a number counts from the end
            table[np.uint64(row * n_situations + first + above), np.uint64(clicked)] += weight
            if by == 0:
                first += 1
            elif by == 1:
                first += r + 1
                above = r + 1 if clicked else above
            else:
                first += 1 << r
                above |= clicked << r


def _count_sparse(sessions: Sessions, count: np.ndarray, by: By, n_situations: int) -> tuple[np.ndarray, np.ndarray]:
    """Rank by rank, which bounds the memory: a cell belongs to one rank."""
    situation = situation_of(by, sessions)
    keys, counts = [], []
    for rank in range(sessions.n_ranks):
        pair = sessions.rankings.pair[:, rank]
        rows = np.flatnonzero(pair != UNSEEN)
        key, cell = distinct_sorted(pair[rows].astype(np.int64) * n_situations + situation[rows, rank])
        weight = count[rows]
        clicked = weight * sessions.click[rows, rank]
        keys.append(key)
        counts.append(np.stack([np.bincount(cell, w, len(key)) for w in (weight, clicked)], axis=1))
    all_keys = np.concatenate(keys)
    order = np.argsort(all_keys)
    return all_keys[order], np.concatenate(counts)[order]
