"""Birkhoff-von Neumann decomposition of placement probabilities into lists.

A placement gives the probability of each document at each rank: documents x ranks, every rank filled, no document shown
more than once. It is a mean of lists, which are removed from it one at a time. With `residual` of the placement and
`remaining` of the probability not yet assigned, a list may take a share s if

    every entry that it uses has at least s left, and
    every document that it leaves out has slack for it: the other lists must show that document for the rest of its row,
    so its row must sum to remaining - s or less.

Documents without that slack must be in the list. Both conditions relax as s falls, so the largest share is found by
bisection over the entries and the documents' slacks, with a bipartite matching at each step. A share exhausts an entry
or a document's slack, so there are no more lists than positive entries and documents together. Taking the largest share
first keeps lists few, and leaves rounding errors in the last and smallest ones.

References
----------
Birkhoff, G. (1946). Tres observaciones sobre el álgebra lineal. Univ. Nac. Tucumán Rev. A.
von Neumann, J. (1953). A certain zero-sum two-person game equivalent to the optimal assignment problem. Contributions
to the Theory of Games II.
"""

from __future__ import annotations

from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Float, Int
from numba import njit

from clickshift.core.parallel import for_ranges
from clickshift.data.vocabulary import UNSEEN
from clickshift.errors import DataError

_NEGLIGIBLE = 1e-9
"""Total probability below which no further list is made; it is distributed over the lists of the query."""
_TOLERANCE = 1e-7
"""Largest deviation of a row or column sum from its required value."""
_QUERIES_PER_TASK = 64
"""Number of queries that one thread decomposes at a time."""


class ListArrays(NamedTuple):
    """Lists with probabilities, by query in ascending order; `WeightedLists` adds the vocabulary.

    Parameters
    ----------
    query
        Query number of each list.
    pair
        Pair numbers, `UNSEEN` below the end of a list.
    weight
        Probability of each list among those of its query: positive, summing to 1 per query.
    """

    query: Int[np.ndarray, " list"]
    pair: Int[np.ndarray, "list rank"]
    weight: Float[np.ndarray, " list"]


def decompose_placement(
    placement: Float[np.ndarray, "doc rank"],
) -> tuple[Int[np.ndarray, "list rank"], Float[np.ndarray, " list"]]:
    """Decompose the placement probabilities of one query into weighted lists.

    Parameters
    ----------
    placement
        Probability of each document at each rank. The last columns may be 0: lists are then that much shorter, and
        padded with `UNSEEN`.

    Returns
    -------
    lists
        Row numbers of the documents at each rank.
    weight
        Probabilities of the lists, summing to 1. The weighted lists reproduce the placement to 1e-9.

    Raises
    ------
    DataError
        "not-a-probability" or "not-a-placement", as in `decompose_placements`.

    Examples
    --------
    >>> lists, weight = decompose_placement(np.array([[0.75, 0.0], [0.25, 0.5], [0.0, 0.5]]))
    >>> lists.tolist(), weight.tolist()
    ([[0, 1], [0, 2], [1, 2]], [0.5, 0.25, 0.25])
    """
    _, lists, weight = decompose_placements(np.array([0, len(placement)]), placement)
    return lists, weight


def decompose_placements(offsets: Int[np.ndarray, " bound"], placement: Float[np.ndarray, "pair rank"]) -> ListArrays:
    """Decompose the placement probabilities of every query into weighted lists.

    Parameters
    ----------
    offsets
        Pairs `offsets[q]` up to, not including, `offsets[q + 1]` belong to query q.
    placement
        Probability of each pair at each rank.

    Returns
    -------
    ListArrays
        The lists of all queries. A query whose rows are all 0 has no list.

    Raises
    ------
    DataError
        "not-a-probability" if an entry is negative; "not-a-placement" if a row sums to more than 1, or a column to
        neither 1 nor, from the end of the lists on, 0.
    """
    placement = np.ascontiguousarray(placement, np.float64)
    length = _checked_lengths(offsets, placement)
    n_queries = len(length)
    parts: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}

    def block(rows: slice) -> None:
        bounds = offsets[rows.start : rows.stop + 1]
        block_placement = placement[bounds[0] : bounds[-1]]
        max_lists = int(np.count_nonzero(block_placement)) + len(block_placement) + 1
        query, weight = np.empty(max_lists, np.int64), np.empty(max_lists)
        pair = np.full((max_lists, placement.shape[1]), UNSEEN, np.int32)
        n_lists = _decompose(placement, bounds, length[rows], query, pair, weight)
        parts[rows.start] = (query[:n_lists] + rows.start, pair[:n_lists], weight[:n_lists])

    for_ranges(block, n_queries, chunk=_QUERIES_PER_TASK)
    if not parts:
        return ListArrays(np.empty(0, np.int64), np.empty((0, placement.shape[1]), np.int32), np.empty(0))
    query, pair, weight = (np.concatenate(columns) for columns in zip(*(parts[k] for k in sorted(parts)), strict=True))
    return ListArrays(query, pair, weight)


