"""Losses of rankers that learn from clicks, for numpy and JAX, computed from logits without loss of precision.

Every function accepts arrays of any library with the array API and returns one loss per entry, in nats.

The losses of corrected labels (`clickshift.ranking.labels`) have no lower bound where the positive weight is above the
total weight, as for a click at a rarely examined rank: 1 / examination is far above the one impression. The click loss
is bounded below.
"""

from __future__ import annotations

from typing import Any, NamedTuple

Array = Any  # numpy.ndarray or jax.Array


class LogExamination(NamedTuple):
    """Logarithms of examination and of its complement.

    Parameters
    ----------
    yes
        Log-probability that a document is examined.
    no
        Log-probability that it is not examined; -inf where examination is certain.
    """

    yes: Array
    no: Array


def log_examination(prob: Array) -> LogExamination:
    """Return log-examination of given probabilities, which must be above 0."""
    xp = prob.__array_namespace__()
    certain = prob >= 1
    return LogExamination(xp.log(prob), xp.where(certain, -xp.inf, xp.log1p(-xp.where(certain, 0.0, prob))))


def log_examination_from_logit(logit: Array) -> LogExamination:
    """Return log-examination of learned logits."""
    return LogExamination(-softplus(-logit), -softplus(logit))


def softplus(x: Array) -> Array:
    """Return log(1 + exp(x)): -softplus(-x) is the log of the sigmoid, -softplus(x) the log of its complement."""
    xp = x.__array_namespace__()
    return xp.logaddexp(x, xp.zeros_like(x))


def pointwise(score: Array, positive: Array, total: Array) -> Array:
    """Return the cross-entropy of corrected labels, -[W log y + (N - W) log(1 - y)] with y = sigmoid(score)."""
    return positive * softplus(-score) + (total - positive) * softplus(score)


def click(score: Array, examined: LogExamination, clicks: Array, impressions: Array) -> Array:
    """Return the cross-entropy of clicks of a neural PBM, -[c log(y o) + (n - c) log(1 - y o)], y = sigmoid(score).

    1 - y o is computed as (1 - o) + o (1 - y), a sum of two positive numbers, so that no precision is lost.
    """
    xp = score.__array_namespace__()
    log_no_click = xp.logaddexp(examined.no, examined.yes - softplus(score))
    return clicks * (softplus(-score) - examined.yes) - (impressions - clicks) * log_no_click


def listwise(score: Array, log_normaliser: Array, positive: Array) -> Array:
    """Return -W log softmax; the log-normaliser is the log-sum-exp of the scores of the same query."""
    return positive * (log_normaliser - score)
