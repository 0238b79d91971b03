"""Debiasedness: once the true relevance is known, does a click model still know what the logging policy thought?

Two metrics of the same rows. `CMIP` is the conditional mutual information of the model's relevance and the logging
policy's score given the label (Deffayet et al. 2023). `MeanDependence` asks the same of the estimate's mean alone, and
so does not take noise for bias. Both are 0 for a debiased model; so they are for a random one, which is why they never
stand alone.

Both come with a null (the logging scores shuffled within labels) and an interval (the spread over random halves of the
queries, without replacement: in a bootstrap, copies of a row would be each other's nearest neighbours).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, final, runtime_checkable

import numpy as np

from clickshift.core.rng import as_generator
from clickshift.debiasedness.ksg import KSG
from clickshift.debiasedness._mean_dependence import mean_dependence_regression
from clickshift.debiasedness.scored_pairs import ScoredPairs
from clickshift.errors import DataError, SpecError

FEWEST_QUERIES = 10
"""Fewer queries in a half say nothing about the spread."""


@final
@dataclass(frozen=True)
class Dependence:
    """How much an estimate depends on the logging policy given the label. NaN where something was not asked for."""

    value: float
    low: float
    high: float
    null_mean: float
    """The mean of values from rows whose logging scores were shuffled within labels."""
    null_high: float
    """What 95 % of those values stay below."""
    p_value: float
    """The share of shuffled rows that look at least as dependent."""
    rows: int
    skipped_rows: int = 0
    """Rows of labels that are too rare to say anything."""
    slope: float = math.nan
    """Change of the estimate from the least to the most favoured document of equal label; of `MeanDependence` only."""

    @property
    def direction(self) -> int:
        """1 where the model favours what the logging policy favoured, -1 where it does the opposite, 0 if unknown."""
        return 0 if math.isnan(self.slope) else int(np.sign(self.slope))


@runtime_checkable
class DependenceEstimator(Protocol):
    """A number from rows; `rng` breaks ties or splits the rows."""

    def __call__(self, rows: ScoredPairs, rng: np.random.Generator) -> float: ...


@final
@dataclass(frozen=True)
class CMIP:
    """Conditional mutual information with the logging policy, in nats.

    `estimator` is "ksg", nearly unbiased (`KSG`), or "classifier", the published one (`Classifier`), which is far below
    the truth where few documents are judged; or either as a value with its own settings. With the classifier, every
    permutation and every subsample takes seconds.
    """

    estimator: str | DependenceEstimator = "ksg"
    permutations: int = 100
    subsamples: int = 100
    level: float = 0.95

    def __post_init__(self) -> None:
        _check(self.permutations, self.subsamples, self.level)
        self._estimate()

    def __call__(self, rows: ScoredPairs, *, rng: int | np.random.Generator) -> Dependence:
        rng, estimate = as_generator(rng), self._estimate()
        value = estimate(rows, rng)
        null = np.array([estimate(shuffled, rng) for shuffled in _shuffled(rows, self.permutations, rng)])
        halves = np.array([estimate(half, rng) for half in _halves(rows, self.subsamples, rng)])
        skipped = estimate.skipped(rows) if isinstance(estimate, KSG) else 0
        low, high = _interval(value, halves, self.level)
        return Dependence(value, low, high, *_of_null(null), _p_value(value, null), len(rows), skipped)

    def _estimate(self) -> DependenceEstimator:
        if not isinstance(self.estimator, str):
            return self.estimator
        if self.estimator == "ksg":
            return KSG()
        if self.estimator == "classifier":
            from clickshift.debiasedness.classifier_cmi import Classifier

            return Classifier()
        raise SpecError(f"the estimator must be 'ksg' or 'classifier': got {self.estimator!r}.")


@final
@dataclass(frozen=True)
class MeanDependence:
    """The share of the estimate's variance within labels that the logging policy's ranking explains.

    The p-value is that of the Wald statistic (`mean_dependence`), which unequal noise does not fool.
    """

    permutations: int = 100
    subsamples: int = 100
    level: float = 0.95

    def __post_init__(self) -> None:
        _check(self.permutations, self.subsamples, self.level)

    def __call__(self, rows: ScoredPairs, *, rng: int | np.random.Generator) -> Dependence:
        rng, found = as_generator(rng), mean_dependence_regression(rows)
        null = [mean_dependence_regression(shuffled) for shuffled in _shuffled(rows, self.permutations, rng)]
        halves = np.array([mean_dependence_regression(half).share for half in _halves(rows, self.subsamples, rng)])
        p_value = _p_value(found.wald, np.array([shuffled.wald for shuffled in null]))
        low, high = _interval(found.share, halves, self.level)
        of_null = _of_null(np.array([shuffled.share for shuffled in null]))
        return Dependence(found.share, low, high, *of_null, p_value, len(rows), slope=found.slope)


def _check(permutations: int, subsamples: int, level: float) -> None:
    if permutations < 0 or subsamples < 0 or subsamples == 1 or not 0 < level < 1:
        raise SpecError(
            "permutations and subsamples must be 0 (none) or more, subsamples not 1, and the level between 0 and 1: "
            f"got {permutations}, {subsamples} and {level}."
        )


def _shuffled(rows: ScoredPairs, n: int, rng: np.random.Generator) -> Iterator[ScoredPairs]:
    """The same rows without any dependence: logging scores exchanged between rows of equal label."""
    for _ in range(n):
        logging = rows.logging.copy()
        for label in rows.by_label:
            logging[label] = rows.logging[rng.permutation(label)]
        yield rows.with_logging(logging)


def _halves(rows: ScoredPairs, n: int, rng: np.random.Generator) -> Iterator[ScoredPairs]:
    _, query = np.unique(rows.query, return_inverse=True)
    n_queries = int(query.max()) + 1
    if n and n_queries < 2 * FEWEST_QUERIES:
        raise DataError(
            f"an interval needs at least {2 * FEWEST_QUERIES} judged queries: there are {n_queries}. "
            "Judge more, or ask for none (subsamples=0)."
        )
    for _ in range(n):
        kept = np.zeros(n_queries, bool)
        kept[rng.permutation(n_queries)[: n_queries // 2]] = True
        yield rows[np.flatnonzero(kept[query])]


def _interval(value: float, halves: np.ndarray, level: float) -> tuple[float, float]:
    """Of a mean, random halves of n vary by sigma^2 (2/n - 1/n) = sigma^2 / n: their spread is its standard error."""
    from scipy.special import ndtri

    if not len(halves):
        return math.nan, math.nan
    error = float(ndtri((1 + level) / 2) * halves.std(ddof=1))
    return value - error, value + error


def _of_null(null: np.ndarray) -> tuple[float, float]:
    return (float(null.mean()), float(np.quantile(null, 0.95))) if len(null) else (math.nan, math.nan)


def _p_value(statistic: float, null: np.ndarray) -> float:
    return (1 + int((null >= statistic).sum())) / (1 + len(null)) if len(null) else math.nan
