"""Strategies: how to choose one of several click models by what is known of them before any is deployed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Bool, Float

from clickshift.errors import DataError, SpecError

HIGHER_IS_BETTER = frozenset({"nDCG"})
"""All other metrics are the better, the lower."""
DEBIASEDNESS = ("CMIP", "mean dependence")
"""Where two filters have no model in common, the filter by one of these is kept."""
HINDSIGHT = "mean ood PPL"
"""Known only after the fact: the mean over all test logs, the same for all of them."""


@final
@dataclass(frozen=True)
class Strategy:
    """Of the models that are among the best by every filter, take the best by one metric."""

    optimise: str | None
    """None takes any of them, with equal chances."""
    filters: tuple[str, ...] = ()

    @property
    def metrics(self) -> tuple[str, ...]:
        """Everything that must be known of the models."""
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
"""The nine of the CMIP paper, then ours: with mean dependence; held-out perplexity weighted toward the target policy,
which must be known; and what any strategy must beat: a random model, and the one that was best on average, which only
hindsight knows. PPL is that of held-out sessions of the training log."""


def strategy_by_name(name: str) -> Strategy:
    """The strategy of that name."""
    if name not in STRATEGIES:
        raise SpecError(f"{name!r} is no strategy. Choose one of: {', '.join(STRATEGIES)}.")
    return STRATEGIES[name]


def choose_model(rule: Strategy, metrics: Mapping[str, Mapping[str, float]]) -> str:
    """The model that a strategy takes, from the metrics of each model; of equals, the first.

    >>> metrics = {"PBM": {"PPL": 1.20, "CMIP": 0.02}, "dCTR": {"PPL": 1.19, "CMIP": 0.3}}
    >>> choose_model(STRATEGIES["PPL"], metrics), choose_model(STRATEGIES["CMIP"], metrics)
    ('dCTR', 'PBM')
    """
    if rule.optimise is None:
        raise SpecError("a random model is what strategies are compared with: choose by a metric.")
    names = list(metrics)
    values = {
        metric: np.array([[metrics[name].get(metric, np.nan) for name in names]], np.float64) for metric in rule.metrics
    }
    found = selection_probabilities(rule, values, np.ones((1, len(names)), bool), keep=filter_size(len(names)))[0]
    if not (found > 0).any():
        raise DataError(
            f"a model must be chosen by {' and '.join(rule.metrics)}: no model has a number for all of them. "
            "Compute them, or use another strategy."
        )
    return names[int(np.argmax(found > 0))]


def filter_size(models: int) -> int:
    """How many models pass a filter: the published 4 of 7, and that share of other numbers, rounded up.

    >>> [top(n) for n in (2, 3, 7)]
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
    """The probability that each of the models `among` which is chosen is taken, in many cases at once.

    A filter keeps the `keep` best and all that equal the last of them. Several filters keep what all keep; where that
    is nothing, the first filter by debiasedness decides alone. A model without a number (NaN) does not pass. Equals
    share. NaN for all models of a case in which none is left.
    """
    left = among
    kept = {name: _best(_ascending(name, values), among, keep) for name in rule.filters}
    if kept:
        both = np.logical_and.reduce([among, *kept.values()])
        fallback = kept[next((name for name in rule.filters if name in DEBIASEDNESS), rule.filters[0])]
        left = np.where(both.any(axis=1, keepdims=True), both, fallback)
    if rule.optimise is not None:
        left = _best(_ascending(rule.optimise, values), left, 1)
    number = left.sum(axis=1, keepdims=True)
    shares: np.ndarray = np.divide(left, number, out=np.full(left.shape, np.nan), where=number > 0)
    return shares


def _ascending(metric: str, values: Mapping[str, np.ndarray]) -> np.ndarray:
    """The lower, the better."""
    column: np.ndarray = -values[metric] if metric in HIGHER_IS_BETTER else values[metric]
    return column


def _best(value: np.ndarray, among: np.ndarray, keep: int) -> np.ndarray:
    known = among & ~np.isnan(value)
    ranked = np.where(known, value, np.inf)
    last = np.sort(ranked, axis=1)[:, min(keep, ranked.shape[1]) - 1, None]
    best: np.ndarray = known & (ranked <= last)
    return best
