"""Strategies that choose one of several click models by metrics that are known before any model is deployed.

References
----------
Deffayet, R., Hager, P., Renders, J.-M. & de Rijke, M. (2023). An offline metric for the debiasedness of click models.
SIGIR.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Bool, Float

from clickshift.errors import DataError, SpecError

HIGHER_IS_BETTER = frozenset({"nDCG"})
"""Metrics of which higher values are better; of all others, lower values are."""
DEBIASEDNESS = ("CMIP", "mean dependence")
"""Metrics of debiasedness: where two filters have no model in common, the filter by one of these is kept."""
HINDSIGHT = "mean ood PPL"
"""Mean ood perplexity over all test logs: known only after deployment, and the same for every case."""


@final
@dataclass(frozen=True)
class Strategy:
    """A rule that chooses a model: the best by one metric among the models that pass every filter.

    Parameters
    ----------
    optimise
        Metric by which the best model is chosen; None chooses uniformly at random.
    filters
        Metrics by which a model must be among the best (see `filter_size`).
    """

    optimise: str | None
    filters: tuple[str, ...] = ()

    @property
    def metrics(self) -> tuple[str, ...]:
        """All metrics that the strategy uses."""
        return tuple(dict.fromkeys((*(() if self.optimise is None else (self.optimise,)), *self.filters)))


STRATEGIES: dict[str, Strategy] = {
    "PPL": Strategy("PPL"),
    "nDCG": Strategy("nDCG"),
    "CMIP": Strategy("CMIP"),
    "PPL among top CMIP": Strategy("PPL", ("CMIP",)),
    "nDCG among top CMIP": Strategy("nDCG", ("CMIP",)),
    "PPL among top nDCG": Strategy("PPL", ("nDCG",)),
    "nDCG among top PPL": Strategy("nDCG", ("PPL",)),
    "PPL among top nDCG & CMIP": Strategy("PPL", ("nDCG", "CMIP")),
    "nDCG among top PPL & CMIP": Strategy("nDCG", ("PPL", "CMIP")),
    "mean dependence": Strategy("mean dependence"),
    "PPL among top mean dependence": Strategy("PPL", ("mean dependence",)),
    "nDCG among top mean dependence": Strategy("nDCG", ("mean dependence",)),
    "PPL among top nDCG & mean dependence": Strategy("PPL", ("nDCG", "mean dependence")),
    "nDCG among top PPL & mean dependence": Strategy("nDCG", ("PPL", "mean dependence")),
    "weighted PPL": Strategy("weighted PPL"),
    "random model": Strategy(None),
    "best fixed model": Strategy(HINDSIGHT),
}
"""Strategies by name. The first nine are those of the CMIP paper. Ours follow: with mean dependence; by held-out
perplexity weighted toward the target policy, which must be known; and two references, a random model and the model that
is best on average, which is known only in hindsight. PPL is the perplexity on held-out sessions of the training log."""


def strategies_by(metrics: Collection[str]) -> dict[str, Strategy]:
    """Return the strategies that choose by these metrics alone.

    Parameters
    ----------
    metrics
        Names of the metrics that are known of every model.

    Returns
    -------
    dict
        Strategies by name; those that serve as references only, a random model and hindsight, are not among them.

    Examples
    --------
    >>> list(strategies_by(["PPL", "nDCG"]))
    ['PPL', 'nDCG', 'PPL among top nDCG', 'nDCG among top PPL']
    """
    return {
        name: rule for name, rule in STRATEGIES.items() if rule.optimise is not None and {*rule.metrics} <= {*metrics}
    }


def strategy_by_name(name: str, among: Mapping[str, Strategy] = STRATEGIES) -> Strategy:
    """Find a strategy by name.

    Parameters
    ----------
    name
        Name of a strategy.
    among
        The strategies to choose from, by name.

    Returns
    -------
    Strategy
        The strategy.

    Raises
    ------
    SpecError
        If there is none of that name, or not among these ("unknown-name").
    """
    if name not in among:
        problem = "needs what is not known here" if name in STRATEGIES else "is not a strategy"
        raise SpecError(
            f"{name!r} {problem}. Choose one of: {', '.join(among)}.",
            code="unknown-name",
            name=name,
            known=list(among),
        )
    return among[name]


def choose_model(rule: Strategy, metrics: Mapping[str, Mapping[str, float]]) -> str:
    """Choose a model by a strategy.

    Parameters
    ----------
    rule
        The strategy.
    metrics
        Metrics of each model, by the model's name and the metric's name.

    Returns
    -------
    str
        Name of the chosen model; the first of equally good ones.

    Raises
    ------
    SpecError
        If the strategy chooses at random ("bad-option").
    DataError
        If no model has all metrics of the strategy ("missing-metric").

    Examples
    --------
    >>> metrics = {"PBM": {"PPL": 1.20, "CMIP": 0.02}, "dCTR": {"PPL": 1.19, "CMIP": 0.3}}
    >>> choose_model(STRATEGIES["PPL"], metrics), choose_model(STRATEGIES["CMIP"], metrics)
    ('dCTR', 'PBM')
    """
    if rule.optimise is None:
        raise SpecError(
            "a random model only serves as a reference for strategies. Choose a strategy that uses a metric.",
            code="bad-option",
            option="strategy",
        )
    names = list(metrics)
    values = {
        metric: np.array([[metrics[name].get(metric, np.nan) for name in names]], np.float64) for metric in rule.metrics
    }
    everyone = np.ones((1, len(names)), bool)
    probability = selection_probabilities(rule, values, everyone, keep=filter_size(len(names)))[0]
    if not (probability > 0).any():
        raise DataError(
            f"a model is chosen by {' and '.join(rule.metrics)}: no model has a value for all of them. "
            "Compute them, or use another strategy.",
            code="missing-metric",
            metrics=list(rule.metrics),
        )
    return names[int(np.argmax(probability > 0))]


def filter_size(models: int) -> int:
    """Number of models that pass a filter: the published 4 of 7, and that fraction of other numbers, rounded up.

    Parameters
    ----------
    models
        Number of models to choose from.

    Returns
    -------
    int
        Number of models that pass.

    Examples
    --------
    >>> [filter_size(n) for n in (2, 3, 7)]
    [2, 2, 4]
    """
    return -(-4 * models // 7)


def selection_probabilities(
    rule: Strategy,
    values: Mapping[str, Float[np.ndarray, "case model"]],
    among: Bool[np.ndarray, "case model"],
    *,
    keep: int,
) -> Float[np.ndarray, "case model"]:
    """Compute the probability that a strategy chooses each model, in many cases at once.

    A filter keeps the `keep` best models and all that tie with the last of them. Several filters keep the models that
    pass all of them; if there is none, the first filter by debiasedness decides alone. A model without a value (NaN)
    does not pass. Tied models are equally likely.

    Parameters
    ----------
    rule
        The strategy.
    values
        Metrics by name.
    among
        Models that may be chosen in each case.
    keep
        Number of models that pass a filter.

    Returns
    -------
    Float[np.ndarray, "case model"]
        Probabilities; NaN for all models of a case in which none can be chosen.
    """
    remaining = among
    passing = {name: _best(_ascending(name, values), among, keep) for name in rule.filters}
    if passing:
        pass_all = np.logical_and.reduce([among, *passing.values()])
        fallback = passing[next((name for name in rule.filters if name in DEBIASEDNESS), rule.filters[0])]
        remaining = np.where(pass_all.any(axis=1, keepdims=True), pass_all, fallback)
    if rule.optimise is not None:
        remaining = _best(_ascending(rule.optimise, values), remaining, 1)
    number = remaining.sum(axis=1, keepdims=True)
    probability: np.ndarray = np.divide(remaining, number, out=np.full(remaining.shape, np.nan), where=number > 0)
    return probability


def _ascending(metric: str, values: Mapping[str, np.ndarray]) -> np.ndarray:
    """Values of a metric with the sign by which lower is better."""
    column: np.ndarray = -values[metric] if metric in HIGHER_IS_BETTER else values[metric]
    return column


def _best(value: np.ndarray, among: np.ndarray, keep: int) -> np.ndarray:
    """Mark the `keep` lowest values among the eligible models, with ties of the last."""
    eligible = among & ~np.isnan(value)
    ranked = np.where(eligible, value, np.inf)
    last = np.sort(ranked, axis=1)[:, min(keep, ranked.shape[1]) - 1, None]
    best: np.ndarray = eligible & (ranked <= last)
    return best
