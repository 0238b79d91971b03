"""Shared mistakes by enumerating orders, and the conditional-independence test on known truths."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest

from clickshift.debiasedness.agreement import agreement_ratio, conditional_independence_test
from clickshift.debiasedness.scored_pairs import ScoredPairs
from clickshift.errors import DataError
from tests.codes import raises_code


def by_enumeration(rows: ScoredPairs) -> float:
    """Every pair in every order that equal scores may have."""
    shared = mistakes = 0.0
    for i, j in combinations(range(len(rows)), 2):
        if rows.query[i] != rows.query[j] or rows.label[i] == rows.label[j]:
            continue
        better, worse = (i, j) if rows.label[i] > rows.label[j] else (j, i)
        ways = []
        for score in (rows.estimate, rows.logging):
            tied = score[better] == score[worse]
            ways.append([True, False] if tied else [bool(score[better] < score[worse])])
        cases = list(product(*ways))
        shared += sum(model and policy for model, policy in cases) / len(cases)
        mistakes += sum(model or policy for model, policy in cases) / len(cases)
    return shared / mistakes


@pytest.mark.parametrize("values", [2, 3, 1000])
def test_agreement_by_enumeration(rng: np.random.Generator, values: int) -> None:
    for _ in range(20):
        query, label = rng.integers(5, size=40), rng.integers(3, size=40)
        estimate, logging = rng.integers(values, size=(2, 40))
        rows = ScoredPairs.of(query, estimate=estimate, logging=logging, label=label)
        assert agreement_ratio(rows) == pytest.approx(by_enumeration(rows), rel=1e-12)


def test_agreement_of_extremes() -> None:
    label = [0, 1, 2, 3]
    cases = {
        (0, 1, 2, 3, 0, 1, 2, 3): 0.0,  # no mistakes
        (3, 2, 1, 0, 3, 2, 1, 0): 1.0,  # all mistakes shared
        (3, 2, 1, 0, 0, 1, 2, 3): 0.0,  # the model's own
        (1, 0, 2, 3, 0, 1, 3, 2): 0.0,  # one each, different ones
        (0, 0, 0, 0, 3, 2, 1, 0): 0.5,  # a model that says nothing orders half of the pairs as the policy does
        (0, 0, 0, 0, 0, 0, 0, 0): 1 / 3,  # of two coins with a head among them
    }
    for scores, expected in cases.items():
        rows = ScoredPairs.of([1] * 4, estimate=scores[:4], logging=scores[4:], label=label)
        assert agreement_ratio(rows) == pytest.approx(expected), scores


def test_agreement_depends_on_orders_alone(rng: np.random.Generator) -> None:
    query, label = rng.integers(20, size=300), rng.integers(5, size=300)
    estimate, logging = rng.normal(size=(2, 300)) + label
    rows = ScoredPairs.of(query, estimate=estimate, logging=logging, label=label)
    shuffled = rows[rng.permutation(300)]
    scaled = ScoredPairs.of(query, estimate=np.exp(estimate), logging=7 * logging - 3, label=label**2)
    assert agreement_ratio(rows) == agreement_ratio(shuffled) == agreement_ratio(scaled)


def test_agreement_needs_pairs_of_different_labels() -> None:
    rows = ScoredPairs.of([1, 1, 2], estimate=[1, 2, 3], logging=[1, 2, 3], label=[1, 1, 0])
    with raises_code("no-comparable-documents", DataError, queries=2):
        agreement_ratio(rows)


def rows_of(n: int, rng: np.random.Generator, *, dependent: bool) -> ScoredPairs:
    label = rng.integers(5, size=n)
    logging = label + rng.normal(size=n)
    estimate = (logging if dependent else label) + rng.normal(size=n)
    return ScoredPairs.of(np.arange(n), estimate=estimate, logging=logging, label=label)


def test_dependence_is_found_and_independence_too(rng: np.random.Generator) -> None:
    verdicts = {
        dependent: [
            conditional_independence_test(rows_of(3000, rng, dependent=dependent), rng=seed).independent
            for seed in range(8)
        ]
        for dependent in (True, False)
    }
    assert not any(verdicts[True])
    assert sum(verdicts[False]) >= 6, "guessing crosses two standard errors in 2 % of tests"


def test_threshold_and_seeds(rng: np.random.Generator) -> None:
    rows = rows_of(3000, rng, dependent=False)
    found = conditional_independence_test(rows, rng=3)
    assert found.test_rows == 1000, "half of two thirds"
    assert found.threshold == pytest.approx(0.5 - 0.0316228, abs=1e-6)
    assert (found.loss * 1000) % 1 == pytest.approx(0, abs=1e-9)
    assert found == conditional_independence_test(rows, rng=3)
    assert found != conditional_independence_test(rows, rng=4)


def test_the_test_needs_rows(rng: np.random.Generator) -> None:
    with raises_code("too-few-rows", DataError, count=90):
        conditional_independence_test(rows_of(90, rng, dependent=True), rng=0)
