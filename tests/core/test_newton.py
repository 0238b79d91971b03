"""Linear systems of Newton's method: against numpy, and where the information matrix is no information matrix."""

from __future__ import annotations

import numpy as np
import pytest

from clickshift.core.newton import covariance, damped_newton_step


def random_information(size: int, rng: np.random.Generator) -> np.ndarray:
    root = rng.normal(size=(size, size))
    return root @ root.T + 0.1 * np.eye(size)


@pytest.mark.parametrize("size", [1, 2, 7])
def test_step_and_covariance_are_those_of_the_inverse(size: int, rng: np.random.Generator) -> None:
    information, slope = random_information(size, rng), rng.normal(size=size)
    inverse = np.linalg.inv(information)
    np.testing.assert_allclose(damped_newton_step(information, slope), inverse @ slope, rtol=1e-9)
    np.testing.assert_allclose(covariance(information), inverse, rtol=1e-9)


def test_a_step_goes_uphill_where_the_information_is_not_positive_definite(rng: np.random.Generator) -> None:
    information, slope = random_information(4, rng) - 2 * np.eye(4), rng.normal(size=4)
    assert np.linalg.eigvalsh(information)[0] < 0
    assert slope @ damped_newton_step(information, slope) > 0
    assert (np.linalg.eigvalsh(covariance(information)) > 0).all()


@pytest.mark.parametrize("seed", range(8))
def test_rounding_does_not_decide_whether_a_direction_is_identified(seed: int) -> None:
    """Ratios are identified and their common factor is not: the exact information matrix is singular."""
    rng = np.random.default_rng(seed)
    weight = np.triu(rng.uniform(0.5, 2, (6, 6)), 1)
    weight += weight.T
    information = (np.diag(weight.sum(axis=1)) - weight) * np.logspace(0, 4, 6)[:, None] * np.logspace(0, 4, 6)
    information += 1e-15 * seed * np.diag(np.diag(information))  # the decomposition succeeds, or it fails
    assert np.linalg.eigvalsh(covariance(information))[-1] == pytest.approx(100)


def test_scales_of_parameters_may_differ() -> None:
    variances = np.array([1e-9, 1.0, 1e9])
    np.testing.assert_allclose(covariance(np.diag(1 / variances)), np.diag(variances))


def test_no_parameters_need_no_step() -> None:
    assert damped_newton_step(np.empty((0, 0)), np.empty(0)).shape == (0,)
    assert covariance(np.empty((0, 0))).shape == (0, 0)


def test_an_information_matrix_must_be_finite() -> None:
    with pytest.raises(ValueError, match="infs or NaNs"):
        damped_newton_step(np.full((2, 2), np.nan), np.ones(2))
