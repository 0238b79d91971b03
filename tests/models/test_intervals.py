"""Intervals of probabilities from the error of their logits."""

from __future__ import annotations

import numpy as np
import pytest

from clickshift.errors import DataError
from clickshift.models.intervals import (
    beta_interval,
    counts_interval,
    counts_with_bounds,
    effective_counts,
    product_counts,
    support_of,
)
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


def test_effective_counts_are_the_counts_of_a_binomial_likelihood_whatever_the_prior() -> None:
    yes, trials = np.array([0.0, 3.0, 30.0]), np.array([7.0, 10.0, 31.0])
    for prior_yes, prior_total in ((0.1, 1.0), (20.0, 50.0)):
        p = (yes + prior_yes) / (trials + prior_total)
        error = 1 / np.sqrt((trials + prior_total) * p * (1 - p))
        counts = effective_counts(p, error, prior_yes - prior_total * p, prior_total * p * (1 - p))
        assert counts == pytest.approx(np.stack([yes, trials]))


@pytest.mark.parametrize("p", [0.02, 0.1, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("trials", [5, 20, 200])
def test_intervals_of_counts_cover(p: float, trials: int) -> None:
    """Summed over the binomial distribution, not drawn."""
    from scipy.stats import binom

    yes = np.arange(trials + 1.0)
    low, high = counts_interval(np.stack([yes, np.full(trials + 1, float(trials))]), 0.95)
    covered = ((p >= low) & (p <= high)) @ binom.pmf(yes, trials, p)
    assert covered > 0.9  # one success of 5 at .02: the lower bound is .022
    if trials * p >= 5:
        assert covered < 0.985


def test_no_success_allows_what_the_exact_interval_allows() -> None:
    low, high = counts_interval(np.array([[0.0, 0.0], [200.0, 1e-12]]), 0.95)
    assert low.tolist() == [0.0, 0.0]
    assert high[0] == pytest.approx(1 - 0.025 ** (1 / 200))
    assert high[1] == pytest.approx(1.0)


def test_counts_of_a_product_are_those_of_its_uncertain_factor() -> None:
    counts = product_counts(np.array([[30.0], [100.0]]), np.array([[1e9], [1e9]]))
    assert counts[:, 0] == pytest.approx([30.0, 100.0], rel=1e-3)


def test_support_is_by_clicks() -> None:
    counts = np.array([[9.0, 2.0, 0.1, np.nan], [90.0, 90.0, 0.2, np.nan]])
    assert support_of(counts).tolist() == ["log", "prior", "not identified", "not identified"]
    assert support_of(counts, by_trials=True).tolist()[:2] == ["log", "log"]


def test_counts_with_bounds_have_them() -> None:
    """Of five and more effective clicks: with fewer, upper bounds are exact ones, and wider."""
    e, sd = np.array([0.05, 0.3, 0.7, 0.9, 0.95]), np.array([0.2, 0.2, 0.1, 0.03, 0.01])
    low, high = e * np.exp(-1.96 * sd), e * np.exp(1.96 * sd)
    counts = counts_with_bounds(low, high)
    assert (counts[0] >= 5).all()
    np.testing.assert_allclose(counts_interval(counts, 0.95), [low, high], rtol=1e-4)


def test_an_interval_that_ends_at_1_has_no_failure() -> None:
    low = np.array([0.3, 0.6, 0.9, 0.999])
    counts = counts_with_bounds(low, np.array([1.0, 1.0, 1.0, 0.9999999]))
    np.testing.assert_array_equal(counts[0], counts[1])
    np.testing.assert_allclose(counts_interval(counts, 0.95), [low, np.ones(4)], rtol=1e-3)


def test_a_fixed_value_has_its_bounds() -> None:
    low, high = counts_interval(counts_with_bounds(np.array([0.4]), np.array([0.4])), 0.95)
    np.testing.assert_allclose([low, high], 0.4, atol=1e-4)
