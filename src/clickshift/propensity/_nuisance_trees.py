"""Relevance as a function of features, where it is learned together with examination: boosted trees, cross-fitted.

Trees that have seen a document's clicks follow their noise, and examination that is learned given their scores takes
that noise for relevance. So queries are dealt into folds: every fold is scored by trees of the other folds, and
examination looks at those scores alone. They also tell when to stop.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from clickshift.core.parallel import n_threads

DocumentScores = Float[np.ndarray, "row *output"]
"""A number for each document, or a few."""

FOLDS = 4
_ROUNDS, _PATIENCE = 150, 20
_MANY = 20_000  # rows: fewer are sorted sooner than threads start
_SETTINGS = {
    "objective": "none",
    "num_leaves": 4,  # with more, errors of relevance and of placement are alike too often (docs/propensities.md)
    "learning_rate": 0.2,
    "min_data_in_leaf": 10,  # a document stands for many impressions
    "lambda_l2": 1.0,
    "deterministic": True,
    "force_row_wise": True,
    "verbosity": -1,
}


@runtime_checkable
class NuisanceTask(Protocol):
    """What is learned together with the scores of documents."""

    def learn(self, scores: DocumentScores) -> None:
        """Find what goes best with these scores, which have not seen the clicks on their documents."""

    def loss(self, scores: DocumentScores) -> float:
        """How badly these scores, and what was learned last, predict clicks."""

    def slopes(self, scores: DocumentScores) -> tuple[DocumentScores, DocumentScores]:
        """First and second derivative, by each document's score, of the loss that the trees are to make small."""


class CrossFittedTrees:
    """The features of some documents, sorted into bins once; trees of any number of tasks can grow on them."""

    def __init__(self, features: Float[np.ndarray, "row feature"]) -> None:
        import lightgbm

        kept: dict[str, Any] = {"feature_pre_filter": False, "verbosity": -1}  # also of very few documents
        self._data, self._rows = lightgbm.Dataset(features, np.zeros(len(features)), params=kept), len(features)
        self._vary = bool((features != features[:1]).any())
        self._settings = _SETTINGS | {"num_threads": n_threads() if len(features) >= _MANY else 1}

    def cross_fit(
        self, task: NuisanceTask, fold: Int[np.ndarray, " row"], *, outputs: int | None = None
    ) -> DocumentScores:
        """Grow trees on a task, one of each fold after the other, and then a lesson, while that makes the loss on
        documents of other folds smaller. Returns the scores with the least, from which the task has its last lesson.

        Scores are a number for each document, or `outputs` of them.
        """
        import lightgbm

        shape = (self._rows,) if outputs is None else (self._rows, outputs)
        settings = self._settings | ({} if outputs is None else {"num_class": outputs})
        if not self._vary:
            task.learn(nothing := np.zeros(shape))
            return nothing
        boosters: list[Any] = [lightgbm.Booster(settings, self._data) for _ in range(FOLDS)]
        apart, losses = np.zeros(shape), list[float]()
        best = apart.copy()
        task.learn(apart)
        for _ in range(_ROUNDS + 1):  # a tree is only seen when the next one is grown
            for number, booster in enumerate(boosters):
                mine = fold == number

                def follow(scores: np.ndarray, _: Any, mine: np.ndarray = mine) -> tuple[np.ndarray, np.ndarray]:
                    apart[mine] = scores[mine]
                    slope, curve = task.slopes(scores)
                    slope[mine] = curve[mine] = 0.0
                    return slope, curve

                booster.update(fobj=follow)
            task.learn(apart)
            losses.append(task.loss(apart))
            since = len(losses) - 1 - int(np.argmin(losses))
            if not since:
                best = apart.copy()
            elif since >= _PATIENCE:
                break
        task.learn(best)
        return best
