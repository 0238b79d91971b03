"""Two further measures, from the CMIP authors' code, of whether a click model repeats its logging policy's mistakes.

The agreement ratio needs no estimator; the conditional independence test decides instead of measuring.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final, no_type_check

import numpy as np
from numba import njit

from clickshift.core.rng import as_generator
from clickshift.debiasedness.classifier_cmi import BoostedTrees, check_row_count, feature_matrix, sample_conditionally
from clickshift.debiasedness.scored_pairs import ScoredPairs
from clickshift.errors import DataError


def agreement_ratio(rows: ScoredPairs) -> float:
    """Compute the share of mistakes that the model and the logging policy have in common; 1 for equal mistakes.

    A mistake is a pair of documents of a query, with different labels, in the wrong order; all such pairs count alike.
    The ratio is the number of pairs that both order wrongly over the number that at least one orders wrongly. Equal
    scores count as ordered at random, independently for the two: such a pair is half a mistake. (In the authors' code
    the order of the rows decides.) Without any mistake the ratio is 0.

    Parameters
    ----------
    rows
        Judged pairs with estimates and logging scores.

    Returns
    -------
    float
        Ratio from 0 to 1.

    Raises
    ------
    DataError
        "no-comparable-documents" if no query has two documents with different labels.

    Examples
    --------
    >>> agreement_ratio(ScoredPairs.of([1, 1, 1], estimate=[3, 2, 1], logging=[2, 3, 1], label=[0, 1, 2]))
    0.6666666666666666
    """
    order = np.argsort(rows.query, kind="stable")
    begin = np.r_[0, np.flatnonzero(np.diff(rows.query[order])) + 1, len(rows)]
    shared, mistakes, pairs = _count_mistakes(begin, rows.estimate[order], rows.logging[order], rows.label[order])
    if pairs == 0:
        raise DataError(
            f"a query must have two documents with different labels: none of the {rows.n_queries:,} queries has. "
            "Pass the query of each row, and judge more than one document per query.",
            code="no-comparable-documents",
            queries=rows.n_queries,
        )
    return shared / mistakes if mistakes else 0.0


@final
@dataclass(frozen=True)
class IndependenceTest:
    """Result of a conditional independence test by a classifier of real against resampled rows.

    Parameters
    ----------
    loss
        Share of test rows that the classifier misclassified.
    threshold
        1/2 - 1 / sqrt(test rows): two standard errors below the loss of guessing.
    test_rows
        Number of test rows.
    """

    loss: float
    threshold: float
    test_rows: int

    @property
    def independent(self) -> bool:
        """Whether the classifier did no better than guessing."""
        return self.loss > self.threshold


def conditional_independence_test(rows: ScoredPairs, *, rng: int | np.random.Generator) -> IndependenceTest:
    """Test whether estimate and logging score are independent given the label (CCIT).

    A third of the rows stay as they are. In another third, logging scores are replaced by those of rows of the last
    third with the same label. Boosted trees are fitted on a random half of the first two thirds and tested on the other
    half.

    Parameters
    ----------
    rows
        Judged pairs with estimates and logging scores.
    rng
        Seed or random generator of the splits and of the resampling.

    Returns
    -------
    IndependenceTest
        Loss of the classifier, and whether it is that of guessing.

    Raises
    ------
    DataError
        "too-few-rows" for fewer than 100 rows; "unmatched-label" if a label occurs in only one of the parts.

    References
    ----------
    Sen, R., Suresh, A. T., Shanmugam, K., Dimakis, A. G., Shakkottai, S. (2017). Model-powered conditional independence
    test. NeurIPS.
    """
    check_row_count(rows)
    rng = as_generator(rng)
    real, replaced, others = (rows[third] for third in np.array_split(rng.permutation(len(rows)), 3))
    resampled = sample_conditionally(replaced, others, rng=rng)
    pooled = np.concatenate((feature_matrix(real), feature_matrix(resampled)))
    is_real = np.arange(len(pooled)) < len(real)
    train, test = np.array_split(rng.permutation(len(pooled)), 2)
    classified_real = BoostedTrees().prob(pooled[train], is_real[train], pooled[test]) > 0.5
    loss = float((classified_real != is_real[test]).mean())
    return IndependenceTest(loss, 0.5 - 1 / len(test) ** 0.5, len(test))


@njit(cache=True, nogil=True)
@no_type_check
def _count_mistakes(begin, estimate, logging, label):
    """Count, in quarters, the pairs that both order wrongly and that at least one does, and the number of pairs."""
    shared, mistakes, pairs = 0, 0, 0
    for query in range(len(begin) - 1):
        for i in range(begin[query], begin[query + 1]):
            for j in range(i + 1, begin[query + 1]):
                if label[i] == label[j]:
                    continue
                better, worse = (i, j) if label[i] > label[j] else (j, i)
                # in halves: 2 for a mistake, 1 for equal scores
                by_model = (estimate[better] < estimate[worse]) + (estimate[better] <= estimate[worse])
                by_logging = (logging[better] < logging[worse]) + (logging[better] <= logging[worse])
                shared += by_model * by_logging
                mistakes += 4 - (2 - by_model) * (2 - by_logging)
                pairs += 1
    return shared, mistakes, pairs
