"""The comparison protocol: which click model predicts the clicks of one log best?

Models learn from one part of the log and are judged on the other, or on a second log.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from clickshift.core.rng import generator
from clickshift.core.spec import resolve
from clickshift.data.encoded_log import Log
from clickshift.errors import ClickshiftError, DataError
from clickshift.learners import DEFAULT, Learner, fit, learner_for
from clickshift.metrics.click_prediction import evaluation
from clickshift.models import MODELS

SPLITS: dict[str, Callable[[Any, float, int], tuple[Any, Any]]] = {
    "random": lambda log, fraction, seed: log.split(fraction, rng=generator(seed, "comparison", "split")),
    "time": lambda log, fraction, seed: log.split_by_time(fraction),
    "order": lambda log, fraction, seed: log.split_in_order(fraction),
    "within-query": lambda log, fraction, seed: log.split_within_queries(fraction),
}
"""How a log is parted: at random, by time, as its rows stand, or as the rows of each query stand."""


@dataclass(frozen=True)
class Comparison:
    """Models, each with its usual learner or as a learner with options, on one log."""

    models: tuple[str, ...] = ()
    """By default, all that predict clicks and that `fit` knows by name."""
    split: str = "random"
    fraction: float = 0.8
    """Of the sessions, to learn from."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.split not in SPLITS:
            raise DataError(f"a split must be one of {', '.join(SPLITS)}: got {self.split!r}.")
        chosen = self.models or click_predicting_models()
        object.__setattr__(self, "models", tuple(dict.fromkeys(chosen)))
        self.learners()

    def learners(self) -> dict[str, Learner]:
        """Raises for a text that names nothing: that is a slip, which no other model's result makes good."""
        return {name: learner_for(name) for name in self.models}

    def parts(self, log: Log, test: Log | None = None) -> tuple[Log, Log]:
        """What is learned from and what is predicted: parts of the log, or the whole log and another one."""
        return SPLITS[self.split](log, self.fraction, self.seed) if test is None else (log, test)

    def rows(
        self, log: Log, test: Log | None = None, *, progress: Callable[[str], None] = lambda done: None
    ) -> Iterator[dict[str, Any]]:
        """Tidy rows, one per model as it is done. A model that fails has its error in its row, and the others go on."""
        train, test = self.parts(log, test)
        for name, learner in self.learners().items():
            row: dict[str, Any] = {"model": name, "train_sessions": train.total, "test_sessions": test.total}
            row |= dict.fromkeys((*_RESULTS, *_at_ranks(test), "error"))
            try:
                row |= _judged(learner, train, test)
            except ClickshiftError as error:
                row["error"] = str(error)
            except Exception as error:  # a fault of one model, perhaps not ours, must not cost the others' results
                row["error"] = f"{type(error).__name__}: {error}"
            yield row
            progress(name)


_RESULTS = ("conditional_perplexity", "marginal_perplexity", "log_likelihood", "seconds", "unseen_pair_share")


def click_predicting_models() -> list[str]:
    """The models that `fit` knows by name and that predict clicks without a look at them."""
    return [name for name in DEFAULT if (model := resolve(name, MODELS)).predicts_clicks and not model.peeks]


def _at_ranks(test: Log) -> list[str]:
    return [f"conditional_perplexity@{rank + 1}" for rank in range(test.n_ranks)]


def _judged(learner: Learner, train: Log, test: Log) -> dict[str, Any]:
    start = time.perf_counter()
    model = fit(learner, train)
    seconds = time.perf_counter() - start
    facts = {**evaluation(model, test), "seconds": seconds}
    at_rank = zip(_at_ranks(test), facts["conditional_perplexity_at_rank"], strict=True)
    return {name: facts[name] for name in _RESULTS} | dict(at_rank)
