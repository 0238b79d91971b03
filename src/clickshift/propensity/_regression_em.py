"""Regression-EM (Wang et al. 2018): attractiveness is a function of features instead of a number per document.

Documents that were seen at one rank only share what their features say with documents seen elsewhere. A click at rank k
has the probability theta_k gamma, gamma = sigmoid(f(features)). For a result that was not clicked

    P(examined | skip) = theta_k (1 - gamma) / (1 - theta_k gamma),
    P(attractive | skip) = (1 - theta_k) gamma / (1 - theta_k gamma)

The M-step of f is one boosted tree towards what the E-step expects, where the paper draws labels and fits f anew. The
M-step of theta would take for examination what trees have not learned of relevance: theta is found by comparing
documents with the same features instead (`comparable`).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from clickshift.counts.cells import Cells
from clickshift.data.corpus import Corpus
from clickshift.propensity._bootstrap import ExaminationCurve
from clickshift.propensity._nuisance_trees import DocumentScores
from clickshift.propensity._orthogonal import DocumentCounts
from clickshift.propensity._rank_model import ExaminationEquations, cross_fitted_curve

_LEAST, _MOST = 1e-6, 1 - 1e-6


def regression_em(cells: Cells, corpus: Corpus, *, replicates: int, rng: np.random.Generator) -> ExaminationCurve:
    """Examination from counts by pair and rank, in the vocabulary of a corpus with features."""
    return cross_fitted_curve(DocumentCounts.of(cells), corpus, _RegressionEMTask, replicates=replicates, rng=rng)


class _RegressionEMTask:
    """Of the counts; theta is what was learned last."""

    def __init__(self, examined: ExaminationEquations) -> None:
        self._examined = examined
        self._row, self._rank = np.nonzero(examined.documents.shown)
        self._rows = len(examined.documents.pairs)
        shown, clicked = examined.documents.shown, examined.documents.clicked
        self._shown, self._clicked = (counts[self._row, self._rank] for counts in (shown, clicked))
        rate = clicked.sum(axis=0) / np.maximum(shown.sum(axis=0), _LEAST)
        mean = np.clip(1.2 * rate.max(), 0.01, 0.8)
        self._start = np.log(mean / (1 - mean))
        self._theta: np.ndarray = np.clip(rate / mean, _LEAST, _MOST)

    def learn(self, scores: DocumentScores) -> None:
        self._theta = np.clip(self._examined.learn(self._gamma(scores)), _LEAST, _MOST)

    def loss(self, scores: DocumentScores) -> float:
        click = self._theta[self._rank] * self._gamma(scores)[self._row]
        return -float((self._clicked * np.log(click) + (self._shown - self._clicked) * np.log1p(-click)).sum())

    def slopes(self, scores: DocumentScores) -> tuple[DocumentScores, DocumentScores]:
        """Of minus the likelihood by f: what is attractive by f less what the E-step expects, and its information."""
        gamma, theta = self._gamma(scores)[self._row], self._theta[self._rank]
        skips, no = self._shown - self._clicked, 1 - theta * gamma
        attractive = self._clicked + skips * (1 - theta) * gamma / no
        slope = self._shown * gamma - attractive
        information = self._shown * theta * gamma * (1 - gamma) ** 2 / no
        return np.bincount(self._row, slope, self._rows), np.bincount(self._row, information, self._rows)

    def _gamma(self, scores: DocumentScores) -> Float[np.ndarray, " row"]:
        from scipy.special import expit

        gamma: np.ndarray = np.clip(expit(self._start + scores), _LEAST, _MOST)
        return gamma
