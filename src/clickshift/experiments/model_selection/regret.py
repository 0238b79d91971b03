"""Regret: how much worse the chosen click model predicts under the new policy than the best one would have.

The evaluation of the CMIP paper (Deffayet et al. 2023, table 2). For every log, new policy and seed, from every subset
of five, six and seven of the seven models each strategy chooses one; its regret is its ood perplexity minus the least
in the subset, times 1000. Intervals are Student's t over seeds.
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
_TIMES = 1000.0


def _mean_regret(outcomes: Outcomes, rule: Strategy, *, cmip: str = "CMIP") -> Float[np.ndarray, " case"]:
    """The mean regret of a strategy over subsets of the models, in each case, times 1000.

    Filters keep as many models of a subset as of all models: four, as published. `cmip` is "CMIP", by nearest
    neighbours, or "published CMIP", by the classifier.
    """
    among = _subsets(len(outcomes.models))
    n_cases, (n_subsets, n_models) = len(outcomes.cases), among.shape
    fixed = np.broadcast_to(outcomes.ood.mean(axis=0), outcomes.ood.shape)
    known = {**outcomes.metrics, "CMIP": outcomes.metrics[cmip], HINDSIGHT: fixed}
    each = {name: np.repeat(known[name], n_subsets, axis=0) for name in rule.metrics}
    taken = selection_probabilities(rule, each, np.tile(among, (n_cases, 1)), keep=filter_size(n_models)).reshape(
        n_cases, n_subsets, n_models
    )
    ood = outcomes.ood[:, None, :]
    best = np.where(among, ood, np.inf).min(axis=2)
    regret: np.ndarray = ((taken * ood).sum(axis=2) - best).mean(axis=1) * _TIMES
    return regret


def regret_rows(
    rows: Sequence[Row], *, strategies: Mapping[str, Strategy] = STRATEGIES, cmip: str = "CMIP"
) -> list[dict[str, Any]]:
    """One row per strategy, user and training policy, and `ALL` for means over them; the published number beside it.

    Lower is better. `published_error` is half the width of the published interval, where there is one.
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
                about = {"strategy": name, "user": user, "training": policy}
                found = published.get((name, user, policy), {})
                beside = {f"published_{key}": found[key] for key in ("regret", "error") if key in found}
                table.append(about | {"regret": mean, "low": low, "high": high, "seeds": len(by_seed)} | beside)
    return table


@cache
def published_regret() -> tuple[dict[str, Any], ...]:
    """The published table, in the form of `regret_rows`."""
    text = (files("clickshift.experiments") / "published" / "cmip_regret.toml").read_text(encoding="utf-8")
    return tuple(
        {"strategy": one["strategy"], "user": user, "training": policy, "regret": number[0]}
        | ({"error": number[1]} if len(number) > 1 else {})
        for one in tomllib.loads(text)["regret"]
        for user, numbers in one["by_user"].items()
        for policy, number in numbers.items()
    )


def _subsets(models: int) -> Bool[np.ndarray, "subset model"]:
    """All models, and all but one or two of them; at least two."""
    sizes = range(min(models, max(2, models - 2)), models + 1)
    chosen = [subset for size in sizes for subset in combinations(range(models), size)]
    among = np.zeros((len(chosen), models), bool)
    for k, subset in enumerate(chosen):
        among[k, list(subset)] = True
    return among


def _by_seed(outcomes: Outcomes, regret: np.ndarray, user: str, policy: str) -> list[float]:
    here = np.array([user in {ALL, case.user} and policy in {ALL, case.training} for case in outcomes.cases])
    seed = np.array([case.seed for case in outcomes.cases])
    return [float(regret[here & (seed == one)].mean()) for one in outcomes.seeds if (here & (seed == one)).any()]
