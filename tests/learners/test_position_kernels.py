"""Rare documents borrow sessions of documents that usually stand at their rank."""

from __future__ import annotations

import numpy as np
import pytest

import clickshift as cs
from clickshift.counts.cells import By, Cells, rank_of
from clickshift.data.sessions import Sessions
from clickshift.learners._position_kernels import (
    add_products,
    add_pseudo_counts,
    attractiveness_variance,
    clicks_per_impression,
    usual_rank,
)
from clickshift.learners._priors import prior_strength_by_moments


@pytest.mark.parametrize(("by", "often"), [("rank", False), ("last_click", False), ("last_click", True)])
def test_borrowed_sessions_are_like_those_of_the_group(
    log: Sessions, by: By, often: bool, rng: np.random.Generator
) -> None:
    """Written out: clicks of a group at a rank, divided among the situations of the rank by their relative rates. No
    rate of theirs is above .95, however often results are clicked."""
    click = rng.random(log.click.shape) < 0.97
    cells = Cells.of(Sessions(log.rankings, click & log.rankings.shown, log.count) if often else log, by)
    (shown, clicked), group = cells.by_pair(), usual_rank(cells)
    skips = np.zeros(len(cells.pair))
    by_pair, by_situation = add_pseudo_counts(cells, skips)
    strength = prior_strength_by_moments(group, shown, clicked)
    relative = (np.ones(cells.n_situations) if by == "rank" else clicks_per_impression(cells))[cells.situation]
    rate, rank = np.empty(len(cells.pair)), rank_of(by, cells.n_ranks)[cells.situation]
    for k in range(len(rate)):
        alike = (group[cells.pair] == group[cells.pair[k]]) & (rank == rank[k])
        rate[k] = relative[k] * cells.clicks[alike].sum() / (cells.impressions * relative)[alike].sum()
    assert (rate > 0.95).any() == often
    rate = np.minimum(rate, 0.95 if by == "last_click" else 1)
    more = strength * cells.impressions / shown[cells.pair]
    assert np.allclose(skips, more * (1 - rate))
    assert np.allclose(by_pair, np.bincount(cells.pair, more * rate, len(shown)))
    assert np.allclose(by_situation, np.bincount(cells.situation, more * rate, cells.n_situations))
    assert np.allclose(by_pair + np.bincount(cells.pair, skips, len(shown)), np.where(shown > 0, strength, 0))


def test_rates_of_situations_compare_the_same_documents(rng: np.random.Generator) -> None:
    """Two kinds of documents: attractive ones are usually shown in the second situation, examined half as often.

    Click-through rates say that the second situation is clicked more. Documents have three impressions each.
    """
    n = 30_000
    attractive = rng.random(n) < 0.5
    second = rng.random((n, 3)) < np.where(attractive, 0.8, 0.2)[:, None]
    click = rng.random((n, 3)) < np.where(attractive, 0.8, 0.1)[:, None] * np.where(second, 0.5, 1.0)
    vocabulary = cs.Vocabulary.of(np.zeros(n, np.int64), np.arange(n))[0]
    pair, situation = np.repeat(np.arange(n), 2), np.tile(np.arange(2, dtype=np.int16), n)
    impressions = np.stack([(~second).sum(axis=1), second.sum(axis=1)], axis=1).ravel().astype(float)
    clicks = np.stack([(click & ~second).sum(axis=1), (click & second).sum(axis=1)], axis=1).ravel().astype(float)
    first, other = clicks_per_impression(Cells(vocabulary, 2, "rank", pair, situation, impressions, clicks))
    raw = (clicks[1::2].sum() / impressions[1::2].sum()) / (clicks[::2].sum() / impressions[::2].sum())
    assert raw > 1
    assert other / first == pytest.approx(0.5, rel=0.05)


def test_the_strength_is_that_of_the_rates(rng: np.random.Generator) -> None:
    group, mean = rng.integers(0, 3, 30_000), np.array([0.1, 0.2, 0.4])
    rate = rng.beta(12 * mean[group], 12 * (1 - mean[group]))
    shown = rng.integers(1, 60, 30_000).astype(float)
    clicks = rng.binomial(shown.astype(int), rate).astype(float)
    assert prior_strength_by_moments(group, shown, clicks) == pytest.approx(12, rel=0.1)


def test_examination_of_a_good_ranker_is_found_from_few_sessions() -> None:
    """Thirty for each query: with a prior mean for each rank instead, ln examination was off by .5."""
    corpus = cs.builtin_corpus(60)
    policy = cs.PlackettLuce(cs.NoisyOracle(), scores="log")
    off = []
    for seed in range(3):
        found = cs.fit("PBM", cs.simulate(corpus, policy, cs.users.PBM(), 1800, rng=seed))
        off.append(np.log(found.examination[1:6]) + np.log(np.arange(2, 7)))
    assert np.sqrt(np.mean(np.square(off))) < 0.2


@pytest.mark.parametrize("shape", [(4, 1), (8, 7), (12, 96), (4, 0)])
def test_products_of_tiles_are_those_of_matrices(shape: tuple[int, int], rng: np.random.Generator) -> None:
    rows, others, before = rng.normal(size=shape), rng.normal(size=(8, shape[1])), rng.normal(size=(shape[0],) * 2)
    matrix, products = before.copy(), np.zeros((shape[0], 8))
    add_products(rows, rows, matrix, True)
    np.testing.assert_allclose(np.triu(matrix), np.triu(before + rows @ rows.T), rtol=0, atol=1e-12)
    add_products(rows, others, products, False)
    np.testing.assert_allclose(products, rows @ others.T, rtol=0, atol=1e-12)


@pytest.mark.parametrize("share", [0.2, 1.0])
def test_variances_are_those_of_the_whole_information_matrix(share: float, rng: np.random.Generator) -> None:
    """An arrowhead matrix is inverted as a whole; pairs of few or of all situations, and a number that is not of 4s."""
    pairs, situations, total = 7, 10, 0.3
    occurs = rng.random((pairs, situations)) < share
    occurs[:, 0] = True
    pair, situation = np.nonzero(occurs)
    skips, e, a = rng.uniform(1, 50, len(pair)), rng.uniform(0.2, 0.9, situations), rng.uniform(0.1, 0.8, pairs)
    judged, free = rng.uniform(1, 20, pairs), np.arange(1, situations)
    x, y = a[pair], e[situation]
    odds = skips * x * y / (1 - x * y)
    of_pairs = np.diag((judged + total) * a * (1 - a))
    of_pairs += np.diag(np.bincount(pair, odds / (1 - x * y) * (1 - x) ** 2 - odds * x * (1 - x), pairs))
    cross, block = np.zeros((pairs, situations)), np.diag(rng.uniform(500, 900, situations))
    cross[pair, situation] = odds / (1 - x * y) * (1 - x) * (1 - y)
    whole = np.block([[of_pairs, cross[:, free]], [cross[:, free].T, block[np.ix_(free, free)]]])
    inverse, cov, variance = np.linalg.inv(whole), np.zeros((situations, situations)), np.empty(pairs)
    cov[np.ix_(free, free)] = inverse[pairs:, pairs:]
    offsets = np.append(0, np.cumsum(occurs.sum(axis=1)))
    counts = offsets, situation.astype(np.int32), skips, judged, total
    attractiveness_variance(0, pairs, *counts, e, a, cov * (1 - e) * (1 - e)[:, None], variance)  # that of ln e
    np.testing.assert_allclose(variance, np.diag(inverse)[:pairs])
