"""The test whether segments click alike: exact moments, false-alarm rate and power."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from clickshift.counts.cells import By, Cells
from clickshift.counts.segment_differences import SegmentDifference, chi_square_p_value, segment_difference
from clickshift.counts.segment_numbers import SegmentNumbers
from clickshift.data.sessions import Sessions
from tests.learners.segmented_log import FLAT, RANKS, STEEP, segmented_log


def difference(log: Sessions, by: By = "rank") -> SegmentDifference:
    segments = SegmentNumbers.in_log(log, "device")
    return segment_difference(Cells.of(log, by, segments=segments), segments)


@pytest.mark.parametrize("by", ["rank", "last_click", "prefix"])
def test_counts_by_segment_are_those_of_each_segment_alone(by: By) -> None:
    log, _ = segmented_log(sessions=400, unknown=0.2, shares=(0.2, 0.5, 0.3), curves=(FLAT, STEEP, FLAT))
    segments = SegmentNumbers.in_log(log, "device")
    cells, code = Cells.of(log, by, segments=segments), log.segments["device"].code
    n = cells.n_situations // segments.n
    assert (segments.n, cells.n_segments) == (4, 4)
    for k, rows in enumerate([code == 0, code == 1, code == 2, code == -1]):
        alone, own = Cells.of(log[rows], by), cells.situation // n == k
        assert segments.sessions[k] == rows.sum()
        for name in ("pair", "impressions", "clicks"):
            np.testing.assert_array_equal(getattr(cells, name)[own], getattr(alone, name))
        np.testing.assert_array_equal(cells.situation[own] % n, alone.situation)
    pooled, together = cells.pooled_by_rank(), Cells.of(log)
    for name in ("pair", "situation", "impressions", "clicks"):
        np.testing.assert_array_equal(getattr(pooled, name), getattr(together, name))
    coarse = cells.rolled_up("rank")
    np.testing.assert_array_equal(coarse.impressions, Cells.of(log, segments=segments).impressions)
    cells.validate()


def test_statistic_is_that_of_cochran_mantel_haenszel() -> None:
    """With two segments: (sum of observed - expected)^2 / sum of hypergeometric variances, added over ranks."""
    log, _ = segmented_log(sessions=1500, queries=5)
    code, pair, statistic = log.segments["device"].code, log.rankings.pair, 0.0
    for rank in range(log.n_ranks):
        excess = variance = 0.0
        for p in np.unique(pair[:, rank]):
            rows = pair[:, rank] == p
            n, first, clicks = rows.sum(), (rows & (code == 0)).sum(), log.click[rows, rank].sum()
            if n > 1:
                excess += log.click[rows & (code == 0), rank].sum() - first * clicks / n
                variance += first * (n - first) * clicks * (n - clicks) / (n * n * (n - 1))
        statistic += excess**2 / variance
    found = difference(log)
    assert found.statistic == pytest.approx(statistic)
    assert found.degrees_of_freedom == log.n_ranks


def test_covariance_is_that_of_all_arrangements_of_clicks() -> None:
    """Three segments of one document: every arrangement of its clicks over its sessions is equally likely."""
    from clickshift.counts.segment_differences import _add_hypergeometric

    shown, clicks = np.array([2.0, 3.0, 1.0]), 3
    arrangements = np.array([bits for bits in product([0, 1], repeat=6) if sum(bits) == clicks])
    by_segment = np.stack([arrangements[:, :2].sum(1), arrangements[:, 2:5].sum(1), arrangements[:, 5]])
    excess, expected, covariance = np.zeros((1, 3)), np.zeros((1, 3)), np.zeros((1, 3, 3))
    own = np.array([1.0, 2.0, 0.0])
    _add_hypergeometric(np.array([0, 3]), np.array([0, 1, 2], np.int32), shown, own, 1, excess, expected, covariance)
    np.testing.assert_allclose(expected[0], by_segment.mean(axis=1))
    np.testing.assert_allclose(excess[0], own - by_segment.mean(axis=1))
    np.testing.assert_allclose(covariance[0], np.cov(by_segment, bias=True))


@pytest.mark.parametrize("by", ["rank", "last_click"])
def test_false_alarms_are_as_rare_as_the_level_says(by: By) -> None:
    """200 small logs of equal users: at level .05 a rate above .08 would be two standard errors too high."""
    curves, alarms = [1 / RANKS] * 3, 0
    for seed in range(200):
        log, _ = segmented_log(curves, 600, seed=seed, shares=(0.1, 0.3, 0.6), queries=10)
        alarms += difference(log, by).p_value < 0.05
    assert alarms <= 16


def test_clear_differences_are_found_and_located() -> None:
    found = difference(segmented_log(sessions=3000)[0])
    assert found.is_clear
    assert found.p_value < 1e-9
    label, rank, ratio = found.largest
    assert rank > 2
    assert (ratio > 1.2) if label == "desktop" else (ratio < 0.8)
    assert "differ in clicks" in found.sentence("device")


def test_small_differences_of_a_large_log_are_significant_but_not_clear() -> None:
    near = 1 / RANKS**0.85
    log, _ = segmented_log((1 / RANKS**0.82, near), 100_000, seed=1)
    found = difference(log)
    assert found.p_value < 0.001
    assert not found.is_clear


def test_nothing_to_compare_has_p_value_1() -> None:
    found = difference(segmented_log(sessions=40)[0])
    assert (found.degrees_of_freedom, found.p_value) == (0, 1)
    assert not found.is_clear
    assert chi_square_p_value(3.841, 1) == pytest.approx(0.05, abs=1e-4)
