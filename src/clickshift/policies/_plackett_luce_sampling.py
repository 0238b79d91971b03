"""Kernels that sample Plackett-Luce lists and compute their exact log-probability.

Every candidate arrives after an exponential time whose rate is its weight, and a list is the order of arrival: the
Gumbel trick in linear time. The bound -log u >= 1 - u rejects most late candidates without a logarithm. Where the
weights of a query span more than the range of a float, arrival times are compared by their logarithms.
"""

from __future__ import annotations

import math
from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Float, Int
from numba import njit

from clickshift.core.random_streams import next_uniform, open_stream
from clickshift.data.vocabulary import UNSEEN

_WIDE = 600.0
"""Largest range of log-weights that are exponentiated: e^-600 is still a normal float, with room for sums."""
_EARLIEST = 38.0
"""Bound on early arrivals: relative to its mean, an arrival time -log u is above e^-38 for all u of a stream."""
_NEGLIGIBLE = 60.0
"""Log-weight difference from which on a weight no longer changes a floating-point sum: e^-60 of its first term."""


class TieredOrder(NamedTuple):
    """Candidates of every query, best first, in tiers; every candidate of a tier is ranked above those of the next one.

    Plackett-Luce with a positive temperature has one tier per query; its limit at temperature 0 has one tier per score.
    Place j of the order belongs to query q where offset[q] <= j < offset[q + 1].

    Parameters
    ----------
    offset
        First place of each query, and the number of places.
    pair
        Pair number at each place.
    place_of
        Place of each pair number.
    tier_end
        First place below the tier of each place.
    log_weight
        Log-weight relative to the first place of the tier, so at most 0.
    weight
        exp(log_weight).
    """

    offset: Int[np.ndarray, " query+1"]
    pair: Int[np.ndarray, " place"]
    place_of: Int[np.ndarray, " pair"]
    tier_end: Int[np.ndarray, " place"]
    log_weight: Float[np.ndarray, " place"]
    weight: Float[np.ndarray, " place"]


@njit(cache=True, nogil=True)
@no_type_check
def draw_lists(query, key, first, order, pair, log_prob):
    """Fill `pair` with one list per session and add its log-probability; session s uses stream `first + s` of `key`."""
    sessions, ranks = pair.shape
    state = np.empty(4, np.uint64)
    place, arrival = np.empty(ranks, np.int64), np.empty(ranks)
    taken = np.zeros(_max_candidates(order.offset), np.bool_)
    for s in range(sessions):
        open_stream(state, key, first + s)
        begin, stop, filled = order.offset[query[s]], order.offset[query[s] + 1], 0
        while begin < stop and filled < ranks:
            end = np.int64(order.tier_end[begin])
            full = min(ranks, filled + end - begin)
            if end - begin == 1:
                place[filled] = begin
            else:
                if order.log_weight[end - 1] == 0.0:
                    _sample_equal_weights(state, begin, end, place, filled, full, taken)
                else:
                    _sample_by_arrival(state, begin, end, order.log_weight, order.weight, place, arrival, filled, full)
                log_prob[s] += _tier_log_prob(begin, end, order.log_weight, order.weight, place, filled, full, taken)
            begin, filled = end, full
        for r in range(filled):
            pair[s, r] = order.pair[place[r]]


@njit(cache=True, nogil=True)
@no_type_check
def log_prob_of_lists(query, pair, length, order, log_prob):
    """Add the log-probability of these lists as first ranks, -inf for a list that is impossible."""
    sessions, ranks = pair.shape
    place = np.empty(ranks, np.int64)
    taken = np.zeros(_max_candidates(order.offset), np.bool_)
    for s in range(sessions):
        possible = query[s] != UNSEEN
        for r in range(length[s]):
            possible &= pair[s, r] != UNSEEN
            place[r] = order.place_of[pair[s, r]]
        begin, filled = order.offset[query[s]], 0
        while possible and filled < length[s]:
            end = np.int64(order.tier_end[begin])
            full = min(length[s], filled + end - begin)
            for r in range(filled, full):
                possible &= begin <= place[r] < end
            if possible and end - begin > 1:
                log_prob[s] += _tier_log_prob(begin, end, order.log_weight, order.weight, place, filled, full, taken)
            begin, filled = end, full
        if not possible:
            log_prob[s] = -np.inf


