from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import UNSEEN, Vocabulary
from clickshift.errors import DataError
from tests.codes import raises_code

WORDS = Vocabulary.of(np.repeat([10, 20], 5), np.arange(10))[0]


def make(pair, click=None, *, query=None, **fields) -> Sessions:
    pair = np.array(pair)
    query = np.array(query if query is not None else np.maximum(pair[:, 0], 0) // 5)
    click = np.zeros(pair.shape, int) if click is None else np.array(click)
    return Sessions(Rankings(WORDS, query, pair), click, **fields)


def test_lists_of_different_lengths() -> None:
    log = make([[0, 1, 2], [5, UNSEEN, UNSEEN]], [[0, 1, 0], [1, 0, 0]])
    assert log.rankings.length.tolist() == [3, 1]
    assert log.ctr_by_rank().tolist() == [0.5, 1.0, 0.0]


@pytest.mark.parametrize(
    ("pair", "code", "facts"),
    [
        ([[0, 1], [5, 5]], "duplicate-document", {"row": 2, "rank": 2, "document": "5", "first_rank": 1}),
        ([[UNSEEN, 1, UNSEEN, 1]], "duplicate-document", {"row": 1, "rank": 4, "document": "1", "first_rank": 2}),
        ([[0, 1], [UNSEEN, UNSEEN]], "empty-list", {"row": 2, "rank": 1}),
        ([[0, 10]], "pair-out-of-range", {"row": 1, "rank": 2, "n_pairs": 10}),
        ([[0, -2]], "pair-out-of-range", {"row": 1, "rank": 2, "n_pairs": 10}),
        ([[0, 5]], "pair-of-other-query", {"row": 1, "rank": 2}),
    ],
)
def test_bad_lists_are_named(pair, code, facts) -> None:
    with raises_code(code, DataError, **facts):
        make(pair)


@pytest.mark.parametrize(
    ("click", "code", "facts"),
    [
        ([[0, 0], [0, 2]], "not-zero-or-one", {"row": 2, "value": 2, "count": 1}),
        ([[0.0, 0.5], [0, 0]], "not-zero-or-one", {"row": 1, "value": 0.5, "count": 1}),
        (
            [[0.0, np.nan], [0, 0]],
            "not-zero-or-one",
            {"row": 1, "value": pytest.approx(np.nan, nan_ok=True), "count": 1},
        ),
        ([[0, 0], [0, 1]], "click-without-document", {"row": 2, "value": "one at rank 2", "count": 1}),
        ([[0, 0]], "wrong-shape", {"name": "click", "expected": (2, 2), "shape": (1, 2)}),
        ([["a", "b"], ["c", "d"]], "not-zero-or-one", {"name": "click", "dtype": "<U1", "shape": (2, 2)}),
        ([0, 1], "not-zero-or-one", {"name": "click", "dtype": "int64", "shape": (2,)}),
    ],
)
def test_bad_clicks_are_named(click, code, facts) -> None:
    with raises_code(code, DataError, **facts):
        make([[0, 1], [5, UNSEEN]], click)


@pytest.mark.parametrize(
    ("fields", "code", "facts"),
    [
        ({"count": np.array([1, 0])}, "bad-count", {"row": 2, "value": 0, "count": 1}),
        ({"count": np.array([1.0, 1.0])}, "not-integers", {"name": "count", "dtype": "float64", "shape": (2,)}),
        ({"count": np.array([1])}, "wrong-shape", {"name": "count", "expected": (2,), "shape": (1,)}),
        ({"time": np.array([1.0, np.nan])}, "missing-value", {"row": 2, "value": "none", "count": 1}),
        ({"time": np.array(["2020-01-01", "NaT"], "M8[D]")}, "missing-value", {"row": 2, "value": "none", "count": 1}),
        ({"user": np.array([1, 2, 3])}, "wrong-shape", {"name": "user", "expected": (2,), "shape": (3,)}),
    ],
)
def test_bad_columns_are_named(fields, code, facts) -> None:
    with raises_code(code, DataError, **facts):
        make([[0, 1], [5, 6]], **fields)


@pytest.mark.parametrize("log_prob", [[0.0, 0.1], [0.0, -np.inf], [0.0, np.nan]])
def test_propensities_are_probabilities(log_prob) -> None:
    with raises_code("not-a-probability", DataError, row=2, count=1):
        Rankings(WORDS, np.array([0, 1]), np.array([[0], [5]]), log_prob=np.array(log_prob))


def test_an_empty_log_is_refused() -> None:
    with raises_code("empty-log", DataError):
        Rankings(WORDS, np.empty(0, int), np.empty((0, 3), int))
    with raises_code("not-integers", DataError, name="query", dtype="float64", shape=(1,)):
        Rankings(WORDS, np.array([0.0]), np.array([[0]]))
    with raises_code("wrong-shape", DataError, name="query", expected=(1,), shape=(2,)):
        Rankings(WORDS, np.array([0, 1]), np.array([[0]]))


def as_multiset(log: Sessions) -> dict[tuple, int]:
    found: dict[tuple, int] = {}
    docs = np.append(log.vocabulary.doc_ids[log.vocabulary.pair_doc], -7)
    for i in range(len(log)):
        shown = log.rankings.shown[i]
        key = (
            int(log.vocabulary.query_ids[log.rankings.query[i]]),
            tuple(docs[log.rankings.pair[i]][shown].tolist()),
            tuple(log.click[i][shown].tolist()),
        )
        found[key] = found.get(key, 0) + int(log.count[i])
    return found


def test_merging_keeps_every_session(log: Sessions) -> None:
    doubled = Sessions.concat([log, log[:100], log[:100]])
    merged = doubled.merged()
    assert merged.total == doubled.total == 700
    assert len(merged) < len(log)
    assert as_multiset(merged) == as_multiset(doubled)
    assert len(merged.merged()) == len(merged)


def test_lists_that_differ_only_in_length_are_not_merged() -> None:
    rankings = Rankings(
        WORDS, np.array([0, 0]), np.array([[UNSEEN, UNSEEN]] * 2), np.array([[True, True], [True, False]])
    )
    assert len(Sessions(rankings, np.zeros((2, 2), bool)).merged()) == 2


def test_different_propensities_are_not_merged() -> None:
    rankings = Rankings(WORDS, np.array([0, 0, 0]), np.array([[0], [0], [0]]), log_prob=np.log([0.5, 0.25, 0.5]))
    merged = Sessions(rankings, np.zeros((3, 1), bool)).merged()
    assert merged.count.tolist() == [2, 1]


@given(st.floats(0.05, 0.95), st.integers(0, 10))
def test_splits_lose_nothing(fraction, seed) -> None:
    log = make([[0, 1], [5, 6], [1, 0]], count=np.array([50, 1, 49]))
    for first, second in (log.split(fraction, rng=seed), log.split_in_order(fraction)):
        assert first.total == round(fraction * 100)
        assert as_multiset(Sessions.concat([first, second])) == as_multiset(log)


def test_random_split_is_by_seed(log: Sessions) -> None:
    same = [log.split(0.5, rng=3)[0].rankings.pair for _ in range(2)]
    assert (same[0] == same[1]).all()
    assert not np.array_equal(log.split(0.5, rng=4)[0].rankings.pair, same[0])


def test_chronological_split() -> None:
    log = make([[0], [1], [2], [3]], time=np.array([4, 1, 3, 2]))
    early, late = log.split_by_time(0.5)
    assert early.time.tolist() == [1, 2]
    assert late.time.tolist() == [3, 4]
    with raises_code("missing-time", DataError):
        make([[0]]).split_by_time(0.5)


def test_a_split_within_queries_takes_the_first_of_each() -> None:
    log = make([[0], [5], [1], [2], [6], [3]], [[1], [0], [1], [0], [1], [0]])
    first, second = log.split_within_queries(0.5)
    assert first.rankings.pair[:, 0].tolist() == [0, 5, 1]
    assert second.rankings.pair[:, 0].tolist() == [2, 6, 3]
    assert second.click[:, 0].tolist() == [False, True, False]


def test_a_query_with_one_session_stays_whole() -> None:
    first, second = make([[0], [1], [2], [5]]).split_within_queries(0.75)
    assert first.rankings.pair[:, 0].tolist() == [0, 1, 5]
    assert second.rankings.pair[:, 0].tolist() == [2]


@given(st.floats(0.05, 0.95), st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), min_size=2, max_size=20))
def test_a_split_within_queries_does_not_mind_merging(fraction, rows) -> None:
    """A row that stands for several sessions is split as those sessions would be."""
    pair, count = map(np.array, zip(*rows, strict=True))
    log = make(pair[:, None], count=count)
    one_by_one = make(np.repeat(pair, count)[:, None])
    try:
        parts = log.split_within_queries(fraction)
    except DataError:
        with raises_code("empty-split", DataError):
            one_by_one.split_within_queries(fraction)
        return
    for part, expected in zip(parts, one_by_one.split_within_queries(fraction), strict=True):
        assert as_multiset(part) == as_multiset(expected)
    assert as_multiset(Sessions.concat(parts)) == as_multiset(log)
    size = [np.bincount(part.rankings.query, part.count, 2) for part in (parts[0], log)]
    assert size[0].tolist() == np.rint(fraction * size[1]).tolist()


