"""Intervals of partially identified quantities, whose floor and ceiling have standard errors by a jackknife.

References
----------
Imbens, G. W. and Manski, C. F. (2004). Confidence intervals for partially identified parameters. Econometrica.

Stoye, J. (2009). More on confidence intervals for partially identified parameters. Econometrica.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from clickshift.ope.family_values import N_GROUPS
from clickshift.ope.session_groups import jackknife_error


class Interval(NamedTuple):
    """An interval, from low to high."""

    low: float
    high: float

    @property
    def width(self) -> float:
        """Width of the interval."""
        return self.high - self.low


class Quantity(NamedTuple):
    """A quantity, its floor and its ceiling: of the whole log, and without each group of sessions.

    Parameters
    ----------
    full
        Of the whole log.
    refitted
        Without each group, with the click model fitted again.
    fixed
        Without each group, with the click model of the whole log.
    """

    full: Float[np.ndarray, " 3"]
    refitted: Float[np.ndarray, "group 3"]
    fixed: Float[np.ndarray, "group 3"]

    def interval(self, share: float, level: float) -> tuple[Interval, float, float]:
        """Return the interval, and the half-widths of sampling and of estimated browsing in it.

        Parameters
        ----------
        share
            Share of the log's sessions in the jackknife.
        level
            Confidence level.
        """
        floor, ceiling = map(float, self.full[1:])
        error, fixed = (jackknife_error(part, share)[1:] for part in (self.refitted, self.fixed))
        c = critical_value(ceiling - floor, float(error.max()), level)
        statistical = c * float(error.mean())
        sampling = min(c * float(fixed.mean()), statistical)
        return Interval(floor - c * float(error[0]), ceiling + c * float(error[1])), sampling, statistical - sampling


def critical_value(gap: float, error: float, level: float) -> float:
    """Critical value for an interval whose ends are apart (Imbens and Manski), by Student's t distribution.

    Parameters
    ----------
    gap
        Distance of the ends.
    error
        Standard error of the less precise end.
    level
        Confidence level.

    Returns
    -------
    float
        It solves Phi(c + gap / error) - Phi(-c) = level: between the one-sided and the two-sided quantile.

    Examples
    --------
    >>> round(critical_value(0.0, 1.0, 0.95), 3), round(critical_value(100.0, 1.0, 0.95), 3)  # 15 degrees of freedom
    (2.131, 1.753)
    """
    from scipy.special import ndtr, ndtri, stdtrit

    low, high = float(ndtri(level)), float(ndtri((1 + level) / 2))
    apart = gap / error if error > 0 else math.inf
    for _ in range(50):
        c = (low + high) / 2
        low, high = (c, high) if ndtr(c + apart) - ndtr(-c) < level else (low, c)
    return float(stdtrit(N_GROUPS - 1, ndtr(high)))
