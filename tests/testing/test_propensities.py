"""Every propensity method keeps the rules of `testing.check_propensity_method`, and others are refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Sessions
from clickshift.propensity import METHODS, Propensities, propensities
from clickshift.testing import check_propensity_method


@pytest.mark.parametrize("method", [*METHODS, "PBM", "UBM"])
def test_methods_keep_the_rules(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clickshift.propensity._rank_model._REPEATS", 1)
    slow = method in {"regression-em", "dual-learning"}
    check_propensity_method(method, seeds=[0] if slow else [0, 1, 2])


def test_intervals_are_checked_too() -> None:
    check_propensity_method(lambda log, corpus: propensities(log, "harvesting", replicates=20), seeds=[0])


def test_a_click_model_of_other_users_is_refused() -> None:
    with pytest.raises(AssertionError, match=r"examination must be recovered: at rank 3 it is 0\.450"):
        check_propensity_method("DBN", seeds=[0])


def right(log: Sessions) -> np.ndarray:
    return propensities(log, "harvesting", replicates=0).estimate


def absolute(log: Sessions, corpus: Corpus) -> np.ndarray:
    return right(log) * log.ctr_by_rank()[0]


def naive(log: Sessions, corpus: Corpus) -> np.ndarray:
    return log.ctr_by_rank() / log.ctr_by_rank()[0]


def with_a_prior(log: Sessions, corpus: Corpus) -> np.ndarray:
    """Right only where documents are as attractive as its author expected."""
    return right(log) * np.array([1, 1 if log.ctr_by_rank()[0] > 0.3 else 1.3, 1, 1])


def first_half(log: Sessions, corpus: Corpus) -> np.ndarray:
    return right(log[: len(log) // 2 + 5000])


def unknown(log: Sessions, corpus: Corpus) -> np.ndarray:
    return np.where(np.arange(4) == 2, np.nan, right(log))


def too_short(log: Sessions, corpus: Corpus) -> np.ndarray:
    return right(log)[:3]


def beside_its_interval(log: Sessions, corpus: Corpus) -> Propensities:
    curve = right(log)
    return Propensities("by hand", curve, curve - 0.02, np.r_[1, curve[1:] - 0.01], np.full(4, 0.01))


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (absolute, "must be 1 at the first rank"),
        (naive, "examination must be recovered"),
        (with_a_prior, "all documents half as attractive"),
        (first_half, "the order of sessions must not matter"),
        (unknown, "must be finite and above 0"),
        (too_short, r"one number per rank, \(4,\): got shape \(3,\)"),
        (beside_its_interval, "intervals must contain the estimate: not so at rank 2"),
    ],
)
def test_broken_methods_are_refused(
    method: Callable[[Sessions, Corpus], np.ndarray | Propensities], message: str
) -> None:
    with pytest.raises(AssertionError, match=message):
        check_propensity_method(method, seeds=[0])


def test_a_method_of_chance_is_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(AssertionError, match="the same log must give the same curve"):
        check_propensity_method(
            lambda log, corpus: right(log) * np.r_[1, rng.uniform(0.999, 1.001, 3)], seeds=[0], tolerance=0.1
        )
