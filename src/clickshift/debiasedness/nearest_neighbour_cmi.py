"""Conditional mutual information by nearest neighbours within each label.

Given a discrete label, I(estimate; logging | label) = sum over labels of p(label) I(estimate; logging | label = z).
Each term is the mutual information of two numbers, for which Kraskov, Stögbauer and Grassberger (2004, algorithm 1)
have an estimator that is nearly unbiased: with e_i the distance to the k-th neighbour in the larger of the two
coordinates, and n_x, n_y the numbers of points that are closer than e_i in one coordinate,

    I = psi(k) + psi(n) - mean of psi(n_x + 1) + psi(n_y + 1)

Mutual information does not change when scores are replaced by their ranks. On ranks the search needs no tree: points
within a distance of e in the first coordinate are the e neighbours on either side.

References
----------
Kraskov, A., Stögbauer, H., Grassberger, P. (2004). Estimating mutual information. Physical Review E.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final, no_type_check

import numpy as np
from jaxtyping import Float
from numba import njit
from scipy.special import digamma

from clickshift.core.parallel import for_ranges
from clickshift.debiasedness.scored_pairs import ScoredPairs
from clickshift.errors import DataError, SpecError


@final
@dataclass(frozen=True)
class KSG:
    """Nearest-neighbour estimator of conditional mutual information, in nats.

    Without dependence the estimate is near 0, and as often below as above. Equal scores are put in random order first,
    which hides only dependence among themselves. A label needs more than `neighbours` + 1 rows; rows of rarer labels
    are left out, and `skipped` counts them.

    Parameters
    ----------
    neighbours
        Number k of neighbours.

    Raises
    ------
    SpecError
        "bad-option" if `neighbours` is below 1.

    References
    ----------
    Kraskov, A., Stögbauer, H., Grassberger, P. (2004). Estimating mutual information. Physical Review E.
    """

    neighbours: int = 5

    def __post_init__(self) -> None:
        if self.neighbours < 1:
            raise SpecError(
                f"neighbours must be at least 1: got {self.neighbours}.",
                code="bad-option",
                option="neighbours",
                value=self.neighbours,
            )

    def __call__(self, rows: ScoredPairs, rng: np.random.Generator) -> float:
        """Estimate I(estimate; logging | label).

        Parameters
        ----------
        rows
            Judged pairs with estimates and logging scores.
        rng
            Random generator for tie-breaking.

        Raises
        ------
        DataError
            "too-few-rows" if no label has enough rows.
        """
        usable = [label for label in rows.by_label if len(label) > self.neighbours + 1]
        if not usable:
            most = max(map(len, rows.by_label), default=0)
            raise DataError(
                f"a label must have more than {self.neighbours + 1} rows for {self.neighbours} neighbours: the most "
                f"frequent of {len(rows.by_label)} labels has {most}. Merge labels, or judge more documents.",
                code="too-few-rows",
                count=most,
            )
        total = sum(
            len(label) * _mutual_information(rows.estimate[label], rows.logging[label], self.neighbours, rng)
            for label in usable
        )
        return total / sum(map(len, usable))

    def skipped(self, rows: ScoredPairs) -> int:
        """Return the number of rows whose label is too rare."""
        return sum(len(label) for label in rows.by_label if len(label) <= self.neighbours + 1)


def _mutual_information(
    x: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"], neighbours: int, rng: np.random.Generator
) -> float:
    """Return the KSG estimate on the ranks of x and y.

    Ranks are jittered by up to half a step: on integers many neighbours would be equally distant, which biases the
    estimate.
    """
    n = len(x)
    x_rank, y_rank = np.empty(n), np.empty(n)
    by_x, by_y = _argsort_with_random_ties(x, rng), _argsort_with_random_ties(y, rng)
    x_rank[by_x], y_rank[by_y] = np.arange(n) + rng.random((2, n))
    closer = np.empty((n, 2), np.int64)

    def work(points: slice) -> None:
        _count_closer(points.start, points.stop, x_rank[by_x], y_rank[by_x], np.sort(y_rank), neighbours, closer)

    for_ranges(work, n, chunk=2048)
    psi = digamma(np.arange(1, n + 1))
    return float(psi[neighbours - 1] + psi[n - 1] - psi[closer].sum() / n)


def _argsort_with_random_ties(values: Float[np.ndarray, " n"], rng: np.random.Generator) -> np.ndarray:
    """Return the indices that sort the values, with equal values in random order."""
    shuffle = rng.permutation(len(values))
    order: np.ndarray = shuffle[np.argsort(values[shuffle], kind="stable")]
    return order


@njit(cache=True, nogil=True)
@no_type_check
def _count_closer(begin, end, x, y, y_sorted, k, closer):
    """Count, for points begin..end in ascending order of x, the others closer than the k-th neighbour in x and in y.

    Coordinate j of the sorted x (and y) lies in [j, j + 1), so only the ends of a range need to be compared.
    """
    n = len(x)
    nearest = np.empty(k)
    for i in range(begin, end):
        nearest[:] = np.inf
        left, right = i - 1, i + 1
        while True:
            to_left = x[i] - x[left] if left >= 0 else np.inf
            to_right = x[right] - x[i] if right < n else np.inf
            if min(to_left, to_right) >= nearest[k - 1]:
                break
            if to_left < to_right:
                distance = max(to_left, abs(y[left] - y[i]))
                left -= 1
            else:
                distance = max(to_right, abs(y[right] - y[i]))
                right += 1
            if distance < nearest[k - 1]:
                place = k - 1
                while place > 0 and nearest[place - 1] > distance:
                    nearest[place] = nearest[place - 1]
                    place -= 1
                nearest[place] = distance
        closer[i, 0] = _count_within(x, x[i], nearest[k - 1])
        closer[i, 1] = _count_within(y_sorted, y[i], nearest[k - 1])


@njit(cache=True, nogil=True)
@no_type_check
def _count_within(sorted_values, value, distance):
    """Count the values, other than the value itself, that are closer than the distance."""
    n = len(sorted_values)
    low = min(max(int(value - distance), 0), n - 1)
    if value - sorted_values[low] >= distance:
        low += 1
    high = min(max(int(value + distance), 0), n - 1)
    if sorted_values[high] - value >= distance:
        high -= 1
    return high - low
