"""Holes, propensities by position, signals and segments of a log in memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clickshift.data.segments import Segment
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import UNSEEN, Vocabulary
from clickshift.errors import DataError
from tests.codes import raises_code

WORDS = Vocabulary.of(np.repeat([10, 20], 5), np.arange(10))[0]
PAIRS = np.array([[UNSEEN, 1, UNSEEN, 3], [5, 6, UNSEEN, UNSEEN], [0, UNSEEN, 2, UNSEEN]])
SHOWN = PAIRS != UNSEEN


def make(**fields) -> Sessions:
    ranked = {name: fields.pop(name) for name in ("propensity", "log_prob", "segments") if name in fields}
    click = fields.pop("click", np.zeros(PAIRS.shape, bool))
    return Sessions(Rankings(WORDS, np.array([0, 1, 0]), PAIRS, **ranked), click, **fields)


def full_log() -> Sessions:
    rng = np.random.default_rng(0)
    return make(
        click=SHOWN & (rng.random(SHOWN.shape) < 0.5),
        propensity=np.where(SHOWN, rng.uniform(0.1, 1, SHOWN.shape), 0),
        log_prob=np.log([0.5, 0.25, 1.0]),
        count=np.array([3, 1, 2]),
        time=np.array([3, 1, 2]),
        signals={
            "viewed": np.where(SHOWN, [[np.nan, 1, 0, np.nan], [1, 1, 0, 0], [1, 0, 0, 0]], 0),
            "cart": SHOWN & (rng.random(SHOWN.shape) < 0.5),
            "revenue": np.where(SHOWN, rng.uniform(0, 9, SHOWN.shape), np.nan),
        },
        segments={"arm": Segment.of(["a", "b", "a"]), "device": Segment(("phone", "desk"), np.array([1, -1, 0]))},
    )


def as_rows(log: Sessions) -> list[tuple]:
    """Write everything that a session has as text, sorted: an independent way to compare logs."""
    rankings, rows = log.rankings, []
    for i in range(len(log)):
        signals = {name: values[i].tolist() for name, values in sorted(log.signals.items())}
        segments = {n: s.labels[s.code[i]] if s.code[i] >= 0 else None for n, s in sorted(log.segments.items())}
        numbers = [None if v is None else v[i].tolist() for v in (rankings.propensity, rankings.log_prob, log.time)]
        row = rankings.query[i].tolist(), rankings.pair[i].tolist(), log.click[i].tolist(), numbers, signals, segments
        rows += [repr(row)] * int(log.count[i])
    return sorted(rows)


def test_length_is_the_end_of_a_list_and_n_shown_its_documents() -> None:
    rankings = make().rankings
    assert rankings.has_holes
    assert rankings.length.tolist() == [4, 2, 3]
    assert rankings.n_shown.tolist() == [2, 2, 2]


def test_rows_without_holes_have_none() -> None:
    rankings = make().rankings
    assert rankings.has_holes
    assert not rankings[1:2].has_holes
    assert rankings[np.array([0, 1])].has_holes


@given(st.lists(st.lists(st.booleans(), min_size=5, max_size=5).filter(any), min_size=1, max_size=6))
def test_holes_and_lengths_equal_a_loop(shown) -> None:
    pair = np.where(shown, np.arange(5), UNSEEN)
    rankings = Rankings(WORDS, np.zeros(len(shown), int), pair)
    last = [max(r for r in range(5) if row[r]) + 1 for row in shown]
    assert rankings.length.tolist() == last
    assert rankings.has_holes == any(not all(row[:end]) for row, end in zip(shown, last, strict=True))


def test_a_click_on_a_hole_is_refused() -> None:
    with raises_code("click-without-document", DataError, row=1, value="one at rank 3"):
        make(click=np.array([[0, 0, 1, 0], [0] * 4, [0] * 4]))


def test_signals_are_bits_where_they_can_be() -> None:
    log = full_log()
    assert log.signals["cart"].dtype == bool
    assert make(signals={"x": SHOWN.astype(float)}).signals["x"].dtype == bool
    assert log.signals["viewed"].dtype == log.signals["revenue"].dtype == np.float64
    assert (log.signals["revenue"][~SHOWN] == 0).all()
    assert np.isnan(log.viewed[0, 3])


@pytest.mark.parametrize(
    ("name", "values", "code", "facts"),
    [
        ("viewed", [[0, 2, 0, 0], [0] * 4, [0] * 4], "not-zero-or-one", {"row": 1, "value": 2.0}),
        ("viewed", [[1, 0, 0, 0], [0] * 4, [0] * 4], "signal-without-document", {"row": 1}),
        ("cart", np.ones((3, 4), bool), "signal-without-document", {"row": 1, "count": 3}),
        ("revenue", [[0.0] * 4, [-2.5, 0, 0, 0], [0] * 4], "bad-signal", {"row": 2, "value": -2.5}),
        ("revenue", [[0.0] * 4, [np.inf, 0, 0, 0], [0] * 4], "bad-signal", {"row": 2, "count": 1}),
        ("revenue", [["a"] * 4] * 3, "not-a-number", {"name": "revenue"}),
        ("revenue", [[0.0] * 3] * 3, "wrong-shape", {"name": "revenue"}),
        ("clicks", np.zeros((3, 4)), "bad-column-name", {"value": "clicks"}),
        ("arm", np.zeros((3, 4)), "bad-column-name", {"value": "arm"}),
    ],
)
def test_bad_signals_are_named(name, values, code, facts) -> None:
    with raises_code(code, DataError, **facts):
        make(signals={name: np.array(values)})


@pytest.mark.parametrize(
    ("segments", "code", "facts"),
    [
        ({"device": Segment.of(["a", "b"])}, "wrong-shape", {"name": "device"}),
        ({"user": Segment.of(["a", "b", "c"])}, "bad-column-name", {}),
        ({"viewed": Segment.of(["a", "b", "c"])}, "bad-column-name", {}),
    ],
)
def test_bad_segments_are_named(segments, code, facts) -> None:
    with raises_code(code, DataError, **facts):
        make(segments=segments)


def test_segments_have_distinct_labels_and_their_numbers() -> None:
    with raises_code("bad-segment", DataError):
        Segment(("a", "a"), np.array([0]))
    with raises_code("bad-segment", DataError):
        Segment(("a", ""), np.array([0]))
    with raises_code("bad-segment", DataError, row=2, value=1):
        Segment(("a",), np.array([0, 1]))
    with raises_code("not-integers", DataError):
        Segment(("a",), np.array([0.0]))
    with raises_code("too-many-segments", DataError, count=1001):
        Segment.of(np.arange(1001))


def test_unknown_labels_are_minus_one() -> None:
    assert Segment.of(np.array([2.0, np.nan, 1.0])).code.tolist() == [1, -1, 0]
    assert Segment.of([None, "", "x"]).code.tolist() == [-1, -1, 0]


@pytest.mark.parametrize("value", [0.0, -0.1, 1.5, np.nan])
def test_propensities_by_position_are_probabilities(value) -> None:
    propensity = np.where(SHOWN, 0.5, 0)
    propensity[1, 1] = value
    with raises_code("not-a-probability", DataError, row=2, count=1):
        make(propensity=propensity)


def test_splits_keep_all_columns() -> None:
    log = full_log()
    for first, second in (
        log.split(0.5, rng=1),
        log.split_by_time(0.5),
        log.split_in_order(0.5),
        log.split_within_queries(0.7),
        (log[:1], log[1:]),
        (log[np.array([True, False, True])], log[np.array([1])]),
    ):
        assert as_rows(Sessions.concat([first, second])) == as_rows(log)


def test_merging_adds_sessions_that_are_equal_in_all_columns() -> None:
    log = full_log()
    merged = Sessions.concat([log, log]).merged()
    without_time = Sessions(log.rankings, log.click, 2 * log.count, signals=log.signals)
    assert len(merged) == len(log)
    assert as_rows(merged) == as_rows(without_time)


@pytest.mark.parametrize("column", ["propensity", "viewed", "cart", "revenue", "device", "shown"])
def test_sessions_that_differ_in_a_column_are_not_merged(column) -> None:
    pair = np.array([[UNSEEN, UNSEEN]] * 2)
    shown = np.array([[True, True]] * 2)
    fields: dict = {"propensity": None, "signals": {}, "segments": {}}
    other = np.array([[0, 1], [1, 0]], bool)
    if column == "shown":
        shown = np.array([[True, False, True], [True, True, False]])
        pair = np.full((2, 3), UNSEEN)
    elif column == "propensity":
        fields["propensity"] = np.array([[0.5, 0.5], [0.5, 0.25]])
    elif column == "device":
        fields["segments"] = {"device": Segment.of(["a", "b"])}
    else:
        fields["signals"] = {column: other if column == "cart" else np.where(other, np.nan, 1.0)}
    signals = fields.pop("signals")
    rankings = Rankings(WORDS, np.array([0, 0]), pair, shown, **fields)
    assert len(Sessions(rankings, np.zeros(pair.shape, bool), signals=signals).merged()) == 2


def test_concatenation_keeps_what_every_log_has() -> None:
    log = full_log()
    other = make(signals={"cart": SHOWN}, segments={"device": Segment.of(["tablet", "phone", None])})
    both = Sessions.concat([log, other])
    assert list(both.signals) == ["cart"]
    assert list(both.segments) == ["device"]
    assert both.segments["device"].labels == ("desk", "phone", "tablet")
    assert both.segments["device"].code.tolist() == [0, -1, 1, 2, 1, -1]
    assert both.rankings.propensity is None


def test_another_vocabulary_keeps_holes_and_columns() -> None:
    log = full_log()
    small = Vocabulary.of([10, 20], [1, 5])[0]
    translated = log.in_vocabulary(small)
    assert (translated.rankings.shown == SHOWN).all()
    assert translated.rankings.length.tolist() == [4, 2, 3]
    assert translated.signals is log.signals


def test_long_lists_are_checked_for_duplicates() -> None:
    words = Vocabulary.of(np.zeros(300, int), np.arange(300))[0]
    pair = np.arange(300)[None]
    assert Rankings(words, np.array([0]), pair).n_ranks == 300
    pair = pair.copy()
    pair[0, 299] = 7
    with raises_code("duplicate-document", DataError, row=1, rank=300, first_rank=8):
        Rankings(words, np.array([0]), pair)
