"""Relevance as a function of features, where it is learned together with examination: boosted trees, cross-fitted.

Trees that have seen a document's clicks follow their noise, and examination that is learned given their scores takes
that noise for relevance. So queries are dealt into folds: every fold is scored by trees of the other folds, and
examination looks at those scores alone. They also tell when to stop.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from clickshift.errors import DataError
from clickshift.threads import n_threads

Scores = Float[np.ndarray, " row"]

FOLDS = 4
_ROUNDS, _PATIENCE = 300, 20
_MANY = 20_000  # rows: fewer are sorted sooner than threads start
_SETTINGS = {
    "objective": "none",
    "num_leaves": 8,
    "learning_rate": 0.2,
    "min_data_in_leaf": 5,  # a document stands for many impressions; scores of other folds tell when it is too few
    "lambda_l2": 1.0,
    "deterministic": True,
    "force_row_wise": True,
    "verbosity": -1,
}


@runtime_checkable
class Task(Protocol):
    """What is learned together with the scores of documents."""

    def learn(self, scores: Scores) -> None:
        """Find what goes best with these scores, which have not seen the clicks on their documents."""

    def loss(self, scores: Scores) -> float:
        """How badly these scores, and what was learned last, predict clicks."""

    def slopes(self, scores: Scores) -> tuple[Scores, Scores]:
        """First and second derivative, by each document's score, of the loss that the trees are to make small."""


class Trees:
    """The features of some documents, sorted into bins once; trees of any number of tasks can grow on them."""

    def __init__(self, features: Float[np.ndarray, "row feature"], fold: Int[np.ndarray, " row"]) -> None:
        import lightgbm

        if not len(features):
            raise DataError("no clicked list has a document of the corpus. Do both have the same ids?")
        self._data = lightgbm.Dataset(features, np.zeros(len(features)))
        self._fold = fold
        self._settings = _SETTINGS | {"num_threads": n_threads() if len(features) >= _MANY else 1}

    def cross_fit(self, task: Task, rounds: int | None = None) -> int:
        """Grow trees on a task, whose last lesson is from the scores after `rounds` rounds.

        None chooses the number that has the least loss on documents of other folds. Returns the number.
        """
        if rounds is None:
            rounds = self._grow(task, _ROUNDS, patience=_PATIENCE)
        self._grow(task, rounds)
        return rounds

    def _grow(self, task: Task, rounds: int, *, patience: int | None = None) -> int:
        """One tree of each fold after the other, then a lesson; returns the round with the least loss."""
        import lightgbm

        boosters: list[Any] = [lightgbm.Booster(self._settings, self._data) for _ in range(FOLDS)]
        apart, losses = np.zeros(len(self._fold)), []
        task.learn(apart)
        for _ in range(rounds + 1):  # a tree is only seen when the next one is grown
            for fold, booster in enumerate(boosters):
                mine = self._fold == fold

                def follow(scores: Scores, _: Any, mine: np.ndarray = mine) -> tuple[Scores, Scores]:
                    apart[mine] = scores[mine]
                    slope, curve = task.slopes(scores)
                    return np.where(mine, 0.0, slope), np.where(mine, 0.0, curve)

                booster.update(fobj=follow)
            task.learn(apart)
            if patience is not None:
                losses.append(task.loss(apart))
                if len(losses) - int(np.argmin(losses)) > patience:
                    break
        return int(np.argmin(losses)) if losses else rounds
