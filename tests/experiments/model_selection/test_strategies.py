"""Strategies: who is chosen, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from clickshift.errors import DataError, SpecError
from clickshift.experiments.model_selection.strategies import (
    STRATEGIES,
    Strategy,
    choose_model,
    filter_size,
    selection_probabilities,
    strategy_by_name,
)
from tests.codes import raises_code

METRICS = {
    "a": {"PPL": 1.1, "nDCG": 0.5, "CMIP": 0.5},
    "b": {"PPL": 1.2, "nDCG": 0.6, "CMIP": 0.4},
    "c": {"PPL": 1.3, "nDCG": 0.9, "CMIP": 0.3},
    "d": {"PPL": 1.4, "nDCG": 0.7, "CMIP": 0.2},
    "e": {"PPL": 1.5, "nDCG": 0.8, "CMIP": 0.1},
    "f": {"PPL": 1.6, "nDCG": 0.95, "CMIP": 0.6},
    "g": {"PPL": 1.7, "nDCG": 1.0, "CMIP": 0.7},
}


@pytest.mark.parametrize(
    ("name", "chosen"),
    [
        ("PPL", "a"),
        ("nDCG", "g"),
        ("CMIP", "e"),
        ("PPL among top CMIP", "b"),  # b c d e
        ("nDCG among top CMIP", "c"),
        ("PPL among top nDCG", "c"),  # c e f g
        ("nDCG among top PPL", "c"),  # a b c d
        ("PPL among top nDCG & CMIP", "c"),  # c e
        ("nDCG among top PPL & CMIP", "c"),  # b c d
    ],
)
def test_the_published_strategies(name: str, chosen: str) -> None:
    assert choose_model(strategy_by_name(name), METRICS) == chosen


def test_there_are_nine_published_ones_and_ours() -> None:
    published = [rule for rule in STRATEGIES.values() if set(rule.metrics) <= {"PPL", "nDCG", "CMIP"} and rule.metrics]
    assert len(published) == 9
    assert len(STRATEGIES) == 17
    assert len(set(STRATEGIES.values())) == 17


def test_a_filter_keeps_ties() -> None:
    """Of c, d and e, which share the last place that passes, all pass."""
    values = {"CMIP": np.array([[0.1, 0.2, 0.3, 0.3, 0.3, 0.4]]), "PPL": np.array([[1.5, 1.5, 1.5, 1.4, 1.3, 1.1]])}
    found = selection_probabilities(Strategy("PPL", ("CMIP",)), values, np.ones((1, 6), bool), keep=3)
    np.testing.assert_array_equal(found, [[0, 0, 0, 0, 1, 0]])


def test_equals_share_and_the_first_is_named() -> None:
    values = {"PPL": np.array([[1.2, 1.1, 1.1]])}
    np.testing.assert_array_equal(
        selection_probabilities(Strategy("PPL"), values, np.ones((1, 3), bool), keep=1), [[0, 0.5, 0.5]]
    )
    assert choose_model(Strategy("PPL"), {"x": {"PPL": 1.2}, "y": {"PPL": 1.1}, "z": {"PPL": 1.1}}) == "y"


def test_filters_without_a_common_model_fall_back_to_debiasedness() -> None:
    values = {
        "PPL": np.array([[1.0, 1.1, 1.2, 1.3]]),
        "mean dependence": np.array([[0.4, 0.3, 0.2, 0.1]]),
        "nDCG": np.array([[1.0, 0.9, 0.6, 0.5]]),
    }
    found = selection_probabilities(Strategy("nDCG", ("PPL", "mean dependence")), values, np.ones((1, 4), bool), keep=2)
    np.testing.assert_array_equal(found, [[0, 0, 1, 0]])
    first = selection_probabilities(
        Strategy("mean dependence", ("PPL", "nDCG")), values | {"nDCG": -values["nDCG"]}, found >= 0, keep=2
    )
    np.testing.assert_array_equal(first, [[0, 1, 0, 0]])  # neither is about debiasedness: the first filter


def test_only_models_of_the_subset_are_chosen() -> None:
    among = np.array([[True, True, False], [False, True, True]])
    values = {"PPL": np.array([[1.3, 1.2, 1.1], [1.0, 1.2, 1.1]])}
    np.testing.assert_array_equal(
        selection_probabilities(Strategy("PPL"), values, among, keep=2), [[0, 1, 0], [0, 0, 1]]
    )
    np.testing.assert_array_equal(
        selection_probabilities(Strategy(None), {}, among, keep=2), [[0.5, 0.5, 0], [0, 0.5, 0.5]]
    )


def test_a_model_without_a_number_is_not_chosen() -> None:
    some = {"x": {"PPL": 1.1}, "y": {"PPL": 1.3, "CMIP": 0.2}, "z": {"PPL": 1.2, "CMIP": float("nan")}}
    assert choose_model(STRATEGIES["PPL among top CMIP"], some) == "y"
    with raises_code("missing-metric", DataError, metrics=["nDCG"]):
        choose_model(STRATEGIES["nDCG"], some)


def test_names() -> None:
    assert [filter_size(n) for n in range(1, 8)] == [1, 2, 2, 3, 3, 4, 4]
    with raises_code("unknown-name", SpecError, name="oracle"):
        strategy_by_name("oracle")
    with raises_code("bad-option", SpecError, option="strategy"):
        choose_model(STRATEGIES["random model"], METRICS)
