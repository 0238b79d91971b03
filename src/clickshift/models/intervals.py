"""Confidence intervals of estimated probabilities, and what they rest on: the log, or a prior.

Estimates are shrunk by priors, which predict better but share an opinion on all documents. Intervals do not share it:
they come from the likelihood, summarised for each parameter by effective counts, the successes and trials of the
binomial likelihood that has the same maximum and the same curvature.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from clickshift.errors import DataError

__all__ = [
    "ParameterIntervals",
    "beta_interval",
    "counts_interval",
    "counts_with_bounds",
    "effective_counts",
    "product_counts",
    "support_of",
]

EffectiveCounts = Float[np.ndarray, "2 _"]
"""Effective successes and trials of each value of a parameter."""
FEW_CLICKS = 5.0
"""Effective clicks below which the upper bound is exact, and the estimate rests on its prior too."""
_MIN_TRIALS = 1.0 - 1e-6
"""Effective trials below which the log does not identify a parameter: one, which rounding may make slightly less."""


_QUANTILE = 1.96
"""Standard errors between an estimate and the bounds of its 95 % interval."""
_LEAST_BOUND, _ABOUT_ONE = 1e-6, 1 - 1e-6
"""Bounds from which on an interval begins at 0, or ends at 1."""
_LEAST_FAILURES = 0.5
"""Effective failures below which an interval ends at 1."""
_NO_FAILURE = 2.512
"""The lower bound after n successes is about exp(-2.512 / n)."""
_LEAST_WIDTH, _MOST_TRIALS = 1e-6, 1e12
"""Width of the narrowest interval whose counts are computed, and their largest number."""
_MATCHING_STEPS = 5
"""Steps by which counts are found that have given bounds."""


class ParameterIntervals(NamedTuple):
    """Confidence intervals of the values of a parameter.

    Parameters
    ----------
    low, high
        Bounds; NaN where there is no interval.
    support
        "log" where the log decides the estimate; "prior" where it has fewer than five effective clicks; "not
        identified" where it has less than one effective trial; "convention" for values that are fixed; "" if it is not
        known.
    """

    low: Float[np.ndarray, " n"]
    high: Float[np.ndarray, " n"]
    support: np.ndarray


def effective_counts(
    p: Float[np.ndarray, " n"],
    logit_error: Float[np.ndarray, " n"],
    prior_slope: Float[np.ndarray, " n"] | float = 0.0,
    prior_information: Float[np.ndarray, " n"] | float = 0.0,
) -> EffectiveCounts:
    """Compute the successes and trials whose binomial likelihood replaces that of the log.

    At a maximum of log-likelihood + log-prior, the likelihood alone has the information 1 / error^2 minus that of the
    prior, that of so many trials, and a derivative that cancels that of the prior: the successes beyond p times the
    trials. For a binomial likelihood both are exact.

    Parameters
    ----------
    p
        Estimates: maxima of the penalised likelihood.
    logit_error
        Standard errors of their logits, with the prior.
    prior_slope, prior_information
        First and minus second derivative of the parameter's own log-prior by its logit.

    Returns
    -------
    numpy.ndarray
        Successes and trials.

    Examples
    --------
    >>> p = np.array([(30 + 0.5) / (100 + 5)])  # 30 of 100, with a prior of .5 of 5
    >>> effective_counts(p, 1 / np.sqrt(105 * p * (1 - p)), 0.5 - 5 * p, 5 * p * (1 - p)).round(6).tolist()
    [[30.0], [100.0]]
    """
    inside = np.clip(p, 1e-12, 1 - 1e-12)
    with np.errstate(divide="ignore"):
        information = np.maximum(1 / logit_error**2 - prior_information, 0.0)
    trials = np.minimum(information / (inside * (1 - inside)), 1e15)
    return np.stack([np.clip(trials * inside - prior_slope, 0.0, trials), trials])


def counts_with_bounds(low: Float[np.ndarray, " n"], high: Float[np.ndarray, " n"]) -> EffectiveCounts:
    """Compute the counts whose 95 % interval has these bounds.

    Where the upper bound is so near 1 that no binomial likelihood has both bounds, there are successes alone: their
    interval goes from the lower bound to 1.

    Parameters
    ----------
    low, high
        Bounds, below and above the estimate.

    Examples
    --------
    >>> counts_with_bounds(np.array([0.2, 0.6]), np.array([0.5, 1.0])).round(1).tolist()
    [[12.1, 4.7], [35.9, 4.7]]
    """
    wide, touching = high - low > _LEAST_WIDTH, high >= _ABOUT_ONE
    counts = _MOST_TRIALS * np.stack([low, np.ones_like(low)])
    inside = np.flatnonzero(wide & ~touching)
    counts[:, inside] = _counts_inside(low[inside], high[inside])
    touching[inside] = ~(counts[1, inside] - counts[0, inside] >= _LEAST_FAILURES)
    alone = np.flatnonzero(wide & touching)
    counts[:, alone] = _successes_alone(low[alone])
    return counts


def _counts_inside(low: Float[np.ndarray, " n"], high: Float[np.ndarray, " n"]) -> EffectiveCounts:
    """Return the counts whose Jeffreys interval has these bounds: its centre and width, in logits, are adjusted."""
    from scipy.special import betaincinv, expit, logit

    target = logit(np.stack([np.maximum(low, _LEAST_BOUND), high]))
    center, width = target.mean(axis=0), target[1] - target[0]
    trials = (2 * _QUANTILE / width) ** 2 / (expit(center) * expit(-center))
    for _ in range(_MATCHING_STEPS):
        a, b = trials * expit(center) + 0.5, trials * expit(-center) + 0.5
        found = logit(np.clip([betaincinv(a, b, 0.025), betaincinv(a, b, 0.975)], _LEAST_BOUND, _ABOUT_ONE))
        center = center + target.mean(axis=0) - found.mean(axis=0)
        trials = np.minimum(trials * np.square((found[1] - found[0]) / width), _MOST_TRIALS)
    counts: np.ndarray = np.stack([trials * expit(center), trials])
    return counts


def _successes_alone(low: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Return the number of successes, without a failure, whose Jeffreys interval has this lower bound."""
    from scipy.special import betaincinv

    log_low = np.log(np.clip(low, _LEAST_BOUND, _ABOUT_ONE))
    successes: np.ndarray = _NO_FAILURE / -log_low
    for _ in range(_MATCHING_STEPS):
        successes = successes * np.log(betaincinv(successes + 0.5, 0.5, 0.025)) / log_low
    return successes


