"""Examination where documents with the same features are compared: which ranks they get, by trees, and what attracts.

How often a ranker puts documents with such features at each rank is learned like relevance, by boosted trees that are
cross-fitted. Trees of little data follow chance, and so does the way in which queries are dealt into folds: it is done
a few times.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from clickshift.data.corpus import Corpus
from clickshift.errors import DataError
from clickshift.propensity._bootstrap import ExaminationCurve
from clickshift.propensity._nuisance_trees import FOLDS, CrossFittedTrees, DocumentScores, NuisanceTask
from clickshift.propensity._orthogonal import DocumentCounts, Solution, mean_curve, solve_equations

_REPEATS = 4
"""How often queries are dealt into folds."""
_LEAST = 1e-12
_DECIDED = 0.05
"""What features must leave open of the rank, at least, as a share of what is open without them."""


class ExaminationEquations:
    """Examination of documents whose ranks have these shares, given what attracts; it starts where it was last."""

    def __init__(self, documents: DocumentCounts, share: Float[np.ndarray, "row rank"]) -> None:
        self.documents, self._share = documents, share
        self._last: Solution | None = None

    @property
    def solution(self) -> Solution:
        assert self._last is not None, "nothing was learned yet"
        return self._last

    def learn(self, attractiveness: Float[np.ndarray, " row"]) -> Float[np.ndarray, " rank"]:
        """0 at a rank without clicks."""
        start = None if self._last is None else self._last.log_examination
        self._last = solve_equations(self.documents, self._share, attractiveness, start=start)
        examination: np.ndarray = np.exp(self._last.log_examination)
        return examination


def cross_fitted_curve(
    documents: DocumentCounts,
    corpus: Corpus,
    task: Callable[[ExaminationEquations], NuisanceTask],
    *,
    replicates: int,
    rng: np.random.Generator,
) -> ExaminationCurve:
    """The curve of a task that learns examination together with relevance, by documents of a corpus with features."""
    assert corpus.features is not None
    if not documents.clicked.any():
        raise DataError("no document of the corpus was clicked. Do log and corpus have the same ids?")
    trees, found = CrossFittedTrees(corpus.features[documents.pairs]), []
    left = 1.0
    for _ in range(_REPEATS):
        fold = rng.permutation(documents.n_queries)[documents.query] % FOLDS
        share = _rank_shares(trees, documents, fold)
        left = min(left, _unexplained_share(documents.shown, share))
        examined = ExaminationEquations(documents, share)
        trees.cross_fit(task(examined), fold)
        found.append(examined.solution)
        if left < _DECIDED:
            break
    else:
        return mean_curve(found, documents, replicates, rng)
    doubt = (
        f"features all but say at which rank a document is shown ({left:.1%} is left open), so that no documents with "
        "the same features can be compared: the curve rests on how trees go on from one rank to another, and has no "
        "interval. What would help: randomise the order of a few results now and then, or log several rankers."
    )
    return replace(mean_curve(found, documents, 0, rng), doubts=(doubt,))


def _unexplained_share(shown: Float[np.ndarray, "row rank"], share: Float[np.ndarray, "row rank"]) -> float:
    """How often a document is not where `share` says, relative to what is so if all documents had the same shares."""
    at_all = shown.sum(axis=0) / shown.sum()
    without = float(1 - (at_all**2).sum())
    return float((shown * (1 - share)).sum() / shown.sum()) / without if without > 0 else 1.0


def _rank_shares(trees: CrossFittedTrees, documents: DocumentCounts, fold: np.ndarray) -> Float[np.ndarray, "row rank"]:
    """The share of every rank among the impressions of documents with the same features."""
    ranks = documents.shown.shape[1]
    if ranks == 1:
        return np.ones_like(documents.shown)
    task = _RankShareTask(documents.shown)
    return task.share(trees.cross_fit(task, fold, outputs=ranks))


class _RankShareTask:
    """The multinomial likelihood of the ranks at which documents were shown."""

    def __init__(self, shown: Float[np.ndarray, "row rank"]) -> None:
        self._shown, self._total = shown, shown.sum(axis=1, keepdims=True)
        self._start = np.log(np.maximum(shown.sum(axis=0) / shown.sum(), _LEAST))

    def learn(self, scores: DocumentScores) -> None:
        """There is nothing besides the scores."""

    def loss(self, scores: DocumentScores) -> float:
        return -float((self._shown * np.log(np.maximum(self.share(scores), _LEAST))).sum())

    def slopes(self, scores: DocumentScores) -> tuple[DocumentScores, DocumentScores]:
        """The diagonal of the second derivatives, enlarged as usual where outputs are scaled against each other."""
        share, ranks = self.share(scores), scores.shape[1]
        return self._total * share - self._shown, self._total * share * (1 - share) * ranks / (ranks - 1)

    def share(self, scores: DocumentScores) -> Float[np.ndarray, "row rank"]:
        x = self._start + scores
        share: np.ndarray = np.exp(x - x.max(axis=1, keepdims=True))
        share /= share.sum(axis=1, keepdims=True)
        return share
