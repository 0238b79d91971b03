"""How well metrics that are known before deployment predict a click model's perplexity under another policy.

Ood perplexity is predicted from sets of metrics, in three ways:

- "published protocol" is that of the CMIP paper's table 1; its numbers are those of this run, not the paper's. Within
  one configuration (user, training policy, new policy), a fully grown regression tree is cross-validated in two folds
  over models and seeds. Other seeds of the same model are always in the training fold, so the tree only has to
  recognise models that it has seen.
- "leave one model out" predicts each model from the others of its configuration: what can be expected for a new model.
- "leave one log out" predicts a configuration from those of other users or training policies: what can be expected for
  a new log. (The metrics of a log are the same for all its new policies, so that one of these would leak the others.)

For the latter two, predictions are pooled, and R2 is relative to the configuration's own mean: below 0, the mean would
have been the better prediction.

References
----------
Deffayet, R., Hager, P., Renders, J.-M. & de Rijke, M. (2023). An offline metric for the debiasedness of click models.
SIGIR.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from jaxtyping import Float

from clickshift.core.rng import generator
from clickshift.display.tables import Row
from clickshift.experiments.model_selection._outcomes import Outcomes
from clickshift.experiments.model_selection._regression_tree import predict_by_tree, two_fold_r2
from clickshift.experiments.model_selection.regret import ALL

PREDICTORS = ("ind PPL", "nDCG", "CMIP", "mean dependence")
"""Metrics that predict ood perplexity. "ind PPL" is the perplexity on lists that the training policy ranks without
randomness, as in the published table."""

Configuration = tuple[str, str, str]
"""User, training policy and new policy."""
_Regressor = Callable[[np.ndarray, np.ndarray, np.ndarray, np.random.Generator], np.ndarray]
"""Predictions for new points from x, y, new x and a random generator."""


def r2_rows(rows: Sequence[Row], *, repeats: int = 1000, cmip: str = "CMIP", seed: int = 0) -> list[dict[str, Any]]:
    """Compute R2 of predicting ood perplexity from metrics, from the rows of a model-selection run.

    Sets that contain a metric which some rows lack are left out.

    Parameters
    ----------
    rows
        Rows of the run.
    repeats
        Number of repetitions of the published cross-validation.
    cmip
        Estimator of CMIP: "CMIP" (nearest neighbours) or "published CMIP" (classifier).
    seed
        Random seed for the folds and for ties between splits of a tree.

    Returns
    -------
    list of dict
        One row with `r2` per way ("published protocol", "leave one model out", "leave one log out"), regressor
        ("tree" or "line"), set of metrics and configuration; and one with `ALL` for the mean over configurations, with
        the lowest of them in `least`.

    Raises
    ------
    DataError
        If no case has all models ("unfinished-run").
    """
    outcomes, table = Outcomes.of(rows), []
    for metrics in _metric_sets():
        columns = tuple(cmip if name == "CMIP" else name for name in metrics)
        if any(np.isnan(outcomes.metrics[name]).any() for name in columns):
            continue
        for way, regressor, by_configuration in _all_ways(outcomes, columns, repeats, seed):
            common = {"way": way, "regressor": regressor, "metrics": " + ".join(metrics)}
            for (user, training, testing), r2 in by_configuration.items():
                table.append(common | {"user": user, "training": training, "testing": testing, "r2": r2})
            everywhere = {"user": ALL, "training": ALL, "testing": ALL}
            values = list(by_configuration.values())
            table.append(common | everywhere | {"r2": float(np.mean(values)), "least": min(values)})
    return table


def _published_r2(
    outcomes: Outcomes, metrics: Sequence[str], *, repeats: int = 1000, seed: int = 0
) -> dict[Configuration, float]:
    """Mean adjusted R2 of regression trees over repeated two-fold cross-validation, in each configuration."""
    r2 = {}
    for configuration, cases in _configurations(outcomes).items():
        rng = generator(seed, "model-selection", "folds", *configuration)  # the same folds for every set of metrics
        x, y = _points(outcomes, metrics, cases)
        order = rng.permuted(np.tile(np.arange(len(y)), (repeats, 1)), axis=1)
        r2[configuration] = float(two_fold_r2(x, y, order, rng=rng).mean())
    return r2


def _leave_one_model_out(
    outcomes: Outcomes, metrics: Sequence[str], regressor: _Regressor, seed: int
) -> dict[Configuration, float]:
    """R2 of predicting each model from the other models of its configuration."""
    r2 = {}
    for configuration, cases in _configurations(outcomes).items():
        x, y = _points(outcomes, metrics, cases)
        model, predicted = np.tile(np.arange(len(outcomes.models)), int(cases.sum())), np.empty(len(y))
        for k in range(len(outcomes.models)):
            rng = generator(seed, "model-selection", "model out", *configuration, k)
            predicted[model == k] = regressor(x[model != k], y[model != k], x[model == k], rng)
        r2[configuration] = _r_squared(y, predicted)
    return r2


def _leave_one_log_out(
    outcomes: Outcomes, metrics: Sequence[str], regressor: _Regressor, seed: int
) -> dict[Configuration, float]:
    """R2 of predicting each configuration from those of other logs; empty if there is a single log."""
    log = np.array(_log_numbers(outcomes))
    r2 = {}
    for configuration, cases in _configurations(outcomes).items():
        others = log != log[cases][0]
        if others.any():
            rng = generator(seed, "model-selection", "log out", *configuration)
            x, y = _points(outcomes, metrics, cases)
            r2[configuration] = _r_squared(y, regressor(*_points(outcomes, metrics, others), x, rng))
    return r2


def _predict_with_tree(x: np.ndarray, y: np.ndarray, x_new: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The published regressor, a regression tree; it does not extrapolate."""
    return predict_by_tree(x, y, x_new, rng=rng)


