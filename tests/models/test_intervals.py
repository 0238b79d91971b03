"""Intervals of probabilities from the error of their logits."""

from __future__ import annotations

import numpy as np
import pytest

from clickshift.errors import DataError
from clickshift.models.intervals import beta_interval
from tests.codes import raises_code


def test_in_the_middle_they_are_the_usual_ones() -> None:
    low, high = beta_interval(np.array([0.4]), np.array([0.02]), 0.95)
    step = 1.959964 * 0.02 * 0.4 * 0.6
    assert (low[0], high[0]) == pytest.approx((0.4 - step, 0.4 + step), abs=1e-4)


def test_a_document_that_was_never_clicked_has_a_low_upper_end() -> None:
    """746 skips and a prior of .1 clicks in one impression: the exact 97.5 % bound without a prior is 3.7 / 746."""
    p = 0.1 / 747
    low, high = beta_interval(np.array([p]), np.array([1 / np.sqrt(747 * p * (1 - p))]), 0.95)
    assert low[0] < 1e-9
    assert 0.0005 < high[0] < 0.01


def test_what_is_fixed_by_convention_has_no_width() -> None:
    low, high = beta_interval(np.array([1.0, 0.5]), np.array([0.0, 0.0]), 0.95)
    assert low.tolist() == high.tolist() == [1.0, 0.5]


def test_what_is_unknown_is_everything_or_nan() -> None:
    low, high = beta_interval(np.array([0.3, 0.3]), np.array([np.inf, np.nan]), 0.95)
    assert low[0] < 0.01
    assert high[0] > 0.99
    assert np.isnan(low[1])
    assert np.isnan(high[1])


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0])
def test_levels_are_shares(level: float) -> None:
    with raises_code("bad-level", DataError, value=level):
        beta_interval(np.array([0.5]), np.array([0.1]), level)
