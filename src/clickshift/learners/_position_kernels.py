"""Compiled passes over pairs for `_position_models`, and shrinkage of rarely shown documents.

The kernels maximise the likelihood of each pair's attractiveness given examination, add up the gradient and curvature
of the profile likelihood, and compute standard errors.

Empirical-Bayes shrinkage: a ranker puts better documents at the top, so documents of one rank are more similar than all
documents are. A rarely shown document receives pseudo-counts of its group, the documents usually shown at the same
rank: in every situation in which it was shown, pseudo-clicks at the group's click rate there. This informs about likely
rates, but not about the share of examination in a rate: the group's own clicks compare situations as they do without
it. A prior on attractiveness would inform about that share, little for each document; but where few clicks compare
ranks, the sum over all documents would dominate.

Of situations of one rank, which differ by the last click (UBM), a group's click rates would compare other documents:
those of queries with many clicks are more often below a click. The group's rate at the rank is therefore divided among
them as each document's own clicks are.
"""

from __future__ import annotations

from functools import partial
from typing import no_type_check

import numpy as np
from jaxtyping import Float, Int
from numba import njit

from clickshift.core.newton import MAX_PROBABILITY
from clickshift.core.parallel import for_each, n_threads
from clickshift.counts.cells import Cells
from clickshift.learners._priors import prior_strength_by_moments

_MAX_NEWTON_STEPS, _NEWTON_TOLERANCE, _BISECTION_TOLERANCE = 60, 1e-5, 1e-9
"""Newton converges quadratically: after a relative step of 1e-5 the next one would be about 1e-10."""
_NEAR_LIMIT = 0.99
"""Share of the largest attractiveness above which a search does not start."""
_PAIRS_AT_ONCE = 96
"""Pairs whose cross terms are multiplied at once. Rows of 64 or 128 numbers would compete for the same cache lines."""
_FAST_SUMS = {"reassoc", "contract", "arcp"}  # sums in any order, so that the compiler can vectorise them


@njit(inline="always")
@no_type_check
def _largest_attractiveness(n, skipped, examined):
    """Return the limit of the attractiveness of a pair: that of 1, or where one of its skips would be impossible."""
    most = 1.0
    for k in range(n):
        if skipped[k] > 0 and examined[k] > most:
            most = examined[k]
    return 1 / most


@njit(inline="always")
@no_type_check
def _gather_cells(offsets, p, situation, skips, e, index, skipped, examined):
    """Copy the situations, skips and examination of a pair's cells into buffers, and return their number.

    A slice would do, but threads would contend for its reference count. Indices are unsigned, so that the compiler need
    not check for negative ones.
    """
    first, n = np.uint64(offsets[p]), offsets[p + 1] - offsets[p]
    for k in range(n):
        at = first + np.uint64(k)
        index[k], skipped[k] = situation[at], skips[at]
    for k in range(n):
        examined[k] = e[index[k]]
    return n


@njit(cache=True, nogil=True, fastmath=_FAST_SUMS)
@no_type_check
def add_products(rows, others, matrix, symmetric):
    """Add rows others' to the matrix in tiles of 4 x 4, or only what is on or above its diagonal if it is symmetric.

    Both have a multiple of 4 rows.

    The 16 sums of a tile stay in registers, and the compiler vectorises the loop: a number is read once for four of
    them. A linear algebra library would be as fast, but its threads would spin on the cores that the kernels need.
    """
    for s in range(0, len(rows), 4):
        for t in range(s if symmetric else 0, len(others), 4):
            aa, ab, ac, ad, ba, bb, bc, bd = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
            ca, cb, cc, cd, da, db, dc, dd = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
            for k in range(rows.shape[1]):
                a, b, c, d = rows[s, k], rows[s + 1, k], rows[s + 2, k], rows[s + 3, k]
                w, x, y, z = others[t, k], others[t + 1, k], others[t + 2, k], others[t + 3, k]
                aa, ab, ac, ad = aa + a * w, ab + a * x, ac + a * y, ad + a * z
                ba, bb, bc, bd = ba + b * w, bb + b * x, bc + b * y, bd + b * z
                ca, cb, cc, cd = ca + c * w, cb + c * x, cc + c * y, cd + c * z
                da, db, dc, dd = da + d * w, db + d * x, dc + d * y, dd + d * z
            for i, (w, x, y, z) in enumerate(((aa, ab, ac, ad), (ba, bb, bc, bd), (ca, cb, cc, cd), (da, db, dc, dd))):
                matrix[s + i, t] += w
                matrix[s + i, t + 1] += x
                matrix[s + i, t + 2] += y
                matrix[s + i, t + 3] += z


