"""The losses of rankers that learn from clicks, once, for numpy and for JAX: from logits, with no digits lost.

Every function takes arrays of any library with the array API. It gives one loss per entry, in nats.

The losses of corrected labels (`labels`) have no lower bound where the positive weight is above the total weight, as
for a click at a rank that few users look at: 1 / examination is far above the one impression. The click loss has one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

Array = Any  # numpy.ndarray or jax.Array


class LogExamination(NamedTuple):
    """Logarithms of examination and of its complement, which is -inf where everyone looks."""

    yes: Array
    no: Array


def log_examination(prob: Array) -> LogExamination:
    """From probabilities that are above 0, as given."""
    xp = prob.__array_namespace__()
    certain = prob >= 1
    return LogExamination(xp.log(prob), xp.where(certain, -xp.inf, xp.log1p(-xp.where(certain, 0.0, prob))))


def log_examination_of(logit: Array) -> LogExamination:
    """From logits, as learned."""
    return LogExamination(-softplus(-logit), -softplus(logit))


def softplus(x: Array) -> Array:
    """log(1 + exp(x)); -softplus(-x) is the log of the sigmoid, -softplus(x) that of its complement."""
    xp = x.__array_namespace__()
    return xp.logaddexp(x, xp.zeros_like(x))


def pointwise(score: Array, positive: Array, total: Array) -> Array:
    """-[W log y + (N - W) log(1 - y)] with y = sigmoid(score): cross-entropy of corrected labels."""
    return positive * softplus(-score) + (total - positive) * softplus(score)


def click(score: Array, examined: LogExamination, clicks: Array, impressions: Array) -> Array:
    """-[c log(y o) + (n - c) log(1 - y o)] with y = sigmoid(score): cross-entropy of clicks, a neural PBM.

    1 - y o = (1 - o) + o (1 - y), a sum of two positive numbers: no digits are lost in it.
    """
    xp = score.__array_namespace__()
    skipped = xp.logaddexp(examined.no, examined.yes - softplus(score))
    return clicks * (softplus(-score) - examined.yes) - (impressions - clicks) * skipped


def listwise(score: Array, log_normaliser: Array, positive: Array) -> Array:
    """-W log softmax, with the log of the sum of exp(score) over the documents of the same query."""
    return positive * (log_normaliser - score)
