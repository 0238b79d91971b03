"""Normalised perplexity by hand."""

from __future__ import annotations

import numpy as np
import pytest

from clickshift.errors import DataError
from clickshift.metrics.robustness import normalised_perplexity
from tests.codes import raises_code

COMPARED = [
    1.3230,
    1.3336,
    1.3271,
    1.3248,
    1.3270,
]  # DBN, PBM, UBM, NCM, CACM_minus of the policy-shift paper's table 3


def test_by_hand() -> None:
    assert normalised_perplexity(1.3230, COMPARED) == pytest.approx(0.2)
    assert normalised_perplexity(1.3336, COMPARED) == pytest.approx(0.893147, abs=1e-6)
    # UBM: .0041 / .0106 = .386792, ln 1.386792 = .326994
    assert normalised_perplexity(1.3271, COMPARED) == pytest.approx(0.526994, abs=1e-6)


def test_values_outside_follow_the_formula_down_to_the_centre() -> None:
    # dCTR: .0198 / .0106 = 1.867925, ln 2.867925 = 1.053589
    assert normalised_perplexity(1.3428, COMPARED) == pytest.approx(1.253589, abs=1e-6)
    # .00106 below the best: ln .9 = -.105361
    assert normalised_perplexity(1.3230 - 0.00106, COMPARED) == pytest.approx(0.094639, abs=1e-6)
    assert normalised_perplexity(1.2856, COMPARED) == pytest.approx(0, abs=1e-12), (
        "the oracle: 1 - 3.5 has no logarithm"
    )


def test_arrays_keep_their_shape() -> None:
    values = np.array([[1.2, 1.3], [1.4, np.nan]])
    result = normalised_perplexity(values, np.array([1.2, 1.4]))
    assert result.shape == (2, 2)
    assert result.ravel() == pytest.approx([0.2, 0.2 + np.log(1.5), 0.2 + np.log(2), np.nan], nan_ok=True)


def test_equal_models_have_no_scale() -> None:
    assert normalised_perplexity(1.3, [1.3, 1.3]) == 0.2
    assert normalised_perplexity(1.2, [1.3]) == 0.2


@pytest.mark.parametrize("among", [[], [1.2, float("nan")], [1.2, float("inf")]])
def test_models_without_a_perplexity_are_refused(among: list[float]) -> None:
    with raises_code("not-finite", DataError):
        normalised_perplexity(1.2, among)
