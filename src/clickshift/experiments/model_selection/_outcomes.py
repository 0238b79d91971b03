"""The rows of a model-selection run as arrays: metrics of each model before deployment, and ood perplexity after it."""

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
"""Metrics by their display names, with their column in the rows."""
_PER_TEST = ("weighted PPL",)
"""Metrics that depend on the target policy and are in the row of the test log."""


class Case(NamedTuple):
    """A situation in which a model has to be chosen: one training log, and the policy that is deployed next."""

    user: str
    training: str
    testing: str
    seed: int


@final
@dataclass(frozen=True, eq=False)
class Outcomes:
    """Cases in which all models were tested on lists of a policy that did not rank the training log.

    Parameters
    ----------
    models
        Names of the models.
    cases
        The cases.
    ood
        Perplexity of each model on the test log of each case.
    metrics
        Metrics by the names of `METRIC_COLUMNS`; NaN where a row has none.
    """

    models: tuple[str, ...]
    cases: tuple[Case, ...]
    ood: Float[np.ndarray, "case model"]
    metrics: Mapping[str, Float[np.ndarray, "case model"]]

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Outcomes:
        """Collect the outcomes from tidy rows; cases of an unfinished run that lack a model are left out.

        Parameters
        ----------
        rows
            Rows of a model-selection run.

        Returns
        -------
        Outcomes
            The complete cases.

        Raises
        ------
        DataError
            If no case has all models ("unfinished-run").
        """
        models = tuple(dict.fromkeys(row["model"] for row in rows if row["kind"] == "metrics"))
        before_deployment = {_log(row): row for row in rows if row["kind"] == "metrics"}
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
                "there must be a log for which all models were tested on lists of another policy: these rows have "
                "none. Finish the run first.",
                code="unfinished-run",
            )

        def number(case: Case, model: str, name: str, per_test: bool) -> float:
            log = (case.user, case.training, case.seed, model)
            row = tests[case, model] if per_test else before_deployment[log]
            return float(row.get(name, np.nan))

        def column(name: str, *, per_test: bool) -> np.ndarray:
            return np.array([[number(case, model, name, per_test) for model in models] for case in cases])

        metrics = {name: column(METRIC_COLUMNS[name], per_test=name in _PER_TEST) for name in METRIC_COLUMNS}
        return cls(models, cases, column("perplexity", per_test=True), metrics)

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds in order of appearance."""
        return tuple(dict.fromkeys(case.seed for case in self.cases))


def _log(row: Row) -> tuple[str, str, int, str]:
    """The log and the model that a row is about."""
    return row["user"], row["training"], row["seed"], row["model"]
