"""Compiled passes over pairs for `examination`: attractiveness at its best, what that says of examination, errors."""

from __future__ import annotations

from typing import no_type_check

import numpy as np
from jaxtyping import Float, Int
from numba import njit

from clickshift.core.parallel import for_each, n_threads
from clickshift.counts.cells import Cells, rank_of
from clickshift.learners._priors import prior_strength_by_moments

_MAX_NEWTON_STEPS, _NEWTON_TOLERANCE, _BISECTION_TOLERANCE = 60, 1e-5, 1e-9
"""After a step of a hundred thousandth, Newton's next one would be of a tenth of a billionth."""
_FAST_SUMS = {"reassoc", "contract", "arcp"}  # sums in any order, so that several terms are added at once


@njit(inline="always")
@no_type_check
def _gather_cells(offsets, p, situation, skips, e, here, skipped, examined):
    """Copy what a pair needs to where it is near. A slice would do, but for the count of its references, which threads
    would keep together; unsigned numbers, so that nobody asks whether they count from the end."""
    first, n = np.uint64(offsets[p]), offsets[p + 1] - offsets[p]
    for k in range(n):
        at = first + np.uint64(k)
        here[k], skipped[k] = situation[at], skips[at]
    for k in range(n):
        examined[k] = e[here[k]]
    return n


@njit(inline="always")
@no_type_check
def _subtract_outer_products(rows, matrix):
    """Of eight pairs at once: the matrix, on and above its diagonal, is then read and written an eighth as often."""
    for s in range(len(matrix)):
        a, b, c, d = rows[0, s], rows[1, s], rows[2, s], rows[3, s]
        e, f, g, h = rows[4, s], rows[5, s], rows[6, s], rows[7, s]
        for t in range(s, len(matrix)):
            above = a * rows[0, t] + b * rows[1, t] + c * rows[2, t] + d * rows[3, t]
            below = e * rows[4, t] + f * rows[5, t] + g * rows[6, t] + h * rows[7, t]
            matrix[s, t] -= above + below


@njit(cache=True, nogil=True, error_model="numpy", fastmath=_FAST_SUMS)
@no_type_check
def solve_pairs(start, stop, offsets, situation, skips, clicked, more_yes, no, e, a, slope, matrix):
    """Solve the pairs from `start` to `stop`, and add up the objective, its slope by the logits of e, and minus its
    curvature (on and above the diagonal). `more_yes` and `no` are pseudo-counts."""
    objective, many = 0.0, len(e)
    here, skipped, examined = np.empty(many, np.uint64), np.empty(many), np.empty(many)
    cross, rows, waiting = np.empty(many), np.zeros((8, many)), 0
    for p in range(start, stop):
        n = _gather_cells(offsets, p, situation, skips, e, here, skipped, examined)
        yes = clicked[p] + more_yes
        low, high, x = 0.0, 1.0, a[p]
        for _ in range(_MAX_NEWTON_STEPS):
            up, down = yes / x, no / (1 - x)
            rise, curve = up - down, up / x + down / (1 - x)
            for k in range(n):
                part = examined[k] / (1 - x * examined[k])
                rise -= skipped[k] * part
                curve += skipped[k] * part * part
            if rise > 0:
                low = x
            else:
                high = x
            following, near = x + rise / curve, _NEWTON_TOLERANCE
            if not low < following < high:
                following, near = (low + high) / 2, _BISECTION_TOLERANCE
            change, x = abs(following - x), following
            if change < near * min(x, 1 - x):
                break
        a[p] = x
        x_no = 1 - x
        information = (yes + no) * x * x_no
        objective += yes * np.log(x) + no * np.log(x_no)
        for k in range(n):
            e_yes, s = examined[k], here[k]
            e_no, skip = 1 - e_yes, 1 - x * e_yes
            objective += skipped[k] * np.log(skip)
            odds = skipped[k] * (x * e_yes) / skip
            slope[s] -= odds * e_no
            curve = odds / skip
            matrix[s, s] += (curve * e_no - odds * e_yes) * e_no
            information += (curve * x_no - odds * x) * x_no
            cross[k] = curve * x_no * e_no
        information = max(information, 1e-12)
        if 4 * n < many:
            for k in range(n):
                share = cross[k] / information
                for other in range(k, n):  # situations of a pair ascend
                    matrix[here[k], here[other]] -= share * cross[other]
            continue
        rows[waiting] = 0.0
        scale = 1 / np.sqrt(information)
        for k in range(n):
            rows[waiting, here[k]] = scale * cross[k]
        waiting += 1
        if waiting == len(rows):
            _subtract_outer_products(rows, matrix)
            waiting = 0
    if waiting:
        rows[waiting:] = 0.0
        _subtract_outer_products(rows, matrix)
    return objective


