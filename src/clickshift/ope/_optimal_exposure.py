"""Kernels that share out exposure: the best exposure of each document, and a placement that gives it.

A policy exposes document a to e_a = sum over ranks of P(a at rank k) v_k, where v_k is what rank k is worth. By Rado's
theorem the exposures that some policy gives are those that no list can beat: the sum of any m of them is at most the
sum of the m largest v. These sets form a polymatroid, so that the best exposures under caps are found greedily.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np
from numba import njit

_NOTHING = 1e-13
"""Exposure that only rounding leaves, as a part of all there is."""


@njit(cache=True, nogil=True)
@no_type_check
def place_optimal_exposure(offsets, order, cap, worth, length, out):
    """Write the placement of the best exposures of these queries to `out`, pair x rank, which holds 0 before.

    `order` has the pairs of each query, the ones that gain most by exposure first; `length` says how many ranks to
    fill, and there are at least as many pairs.
    """
    for q in range(len(length)):
        ranks = length[q]
        if ranks == 0:
            continue
        pair = order[offsets[q] : offsets[q + 1]]
        rank = np.argsort(-worth[:ranks], kind="mergesort")
        value = worth[rank]
        exposure = _greedy_exposures(cap[pair], value)
        doc = np.argsort(-exposure, kind="mergesort")
        placed = _placement_from_exposures(exposure[doc], value)
        for i in range(len(placed)):
            for k in range(ranks):
                out[pair[doc[i]], rank[k]] = placed[i, k]


@njit(cache=True, nogil=True)
@no_type_check
def _greedy_exposures(cap, value):
    """Exposures of documents, each as large as its cap and those before it allow; `value` of ranks, descending.

    A set of m + 1 documents that holds this one is tightest with the m most exposed of those before it.
    """
    ranks = len(value)
    upper = np.cumsum(value)
    largest = np.zeros(ranks)  # exposures so far, descending; those beyond count in the total only
    exposure = np.zeros(len(cap))
    total = 0.0
    for i in range(len(cap)):
        room, above = upper[ranks - 1] - total, 0.0
        if room <= _NOTHING * upper[ranks - 1]:
            break
        for m in range(ranks):
            room = min(room, upper[m] - above)
            above += largest[m]
        given = max(0.0, min(cap[i], room))
        exposure[i] = given
        total += given
        m = ranks - 1
        if given > largest[m]:
            while m > 0 and given > largest[m - 1]:
                largest[m] = largest[m - 1]
                m -= 1
            largest[m] = given
    return exposure


@njit(cache=True, nogil=True)
@no_type_check
def _placement_from_exposures(exposure, value):
    """Document x rank: a placement that gives each document its exposure at least, all ranks filled; both descending.

    The proof of Hardy, Littlewood and Polya is the algorithm. At first, document i stands at the i-th rank. One that
    has more than its due lends to the nearest one below it that has less: with some probability, the two change places.
    Each loan settles one of the two. The nearest lender is always able, because the first m documents together never
    have less than their due. Where exposures add up to less than the ranks have to give, the rest stays with the most
    exposed documents.
    """
    ranks = len(value)
    n = ranks
    while n < len(exposure) and exposure[n] > 0:
        n += 1
    placed = np.zeros((n, ranks))
    has = np.zeros(n)
    for i in range(ranks):
        placed[i, i], has[i] = 1.0, value[i]
    wanting, wants = np.empty(n, np.int64), 0  # documents that have less than their due, the nearest last
    for i in range(n - 1, -1, -1):
        while wants and has[i] > exposure[i]:
            j = wanting[wants - 1]
            spare, due = has[i] - exposure[i], exposure[j] - has[j]
            prob = min(spare, due) / (has[i] - has[j])
            for k in range(ranks):
                one, other = placed[i, k], placed[j, k]
                placed[i, k] = one + prob * (other - one)
                placed[j, k] = other + prob * (one - other)
            has[i] = exposure[i] if spare <= due else has[i] - due
            has[j] = exposure[j] if due <= spare else has[j] + spare
            if due <= spare:
                wants -= 1
        if has[i] < exposure[i]:
            wanting[wants] = i
            wants += 1
    return placed
