"""Mean dependence: regression of a relevance estimate on the logging policy's ranking, within labels.

Conditional mutual information measures any dependence. An unbiased estimate is noisier where a document was rarely
examined, so its variance depends on the logging policy, but its mean does not: this separates a biased model from an
unbiased but noisy one.

Within each label the estimate is regressed on a quadratic polynomial of the rank of the logging score. The size of the
dependence is the share of the estimate's within-label variance that this explains. Its significance is tested by a Wald
statistic of deviations from the mean of each query and label, with a covariance clustered by query: neither unequal
variance, nor effects that the scores of a query have in common, raise false alarms or hide a dependence.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from clickshift.debiasedness.scored_pairs import ScoredPairs, mid_ranks
from clickshift.errors import DataError

_TERMS = 2
"""Number of terms of a quadratic polynomial without its constant."""
_ROUNDING = 1e-24
"""Share of the sum of squares that may be due to rounding means to 16 digits."""


class DependenceRegression(NamedTuple):
    """Result of the regressions within labels.

    Parameters
    ----------
    share
        Explained share of the estimate's within-label variance, adjusted for chance: about 0 without dependence, and
        then as often below as above.
    wald
        Wald statistic within queries: chi-squared with two degrees of freedom per label if the means do not differ.
    slope
        Change of the estimate from the logging policy's least to its most favoured document of equal label, by one
        linear regression for all labels.
    """

    share: float
    wald: float
    slope: float


def mean_dependence_regression(rows: ScoredPairs) -> DependenceRegression:
    """Regress estimates on the ranks of the logging scores within labels.

    Labels of fewer than four rows are left out: they cannot determine a quadratic polynomial.

    Parameters
    ----------
    rows
        Judged pairs with estimates and logging scores.

    Raises
    ------
    DataError
        "too-few-rows" if no label has four rows.
    """
    kept = [label for label in rows.by_label if len(label) > _TERMS + 1]
    if not kept:
        most = max(map(len, rows.by_label), default=0)
        raise DataError(
            f"a label must have at least {_TERMS + 2} rows: the most frequent of {len(rows.by_label)} labels has "
            f"{most}. Merge labels, or judge more documents.",
            code="too-few-rows",
            count=most,
        )
    row = np.concatenate(kept)
    label = np.repeat(np.arange(len(kept)), [len(rows_of_label) for rows_of_label in kept])
    residual = _centred(rows.estimate[row], label)
    terms = _polynomial_terms(mid_ranks(label, rows.logging[row]), label)
    size = np.stack([np.bincount(label, term**2) for term in terms])
    score = np.stack([np.bincount(label, residual * term) for term in terms])
    variance = float((residual**2).sum())
    explained = float(np.divide(score**2, size, out=np.zeros_like(score), where=size > 0).sum())
    n_terms = int((size > 0).sum())
    freedom = len(row) - len(kept) - n_terms
    if variance <= _ROUNDING * float((rows.estimate[row] ** 2).sum()) or n_terms == 0 or freedom <= 0:
        # within every label, all estimates or all logging scores are equal
        return DependenceRegression(0.0, 0.0, 0.0)
    share = 1 - (1 - explained / variance) * (len(row) - len(kept)) / freedom
    _, block = np.unique(rows.block[row], return_inverse=True)
    product = _centred(residual, block) * np.stack([_centred(term, block) for term in terms])
    return DependenceRegression(share, _wald(rows.query[row], label, product), score[0].sum() / size[0].sum())


def _wald(query: np.ndarray, label: np.ndarray, product: Float[np.ndarray, "term row"]) -> float:
    """Return the joint Wald statistic of the summed products, with their covariance over queries."""
    _, query = np.unique(query, return_inverse=True)
    n_queries, width = int(query.max()) + 1, _TERMS * (int(label.max()) + 1)
    cell = (query * width + label * _TERMS)[None, :] + np.arange(_TERMS)[:, None]
    by_query = np.bincount(cell.ravel(), product.ravel(), n_queries * width).reshape(n_queries, width)
    total = by_query.sum(axis=0)
    return float(total @ np.linalg.pinv(by_query.T @ by_query, hermitian=True) @ total)


def _polynomial_terms(rank: np.ndarray, label: np.ndarray) -> Float[np.ndarray, "term row"]:
    """Return a linear and a quadratic term that are centred and uncorrelated within each label."""
    linear = _centred(rank, label)
    quadratic = _centred(linear**2, label)
    size = np.bincount(label, linear**2)
    projection = np.divide(np.bincount(label, linear * quadratic), size, out=np.zeros_like(size), where=size > 0)
    quadratic = quadratic - projection[label] * linear
    quadratic[np.abs(quadratic) < 1e-12] = 0.0  # two distinct scores do not determine a quadratic term
    return np.stack([linear, quadratic])


def _centred(values: np.ndarray, label: np.ndarray) -> np.ndarray:
    """Subtract each label's mean."""
    centred: np.ndarray = values - (np.bincount(label, values) / np.bincount(label))[label]
    return centred
