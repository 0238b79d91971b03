"""Tests and marks against scipy, by hand, and against what the policy-shift paper printed."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from clickshift.errors import DataError
from clickshift.metrics.significance import corrected_p_values, not_worse_than, not_worse_than_best, welch
from tests.codes import raises_code

NAN = float("nan")


@pytest.mark.parametrize("alternative", ["two-sided", "less", "greater"])
def test_welch_is_that_of_scipy(rng: np.random.Generator, alternative: str) -> None:
    for n, m, shift, spread in [(10, 10, 0.3, 1), (10, 10, -2, 4), (3, 20, 0.5, 0.1), (2, 2, 0, 1), (10, 7, 30, 1)]:
        a, b = rng.normal(1, 1, n), rng.normal(1 + shift, spread, m)
        expected = stats.ttest_ind(a, b, equal_var=False, alternative=alternative).pvalue
        assert welch(a, b, alternative=alternative) == pytest.approx(expected, rel=1e-9)  # type: ignore[arg-type]


def test_welch_by_hand() -> None:
    # means 2 and 4, both variances 1, n = 3: t = -2 / sqrt(2/3) = -2.449490 with 4 degrees of freedom
    t, freedom = -2.449490, 4
    assert welch([1, 2, 3], [3, 4, 5]) == pytest.approx(2 * stats.t.cdf(t, freedom), rel=1e-5)
    assert welch([1, 2, 3], [3, 4, 5], alternative="less") == pytest.approx(stats.t.cdf(t, freedom), rel=1e-5)
    assert welch([1, 2, 3], [3, 4, 5], alternative="greater") == pytest.approx(stats.t.sf(t, freedom), rel=1e-5)


@pytest.mark.parametrize("constant", [[0.1], [0.1] * 10])
@pytest.mark.parametrize("alternative", ["two-sided", "less", "greater"])
def test_a_number_known_exactly_is_tested_by_one_sample(constant: list[float], alternative: str) -> None:
    varying = [0.08, 0.11, 0.09, 0.1, 0.07]
    expected = stats.ttest_1samp(varying, 0.1, alternative=alternative).pvalue
    assert welch(varying, constant, alternative=alternative) == pytest.approx(expected, rel=1e-9)  # type: ignore[arg-type]
    turned = {"less": "greater", "greater": "less"}.get(alternative, alternative)
    assert welch(constant, varying, alternative=turned) == pytest.approx(expected, rel=1e-9)  # type: ignore[arg-type]


def test_two_numbers_known_exactly() -> None:
    assert welch([0.1] * 10, [0.1]) == 1
    assert welch([0.1] * 10, [0.1 + 1e-16] * 3) == 1, "rounding is no difference"
    assert welch([0.1] * 10, [0.2] * 10) == 0
    assert welch([0.1], [0.2]) == 0
    assert welch([0.1], [0.2], alternative="less") == 0
    assert welch([0.1], [0.2], alternative="greater") == 1
    assert welch([0.0], [0.0]) == 1


def test_nothing_measured_gives_nothing() -> None:
    assert np.isnan(welch([1, NAN], [1, 2]))
    assert np.isnan(welch([], [1, 2]))
    assert np.isnan(welch([1, 2], [-np.inf, 1]))


def test_corrections_by_hand() -> None:
    p = [0.01, 0.04, 0.03, 0.005]
    assert corrected_p_values(p, "none").tolist() == p
    assert corrected_p_values(p, "bonferroni") == pytest.approx([0.04, 0.16, 0.12, 0.02])
    # in order .005 x 4, .01 x 3, .03 x 2, .04 x 1, the last raised to the one before
    assert corrected_p_values(p, "holm") == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert corrected_p_values([0.5, 0.9], "bonferroni").tolist() == [1, 1]
    assert corrected_p_values([0.6, 0.9], "holm").tolist() == [1, 1]
    assert corrected_p_values([], "holm").tolist() == []
    with raises_code("not-a-probability", DataError):
        corrected_p_values([0.1, NAN], "holm")


def ten(mean: float, half: float) -> list[float]:
    """Ten values with this mean and this half-width of the 95 % interval: half = t s / sqrt(10), s = d sqrt(10) / 3."""
    d = 3 * half / float(stats.t.ppf(0.975, 9))
    return [mean - d, mean + d] * 5


YANDEX_NDCG_1 = {
    "dCTR": (0.7246, 0.0010), "TopPop": (0.7225, 0.0007), "PBM": (0.5977, 0.0076), "UBM": (0.6017, 0.0083),
    "DBN": (0.5785, 0.0065), "NCM": (0.5606, 0.0057), "CACM_minus": (0.5648, 0.0105), "ARM": (0.5993, 0.0048),
    "ARM_NC": (0.6086, 0.0084),
}  # fmt: skip
CLARA_PPL_1 = {
    "dCTR": (1.4000, 0), "drCTR": (1.3932, 0), "PBM": (1.3984, 0.0084), "UBM": (1.3906, 0.0003),
    "DBN": (1.3936, 0.0061), "NCM": (1.3994, 0.0034), "CACM_minus": (1.3962, 0.0085), "ARM": (1.3994, 0.0066),
}  # fmt: skip


def test_marks_of_the_policy_shift_paper() -> None:
    """Means and bounds of appendix D give the marks of tables 1 and 2 (which print 1.3955 for PBM: the same mark)."""
    ppl = {name: ten(*bounds) for name, bounds in CLARA_PPL_1.items()}
    marks = not_worse_than_best(ppl, lower_is_better=True)
    assert {name for name, mark in marks.items() if mark == "="} == {"PBM", "DBN", "CACM_minus"}
    assert [name for name, mark in marks.items() if mark == "best"] == ["UBM"]
    ndcg = {name: ten(*bounds) for name, bounds in YANDEX_NDCG_1.items()}
    best = not_worse_than_best(ndcg, lower_is_better=False)
    assert best == {name: "best" if name == "dCTR" else "" for name in ndcg}
    dagger = not_worse_than(ndcg, "ARM_NC", lower_is_better=False)
    assert {name for name, mark in dagger.items() if mark == "†"} == {"dCTR", "TopPop", "UBM"}


def test_marks_with_baselines_that_do_not_vary() -> None:
    values: dict[str, list[float]] = {"PBM": ten(1.30, 0.01), "rCTR": [1.31], "dCTR": [1.305] * 10, "gCTR": [1.4]}
    # PBM's bounds are 1.29 to 1.31: a number inside is not significantly worse, and rCTR is just at the bound
    assert not_worse_than_best(values, lower_is_better=True, level=0.951) == {
        "PBM": "best",
        "rCTR": "=",
        "dCTR": "=",
        "gCTR": "",
    }
    assert not_worse_than_best(values, lower_is_better=True, level=0.949)["rCTR"] == ""
    assert not_worse_than_best(values, lower_is_better=False) == {"PBM": "", "rCTR": "", "dCTR": "", "gCTR": "best"}
    only = {"rCTR": [1.31] * 10, "copy": [1.31], "gCTR": [1.4]}
    assert not_worse_than_best(only, lower_is_better=True) == {"rCTR": "best", "copy": "=", "gCTR": ""}


def test_correction_forgives_where_many_are_compared() -> None:
    values = {"A": ten(1.0, 0.01), "B": ten(1.016, 0.01), **{f"C{i}": ten(2.0, 0.01) for i in range(8)}}
    p = stats.ttest_ind(values["A"], values["B"], equal_var=False).pvalue
    assert 0.05 / 9 < p < 0.05, "significant alone, not among nine tests"
    marks = [
        not_worse_than_best(values, lower_is_better=True),
        not_worse_than_best(values, lower_is_better=True, correction="bonferroni"),
        not_worse_than_best(values, lower_is_better=True, correction="holm"),
    ]
    assert [mark["B"] for mark in marks] == ["", "=", ""], "the eight far ones come first in Holm's order"
    assert [mark["C3"] for mark in marks] == ["", "", ""]


def test_models_without_values_have_no_mark() -> None:
    values = {"A": [1.0, 1.1], "ARM_NC": [NAN, NAN], "failed": []}
    assert not_worse_than_best(values, lower_is_better=True) == {"A": "best", "ARM_NC": "", "failed": ""}
    assert not_worse_than_best({"ARM_NC": [NAN]}, lower_is_better=True) == {"ARM_NC": ""}
    assert not_worse_than(values, "ARM_NC", lower_is_better=True) == {"A": "", "ARM_NC": "", "failed": ""}
    with raises_code("unknown-name", DataError, value="ARM"):
        not_worse_than(values, "ARM", lower_is_better=True)
    with raises_code("bad-level", DataError, value=95):
        not_worse_than_best(values, lower_is_better=True, level=95)
