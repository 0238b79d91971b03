"""Known truths, the null, intervals, and what sets a biased model apart from a noisy one."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from clickshift.debiasedness._mean_dependence import mean_dependence_regression
from clickshift.debiasedness.metrics import CMIP, MeanDependence, untestable
from clickshift.debiasedness.scored_pairs import ScoredPairs, mid_ranks
from clickshift.errors import DataError, SpecError
from tests.codes import raises_code
from tests.suite import Study

SHARE = np.array([0.5, 0.3, 0.15, 0.05])
LINE_IN_RANKS = 3 / np.pi
"""The squared correlation of a normal variable with its rank: what a line in ranks can explain of a line in scores."""


def normal_rows(
    rng: np.random.Generator, queries: int, correlation: float, *, by_query: float = 0.0, uneven: float = 0.0
) -> ScoredPairs:
    """Ten documents per query; within a label, estimate and logging score are normal with this correlation.

    `by_query` is the share of both variances that rows of a query have in common; `uneven` makes the estimate noisier
    for documents that the logging policy disliked.
    """
    n, query = queries * 10, np.repeat(np.arange(queries), 10)
    label = rng.choice(len(SHARE), n, p=SHARE).astype(float)
    common = rng.standard_normal((2, queries))[:, query]
    liked, own = np.sqrt(by_query) * common + np.sqrt(1 - by_query) * rng.standard_normal((2, n))
    estimate = correlation * liked + np.sqrt(1 - correlation**2) * own * np.exp(-uneven * liked)
    return ScoredPairs.of(query, estimate=estimate + 2 * label, logging=liked + label, label=label)


def information(correlation: float) -> float:
    return float(-0.5 * np.log(1 - correlation**2))


@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.7])
def test_known_truths(correlation: float) -> None:
    rng = np.random.default_rng(0)
    rows = [normal_rows(rng, 300, correlation) for _ in range(20)]
    cmip = [CMIP(permutations=0, subsamples=0)(r, rng=rng).value for r in rows]
    share = [MeanDependence(permutations=0, subsamples=0)(r, rng=rng).value for r in rows]
    assert np.mean(cmip) == pytest.approx(information(correlation), abs=0.02)
    assert np.mean(share) == pytest.approx(correlation**2 * LINE_IN_RANKS, abs=0.015)


def test_discrete_truth() -> None:
    """Two values each, equal with probability .9: .3680 nats, of which ties in random order hide nothing here."""
    rng = np.random.default_rng(1)
    x = rng.integers(2, size=6000)
    y = np.where(rng.random(6000) < 0.9, x, 1 - x)
    truth = np.log(2) - stats.entropy([0.9, 0.1])
    rows = ScoredPairs.of(np.arange(6000) // 10, estimate=x, logging=y, label=np.zeros(6000))
    assert CMIP(permutations=0, subsamples=0)(rows, rng=0).value == pytest.approx(truth, abs=0.03)


class Recorded:
    """An estimator that keeps all rows that it was asked about: the mean of some product of theirs."""

    def __init__(self) -> None:
        self.rows: list[ScoredPairs] = []
        self.values: list[float] = []

    def __call__(self, rows: ScoredPairs, rng: np.random.Generator) -> float:
        self.rows.append(rows)
        self.values.append(float((rows.estimate * (1 + rows.logging)).mean()))
        return self.values[-1]


def test_the_null_exchanges_logging_scores_between_rows_of_equal_query_and_label() -> None:
    rows, asked = normal_rows(np.random.default_rng(2), 20, 0.1), Recorded()
    found = CMIP(asked, permutations=19, subsamples=0)(rows, rng=2)
    assert asked.rows[0] is rows
    assert len(asked.rows) == 20
    for null in asked.rows[1:]:
        for column in ("query", "estimate", "label"):
            np.testing.assert_array_equal(getattr(null, column), getattr(rows, column))
        order, before = (np.lexsort((r.logging, r.label, r.query)) for r in (null, rows))
        np.testing.assert_array_equal(null.logging[order], rows.logging[before])
        assert (null.logging == rows.logging).mean() < 0.5, "about one row of each query and label keeps its score"
    value, null = asked.values[0], np.array(asked.values[1:])
    assert 0 < (null >= value).sum() < 19
    assert found.p_value == (1 + (null >= value).sum()) / 20
    assert (found.null_mean, found.null_high) == pytest.approx((null.mean(), np.quantile(null, 0.95)))


def test_intervals_come_from_halves_of_the_queries() -> None:
    """The spread of a mean over random halves is its standard error over queries; 400 halves tell it to 3.5 %."""
    rows, asked = normal_rows(np.random.default_rng(3), 40, 0.0, by_query=0.3), Recorded()
    found = CMIP(asked, permutations=0, subsamples=400, level=0.9)(rows, rng=3)
    assert len(asked.rows) == 401
    for half in asked.rows[1:]:
        query, times = np.unique(half.query, return_counts=True)
        assert (len(query), set(times)) == (20, {10})
        np.testing.assert_array_equal(half.logging, rows.logging[np.isin(rows.query, query)])
    by_row = rows.estimate * (1 + rows.logging)
    error = by_row.reshape(40, 10).mean(axis=1).std(ddof=1) / np.sqrt(40)
    assert found.high - found.low == pytest.approx(2 * 1.645 * error, rel=0.12)
    assert (found.high + found.low) / 2 == pytest.approx(found.value)


def test_dependence_is_found() -> None:
    rng = np.random.default_rng(2)
    for metric in (CMIP(permutations=19, subsamples=0), MeanDependence(permutations=19, subsamples=0)):
        assert [metric(normal_rows(rng, 60, 0.5), rng=rng).p_value for _ in range(3)] == [0.05] * 3


def rows_with_query_effects(rng: np.random.Generator, correlation: float) -> ScoredPairs:
    """25 queries, each with its own level (sd 3) of both scores; within it they are normal with this correlation."""
    rows = normal_rows(rng, 25, correlation)
    level = 3 * rng.standard_normal((2, 25))[:, rows.query]
    return ScoredPairs(rows.query, rows.estimate + level[0], rows.logging + level[1], rows.label)


@pytest.mark.parametrize("metric", [CMIP(permutations=19, subsamples=0), MeanDependence(19, 0)])
def test_levels_of_queries_are_no_dependence(metric: CMIP | MeanDependence) -> None:
    """Of 40 logs at 5 %, 8 or more would happen once in 1,000 times; exchanged between queries, 29 of them are."""
    rng = np.random.default_rng(12)
    found = [metric(rows_with_query_effects(rng, 0.0), rng=rng).p_value for _ in range(40)]
    assert sum(p <= 0.05 for p in found) < 8


def test_levels_of_queries_hide_no_dependence() -> None:
    rng = np.random.default_rng(13)
    rows = [rows_with_query_effects(rng, 0.6) for _ in range(10)]
    assert sum(MeanDependence(19, 0)(r, rng=rng).p_value <= 0.05 for r in rows) >= 8
    assert sum(CMIP(permutations=19, subsamples=0)(r.within_queries(), rng=rng).p_value <= 0.05 for r in rows) >= 8


def test_queries_with_one_judged_document_are_exchanged_with_each_other() -> None:
    rng = np.random.default_rng(14)
    query = np.r_[np.arange(100), np.repeat(np.arange(100, 105), 4)]
    logging = np.r_[rng.normal(size=100), 10.0 + np.arange(20)]
    rows, asked = ScoredPairs.of(query, estimate=logging, logging=logging, label=np.zeros(120)), Recorded()
    CMIP(asked, permutations=1, subsamples=0)(rows, rng=14)
    null = asked.rows[1].logging
    assert (null[:100] == logging[:100]).mean() < 0.1
    np.testing.assert_array_equal(np.sort(null[:100]), np.sort(logging[:100]))
    np.testing.assert_array_equal(np.sort(null[100:].reshape(5, 4)), logging[100:].reshape(5, 4))


def test_rows_that_cannot_be_exchanged_are_not_tested() -> None:
    """Arrangements are counted by hand: 3 scores that all differ, or two of which are equal, in 6 and in 3 orders."""
    rng = np.random.default_rng(15)
    query, estimate, label = np.repeat(np.arange(30), 5), rng.normal(size=150), np.tile(np.arange(5.0), 30)
    alone = ScoredPairs.of(query, estimate=estimate, logging=rng.normal(size=150), label=label)
    constant = ScoredPairs.of(query, estimate=estimate, logging=np.ones(150), label=np.zeros(150))
    for metric in (CMIP(permutations=19, subsamples=9), MeanDependence(19, 9)):
        found = metric(alone, rng=0)
        assert found.untestable
        assert (np.isnan(found.p_value), np.isnan(found.value)) == (True, False)
        found = metric(constant, rng=0)
        assert found.untestable
        assert np.isnan([found.p_value, found.value, found.low]).all()
        assert not metric(normal_rows(rng, 30, 0.0), rng=0).untestable
    few = ScoredPairs.of([1, 1, 1, 2, 2, 2], estimate=np.arange(6), logging=[1, 2, 3, 1, 1, 2], label=np.zeros(6))
    assert np.exp(few.log_arrangements) == pytest.approx(6 * 3)
    assert untestable(few)
    assert not untestable(few.with_logging(np.array([1.0, 2, 3, 1, 3, 2])))


def test_p_values_of_mean_dependence_are_uniform_where_there_is_none() -> None:
    """Of 40 logs at 10 %, 11 or more would happen once in 500 times; the mean is within three standard errors."""
    rng = np.random.default_rng(2)
    metric = MeanDependence(permutations=9, subsamples=0)
    found = np.array([metric(normal_rows(rng, 30, 0.0, by_query=0.3), rng=rng).p_value for _ in range(40)])
    assert (found <= 0.1).sum() <= 10
    assert found.mean() == pytest.approx(0.55, abs=0.14)


def test_intervals_of_mean_dependence_cover() -> None:
    """Of 40 intervals at 80 %, fewer than 24 or all 40 would happen once in 500 times."""
    rng = np.random.default_rng(3)
    metric = MeanDependence(permutations=0, subsamples=20, level=0.8)
    found = [metric(normal_rows(rng, 60, 0.4, by_query=0.3), rng=rng) for _ in range(40)]
    assert 24 <= sum(f.low <= 0.16 * LINE_IN_RANKS <= f.high for f in found) < 40


@pytest.mark.study
def test_the_null_is_calibrated(study: Study) -> None:
    """Of 150 logs, 5 % of p-values are at most .05: more than 15 would happen once in 300 times."""
    rng, logs = np.random.default_rng(2), study.choose(smallest=3, full=150)
    metrics = {m.__class__.__name__: m for m in (CMIP(permutations=19, subsamples=0), MeanDependence(19, 0))}
    by_query = {
        name: np.array([m(normal_rows(rng, 60, 0.0), rng=rng).p_value for _ in range(logs)])
        for name, m in metrics.items()
    }
    for name, found in by_query.items():
        assert set(found) <= set(np.arange(1, 21) / 20)
        study.record(f"null of {name}", below_5_percent=(found <= 0.05).mean(), mean=found.mean(), logs=logs)
        if study.full:
            assert (found <= 0.05).sum() <= 15
            assert found.mean() == pytest.approx(0.5 + 0.5 / 20, abs=0.08)


@pytest.mark.study
@pytest.mark.parametrize("by_query", [0.0, 0.3])
def test_intervals_cover(study: Study, by_query: float) -> None:
    """Of 120 intervals at 95 %, fewer than 106 would cover once in 500 times."""
    rng, logs = np.random.default_rng(3), study.choose(smallest=3, full=120)
    truth = {CMIP(permutations=0, subsamples=25): information(0.4), MeanDependence(0, 25): 0.16 * LINE_IN_RANKS}
    covered = dict.fromkeys(truth, 0)
    for _ in range(logs):
        rows = normal_rows(rng, 100, 0.4, by_query=by_query)
        for metric, value in truth.items():
            found = metric(rows, rng=rng)
            assert found.low < found.value < found.high
            covered[metric] += found.low <= value <= found.high
    for metric, times in covered.items():
        name = f"intervals of {metric.__class__.__name__}, {by_query:.0%} of the variance by query"
        study.record(name, coverage=times / logs, level=0.95, logs=logs)
        assert times >= 106 or not study.full


def test_noise_that_depends_on_the_logging_policy_is_information_but_no_mean_dependence() -> None:
    """Of 30 logs at 10 %, 9 or more would happen once in 500 times; by the explained share, half are below 10 %."""
    rng = np.random.default_rng(4)
    metric = MeanDependence(permutations=9, subsamples=0)
    rows = [normal_rows(rng, 60, 0.0, uneven=1.2) for _ in range(30)]
    assert sum(metric(r, rng=rng).p_value <= 0.1 for r in rows) <= 8
    assert CMIP(permutations=0, subsamples=0)(rows[0], rng=rng).value > 0.15


def test_the_slope_says_which_way() -> None:
    rng = np.random.default_rng(5)
    metric = MeanDependence(permutations=0, subsamples=0)
    rows = normal_rows(rng, 200, 0.4)
    found, opposite = metric(rows, rng=0), metric(rows.with_logging(-rows.logging), rng=0)
    assert (found.direction, opposite.direction) == (1, -1)
    # the mean of a normal score grows by 2 sqrt(3) times its correlation with rank from rank 0 to rank 1
    assert found.slope == pytest.approx(0.4 * np.sqrt(12 * LINE_IN_RANKS), rel=0.1)
    assert CMIP(permutations=0, subsamples=0)(rows, rng=0).direction == 0


def test_a_mean_that_bends_back_is_found() -> None:
    rng = np.random.default_rng(6)
    rows = normal_rows(rng, 200, 0.0)
    bent = ScoredPairs(rows.query, rows.estimate + 0.5 * (rows.logging - rows.label) ** 2, rows.logging, rows.label)
    assert MeanDependence(permutations=19, subsamples=0)(bent, rng=0).p_value <= 0.05


def test_regression_is_that_of_least_squares() -> None:
    rng = np.random.default_rng(7)
    rows = normal_rows(rng, 20, 0.4)
    rank = mid_ranks(rows.label.astype(int), rows.logging)
    dummies = (rows.label[:, None] == np.unique(rows.label)).astype(float)
    design = np.hstack([dummies, dummies * rank[:, None], dummies * rank[:, None] ** 2])
    left, without = (_residuals(matrix, rows.estimate) for matrix in (design, dummies))
    freedom = len(rows) - np.array([design.shape[1], dummies.shape[1]])
    assert mean_dependence_regression(rows).share == pytest.approx(1 - (left / freedom[0]) / (without / freedom[1]))


def _residuals(design: np.ndarray, y: np.ndarray) -> float:
    return float(((y - design @ np.linalg.lstsq(design, y)[0]) ** 2).sum())


def test_constant_estimates_depend_on_nothing() -> None:
    rows = normal_rows(np.random.default_rng(8), 30, 0.0)
    for constant in (np.zeros(len(rows)), 0.1 + 0.9 * rows.label / 3):  # also where means are not exact
        flat = ScoredPairs(rows.query, constant, rows.logging, rows.label)
        found = MeanDependence(permutations=9, subsamples=9)(flat, rng=0)
        assert (found.value, found.slope, found.p_value) == (0.0, 0.0, 1.0)


def test_the_same_seed_gives_the_same_numbers() -> None:
    rows = normal_rows(np.random.default_rng(9), 30, 0.3)
    for metric in (CMIP(permutations=5, subsamples=5), MeanDependence(permutations=5, subsamples=5)):
        assert metric(rows, rng=3) == metric(rows, rng=3)


def test_scores_that_cannot_be_compared_between_queries_become_ranks() -> None:
    rng = np.random.default_rng(10)
    rows = normal_rows(rng, 300, 0.0)
    moved = ScoredPairs(rows.query, rows.estimate + rows.query, rows.logging + rows.query, rows.label)
    assert CMIP(permutations=0, subsamples=0)(moved, rng=0).value > 1
    np.testing.assert_allclose(moved.within_queries().logging, rows.within_queries().logging)
    assert set(np.unique(rows.within_queries().logging)) == set((np.arange(10) + 0.5) / 10)


def test_mid_ranks_are_those_of_scipy() -> None:
    rng = np.random.default_rng(11)
    score, group = rng.integers(4, size=50).astype(float), rng.integers(3, size=50)
    for g in range(3):
        mine = group == g
        expected = (stats.rankdata(score[mine]) - 0.5) / mine.sum()
        np.testing.assert_allclose(mid_ranks(group, score)[mine], expected)


def test_bad_settings_and_rows() -> None:
    with raises_code("bad-option", SpecError, option="estimator", value="mine"):
        CMIP("mine")
    with raises_code("bad-option", SpecError, subsamples=1):
        MeanDependence(subsamples=1)
    for option in ("permutations", "subsamples"):
        with raises_code("bad-option", SpecError, **{option: 10**30}):
            CMIP(**{option: 10**30})
    few = normal_rows(np.random.default_rng(0), 12, 0.0)
    with raises_code("too-few-queries", DataError, count=12):
        CMIP(permutations=0)(few, rng=0)
    with raises_code("not-finite", DataError, column="estimate", row=2, count=1):
        ScoredPairs.of([1, 1], estimate=[0.0, np.inf], logging=[0, 0], label=[0, 0])
