"""Choice of the clipping constant by SLOPE.

Clipping constants form a chain from the largest to the smallest, along which bias grows and variance falls: clipping
removes reward, and more of it the smaller the constant. With 2 CNF as half of an interval's width, SLOPE chooses the
last constant up to which all intervals have a point in common:

    i = max{ i : I_1 ∩ ... ∩ I_i is not empty },   I_i = [V_i - 2 CNF_i, V_i + 2 CNF_i]

Once an interval does not intersect the others, the bias exceeds the sampling error. As in the authors' code, CNF is the
standard error, made to decrease along the chain. SLOPE bounds the mean squared error, not the error of an interval: it
does not choose between estimators here, and not the constant of List and RIPS, whose weights are so heavy-tailed that
the chosen interval held the true value in a quarter of logs.

References
----------
Su, Y., Srinath, P. & Krishnamurthy, A. (2020). Adaptive estimator selection for off-policy evaluation. ICML.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from clickshift.ope.estimate import Estimate, Evaluation

_UNCLIPPED = ("List", "RIPS")
"""Estimators whose constant SLOPE does not choose: their weights are products of those of ranks."""


def _slope_index(value: Float[np.ndarray, " link"], error: Float[np.ndarray, " link"]) -> int:
    """Index at which SLOPE stops in a chain from the least to the most biased estimate; -1 if the first one is NaN.

    >>> _slope_index(np.array([0.50, 0.48, 0.30]), np.array([0.05, 0.03, 0.02]))
    1
    """
    width = 2 * np.fmax.accumulate(error[::-1])[::-1]
    low, high = np.maximum.accumulate(value - width), np.minimum.accumulate(value + width)
    disjoint = ~(low <= high)  # also where a value is NaN
    return int(disjoint.argmax()) - 1 if disjoint.any() else len(value) - 1


def best_clip(evaluation: Evaluation) -> Estimate:
    """Choose the clipping constant of one estimator by SLOPE.

    Parameters
    ----------
    evaluation
        Estimates for several clipping constants.

    Returns
    -------
    Estimate
        The estimate with the chosen clipping constant: the largest of those that give the same value. For List and
        RIPS, that with the largest constant.
    """
    if evaluation.estimates[-1].estimator.endswith(_UNCLIPPED):
        return evaluation.estimates[-1]
    descending = evaluation.estimates[::-1]
    index = max(_slope_index(*_values_and_errors(descending)), 0)
    return next(e for e in descending if e.value == descending[index].value or e is descending[index])


def _values_and_errors(estimates: Sequence[Estimate]) -> tuple[np.ndarray, np.ndarray]:
    """Values and standard errors of estimates."""
    return np.array([e.value for e in estimates]), np.array([e.error for e in estimates])
