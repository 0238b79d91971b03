"""Significance over seeds: bootstrap intervals, Student's and Welch's t-tests, and the marks of the papers' tables.

A model that does not depend on the seed has equal values for all seeds, or one value: both count as a number known
exactly. So does a single value of a model that does depend on the seed, which then looks more certain than it is: use
several seeds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from jaxtyping import Float

from clickshift.core.rng import generator
from clickshift.errors import DataError

Values = Sequence[float] | Float[np.ndarray, " _"]
"""Values over seeds."""
Alternative = Literal["two-sided", "less", "greater"]
"""Alternative hypothesis of a test."""
Correction = Literal["none", "bonferroni", "holm"]
"""Correction for multiple tests."""

ROUNDING = 1e-12
"""Relative difference up to which values count as equal: it may be due to rounding."""


def bootstrap_interval(
    values: Values, level: float = 0.95, *, resamples: int = 10_000, seed: int = 0
) -> tuple[float, float, float]:
    """Compute the mean and its percentile bootstrap interval.

    For few values the interval is narrower than Student's: with ten, a 95 % interval covers the true mean about nine
    times in ten.

    Parameters
    ----------
    values
        Sample.
    level
        Confidence level.
    resamples
        Number of bootstrap resamples.
    seed
        Random seed of the resamples.

    Returns
    -------
    mean, low, high
        Mean and bounds; NaN bounds for fewer than two values.

    Examples
    --------
    >>> mean, low, high = bootstrap_interval([1.0, 2.0, 3.0])
    >>> mean, low, high
    (2.0, 1.0, 3.0)
    """
    sample = np.asarray(values, np.float64)
    mean = float(sample.mean())
    if len(sample) < 2:
        return mean, float("nan"), float("nan")
    drawn = generator(seed, "bootstrap").integers(0, len(sample), (resamples, len(sample)))
    low, high = np.quantile(sample[drawn].mean(axis=1), [(1 - level) / 2, (1 + level) / 2])
    return mean, float(low), float(high)


def paired_t_test(a: Values, b: Values, *, alternative: Alternative = "two-sided") -> float:
    """Compute the p-value of Student's t-test on the differences of paired values.

    Parameters
    ----------
    a, b
        Paired samples.
    alternative
        "less" and "greater" refer to the mean of `a` relative to that of `b`.

    Returns
    -------
    float
        The p-value.

    Raises
    ------
    DataError
        "unequal-lengths" if the samples differ in size.

    Examples
    --------
    >>> round(paired_t_test([1.0, 2.0, 4.0], [2.0, 4.0, 5.0], alternative="less"), 4)
    0.0286
    """
    first, second = (np.asarray(values, np.float64) for values in (a, b))
    if first.shape != second.shape:
        raise DataError(
            f"paired samples must have equal sizes: got {len(first)} and {len(second)}.", code="unequal-lengths"
        )
    return welch(first - second, [0.0], alternative=alternative)


def welch(a: Values, b: Values, *, alternative: Alternative = "two-sided") -> float:
    """Compute the p-value of Welch's t-test of equal means.

    Against a number known exactly this is Student's one-sample test. Two such numbers are equal (two-sided p = 1) or
    not (p = 0).

    Parameters
    ----------
    a, b
        Samples.
    alternative
        "less" and "greater" refer to the mean of `a` relative to that of `b`.

    Returns
    -------
    float
        The p-value; NaN where a value is not finite or a sample is empty.

    References
    ----------
    Welch, B. L. (1947). The generalization of Student's problem when several different population variances are
    involved. Biometrika.

    Examples
    --------
    >>> round(welch([1.0, 2.0, 3.0], [3.0, 4.0, 5.0]), 4)
    0.0705
    """
    from scipy.special import stdtr

    first, second = (np.asarray(values, np.float64) for values in (a, b))
    if not (_is_measured(first) and _is_measured(second)):
        return math.nan
    difference = float(first.mean() - second.mean())
    variance_a, variance_b = _squared_error(first), _squared_error(second)
    variance = variance_a + variance_b
    if variance > 0:
        t, share = difference / math.sqrt(variance), variance_a / variance
        freedom = 1 / (share**2 / max(len(first) - 1, 1) + (1 - share) ** 2 / max(len(second) - 1, 1))
    else:
        size = max(abs(float(first[0])), abs(float(second[0])))
        t, freedom = (0.0 if abs(difference) <= ROUNDING * size else math.copysign(math.inf, difference)), 1.0
        if t == 0:
            return 1.0
    if alternative == "two-sided":
        return 2 * float(stdtr(freedom, -abs(t)))
    return float(stdtr(freedom, t if alternative == "less" else -t))


def corrected_p_values(p_values: Values, method: Correction) -> Float[np.ndarray, " test"]:
    """Correct p-values of several tests for the family-wise error rate.

    Parameters
    ----------
    p_values
        The p-values of the tests.
    method
        "bonferroni" multiplies by the number of tests. "holm" multiplies the smallest by that number, the next by one
        less, and so on, never below the one before: it rejects whatever Bonferroni rejects, and more. "none" returns
        the p-values.

    Returns
    -------
    Float[test]
        Corrected p-values.

    Raises
    ------
    DataError
        "not-a-probability" if a p-value is not from 0 to 1; "bad-option" if the method is unknown.

    References
    ----------
    Holm, S. (1979). A simple sequentially rejective multiple test procedure. Scandinavian Journal of Statistics.

    Examples
    --------
    >>> corrected_p_values([0.01, 0.04, 0.03], "holm").tolist()
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, np.float64)
    if not ((p >= 0) & (p <= 1)).all():
        bad = p[~((p >= 0) & (p <= 1))][0]
        raise DataError(
            f"a p-value must be from 0 to 1: got {bad}. Leave that test out.",
            code="not-a-probability",
            value=float(bad),
        )
    tests = len(p)
    if method == "none":
        return p
    if method == "bonferroni":
        return np.minimum(p * tests, 1.0)
    if method == "holm":
        order = np.argsort(p)
        adjusted = np.empty(tests)
        adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(tests, 0, -1)), 1.0)
        return adjusted
    raise DataError(
        f"a correction must be none, bonferroni or holm: got {method!r}.",
        code="bad-option",
        option="correction",
        value=method,
        known=["none", "bonferroni", "holm"],
    )