def product_counts(first: EffectiveCounts, second: EffectiveCounts) -> EffectiveCounts:
    """Compute effective counts of the product of two probabilities from theirs, by the delta method.

    Probabilities are posterior means under Jeffreys' prior, which is half a success in one trial; log(p q) has variance
    ((1 - p) error_p)^2 + ((1 - q) error_q)^2.

    Parameters
    ----------
    first, second
        Effective successes and trials.

    Examples
    --------
    >>> product_counts(np.array([[30.0], [100.0]]), np.array([[1e6], [1e6]])).round(1).tolist()
    [[30.0], [100.0]]
    """
    (p, p_trials), (q, q_trials) = (((yes + 0.5) / (n + 1), n + 1) for yes, n in (first, second))
    product = p * q
    log_variance = (1 - p) / (p * p_trials) + (1 - q) / (q * q_trials)
    trials = np.maximum((1 - product) / (product * log_variance) - 1, 0.0)
    return np.stack([np.clip(product * (trials + 1) - 0.5, 0.0, trials), trials])


def counts_interval(counts: EffectiveCounts, level: float) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Compute confidence intervals of probabilities from effective counts.

    They are Jeffreys intervals, quantiles of Beta(y + 1/2, n - y + 1/2). With fewer than five successes, the upper
    bound is that of the exact interval (Clopper and Pearson 1934), so that no success in n trials allows 3.7 / n; and
    with next to none the lower bound is 0 (Brown, Cai and DasGupta 2001).

    Parameters
    ----------
    counts
        Effective successes and trials.
    level
        Confidence level.

    Returns
    -------
    tuple of numpy.ndarray
        Lower and upper bounds.

    Raises
    ------
    DataError
        If the level is not between 0 and 1 ("bad-level").

    Examples
    --------
    >>> low, high = counts_interval(np.array([[0.0], [200.0]]), 0.95)
    >>> low.round(4).tolist(), high.round(4).tolist()
    ([0.0], [0.0183])
    """
    from scipy.special import betaincinv

    _check_level(level)
    yes, trials = counts
    no, tail = trials - yes, (1 - level) / 2
    low = np.where(yes < 0.5, 0.0, betaincinv(yes + 0.5, no + 0.5, tail))
    few, exact_no = yes < FEW_CLICKS, np.maximum(no, 1e-300)
    high = np.where(few, betaincinv(yes + 1, exact_no, 1 - tail), betaincinv(yes + 0.5, no + 0.5, 1 - tail))
    return low, np.where(no < _LEAST_FAILURES, 1.0, high)


def support_of(counts: EffectiveCounts, *, by_trials: bool = False) -> np.ndarray:
    """Return what each estimate rests on: see `ParameterIntervals`.

    Parameters
    ----------
    counts
        Effective successes and trials.
    by_trials
        Whether the trials are the clicks, as for satisfaction and continuation, and not the successes.

    Examples
    --------
    >>> support_of(np.array([[9.0, 2.0, 0.1], [90.0, 90.0, 0.2]])).tolist()
    ['log', 'prior', 'not identified']
    """
    yes, trials = counts
    support = np.full(len(yes), "log", object)
    support[(trials if by_trials else yes) < FEW_CLICKS] = "prior"
    support[~(trials >= _MIN_TRIALS)] = "not identified"
    return support


def beta_interval(
    p: Float[np.ndarray, " n"], logit_error: Float[np.ndarray, " n"], level: float
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Compute confidence intervals of probabilities from the standard errors of their logits.

    The bounds are quantiles of the Beta distribution with mean p that carries the same information about the logit of
    p. Information 1 / error^2 is that of n = 1 / (error^2 p (1 - p)) trials, hence Beta(n p, n (1 - p)). Near p = 1/2
    this is the usual interval of the logit; near 0 and 1 the usual interval would be absurdly wide (746 skips and no
    click: up to .25).

    Parameters
    ----------
    p
        Estimated probabilities.
    logit_error
        Standard errors of their logits; 0 for a value that is fixed by convention, NaN where there is none.
    level
        Confidence level.

    Returns
    -------
    tuple of numpy.ndarray
        Lower and upper bounds.

    Raises
    ------
    DataError
        If the level is not between 0 and 1 ("bad-level").

    Examples
    --------
    >>> low, high = beta_interval(np.array([0.5]), np.array([0.2]), 0.95)
    >>> low.round(3), high.round(3)
    (array([0.403]), array([0.597]))
    """
    from scipy.special import betaincinv

    _check_level(level)
    inside = np.clip(p, 1e-12, 1 - 1e-12)
    with np.errstate(divide="ignore"):
        trials = np.clip(1 / (logit_error**2 * inside * (1 - inside)), 1e-6, 1e15)
    low, high = (betaincinv(trials * inside, trials * (1 - inside), q) for q in ((1 - level) / 2, (1 + level) / 2))
    fixed = logit_error == 0  # by convention, not by measurement
    return np.where(fixed, p, low), np.where(fixed, p, high)


def _check_level(level: float) -> None:
    """Raise a `DataError` unless the level is between 0 and 1."""
    if not 0 < level < 1:
        raise DataError(
            f"the level of an interval must be between 0 and 1: got {level}.", code="bad-level", value=level
        )
