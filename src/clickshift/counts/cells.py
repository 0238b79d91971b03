"""Sufficient counts: what a family of models looks at, and how often it happened.

Counting looks at the sessions; after it, the cost of learning follows the number of distinct situations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal, no_type_check

import numpy as np
from jaxtyping import Float, Int
from numba import njit

from clickshift.core.parallel import for_each, n_threads
from clickshift.core.unique_rows import distinct_sorted
from clickshift.data.encoded_log import Log, split_at_queries, weighted_arrays, weighted_chunks
from clickshift.data.sessions import Sessions
from clickshift.data.vocabulary import UNSEEN, Vocabulary
from clickshift.errors import DataError

By = Literal["rank", "last_click", "prefix"]
"""What examination may depend on: the rank; the rank and the last click above it; the rank and all clicks above it."""

_BY: tuple[By, ...] = ("rank", "last_click", "prefix")
_DENSE = 1 << 22
"""Cells up to which each thread has a table of all of them."""
_SHARE = 1 << 25
"""Cells of which a thread has a table at a time, where there are more."""
_MAX_PREFIX = 30
_Counted = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Pair, situation, impressions and clicks of each cell."""
_Tables = tuple[np.ndarray, int, int, int]
"""Tables that add up, the pairs from one up to another that are taken, and the pair that the tables begin with."""


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
    def of(cls, log: Log, by: By = "rank", *, weight: np.ndarray | None = None) -> Cells:
        """Count a log; `weight` replaces the counts of its rows. Pairs outside its vocabulary are left out.

        One pass, or a few where a table of all that may occur would not fit: each then counts a share of the queries.
        """
        if by == "prefix" and log.n_ranks > _MAX_PREFIX:
            raise DataError(
                f"counting by all clicks above needs lists of at most {_MAX_PREFIX}: got {log.n_ranks}. "
                "Cut the lists, or use a model that looks at the last click only."
            )
        n_situations = situations(by, log.n_ranks)
        size = log.vocabulary.n_pairs * n_situations
        many = _count_sparse if by == "prefix" else _count_shares
        count = _count_dense if size <= _DENSE else many
        return cls(log.vocabulary, log.n_ranks, by, *count(log, weight, by, n_situations))

    @property
    def n_situations(self) -> int:
        return situations(self.by, self.n_ranks)

    def rank(self) -> Int[np.ndarray, " cell"]:
        rank: np.ndarray = rank_of(self.by, self.n_ranks)[self.situation]
        return rank

    @cached_property
    def offsets(self) -> Int[np.ndarray, " pair_or_end"]:
        """Where the cells of each pair begin."""
        return np.append(0, np.cumsum(np.bincount(self.pair, minlength=self.vocabulary.n_pairs)))

    def by_pair(self) -> tuple[Float[np.ndarray, " pair"], Float[np.ndarray, " pair"]]:
        """Impressions and clicks of every pair."""
        return self._by_pair

    @cached_property
    def _by_pair(self) -> tuple[Float[np.ndarray, " pair"], Float[np.ndarray, " pair"]]:
        alike = np.ones(self.n_situations)
        return self._weighed(self.impressions, alike), self._weighed(self.clicks, alike)

    def weighed(self, weight: Float[np.ndarray, " situation"]) -> Float[np.ndarray, " pair"]:
        """Impressions of every pair, those in each situation with its weight."""
        return self._weighed(self.impressions, weight)

    def _weighed(self, count: Float[np.ndarray, " cell"], weight: Float[np.ndarray, " situation"]) -> np.ndarray:
        total, cuts = np.empty(self.vocabulary.n_pairs), self.ranges(n_threads())
        for_each(lambda k: _weigh(*cuts[k], self.offsets, self.situation, count, weight, total), len(cuts))
        return total

    def ranges(self, n: int) -> list[tuple[int, int]]:
        """Ranges of pairs with about as many cells each."""
        cuts = np.searchsorted(self.offsets, np.linspace(0, len(self.pair), n + 1)[1:-1])
        return [(a, b) for a, b in pairwise([0, *cuts.tolist(), self.vocabulary.n_pairs]) if b > a]

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
        key, cell = distinct_sorted(self.pair.astype(np.int64) * n_situations + coarse)
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


