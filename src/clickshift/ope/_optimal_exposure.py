"""Kernels that allocate exposure: the optimal exposure of each document, and a placement that realises it.

A policy exposes document a to e_a = sum over ranks k of P(a at rank k) v_k, where v_k is the exposure of rank k. By
Rado's theorem, the exposures that some policy realises are those that the ranks majorise: the sum of any m of them is
at most the sum of the m largest v. These vectors form a polymatroid, so that the optimal exposures under caps are found
greedily.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np
from numba import njit

_ROUNDING = 1e-13
"""Remaining exposure, as a share of the total, that is a rounding error."""


@njit(cache=True, nogil=True)
@no_type_check
def place_optimal_exposure(offsets, order, cap, rank_exposure, length, out):
    """Write a placement with the optimal exposures of these queries to `out` (pair x rank), which contains 0 before.

    `order` has the pairs of each query, by descending gain per exposure; `length` is the number of ranks to fill, and
    there are at least as many pairs.
    """
    for q in range(len(length)):
        ranks = length[q]
        if ranks == 0:
            continue
        pair = order[offsets[q] : offsets[q + 1]]
        rank = np.argsort(-rank_exposure[:ranks], kind="mergesort")
        value = rank_exposure[rank]
        exposure = _greedy_exposures(cap[pair], value)
        doc = np.argsort(-exposure, kind="mergesort")
        placement = _placement_from_exposures(exposure[doc], value)
        for i in range(len(placement)):
            for k in range(ranks):
                out[pair[doc[i]], rank[k]] = placement[i, k]


@njit(cache=True, nogil=True)
@no_type_check
def _greedy_exposures(cap, value):
    """Give each document, in order, the largest exposure that its cap and the documents before it allow.

    `value` is the exposure of each rank, descending. Of the sets of m + 1 documents that contain the current one, the
    tightest contains the m most exposed documents before it.
    """
    ranks = len(value)
    upper = np.cumsum(value)
    largest = np.zeros(ranks)  # largest exposures so far, descending; smaller ones count only in the total
    exposure = np.zeros(len(cap))
    total = 0.0
    for i in range(len(cap)):
        room, above = upper[ranks - 1] - total, 0.0
        if room <= _ROUNDING * upper[ranks - 1]:
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
    """Find a placement (document x rank) that fills all ranks and gives each document at least its exposure.

    Both arguments are descending. The algorithm is the proof of Hardy, Littlewood and Polya: document i starts at the
    i-th rank. A document with more than its exposure swaps, with some probability, with the nearest document below it
    that has less; each swap settles one of the two. The nearest document with a surplus always has enough, because the
    first m documents together never have less than their exposures. Where exposures add up to less than the ranks
    provide, the rest stays with the most exposed documents.
    """
    ranks = len(value)
    n = ranks
    while n < len(exposure) and exposure[n] > 0:
        n += 1
    placement = np.zeros((n, ranks))
    current = np.zeros(n)
    for i in range(ranks):
        placement[i, i], current[i] = 1.0, value[i]
    waiting, n_waiting = np.empty(n, np.int64), 0  # stack of documents with a deficit, the nearest on top
    for i in range(n - 1, -1, -1):
        while n_waiting and current[i] > exposure[i]:
            j = waiting[n_waiting - 1]
            surplus, deficit = current[i] - exposure[i], exposure[j] - current[j]
            prob = min(surplus, deficit) / (current[i] - current[j])
            for k in range(ranks):
                one, other = placement[i, k], placement[j, k]
                placement[i, k] = one + prob * (other - one)
                placement[j, k] = other + prob * (one - other)
            current[i] = exposure[i] if surplus <= deficit else current[i] - deficit
            current[j] = exposure[j] if deficit <= surplus else current[j] + surplus
            if deficit <= surplus:
                n_waiting -= 1
        if current[i] < exposure[i]:
            waiting[n_waiting] = i
            n_waiting += 1
    return placement
