"""Labels to condition on: grades of a continuous relevance, and a word of warning where grades are too coarse.

Documents of equal label are not equally relevant if labels are few or noisy. What a label does not say about relevance,
a good logging policy and a perfect click model both know: they depend on each other given the label, although nothing
is wrong with the model.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from clickshift.errors import DataError

FEWEST_GRADES = 3
LARGEST_GRADE = 0.9


def grades(relevance: Float[np.ndarray, " pair"], groups: int = 5) -> Float[np.ndarray, " pair"]:
    """Groups of about equal size, numbered from 0, the least relevant; NaN stays NaN.

    Equal values are never split, so groups may differ in size, and be fewer. More groups leave less relevance unsaid,
    but each has fewer rows, and neighbours differ by noise.

    >>> grades(np.array([0.1, 0.9, 0.5, np.nan, 0.2]), 2).tolist()
    [0.0, 1.0, 1.0, nan, 0.0]
    """
    if groups < 2:
        raise DataError(f"there must be at least 2 groups to condition on: got {groups}.")
    known = ~np.isnan(relevance)
    _, value, count = np.unique(relevance[known], return_inverse=True, return_counts=True)
    middle = (np.cumsum(count) - count / 2) / max(known.sum(), 1)
    _, group = np.unique(np.floor(middle * groups), return_inverse=True)
    grade = np.full(relevance.shape, np.nan)
    grade[known] = group[value]
    return grade


def coarse_label_warning(label: Float[np.ndarray, " row"]) -> str | None:
    """In plain words why these labels are too coarse to condition on; None where they may do."""
    known = label[~np.isnan(label)]
    grade, count = np.unique(known, return_counts=True)
    because = ""
    if len(grade) < FEWEST_GRADES:
        because = f"there are {len(grade)}"
    elif count.max() > LARGEST_GRADE * len(known):
        because = f"{count.max() / len(known):.0%} of the rows have label {grade[count.argmax()]:g}"
    if not because:
        return None
    return (
        f"labels should have at least {FEWEST_GRADES} grades, none with more than {LARGEST_GRADE:.0%} of the rows: "
        f"{because}. Documents of equal label then differ in relevance, which a good logging policy and a perfect "
        "click model both see: dependence above 0 need not be a bias of the model. Compare models on the same rows, "
        "and use finer labels if there are any."
    )
