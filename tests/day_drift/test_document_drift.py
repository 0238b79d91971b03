"""The test of document drift holds its level for any users and rankers, and sees drift."""

from __future__ import annotations

import numpy as np
import pytest

from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.day_drift import DocumentDrift, document_drift


def cascade_log(rng: np.random.Generator, sessions: int, slope: float, *, days: int = 7) -> tuple[Sessions, np.ndarray]:
    """Users who scan top-down and leave after a click, on two queries whose ranker changes from day to day."""
    words, _, _ = Vocabulary.of(np.repeat([0, 1], 4), np.arange(8))
    logit, trend = rng.normal(-0.5, 0.7, 8), slope * rng.standard_normal(8)
    day = rng.integers(days, size=sessions)
    first = (rng.random(sessions) < (day + 1) / (days + 1)).astype(int)  # later days show other lists
    lists = np.array([[0, 1, 2, 3], [3, 1, 0, 2], [4, 5, 6, 7], [7, 6, 4, 5]])
    of = 2 * rng.integers(2, size=sessions) + first
    pair = lists[of].astype(np.int32)
    a = 1 / (1 + np.exp(-(logit[pair] + trend[pair] * (day / (days - 1) - 0.5)[:, None])))
    click = rng.random(pair.shape) < a
    click &= np.cumsum(click, axis=1) == 1  # the first one only: clicks of a session depend on each other
    return Sessions(Rankings(words, (of // 2).astype(np.int32), pair), click), day


def test_without_drift_p_values_are_uniform_whatever_the_ranker_does() -> None:
    rng = np.random.default_rng(0)
    p = np.array([document_drift(*cascade_log(rng, 1500, 0.0)).p_value for _ in range(100)])
    for level in (0.1, 0.5, 0.9):  # four standard errors of a share
        assert abs((p < level).mean() - level) < 4 * np.sqrt(level * (1 - level) / 100)


def test_drift_is_seen_and_its_size_estimated() -> None:
    rng = np.random.default_rng(1)
    found = [document_drift(*cascade_log(rng, 20_000, 1.0)) for _ in range(10)]
    assert all(drift.severe for drift in found)
    assert np.mean([drift.change for drift in found]) == pytest.approx(1.0, abs=0.35)


def test_a_small_drift_of_a_large_log_is_significant_and_not_severe() -> None:
    drift = document_drift(*cascade_log(np.random.default_rng(2), 300_000, 0.18))
    assert drift.significant
    assert not drift.severe


def test_merged_rows_are_as_many_sessions() -> None:
    log, day = cascade_log(np.random.default_rng(3), 2000, 0.5)
    columns = np.column_stack([day, log.rankings.query, log.rankings.pair, log.click])
    _, first, count = np.unique(columns, axis=0, return_index=True, return_counts=True)
    merged = Sessions(log.rankings[first], log.click[first], count)
    one, other = document_drift(log, day), document_drift(merged, day[first])
    assert one.degrees == other.degrees
    assert one.statistic == pytest.approx(other.statistic)
    assert one.change == pytest.approx(other.change)


def test_lists_that_never_repeat_tell_nothing() -> None:
    log, day = cascade_log(np.random.default_rng(4), 2000, 1.0)
    drift = document_drift(log[np.array([0, 1])], day[:2] * 0)
    assert drift.degrees == 0
    assert not drift.significant
    assert isinstance(drift, DocumentDrift)


def test_the_covariance_is_that_of_permuted_days() -> None:
    """The statistic has the mean of its degrees of freedom if days are permuted within a list, exactly."""
    rng = np.random.default_rng(5)
    log, day = cascade_log(rng, 400, 2.0)
    of = np.unique(log.rankings.pair, axis=0, return_inverse=True)[1].ravel()
    values = []
    for _ in range(300):
        permuted = day.copy()
        for group in range(of.max() + 1):
            rows = np.flatnonzero(of == group)
            permuted[rows] = day[rng.permutation(rows)]
        drift = document_drift(log, permuted)
        values.append(drift.statistic)
    assert np.mean(values) == pytest.approx(drift.degrees, abs=4 * np.std(values) / np.sqrt(300))