def _predict_with_line(x: np.ndarray, y: np.ndarray, x_new: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Linear least squares; the minimum-norm solution where metrics do not vary."""
    centre, spread = x.mean(axis=0), x.std(axis=0)
    scale = np.where(spread > 0, spread, 1.0)
    slope = np.linalg.lstsq((x - centre) / scale, y - y.mean(), rcond=None)[0]
    predicted: np.ndarray = y.mean() + (x_new - centre) / scale @ slope
    return predicted


def _r_squared(y: Float[np.ndarray, " point"], predicted: Float[np.ndarray, " point"]) -> float:
    """R2 = 1 - sum of squared errors / sum of squared deviations from the mean."""
    return float(1 - ((y - predicted) ** 2).sum() / ((y - y.mean()) ** 2).sum())


_REGRESSORS: dict[str, _Regressor] = {"tree": _predict_with_tree, "line": _predict_with_line}


def _all_ways(
    outcomes: Outcomes, metrics: Sequence[str], repeats: int, seed: int
) -> list[tuple[str, str, dict[Configuration, float]]]:
    """R2 by configuration, for each way and regressor that apply."""
    results = [("published protocol", "tree", _published_r2(outcomes, metrics, repeats=repeats, seed=seed))]
    for name, regressor in _REGRESSORS.items():
        results.append(("leave one model out", name, _leave_one_model_out(outcomes, metrics, regressor, seed)))
        results.append(("leave one log out", name, _leave_one_log_out(outcomes, metrics, regressor, seed)))
    return [result for result in results if result[2]]


def _metric_sets() -> list[tuple[str, ...]]:
    """All non-empty sets of predictors, the smallest first."""
    return [subset for size in range(1, len(PREDICTORS) + 1) for subset in combinations(PREDICTORS, size)]


def _configurations(outcomes: Outcomes) -> dict[Configuration, np.ndarray]:
    """A mask of the cases of each configuration."""
    names = [case[:3] for case in outcomes.cases]
    return {one: np.array([name == one for name in names]) for one in dict.fromkeys(names)}


def _log_numbers(outcomes: Outcomes) -> list[int]:
    """A number for each case, equal for cases of the same user and training policy."""
    numbers: dict[tuple[str, str], int] = {}
    return [numbers.setdefault(case[:2], len(numbers)) for case in outcomes.cases]


def _points(outcomes: Outcomes, metrics: Sequence[str], cases: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Metrics x and ood perplexity y, with one point per case and model."""
    x = np.stack([outcomes.metrics[name][cases].ravel() for name in metrics], axis=1)
    return x, outcomes.ood[cases].ravel()
