"""What estimators make of each day from the others, against a loop over sessions."""

from __future__ import annotations

import numpy as np
import pytest

from clickshift.data.days import days_of
from clickshift.data.sessions import Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import DataError
from clickshift.ope import Estimator, GroupedLog
from clickshift.ope.daily_residuals import DayResidual, ResidualDrift, day_residuals
from clickshift.testing import random_rankings
from tests.codes import raises_code
from tests.ope.small_worlds import DOCS, by_definition, list_frequencies, records_of


@pytest.mark.parametrize("name", ["List", "IP", "PBM"])
def test_each_day_is_the_target_of_all_others(name: str, rng: np.random.Generator) -> None:
    words, _, _ = Vocabulary.of(np.zeros(DOCS, int), np.arange(DOCS))
    rankings = random_rankings(words, 300, 2, rng=rng)
    log = Sessions(rankings, (rng.random(rankings.pair.shape) < 0.4) & rankings.shown)
    day = rng.integers(0, 3, 300)
    found = day_residuals(GroupedLog.of(log), day, ("a", "b", "c"), [Estimator.named(name)], clip=2.0)
    assert [(r.day, r.estimator) for r in found] == [(d, name) for d in "abc"]
    for d, r in enumerate(found):
        today, others = records_of(log[day == d], 2), records_of(log[day != d], 2)
        h, pi = list_frequencies(today), list_frequencies(others)
        assert r.estimated == pytest.approx(by_definition(name, others, h, pi, [1.0, 1.0], 2.0)[0], rel=1e-12)
        earned = [sum(c) for _, _, c in today]
        assert r.earned == pytest.approx(np.mean(earned), rel=1e-12)
        assert r.error == pytest.approx(np.std(earned) / np.sqrt(len(earned)), rel=1e-12)
        assert r.residual == r.estimated - r.earned
        assert r.sessions == len(today)


def test_drift_weighs_days_by_sessions() -> None:
    days = [DayResidual("IP", "a", 30, 1.0, 1.2, 0.1), DayResidual("IP", "b", 10, 1.0, 0.6, 0.3)]
    (drift,) = ResidualDrift.of(days)
    assert drift.mean == pytest.approx((30 * 0.2 - 10 * 0.4) / 40)
    assert drift.rms == pytest.approx(np.sqrt((30 * 0.04 + 10 * 0.16) / 40))
    assert drift.sampling_rms == pytest.approx(np.sqrt((30 * 0.01 + 10 * 0.09) / 40))


def test_times_become_days() -> None:
    hours = np.array(["2024-01-01T10", "2024-01-02T09", "2024-01-01T23"], "datetime64[h]")
    day, names = days_of(hours)
    assert (day.tolist(), names) == ([0, 1, 0], ("2024-01-01", "2024-01-02"))
    with raises_code("bad-days", DataError, count=5000):
        days_of(np.arange(5000))
