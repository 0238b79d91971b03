"""Uncertainty of a position-bias curve: a Bayesian bootstrap over queries.

Queries are the clusters: clicks within a session, and sessions of the same query, are not independent. Every query gets
a weight from the exponential distribution (the Bayesian bootstrap), so that no rank is ever without data. Replicates
are compared on the log scale, where an interval is symmetric and stays above 0.

References
----------
Rubin, D. B. (1981). The Bayesian bootstrap. Annals of Statistics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from clickshift.errors import DataError


class CurveWarning(NamedTuple):
    """A finding that makes a curve doubtful: stable code, sentence after the name of the method, ranks (from 1)."""

    code: str
    message: str
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class ExaminationCurve:
    """Examination by rank, on any scale, with bootstrap replicates.

    Parameters
    ----------
    estimate
        Examination by rank; NaN where it is not identified from the log.
    replicates
        The same in resampled logs.
    n_queries
        Effective number of queries: how many equally frequent queries would weigh as much as those of the log.
    warnings
        Findings that make the curve doubtful.
    """

    estimate: Float[np.ndarray, " rank"]
    replicates: Float[np.ndarray, "replicate rank"]
    n_queries: float
    warnings: tuple[CurveWarning, ...] = ()

    @classmethod
    def of(cls, curves: Sequence[Float[np.ndarray, " rank"]], n_queries: float) -> ExaminationCurve:
        """Make a curve of the estimate from the log (the first) and those from resampled logs (all others)."""
        stacked = np.stack(curves)
        return cls(stacked[0], stacked[1:], n_queries)

    def relative_to(self, rank: int) -> ExaminationCurve:
        """Scale the curve so that it is 1 at a rank."""
        with np.errstate(divide="ignore", invalid="ignore"):
            estimate = self.estimate / self.estimate[rank]
            replicates = self.replicates / self.replicates[:, rank, None]
        return ExaminationCurve(estimate, replicates, self.n_queries, self.warnings)

    def interval(self, level: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Lower and upper limit, and standard error, by rank; NaN where there is none.

        The limits are estimate x exp(-+ t s), where s is the standard deviation of ln(replicate). Both the number of
        queries and that of replicates are small: t has the degrees of freedom that both leave.
        """
        from scipy.special import stdtrit

        check_level(level)
        n = len(self.replicates)
        if n < 2 or self.n_queries <= 1:
            low, high, error = np.full((3, len(self.estimate)), np.nan)
            return low, high, error
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(self.replicates)
            # exponential weights of G queries give (G - 1) / (G + 1) of the variance of a mean over G new queries
            spread = np.std(logs, axis=0, ddof=1) * np.sqrt((self.n_queries + 1) / (self.n_queries - 1))
            degrees_of_freedom = 1 / (1 / (self.n_queries - 1) + 1 / (n - 1))
            half_width = stdtrit(degrees_of_freedom, (1 + level) / 2) * spread
            low, high = self.estimate * np.exp(-half_width), self.estimate * np.exp(half_width)
        zero = self.estimate == 0
        return np.where(zero, 0.0, low), np.where(zero, np.nan, high), np.where(zero, np.nan, self.estimate * spread)


def check_level(level: float) -> None:
    """Check a confidence level."""
    if not 0 < level < 1:
        raise DataError(
            f"the level of an interval must be between 0 and 1: got {level}.", code="bad-level", value=level
        )


def query_weights(queries: int, replicates: int, rng: np.random.Generator) -> Float[np.ndarray, "replicate query"]:
    """Draw bootstrap weights of queries. Row 0 is the log itself, with weights of 1; the others are resampled logs."""
    return np.concatenate([np.ones((1, queries)), rng.standard_exponential((replicates, queries))])


def effective_sample_size(weight: Float[np.ndarray, " query"]) -> float:
    """Effective sample size (sum w)^2 / sum w^2.

    >>> effective_sample_size(np.array([2.0, 2.0, 0.0])), effective_sample_size(np.array([9.0, 1.0]))
    (2.0, 1.2195121951219512)
    """
    square = float((weight**2).sum())
    return float(weight.sum()) ** 2 / square if square else 0.0
