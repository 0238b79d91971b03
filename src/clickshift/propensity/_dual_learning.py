"""The dual learning algorithm (Ai et al. 2018): examination and relevance, each learned with the other as weights.

Over the lists of the log, with C_k the clicks at rank k, f the score of a document and g the logarithm of examination,

    ranking loss = - sum of C_k exp(g_1 - g_k) ln softmax(f)_k     (clicks by inverse examination)

softmax over the documents of the list. The loss is linear in clicks, so that equal lists are counted together.
Relevance is a sum of trees on features, where the paper has a network. The paper finds g by the same loss with f and g
exchanged, clicks by inverse relevance, which takes for examination what trees have not learned of relevance: g is found
by comparing documents with the same features instead (`comparable`), with exp(f) for what is believed of them.

What is found is as good as the log: where every document keeps its rank, only what features say of documents at other
ranks decides.
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

_NEVER = 1e-12  # examination of a rank without clicks


@dataclass(frozen=True, eq=False)
class _ClickedLists:
    """Distinct lists with at least one click, and their clicks."""

    row: Int[np.ndarray, "list rank"]
    """The number of each document among `pairs`; 0 where nothing is shown."""
    shown: Bool[np.ndarray, "list rank"]
    clicks: Float[np.ndarray, "list rank"]
    pairs: Int[np.ndarray, " row"]

    @classmethod
    def of(cls, log: Sessions, pairs: Int[np.ndarray, " row"]) -> _ClickedLists:
        """Lists with a document that the vocabulary does not hold end before it: what is below is not comparable."""
        pair = log.rankings.pair
        known = np.logical_and.accumulate(log.rankings.shown & (pair != UNSEEN), axis=1)
        clicked = np.flatnonzero((log.click & known).any(axis=1))
        pair, known = np.where(known, pair, UNSEEN)[clicked], known[clicked]
        group, first = distinct_rows(np.concatenate([log.rankings.query[clicked, None], pair], axis=1, dtype=np.int64))
        clicks = np.zeros((len(first), pair.shape[1]))
        for rank in range(pair.shape[1]):
            clicks[:, rank] = np.bincount(
                group, log.count[clicked] * (log.click[clicked, rank] & known[:, rank]), len(first)
            )
        pair, shown = pair[first], known[first]
        row = np.zeros(pair.shape, np.int64)
        row[shown] = np.searchsorted(pairs, pair[shown])
        return cls(row, shown, clicks, pairs)


def dual_learning(log: Sessions, corpus: Corpus, *, replicates: int, rng: np.random.Generator) -> ExaminationCurve:
    """Examination from the lists of a log, in the vocabulary of a corpus with features."""
    documents = DocumentCounts.of(Cells.of(log))
    lists = _ClickedLists.of(log, documents.pairs)
    return cross_fitted_curve(
        documents, corpus, lambda examined: _DualLearningTask(lists, examined), replicates=replicates, rng=rng
    )


class _DualLearningTask:
    """The two halves of the algorithm."""

    def __init__(self, lists: _ClickedLists, examined: ExaminationEquations) -> None:
        self._lists, self._clicks, self._examined = lists, lists.clicks, examined
        self.examination: np.ndarray = np.ones(lists.row.shape[1])

    def learn(self, scores: DocumentScores) -> None:
        found = self._examined.learn(np.exp(scores - scores.mean()))
        self.examination = np.maximum(found / found.max(), _NEVER)

    def loss(self, scores: DocumentScores) -> float:
        """How surprising it is which of a list's documents are clicked: comparable whatever the weights are."""
        share = self._softmax(self._at_ranks(scores) + np.log(self.examination))
        return -float((self._clicks * np.log(np.maximum(share, 1e-300))).sum())

    def slopes(self, scores: DocumentScores) -> tuple[DocumentScores, DocumentScores]:
        """Of the ranking loss."""
        clicks = self._clicks / self.examination
        share, total = self._softmax(self._at_ranks(scores)), clicks.sum(axis=1, keepdims=True)
        return self._by_row(total * share - clicks), self._by_row(total * share * (1 - share))

    def _softmax(self, x: np.ndarray) -> np.ndarray:
        shown = self._lists.shown
        worth = np.where(shown, np.exp(x - np.where(shown, x, -np.inf).max(axis=1, keepdims=True)), 0.0)
        share: np.ndarray = worth / worth.sum(axis=1, keepdims=True)
        return share

    def _at_ranks(self, by_row: np.ndarray) -> np.ndarray:
        return np.where(self._lists.shown, by_row[self._lists.row], 0.0)

    def _by_row(self, at_ranks: np.ndarray) -> np.ndarray:
        shown = self._lists.shown
        return np.bincount(self._lists.row[shown], at_ranks[shown], len(self._lists.pairs))
