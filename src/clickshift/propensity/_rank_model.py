"""Position bias from documents with the same features: a model of the ranks that they get, and one of attractiveness.

How often the rankers show documents with given features at each rank (rank shares) is learned like relevance, by
cross-fitted boosted trees. Trees trained on little data vary at random, and so does the assignment of queries to folds:
cross-fitting is repeated a few times.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from clickshift.data.corpus import Corpus
from clickshift.errors import DataError
from clickshift.propensity._bootstrap import CurveWarning, ExaminationCurve
from clickshift.propensity._nuisance_trees import FOLDS, CrossFittedTrees, DocumentScores, NuisanceTask
from clickshift.propensity._orthogonal import DocumentCounts, Solution, mean_curve, solve_equations

_REPEATS = 4
"""Number of random assignments of queries to folds."""
_MIN_SHARE = 1e-12
_MIN_UNEXPLAINED = 0.05
"""Smallest share of the variation of ranks that features must leave unexplained."""


class ExaminationEquations:
    """Estimating equations of examination for documents with given rank shares; each solution starts at the last one.

    Parameters
    ----------
    documents
        Counts by document and rank.
    share
        Share of each rank among the impressions of documents with the same features.
    """

    def __init__(self, documents: DocumentCounts, share: Float[np.ndarray, "row rank"]) -> None:
        self.documents, self._share = documents, share
        self._last: Solution | None = None

    @property
    def solution(self) -> Solution:
        """The last solution."""
        assert self._last is not None, "not solved yet"
        return self._last

    def solve(self, attractiveness: Float[np.ndarray, " row"]) -> Float[np.ndarray, " rank"]:
        """Estimate examination given the attractiveness of documents; 0 at a rank without clicks."""
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
    """Estimate examination together with relevance, from the features of documents.

    Parameters
    ----------
    documents
        Counts by document and rank.
    corpus
        Features of the documents.
    task
        Function that makes the task, which updates relevance and examination in turn.
    replicates
        Number of resampled logs.
    rng
        Generator of folds and bootstrap weights.

    Raises
    ------
    DataError
        If no document of the corpus was clicked ("no-clicks").
    """
    assert corpus.features is not None
    if not documents.clicked.any():
        raise DataError(
            "no document of the corpus was clicked. Check that the log and the corpus have the same ids.",
            code="no-clicks",
        )
    trees, solutions = CrossFittedTrees(corpus.features[documents.pairs]), []
    unexplained = 1.0
    for _ in range(_REPEATS):
        fold = rng.permutation(documents.n_queries)[documents.query] % FOLDS
        share = _rank_shares(trees, documents, fold)
        unexplained = min(unexplained, _unexplained_share(documents.shown, share))
        equations = ExaminationEquations(documents, share)
        trees.cross_fit(task(equations), fold)
        solutions.append(equations.solution)
        if unexplained < _MIN_UNEXPLAINED:
            break
    else:
        return mean_curve(solutions, documents, replicates, rng)
    warning = CurveWarning(
        "rank-determined-by-features",
        f"features almost determine the rank of a document (they leave {unexplained:.1%} of its variation "
        "unexplained), so that documents with the same features cannot be compared at different ranks: the curve rests "
        "on the extrapolation of trees, and has no interval. What would help: randomise the order of a few results now "
        "and then, or log several rankers.",
    )
    return replace(mean_curve(solutions, documents, 0, rng), warnings=(warning,))


def _unexplained_share(shown: Float[np.ndarray, "row rank"], share: Float[np.ndarray, "row rank"]) -> float:
    """Probability that a document is not at the rank that `share` predicts, relative to equal shares for all."""
    marginal = shown.sum(axis=0) / shown.sum()
    without_features = float(1 - (marginal**2).sum())
    if not without_features > 0:
        return 1.0
    return float((shown * (1 - share)).sum() / shown.sum()) / without_features


def _rank_shares(trees: CrossFittedTrees, documents: DocumentCounts, fold: np.ndarray) -> Float[np.ndarray, "row rank"]:
    """Estimate the share of every rank among the impressions of documents with the same features."""
    ranks = documents.shown.shape[1]
    if ranks == 1:
        return np.ones_like(documents.shown)
    task = _RankShareTask(documents.shown)
    return task.share(trees.cross_fit(task, fold, outputs=ranks))


class _RankShareTask:
    """Multinomial likelihood of the ranks at which documents were shown."""

    def __init__(self, shown: Float[np.ndarray, "row rank"]) -> None:
        self._shown, self._total = shown, shown.sum(axis=1, keepdims=True)
        self._start = np.log(np.maximum(shown.sum(axis=0) / shown.sum(), _MIN_SHARE))

    def update(self, scores: DocumentScores) -> None:
        """Do nothing: there are no parameters besides the scores."""

    def loss(self, scores: DocumentScores) -> float:
        """Negative log likelihood."""
        return -float((self._shown * np.log(np.maximum(self.share(scores), _MIN_SHARE))).sum())

    def derivatives(self, scores: DocumentScores) -> tuple[DocumentScores, DocumentScores]:
        """Gradient, and the diagonal of the Hessian, enlarged as usual for outputs that are normalised together."""
        share, ranks = self.share(scores), scores.shape[1]
        return self._total * share - self._shown, self._total * share * (1 - share) * ranks / (ranks - 1)

    def share(self, scores: DocumentScores) -> Float[np.ndarray, "row rank"]:
        """Predicted share of each rank: the softmax of the scores."""
        x = self._start + scores
        share: np.ndarray = np.exp(x - x.max(axis=1, keepdims=True))
        share /= share.sum(axis=1, keepdims=True)
        return share