def test_sessions_of_an_unseen_query_are_split_too() -> None:
    log = make([[0], [1], [5], [6]])
    known = log.in_vocabulary(log.vocabulary.with_pairs(np.array([0, 1])))
    first, second = known.split_within_queries(0.5)
    assert first.rankings.query.tolist() == second.rankings.query.tolist() == [0, UNSEEN]


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, 0.01, 1.5, np.nan])
def test_a_split_leaves_no_part_empty(fraction) -> None:
    for split in (Sessions.split_in_order, Sessions.split_within_queries):
        with raises_code("empty-split", DataError, total=3):
            split(make([[0], [1], [2]]), fraction)


def test_concat_joins_vocabularies_and_pads() -> None:
    other = Vocabulary.of(["30", "10"], ["x", "1"])[0]
    a = make([[1, 2, 0]], [[1, 0, 0]], time=np.array([1]))
    b = Sessions(Rankings(other, np.array([1]), np.array([[1]])), np.array([[True]]))
    both = Sessions.concat([a, b])
    assert both.n_ranks == 3
    assert both.time is None, "what only one part knows is not known of the whole"
    ids = both.vocabulary
    assert ids.doc_ids[ids.pair_doc[both.rankings.pair[1, 0]]] == "x"
    assert ids.query_ids[both.rankings.query].tolist() == ["10", "30"]
    with raises_code("no-logs", DataError):
        Sessions.concat([])


def test_another_vocabulary_is_translated(log: Sessions) -> None:
    part = log.vocabulary.with_pairs(np.arange(0, log.vocabulary.n_pairs, 2))
    translated = log.in_vocabulary(part)
    known = translated.rankings.pair != UNSEEN
    assert known.any()
    assert (known <= log.rankings.shown).all()
    old = log.vocabulary.doc_ids[log.vocabulary.pair_doc[log.rankings.pair[known]]]
    assert (part.doc_ids[part.pair_doc[translated.rankings.pair[known]]] == old).all()
    assert (translated.rankings.shown == log.rankings.shown).all()


def test_slices_are_sessions(log: Sessions) -> None:
    assert len(log[10:20]) == 10
    assert (log[np.array([3, 1])].click == log.click[[3, 1]]).all()
