"""Regression-EM: attractiveness is a function of features instead of a parameter per document.

Documents that were shown at only one rank share what their features say with documents shown elsewhere. A click at rank
k has the probability theta_k gamma, gamma = sigmoid(f(features)). For a result that was not clicked

    P(examined | skip) = theta_k (1 - gamma) / (1 - theta_k gamma),
    P(attractive | skip) = (1 - theta_k) gamma / (1 - theta_k gamma)

The M-step of f is one boosted tree towards the expectation of the E-step, where the paper samples labels and fits f
again. The M-step of theta would attribute to examination whatever the trees have not learned of relevance: theta solves
orthogonal estimating equations instead (`_orthogonal`), which compare documents with the same features.

References
----------
Wang, X. et al. (2018). Position bias estimation for unbiased learning to rank in personal search. WSDM.
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

_MIN_PROB, _MAX_PROB = 1e-6, 1 - 1e-6


def regression_em(cells: Cells, corpus: Corpus, *, replicates: int, rng: np.random.Generator) -> ExaminationCurve:
    """Estimate examination by regression-EM; the counts are in the vocabulary of a corpus with features."""
    return cross_fitted_curve(DocumentCounts.of(cells), corpus, _RegressionEMTask, replicates=replicates, rng=rng)


class _RegressionEMTask:
    """Likelihood of the counts by document and rank, with theta from the last update."""

    def __init__(self, equations: ExaminationEquations) -> None:
        self._equations = equations
        self._row, self._rank = np.nonzero(equations.documents.shown)
        self._rows = len(equations.documents.pairs)
        shown, clicked = equations.documents.shown, equations.documents.clicked
        self._shown, self._clicked = (counts[self._row, self._rank] for counts in (shown, clicked))
        rate = clicked.sum(axis=0) / np.maximum(shown.sum(axis=0), _MIN_PROB)
        mean = np.clip(1.2 * rate.max(), 0.01, 0.8)
        self._start = np.log(mean / (1 - mean))
        self._theta: np.ndarray = np.clip(rate / mean, _MIN_PROB, _MAX_PROB)

    def update(self, scores: DocumentScores) -> None:
        """Estimate theta given the scores."""
        self._theta = np.clip(self._equations.solve(self._gamma(scores)), _MIN_PROB, _MAX_PROB)

    def loss(self, scores: DocumentScores) -> float:
        """Negative log likelihood."""
        click = self._theta[self._rank] * self._gamma(scores)[self._row]
        return -float((self._clicked * np.log(click) + (self._shown - self._clicked) * np.log1p(-click)).sum())

    def derivatives(self, scores: DocumentScores) -> tuple[DocumentScores, DocumentScores]:
        """Gradient of the negative log likelihood by f, predicted minus expected attraction, and its information."""
        gamma, theta = self._gamma(scores)[self._row], self._theta[self._rank]
        skips, no_click = self._shown - self._clicked, 1 - theta * gamma
        attractive = self._clicked + skips * (1 - theta) * gamma / no_click
        gradient = self._shown * gamma - attractive
        information = self._shown * theta * gamma * (1 - gamma) ** 2 / no_click
        return np.bincount(self._row, gradient, self._rows), np.bincount(self._row, information, self._rows)

    def _gamma(self, scores: DocumentScores) -> Float[np.ndarray, " row"]:
        """Attractiveness of each document."""
        from scipy.special import expit

        gamma: np.ndarray = np.clip(expit(self._start + scores), _MIN_PROB, _MAX_PROB)
        return gamma
