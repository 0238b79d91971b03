"""Grades of about equal size from numbers: the one quantile grading of the package."""

from __future__ import annotations

from typing import Literal

import numpy as np
from jaxtyping import Float, Int

__all__ = ["quantile_grades"]


def quantile_grades(
    values: Float[np.ndarray, " n"], grades: int, *, by: Literal["lowest", "middle", "highest"] = "middle"
) -> Int[np.ndarray, " n"]:
    """Divide numbers into grades of about equal size, numbered from 0 without gaps, the smallest numbers first.

    Equal numbers have the same grade, so grades may differ in size, and there may be fewer.

    Parameters
    ----------
    values
        The numbers, none of them NaN.
    grades
        Largest number of grades.
    by
        Which of several equal numbers decides their grade, by its position in ascending order: the first one, the
        middle, or the last one.

    Returns
    -------
    Int[n]
        Grade of each number.

    Examples
    --------
    >>> quantile_grades(np.array([0.1, 0.9, 0.5, 0.2]), 2).tolist()
    [0, 1, 1, 0]
    >>> [quantile_grades(np.array([1.0, 2.0, 2.0, 2.0, 3.0]), 2, by=by).tolist() for by in ("lowest", "highest")]
    [[0, 0, 0, 0, 1], [0, 1, 1, 1, 1]]
    """
    _, number, count = np.unique(values, return_inverse=True, return_counts=True)
    through, n = np.cumsum(count), max(len(values), 1)
    if by == "highest":
        group = -(-through * grades // n) - 1
    else:
        group = (2 * through - count * (2 if by == "lowest" else 1)) * grades // (2 * n)
    grade: np.ndarray = np.unique(group, return_inverse=True)[1][number]
    return grade
