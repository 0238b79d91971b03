"""The rows of a model-selection run as arrays: what is known of each model before deployment, and how it then fares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
from jaxtyping import Float

from clickshift.display.tables import Row
from clickshift.errors import DataError

METRIC_COLUMNS = {
    "PPL": "val_perplexity",
    "ind PPL": "ind_perplexity",
    "nDCG": "nDCG@10",
    "CMIP": "cmip",
    "published CMIP": "cmip_classifier",
    "mean dependence": "mean_dependence",
    "weighted PPL": "weighted_perplexity",
}
"""Metrics by the names that people read, with their column in the rows."""
_PER_TEST = ("weighted PPL",)
"""Known for each target policy, in the row of the test log."""


class Case(NamedTuple):
    """A choice that somebody has to make: one log, and one policy that will rank next."""

    user: str
    training: str
    testing: str
    seed: int


@final
@dataclass(frozen=True, eq=False)
class Outcomes:
    """Cases in which all models were judged on a policy that is not the training log's."""

    models: tuple[str, ...]
    cases: tuple[Case, ...]
    ood: Float[np.ndarray, "case model"]
    """Perplexity on the test log."""
    metrics: Mapping[str, Float[np.ndarray, "case model"]]
    """By the names of `METRIC_COLUMNS`; NaN where a row does not have it."""

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Outcomes:
        """From tidy rows. A case that lacks one of the models, in a run that is not finished, is left out."""
        models = tuple(dict.fromkeys(row["model"] for row in rows if row["kind"] == "metrics"))
        known = {_log(row): row for row in rows if row["kind"] == "metrics"}
        tests = {
            (Case(row["user"], row["training"], row["testing"], row["seed"]), row["model"]): row
            for row in rows
            if row["kind"] == "clicks" and row["shift"] == "ood"
        }
        cases = tuple(
            case for case in dict.fromkeys(case for case, _ in tests) if all((case, model) in tests for model in models)
        )
        if not cases:
            raise DataError(
                "there must be a log on which all models were judged by another policy's lists: these rows have none. "
                "Finish the run first."
            )

        def number(case: Case, model: str, name: str, per_test: bool) -> float:
            row = tests[case, model] if per_test else known[case.user, case.training, case.seed, model]
            return float(row.get(name, np.nan))

        def column(name: str, *, per_test: bool) -> np.ndarray:
            return np.array([[number(case, model, name, per_test) for model in models] for case in cases])

        metrics = {name: column(METRIC_COLUMNS[name], per_test=name in _PER_TEST) for name in METRIC_COLUMNS}
        return cls(models, cases, column("perplexity", per_test=True), metrics)

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(case.seed for case in self.cases))


def _log(row: Row) -> tuple[str, str, int, str]:
    return row["user"], row["training"], row["seed"], row["model"]
