"""Labels to condition on: grades of a continuous relevance, and a warning where grades are too coarse.

Documents of equal label are not equally relevant if labels are few or noisy. The relevance that a label does not
capture is visible to a good logging policy and to a perfect click model: their scores are then dependent given the
label, although the model is not biased.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from clickshift.errors import DataError
from clickshift.grading.quantiles import quantile_grades

FEWEST_GRADES = 3
"""Number of grades below which labels are too coarse."""
LARGEST_GRADE = 0.9
"""Largest share of the rows that one grade may have."""


def grades(relevance: Float[np.ndarray, " pair"], groups: int = 5) -> Float[np.ndarray, " pair"]:
    """Divide continuous relevance into grades of about equal size, numbered from 0, the least relevant.

    Equal values are never separated, so groups may differ in size, and there may be fewer. More groups leave less
    relevance uncaptured, but each has fewer rows, and neighbouring groups differ by noise.

    Parameters
    ----------
    relevance
        Relevance of each pair.
    groups
        Number of grades.

    Returns
    -------
    Float[pair]
        Grade of each pair; NaN stays NaN.

    Raises
    ------
    DataError
        "bad-option" if there are fewer than 2 groups.

    Examples
    --------
    >>> grades(np.array([0.1, 0.9, 0.5, np.nan, 0.2]), 2).tolist()
    [0.0, 1.0, 1.0, nan, 0.0]
    """
    if groups < 2:
        raise DataError(
            f"there must be at least 2 groups to condition on: got {groups}.",
            code="bad-option",
            option="groups",
            value=groups,
        )
    present, grade = ~np.isnan(relevance), np.full(relevance.shape, np.nan)
    grade[present] = quantile_grades(relevance[present], groups)
    return grade


def coarse_label_warning(label: Float[np.ndarray, " row"]) -> str | None:
    """Explain why labels are too coarse to condition on.

    Parameters
    ----------
    label
        Label of each row; NaN is ignored.

    Returns
    -------
    str or None
        The warning; None if the labels are fine enough.
    """
    present = label[~np.isnan(label)]
    grade, count = np.unique(present, return_counts=True)
    reason = ""
    if len(grade) < FEWEST_GRADES:
        reason = f"there are {len(grade)}"
    elif count.max() > LARGEST_GRADE * len(present):
        reason = f"{count.max() / len(present):.0%} of the rows have label {grade[count.argmax()]:g}"
    if not reason:
        return None
    return (
        f"labels should have at least {FEWEST_GRADES} grades, none with more than {LARGEST_GRADE:.0%} of the rows: "
        f"{reason}. Documents of equal label then differ in relevance, which both a good logging policy and a perfect "
        "click model capture, so dependence above 0 may not be a bias of the model. Compare models on the same rows, "
        "and use finer labels if available."
    )
