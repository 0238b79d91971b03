"""From how often each document stands at each rank to lists that can be shown (Birkhoff 1946, von Neumann 1953).

A placement is a mean of lists: documents x ranks, every rank filled, no document shown more than once. It is taken
apart list by list. With `left` of the placement and `remaining` of the probability, a list may take a share s if

    every entry that it uses has s left, and
    every document that it leaves out can afford it: the other lists must show that document for the rest of its row,
    so its row must sum to remaining - s or less.

Documents that cannot afford it must be in the list. Both conditions ease as s falls, so the largest share is found by
bisection over the entries and the documents' slacks, with a bipartite matching at each look. A share uses up an entry
or a document's slack, so there are no more lists than positive entries and documents together. Taking the largest first
keeps them few, and rounding errors in the last and smallest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final, no_type_check

import numpy as np
from jaxtyping import Float, Int
from numba import njit

from clickshift.core.parallel import for_ranges
from clickshift.data.vocabulary import UNSEEN
from clickshift.errors import DataError

_NOTHING = 1e-9
"""Probability that is not worth a list: what is left in the end, altogether, and is shared out among the lists."""
_OFF = 1e-7
"""How far a row or a column may be from what it must sum to."""
_QUERIES = 64
"""Queries that a thread takes apart at once."""


@final
@dataclass(frozen=True, eq=False)
class Lottery:
    """A stochastic policy as lists with probabilities, those of a query together, queries in ascending order."""

    query: Int[np.ndarray, " list"]
    pair: Int[np.ndarray, "list rank"]
    """Pair numbers, `UNSEEN` below the end of a list."""
    weight: Float[np.ndarray, " list"]
    """How likely each list is among those of its query: above 0, and adding up to 1."""

    def __len__(self) -> int:
        return len(self.weight)


def decompose_placement(
    placement: Float[np.ndarray, "doc rank"],
) -> tuple[Int[np.ndarray, "list rank"], Float[np.ndarray, " list"]]:
    """The lists of one placement, as row numbers of documents, and their weights, which add up to 1.

    Ranks that nobody stands at are allowed at the end: lists are that much shorter, and padded with `UNSEEN`.
    The weighted lists rebuild the placement to 1e-9.

    >>> lists, weight = decompose_placement(np.array([[0.75, 0.0], [0.25, 0.5], [0.0, 0.5]]))
    >>> lists.tolist(), weight.tolist()
    ([[0, 1], [0, 2], [1, 2]], [0.5, 0.25, 0.25])
    """
    lottery = decompose_placements(np.array([0, len(placement)]), placement)
    return lottery.pair, lottery.weight


def decompose_placements(offsets: Int[np.ndarray, " bound"], placement: Float[np.ndarray, "pair rank"]) -> Lottery:
    """The lists of every query's placement. Pairs `offsets[q]` up to, not including, `offsets[q + 1]` are of query q.

    A query whose rows are all 0 has no list.
    """
    placement = np.ascontiguousarray(placement, np.float64)
    length = _checked_lengths(offsets, placement)
    queries = len(length)
    parts: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}

    def block(rows: slice) -> None:
        bounds = offsets[rows.start : rows.stop + 1]
        here = placement[bounds[0] : bounds[-1]]
        most = int(np.count_nonzero(here)) + len(here) + 1
        query, weight = np.empty(most, np.int64), np.empty(most)
        pair = np.full((most, placement.shape[1]), UNSEEN, np.int32)
        found = _take_apart(placement, bounds, length[rows], query, pair, weight)
        parts[rows.start] = (query[:found] + rows.start, pair[:found], weight[:found])

    for_ranges(block, queries, chunk=_QUERIES)
    if not parts:
        return Lottery(np.empty(0, np.int64), np.empty((0, placement.shape[1]), np.int32), np.empty(0))
    query, pair, weight = (np.concatenate(columns) for columns in zip(*(parts[k] for k in sorted(parts)), strict=True))
    return Lottery(query, pair, weight)


def _checked_lengths(offsets: np.ndarray, placement: np.ndarray) -> Int[np.ndarray, " query"]:
    """How many ranks each query's lists have."""
    if not (placement >= -_OFF).all():
        raise DataError(f"a placement must hold probabilities: got {placement.min()}. Mend it before it becomes lists.")
    row = placement.sum(axis=1)
    if (row > 1 + _OFF).any():
        bad = int(row.argmax())
        raise DataError(
            f"a document must be shown at most once: row {bad + 1} of the placement adds up to {row[bad]:.6g}. "
            "Rows must add up to 1 or less."
        )
    sums = np.concatenate([np.zeros((1, placement.shape[1])), np.cumsum(placement, axis=0)])
    column = sums[offsets[1:]] - sums[offsets[:-1]]
    filled = column > 0.5
    length: np.ndarray = filled.sum(axis=1)
    # cumulated over a large log, sums are only so exact
    wrong = np.abs(column - (np.arange(placement.shape[1]) < length[:, None])) > _OFF + 1e-14 * len(placement)
    if wrong.any():
        query, rank = (int(place[0]) for place in np.nonzero(wrong))
        raise DataError(
            f"one document must stand at each rank: in query number {query}, rank {rank + 1} adds up to "
            f"{column[query, rank]:.6g}. Columns must add up to 1, or to 0 from the end of the lists on."
        )
    return length


