"""How sure an examination curve is: the same estimate with queries that count more or less at random.

Queries are the clusters: clicks of a session, and of sessions of a query, are not independent of each other. Every
query gets a weight from the exponential distribution (the Bayesian bootstrap of Rubin, 1981), so that no rank is ever
without data. Estimates are compared on the logarithm, where an interval is symmetric and stays above 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from clickshift.errors import DataError


@dataclass(frozen=True, eq=False)
class ExaminationCurve:
    """Examination by rank, on any scale: the estimate, and what resampled queries make of it."""

    estimate: Float[np.ndarray, " rank"]
    """NaN where the log does not tell."""
    replicates: Float[np.ndarray, "replicate rank"]
    n_queries: float
    """How many equally frequent queries would weigh like those of the log."""
    doubts: tuple[str, ...] = ()
    """In words that follow the name of the method."""

    @classmethod
    def of(cls, curves: Sequence[Float[np.ndarray, " rank"]], n_queries: float) -> ExaminationCurve:
        """Of the log itself, and then of resampled logs."""
        stacked = np.stack(curves)
        return cls(stacked[0], stacked[1:], n_queries)

    def relative_to(self, rank: int) -> ExaminationCurve:
        """The curve that is 1 at a rank."""
        with np.errstate(divide="ignore", invalid="ignore"):
            estimate = self.estimate / self.estimate[rank]
            replicates = self.replicates / self.replicates[:, rank, None]
        return ExaminationCurve(estimate, replicates, self.n_queries, self.doubts)

    def interval(self, level: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Lower and upper end, and the standard error; NaN where there is none.

        estimate x exp(-+ t s), s the standard deviation of ln(replicate). Both the number of queries and that of
        replicates are few: t has the degrees of freedom that both leave.
        """
        from scipy.special import stdtrit

        check_level(level)
        n = len(self.replicates)
        if n < 2 or self.n_queries <= 1:
            low, high, error = np.full((3, len(self.estimate)), np.nan)
            return low, high, error
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(self.replicates)
            # exponential weights of G queries vary the mean by (G - 1) / (G + 1) of what G fresh queries would
            spread = np.std(logs, axis=0, ddof=1) * np.sqrt((self.n_queries + 1) / (self.n_queries - 1))
            freedom = 1 / (1 / (self.n_queries - 1) + 1 / (n - 1))
            reach = stdtrit(freedom, (1 + level) / 2) * spread
            low, high = self.estimate * np.exp(-reach), self.estimate * np.exp(reach)
        none = self.estimate == 0
        return np.where(none, 0.0, low), np.where(none, np.nan, high), np.where(none, np.nan, self.estimate * spread)


def check_level(level: float) -> None:
    if not 0 < level < 1:
        raise DataError(f"the level of an interval must be between 0 and 1: got {level}.")


def query_weights(queries: int, replicates: int, rng: np.random.Generator) -> Float[np.ndarray, "replicate query"]:
    """Row 0 counts every query once: the log itself. The others are resampled logs."""
    return np.concatenate([np.ones((1, queries)), rng.standard_exponential((replicates, queries))])


def effective_sample_size(weight: Float[np.ndarray, " query"]) -> float:
    """(sum w)^2 / sum w^2.

    >>> effective_sample_size(np.array([2.0, 2.0, 0.0])), effective_sample_size(np.array([9.0, 1.0]))
    (2.0, 1.2195121951219512)
    """
    square = float((weight**2).sum())
    return float(weight.sum()) ** 2 / square if square else 0.0