def _kind(log: Log, weight: np.ndarray | None) -> type:
    """Of the tables: sessions that count once need half the room."""
    return np.uint32 if weight is None and not log.has_counts else np.float64


def _count_dense(log: Log, weight: np.ndarray | None, by: By, n_situations: int) -> _Counted:
    pairs, threads = log.vocabulary.n_pairs, n_threads()
    shape = threads, 2, (pairs + 1) * n_situations  # the last pair's place takes what is UNSEEN
    tables: np.ndarray = np.zeros(shape, _kind(log, weight))

    def add(part: Sessions, count: Float[np.ndarray, " session"]) -> None:
        cuts = np.linspace(0, len(part), threads + 1).astype(int)

        def work(k: int) -> None:
            rows = slice(cuts[k], cuts[k + 1])
            some = part[rows]
            _count(
                some.rankings.pair, some.rankings.shown, some.click, count[rows], _BY.index(by), n_situations, tables[k]
            )

        for_each(work, threads)

    for part, count in weighted_chunks(log, weight):
        add(part, count)
    cuts = np.linspace(0, pairs, threads + 1).astype(int).tolist()
    return _taken([(tables, cuts[k], cuts[k + 1], 0) for k in range(threads)], n_situations)


def _count_shares(log: Log, weight: np.ndarray | None, by: By, n_situations: int) -> _Counted:
    """Some queries at a time, each thread those of its own. Cells come sorted by pair."""
    threads, words, kind = n_threads(), log.vocabulary, _kind(log, weight)
    room = 2 * _SHARE if kind is np.uint32 else _SHARE
    shares = -(-words.n_pairs * n_situations // room)
    bounds = split_at_queries(words, max(shares, threads))
    spans = list(pairwise(bounds.tolist()))
    # for all passes, since new memory costs more than zeros
    places = np.empty((threads, 2 * n_situations * max(end - start for start, end in spans)), kind)
    found = None
    for first in range(0, len(spans), threads):
        found = _taken(
            _count_pass(log, weight, by, n_situations, spans[first : first + threads], places), n_situations, found
        )
    assert found is not None
    return found


def _count_pass(
    log: Log, weight: np.ndarray | None, by: By, n_situations: int, spans: list[tuple[int, int]], places: np.ndarray
) -> list[_Tables]:
    tables = [
        place[: 2 * n_situations * (end - start)].reshape(2, -1)
        for place, (start, end) in zip(places, spans, strict=False)
    ]
    for_each(lambda k: tables[k].fill(0), len(tables))

    def add(pair: np.ndarray, click: np.ndarray, count: np.ndarray) -> None:
        for_each(
            lambda k: _count_share(pair, click, count, *spans[k], _BY.index(by), n_situations, tables[k]), len(spans)
        )

    for lists in weighted_arrays(log, weight):
        add(*lists)
    return [(table[None], start, end, start) for table, (start, end) in zip(tables, spans, strict=True)]


def _taken(parts: Sequence[_Tables], n_situations: int, before: _Counted | None = None) -> _Counted:
    """What occurs, in small numbers: a large log has a hundred million cells. What is `before` grows, without a
    copy."""
    sizes = np.zeros(len(parts), np.int64)

    def count(k: int) -> None:
        sizes[k] = _how_many(*parts[k], n_situations)

    for_each(count, len(parts))
    if before is None:
        before = np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0), np.empty(0)
    old = len(before[0])
    for column in before:
        column.resize(old + int(sizes.sum()), refcheck=False)
    pair, situation, impressions, clicks = before
    end = old + np.cumsum(sizes)

    def take(k: int) -> None:
        _take(*parts[k], n_situations, end[k] - sizes[k], end[k], pair, situation, impressions, clicks)

    for_each(take, len(parts))
    return pair, situation, impressions, clicks


