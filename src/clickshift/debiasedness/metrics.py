"""Debiasedness metrics: given the true relevance, does a click model's estimate depend on the logging policy?

Two metrics of the same rows. `CMIP` is the conditional mutual information of the model's relevance and the logging
policy's score given the label (Deffayet et al. 2023). `MeanDependence` measures the dependence of the estimate's mean
only, and so does not mistake noise for bias. Both are 0 for a debiased model; they are also 0 for a random one, which
is why they should be read together with a metric of accuracy.

Both come with a null distribution and an interval. The null distribution permutes logging scores among rows of the same
query and label: scores of a query have effects in common, which an exchange between queries would destroy, so that
independent scores would look dependent. The interval is the spread over random halves of the queries, without
replacement: in a bootstrap, copies of a row would be each other's nearest neighbours.

References
----------
Deffayet, R., Hager, P., Renders, J.-M., de Rijke, M. (2023). An offline metric for the debiasedness of click models.
SIGIR.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol, final, runtime_checkable

import numpy as np

from clickshift.core.intervals import normal_quantile
from clickshift.core.rng import as_generator
from clickshift.debiasedness._mean_dependence import mean_dependence_regression
from clickshift.debiasedness.nearest_neighbour_cmi import KSG
from clickshift.debiasedness.scored_pairs import ScoredPairs
from clickshift.errors import DataError, SpecError

FEWEST_QUERIES = 10
"""Smallest number of queries in a random half: the spread over smaller halves is not informative."""
_FEWEST_ARRANGEMENTS = 20
"""Number of arrangements of the logging scores below which no p-value can be .05 or less."""
_MAX_REPETITIONS = 1_000_000
"""Largest number of permutations or subsamples, as for bootstrap replicates: more would never end."""


@final
@dataclass(frozen=True)
class Dependence:
    """Dependence of an estimate on the logging policy given the label; NaN where a part was not computed.

    Parameters
    ----------
    value
        Estimated dependence.
    low, high
        Confidence interval.
    null_mean
        Mean over permutations of the logging scores within queries and labels.
    null_high
        95th percentile over those permutations.
    p_value
        Share of permutations that are at least as dependent.
    rows
        Number of rows.
    skipped_rows
        Number of rows whose label is too rare to be used.
    slope
        Change of the estimate from the least to the most favoured document of equal label; only of `MeanDependence`.
    untestable
        Why independence cannot be tested on these rows; empty if it can. There is no p-value then, and no value either
        if the logging scores do not differ within any label.
    halves
        Values of the random halves. The halves are the same for all estimates on the same query and label columns
        that were made with the same settings and seed, so differences between models can be paired.
    """

    value: float
    low: float
    high: float
    null_mean: float
    null_high: float
    p_value: float
    rows: int
    skipped_rows: int = 0
    slope: float = math.nan
    untestable: str = ""
    halves: tuple[float, ...] = field(default=(), repr=False)

    @property
    def direction(self) -> int:
        """1 if the model favours what the logging policy favoured, -1 if it does the opposite, 0 if unknown."""
        return 0 if math.isnan(self.slope) else int(np.sign(self.slope))


@runtime_checkable
class DependenceEstimator(Protocol):
    """Interface of estimators of conditional mutual information."""

    def __call__(self, rows: ScoredPairs, rng: np.random.Generator) -> float:
        """Return the estimate; `rng` breaks ties or splits the rows."""
        ...


@final
@dataclass(frozen=True)
class CMIP:
    """Conditional mutual information with the logging policy, in nats.

    Parameters
    ----------
    estimator
        "ksg", nearly unbiased (`KSG`), or "classifier", the published one (`Classifier`), which is far below the truth
        where few documents are judged; or an estimator object with its own settings.
    permutations
        Number of permutations of the null distribution; 0 for none. With the classifier each takes seconds.
    subsamples
        Number of random halves of the queries for the interval; 0 for none. With the classifier each takes seconds.
    level
        Confidence level of the interval.

    Raises
    ------
    SpecError
        "bad-option" if an option is out of range or the estimator is unknown.

    References
    ----------
    Deffayet, R., Hager, P., Renders, J.-M., de Rijke, M. (2023). An offline metric for the debiasedness of click
    models. SIGIR.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> label = rng.integers(3, size=600).astype(float)
    >>> logging = label + rng.normal(size=600)
    >>> rows = ScoredPairs.of(np.arange(600) // 10, estimate=logging, logging=logging, label=label)
    >>> CMIP(permutations=0, subsamples=0)(rows, rng=0).value > 1
    True
    """

    estimator: str | DependenceEstimator = "ksg"
    permutations: int = 100
    subsamples: int = 100
    level: float = 0.95

    def __post_init__(self) -> None:
        _check_options(self.permutations, self.subsamples, self.level)
        self._resolved_estimator()

    def __call__(self, rows: ScoredPairs, *, rng: int | np.random.Generator) -> Dependence:
        """Estimate the dependence with its null distribution and interval.

        Parameters
        ----------
        rows
            Judged pairs with estimates and logging scores.
        rng
            Seed or random generator.

        Raises
        ------
        DataError
            "too-few-rows" if labels have too few rows for the estimator; "too-few-queries" if there are too few
            queries for an interval.
        """
        rng, estimator = as_generator(rng), self._resolved_estimator()
        value = estimator(rows, rng)
        permuted = _permutations(rows, 0 if untestable(rows) else self.permutations, rng)
        null = np.array([estimator(rows_permuted, rng) for rows_permuted in permuted])
        halves = np.array([estimator(half, rng) for half in _random_halves(rows, self.subsamples, rng)])
        skipped = estimator.skipped(rows) if isinstance(estimator, KSG) else 0
        return _dependence(rows, value, halves, null, _p_value(value, null), self.level, skipped_rows=skipped)

    def _resolved_estimator(self) -> DependenceEstimator:
        """Return the estimator object of the `estimator` option."""
        if not isinstance(self.estimator, str):
            return self.estimator
        if self.estimator == "ksg":
            return KSG()
        if self.estimator == "classifier":
            from clickshift.debiasedness.classifier_cmi import Classifier

            return Classifier()
        raise SpecError(
            f"the estimator must be 'ksg' or 'classifier': got {self.estimator!r}.",
            code="bad-option",
            option="estimator",
            value=self.estimator,
            known=["ksg", "classifier"],
        )


@final
@dataclass(frozen=True)
class MeanDependence:
    """Share of the estimate's within-label variance that the logging policy's ranking explains.

    The p-value is that of a Wald statistic with a covariance clustered by query, which is robust to unequal noise.

    Parameters
    ----------
    permutations
        Number of permutations of the null distribution; 0 for none.
    subsamples
        Number of random halves of the queries for the interval; 0 for none.
    level
        Confidence level of the interval.

    Raises
    ------
    SpecError
        "bad-option" if an option is out of range.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> logging, query = rng.normal(size=300), np.repeat(np.arange(100), 3)
    >>> rows = ScoredPairs.of(query, estimate=logging + rng.normal(size=300), logging=logging, label=np.zeros(300))
    >>> MeanDependence(permutations=0, subsamples=0)(rows, rng=0).value > 0.3  # the estimate follows the ranker
    True
    """

    permutations: int = 100
    subsamples: int = 100
    level: float = 0.95

    def __post_init__(self) -> None:
        _check_options(self.permutations, self.subsamples, self.level)

    def __call__(self, rows: ScoredPairs, *, rng: int | np.random.Generator) -> Dependence:
        """Estimate the dependence with its null distribution and interval.

        Parameters
        ----------
        rows
            Judged pairs with estimates and logging scores.
        rng
            Seed or random generator.

        Raises
        ------
        DataError
            "too-few-rows" if no label has four rows; "too-few-queries" if there are too few queries for an interval.
        """
        rng, fitted = as_generator(rng), mean_dependence_regression(rows)
        permuted = _permutations(rows, 0 if untestable(rows) else self.permutations, rng)
        null = [mean_dependence_regression(rows_permuted) for rows_permuted in permuted]
        halves = np.array(
            [mean_dependence_regression(half).share for half in _random_halves(rows, self.subsamples, rng)]
        )
        p_value = _p_value(fitted.wald, np.array([one.wald for one in null]))
        null_share = np.array([one.share for one in null])
        return _dependence(rows, fitted.share, halves, null_share, p_value, self.level, slope=fitted.slope)


def untestable(rows: ScoredPairs) -> str:
    """Explain why no permutation test can detect a dependence on the logging scores; empty if one can.

    Parameters
    ----------
    rows
        Judged pairs with estimates and logging scores.

    Returns
    -------
    str
        The reason, as a sentence.

    Examples
    --------
    >>> rows = ScoredPairs.of(np.arange(50) // 2, estimate=np.arange(50), logging=np.ones(50), label=np.zeros(50))
    >>> untestable(rows)
    'The logging policy has the same preference for all judged documents.'
    """
    if len(np.unique(rows.logging)) < 2:
        return "The logging policy has the same preference for all judged documents."
    if rows.log_arrangements >= math.log(_FEWEST_ARRANGEMENTS) - 1e-9:
        return ""
    return (
        "Too few queries have judged documents with the same label and different preferences of the logging policy: "
        f"they can be exchanged in {math.exp(rows.log_arrangements):.0f} ways, and a test at the 5 % level needs "
        f"{_FEWEST_ARRANGEMENTS}."
    )


def _dependence(
    rows: ScoredPairs,
    value: float,
    halves: np.ndarray,
    null: np.ndarray,
    p_value: float,
    level: float,
    *,
    skipped_rows: int = 0,
    slope: float = math.nan,
) -> Dependence:
    """Return a dependence with its interval and null distribution; without a value if logging scores do not differ."""
    low, high = _interval(value, halves, level)
    if all(len(np.unique(rows.logging[label])) < 2 for label in rows.by_label):
        value = low = high = slope = math.nan
    return Dependence(
        value,
        low,
        high,
        *_null_summary(null),
        p_value,
        len(rows),
        skipped_rows,
        slope,
        untestable(rows),
        tuple(halves.tolist()),
    )


def _check_options(permutations: int, subsamples: int, level: float) -> None:
    """Check the options that both metrics share."""
    most = max(permutations, subsamples)
    if min(permutations, subsamples) < 0 or most > _MAX_REPETITIONS or subsamples == 1 or not 0 < level < 1:
        raise SpecError(
            f"permutations and subsamples must be from 0 (none) to {_MAX_REPETITIONS:,}, subsamples not 1, and the "
            f"level between 0 and 1: got {permutations}, {subsamples} and {level}.",
            code="bad-option",
            permutations=permutations,
            subsamples=subsamples,
            level=level,
        )


def _permutations(rows: ScoredPairs, n: int, rng: np.random.Generator) -> Iterator[ScoredPairs]:
    """Yield the rows n times without dependence: logging scores are permuted among rows of equal query and label."""
    in_order = np.argsort(rows.block, kind="stable")
    for _ in range(n):
        logging = np.empty_like(rows.logging)
        logging[in_order] = rows.logging[np.lexsort((rng.random(len(rows)), rows.block))]
        yield rows.with_logging(logging)


def _random_halves(rows: ScoredPairs, n: int, rng: np.random.Generator) -> Iterator[ScoredPairs]:
    """Yield the rows of n random halves of the queries."""
    _, query = np.unique(rows.query, return_inverse=True)
    n_queries = int(query.max()) + 1
    if n and n_queries < 2 * FEWEST_QUERIES:
        raise DataError(
            f"an interval needs at least {2 * FEWEST_QUERIES} judged queries: there are {n_queries}. "
            "Judge more, or omit the interval (subsamples=0).",
            code="too-few-queries",
            count=n_queries,
        )
    for _ in range(n):
        kept = np.zeros(n_queries, bool)
        kept[rng.permutation(n_queries)[: n_queries // 2]] = True
        yield rows[np.flatnonzero(kept[query])]


def _interval(value: float, halves: np.ndarray, level: float) -> tuple[float, float]:
    """Return the normal interval whose standard error is the standard deviation over random halves.

    The mean over a random half of n varies around the mean of all by sigma^2 (2/n - 1/n) = sigma^2 / n.
    """
    if not len(halves):
        return math.nan, math.nan
    half_width = normal_quantile((1 + level) / 2) * float(halves.std(ddof=1))
    return value - half_width, value + half_width


def _null_summary(null: np.ndarray) -> tuple[float, float]:
    """Return the mean and the 95th percentile of the null distribution."""
    return (float(null.mean()), float(np.quantile(null, 0.95))) if len(null) else (math.nan, math.nan)


def _p_value(statistic: float, null: np.ndarray) -> float:
    """Return the permutation p-value, which counts the observed rows as one permutation."""
    return (1 + int((null >= statistic).sum())) / (1 + len(null)) if len(null) else math.nan
