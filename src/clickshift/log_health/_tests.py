"""Tail probabilities of the checks, and Holm's correction for their number."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float


def poisson_tail(found: float, expected: float) -> float:
    """Return P(X >= found) of a Poisson variable.

    >>> round(poisson_tail(2, 1.0), 4)
    0.2642
    """
    from scipy.special import gammainc

    return float(gammainc(found, max(expected, 1e-12))) if found > 0 else 1.0


def binomial_tail(found: float, trials: float, prob: float) -> float:
    """Return P(X >= found) of a binomial variable.

    >>> round(binomial_tail(2, 2, 0.5), 4)
    0.25
    """
    from scipy.special import betainc

    return float(betainc(found, trials - found + 1, prob)) if found > 0 else 1.0


def chi_squared_tail(statistic: float, degrees: float) -> float:
    """Return P(X >= statistic) of a chi-squared variable.

    >>> round(chi_squared_tail(3.841, 1), 3)
    0.05
    """
    from scipy.special import gammaincc

    return float(gammaincc(degrees / 2, statistic / 2))


def normal_tail(z: float) -> float:
    """Return P(X >= z) of a standard normal variable.

    >>> round(normal_tail(1.645), 3)
    0.05
    """
    from scipy.special import ndtr

    return float(ndtr(-z))


def homogeneity(counts: Float[np.ndarray, "row column"]) -> tuple[float, int]:
    """Return Pearson's statistic of a table of counts, and its degrees of freedom; empty columns are left out.

    >>> homogeneity(np.array([[10.0, 20.0], [20.0, 10.0]]))
    (6.666666666666667, 1)
    """
    counts = counts[counts.sum(axis=1) > 0][:, counts.sum(axis=0) > 0]
    if counts.shape[0] < 2 or counts.shape[1] < 2:
        return 0.0, 0
    expected = counts.sum(axis=1, keepdims=True) * counts.sum(axis=0) / counts.sum()
    return float(((counts - expected) ** 2 / expected).sum()), (counts.shape[0] - 1) * (counts.shape[1] - 1)


def holm(p_values: Mapping[str, float], alpha: float) -> set[str]:
    """Return the tests that Holm's step-down procedure rejects.

    Parameters
    ----------
    p_values
        P-value of each test, by name.
    alpha
        Probability of any false rejection.

    References
    ----------
    Holm, S. (1979). A simple sequentially rejective multiple test procedure. Scandinavian Journal of Statistics.

    Examples
    --------
    >>> sorted(holm({"a": 0.001, "b": 0.02, "c": 0.04}, 0.05)), sorted(holm({"a": 0.02, "b": 0.03}, 0.05))
    (['a', 'b', 'c'], ['a', 'b'])
    """
    rejected: set[str] = set()
    for k, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        if p_values[name] > alpha / (len(p_values) - k):
            break
        rejected.add(name)
    return rejected
