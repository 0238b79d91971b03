"""The quadrature against a sum over subsets, against a finer grid, and where there is a closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clickshift.policies._plackett_luce_marginals import fill_placements
from clickshift.policies.plackett_luce import PlackettLuceRankings
from tests.policies.small_corpora import small_corpus


def placement(score: np.ndarray, ranks: int, *, step: float = 1.0, temperature: float = 1.0) -> np.ndarray:
    rankings = PlackettLuceRankings(small_corpus(len(score)).vocabulary, score, temperature)
    out = np.zeros((len(score), ranks))
    fill_placements(np.zeros(1, np.int32), rankings.order, step, out)
    return out


def by_subsets(score: np.ndarray, ranks: int) -> np.ndarray:
    """P(the first r documents are this set) for every set; weights of those left are summed, never subtracted."""
    n = len(score)
    prob, out = np.zeros(2**n), np.zeros((n, ranks))
    prob[0] = 1.0
    for shown in range(2**n):
        rank, left = shown.bit_count(), [i for i in range(n) if not shown >> i & 1]
        if rank < ranks and left:
            weight = np.exp(score[left] - score[left].max())
            for i, share in zip(left, weight / math.fsum(weight), strict=True):
                out[i, rank] += prob[shown] * share
                prob[shown | 1 << i] += prob[shown] * share
    return out


@given(
    st.integers(1, 8),
    st.integers(1, 9),
    st.sampled_from([0.0, 0.01, 1.0, 5.0, 20.0, 60.0, 300.0, 5000.0, 1e7]),
    st.integers(0, 2**32),
)
def test_it_is_the_sum_over_subsets(n: int, ranks: int, span: float, seed: int) -> None:
    score = np.random.default_rng(seed).random(n) * span
    np.testing.assert_allclose(placement(score, ranks), by_subsets(score, ranks), atol=1e-11)


@given(st.lists(st.integers(0, 3), min_size=2, max_size=8), st.sampled_from([0.5, 10.0, 50.0]))
def test_equal_candidates_are_placed_alike(grades: list[int], factor: float) -> None:
    score = np.array(grades) * factor
    prob = placement(score, 5)
    np.testing.assert_allclose(prob, by_subsets(score, 5), atol=1e-11)
    same = score[:, None] == score
    assert all((prob[i] == prob[j]).all() for i, j in np.argwhere(same))


@pytest.mark.parametrize("ranks", [1, 3, 9, 10, 40])
@pytest.mark.parametrize("span", [0.01, 3, 12, 40, 1000])
def test_a_finer_grid_changes_nothing(span: float, ranks: int) -> None:
    score = np.random.default_rng(ranks).random(120) * span
    prob = placement(score, ranks)
    np.testing.assert_allclose(prob, placement(score, ranks, step=0.5), atol=1e-12)
    np.testing.assert_allclose(prob.sum(axis=0), 1, atol=1e-10)


def test_one_in_many() -> None:
    """A heavy document among equals: P(rank r) is a product of odds."""
    n, weight = 50, 7.0
    score = np.zeros(n)
    score[17] = np.log(weight)
    left = n - np.arange(10) + weight - 1
    missed = np.cumprod(np.append(1, 1 - weight / left[:-1]))
    np.testing.assert_allclose(placement(score, 10)[17], missed * weight / left, atol=1e-12)


def test_temperature_0_shares_the_places_of_a_tier() -> None:
    prob = placement(np.array([1.0, 3, 2, 2, 2]), 3, temperature=0)
    np.testing.assert_array_equal(prob[1], [1, 0, 0])
    np.testing.assert_array_equal(prob[0], [0, 0, 0])
    np.testing.assert_array_equal(prob[2:], np.tile([0, 1 / 3, 1 / 3], (3, 1)))


def test_scores_in_the_order_of_arrival_only_matter_relatively() -> None:
    score = np.random.default_rng(3).random(20) * 4
    np.testing.assert_allclose(placement(score + 1e4, 10), placement(score, 10), atol=1e-11)
    order = np.random.default_rng(4).permutation(20)
    np.testing.assert_allclose(placement(score[order], 10), placement(score, 10)[order], atol=1e-14)