def not_worse_than_best(
    values: Mapping[str, Values], *, lower_is_better: bool, level: float = 0.95, correction: Correction = "none"
) -> dict[str, str]:
    """Mark the best model, and those not significantly worse, as in the policy-shift paper's tables.

    A model is significantly worse if its mean is worse and a two-sided Welch test has a p-value below 1 - level. The
    paper does not say how many sides. By the bounds of its appendix D, two-sided and one-sided tests both give every
    mark of tables 1 and 2 wherever the appendix prints the same means; two-sided is the usual reading. Like the paper,
    it does not correct for multiple comparisons by default; `correction` applies to the tests of all other models
    against the best.

    Parameters
    ----------
    values
        Values over seeds by model.
    lower_is_better
        Whether lower values are better.
    level
        One minus the significance level.
    correction
        Correction for multiple tests.

    Returns
    -------
    dict
        Mark by model: "best" for the best mean, "=" where not significantly worse, else "". A model without values, or
        with one that is not finite, has no mark.

    Raises
    ------
    DataError
        "bad-level" if `level` is not between 0 and 1; "bad-option" if the correction is unknown.
    """
    measured = [name for name in values if _is_measured(np.asarray(values[name], np.float64))]
    if not measured:
        return dict.fromkeys(values, "")
    sign = 1 if lower_is_better else -1
    best = min(measured, key=lambda name: sign * float(np.mean(values[name])))
    not_worse = _not_worse(values, best, sign, level, correction)
    return {name: "best" if name == best else "=" if name in not_worse else "" for name in values}


def not_worse_than(
    values: Mapping[str, Values],
    reference: str,
    *,
    lower_is_better: bool,
    level: float = 0.95,
    correction: Correction = "none",
) -> dict[str, str]:
    """Mark the models that are better or not significantly worse than a reference model.

    This is the dagger against ARM NC in the policy-shift paper's tables; tests are those of `not_worse_than_best`.

    Parameters
    ----------
    values
        Values over seeds by model.
    reference
        Name of the reference model.
    lower_is_better
        Whether lower values are better.
    level
        One minus the significance level.
    correction
        Correction for multiple tests.

    Returns
    -------
    dict
        Mark by model: "†" where better or not significantly worse, "" for the others and for the reference.

    Raises
    ------
    DataError
        "unknown-name" if the reference is not one of the models; "bad-level" if `level` is not between 0 and 1;
        "bad-option" if the correction is unknown.
    """
    if reference not in values:
        raise DataError(
            f"the reference must be one of the models, {', '.join(values)}: got {reference!r}.",
            code="unknown-name",
            value=reference,
            known=list(values),
        )
    not_worse = _not_worse(values, reference, 1 if lower_is_better else -1, level, correction)
    return {name: "†" if name in not_worse else "" for name in values}


def _not_worse(
    values: Mapping[str, Values], reference: str, sign: int, level: float, correction: Correction
) -> set[str]:
    """Return the models that are better or not significantly worse than the reference."""
    if not 0 < level < 1:
        raise DataError(f"the level of a test must be between 0 and 1: got {level}.", code="bad-level", value=level)
    samples = {name: np.asarray(sample, np.float64) for name, sample in values.items()}
    if not _is_measured(samples[reference]):
        return set()
    others = [name for name, sample in samples.items() if name != reference and _is_measured(sample)]
    p_values = corrected_p_values([welch(samples[name], samples[reference]) for name in others], correction)
    return {
        name
        for name, p in zip(others, p_values.tolist(), strict=True)
        if sign * (samples[name].mean() - samples[reference].mean()) <= 0 or p >= 1 - level
    }


def _is_measured(sample: np.ndarray) -> bool:
    """Return whether a sample has values, all of them finite."""
    return sample.ndim == 1 and len(sample) > 0 and bool(np.isfinite(sample).all())


def _squared_error(sample: np.ndarray) -> float:
    """Return the squared standard error of the mean; 0 for values that do not vary."""
    if np.ptp(sample) <= ROUNDING * np.abs(sample).max():
        return 0.0
    return float(sample.var(ddof=1)) / len(sample)