@njit(cache=True, nogil=True)
@no_type_check
def _max_candidates(offset):
    """Return the largest number of candidates of a query."""
    largest = 0
    for q in range(len(offset) - 1):
        largest = max(largest, offset[q + 1] - offset[q])
    return largest


@njit(cache=True, nogil=True)
@no_type_check
def _sample_equal_weights(state, begin, end, place, filled, full, taken):
    """Fill `place[filled:full]` with candidates of a tier of equal weights, redrawing those already taken."""
    size = end - begin
    for r in range(filled, full):
        j = min(np.int64(next_uniform(state) * size), size - 1)  # the product may round up to size
        while taken[j]:
            j = min(np.int64(next_uniform(state) * size), size - 1)
        taken[j] = True
        place[r] = begin + j
    for r in range(filled, full):
        taken[place[r] - begin] = False


@njit(cache=True, nogil=True)
@no_type_check
def _sample_by_arrival(state, begin, end, log_weight, weight, place, arrival, filled, full):
    """Fill `place[filled:full]` with the first candidates of the tier to arrive, in order of arrival."""
    wide = log_weight[end - 1] < -_WIDE
    n_filled, slowest = filled, np.inf
    for j in range(begin, end):
        if wide and -log_weight[j] - _EARLIEST > slowest:
            break
        u = next_uniform(state)
        if wide:
            time = math.log(-math.log(u)) - log_weight[j]
        elif 1.0 - u < slowest * weight[j]:
            time = -math.log(u) / weight[j]
        else:
            continue
        if time < slowest:
            n_filled = min(n_filled + 1, full)
            r = n_filled - 1
            while r > filled and arrival[r - 1] > time:
                arrival[r], place[r] = arrival[r - 1], place[r - 1]
                r -= 1
            arrival[r], place[r] = time, j
            if n_filled == full:
                slowest = arrival[full - 1]


@njit(cache=True, nogil=True)
@no_type_check
def _tier_log_prob(begin, end, log_weight, weight, place, filled, full, taken):
    """Return the sum over ranks r of log(w_r / (w_r + rest_r)) = -log1p(rest_r / w_r).

    rest_r is the weight of the candidates below rank r. It is accumulated from the last rank up, so that only positive
    numbers are added and nothing cancels.
    """
    for r in range(filled, full):
        taken[place[r] - begin] = True
    log_prob = 0.0
    if log_weight[end - 1] >= -_WIDE:
        rest = 0.0
        for j in range(end - 1, begin - 1, -1):
            if not taken[j - begin]:
                rest += weight[j]
        for r in range(full - 1, filled - 1, -1):
            log_prob -= math.log1p(rest / weight[place[r]])
            rest += weight[place[r]]
    else:
        top, rest = -np.inf, 0.0
        for j in range(begin, end):
            if not taken[j - begin]:
                if rest == 0.0:
                    top = log_weight[j]
                if log_weight[j] < top - _NEGLIGIBLE:
                    break
                rest += math.exp(log_weight[j] - top)
        log_rest = top + math.log(rest) if rest > 0.0 else -np.inf
        for r in range(full - 1, filled - 1, -1):
            ratio = log_rest - log_weight[place[r]]
            step = max(ratio, 0.0) + math.log1p(math.exp(-abs(ratio)))
            log_prob -= step
            log_rest = log_weight[place[r]] + step
    for r in range(filled, full):
        taken[place[r] - begin] = False
    return log_prob
