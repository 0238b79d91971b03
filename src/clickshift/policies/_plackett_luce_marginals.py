"""Kernel for the exact probability of each candidate at each rank of a Plackett-Luce list.

Candidates arrive at independent exponential times with rates w_i, and a list is the order of arrival. Given that i
arrives at time t, the others have arrived or not independently of each other, so its rank is Poisson-binomial:

    P(i at rank r) = integral over t of w_i exp(-w_i t) P(exactly r of the others arrived before t)

The integral over ln t is computed by the trapezoid rule, which converges geometrically. The generating polynomial
without candidate i is the product of those of the candidates before and after it, so that only positive numbers are
added and nothing cancels.
"""

from __future__ import annotations

import math
from typing import no_type_check

import numpy as np
from numba import njit

_STEP, _WIDEST_STEP = 0.65, 0.22
"""Distance of the nodes, _STEP / sqrt(ranks) and at most _WIDEST_STEP: the standard deviation of the log of the k-th
arrival time is about 1 / sqrt(k) or more."""
_NEVER = -42.0
"""A candidate with ln(w t) below this counts as not arrived: the probability that it has is exp(-42) = 6e-19."""
_SURELY = 3.8
"""A candidate with ln(w t) above this counts as arrived: the probability that it has not is exp(-exp(3.8)) = 4e-20."""
_FULL = 1e-16
"""A list counts as full when the probability that it is not is below this."""


@njit(cache=True, nogil=True)
@no_type_check
def fill_placements(query, order, step, out):
    """Write the placement probabilities of these queries' candidates to `out`, pair x rank, which must hold 0.

    `step` scales the distance of the nodes; tests use it to check that the result does not depend on it.
    """
    ranks = out.shape[1]
    for q in query:
        begin, stop, filled = order.offset[q], order.offset[q + 1], 0
        while begin < stop and filled < ranks:
            end = begin + 1
            while end < order.tier_end[begin] and order.log_weight[end - 1] - order.log_weight[end] < _SURELY - _NEVER:
                end += 1  # candidates below a wider gap never overtake, as between tiers
            full = min(ranks, filled + end - begin)
            prob = _tier_placement(order.log_weight[begin:end], full - filled, step)
            for j in range(begin, end):
                for r in range(filled, full):
                    out[order.pair[j], r] = prob[j - begin, r - filled]
            begin, filled = end, full


@njit(cache=True, nogil=True)
@no_type_check
def _tier_placement(log_weight, ranks, step):
    """Return placement probabilities, candidate x rank, for descending log-weights without a gap as between tiers.

    The substitution ln t = x - exp(-x) - ln(sum of weights) spaces nodes doubly exponentially to the left, where no
    candidate has arrived yet, so that they need not follow the integrand's slow decay (Takahasi & Mori, 1974).
    """
    n = len(log_weight)
    if log_weight[0] == log_weight[n - 1]:
        return np.full((n, ranks), 1.0 / n)
    prob = np.zeros((n, ranks))
    above = np.empty((n + 1, ranks))  # above[i, r]: P(exactly r of the candidates before i have arrived)
    below = np.empty(ranks)  # the same for the candidates after i
    arrived, waiting, density = np.empty(n), np.empty(n), np.empty(n)
    step = step * min(_STEP / math.sqrt(ranks), _WIDEST_STEP)
    total = 0.0
    for i in range(n - 1, -1, -1):
        total += math.exp(log_weight[i] - log_weight[0])
    log_sum = math.log(total)
    node = math.floor(-math.log(-_NEVER) / step)
    first, last = 0, 0  # candidates before `first` have arrived, none from `last` on has
    while True:
        x = node * step
        log_time = x - math.exp(-x) - log_sum
        while first < ranks and log_weight[first] - log_weight[0] + log_time > _SURELY:
            first += 1
        while last < n and log_weight[last] - log_weight[0] + log_time > _NEVER:
            last += 1
        width = ranks - first
        for r in range(width):
            above[first, r] = below[r] = 1.0 if r == 0 else 0.0
        for i in range(first, last):
            rate = math.exp(log_weight[i] - log_weight[0] + log_time)
            arrived[i], waiting[i] = -math.expm1(-rate), math.exp(-rate)
            density[i] = rate * waiting[i] * step * (1.0 + math.exp(-x))
            above[i + 1, 0] = above[i, 0] * waiting[i]
            for r in range(1, width):
                above[i + 1, r] = above[i, r] * waiting[i] + above[i, r - 1] * arrived[i]
        for i in range(last - 1, first - 1, -1):
            if i == 0 or log_weight[i] != log_weight[i - 1]:  # equal candidates have equal placements
                for a in range(width):
                    share = density[i] * above[i, a]
                    for b in range(width - a):
                        prob[i, first + a + b] += share * below[b]
            for r in range(width - 1, 0, -1):
                below[r] = below[r] * waiting[i] + below[r - 1] * arrived[i]
            below[0] *= waiting[i]
        missing = 0.0
        for r in range(width):
            missing += above[last, r]
        if missing < _FULL:
            break
        node += 1
    for i in range(1, n):
        if log_weight[i] == log_weight[i - 1]:
            for r in range(ranks):
                prob[i, r] = prob[i - 1, r]
    return prob
