"""Intervals hold the truth about as often as they say; `benchmarks/interval_coverage.py` measures it at length."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import clickshift as cs
from clickshift.errors import ClickshiftWarning
from clickshift.models.intervals import beta_interval
from tests.suite import Study


def benchmark() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "interval_coverage.py"
    spec = importlib.util.spec_from_file_location("interval_coverage", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PER_PAIR = ("attractiveness", "satisfaction", "relevance")


@pytest.mark.parametrize("name", benchmark().NAMES)
def test_errors_are_neither_half_nor_twice_what_they_should_be(name: str) -> None:
    """144 intervals for each parameter of pairs: the standard error of the rate is .02. With half the errors, .67 would
    hold the truth; with twice the errors, all."""
    for parameter, hits in benchmark().coverage(name, repeats=4, sessions=4000).items():
        if parameter in PER_PAIR:
            assert 0.88 < np.mean(hits) < 1, parameter
        else:  # few shared parameters
            assert np.mean(hits) > 0.6, parameter


@pytest.mark.parametrize("name", ["PBM", "UBM"])
def test_errors_are_not_far_too_small_where_lists_hardly_change(name: str) -> None:
    """Ranks are compared by few clicks there: a prior of one pseudo-session for each document decided, .3 to .8."""
    hits = benchmark().coverage(name, repeats=3, sessions=20_000, ranks=10, swaps=0.3)
    assert np.mean(hits["attractiveness"]) > 0.87
    assert np.mean(hits["examination"]) > 0.85


@pytest.mark.study
@pytest.mark.parametrize("name", benchmark().NAMES)
def test_intervals_cover_at_their_nominal_rate(name: str, study: Study) -> None:
    logs = study.choose(smallest=2, full=200)
    rates = {}
    for parameter, hits in benchmark().coverage(name, repeats=logs, sessions=4000).items():
        rates[parameter] = float(np.mean(hits))
        if parameter in PER_PAIR:
            assert len(hits) == 36 * logs
        if study.full:
            low, high = (0.93, 0.97) if parameter in PER_PAIR else (0.9, 0.99)
            assert low < rates[parameter] < high, parameter
    study.record(f"interval coverage, {name}", logs=logs, **rates)


@pytest.mark.study
@pytest.mark.parametrize("name", ["PBM", "UBM"])
def test_intervals_hold_where_lists_hardly_change(name: str, study: Study) -> None:
    logs = study.choose(smallest=2, full=100)
    hits = benchmark().coverage(name, repeats=logs, sessions=20_000, ranks=10, swaps=0.3)
    assert len(hits["attractiveness"]) == 60 * logs
    rates = {parameter: float(np.mean(held)) for parameter, held in hits.items()}
    if study.full:
        assert 0.9 < rates["attractiveness"] < 0.99
        assert 0.88 < rates["examination"] < 0.99
    study.record(f"interval coverage where lists hardly change, {name}", logs=logs, **rates)


@pytest.mark.parametrize("name", ["PBM", "UBM"])
def test_what_cannot_be_told_has_no_narrow_interval(name: str) -> None:
    """Every query has one list: how much of a rate is examination is not in the log."""
    module = benchmark()
    vocabulary = cs.Vocabulary.of(np.repeat(np.arange(20), 5), np.arange(100))[0]
    truth = module.planted(name, vocabulary, 5, np.random.default_rng(0))
    with pytest.warns(ClickshiftWarning):
        found = cs.fit(name, module.drawn(truth, 5, 20_000, 0.0, 0))
    assert found.evidence is not None
    error = found.evidence.logit_error["examination"]
    low, high = (bound[error > 0] for bound in beta_interval(found.examination, error, 0.95))
    assert (high - low).mean() > 0.5  # 0 when the directions that nothing tells were left out of the covariance
    wanted = truth.examination[error > 0]
    assert ((wanted >= low) & (wanted <= high)).mean() > 0.8
