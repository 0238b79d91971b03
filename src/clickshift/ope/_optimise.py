"""The policy that maximises an estimator, from the log alone (Li et al. 2018, section 4.3).

The paper states a linear program over all queries. It decomposes into one per query, and only that of the IP estimator
needs a solver. With n records of a query and clipping constant M, the estimators in counts are

    List       sum over lists A        of  r_A / n_A                min{ h(A), M n_A / n }
    IP         sum over cells (a, k)   of  theta_k c_ak / n_ak      min{ h(a, k), M n_ak / n }
    PBM, Item  sum over documents a    of  C_a / X_a                min{ e_a, M X_a / n }

with C_a = sum_k theta_k c_ak, X_a = sum_k theta_k p_k n_ak and e_a = sum_k theta_k p_k h(a, k); Item has p = 1. Each
term earns at a fixed rate up to a cap. Lists share a probability of 1: those with the highest rate are filled first.
Documents share the exposure of the ranks: see `_optimal_exposure`. Cells share ranks and documents, which is a
transportation problem.

Probability that can earn nothing more stays on the logging policy as far as it fits; exposure that can earn nothing
more stays with the most exposed documents. With M of 1 or less the logging policy is returned: no other policy looks
better.

The resulting value is that of the best policy on the log that chose it, and therefore biased upwards. Evaluate the
policy on records that did not choose it.

References
----------
Li, S. et al. (2018). Offline evaluation of ranking policies with click models. KDD.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import final, no_type_check

import numpy as np
from jaxtyping import Float, Int
from numba import njit

from clickshift.core.parallel import for_each, for_ranges
from clickshift.errors import DataError
from clickshift.ope._optimal_exposure import place_optimal_exposure
from clickshift.policies.birkhoff import ListArrays, decompose_placements

_Counts = Int[np.ndarray, "pair rank"]

_QUERIES_PER_TASK = 256
"""Number of queries that a thread processes at once."""
_CELLS_PER_PROGRAM = 2000
"""Number of cells in one linear program: several queries share the cost of calling the solver."""
_ROUNDING = 1e-13
"""Remaining probability that is a rounding error."""


@final
@dataclass(frozen=True, eq=False)
class BestLists:
    """The policy over logged lists that maximises the List estimator.

    Parameters
    ----------
    lists
        Lists with probabilities.
    value
        Its estimated reward on this log, by query; NaN for a query without records.
    """

    lists: ListArrays
    value: Float[np.ndarray, " query"]


@final
@dataclass(frozen=True, eq=False)
class BestPlacement:
    """The policy that maximises an estimator by document and rank, as the probability of each document at each rank.

    Parameters
    ----------
    offsets
        Pairs `offsets[q]` up to, not including, `offsets[q + 1]` are the documents of query q.
    placement
        Probability of each pair at each rank. A query's lists are as long as its longest logged one. Rows of queries
        without records are 0.
    value
        Its estimated reward on this log, by query; NaN for a query without records.
    """

    offsets: Int[np.ndarray, " bound"]
    placement: Float[np.ndarray, "pair rank"]
    value: Float[np.ndarray, " query"]

    @cached_property
    def lists(self) -> ListArrays:
        """Lists with probabilities that realise the placement; they need not have been logged."""
        return decompose_placements(self.offsets, self.placement)


def best_lists(
    query: Int[np.ndarray, " list"],
    pair: Int[np.ndarray, "list rank"],
    records: Int[np.ndarray, " list"],
    reward: Float[np.ndarray, " list"],
    *,
    n_queries: int,
    clip: float = math.inf,
) -> BestLists:
    """Maximise the List estimator: logged lists by mean reward, each up to `clip` times as often as it was logged.

    Parameters
    ----------
    query
        Query of each distinct logged list.
    pair
        Pairs of each list.
    records
        Number of records of each list. Of lists with equal mean reward, the one with more records is first.
    reward
        Total reward of each list.
    n_queries
        Number of queries.
    clip
        Clipping constant.

    Raises
    ------
    DataError
        If the arguments are not those of logged lists ("bad-clip", "query-out-of-range", "bad-count", "bad-reward").

    Examples
    --------
    >>> best = best_lists(
    ...     np.array([0, 0]), np.array([[0, 1], [1, 0]]), np.array([6, 2]), np.array([3.0, 2.0]), n_queries=1, clip=2
    ... )
    >>> best.lists.pair.tolist(), best.lists.weight.tolist(), best.value.tolist()
    ([[1, 0], [0, 1]], [0.5, 0.5], [0.75])
    """
    _check_clip(clip)
    if ((query < 0) | (query >= n_queries)).any():
        raise DataError(
            f"query numbers of lists must be from 0 to {n_queries - 1}. Check that they are from the same log.",
            code="query-out-of-range",
            n_queries=n_queries,
        )
    if (records < 1).any():
        raise DataError(
            f"a logged list must have a record: got {records.min()}. Remove the lists that have none.",
            code="bad-count",
            value=int(records.min()),
        )
    if not ((reward >= 0) & np.isfinite(reward)).all():
        raise DataError("the reward of a list must be a number, 0 or above.", code="bad-reward")
    n = np.bincount(query, records, n_queries)
    logged, mean = records / n[query], reward / records
    order = np.lexsort((-records, -mean, query))
    prob = np.zeros(len(query))
    # the cap is never below the logged frequency: probability that cannot earn under a clip below 1 stays there
    _fill_in_order(order, query, max(clip, 1.0) * logged, prob)
    value = np.bincount(query, mean * np.minimum(prob, clip * logged), n_queries)
    kept = order[prob[order] > 0]
    return BestLists(ListArrays(query[kept], pair[kept], prob[kept]), np.where(n > 0, value, np.nan))


def best_exposure(
    offsets: Int[np.ndarray, " bound"],
    impressions: _Counts,
    clicks: _Counts,
    *,
    theta: Float[np.ndarray, " rank"],
    examination: Float[np.ndarray, " rank"],
    clip: float = math.inf,
) -> BestPlacement:
    """Maximise the PBM estimator or, if every examination is 1, the Item estimator.

    Documents with the highest reward per exposure are exposed first.

    Parameters
    ----------
    offsets
        Pairs `offsets[q]` up to, not including, `offsets[q + 1]` are the documents of query q.
    impressions, clicks
        Counts of each pair at each rank.
    theta
        Reward of a click at each rank.
    examination
        Examination probability of each rank, above 0.
    clip
        Clipping constant.

    Raises
    ------
    DataError
        If the arguments are not those of logged lists ("bad-clip", "bad-examination", "bad-offsets", "bad-reward",
        "bad-count").

    Examples
    --------
    >>> best = best_exposure(
    ...     np.array([0, 2]), np.array([[9, 1], [1, 9]]), np.array([[2, 0], [1, 3]]),
    ...     theta=np.ones(2), examination=np.array([1.0, 0.5]), clip=1.5,
    ... )
    >>> best.placement.round(3).tolist(), best.value.round(3).tolist()
    ([[0.35, 0.65], [0.65, 0.35]], [0.742])
    """
    log = _PlacementCounts(offsets, impressions, clicks, theta)
    _check_clip(clip)
    if examination.shape != theta.shape or not ((examination > 0) & (examination <= 1)).all():
        raise DataError(
            f"examination must be a probability above 0 for each of {log.n_ranks} ranks: got {examination}. "
            "Leave out ranks that are never examined.",
            code="bad-examination",
            n_ranks=log.n_ranks,
        )
    rank_exposure = theta * examination
    reward, exposed = clicks @ theta, impressions @ rank_exposure
    rate = np.divide(reward, exposed, out=np.zeros(log.n_pairs), where=exposed > 0)
    logged = np.divide(exposed, log.records[log.query], out=np.zeros(log.n_pairs), where=exposed > 0)
    cap = np.multiply(clip, logged, out=np.zeros(log.n_pairs), where=exposed > 0)
    placement = np.zeros(impressions.shape)
    if clip > 1:
        order = np.lexsort((-impressions.sum(axis=1), -rate, log.query))

        def place(rows: slice) -> None:
            bounds = offsets[rows.start : rows.stop + 1]
            place_optimal_exposure(bounds, order, cap, rank_exposure, log.length[rows], placement)

        for_ranges(place, log.n_queries, chunk=_QUERIES_PER_TASK)
    log.fill(placement)
    return log.best(placement, rate * np.minimum(placement @ rank_exposure, cap))


def best_placement(
    offsets: Int[np.ndarray, " bound"],
    impressions: _Counts,
    clicks: _Counts,
    *,
    theta: Float[np.ndarray, " rank"],
    clip: float = math.inf,
) -> BestPlacement:
    """Maximise the IP estimator.

    A linear program has a variable for each clicked cell, up to `clip` times as often as it was logged; afterwards all
    ranks are filled, which is possible for any solution. Unlike that of the List estimator, the policy may show lists
    that were never logged.

    Parameters
    ----------
    offsets
        Pairs `offsets[q]` up to, not including, `offsets[q + 1]` are the documents of query q.
    impressions, clicks
        Counts of each pair at each rank.
    theta
        Reward of a click at each rank.
    clip
        Clipping constant.

    Raises
    ------
    DataError
        If the arguments are not those of logged lists ("bad-clip", "bad-offsets", "bad-reward", "bad-count").

    Examples
    --------
    >>> best = best_placement(
    ...     np.array([0, 2]), np.array([[9, 1], [1, 9]]), np.array([[2, 0], [1, 3]]), theta=np.ones(2), clip=3
    ... )
    >>> best.placement.round(3).tolist(), best.value.round(3).tolist()
    ([[0.7, 0.3], [0.3, 0.7]], [0.689])
    """
    log = _PlacementCounts(offsets, impressions, clicks, theta)
    _check_clip(clip)
    rate = np.divide(clicks * theta, impressions, out=np.zeros(impressions.shape), where=impressions > 0)
    cap = np.multiply(clip, log.placement, out=np.zeros(impressions.shape), where=impressions > 0)
    placement = np.zeros(impressions.shape)
    if clip > 1:
        pair, rank = np.nonzero(rate)
        # cells of a query are adjacent, and a program contains whole queries
        first = np.searchsorted(pair, offsets)
        starts = np.unique(np.append(first[np.unique(first // _CELLS_PER_PROGRAM, return_index=True)[1]], len(pair)))

        def solve(k: int) -> None:
            block = slice(starts[k], starts[k + 1])
            cell = pair[block], rank[block]
            placement[cell] = _solve_transportation(log.query[cell[0]], *cell, rate[cell], np.minimum(cap[cell], 1.0))

        for_each(solve, len(starts) - 1)
    log.fill(placement)
    return log.best(placement, (rate * np.minimum(placement, cap)).sum(axis=1))


@final
@dataclass(frozen=True, eq=False)
class _PlacementCounts:
    """Validated counts of documents by rank: such as a log of lists gives."""

    offsets: np.ndarray
    impressions: np.ndarray
    clicks: np.ndarray
    theta: np.ndarray

    def __post_init__(self) -> None:
        if self.offsets[0] != 0 or self.offsets[-1] != self.n_pairs or (np.diff(self.offsets) < 0).any():
            raise DataError(
                f"offsets must go from 0 to the number of pairs, {self.n_pairs}, and must not decrease.",
                code="bad-offsets",
                n_pairs=self.n_pairs,
            )
        if self.theta.shape != (self.n_ranks,) or not ((self.theta >= 0) & np.isfinite(self.theta)).all():
            raise DataError(
                f"theta must be a number, 0 or above, for each of {self.n_ranks} ranks: got {self.theta}.",
                code="bad-reward",
                n_ranks=self.n_ranks,
            )
        if (
            self.clicks.shape != self.impressions.shape
            or not ((self.clicks >= 0) & (self.clicks <= self.impressions)).all()
        ):
            raise DataError(
                "clicks must be from 0 to the impressions of their pair and rank. Count one click per impression.",
                code="bad-count",
                name="clicks",
            )
        shown = self.impressions.sum(axis=1)
        if (np.diff(self._by_query(self.impressions), axis=1) > 0).any() or (shown > self.records[self.query]).any():
            raise DataError(
                "impressions must be those of lists without gaps and repetitions: some rank has more of them than the "
                "rank above it, or some document more than its query has records. Count the same lists for all ranks.",
                code="bad-count",
                name="impressions",
            )
        short = np.bincount(self.query, shown > 0, self.n_queries) < self.length
        if short.any():
            raise DataError(
                f"lists of {self.length[short][0]} ranks need as many documents: query number "
                f"{int(short.argmax())} has fewer. Count the same lists for all ranks.",
                code="bad-count",
                query=int(short.argmax()),
                n_ranks=int(self.length[short][0]),
            )

    @property
    def n_pairs(self) -> int:
        """Number of (query, document) pairs."""
        return len(self.impressions)

    @property
    def n_ranks(self) -> int:
        """Number of ranks."""
        return int(self.impressions.shape[1])

    @property
    def n_queries(self) -> int:
        """Number of queries."""
        return len(self.offsets) - 1

    @cached_property
    def query(self) -> Int[np.ndarray, " pair"]:
        """Query of each pair."""
        return np.repeat(np.arange(self.n_queries), np.diff(self.offsets))

    @cached_property
    def records(self) -> Int[np.ndarray, " query"]:
        """Number of records of each query: every list has a first rank."""
        records: np.ndarray = self._by_query(self.impressions)[:, 0]
        return records

    @cached_property
    def length(self) -> Int[np.ndarray, " query"]:
        """Length of the longest logged list of each query."""
        length: np.ndarray = (self._by_query(self.impressions) > 0).sum(axis=1)
        return length

    @cached_property
    def placement(self) -> Float[np.ndarray, "pair rank"]:
        """Placement of the logging policy, estimated by frequencies."""
        placement: np.ndarray = self.impressions / np.maximum(self.records, 1)[self.query][:, None]
        return placement

    def _by_query(self, counts: np.ndarray) -> Int[np.ndarray, "query rank"]:
        """Sum counts over the documents of each query."""
        sums = np.concatenate([np.zeros((1, self.n_ranks), np.int64), np.cumsum(counts, axis=0)])
        total: np.ndarray = sums[self.offsets[1:]] - sums[self.offsets[:-1]]
        return total

    def fill(self, placement: np.ndarray) -> None:
        """Fill every rank of every query, in place."""
        _fill(self.offsets, self.length, self.placement, placement)

    def best(self, placement: np.ndarray, earned: np.ndarray) -> BestPlacement:
        """Make the result; `earned` is the estimated reward of each document per record."""
        value = np.bincount(self.query, earned, self.n_queries)
        return BestPlacement(self.offsets, placement, np.where(self.records > 0, value, np.nan))


def _check_clip(clip: float) -> None:
    """Check a clipping constant."""
    if not clip > 0:
        raise DataError(
            f"the clipping constant M must be above 0: got {clip}. Pass inf for no clipping.",
            code="bad-clip",
            value=clip,
        )


def _solve_transportation(
    query: Int[np.ndarray, " cell"],
    pair: Int[np.ndarray, " cell"],
    rank: Int[np.ndarray, " cell"],
    rate: Float[np.ndarray, " cell"],
    cap: Float[np.ndarray, " cell"],
) -> Float[np.ndarray, " cell"]:
    """Find the probabilities of cells with the largest reward: at most 1 per document and per rank of each query."""
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    cells = np.arange(len(cap))
    docs, doc = np.unique(pair, return_inverse=True)
    places, place = np.unique(query * (rank.max() + 1) + rank, return_inverse=True)
    rows = np.concatenate([doc, len(docs) + place])
    limits = csr_array((np.ones(2 * len(cap)), (rows, np.tile(cells, 2))), shape=(len(docs) + len(places), len(cap)))
    best_rate = np.zeros(query.max() + 1)
    np.maximum.at(best_rate, query, rate)  # scaled so that queries with few clicks are solved as exactly as others
    solution = linprog(
        -rate / best_rate[query],
        A_ub=limits,
        b_ub=np.ones(limits.shape[0]),
        bounds=np.c_[np.zeros(len(cap)), cap],
        method="highs",
    )
    assert solution.status == 0, solution.message
    prob: np.ndarray = np.clip(solution.x, 0.0, cap)
    for limit in (doc, place):  # the solver satisfies constraints only to 1e-7
        prob /= np.maximum(np.bincount(limit, prob), 1.0)[limit]
    return prob


@njit(cache=True, nogil=True)
@no_type_check
def _fill_in_order(order, query, cap, prob):
    """Give each list, in order, its cap or the remaining probability of its query."""
    last, remaining = -1, 0.0
    for i in order:
        if query[i] != last:
            last, remaining = query[i], 1.0
        prob[i] = min(cap[i], remaining)
        remaining -= prob[i]


@njit(cache=True, nogil=True)
@no_type_check
def _fill(offsets, length, logged, placement):
    """Increase a placement until every rank of every query is filled.

    Cells are filled first up to the logging policy's own probability, then with any documents that were ever shown.
    Filling always succeeds: the query has at least as many documents as ranks, and so at least as much room in its rows
    as in its columns.
    """
    for q in range(len(length)):
        begin, end = offsets[q], offsets[q + 1]
        room_rank, room_doc = np.ones(length[q]), np.zeros(end - begin)
        for p in range(begin, end):
            if logged[p].max() > 0:
                room_doc[p - begin] = 1.0
            for k in range(length[q]):
                room_rank[k] -= placement[p, k]
                room_doc[p - begin] -= placement[p, k]
        for from_log in (True, False):
            for p in range(begin, end):
                for k in range(length[q]):
                    wanted = logged[p, k] - placement[p, k] if from_log else 1.0
                    given = min(wanted, room_rank[k], room_doc[p - begin])
                    if given > _ROUNDING:
                        placement[p, k] += given
                        room_rank[k] -= given
                        room_doc[p - begin] -= given
