"""Cross-fitted boosted trees for the nuisance functions of position-bias estimation: relevance and rank shares.

Trees that were trained on a document's clicks fit their noise, and examination that is estimated given their scores
would attribute that noise to relevance. Queries are therefore split into folds: every fold is scored by trees of the
other folds, and examination is estimated from those held-out scores only. The held-out scores also decide when to stop.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from clickshift.core.boosting import lightgbm_settings

DocumentScores = Float[np.ndarray, "row *output"]
"""One score, or several, for each document."""

FOLDS = 4
"""Number of folds of cross-fitting."""
_ROUNDS, _PATIENCE = 150, 20
_MIN_PARALLEL_ROWS = 20_000
"""With fewer rows, one thread sorts them faster than several threads start."""
_SETTINGS: dict[str, Any] = {
    "leaves": 4,  # with more, errors of relevance and of rank shares coincide too often (docs/propensities.md)
    "rate": 0.2,
    "min_data_in_leaf": 10,  # a document stands for many impressions
    "lambda_l2": 1.0,
}


@runtime_checkable
class NuisanceTask(Protocol):
    """A task whose other parameters are estimated together with the scores of documents."""

    def update(self, scores: DocumentScores) -> None:
        """Estimate the other parameters given held-out scores, of trees that did not see the documents' clicks."""

    def loss(self, scores: DocumentScores) -> float:
        """Loss of these scores, with the parameters of the last update."""

    def derivatives(self, scores: DocumentScores) -> tuple[DocumentScores, DocumentScores]:
        """First and second derivative, by each document's score, of the loss that the trees minimise."""


class CrossFittedTrees:
    """Features of documents, binned once, on which trees of any number of tasks can be trained.

    Parameters
    ----------
    features
        Features of each document.
    """

    def __init__(self, features: Float[np.ndarray, "row feature"]) -> None:
        import lightgbm

        params: dict[str, Any] = {"feature_pre_filter": False, "verbosity": -1}  # keep features of few documents, too
        self._data, self._rows = lightgbm.Dataset(features, np.zeros(len(features)), params=params), len(features)
        self._features_vary = bool((features != features[:1]).any())
        threads = None if len(features) >= _MIN_PARALLEL_ROWS else 1
        self._settings = lightgbm_settings("none", threads=threads, **_SETTINGS)

    def cross_fit(
        self, task: NuisanceTask, fold: Int[np.ndarray, " row"], *, outputs: int | None = None
    ) -> DocumentScores:
        """Train trees on a task with cross-fitting, until the held-out loss stops decreasing.

        A round adds one tree to the trees of each fold and then updates the task.

        Parameters
        ----------
        task
            The task.
        fold
            Fold of each document, from 0 to `FOLDS` - 1.
        outputs
            Number of scores per document; None for one score without a dimension of its own.

        Returns
        -------
        array
            Held-out scores with the smallest loss, on which the task was updated last.
        """
        import lightgbm

        shape = (self._rows,) if outputs is None else (self._rows, outputs)
        settings = self._settings | ({} if outputs is None else {"num_class": outputs})
        if not self._features_vary:
            task.update(constant := np.zeros(shape))
            return constant
        boosters: list[Any] = [lightgbm.Booster(settings, self._data) for _ in range(FOLDS)]
        held_out, losses = np.zeros(shape), list[float]()
        best = held_out.copy()
        task.update(held_out)
        for _ in range(_ROUNDS + 1):  # the scores of a tree are only passed on when the next one is trained
            for number, booster in enumerate(boosters):
                own = fold == number

                def objective(scores: np.ndarray, _: Any, own: np.ndarray = own) -> tuple[np.ndarray, np.ndarray]:
                    held_out[own] = scores[own]
                    gradient, curvature = task.derivatives(scores)
                    gradient[own] = curvature[own] = 0.0
                    return gradient, curvature

                booster.update(fobj=objective)
            task.update(held_out)
            losses.append(task.loss(held_out))
            since_best = len(losses) - 1 - int(np.argmin(losses))
            if not since_best:
                best = held_out.copy()
            elif since_best >= _PATIENCE:
                break
        task.update(best)
        return best
