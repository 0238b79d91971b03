"""Regret of choosing a click model: how much worse it predicts under the new policy than the best model would have.

The evaluation of the CMIP paper (Deffayet et al. 2023, table 2). For every log, new policy and seed, each strategy
chooses a model from every subset of five, six and seven of the seven models. Its regret is the ood perplexity of the
chosen model minus the lowest in the subset, times 1000. Intervals are Student's t over seeds.

References
----------
Deffayet, R., Hager, P., Renders, J.-M. & de Rijke, M. (2023). An offline metric for the debiasedness of click models.
SIGIR.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from itertools import combinations
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from clickshift.core.intervals import mean_interval
from clickshift.display.tables import Row
from clickshift.experiments.model_selection._outcomes import Outcomes
from clickshift.experiments.model_selection.strategies import (
    HINDSIGHT,
    STRATEGIES,
    Strategy,
    filter_size,
    selection_probabilities,
)

ALL = "all"
"""In place of a user or a policy: the mean over all of them."""
_SCALE = 1000.0
"""Factor of the published regret."""


def _mean_regret(outcomes: Outcomes, rule: Strategy, *, cmip: str = "CMIP") -> Float[np.ndarray, " case"]:
    """Mean regret of a strategy over subsets of the models, in each case, times 1000.

    Filters keep as many models of a subset as of all models: four, as published. `cmip` is "CMIP", estimated by nearest
    neighbours, or "published CMIP", estimated by the classifier.
    """
    among = _subsets(len(outcomes.models))
    n_cases, (n_subsets, n_models) = len(outcomes.cases), among.shape
    mean_ood = np.broadcast_to(outcomes.ood.mean(axis=0), outcomes.ood.shape)
    metrics = {**outcomes.metrics, "CMIP": outcomes.metrics[cmip], HINDSIGHT: mean_ood}
    values = {name: np.repeat(metrics[name], n_subsets, axis=0) for name in rule.metrics}
    eligible = np.tile(among, (n_cases, 1))
    probability = selection_probabilities(rule, values, eligible, keep=filter_size(n_models))
    probability = probability.reshape(n_cases, n_subsets, n_models)
    ood = outcomes.ood[:, None, :]
    best = np.where(among, ood, np.inf).min(axis=2)
    regret: np.ndarray = ((probability * ood).sum(axis=2) - best).mean(axis=1) * _SCALE
    return regret


def regret_rows(
    rows: Sequence[Row], *, strategies: Mapping[str, Strategy] = STRATEGIES, cmip: str = "CMIP"
) -> list[dict[str, Any]]:
    """Compute the regret of strategies from the rows of a model-selection run.

    Parameters
    ----------
    rows
        Rows of the run.
    strategies
        Strategies by name.
    cmip
        Estimator of CMIP: "CMIP" (nearest neighbours) or "published CMIP" (classifier).

    Returns
    -------
    list of dict
        One row per strategy, user and training policy, and `ALL` for means over them: `regret` (times 1000, lower is
        better), its 95 % interval over seeds `low` and `high`, `seeds`, and where there is one the published value
        `published_regret` with half the width of its interval, `published_error`.

    Raises
    ------
    DataError
        If no case has all models ("unfinished-run").
    """
    outcomes = Outcomes.of(rows)
    published = {(row["strategy"], row["user"], row["training"]): row for row in published_regret()}
    users = (ALL, *dict.fromkeys(case.user for case in outcomes.cases))
    training = (ALL, *dict.fromkeys(case.training for case in outcomes.cases))
    table = []
    for name, rule in strategies.items():
        regret = _mean_regret(outcomes, rule, cmip=cmip)
        for user in users:
            for policy in training:
                by_seed = _by_seed(outcomes, regret, user, policy)
                mean, low, high = mean_interval(by_seed)
                setting = {"strategy": name, "user": user, "training": policy}
                reference = published.get((name, user, policy), {})
                columns = {f"published_{key}": reference[key] for key in ("regret", "error") if key in reference}
                table.append(setting | {"regret": mean, "low": low, "high": high, "seeds": len(by_seed)} | columns)
    return table


@cache
def published_regret() -> tuple[dict[str, Any], ...]:
    """Read the published table of regret.

    Returns
    -------
    tuple of dict
        Rows like those of `regret_rows`, with `regret` and, where it was published, `error`.
    """
    text = (files("clickshift.experiments") / "published" / "cmip_regret.toml").read_text(encoding="utf-8")
    return tuple(
        {"strategy": line["strategy"], "user": user, "training": policy, "regret": numbers[0]}
        | ({"error": numbers[1]} if len(numbers) > 1 else {})
        for line in tomllib.loads(text)["regret"]
        for user, by_policy in line["by_user"].items()
        for policy, numbers in by_policy.items()
    )


def _subsets(models: int) -> Bool[np.ndarray, "subset model"]:
    """Subsets of the models: all of them, and all but one or two; at least two models each."""
    sizes = range(min(models, max(2, models - 2)), models + 1)
    subsets = [subset for size in sizes for subset in combinations(range(models), size)]
    among = np.zeros((len(subsets), models), bool)
    for k, subset in enumerate(subsets):
        among[k, list(subset)] = True
    return among


def _by_seed(outcomes: Outcomes, regret: np.ndarray, user: str, policy: str) -> list[float]:
    """Mean regret of each seed over the cases of a user and a training policy."""
    selected = np.array([user in {ALL, case.user} and policy in {ALL, case.training} for case in outcomes.cases])
    seed = np.array([case.seed for case in outcomes.cases])
    by_seed = [selected & (seed == one) for one in outcomes.seeds]
    return [float(regret[cases].mean()) for cases in by_seed if cases.any()]
