"""Regression-EM (Wang et al. 2018): attractiveness is a function of features instead of a number per document.

Documents that were seen at one rank only share what their features say with documents seen elsewhere. A click at rank k
has the probability theta_k gamma, gamma = sigmoid(f(features)). For a result that was not clicked

    P(examined | skip) = theta_k (1 - gamma) / (1 - theta_k gamma),
    P(attractive | skip) = (1 - theta_k) gamma / (1 - theta_k gamma)

The M-step of f is one boosted tree towards what the E-step expects, where the paper draws labels and fits f anew; that
of theta_k is the exact maximum given gamma. Both climb the same likelihood as the paper's steps.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from clickshift.corpus import Corpus
from clickshift.statistics import Cells
from clickshift.ultr.resampling import Curve, effective, query_weights
from clickshift.ultr.trees import FOLDS, Scores, Trees

_NEWTON_STEPS = 6
_LEAST, _MOST = 1e-6, 1 - 1e-6


def regression_em(cells: Cells, corpus: Corpus, *, replicates: int, rng: np.random.Generator) -> Curve:
    """Examination from counts by pair and rank, in the vocabulary of a corpus with features."""
    cells = cells if cells.by == "rank" else cells.rolled_up("rank")
    pairs, row = np.unique(cells.pair, return_inverse=True)
    queries, query = np.unique(corpus.vocabulary.pair_query[pairs], return_inverse=True)
    assert corpus.features is not None
    trees = Trees(corpus.features[pairs], rng.permutation(len(queries))[query] % FOLDS)
    curves, rounds = [], None
    for weight in query_weights(len(queries), replicates, rng):
        task = _Likelihood(cells, row, weight[query[row]])
        rounds = trees.cross_fit(task, rounds)
        curves.append(task.examination)
    shown = np.bincount(query[row], cells.impressions)
    return Curve.of(curves, effective(shown))


class _Likelihood:
    """Of the counts with a weight per cell; theta is what was learned last."""

    def __init__(self, cells: Cells, row: Int[np.ndarray, " cell"], weight: Float[np.ndarray, " cell"]) -> None:
        self._row, self._rank, self._n_ranks = row, cells.situation, cells.n_ranks
        self._shown, self._clicked = cells.impressions * weight, cells.clicks * weight
        shown, clicked = (np.bincount(self._rank, counts, self._n_ranks) for counts in (self._shown, self._clicked))
        rate = clicked / np.maximum(shown, _LEAST)
        mean = np.clip(1.2 * rate.max(), 0.01, 0.8)
        self._known = clicked > 0
        self._start = np.log(mean / (1 - mean))
        self._theta: np.ndarray = np.clip(rate / mean, _LEAST, _MOST)
        self._rows = int(row.max()) + 1

    @property
    def examination(self) -> Float[np.ndarray, " rank"]:
        return np.where(self._known, self._theta, 0.0)

    def learn(self, scores: Scores) -> None:
        """Newton's method for ln theta_k, in which the likelihood of each rank is concave."""
        gamma = self._gamma(scores)
        log_theta, skips = np.log(self._theta), self._shown - self._clicked
        clicks = np.bincount(self._rank, self._clicked, self._n_ranks)
        for _ in range(_NEWTON_STEPS):
            click = np.exp(log_theta)[self._rank] * gamma
            odds = click / (1 - click)
            slope = clicks - np.bincount(self._rank, skips * odds, self._n_ranks)
            curve = np.bincount(self._rank, skips * odds / (1 - click), self._n_ranks)
            log_theta += np.clip(slope / np.maximum(curve, 1e-12), -1.0, 1.0)
            log_theta = np.clip(log_theta, np.log(_LEAST), np.log(_MOST))
        self._theta = np.exp(log_theta)

    def loss(self, scores: Scores) -> float:
        click = self._theta[self._rank] * self._gamma(scores)
        return -float((self._clicked * np.log(click) + (self._shown - self._clicked) * np.log1p(-click)).sum())

    def slopes(self, scores: Scores) -> tuple[Scores, Scores]:
        """Of minus the likelihood by f: what is attractive by f less what the E-step expects, and its information."""
        gamma, theta = self._gamma(scores), self._theta[self._rank]
        skips, no = self._shown - self._clicked, 1 - theta * gamma
        attractive = self._clicked + skips * (1 - theta) * gamma / no
        slope = self._shown * gamma - attractive
        information = self._shown * theta * gamma * (1 - gamma) ** 2 / no
        return np.bincount(self._row, slope, self._rows), np.bincount(self._row, information, self._rows)

    def _gamma(self, scores: Scores) -> np.ndarray:
        from scipy.special import expit

        gamma: np.ndarray = np.clip(expit(self._start + scores), _LEAST, _MOST)[self._row]
        return gamma
