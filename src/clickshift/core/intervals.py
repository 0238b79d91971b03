"""Confidence intervals of means and rates."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from jaxtyping import Float

from clickshift.errors import DataError, SpecError

_MAX_REPLICATES = 1_000_000
"""Largest number of bootstrap replicates: with more, an interval would take days and be no better."""


def check_replicates(replicates: int, *, at_least: int) -> None:
    """Check a number of bootstrap replicates.

    Parameters
    ----------
    replicates
        The number.
    at_least
        Smallest number that gives an interval.

    Raises
    ------
    SpecError
        If there are too few ("too-few-replicates") or too many ("too-many-replicates").
    """
    if not at_least <= replicates <= _MAX_REPLICATES:
        raise SpecError(
            f"an interval needs {at_least} to {_MAX_REPLICATES:,} replicates: got {replicates}.",
            code="too-few-replicates" if replicates < at_least else "too-many-replicates",
            value=replicates,
        )


def normal_quantile(prob: float) -> float:
    """Return the quantile of the standard normal distribution; unlike SciPy's, it needs no import.

    Parameters
    ----------
    prob
        Probability, between 0 and 1.

    Examples
    --------
    >>> round(normal_quantile(0.975), 4)
    1.96
    """
    return NormalDist().inv_cdf(prob)


def mean_interval(values: Sequence[float] | np.ndarray, level: float = 0.95) -> tuple[float, float, float]:
    """Return the mean and its confidence interval by Student's t distribution.

    Parameters
    ----------
    values
        Independent observations.
    level
        Confidence level.

    Returns
    -------
    tuple[float, float, float]
        Mean, lower bound and upper bound; the bounds are NaN for fewer than two values.

    Examples
    --------
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


def wilson_interval(
    successes: Float[np.ndarray, " n"], trials: Float[np.ndarray, " n"], level: float = 0.95
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Return Wilson's score interval of a rate: the rates p with |k/n - p| <= z sqrt(p (1 - p) / n).

    Parameters
    ----------
    successes
        Number of successes k.
    trials
        Number of trials n, above 0.
    level
        Confidence level, between 0 and 1.

    Returns
    -------
    tuple[array, array]
        Lower and upper bounds.

    Raises
    ------
    DataError
        If the level is not between 0 and 1 ("level-out-of-range").

    References
    ----------
    Wilson, E. B. (1927). Probable inference, the law of succession, and statistical inference. Journal of the American
    Statistical Association.

    Examples
    --------
    >>> low, high = wilson_interval(np.array([0.0]), np.array([10.0]))
    >>> round(float(low[0]), 4), round(float(high[0]), 4)
    (0.0, 0.2775)
    """
    if not 0 < level < 1:
        raise DataError(
            f"the level of an interval must be between 0 and 1: got {level}.", code="level-out-of-range", value=level
        )
    z = normal_quantile((1 + level) / 2)
    middle = (successes + z**2 / 2) / (trials + z**2)
    half = z / (trials + z**2) * np.sqrt(successes * (trials - successes) / trials + z**2 / 4)
    return np.maximum(middle - half, 0.0), np.minimum(middle + half, 1.0)
