"""The dual learning algorithm (Ai et al. 2018): examination and relevance, each learned with the other as weights.

Over the lists of the log, with C_k the clicks at rank k, f the score of a document and g the logarithm of examination,

    ranking loss  = - sum of C_k exp(g_1 - g_k) ln softmax(f)_k     (clicks by inverse examination)
    position loss = - sum of C_k exp(f_1 - f_k) ln softmax(g)_k     (clicks by inverse relevance)

softmax over the documents (ranks) of the list. Each loss is linear in clicks, so that equal lists are counted together.
The position loss has its minimum where examination is proportional to clicks by inverse relevance. Relevance is a sum
of trees on features, where the paper has a network.

What is found is as good as the log: where every document keeps its rank, any examination curve goes with some
relevance, and only what features say of documents at other ranks decides.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from clickshift.corpus import Corpus
from clickshift.grouping import distinct_rows
from clickshift.sessions import Sessions
from clickshift.ultr.resampling import Curve, effective, query_weights
from clickshift.ultr.trees import FOLDS, Scores, Trees
from clickshift.vocabulary import UNSEEN

_MOST_STEPS, _STILL = 1000, 1e-9
_NEVER = 1e-12  # examination of a rank without clicks


@dataclass(frozen=True, eq=False)
class Lists:
    """Distinct lists with at least one click, and their clicks."""

    query: Int[np.ndarray, " list"]
    row: Int[np.ndarray, "list rank"]
    """The number of each document among those that occur; 0 where nothing is shown."""
    shown: Bool[np.ndarray, "list rank"]
    clicks: Float[np.ndarray, "list rank"]
    pairs: Int[np.ndarray, " row"]
    """The pair number of every document that occurs."""

    @classmethod
    def of(cls, log: Sessions) -> Lists:
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
        pairs, place = np.unique(pair[shown], return_inverse=True)
        row = np.zeros(pair.shape, np.int64)
        row[shown] = place
        return cls(np.unique(log.rankings.query[clicked][first], return_inverse=True)[1], row, shown, clicks, pairs)


def dual_learning(log: Sessions, corpus: Corpus, *, replicates: int, rng: np.random.Generator) -> Curve:
    """Examination from the lists of a log, in the vocabulary of a corpus with features."""
    lists = Lists.of(log)
    queries, query = np.unique(corpus.vocabulary.pair_query[lists.pairs], return_inverse=True)
    assert corpus.features is not None
    trees = Trees(corpus.features[lists.pairs], rng.permutation(len(queries))[query] % FOLDS)
    curves, rounds = [], None
    for weight in query_weights(len(queries), replicates, rng):
        task = _Dual(lists, weight[lists.query])
        rounds = trees.cross_fit(task, rounds)
        curves.append(task.examination)
    clicks = np.bincount(lists.query, lists.clicks.sum(axis=1), len(queries))
    return Curve.of(curves, effective(clicks))


class _Dual:
    """The two halves of the algorithm, on lists with weights."""

    def __init__(self, lists: Lists, weight: Float[np.ndarray, " list"]) -> None:
        self._lists, self._clicks = lists, lists.clicks * weight[:, None]
        self._length, self._first = distinct_rows(lists.shown.astype(np.int64))
        self.examination: np.ndarray = np.ones(lists.row.shape[1])

    def learn(self, scores: Scores) -> None:
        """The minimum of the position loss: clicks by inverse relevance, in one step where lists are equally long.

        Otherwise by the algorithm of Hunter (2004), for which a list is a contest of its ranks.
        """
        score = self._at_ranks(scores)
        clicks = np.where(self._lists.shown, self._clicks * np.exp(score[:, :1] - score), 0.0)
        wins = clicks.sum(axis=0)
        contests = np.bincount(self._length, clicks.sum(axis=1), len(self._first))
        shown, examination = self._lists.shown[self._first], self.examination
        for _ in range(_MOST_STEPS):
            expected = (contests / (shown @ examination)) @ shown
            new = np.where(wins > 0, wins / np.maximum(expected, 1e-300), _NEVER)
            new /= new.max()
            moved, examination = np.abs(np.log(new / examination)).max(), new
            if moved < _STILL:
                break
        self.examination = examination

    def loss(self, scores: Scores) -> float:
        """How surprising it is which of a list's documents are clicked: comparable whatever the weights are."""
        share = self._softmax(self._at_ranks(scores) + np.log(self.examination))
        return -float((self._clicks * np.log(np.maximum(share, 1e-300))).sum())

    def slopes(self, scores: Scores) -> tuple[Scores, Scores]:
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