@njit(cache=True, nogil=True)
@no_type_check
def _take_apart(placement, bounds, length, query, pair, weight):
    """Write the lists of these queries, and say how many there are."""
    found = 0
    for q in range(len(length)):
        ranks = length[q]
        doc = np.empty(bounds[q + 1] - bounds[q], np.int64)
        docs = 0
        for p in range(bounds[q], bounds[q + 1]):
            if placement[p].max() > 0:
                doc[docs] = p
                docs += 1
        left = np.empty((docs, ranks))
        for d in range(docs):
            for r in range(ranks):
                left[d, r] = max(placement[doc[d], r], 0.0)
        first, remaining = found, 1.0 if ranks else 0.0
        slack, candidate = np.empty(docs), np.empty(docs * (ranks + 1))
        doc_at, rank_of = np.empty(ranks, np.int64), np.empty(docs, np.int64)
        while remaining > _NOTHING:
            candidates = 0
            for d in range(docs):
                row = 0.0
                for r in range(ranks):
                    row += left[d, r]
                    if left[d, r] > 0:
                        candidate[candidates] = left[d, r]
                        candidates += 1
                slack[d] = remaining - row
                if slack[d] > 0:
                    candidate[candidates] = slack[d]
                    candidates += 1
            shares = np.sort(candidate[:candidates])
            low, high = -1, candidates - 1  # the last share known to be possible, the last one not known to be too much
            while low < high:
                middle = (low + high + 1) // 2
                if _match(left, slack, shares[middle], doc_at, rank_of):
                    low = middle
                else:
                    high = middle - 1
            if low < 0 or found == len(weight):
                break  # rounding has left something that is not a mean of lists
            share = min(shares[low], remaining)
            _match(left, slack, shares[low], doc_at, rank_of)
            for r in range(ranks):
                left[doc_at[r], r] -= share
                pair[found, r] = doc[doc_at[r]]
            query[found], weight[found] = q, share
            remaining -= share
            found += 1
        total = weight[first:found].sum()
        for i in range(first, found):
            weight[i] /= total
    return found


@njit(cache=True, nogil=True)
@no_type_check
def _match(left, slack, share, doc_at, rank_of):
    """Find a list that may take this share, if there is one.

    First the documents that must be in it find ranks, then the ranks that are still free find documents. An augmenting
    path keeps all that it passes matched, so the second round leaves no document out that the first has seated.
    """
    docs, ranks = left.shape
    doc_at[:] = -1
    rank_of[:] = -1
    must = 0
    for d in range(docs):
        must += slack[d] < share
    if must > ranks:
        return False
    queue, reached = np.empty(max(docs, ranks), np.int64), np.empty(max(docs, ranks), np.int64)
    for d in range(docs):
        if slack[d] < share and not _seat(left, share, d, rank_of, doc_at, queue, reached):
            return False
    for r in range(ranks):
        if doc_at[r] < 0 and not _seat(left.T, share, r, doc_at, rank_of, queue, reached):
            return False
    return True


@njit(cache=True, nogil=True)
@no_type_check
def _seat(left, share, start, column_of, row_at, queue, reached):
    """Match a row along the shortest augmenting path, if there is one. `reached` has for each column the row from which
    it was reached."""
    reached[:] = -1
    queue[0], head, tail, end = start, 0, 1, -1
    while head < tail and end < 0:
        row = queue[head]
        head += 1
        for column in range(left.shape[1]):
            if reached[column] < 0 and left[row, column] >= share:
                reached[column] = row
                if row_at[column] < 0:
                    end = column
                    break
                queue[tail] = row_at[column]
                tail += 1
    if end < 0:
        return False
    while end >= 0:
        row = reached[end]
        row_at[end], column_of[row], end = row, end, column_of[row]
    return True
