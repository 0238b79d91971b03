"""Corrected labels: right on average in worlds that are small enough to enumerate, and by hand."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest

import clickshift as cs
from clickshift.counts.cells import Cells
from clickshift.counts.daily import DayCounts
from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import DataError, SpecError
from clickshift.ranking.labels import Trust, corrected_labels, count_by_rank, sessions_by_query
from tests.codes import raises_code

EXAMINATION = np.array([0.9, 0.6, 0.25])
RELEVANCE = np.array([0.8, 0.3, 0.1, 0.55])


def words(docs: int) -> Vocabulary:
    return Vocabulary.of(np.zeros(docs, np.int64), np.arange(docs))[0]


def expected_cells(ranks: int, alpha: np.ndarray, beta: np.ndarray) -> Cells:
    """One query, four documents, lists of the first `ranks` of every order, some orders more often than others: the
    clicks that 1,000 sessions give on average."""
    lists = list(permutations(range(4)))
    often = np.random.default_rng(3).dirichlet(np.ones(len(lists))) * 1000
    impressions, clicks = np.zeros((4, ranks)), np.zeros((4, ranks))
    for order, times in zip(lists, often, strict=True):
        for rank, doc in enumerate(order[:ranks]):
            impressions[doc, rank] += times
            clicks[doc, rank] += times * (alpha[rank] * RELEVANCE[doc] + beta[rank])
    pair, rank = np.nonzero(impressions)
    return Cells(words(4), ranks, "rank", pair, rank, impressions[pair, rank], clicks[pair, rank])


@pytest.mark.parametrize("correction", ["by-rank", "policy-aware", "doubly-robust"])
@pytest.mark.parametrize("false_clicks", [np.zeros(3), np.array([0.05, 0.1, 0.02])])
def test_a_correction_gives_relevance_in_expectation(correction, false_clicks) -> None:
    cells = expected_cells(3, EXAMINATION, false_clicks)
    regression = np.array([0.5, 0.1, 0.9, 0.2])  # wrong on purpose
    labels = corrected_labels(cells, correction, EXAMINATION, false_clicks=false_clicks, regression=regression)
    np.testing.assert_allclose(labels.positive / labels.total, RELEVANCE, rtol=1e-12)


def test_naive_labels_are_not_right() -> None:
    labels = corrected_labels(expected_cells(3, EXAMINATION, np.zeros(3)), "by-rank", np.ones(3))
    assert (labels.positive / labels.total < 0.75 * RELEVANCE).all()


def test_policy_aware_labels_weigh_documents_alike_however_often_they_are_shown() -> None:
    cells = expected_cells(1, EXAMINATION, np.zeros(3))
    shown = cells.by_pair()[0]
    assert shown.max() > 1.3 * shown.min()
    by_rank, aware = (corrected_labels(cells, kind, EXAMINATION) for kind in ("by-rank", "policy-aware"))
    np.testing.assert_allclose(by_rank.total, shown)
    np.testing.assert_allclose(aware.total, 1000)
    np.testing.assert_allclose(aware.positive, 1000 * RELEVANCE)


def test_ips_labels_are_sums_over_sessions(rng) -> None:
    vocabulary = words(6)
    pair = np.stack([rng.permutation(6)[:3] for _ in range(400)])
    click = rng.random((400, 3)) < 0.4
    sessions = Sessions(Rankings(vocabulary, np.zeros(400, np.int64), pair), click, rng.integers(1, 4, 400))
    labels = corrected_labels(Cells.of(sessions), "by-rank", EXAMINATION)
    positive, total = np.zeros(6), np.zeros(6)
    for row in range(400):
        for rank in range(3):
            positive[pair[row, rank]] += sessions.count[row] * click[row, rank] / EXAMINATION[rank]
            total[pair[row, rank]] += sessions.count[row]
    np.testing.assert_allclose(labels.positive, positive)
    np.testing.assert_allclose(labels.total, total)
    assert sessions_by_query(Cells.of(sessions)).tolist() == [sessions.total]


def test_trust_bias_from_what_users_do() -> None:
    trust = Trust.of(np.array([1.0, 0.5]), np.array([0.9, 0.8]), np.array([0.3, 0.2]))
    for relevance in (0.0, 0.4, 1.0):
        click = np.array([1.0, 0.5]) * (np.array([0.9, 0.8]) * relevance + np.array([0.3, 0.2]) * (1 - relevance))
        np.testing.assert_allclose(trust.alpha * relevance + trust.beta, click)
    with raises_code("not-a-probability", DataError, rank=2, alpha=0.9, beta=0.2):
        Trust(np.array([0.5, 0.9]), np.array([0.1, 0.2]))


def cells_of(impressions: list[float], clicks: list[float], ranks: list[int], *, docs: int | None = None) -> Cells:
    """One document per cell."""
    n = len(ranks)
    numbers = np.array(impressions, float), np.array(clicks, float)
    return Cells(words(docs or n), max(ranks) + 1, "rank", np.arange(n), np.array(ranks), *numbers)


def test_documents_never_shown() -> None:
    cells = cells_of([10, 10], [5, 1], [0, 1], docs=3)
    examination = np.array([1.0, 0.5])
    for kind in ("by-rank", "policy-aware"):
        labels = corrected_labels(cells, kind, examination)
        assert (labels.positive[2], labels.total[2]) == (0, 0)
    labels = corrected_labels(cells, "doubly-robust", examination, regression=np.array([0.9, 0.9, 0.4]))
    np.testing.assert_allclose(labels.positive, [5, 2, 4])  # where it was shown, the regression cancels out
    np.testing.assert_allclose(labels.total, 10)


def test_clipping() -> None:
    cells = cells_of([10, 10], [5, 1], [0, 1])
    examination, regression = np.array([1.0, 0.1]), np.array([0.9, 0.6])
    np.testing.assert_allclose(corrected_labels(cells, "by-rank", examination).positive, [5, 10])
    np.testing.assert_allclose(corrected_labels(cells, "by-rank", examination, clip=0.2).positive, [5, 5])
    np.testing.assert_allclose(corrected_labels(cells, "policy-aware", examination, clip=0.2).positive, [5, 5])
    # half of what is divided by .2 instead of .1 comes from the regression: 10 x .6 x (1 - .1 / .2) + 1 / .2
    robust = corrected_labels(cells, "doubly-robust", examination, clip=0.2, regression=regression)
    np.testing.assert_allclose(robust.positive, [5, 3 + 5])
    np.testing.assert_allclose(corrected_labels(cells, "by-rank", np.array([1.0, 0.0]), clip=0.2).positive, [5, 5])


@pytest.mark.parametrize(
    ("examination", "code", "facts"),
    [
        ([1.0, 0.0], "zero-propensity", {"rank": 2}),
        ([1.0, np.nan], "bad-examination", {"rank": 2, "ranks": 2}),
        ([1.0, -0.5], "bad-examination", {"rank": 2, "ranks": 2, "value": -0.5}),
        ([1.0], "bad-examination", {"rank": 2, "ranks": 1}),
    ],
)
def test_bad_propensities_name_the_rank(examination, code, facts) -> None:
    with raises_code(code, DataError, **facts):
        corrected_labels(cells_of([1, 1], [0, 1], [0, 1]), "by-rank", np.array(examination))


def test_ranks_that_the_log_never_shows_need_no_propensity() -> None:
    labels = corrected_labels(cells_of([4, 4], [2, 1], [0, 2]), "by-rank", np.array([1.0, 0.0, 0.5]))
    np.testing.assert_allclose(labels.positive, [2, 2])


def test_the_doubly_robust_correction_needs_a_regression() -> None:
    cells = cells_of([1, 1], [0, 1], [0, 1])
    with raises_code("missing-regression", DataError):
        corrected_labels(cells, "doubly-robust", np.ones(2))
    with raises_code("bad-regression", DataError, pairs=2):
        corrected_labels(cells, "doubly-robust", np.ones(2), regression=np.array([0.5, 1.5]))


def log_of_all_orders() -> tuple[Corpus, Sessions]:
    """Every order of four documents, some more often than others, cut to two ranks, with true propensities."""
    orders = np.array(list(permutations(range(4))), np.int32)[:, :2]
    often = np.random.default_rng(3).integers(1, 40, len(orders))
    placed = np.zeros((4, 2))
    for order, times in zip(orders, often, strict=True):
        placed[order, [0, 1]] += times
    propensity = (placed / often.sum())[orders, [0, 1]]
    rankings = Rankings(words(4), np.zeros(len(orders), np.int32), orders, propensity=propensity)
    click = np.random.default_rng(4).random(orders.shape) < 0.5
    return Corpus(words(4), np.zeros(4, np.float32)), Sessions(rankings, click, often)


def test_inverse_propensities_count_as_if_every_session_showed_every_document_at_every_rank() -> None:
    corpus, log = log_of_all_orders()
    cells = count_by_rank(corpus, log, logging="propensities")
    np.testing.assert_allclose(cells.impressions, log.total, rtol=1e-12)
    labels = corrected_labels(cells, "by-rank", EXAMINATION[:2])
    np.testing.assert_allclose(labels.total, 2 * log.total, rtol=1e-12)
    plain = count_by_rank(corpus, log)
    np.testing.assert_allclose(cells.clicks / cells.impressions, plain.clicks / plain.impressions, rtol=1e-12)


def test_every_impression_is_divided_by_its_own_propensity_and_holes_are_none() -> None:
    corpus, log = log_of_all_orders()
    rng, r = np.random.default_rng(5), log.rankings
    shown = r.shown & ((np.arange(2) == 1) | (rng.random((len(log), 1)) < 0.5))
    propensity = np.where(shown, rng.choice([0.05, 0.3, 0.7], shown.shape), 0)
    lists = Rankings(r.vocabulary, r.query, r.pair, shown, propensity=propensity)
    holed = Sessions(lists, log.click & shown, log.count)
    expected = np.zeros((2, 4, 2))
    for i, k in zip(*np.nonzero(shown), strict=True):
        weight = holed.count[i] / max(propensity[i, k], 0.1)
        expected[:, r.pair[i, k], k] += [weight, weight * holed.click[i, k]]
    cells = count_by_rank(corpus, holed, logging="propensities", clip=0.1)
    found = np.zeros((2, 4, 2))
    found[:, cells.pair, cells.situation] = cells.impressions, cells.clicks
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("kind", ["conditional", "cascade", "else"])
def test_propensities_that_depend_on_the_documents_above_are_refused(kind: str) -> None:
    corpus, log = log_of_all_orders()
    use: Any
    for use in (cs.train_ranker, cs.ranking_labels):
        with raises_code("bad-option", SpecError, option="propensity_kind", value=kind):
            use(corpus, log, examination="1/rank", logging="propensities", propensity_kind=kind)
    given = {"examination": "1/rank", "logging": "propensities"}
    independent = cs.ranking_labels(corpus, log, **given, propensity_kind="independent")
    assert independent.to_dict() == cs.ranking_labels(corpus, log, **given).to_dict()


def test_what_carries_no_propensities_by_position_is_refused() -> None:
    corpus, log = log_of_all_orders()
    r = log.rankings
    bare = Sessions(Rankings(r.vocabulary, r.query, r.pair, log_prob=np.full(len(r), -1.0)), log.click)
    for source in (bare, count_by_rank(corpus, log), DayCounts.of(log)):
        with raises_code("missing-propensities", DataError):
            count_by_rank(corpus, source, logging="propensities")
    with raises_code("bad-option", DataError, option="logging", value="weights"):
        count_by_rank(corpus, log, logging="weights")
    single = Sessions(
        Rankings(r.vocabulary, r.query, r.pair[:, :1], log_prob=np.log(r.propensity[:, 0])), log.click[:, :1], log.count
    )
    by_list = count_by_rank(corpus, single, logging="propensities")
    np.testing.assert_allclose(by_list.impressions, log.total, err_msg="a list of one document is its document")
