"""Ratios of examination without the limit of 1: maximum, limit and reference against general optimisers."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import ndtri

import clickshift as cs
from clickshift.counts.cells import Cells
from clickshift.learners._examination_ratios import LogRatios, RatioProblem
from clickshift.learners._position_models import EXAMINATION_PRIOR, WEAK_PRIOR

PAIRS, RANKS = 6, 4
EXAMINATION = np.array([0.6, 0.9, 0.5, 0.75])  # the second rank is examined more than the first


def cells_of(rng: np.random.Generator) -> Cells:
    """Counts of documents that were shown at all ranks."""
    a = rng.uniform(0.2, 0.8, PAIRS)
    pair, rank = np.repeat(np.arange(PAIRS), RANKS), np.tile(np.arange(RANKS), PAIRS)
    impressions = rng.integers(200, 400, PAIRS * RANKS).astype(float)
    clicks = rng.binomial(impressions.astype(int), a[pair] * EXAMINATION[rank]).astype(float)
    vocabulary = cs.Vocabulary.of(np.zeros(PAIRS, np.int64), np.arange(PAIRS))[0]
    return Cells(vocabulary, RANKS, "rank", pair, rank.astype(np.int16), impressions, clicks)


def log_likelihood(theta: np.ndarray, cells: Cells) -> float:
    """Log-likelihood by the logits of attractiveness and the logarithms of examination after the first rank."""
    a, log_e = 1 / (1 + np.exp(-theta[:PAIRS])), np.append(0.0, theta[PAIRS:])
    p = a[cells.pair] * np.exp(log_e)[cells.situation]
    if (p >= 1).any():
        return -np.inf
    value = (cells.clicks * np.log(p) + (cells.impressions - cells.clicks) * np.log1p(-p)).sum()
    value += (WEAK_PRIOR.yes * np.log(a) + (WEAK_PRIOR.total - WEAK_PRIOR.yes) * np.log1p(-a)).sum()
    prior = EXAMINATION_PRIOR
    return float(value + (prior.yes * log_e - (prior.total - prior.yes) * np.exp(log_e)).sum())


def numerical_hessian(theta: np.ndarray, cells: Cells, step: float = 1e-3) -> np.ndarray:
    """Second derivatives by central differences."""
    moves, n = step * np.eye(len(theta)), len(theta)
    return np.array(
        [
            [
                sum(
                    one * two * log_likelihood(theta + one * moves[i] + two * moves[j], cells)
                    for one in (1, -1)
                    for two in (1, -1)
                )
                / (4 * step**2)
                for j in range(n)
            ]
            for i in range(n)
        ]
    )


def test_ratios_above_1_are_those_of_a_general_optimiser(rng: np.random.Generator) -> None:
    cells = cells_of(rng)
    problem = RatioProblem(cells, WEAK_PRIOR, pseudo_counts=False)
    fitted, newton = problem.maximise(np.full(RANKS, 0.5), 0, tolerance=1e-10, max_steps=100)
    start = np.append(np.full(PAIRS, -1.0), np.full(RANKS - 1, -0.5))
    options = {"maxiter": 40_000, "maxfev": 40_000, "xatol": 1e-8, "fatol": 1e-10, "adaptive": True}
    best = minimize(lambda theta: -log_likelihood(theta, cells), start, method="Nelder-Mead", options=options)
    assert newton.converged
    assert fitted.examination[1] > 1.2
    np.testing.assert_allclose(np.log(fitted.examination[1:]), best.x[PAIRS:], atol=1e-3)
    theta = np.concatenate(
        [np.log(fitted.attractiveness / (1 - fitted.attractiveness)), np.log(fitted.examination[1:])]
    )
    information = -numerical_hessian(theta, cells)
    information[range(PAIRS, len(theta)), range(PAIRS, len(theta))] -= 0.1 * fitted.examination[1:]  # the prior's
    ratios = problem.ratios(fitted, conditional=False)
    inverse = np.linalg.inv(information)
    np.testing.assert_allclose(ratios.covariance[1:, 1:], inverse[PAIRS:, PAIRS:], rtol=1e-2)
    errors, _ = problem.attractiveness_errors(fitted.examination, fitted.attractiveness, ratios.covariance)
    np.testing.assert_allclose(errors**2, np.diag(inverse)[:PAIRS], rtol=1e-2)


def normal_ratios(rng: np.random.Generator, n: int = 6) -> LogRatios:
    factor = rng.normal(size=(n, n))
    cov = factor @ factor.T / n * 0.05
    cov[0], cov[:, 0] = 0.0, 0.0
    return LogRatios(np.concatenate([[0.0, 0.3], rng.normal(-0.1, 0.2, n - 2)]), cov)


@pytest.mark.parametrize("seed", range(4))
def test_values_below_the_limit_are_the_likeliest_ones(seed: int) -> None:
    ratios = normal_ratios(np.random.default_rng(seed))
    precision, mean = np.linalg.inv(ratios.covariance[1:, 1:]), ratios.mean[1:]

    def distance(x: np.ndarray) -> float:
        return float((x - mean) @ precision @ (x - mean)) / 2

    best = minimize(distance, np.minimum(mean, 0), bounds=[(None, 0)] * len(mean), method="L-BFGS-B", tol=1e-12)
    below = ratios.below_one()
    np.testing.assert_allclose(below[1:], best.x, atol=1e-3)
    assert below[0] == 0


def test_another_reference_must_be_clearly_examined_more() -> None:
    """Of two values, the level of the test is divided by two."""
    limit = -ndtri(0.05 / 2 / 2)
    for above, better in ((0.95 * limit, 0), (1.05 * limit, 1)):
        ratios = LogRatios(np.array([0.0, 0.1 * above]), np.diag([0.0, 0.01]))
        assert ratios.better_reference(0, 1) == better


def test_many_situations_that_are_examined_alike_are_no_reason_for_another_reference(rng: np.random.Generator) -> None:
    n = 500
    mean = np.append(0.0, rng.normal(0, 0.1, n - 1))
    ratios = LogRatios(mean, np.diag(np.append(0.0, np.full(n - 1, 0.01))))
    assert ratios.better_reference(0, int(np.argmax(mean))) == 0


@pytest.mark.parametrize("seed", [3, 8, 10])
def test_of_many_small_segments_none_is_the_reference_by_chance(seed: int) -> None:
    """100 segments that examine alike: relative to a small one with many clicks, all others had half of the truth."""
    rng, (n, labels, queries, docs, ranks) = np.random.default_rng(seed), (15_000, 100, 15, 8, 5)
    share = rng.dirichlet(np.full(labels, 0.5)) + 3e-4
    country = rng.choice(labels, n, p=share / share.sum()).astype(np.int32)
    attractiveness, examination = rng.beta(1.5, 3, queries * docs), 1 / np.arange(1, ranks + 1) ** 0.5
    query = rng.integers(0, queries, n).astype(np.int32)
    pair = (query[:, None] * docs + np.argsort(rng.random((n, docs)), axis=1)[:, :ranks]).astype(np.int32)
    click = rng.random(pair.shape) < attractiveness[pair] * examination
    vocabulary = cs.Vocabulary.of(np.repeat(np.arange(queries), docs), list(range(docs)) * queries)[0]
    segments = {"country": cs.Segment(tuple(f"{k:02}" for k in range(labels)), country)}
    model = cs.fit("PBM", cs.Sessions(cs.Rankings(vocabulary, query, pair, segments=segments), click), by="country")
    assert np.abs(model.curves - examination).max() < 0.2


def test_ratios_to_another_situation_have_the_covariance_of_differences(rng: np.random.Generator) -> None:
    ratios = normal_ratios(rng)
    contrast = np.eye(6) - np.eye(6)[2]
    moved = ratios.relative_to(2)
    np.testing.assert_allclose(moved.mean, contrast @ ratios.mean)
    np.testing.assert_allclose(moved.covariance, contrast @ ratios.covariance @ contrast.T, atol=1e-15)