@njit(cache=True, nogil=True, error_model="numpy", fastmath=_FAST_SUMS)
@no_type_check
def attractiveness_variance(start, stop, offsets, situation, skips, clicked, total, e, a, cov, variance):
    """Of the logits of attractiveness: that given examination, and what examination's adds to it."""
    many = len(e)
    here, skipped, examined = np.empty(many, np.uint64), np.empty(many), np.empty(many)
    cross, every = np.empty(many), np.empty(many)
    for p in range(start, stop):
        n, x, x_no = _gather_cells(offsets, p, situation, skips, e, here, skipped, examined), a[p], 1 - a[p]
        information = (clicked[p] + total) * x * x_no
        for k in range(n):
            skip = 1 - x * examined[k]
            odds = skipped[k] * (x * examined[k]) / skip
            curve = odds / skip
            information += (curve * x_no - odds * x) * x_no
            cross[k] = curve * x_no * (1 - examined[k])
        information = max(information, 1e-12)
        added = 0.0
        if 2 * n < many:
            for k in range(n):
                sum_above = 0.0
                for other in range(k):
                    sum_above += cov[here[k], here[other]] * cross[other]
                added += cross[k] * (2 * sum_above + cov[here[k], here[k]] * cross[k])
        else:
            every[:] = 0.0
            for k in range(n):
                every[here[k]] = cross[k]
            for s in range(many):
                if every[s] != 0.0:
                    sum_all = 0.0
                    for other in range(many):
                        sum_all += cov[s, other] * every[other]
                    added += every[s] * sum_all
        variance[p] = 1 / information + max(added, 0.0) / (information * information)


_MIN_COUNT = 1e-12
"""In a mixture sessions count in parts: less than one may be much of it."""


def usual_rank(cells: Cells) -> Int[np.ndarray, " pair"]:
    """The rank nearest to each pair's mean."""
    shown, _ = cells.by_pair()
    ranks = cells.weighed(rank_of(cells.by, cells.n_ranks).astype(np.float64))
    rank: np.ndarray = np.rint(ranks / np.maximum(shown, _MIN_COUNT)).astype(np.int64)
    return rank


def add_pseudo_counts(
    cells: Cells, skips: Float[np.ndarray, " cell"]
) -> tuple[Float[np.ndarray, " pair"], Float[np.ndarray, " situation"]]:
    """Add what pairs borrow to `skips`, and return the clicks that they borrow, by pair and by situation."""
    group, (shown, clicked), n = usual_rank(cells), cells.by_pair(), cells.n_situations
    share = prior_strength_by_moments(group, shown, clicked) / np.maximum(shown, 1)
    pieces = cells.ranges(n_threads())
    totals = np.zeros((len(pieces), 2, cells.n_ranks, n))
    for_each(
        lambda k: _group_totals(
            *pieces[k], cells.offsets, group, cells.situation, cells.impressions, cells.clicks, totals[k]
        ),
        len(pieces),
    )
    impressions, clicks = totals.sum(axis=0)
    rate = clicks / np.maximum(impressions, _MIN_COUNT)
    by_pair, by_situation = np.zeros(len(group)), np.zeros((len(pieces), n))
    for_each(
        lambda k: _add_group_rates(
            *pieces[k], cells.offsets, group, cells.situation, cells.impressions, share, rate, skips, by_pair,
            by_situation[k],
        ),
        len(pieces),
    )  # fmt: skip
    return by_pair, by_situation.sum(axis=0)


@njit(cache=True, nogil=True)
@no_type_check
def _group_totals(start, stop, offsets, group, situation, impressions, clicks, totals):
    for p in range(start, stop):
        for k in range(offsets[p], offsets[p + 1]):
            totals[0, group[p], situation[k]] += impressions[k]
            totals[1, group[p], situation[k]] += clicks[k]


@njit(cache=True, nogil=True)
@no_type_check
def _add_group_rates(start, stop, offsets, group, situation, impressions, share, rate, skips, by_pair, by_situation):
    for p in range(start, stop):
        for k in range(offsets[p], offsets[p + 1]):
            more = share[p] * impressions[k]
            clicked = more * rate[group[p], situation[k]]
            skips[k] += more - clicked
            by_pair[p] += clicked
            by_situation[situation[k]] += clicked
