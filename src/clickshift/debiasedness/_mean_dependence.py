"""Mean dependence: does the mean of an estimate depend on the logging policy once the label is known?

Conditional mutual information sees any dependence. An unbiased estimate is noisier where a document was seldom
examined, so it depends on the logging policy too, through its spread. Its mean does not: this is what sets a biased
model apart from an unbiased but noisy one.

Within each label the estimate is regressed on a parabola in the rank of the logging score. The share of the estimate's
variance within labels that this explains is the size of the dependence. Whether it is there at all is told by a Wald
statistic whose covariance sums over queries, so that neither unequal spread nor dependent rows raise false alarms.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from clickshift.debiasedness.scored_pairs import ScoredPairs, mid_ranks
from clickshift.errors import DataError

_TERMS = 2
"""Of a parabola, without its constant."""
_ROUNDING = 1e-24
"""The share of the sum of squares that computing means to 16 digits may leave."""


class DependenceRegression(NamedTuple):
    """What the regressions within labels say together."""

    share: float
    """Of the estimate's variance within labels that is explained, less what chance explains: about 0 without any
    dependence, and then as often below as above."""
    wald: float
    """Large where the means differ: chi-squared, with two degrees of freedom per label, if they do not."""
    slope: float
    """From the logging policy's least to its most favoured document of equal label, by one straight line for all
    labels, the estimate changes by so much."""


def mean_dependence_regression(rows: ScoredPairs) -> DependenceRegression:
    """Labels of fewer than four rows say nothing about a parabola and are left out."""
    kept = [label for label in rows.by_label if len(label) > _TERMS + 1]
    if not kept:
        raise DataError(
            f"a label must have at least {_TERMS + 2} rows: the most frequent of {len(rows.by_label)} labels has "
            f"{max(map(len, rows.by_label), default=0)}. Merge labels, or judge more documents."
        )
    row = np.concatenate(kept)
    label = np.repeat(np.arange(len(kept)), [len(rows_of_label) for rows_of_label in kept])
    residual = _centred(rows.estimate[row], label)
    terms = _parabola(mid_ranks(label, rows.logging[row]), label)
    size = np.stack([np.bincount(label, term**2) for term in terms])
    score = np.stack([np.bincount(label, residual * term) for term in terms])
    variance = float((residual**2).sum())
    explained = float(np.divide(score**2, size, out=np.zeros_like(score), where=size > 0).sum())
    used = int((size > 0).sum())
    left = len(row) - len(kept) - used
    if variance <= _ROUNDING * float((rows.estimate[row] ** 2).sum()) or used == 0 or left <= 0:
        # all estimates or all logging scores of a label are equal
        return DependenceRegression(0.0, 0.0, 0.0)
    share = 1 - (1 - explained / variance) * (len(row) - len(kept)) / left
    return DependenceRegression(share, _wald(rows.query[row], label, residual * terms), score[0].sum() / size[0].sum())


def _wald(query: np.ndarray, label: np.ndarray, product: Float[np.ndarray, "term row"]) -> float:
    """The sum of the products against its spread over queries, term by term and label by label together."""
    _, query = np.unique(query, return_inverse=True)
    n_queries, width = int(query.max()) + 1, _TERMS * (int(label.max()) + 1)
    cell = (query * width + label * _TERMS)[None, :] + np.arange(_TERMS)[:, None]
    by_query = np.bincount(cell.ravel(), product.ravel(), n_queries * width).reshape(n_queries, width)
    total = by_query.sum(axis=0)
    return float(total @ np.linalg.pinv(by_query.T @ by_query, hermitian=True) @ total)


def _parabola(rank: np.ndarray, label: np.ndarray) -> Float[np.ndarray, "term row"]:
    """A line and a parabola that are uncorrelated within each label."""
    line = _centred(rank, label)
    square = _centred(line**2, label)
    size = np.bincount(label, line**2)
    along = np.divide(np.bincount(label, line * square), size, out=np.zeros_like(size), where=size > 0)
    square = square - along[label] * line
    square[np.abs(square) < 1e-12] = 0.0  # two distinct scores leave no parabola
    return np.stack([line, square])


def _centred(values: np.ndarray, label: np.ndarray) -> np.ndarray:
    centred: np.ndarray = values - (np.bincount(label, values) / np.bincount(label))[label]
    return centred
