"""Which metrics, known before deployment, tell a click model's perplexity under another policy?

Ood perplexity is predicted from sets of metrics, in three ways. "published" is the CMIP paper's table 1: within one
configuration (user, training policy, new policy) a fully grown tree is cross-validated in two folds over models and
seeds, so that other seeds of the same model are always in training: it is asked to recognise models it has seen. The
other two ask what somebody with a new model wants to know: "leave one model out" predicts each model from the others of
its configuration, "leave one log out" predicts a configuration from those of other users or training policies. (The
metrics of a log are the same for all its new policies: one of these would give the others away.) Their predictions are
pooled, and R2 is against the configuration's own mean: below 0, the mean would have been the better guess.
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
"""ind PPL is that on lists which the training policy ranks without randomness, as in the published table."""

Configuration = tuple[str, str, str]
_Fit = Callable[[np.ndarray, np.ndarray, np.ndarray, np.random.Generator], np.ndarray]


def r2_rows(rows: Sequence[Row], *, repeats: int = 1000, cmip: str = "CMIP", seed: int = 0) -> list[dict[str, Any]]:
    """One row per way, regressor, set of metrics and configuration, and `ALL` for the mean and the least of them.

    `repeats` are those of the published cross-validation. `cmip` as in `regret.regrets`. A set with a metric that some
    rows lack is left out.
    """
    outcomes, table = Outcomes.of(rows), []
    for metrics in _sets():
        columns = tuple(cmip if name == "CMIP" else name for name in metrics)
        if any(np.isnan(outcomes.metrics[name]).any() for name in columns):
            continue
        for way, regressor, found in _ways(outcomes, columns, repeats, seed):
            about = {"way": way, "regressor": regressor, "metrics": " + ".join(metrics)}
            for (user, training, testing), r2 in found.items():
                table.append(about | {"user": user, "training": training, "testing": testing, "r2": r2})
            everywhere = {"user": ALL, "training": ALL, "testing": ALL}
            values = list(found.values())
            table.append(about | everywhere | {"r2": float(np.mean(values)), "least": min(values)})
    return table


def _published_r2(
    outcomes: Outcomes, metrics: Sequence[str], *, repeats: int = 1000, seed: int = 0
) -> dict[Configuration, float]:
    """The mean adjusted R2 of trees over repeated two-fold cross-validation, in each configuration."""
    found = {}
    for one, here in _configurations(outcomes).items():
        rng = generator(seed, "model-selection", "folds", *one)  # the same folds for every set of metrics
        x, y = _points(outcomes, metrics, here)
        order = rng.permuted(np.tile(np.arange(len(y)), (repeats, 1)), axis=1)
        found[one] = float(two_fold_r2(x, y, order, rng=rng).mean())
    return found


def _leave_one_model_out(
    outcomes: Outcomes, metrics: Sequence[str], fit: _Fit, seed: int
) -> dict[Configuration, float]:
    found = {}
    for one, here in _configurations(outcomes).items():
        x, y = _points(outcomes, metrics, here)
        model, said = np.tile(np.arange(len(outcomes.models)), int(here.sum())), np.empty(len(y))
        for k in range(len(outcomes.models)):
            rng = generator(seed, "model-selection", "model out", *one, k)
            said[model == k] = fit(x[model != k], y[model != k], x[model == k], rng)
        found[one] = _r_squared(y, said)
    return found


def _leave_one_log_out(outcomes: Outcomes, metrics: Sequence[str], fit: _Fit, seed: int) -> dict[Configuration, float]:
    """Nothing where there is one log only."""
    log = np.array(_log_numbers(outcomes))
    found = {}
    for one, here in _configurations(outcomes).items():
        others = log != log[here][0]
        if others.any():
            rng = generator(seed, "model-selection", "log out", *one)
            x, y = _points(outcomes, metrics, here)
            found[one] = _r_squared(y, fit(*_points(outcomes, metrics, others), x, rng))
    return found


def _predict_with_tree(x: np.ndarray, y: np.ndarray, x_new: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The published regressor: it cannot say anything that it has not seen."""
    return predict_by_tree(x, y, x_new, rng=rng)


def _predict_with_line(x: np.ndarray, y: np.ndarray, x_new: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Least squares; of metrics that do not vary, the shortest solution."""
    centre, spread = x.mean(axis=0), x.std(axis=0)
    scale = np.where(spread > 0, spread, 1.0)
    slope = np.linalg.lstsq((x - centre) / scale, y - y.mean(), rcond=None)[0]
    said: np.ndarray = y.mean() + (x_new - centre) / scale @ slope
    return said


def _r_squared(y: Float[np.ndarray, " point"], said: Float[np.ndarray, " point"]) -> float:
    """1 - squared error over that of the mean."""
    return float(1 - ((y - said) ** 2).sum() / ((y - y.mean()) ** 2).sum())


_REGRESSORS: dict[str, _Fit] = {"tree": _predict_with_tree, "line": _predict_with_line}


def _ways(
    outcomes: Outcomes, metrics: Sequence[str], repeats: int, seed: int
) -> list[tuple[str, str, dict[Configuration, float]]]:
    found = [("published", "tree", _published_r2(outcomes, metrics, repeats=repeats, seed=seed))]
    for regressor, fit in _REGRESSORS.items():
        found.append(("leave one model out", regressor, _leave_one_model_out(outcomes, metrics, fit, seed)))
        found.append(("leave one log out", regressor, _leave_one_log_out(outcomes, metrics, fit, seed)))
    return [one for one in found if one[2]]


def _sets() -> list[tuple[str, ...]]:
    return [some for size in range(1, len(PREDICTORS) + 1) for some in combinations(PREDICTORS, size)]


def _configurations(outcomes: Outcomes) -> dict[Configuration, np.ndarray]:
    """Which cases belong to each."""
    names = [case[:3] for case in outcomes.cases]
    return {one: np.array([name == one for name in names]) for one in dict.fromkeys(names)}


def _log_numbers(outcomes: Outcomes) -> list[int]:
    """Equal for cases of one user and training policy."""
    numbers: dict[tuple[str, str], int] = {}
    return [numbers.setdefault(case[:2], len(numbers)) for case in outcomes.cases]


def _points(outcomes: Outcomes, metrics: Sequence[str], cases: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A point per case and model: its metrics, and its ood perplexity."""
    x = np.stack([outcomes.metrics[name][cases].ravel() for name in metrics], axis=1)
    return x, outcomes.ood[cases].ravel()
