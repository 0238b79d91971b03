"""Regret: by hand on three models, by brute force on seven, and what was published."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from clickshift.errors import DataError
from clickshift.experiments.model_selection._outcomes import Outcomes
from clickshift.experiments.model_selection.regret import ALL, _mean_regret, published_regret, regret_rows
from clickshift.experiments.model_selection.strategies import STRATEGIES
from tests.codes import raises_code
from tests.experiments.model_selection.rows import Rows, rows_of_log

THREE = {
    "x": {"val_perplexity": 1.1, "nDCG@10": 0.5, "cmip": 0.3, "ood.Uniform": 1.300},
    "y": {"val_perplexity": 1.2, "nDCG@10": 0.7, "cmip": 0.1, "ood.Uniform": 1.202},
    "z": {"val_perplexity": 1.3, "nDCG@10": 0.9, "cmip": 0.2, "ood.Uniform": 1.200},
}


def _value(table: Rows, strategy: str, user: str = ALL, training: str = ALL, key: str = "regret") -> Any:
    return next(
        row[key] for row in table if (row["strategy"], row["user"], row["training"]) == (strategy, user, training)
    )


def test_three_models_by_hand() -> None:
    """Subsets {x,y}, {x,z}, {y,z}, {x,y,z}; two pass a filter."""
    table = regret_rows(rows_of_log(THREE))
    assert _value(table, "PPL") == pytest.approx((98 + 100 + 2 + 100) / 4)
    assert _value(table, "nDCG") == pytest.approx(0)
    assert _value(table, "CMIP") == pytest.approx((0 + 0 + 2 + 2) / 4)
    assert _value(table, "PPL among top CMIP") == pytest.approx((98 + 100 + 2 + 2) / 4)
    assert _value(table, "random model") == pytest.approx((49 + 50 + 1 + 34) / 4)
    assert _value(table, "best fixed model") == pytest.approx(0)
    assert np.isnan(_value(table, "weighted PPL")), "these rows do not have it"


def test_intervals_are_students_over_seeds_and_margins_are_means() -> None:
    rows: Rows = []
    for seed, more in enumerate((0.0, 0.002, 0.004)):
        for training, times in (("NoisyOracle", 1), ("LambdaMART", 3)):
            two = {
                "x": {"val_perplexity": 1.1, "ood.Uniform": 1.2 + times * (0.001 + more)},
                "y": {"val_perplexity": 1.2, "ood.Uniform": 1.2},
            }
            rows += rows_of_log(two, training=training, seed=seed)
    table = regret_rows(rows, strategies={"PPL": STRATEGIES["PPL"]})
    assert _value(table, "PPL", training="NoisyOracle") == pytest.approx(3)  # 1, 3, 5
    assert _value(table, "PPL", training="LambdaMART") == pytest.approx(9)  # 3, 9, 15
    assert _value(table, "PPL") == pytest.approx(6)  # 2, 6, 10
    half = 4.302653 * 4 / np.sqrt(3)  # t of two degrees of freedom
    assert _value(table, "PPL", key="low") == pytest.approx(6 - half, abs=1e-4)
    assert _value(table, "PPL", key="high") == pytest.approx(6 + half, abs=1e-4)
    assert _value(table, "PPL", "PBM", "NoisyOracle", "published_regret") == 8.115


def test_seven_models_against_a_plain_loop(rng: np.random.Generator) -> None:
    names = "abcdefg"
    columns = ("val_perplexity", "nDCG@10", "cmip", "mean_dependence", "ood.Uniform", "ood.LambdaMART")
    numbers = {name: dict(zip(columns, rng.random(6).tolist(), strict=True)) for name in names}
    outcomes = Outcomes.of(rows_of_log(numbers))
    assert [case.testing for case in outcomes.cases] == ["Uniform", "LambdaMART"]
    found = _mean_regret(outcomes, STRATEGIES["nDCG among top PPL & CMIP"])
    for case, testing in enumerate(("ood.Uniform", "ood.LambdaMART")):
        lost = []
        for size in (5, 6, 7):
            for some in combinations(names, size):
                by_ppl = sorted(some, key=lambda name: numbers[name]["val_perplexity"])[:4]
                by_cmip = sorted(some, key=lambda name: numbers[name]["cmip"])[:4]
                taken = max(set(by_ppl) & set(by_cmip), key=lambda name: numbers[name]["nDCG@10"])
                lost.append(numbers[taken][testing] - min(numbers[name][testing] for name in some))
        assert len(lost) == 29
        assert found[case] == pytest.approx(1000 * np.mean(lost))


def test_cmip_by_the_classifier_on_demand() -> None:
    models = {name: {**numbers, "cmip_classifier": numbers["nDCG@10"]} for name, numbers in THREE.items()}
    table = regret_rows(rows_of_log(models), cmip="published CMIP")
    assert _value(table, "CMIP") == pytest.approx(_value(table, "PPL")), "x, y, z in this order by both"


def test_an_unfinished_case_is_left_out() -> None:
    rows = rows_of_log(THREE) + rows_of_log({"x": THREE["x"]}, seed=1)
    assert _value(regret_rows(rows), "PPL", key="seeds") == 1
    with raises_code("unfinished-run", DataError):
        regret_rows([row for row in rows if row["kind"] == "metrics" or row["model"] == "x"])


def test_the_published_table_adds_up() -> None:
    """Users average to the column of a logging policy, both columns to the total: a slip of the pen would show."""
    number = {(row["strategy"], row["user"], row["training"]): row["regret"] for row in published_regret()}
    strategies = dict.fromkeys(row["strategy"] for row in published_regret())
    assert len(strategies) == 9
    assert set(strategies) <= set(STRATEGIES)
    for name in strategies:
        for user in (ALL, "PBM", "DBN", "MixtureDBN", "Carousel"):
            both = [number[name, user, policy] for policy in ("NoisyOracle", "LambdaMART")]
            assert number[name, user, ALL] == pytest.approx(np.mean(both), abs=0.002)
        for policy in ("NoisyOracle", "LambdaMART", ALL):
            users = [number[name, user, policy] for user in ("PBM", "DBN", "MixtureDBN", "Carousel")]
            assert number[name, ALL, policy] == pytest.approx(np.mean(users), abs=0.002)


def test_the_published_order() -> None:
    total = {row["strategy"]: row for row in published_regret() if row["user"] == ALL and row["training"] == ALL}
    order = sorted(total, key=lambda name: total[name]["regret"])
    assert order[:2] == ["nDCG among top PPL & CMIP", "nDCG among top CMIP"]
    assert order[-1] == "nDCG"
    assert all(row["error"] > 0 for row in total.values())
    by_log = {
        row["strategy"]: row["regret"]
        for row in published_regret()
        if row["training"] == "LambdaMART" and row["user"] == ALL
    }
    assert min(by_log, key=by_log.__getitem__) == "nDCG among top PPL", "where LambdaMART logs, CMIP does not help"