@njit(cache=True, nogil=True, error_model="numpy", fastmath=_FAST_SUMS)
@no_type_check
def solve_pairs(
    start, stop, offsets, situation, skips, clicked, rejected, pseudo_yes, pseudo_no, e, a, gradient, matrix
):
    """Maximise the likelihood of each pair from `start` to `stop` over its attractiveness `a`, given examination `e`.

    Return the sum of the objectives; add their gradient by ln e to `gradient`, and minus their curvature to `matrix`
    (on and above the diagonal); with an empty matrix, only find `a`. `skips` are those that may not have been examined,
    `rejected` those of each pair that are known to have been. `pseudo_yes` and `pseudo_no` are pseudo-counts. Values of
    e above 1 are ratios to the examination of another situation: only the products a e are below 1. Newton steps are
    safeguarded by bisection.
    """
    objective, n_situations = 0.0, len(e)
    index, skipped, examined = np.empty(n_situations, np.uint64), np.empty(n_situations), np.empty(n_situations)
    padded = -(-n_situations // 4) * 4 if len(matrix) else 0
    cross, products, pending = np.empty(n_situations), np.zeros((padded, padded)), 0
    rows = np.zeros((padded, _PAIRS_AT_ONCE))
    for p in range(start, stop):
        n = _gather_cells(offsets, p, situation, skips, e, index, skipped, examined)
        yes, no = clicked[p] + pseudo_yes, rejected[p] + pseudo_no
        low, high, x = 0.0, _largest_attractiveness(n, skipped, examined), a[p]
        if high < 1 and x > _NEAR_LIMIT * high:
            x = high / 2  # Newton steps away from a limit are short
        for _ in range(_MAX_NEWTON_STEPS):
            up, down = yes / x, no / (1 - x)
            derivative, curve = up - down, up / x + down / (1 - x)
            for k in range(n):
                part = examined[k] / (1 - x * examined[k])
                derivative -= skipped[k] * part
                curve += skipped[k] * part * part
            if derivative > 0:
                low = x
            else:
                high = x
            proposal, tolerance = x + derivative / curve, _NEWTON_TOLERANCE
            if not low < proposal < high:
                proposal, tolerance = (low + high) / 2, _BISECTION_TOLERANCE
            proposal = min(proposal, MAX_PROBABILITY)
            change, x = abs(proposal - x), proposal
            if change < tolerance * min(x, 1 - x):
                break
        a[p] = x
        if not len(matrix):
            continue
        x_no = 1 - x
        information = (yes + no) * x * x_no
        objective += yes * np.log(x) + no * np.log(x_no)
        for k in range(n):
            s, skip = index[k], 1 - x * examined[k]
            objective += skipped[k] * np.log(skip)
            odds = skipped[k] * (x * examined[k]) / skip
            gradient[s] -= odds
            curve = odds / skip
            matrix[s, s] += curve
            information += (curve * x_no - odds * x) * x_no
            cross[k] = curve * x_no
        information = max(information, 1e-12)
        if 4 * n < n_situations:
            for k in range(n):
                share = cross[k] / information
                for other in range(k, n):  # situations of a pair ascend
                    matrix[index[k], index[other]] -= share * cross[other]
            continue
        scale = 1 / np.sqrt(information)
        for k in range(n):
            rows[index[k], pending] = scale * cross[k]
        pending += 1
        if pending == _PAIRS_AT_ONCE:
            add_products(rows, rows, products, True)
            rows[:], pending = 0.0, 0
    if pending:
        add_products(rows, rows, products, True)
    for s in range(len(matrix)):
        for t in range(s, len(matrix)):
            matrix[s, t] -= products[s, t]
    return objective


@njit(cache=True, nogil=True, fastmath=_FAST_SUMS)
@no_type_check
def _add_quadratic_forms(rows, cov, products, pairs, variance):
    """Add the quadratic form row' cov row of each row to the variance of its pair; `products` is a buffer."""
    products[:] = 0.0
    add_products(rows, cov, products, False)
    for i in range(len(pairs)):
        added = 0.0
        for s in range(rows.shape[1]):
            added += products[i, s] * rows[i, s]
        variance[pairs[i]] += max(added, 0.0)


@njit(cache=True, nogil=True, error_model="numpy", fastmath=_FAST_SUMS)
@no_type_check
def attractiveness_variance(start, stop, offsets, situation, skips, judged, total, e, a, cov, variance):
    """Compute the variances of the logits of attractiveness: given examination, plus the part from examination's.

    `cov` is the covariance of ln e.
    `judged` are the impressions of each pair that are known to have been examined: clicks, and skips that were viewed.
    """
    n_situations = len(e)
    index, skipped, examined = np.empty(n_situations, np.uint64), np.empty(n_situations), np.empty(n_situations)
    cross, padded = np.empty(n_situations), -(-n_situations // 4) * 4
    covariances, every = np.zeros((padded, n_situations)), np.zeros((4, n_situations))
    covariances[:n_situations] = cov
    products, pending, waiting = np.zeros((4, padded)), np.zeros(4, np.int64), 0
    for p in range(start, stop):
        n, x, x_no = _gather_cells(offsets, p, situation, skips, e, index, skipped, examined), a[p], 1 - a[p]
        information = (judged[p] + total) * x * x_no
        for k in range(n):
            skip = 1 - x * examined[k]
            odds = skipped[k] * (x * examined[k]) / skip
            curve = odds / skip
            information += (curve * x_no - odds * x) * x_no
            cross[k] = curve * x_no
        information = max(information, 1e-12)
        if 2 * n < n_situations:
            added = 0.0
            for k in range(n):
                sum_above = 0.0
                for other in range(k):
                    sum_above += cov[index[k], index[other]] * cross[other]
                added += cross[k] * (2 * sum_above + cov[index[k], index[k]] * cross[k])
            variance[p] = 1 / information + max(added, 0.0) / (information * information)
            continue
        for k in range(n):
            every[waiting, index[k]] = cross[k] / information
        variance[p], pending[waiting] = 1 / information, p
        waiting += 1
        if waiting == 4:
            _add_quadratic_forms(every, covariances, products, pending, variance)
            every[:], waiting = 0.0, 0
    if waiting:
        _add_quadratic_forms(every, covariances, products, pending[:waiting], variance)


_MAX_RATE = 0.95
"""Largest click rate of pseudo-counts."""
_MAX_SCALING_STEPS, _SCALING_TOLERANCE = 50, 0.01
"""Steps and relative change by which rates of situations are found: they are needed for pseudo-counts only."""
_SCALING_PRIOR = 1.0
"""Clicks that are added to those of each situation, and to the expected ones."""
_MIN_COUNT = 1e-12
"""Smallest count to divide by: sessions have fractional weights in a mixture, so counts below 1 matter."""


def usual_rank(cells: Cells) -> Int[np.ndarray, " pair"]:
    """Return the rank at which each pair is usually shown: the nearest one to its mean rank."""
    impressions, _ = cells.by_pair()
    ranks = cells.weighted_impressions(cells.rank_of_situation().astype(np.float64))
    rank: np.ndarray = np.rint(ranks / np.maximum(impressions, _MIN_COUNT)).astype(np.int64)
    return rank


def add_pseudo_counts(
    cells: Cells, skips: Float[np.ndarray, " cell"], relative: Float[np.ndarray, " situation"] | None = None
) -> tuple[Float[np.ndarray, " pair"], Float[np.ndarray, " situation"]]:
    """Add pseudo-counts at the click rates of documents usually shown at the same rank.

    Parameters
    ----------
    cells
        Impressions and clicks by pair and situation.
    skips
        Skips by cell; the pseudo-skips are added in place.
    relative
        `clicks_per_impression(cells)`, where it is known; counts by rank do not need it.

    Returns
    -------
    tuple of numpy.ndarray
        Pseudo-clicks by pair and by situation.
    """
    group, (shown, clicked), n = usual_rank(cells), cells.by_pair(), cells.n_situations
    # pseudo-impressions per impression: every pair gets the same total
    share = prior_strength_by_moments(group, shown, clicked) / np.maximum(shown, 1)
    ranges = cells.ranges(n_threads(len(cells.pair)))
    totals = np.zeros((len(ranges), 2, cells.n_ranks, n))
    for_each(
        lambda k: _group_totals(
            *ranges[k], cells.offsets, group, cells.situation, cells.impressions, cells.clicks, totals[k]
        ),
        len(ranges),
    )
    impressions, clicks = totals.sum(axis=0)
    if cells.by == "rank":
        rate = clicks / np.maximum(impressions, _MIN_COUNT)
    else:
        at_rank = np.eye(cells.n_ranks)[cells.rank_of_situation()]  # (situation, rank)
        relative = clicks_per_impression(cells) if relative is None else relative
        expected = (impressions * relative) @ at_rank
        rate = np.minimum(relative * ((clicks @ at_rank) / np.maximum(expected, _MIN_COUNT) @ at_rank.T), _MAX_RATE)
    by_pair, by_situation = np.zeros(len(group)), np.zeros((len(ranges), n))
    for_each(
        lambda k: _add_group_rates(
            *ranges[k], cells.offsets, group, cells.situation, cells.impressions, share, rate, skips, by_pair,
            by_situation[k],
        ),
        len(ranges),
    )  # fmt: skip
    return by_pair, by_situation.sum(axis=0)


def clicks_per_impression(cells: Cells) -> Float[np.ndarray, " situation"]:
    """Compare how often the same documents are clicked in different situations: relative rates, at most 1.

    The rates r solve clicks(s) = sum over pairs of clicks(p) r(s) impressions(p, s) / sum over t of r(t)
    impressions(p, t): unbiased for the product of attractiveness and examination, however rarely documents were shown
    (the conditional likelihood of Poisson counts). Iterative proportional fitting solves it.

    Parameters
    ----------
    cells
        Impressions and clicks by pair and situation.
    """
    (_, clicked), (impressions, clicks) = cells.by_pair(), cells.by_situation()
    ranges = cells.ranges(n_threads(len(cells.pair)))
    rate = np.ones(cells.n_situations)
    for _ in range(_MAX_SCALING_STEPS):
        expected = np.zeros((len(ranges), cells.n_situations))
        columns = cells.offsets, cells.situation, cells.impressions, clicked, rate
        for_each(partial(_divide_range, ranges, columns, expected), len(ranges))
        factor = (clicks + _SCALING_PRIOR) / (expected.sum(axis=0) + _SCALING_PRIOR)
        rate = rate * factor
        rate /= np.average(rate, weights=impressions)
        if np.abs(factor - 1).max() < _SCALING_TOLERANCE:
            break
    return rate


def _divide_range(ranges: list[tuple[int, int]], columns: tuple[np.ndarray, ...], expected: np.ndarray, k: int) -> None:
    """Divide the clicks of a range of pairs among its cells, and add them up by situation."""
    _divide_clicks(*ranges[k], *columns, expected[k])


@njit(cache=True, nogil=True)
@no_type_check
def _divide_clicks(start, stop, offsets, situation, impressions, clicked, rate, expected):
    """Divide the clicks of each pair among its situations, in proportion to impressions x rate."""
    for p in range(start, stop):
        if clicked[p] > 0:
            total = 0.0
            for k in range(offsets[p], offsets[p + 1]):
                total += impressions[k] * rate[situation[k]]
            for k in range(offsets[p], offsets[p + 1]):
                expected[situation[k]] += clicked[p] * impressions[k] * rate[situation[k]] / total


@njit(cache=True, nogil=True)
@no_type_check
def _group_totals(start, stop, offsets, group, situation, impressions, clicks, totals):
    """Add up impressions (`totals[0]`) and clicks (`totals[1]`) by group and situation."""
    for p in range(start, stop):
        for k in range(offsets[p], offsets[p + 1]):
            totals[0, group[p], situation[k]] += impressions[k]
            totals[1, group[p], situation[k]] += clicks[k]


@njit(cache=True, nogil=True)
@no_type_check
def _add_group_rates(start, stop, offsets, group, situation, impressions, share, rate, skips, by_pair, by_situation):
    """Add pseudo-counts at the group's rates to the skips by cell, and to the clicks by pair and by situation."""
    for p in range(start, stop):
        for k in range(offsets[p], offsets[p + 1]):
            pseudo = share[p] * impressions[k]
            pseudo_clicks = pseudo * rate[group[p], situation[k]]
            skips[k] += pseudo - pseudo_clicks
            by_pair[p] += pseudo_clicks
            by_situation[situation[k]] += pseudo_clicks