def _checked_lengths(offsets: np.ndarray, placement: np.ndarray) -> Int[np.ndarray, " query"]:
    """Check row and column sums, and return the list length of each query."""
    if not (placement >= -_TOLERANCE).all():
        raise DataError(
            f"a placement must hold probabilities: got {placement.min()}. Fix it before it is decomposed into lists.",
            code="not-a-probability",
            value=float(placement.min()),
        )
    row_sum = placement.sum(axis=1)
    if (row_sum > 1 + _TOLERANCE).any():
        worst = int(row_sum.argmax())
        raise DataError(
            f"a document must be shown at most once: row {worst + 1} of the placement sums to {row_sum[worst]:.6g}. "
            "Rows must sum to 1 or less.",
            code="not-a-placement",
            row=worst + 1,
            value=float(row_sum[worst]),
        )
    sums = np.concatenate([np.zeros((1, placement.shape[1])), np.cumsum(placement, axis=0)])
    column_sum = sums[offsets[1:]] - sums[offsets[:-1]]
    filled = column_sum > 0.5
    length: np.ndarray = filled.sum(axis=1)
    # differences of sums cumulated over a large log carry rounding errors in proportion to its length
    tolerance = _TOLERANCE + 1e-14 * len(placement)
    wrong = np.abs(column_sum - (np.arange(placement.shape[1]) < length[:, None])) > tolerance
    if wrong.any():
        query, rank = (int(index[0]) for index in np.nonzero(wrong))
        raise DataError(
            f"each rank must show one document: in query number {query}, rank {rank + 1} sums to "
            f"{column_sum[query, rank]:.6g}. Columns must sum to 1, or to 0 from the end of the lists on.",
            code="not-a-placement",
            query=query,
            rank=rank + 1,
            value=float(column_sum[query, rank]),
        )
    return length


@njit(cache=True, nogil=True)
@no_type_check
def _decompose(placement, bounds, length, query, pair, weight):
    """Write the lists of these queries to `query`, `pair` and `weight`, and return their number."""
    n_lists = 0
    for q in range(len(length)):
        ranks = length[q]
        doc = np.empty(bounds[q + 1] - bounds[q], np.int64)
        docs = 0
        for p in range(bounds[q], bounds[q + 1]):
            if placement[p].max() > 0:
                doc[docs] = p
                docs += 1
        residual = np.empty((docs, ranks))
        for d in range(docs):
            for r in range(ranks):
                residual[d, r] = max(placement[doc[d], r], 0.0)
        first, remaining = n_lists, 1.0 if ranks else 0.0
        slack, candidate = np.empty(docs), np.empty(docs * (ranks + 1))
        doc_at, rank_of = np.empty(ranks, np.int64), np.empty(docs, np.int64)
        while remaining > _NEGLIGIBLE:
            candidates = 0
            for d in range(docs):
                row = 0.0
                for r in range(ranks):
                    row += residual[d, r]
                    if residual[d, r] > 0:
                        candidate[candidates] = residual[d, r]
                        candidates += 1
                slack[d] = remaining - row
                if slack[d] > 0:
                    candidate[candidates] = slack[d]
                    candidates += 1
            shares = np.sort(candidate[:candidates])
            low, high = -1, candidates - 1  # largest share known to be feasible, largest not known to be infeasible
            while low < high:
                middle = (low + high + 1) // 2
                if _match(residual, slack, shares[middle], doc_at, rank_of):
                    low = middle
                else:
                    high = middle - 1
            if low < 0 or n_lists == len(weight):
                break  # because of rounding, the residual is not a mean of lists
            share = min(shares[low], remaining)
            _match(residual, slack, shares[low], doc_at, rank_of)
            for r in range(ranks):
                residual[doc_at[r], r] -= share
                pair[n_lists, r] = doc[doc_at[r]]
            query[n_lists], weight[n_lists] = q, share
            remaining -= share
            n_lists += 1
        total = weight[first:n_lists].sum()
        for i in range(first, n_lists):
            weight[i] /= total
    return n_lists


@njit(cache=True, nogil=True)
@no_type_check
def _match(residual, slack, share, doc_at, rank_of):
    """Find a list that may take this share, and return whether there is one.

    First the documents without slack are matched to ranks, then the free ranks to documents. An augmenting path keeps
    every vertex on it matched, so the second round leaves out no document that the first one matched.
    """
    docs, ranks = residual.shape
    doc_at[:] = -1
    rank_of[:] = -1
    n_required = 0
    for d in range(docs):
        n_required += slack[d] < share
    if n_required > ranks:
        return False
    queue, reached = np.empty(max(docs, ranks), np.int64), np.empty(max(docs, ranks), np.int64)
    for d in range(docs):
        if slack[d] < share and not _augment(residual, share, d, rank_of, doc_at, queue, reached):
            return False
    for r in range(ranks):
        if doc_at[r] < 0 and not _augment(residual.T, share, r, doc_at, rank_of, queue, reached):
            return False
    return True


@njit(cache=True, nogil=True)
@no_type_check
def _augment(residual, share, start, column_of, row_at, queue, reached):
    """Match the row `start` along the shortest augmenting path, and return whether there is one.

    `reached` holds for each column the row from which the breadth-first search reached it.
    """
    reached[:] = -1
    queue[0], head, tail, end = start, 0, 1, -1
    while head < tail and end < 0:
        row = queue[head]
        head += 1
        for column in range(residual.shape[1]):
            if reached[column] < 0 and residual[row, column] >= share:
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
