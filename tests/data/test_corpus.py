from __future__ import annotations

import numpy as np
import pytest

from clickshift.data.corpus import Corpus
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import DataError
from tests.codes import raises_code


def make(labels: list[list[int]], **fields) -> Corpus:
    size = [len(part) for part in labels]
    words = Vocabulary.of(np.repeat(np.arange(len(size)), size), np.arange(sum(size)))[0]
    return Corpus(words, np.concatenate(labels).astype(np.float32), **fields)


def labels_of(corpus: Corpus) -> list[list[int]]:
    return [sorted(part.astype(int).tolist(), reverse=True) for part in np.split(corpus.label, corpus.offsets[1:-1])]


def test_gain_is_the_papers_link() -> None:
    assert make([[0, 1, 2, 3, 4]]).gain == pytest.approx([0, 1 / 15, 3 / 15, 7 / 15, 1])
    assert make([[0, 1, 2]], max_label=2).gain == pytest.approx([0, 1 / 3, 1])


@pytest.mark.parametrize(
    ("label", "code", "facts"),
    [
        ([0.0, 5.0], "label-out-of-range", {"value": 5.0, "max_label": 4, "count": 1, "query": "0"}),
        ([0.0, -1.0], "label-out-of-range", {"value": -1.0, "max_label": 4, "count": 1, "query": "0"}),
        (
            [0.0, np.nan],
            "label-out-of-range",
            {"value": pytest.approx(np.nan, nan_ok=True), "max_label": 4, "count": 1, "query": "0"},
        ),
        ([0.0], "wrong-shape", {"name": "label", "expected": (2,), "shape": (1,)}),
    ],
)
def test_bad_labels_are_refused(label, code, facts) -> None:
    with raises_code(code, DataError, **facts):
        Corpus(make([[0, 0]]).vocabulary, np.array(label, np.float32))


def test_features_are_numbered_from_one() -> None:
    corpus = make([[0, 1]], features=np.array([[1, 2], [3, 4]], np.float32))
    assert corpus.feature(2).tolist() == [2, 4]
    with raises_code("unknown-feature", DataError, value=0, count=2):
        corpus.feature(0)
    with raises_code("no-features", DataError):
        make([[0]]).feature(1)
    with raises_code("wrong-shape", DataError, name="features", shape=(3, 2), expected=2):
        make([[0, 1]], features=np.zeros((3, 2), np.float32))


def test_usable_queries_have_enough_documents_of_different_grades() -> None:
    corpus = make([[0, 1, 2], [1, 1, 1], [0, 1]])
    assert corpus.usable_queries(min_docs=3).tolist() == [True, False, False]


def test_parts_keep_their_rows_together() -> None:
    corpus = make([[0, 1, 2], [3, 4], [1, 0]])
    part = corpus.with_queries(np.array([2, 1]))
    assert labels_of(part) == [[4, 3], [1, 0]]
    assert part.vocabulary.query_ids.tolist() == [1, 2]
    assert corpus.with_pairs(corpus.label > 1).label.tolist() == [2, 3, 4]


def test_stratified_takes_each_grades_share(rng) -> None:
    corpus = make([[0] * 20 + [1] * 10 + [2] * 10, [1, 0, 2], [0] * 17 + [1] * 17 + [2] * 6])
    grades = labels_of(corpus.stratified(10, rng=rng))
    assert grades[0] == [2, 2, 2, 1, 1, 1, 0, 0, 0, 0][:0] + sorted([0] * 5 + [1] * 2 + [2] * 2, reverse=True)
    assert grades[1] == [2, 1, 0], "a query with fewer documents is kept whole"
    assert grades[2] == sorted([0] * 4 + [1] * 4 + [2] * 2, reverse=True)


def test_stratified_drops_low_grades_where_rounding_gives_too_many(rng) -> None:
    corpus = make([[0] * 3 + [1] * 3 + [2] * 3 + [3] * 3])  # 10/12 of 3 is 2.5, rounded to 2: 8 documents
    assert labels_of(corpus.stratified(10, rng=rng)) == [[3, 3, 2, 2, 1, 1, 0, 0]]
    corpus = make([[0] * 9 + [1] * 9])  # 10/18 of 9 is 5
    assert len(labels_of(corpus.stratified(9, rng=rng))[0]) in (8, 9)


def test_ladder_takes_three_of_each_grade_then_fills_from_below(rng) -> None:
    corpus = make([[0] * 9 + [1] * 5 + [2] * 5 + [4], [0] * 9, [1] * 30, [4] * 12])
    grades = labels_of(corpus.ladder(10, rng=rng))
    assert grades == [[4, 2, 2, 2, 1, 1, 1, 1, 1, 0], [1] * 10, [4] * 10]


def test_which_documents_stand_for_a_grade_is_random() -> None:
    corpus = make([[0] * 50 + [1] * 50])
    a, b = (set(corpus.stratified(10, rng=np.random.default_rng(seed)).vocabulary.doc_ids.tolist()) for seed in (0, 1))
    assert len(a) == len(b) == 10
    assert a != b
