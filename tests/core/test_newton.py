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


def test_no_parameters_need_no_step() -> None:
    assert damped_newton_step(np.empty((0, 0)), np.empty(0)).shape == (0,)
    assert covariance(np.empty((0, 0))).shape == (0, 0)


def test_an_information_matrix_must_be_finite() -> None:
    with pytest.raises(ValueError, match="infs or NaNs"):
        damped_newton_step(np.full((2, 2), np.nan), np.ones(2))
