"""Which metrics tell ood perplexity: trees against scikit-learn's, and ways of leaving out on constructed cases."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import r2_score
from sklearn.model_selection import RepeatedKFold
from sklearn.tree import DecisionTreeRegressor

from clickshift.experiments.model_selection._outcomes import Outcomes
from clickshift.experiments.model_selection._regression_tree import predict_by_tree, two_fold_r2
from clickshift.experiments.model_selection.r2 import (
    PREDICTORS,
    _leave_one_log_out,
    _leave_one_model_out,
    _predict_with_line,
    _predict_with_tree,
    _published_r2,
    r2_rows,
)
from clickshift.experiments.model_selection.regret import ALL
from tests.experiments.model_selection.rows import Rows, rows_of_log


def test_one_feature_gives_scikit_learns_tree(rng: np.random.Generator) -> None:
    """No two features can be equally good: equal to the last digit, also with repeated values and after 64 points."""
    for n, decimals in ((1, 9), (2, 9), (35, 9), (35, 1), (300, 2)):
        x, y, new = np.round(rng.normal(size=(n, 1)), decimals), rng.normal(size=n), rng.normal(size=(200, 1))
        theirs = DecisionTreeRegressor(random_state=0).fit(x, y).predict(new)
        np.testing.assert_allclose(predict_by_tree(x, y, new, rng=rng), theirs, rtol=1e-12)


def test_a_grown_tree_knows_its_points(rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(100, 4)), rng.normal(size=100)
    np.testing.assert_allclose(predict_by_tree(x, y, x, rng=rng), y)
    same = np.zeros((5, 2))
    np.testing.assert_allclose(predict_by_tree(same, np.arange(5.0), same[:1], rng=rng), [2.0])


def test_cross_validation_like_scikit_learns(rng: np.random.Generator) -> None:
    """Ties between features are broken at random by both, so the means over repeats are compared."""
    x = rng.normal(size=(70, 3))
    y = x[:, 0] + np.abs(x[:, 1]) + 0.3 * rng.normal(size=70)
    scores = []
    for train, test in RepeatedKFold(n_splits=2, n_repeats=150, random_state=0).split(x):
        said = DecisionTreeRegressor(random_state=0).fit(x[train], y[train]).predict(x[test])
        scores.append(1 - (1 - r2_score(y[test], said)) * 34 / (35 - 3 - 1))
    order = rng.permuted(np.tile(np.arange(70), (2000, 1)), axis=1)
    ours = two_fold_r2(x, y, order, rng=rng)
    assert ours.shape == (2000, 2)
    error = np.std(scores) / np.sqrt(len(scores)) + ours.std() / np.sqrt(ours.size)
    assert abs(ours.mean() - np.mean(scores)) < 3 * error < 0.05


def test_folds_of_one_feature_are_exact(rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(31, 1)), rng.normal(size=31)
    order = rng.permutation(31)[None]
    halves = [(order[0, 16:], order[0, :16]), (order[0, :16], order[0, 16:])]
    expected = []
    for train, test in halves:
        r2 = r2_score(y[test], DecisionTreeRegressor().fit(x[train], y[train]).predict(x[test]))
        expected.append(1 - (1 - r2) * (len(test) - 1) / (len(test) - 2))
    np.testing.assert_allclose(two_fold_r2(x, y, order, rng=rng)[0], expected)


def _outcomes(ood: dict[tuple[str, str], float], rng: np.random.Generator, seeds: int = 10) -> Rows:
    """Seven models whose ind perplexity tells them apart; `ood` says how it turns into ood perplexity, log by log."""
    rows: Rows = []
    names = "abcdefg"
    for (user, training), slope in ood.items():
        for seed in range(seeds):
            models = {}
            for k, name in enumerate(names):
                ind = 1.2 + 0.01 * k + 0.001 * rng.normal()
                metrics = {"ind_perplexity": ind, "nDCG@10": rng.random(), "cmip": rng.random()}
                metrics |= {"mean_dependence": rng.random()}
                models[name] = metrics | {"ood.Uniform": 1.3 + slope * (ind - 1.2), "ood.Oracle": 1.3 - (ind - 1.2)}
            rows += rows_of_log(models, user=user, training=training, seed=seed)
    return rows


def test_a_line_predicts_new_models_and_a_tree_only_known_ones(rng: np.random.Generator) -> None:
    outcomes = Outcomes.of(_outcomes({("PBM", "NoisyOracle"): 1.0}, rng))
    one = ("PBM", "NoisyOracle", "Uniform")
    assert _published_r2(outcomes, ["ind PPL"], repeats=20)[one] > 0.95
    assert _leave_one_model_out(outcomes, ["ind PPL"], _predict_with_line, 0)[one] == pytest.approx(1)
    tree = _leave_one_model_out(outcomes, ["ind PPL"], _predict_with_tree, 0)[one]
    assert 0.5 < tree < 0.95, "its neighbours' perplexity is the best that a tree can say"
    assert _published_r2(outcomes, ["nDCG"], repeats=20)[one] < 0
    assert _leave_one_log_out(outcomes, ["ind PPL"], _predict_with_line, 0) == {}


def test_what_holds_for_other_logs(rng: np.random.Generator) -> None:
    same = Outcomes.of(_outcomes({("PBM", "NoisyOracle"): 1.0, ("DBN", "NoisyOracle"): 1.0}, rng))
    for metrics in (["ind PPL"], ["ind PPL", "nDCG"]):
        found = _leave_one_log_out(same, metrics, _predict_with_line, 0)
        assert set(found) == {(user, "NoisyOracle", to) for user in ("PBM", "DBN") for to in ("Uniform", "Oracle")}
        # the other log's two new policies pull in opposite directions, and nothing says which one is meant
        assert max(found.values()) < 0.2


def test_all_sets_of_metrics_have_rows(rng: np.random.Generator) -> None:
    rows = _outcomes({("PBM", "NoisyOracle"): 1.0, ("DBN", "LambdaMART"): 0.5}, rng, seeds=2)
    table = r2_rows(rows, repeats=5)
    means = [row for row in table if row["user"] == ALL]
    assert len(means) == 15 * 5
    for mean in means[:10]:
        here = [
            row["r2"]
            for row in table
            if row["user"] != ALL and all(row[key] == mean[key] for key in ("way", "regressor", "metrics"))
        ]
        assert len(here) == 4
        assert mean["r2"] == pytest.approx(np.mean(here))
        assert mean["least"] == min(here)
    without = [{name: value for name, value in row.items() if name != "cmip"} for row in rows]
    sets = {row["metrics"] for row in r2_rows(without, repeats=2)}
    assert len(sets) == 7
    assert not any("CMIP" in some for some in sets)
    assert PREDICTORS[0] in sets