@njit(cache=True, nogil=True)
@no_type_check
def _weigh(start, stop, offsets, situation, count, weight, total):
    for p in range(start, stop):
        total[p] = 0.0
        for k in range(offsets[p], offsets[p + 1]):
            total[p] += count[k] * weight[situation[k]]


@njit(cache=True, nogil=True)
@no_type_check
def _how_many(tables, start, stop, first, n_situations):
    n = 0
    for key in range((start - first) * n_situations, (stop - first) * n_situations):
        total = tables[0, 0, key] + tables[0, 1, key]
        for k in range(1, len(tables)):
            total += tables[k, 0, key] + tables[k, 1, key]
        n += total > 0
    return n


@njit(cache=True, nogil=True)
@no_type_check
def _take(tables, start, stop, first, n_situations, at, end, pair, situation, impressions, clicks):
    """Every cell is written, and the next one over it if it never occurred: nobody could guess which ones did."""
    key = (start - first) * n_situations
    for p in range(start, stop):
        for s in range(n_situations):
            if at == end:
                return
            skipped, clicked = tables[0, 0, key], tables[0, 1, key]
            for k in range(1, len(tables)):
                skipped += tables[k, 0, key]
                clicked += tables[k, 1, key]
            pair[at], situation[at], impressions[at], clicks[at] = p, s, skipped + clicked, clicked
            at += skipped + clicked > 0
            key += 1


@njit(cache=True, nogil=True)
@no_type_check
def _count(pair, shown, click, count, by, n_situations, table):
    """Skips, and clicks in a table of their own: they are rare, and skips are nearer to each other without them. UNSEEN
    is counted after the last pair."""
    n, ranks = pair.shape
    last_row = table.shape[1] // n_situations - 1
    for i in range(n):
        first, above, weight = 0, 0, count[i]  # the rank's first situation, and which of its situations this is
        for r in range(ranks):
            if not shown[i, r]:
                break
            row, clicked = pair[i, r] if pair[i, r] >= 0 else last_row, click[i, r]
            # unsigned, so that nobody asks whether a number counts from the end
            table[np.uint64(clicked), np.uint64(row * n_situations + first + above)] += weight
            if by == 0:
                first += 1
            elif by == 1:
                first += r + 1
                above = r + 1 if clicked else above
            else:
                first += 1 << r
                above |= clicked << r


@njit(cache=True, nogil=True)
@no_type_check
def _count_share(pair, click, count, start, stop, by, n_situations, table):
    """Skips and clicks of the pairs from `start` to `stop`, which are all pairs of some queries: one look at a row's
    first pair tells whether to look at the others. Where nothing is shown there is neither a pair nor a click."""
    n, ranks = pair.shape
    for i in range(n):
        if pair[i, 0] >= 0 and (pair[i, 0] < start or pair[i, 0] >= stop):
            continue
        first, above = 0, 0
        for r in range(ranks):
            p, clicked = pair[i, r], click[i, r]
            if p >= start and p < stop:
                table[np.uint64(clicked), np.uint64((p - start) * n_situations + first + above)] += count[i]
            if by == 0:
                first += 1
            else:
                first += r + 1
                above = r + 1 if clicked else above


def _count_sparse(log: Log, weight: np.ndarray | None, by: By, n_situations: int) -> _Counted:
    """Rank by rank, which bounds the memory: a cell belongs to one rank."""
    keys, counts = [], []
    for part, count in weighted_chunks(log, weight):
        situation = situation_of(by, part)
        for rank in range(part.n_ranks):
            pair = part.rankings.pair[:, rank]
            rows = np.flatnonzero(pair != UNSEEN)
            key, cell = distinct_sorted(pair[rows].astype(np.int64) * n_situations + situation[rows, rank])
            clicked = count[rows] * part.click[rows, rank]
            keys.append(key)
            counts.append(np.stack([np.bincount(cell, w, len(key)) for w in (count[rows], clicked)], axis=1))
    key, cell = distinct_sorted(np.concatenate(keys))
    every = np.concatenate(counts)
    impressions, clicks = (np.bincount(cell, every[:, k], len(key)) for k in range(2))
    return *np.divmod(key, n_situations), impressions, clicks
