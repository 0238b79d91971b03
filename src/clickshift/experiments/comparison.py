"""Comparison of click models on one log: how well do they predict held-out clicks?

Models are fitted on one part of the log and evaluated on the other, or on a second log.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from clickshift.core.spec import resolve
from clickshift.data.encoded_log import Log
from clickshift.data.splits import SPLITS as SPLITS
from clickshift.data.splits import check_split, split_sessions
from clickshift.errors import ClickshiftError
from clickshift.learners import DEFAULT, Learner, fit, learner_for
from clickshift.metrics.click_prediction import evaluation
from clickshift.models import MODELS


@dataclass(frozen=True)
class Comparison:
    """Comparison of click models on one log.

    Parameters
    ----------
    models
        Names of models, each fitted by its default learner, or spec texts of learners with options. By default, all
        models that predict clicks and have a default learner.
    split
        Train/test split: "random", "time", "order" or "within-query".
    fraction
        Share of the sessions to train on.
    seed
        Random seed for a random split.

    Raises
    ------
    DataError
        If the split is not one of the above ("bad-option").
    SpecError
        If a model or learner does not exist.

    Examples
    --------
    >>> Comparison(("PBM", "DBN", "PBM"), split="time").models
    ('PBM', 'DBN')
    """

    models: tuple[str, ...] = ()
    split: str = "random"
    fraction: float = 0.8
    seed: int = 0

    def __post_init__(self) -> None:
        check_split(self.split)
        chosen = self.models or click_predicting_models()
        object.__setattr__(self, "models", tuple(dict.fromkeys(chosen)))
        self.learners()

    def learners(self) -> dict[str, Learner]:
        """Return the learner of each model; raise a SpecError for a text that names none, before anything is fitted."""
        return {name: learner_for(name) for name in self.models}

    def parts(self, log: Log, test: Log | None = None) -> tuple[Log, Log]:
        """Return the logs to train and to test on: two parts of the log, or the whole log and another one."""
        return split_sessions(log, self.split, self.fraction, self.seed) if test is None else (log, test)

    def rows(
        self, log: Log, test: Log | None = None, *, progress: Callable[[str], None] = lambda name: None
    ) -> Iterator[dict[str, Any]]:
        """Fit and evaluate the models, and yield one tidy row for each.

        Parameters
        ----------
        log
            The log.
        test
            Another log to predict; None to split the first one.
        progress
            Called with the name of every finished model.

        Yields
        ------
        dict
            The row of a model, as soon as it is finished. If a model fails, its row has the error, and the comparison
            continues.
        """
        train, test = self.parts(log, test)
        for name, learner in self.learners().items():
            row: dict[str, Any] = {"model": name, "train_sessions": train.total, "test_sessions": test.total}
            row |= dict.fromkeys((*_RESULTS, *_rank_columns(test), "error"))
            try:
                row |= _fit_and_evaluate(learner, train, test)
            except ClickshiftError as error:
                row["error"] = str(error)
            except Exception as error:  # the failure of one model must not lose the results of the others
                row["error"] = f"{type(error).__name__}: {error}"
            yield row
            progress(name)


_RESULTS = ("conditional_perplexity", "marginal_perplexity", "log_likelihood", "seconds", "unseen_pair_share")
"""Columns of the results that do not depend on the number of ranks."""


def click_predicting_models() -> list[str]:
    """Return the names of models that have a default learner and predict clicks without seeing them."""
    return [name for name in DEFAULT if (model := resolve(name, MODELS)).predicts_clicks and not model.peeks]


def _rank_columns(test: Log) -> list[str]:
    """Return the names of the columns of perplexity by rank."""
    return [f"conditional_perplexity@{rank + 1}" for rank in range(test.n_ranks)]


def _fit_and_evaluate(learner: Learner, train: Log, test: Log) -> dict[str, Any]:
    """Fit a model and return its results on the test log, with the time of fitting."""
    start = time.perf_counter()
    model = fit(learner, train)
    seconds = time.perf_counter() - start
    facts = {**evaluation(model, test), "seconds": seconds}
    by_rank = zip(_rank_columns(test), facts["conditional_perplexity_at_rank"], strict=True)
    return {name: facts[name] for name in _RESULTS} | dict(by_rank)
