"""The dual learning algorithm: examination and relevance, each estimated with the inverse of the other as weights.

Over the lists of the log, with C_k the clicks at rank k, f the score of a document and g the logarithm of examination,

    ranking loss = - sum of C_k exp(g_1 - g_k) ln softmax(f)_k     (clicks weighted by inverse propensity)

with the softmax over the documents of the list. The loss is linear in clicks, so that equal lists are counted together.
Relevance is a sum of trees on features, where the paper has a network. The paper estimates g by the same loss with f
and g exchanged, clicks weighted by inverse relevance; this attributes to examination whatever the trees have not
learned of relevance. Here g solves orthogonal estimating equations instead (`_orthogonal`), with exp(f) as the estimate
of relevance.

The result is only as good as the log: where every document keeps its rank, the curve rests entirely on what the
features say of documents at other ranks.

References
----------
Ai, Q. et al. (2018). Unbiased learning to rank with unbiased propensity estimation. SIGIR.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from clickshift.core.unique_rows import distinct_rows
from clickshift.counts.cells import Cells
from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Sessions
from clickshift.data.vocabulary import UNSEEN
from clickshift.propensity._bootstrap import ExaminationCurve
from clickshift.propensity._nuisance_trees import DocumentScores
from clickshift.propensity._orthogonal import DocumentCounts
from clickshift.propensity._rank_model import ExaminationEquations, cross_fitted_curve

_MIN_EXAMINATION = 1e-12
"""Examination of a rank without clicks, relative to the largest."""


@dataclass(frozen=True, eq=False)
class _ClickedLists:
    """Distinct lists with at least one click, and their clicks.

    Parameters
    ----------
    row
        Index of each document in `pairs`; 0 where nothing is shown.
    shown
        Whether a document is shown at each rank.
    clicks
        Number of clicks at each rank.
    pairs
        Pairs that occur, in ascending order.
    """

    row: Int[np.ndarray, "list rank"]
    shown: Bool[np.ndarray, "list rank"]
    clicks: Float[np.ndarray, "list rank"]
    pairs: Int[np.ndarray, " row"]

    @classmethod
    def of(cls, log: Sessions, pairs: Int[np.ndarray, " row"]) -> _ClickedLists:
        """Group the lists of a log. A list ends before a document outside the vocabulary: below, nothing compares.

        A hole is no document of the list.
        """
        pair, shown = log.rankings.pair, log.rankings.shown
        in_vocabulary = shown & np.logical_and.accumulate(~shown | (pair != UNSEEN), axis=1)
        clicked = np.flatnonzero((log.click & in_vocabulary).any(axis=1))
        pair, in_vocabulary = np.where(in_vocabulary, pair, UNSEEN)[clicked], in_vocabulary[clicked]
        group, first = distinct_rows(np.concatenate([log.rankings.query[clicked, None], pair], axis=1, dtype=np.int64))
        clicks = np.zeros((len(first), pair.shape[1]))
        for rank in range(pair.shape[1]):
            clicks[:, rank] = np.bincount(
                group, log.count[clicked] * (log.click[clicked, rank] & in_vocabulary[:, rank]), len(first)
            )
        pair, shown = pair[first], in_vocabulary[first]
        row = np.zeros(pair.shape, np.int64)
        row[shown] = np.searchsorted(pairs, pair[shown])
        return cls(row, shown, clicks, pairs)


def dual_learning(log: Sessions, corpus: Corpus, *, replicates: int, rng: np.random.Generator) -> ExaminationCurve:
    """Estimate examination by the dual learning algorithm; the log is in the vocabulary of a corpus with features."""
    documents = DocumentCounts.of(Cells.of(log))
    lists = _ClickedLists.of(log, documents.pairs)

    def task(equations: ExaminationEquations) -> _DualLearningTask:
        return _DualLearningTask(lists, equations)

    return cross_fitted_curve(documents, corpus, task, replicates=replicates, rng=rng)


class _DualLearningTask:
    """The two halves of the algorithm: examination given relevance, and the ranking loss given examination."""

    def __init__(self, lists: _ClickedLists, equations: ExaminationEquations) -> None:
        self._lists, self._clicks, self._equations = lists, lists.clicks, equations
        self.examination: np.ndarray = np.ones(lists.row.shape[1])

    def update(self, scores: DocumentScores) -> None:
        """Estimate examination given the scores."""
        examination = self._equations.solve(np.exp(scores - scores.mean()))
        self.examination = np.maximum(examination / examination.max(), _MIN_EXAMINATION)

    def loss(self, scores: DocumentScores) -> float:
        """Negative log likelihood of which documents of a list are clicked: comparable whatever the weights are."""
        share = self._softmax(self._by_rank(scores) + np.log(self.examination))
        return -float((self._clicks * np.log(np.maximum(share, 1e-300))).sum())

    def derivatives(self, scores: DocumentScores) -> tuple[DocumentScores, DocumentScores]:
        """First and second derivative of the ranking loss."""
        clicks = self._clicks / self.examination
        share, total = self._softmax(self._by_rank(scores)), clicks.sum(axis=1, keepdims=True)
        return self._by_row(total * share - clicks), self._by_row(total * share * (1 - share))

    def _softmax(self, x: np.ndarray) -> np.ndarray:
        """Softmax over the documents of each list."""
        shown = self._lists.shown
        exp = np.where(shown, np.exp(x - np.where(shown, x, -np.inf).max(axis=1, keepdims=True)), 0.0)
        share: np.ndarray = exp / exp.sum(axis=1, keepdims=True)
        return share

    def _by_rank(self, values: np.ndarray) -> np.ndarray:
        """Arrange values by document as lists x ranks."""
        return np.where(self._lists.shown, values[self._lists.row], 0.0)

    def _by_row(self, values: np.ndarray) -> np.ndarray:
        """Sum values by list and rank over each document."""
        shown = self._lists.shown
        return np.bincount(self._lists.row[shown], values[shown], len(self._lists.pairs))
