"""What several seeds say together: means with Student-t intervals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def mean_interval(values: Sequence[float] | np.ndarray, level: float = 0.95) -> tuple[float, float, float]:
    """The mean and its interval by Student's t; NaN bounds from fewer than two values.

    >>> [round(value, 4) for value in mean_interval([1.0, 2.0, 3.0])]
    [2.0, -0.4841, 4.4841]
    """
    from scipy.special import stdtrit

    values = np.asarray(values, np.float64)
    mean, n = float(values.mean()), len(values)
    if n < 2:
        return mean, float("nan"), float("nan")
    half = float(stdtrit(n - 1, (1 + level) / 2) * values.std(ddof=1) / np.sqrt(n))
    return mean, mean - half, mean + half
