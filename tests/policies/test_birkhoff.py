"""Birkhoff-von Neumann: weighted lists rebuild the placement, and no list shows a document twice."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clickshift.data.vocabulary import UNSEEN
from clickshift.errors import DataError
from clickshift.policies.birkhoff import decompose_placement, decompose_placements
from tests.codes import raises_code


def check(placement: np.ndarray) -> int:
    """Everything that must hold of the lists of one placement; how many there are."""
    lists, weight = decompose_placement(placement)
    length = int((placement.sum(axis=0) > 0.5).sum())
    assert lists.shape == (len(weight), placement.shape[1])
    assert (weight > 0).all()
    assert weight.sum() == pytest.approx(1, abs=1e-12)
    assert (lists[:, length:] == UNSEEN).all()
    rebuilt = np.zeros_like(placement)
    for documents, share in zip(lists[:, :length].tolist(), weight, strict=True):
        assert len(set(documents)) == length
        rebuilt[documents, range(length)] += share
    assert np.abs(rebuilt - placement).max() < 1e-9
    assert len(weight) <= np.count_nonzero(placement) + len(placement)
    return len(weight)


def mean_of_lists(rng: np.random.Generator, docs: int, ranks: int, lists: int) -> np.ndarray:
    placement = np.zeros((docs, ranks))
    for share in rng.dirichlet(np.full(lists, 0.5)):
        placement[rng.permutation(docs)[:ranks], range(ranks)] += share
    return placement


def sinkhorn(matrix: np.ndarray) -> np.ndarray:
    for _ in range(2000):
        matrix = matrix / matrix.sum(axis=1, keepdims=True)
        matrix = matrix / matrix.sum(axis=0)
    return matrix


@given(seed=st.integers(0, 10**6), docs=st.integers(1, 12), ranks=st.integers(1, 8), lists=st.integers(1, 30))
def test_means_of_random_lists_are_rebuilt(seed: int, docs: int, ranks: int, lists: int) -> None:
    check(mean_of_lists(np.random.default_rng(seed), docs, min(docs, ranks), lists))


@pytest.mark.parametrize("n", [1, 2, 5, 10])
def test_dense_doubly_stochastic_matrices_are_rebuilt(n: int, rng: np.random.Generator) -> None:
    terms = check(sinkhorn(rng.random((n, n)) + 0.01))
    assert terms <= (n - 1) ** 2 + 1  # Marcus and Ree


def test_dense_placements_of_more_documents_than_ranks_are_rebuilt(rng: np.random.Generator) -> None:
    check(sinkhorn(rng.random((30, 30)))[:, :6])


def test_entries_of_very_different_size_are_rebuilt(rng: np.random.Generator) -> None:
    placement = np.zeros((9, 5))
    for share in 10.0 ** -np.arange(1, 12):
        placement[rng.permutation(9)[:5], range(5)] += share
    placement[rng.permutation(9)[:5], range(5)] += 1 - placement.sum(axis=0)
    placement[:, :] = np.clip(placement, 0, None)
    check(placement)


def test_a_certain_list_is_one_list(rng: np.random.Generator) -> None:
    placement = np.zeros((7, 4))
    documents = rng.permutation(7)[:4]
    placement[documents, range(4)] = 1
    lists, weight = decompose_placement(placement)
    assert lists.tolist() == [documents.tolist()]
    assert weight.tolist() == [1.0]


def test_the_largest_share_is_taken_first(rng: np.random.Generator) -> None:
    placement = mean_of_lists(rng, 4, 3, 6)
    _, weight = decompose_placement(placement)

    def possible(documents: tuple[int, ...]) -> float:
        out = np.setdiff1d(np.arange(4), documents)
        return min(placement[documents, range(3)].min(), *(1 - placement[out].sum(axis=1)))

    assert weight[0] == pytest.approx(max(map(possible, itertools.permutations(range(4), 3))), abs=1e-12)


def test_short_lists_are_padded() -> None:
    lists, weight = decompose_placement(np.array([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0]]))
    assert sorted(lists.tolist()) == [[0, 1, UNSEEN], [1, 0, UNSEEN]]
    assert weight.tolist() == [0.5, 0.5]


def test_all_queries_at_once_are_each_alone(rng: np.random.Generator) -> None:
    parts = [mean_of_lists(rng, docs, 3, 5) for docs in rng.integers(3, 8, 150)]
    parts[70] = np.zeros((4, 3))  # no records
    parts[90] = np.zeros((0, 3))
    offsets = np.cumsum([0, *map(len, parts)])
    lottery = decompose_placements(offsets, np.concatenate(parts))
    assert (np.diff(lottery.query) >= 0).all()
    assert set(range(150)) - set(lottery.query.tolist()) == {70, 90}
    for query in (0, 63, 64, 71, 149):
        lists, weight = decompose_placement(parts[query])
        here = lottery.query == query
        assert np.array_equal(lottery.pair[here] - offsets[query], lists)
        assert np.array_equal(lottery.weight[here], weight)


@pytest.mark.parametrize(
    ("placement", "code", "facts"),
    [
        ([[0.5, 0.5], [0.4, 0.5]], "not-a-placement", {"rank": 1, "value": pytest.approx(0.9)}),
        ([[1.0, 1.0], [0.0, 0.0]], "not-a-placement", {"row": 1, "value": 2.0}),
        ([[1.5, 0.0], [-0.5, 1.0]], "not-a-probability", {"value": -0.5}),
        ([[0.0, 1.0], [0.0, 0.0]], "not-a-placement", {"rank": 1, "value": 0.0}),
        ([[np.nan, 1.0], [1.0, 0.0]], "not-a-probability", {}),
    ],
)
def test_what_is_no_placement_is_refused(placement: list[list[float]], code: str, facts: dict[str, Any]) -> None:
    with raises_code(code, DataError, **facts):
        decompose_placement(np.array(placement))
