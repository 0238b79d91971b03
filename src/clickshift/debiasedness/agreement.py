"""Two more answers of the CMIP authors' code to whether a model repeats its logging policy.

The ratio of shared mistakes needs no estimator, and the test says yes or no instead of how much.
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
    """Of the pairs that the model or the logging policy orders wrongly, the share that both do: 1 for equal mistakes.

    A pair is two documents of a query with different labels; all pairs of all queries count alike. Equal scores count
    as put in random order, for the two independently: such a pair is half a mistake. (In the authors' code it is a
    mistake or not by the order of the rows.) Always a number from 0 to 1: where nobody makes a mistake, none is shared,
    and it is 0; without any pair it is an error.

    >>> agreement_ratio(ScoredPairs.of([1, 1, 1], estimate=[3, 2, 1], logging=[2, 3, 1], label=[0, 1, 2]))
    0.6666666666666666
    """
    order = np.argsort(rows.query, kind="stable")
    begin = np.r_[0, np.flatnonzero(np.diff(rows.query[order])) + 1, len(rows)]
    shared, mistakes, pairs = _count_mistakes(begin, rows.estimate[order], rows.logging[order], rows.label[order])
    if pairs == 0:
        raise DataError(
            f"a query must have two documents with different labels: none of the {rows.n_queries:,} queries has. "
            "Give the query of each row, and judge more than one document per query."
        )
    return shared / mistakes if mistakes else 0.0


@final
@dataclass(frozen=True)
class IndependenceTest:
    """What a classifier of real against mimicked rows made of the test rows."""

    loss: float
    """The share that it took for the wrong kind."""
    threshold: float
    """1/2 - 1 / sqrt(test rows): two standard errors below what guessing gives."""
    test_rows: int

    @property
    def independent(self) -> bool:
        """Whether the classifier did no better than guess."""
        return self.loss > self.threshold


def conditional_independence_test(rows: ScoredPairs, *, rng: int | np.random.Generator) -> IndependenceTest:
    """Are estimate and logging score independent given the label? (CCIT, Sen et al. 2017.)

    A third of the rows are real. In another third, logging scores come from rows of the last third with the same label.
    Trees are fitted on a random half of the first two and judged on the other half.
    """
    check_row_count(rows)
    rng = as_generator(rng)
    real, rest, others = (rows[third] for third in np.array_split(rng.permutation(len(rows)), 3))
    pooled = np.concatenate((feature_matrix(real), feature_matrix(sample_conditionally(rest, others, rng=rng))))
    is_real = np.arange(len(pooled)) < len(real)
    train, test = np.array_split(rng.permutation(len(pooled)), 2)
    taken_for_real = BoostedTrees().prob(pooled[train], is_real[train], pooled[test]) > 0.5
    loss = float((taken_for_real != is_real[test]).mean())
    return IndependenceTest(loss, 0.5 - 1 / len(test) ** 0.5, len(test))


@njit(cache=True, nogil=True)
@no_type_check
def _count_mistakes(begin, estimate, logging, label):
    """Quarters of pairs that both order wrongly and that at least one does, and the number of pairs."""
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
