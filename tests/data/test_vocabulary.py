from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clickshift.core.unique_rows import distinct_rows, distinct_sorted
from clickshift.data.vocabulary import UNSEEN, Vocabulary
from clickshift.errors import DataError, VocabularyError
from tests.codes import raises_code

ids = st.one_of(
    st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=30), st.lists(st.text(), min_size=1, max_size=30)
)


@given(ids, st.randoms(use_true_random=False))
def test_numbers_lead_back_to_the_raw_ids(raw, random) -> None:
    docs = [random.choice(raw) for _ in raw]
    words, query, pair = Vocabulary.of(raw, docs)
    assert words.query_ids[query].tolist() == raw
    assert words.doc_ids[words.pair_doc[pair]].tolist() == docs
    assert (words.pair_query[pair] == query).all()
    assert (words.pair_numbers(raw, docs) == pair).all()


@given(ids)
def test_order_of_the_log_does_not_matter(raw) -> None:
    forward, backward = Vocabulary.of(raw, raw)[0], Vocabulary.of(raw[::-1], raw[::-1])[0]
    assert forward.fingerprint == backward.fingerprint


def test_pairs_of_a_query_are_neighbours() -> None:
    words, _, _ = Vocabulary.of([2, 1, 2, 1, 3], [9, 8, 7, 6, 5])
    assert words.query_offsets.tolist() == [0, 2, 4, 5]


def test_strings_and_dictionaries_are_the_same() -> None:
    plain = Vocabulary.of(["b", "a", "b"], ["x", "y", "z"])[0]
    column = pa.array(["b", "a", "b"]).dictionary_encode()
    unused = pa.DictionaryArray.from_arrays(pa.array([1, 0, 1]), pa.array(["a", "b", "never used"]))
    assert Vocabulary.of(column, ["x", "y", "z"])[0].fingerprint == plain.fingerprint
    assert Vocabulary.of(unused, ["x", "y", "z"])[0].fingerprint == plain.fingerprint


def test_fingerprint_tells_ids_and_pairs_apart() -> None:
    logs = [
        ([1, 1], [1, 2]),
        ([1, 1], [1, 3]),
        (["1", "1"], [1, 2]),
        ([1, 2], [1, 2]),
        (["ab", "c"], [1, 2]),
        (["a", "bc"], [1, 2]),
    ]
    assert len({Vocabulary.of(*log)[0].fingerprint for log in logs}) == len(logs)


def test_translation_finds_what_is_known_and_marks_what_is_not() -> None:
    here = Vocabulary.of(["a", "a", "b"], ["1", "2", "1"])[0]
    there = Vocabulary.of(["b", "b", "c"], ["1", "2", "1"])[0]
    assert here.pairs_of(there).tolist() == [2, UNSEEN, UNSEEN]
    assert here.queries_of(there).tolist() == [1, UNSEEN]
    assert here.pairs_of(here).tolist() == [0, 1, 2]


def test_integers_match_their_text() -> None:
    numbers, texts = Vocabulary.of([10, 9], [1, 2])[0], Vocabulary.of(["10", "9", "x"], ["1", "2", "3"])[0]
    found = numbers.pairs_of(texts)
    assert [numbers.query_ids[numbers.pair_query[p]] if p >= 0 else None for p in found] == [10, 9, None]
    back = texts.pairs_of(numbers)
    assert texts.query_ids[texts.pair_query[back]].tolist() == ["9", "10"]


@pytest.mark.parametrize(
    ("query", "code", "facts"),
    [
        ([1.5, 2.0], "bad-id-type", {}),
        ([1, None], "missing-id", {"row": 2}),
        (["a", 1], "mixed-ids", {}),
        ([[1], [2]], "bad-id-type", {}),
    ],
)
def test_bad_ids_are_refused(query, code, facts) -> None:
    with raises_code(code, DataError, **facts):
        Vocabulary.of(query, [1, 2])


def test_columns_must_be_aligned() -> None:
    with raises_code("unequal-lengths", DataError, queries=2, documents=1):
        Vocabulary.of([1, 2], [1])


def test_a_part_is_renumbered() -> None:
    words = Vocabulary.of([1, 1, 2], [5, 6, 7])[0].with_pairs(np.array([1, 2]))
    assert words.doc_ids.tolist() == [6, 7]
    assert words.n_queries == 2
    with raises_code("pair-out-of-range", VocabularyError, n_pairs=2):
        words.with_pairs(np.array([2]))


@given(st.lists(st.lists(st.integers(-3, 3), min_size=3, max_size=3), max_size=60))
def test_distinct_rows_are_numbered_in_order_of_appearance(rows) -> None:
    group, first = distinct_rows(np.array(rows, np.int64).reshape(-1, 3))
    expected = list(dict.fromkeys(map(tuple, rows)))
    assert [expected[g] for g in group] == [tuple(row) for row in rows]
    assert [tuple(rows[i]) for i in first] == expected


def test_distinct_values_agree_with_numpy_while_the_table_grows(rng) -> None:
    values = rng.integers(0, 5000, 20_000)
    for mine, numpys in zip(distinct_sorted(values), np.unique(values, return_inverse=True), strict=True):
        assert (mine == numpys).all()


def test_long_ids_are_found_in_another_vocabulary() -> None:
    docs = np.sort([f"https://example.org/{k}" for k in range(1000)])
    every = Vocabulary.of(np.zeros(1000, int), docs)[0]
    half = every.with_pairs(np.arange(0, 1000, 2))
    found = half.pairs_of(every)
    assert np.array_equal(found[::2], np.arange(500))
    assert (found[1::2] == UNSEEN).all()
    assert np.array_equal(half.pair_numbers(np.zeros(1000, int), docs), found)
    assert np.array_equal(half.pair_numbers(np.zeros(2, int).astype(str), docs[:2]), found[:2]), "0 is '0'"
