"""Ranking metrics against scikit-learn, plain loops and counts by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import ndcg_score

from clickshift.data.corpus import Corpus
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import DataError
from clickshift.io.datasets.letor import read_corpus
from clickshift.metrics.ranking import CUTOFFS, JudgedPairs, head_queries, ranking_quality
from tests.codes import raises_code

NAN = float("nan")


@pytest.fixture
def judged(rng: np.random.Generator) -> JudgedPairs:
    """Two hundred queries of 1 to 25 documents, a third of them unjudged."""
    size = rng.integers(1, 26, 200)
    words, _, _ = Vocabulary.of(np.repeat(np.arange(200), size), np.arange(size.sum()))
    label = rng.choice([0, 0, 0, 1, 2, 3, 4, NAN, NAN, NAN], size.sum())
    return JudgedPairs.of(words, label)


def by_query(judged: JudgedPairs, score: np.ndarray) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Labels and scores of the judged documents of each query, by the letter."""
    found: dict[int, list[tuple[float, float]]] = {}
    for query, label, value in zip(judged.vocabulary.pair_query, judged.label, score, strict=True):
        if not np.isnan(label):
            found.setdefault(int(query), []).append((label, value))
    return {query: (np.array(rows)[:, 0], np.array(rows)[:, 1]) for query, rows in found.items()}


def sklearn_ndcg(judged: JudgedPairs, score: np.ndarray, k: int) -> list[float]:
    pairs = by_query(judged, score).values()
    return [ndcg_score([2.0**label - 1], [value], k=k) for label, value in pairs]


def test_ndcg_is_that_of_scikit_learn(judged: JudgedPairs, rng: np.random.Generator) -> None:
    score = rng.permutation(len(judged.label)).astype(float)
    quality = ranking_quality(score, judged, rng=0)
    assert judged.queries > 100
    assert quality.queries.tolist() == list(by_query(judged, score))
    for k in CUTOFFS:
        assert quality.per_query[f"nDCG@{k}"] == pytest.approx(sklearn_ndcg(judged, score, k), abs=1e-9)


@pytest.mark.parametrize(
    ("file", "feature"), [("mq2008/S5.txt.gz", 25), ("mslr_sample/web10k_fold1_test_5k.txt.gz", 110)]
)
def test_ndcg_of_real_judgments_is_that_of_scikit_learn(shared_data: Path, file: str, feature: int) -> None:
    corpus = read_corpus(shared_data / file)
    judged = JudgedPairs.of(corpus.vocabulary, corpus.label.astype(float))
    value, score = corpus.feature(feature), np.empty(corpus.n_pairs)
    score[np.lexsort((np.arange(corpus.n_pairs), value))] = np.arange(corpus.n_pairs)  # distinct, in the same order
    quality = ranking_quality(score, judged, rng=0)
    assert judged.queries > 30
    for k in CUTOFFS:
        assert quality.per_query[f"nDCG@{k}"] == pytest.approx(sklearn_ndcg(judged, score, k), abs=1e-9)
    grades = [set(part.tolist()) for part in np.split(corpus.label, corpus.offsets[1:-1])]
    constant = sum(len(each) == 1 for each in grades)
    assert judged.equal_queries == constant == corpus.n_queries - judged.queries
    assert quality.means()["nDCG@10"] > ranking_quality(-score, judged, rng=0).means()["nDCG@10"]


@pytest.mark.parametrize("threshold", [1.0, 3.0])
def test_recall_mrr_and_arp_are_those_of_plain_loops(
    judged: JudgedPairs, rng: np.random.Generator, threshold: float
) -> None:
    score = rng.permutation(len(judged.label)).astype(float)
    quality = ranking_quality(score, judged, threshold=threshold, rng=0)
    expected: dict[str, list[float]] = {name: [] for name in quality.per_query if not name.startswith("nDCG")}
    for label, value in by_query(judged, score).values():
        ranked = sorted(zip(-value, label, strict=True))
        ranks = [rank for rank, (_, grade) in enumerate(ranked, start=1) if grade >= threshold]
        for k in CUTOFFS:
            expected[f"Recall@{k}"].append(sum(rank <= k for rank in ranks) / len(ranks) if ranks else NAN)
        expected["MRR"].append(1 / ranks[0] if ranks else NAN)
        expected["ARP"].append(sum(ranks) / len(ranks) if ranks else NAN)
    for name, values in expected.items():
        assert quality.per_query[name] == pytest.approx(values, nan_ok=True), name
        known = [value for value in values if value == value]
        assert quality.means()[name] == pytest.approx(sum(known) / len(known)), name
    assert (np.isnan(quality.per_query["MRR"]).any()) == (threshold > 1), "with threshold 1 a query always has one"


def test_ties_are_broken_at_random_and_on_average_as_scikit_learn_averages_them() -> None:
    words, _, _ = Vocabulary.of(np.zeros(7, int), np.arange(7))
    judged = JudgedPairs.of(words, np.array([3.0, 0, 1, 0, 2, 0, 1]))
    score = np.array([1.0, 1, 1, 1, 2, 2, 0])
    draws = [ranking_quality(score, judged, rng=seed).means() for seed in range(400)]
    for k in CUTOFFS:
        values = np.array([draw[f"nDCG@{k}"] for draw in draws])
        error = values.std() / np.sqrt(len(values))
        assert abs(values.mean() - sklearn_ndcg(judged, score, k)[0]) < 4.5 * error + 1e-12
    assert len({draw["nDCG@5"] for draw in draws}) > 5
    assert ranking_quality(score, judged, rng=3).means() == draws[3]


def test_all_cutoffs_judge_one_and_the_same_list() -> None:
    """With all scores equal, what is found among the first k is found among more, and where MRR says it is."""
    words, _, _ = Vocabulary.of(np.repeat(np.arange(300), 6), np.arange(1800))
    judged = JudgedPairs.of(words, np.tile([1.0, 0, 0, 0, 0, 0], 300))
    found = ranking_quality(np.zeros(1800), judged, cutoffs=(1, 2, 3, 4, 5, 6), rng=1).per_query
    rank = 1 / found["MRR"]
    assert found["ARP"] == pytest.approx(rank)
    for k in range(1, 7):
        assert (found[f"Recall@{k}"] == (rank <= k + 0.5)).all()
        assert (found[f"nDCG@{k}"] > 0).tolist() == (rank <= k + 0.5).tolist()
    assert np.bincount(np.rint(rank).astype(int))[1:].min() > 25, "50 of 300 are expected at each rank"


def test_what_is_dropped_is_counted() -> None:
    #                         A: stays      B: one left  C: equal   D: none left  E: not judged
    words, _, _ = Vocabulary.of(list("AAAA" + "BB" + "CC" + "DD" + "E"), np.arange(11))
    label = np.array([0, 2, 1, NAN, 1, 0, 2, 2, 0, 1, NAN])
    shown = np.array([1, 1, 0, 1, 1, 0, 1, 1, 0, 0, 1], bool)
    judged = JudgedPairs.of(words, label, shown=shown)
    assert judged.never_shown == 4, "one of A, one of B, two of D"
    assert judged.equal_queries == 2, "B and C"
    assert judged.queries == 1
    assert judged.documents == 2
    assert judged.label == pytest.approx([0, 2, *[NAN] * 9], nan_ok=True)
    every = JudgedPairs.of(words, label)
    assert (every.never_shown, every.equal_queries, every.queries, every.documents) == (0, 1, 3, 7)
    # the ideal list has the documents that are left: without the dropped label 1, [2, 0] is perfect
    assert ranking_quality(np.array([1.0, 2, *[0] * 9]), judged, rng=0).means()["nDCG@3"] == 1


def test_means_of_some_queries() -> None:
    words, _, _ = Vocabulary.of(np.repeat([1, 2, 3], 2), np.arange(6))
    judged = JudgedPairs.of(words, np.array([1.0, 0, 1, 1, 0, 1]))
    quality = ranking_quality(np.array([2.0, 1, 0, 0, 2, 1]), judged, rng=0)
    assert quality.queries.tolist() == [0, 2]
    assert quality.means()["Recall@1"] == 0.5
    assert quality.means(np.array([True, True, False]))["Recall@1"] == 1
    assert quality.means(np.array([False, False, True]))["MRR"] == 0.5
    nobody = quality.means(np.array([False, True, False]))
    assert list(nobody) == list(quality.means())
    assert np.isnan(list(nobody.values())).all()


def test_nothing_left_to_judge() -> None:
    words, _, _ = Vocabulary.of([1, 1], [1, 2])
    for label in ([NAN, NAN], [1.0, 1.0]):
        judged = JudgedPairs.of(words, np.array(label))
        assert judged.queries == judged.documents == 0
        assert np.isnan(list(ranking_quality(np.zeros(2), judged, rng=0).means().values())).all()


def test_scores_of_unjudged_documents_do_not_matter(judged: JudgedPairs, rng: np.random.Generator) -> None:
    score = rng.random(len(judged.label))
    other = np.where(np.isnan(judged.label), NAN, score)
    assert ranking_quality(other, judged, rng=0).means() == ranking_quality(score, judged, rng=0).means()


def test_bad_input_is_refused(corpus: Corpus) -> None:
    label = corpus.label.astype(float)
    judged = JudgedPairs.of(corpus.vocabulary, label)
    score = np.zeros(corpus.n_pairs)
    score[judged.pair[0]] = NAN
    with raises_code("missing-score", DataError, count=1):
        ranking_quality(score, judged, rng=0)
    with raises_code("wrong-shape", DataError, shape=(3,)):
        ranking_quality(np.zeros(3), judged, rng=0)
    with raises_code("wrong-shape", DataError, shape=(3,)):
        JudgedPairs.of(corpus.vocabulary, np.zeros(3))
    with raises_code("bad-option", DataError, option="cutoffs", value=(0, 1)):
        ranking_quality(np.zeros(corpus.n_pairs), judged, cutoffs=(0, 1), rng=0)
    label[5] = -2
    with raises_code("label-out-of-range", DataError, value=-2.0, count=1, document=5):
        JudgedPairs.of(corpus.vocabulary, label)


@pytest.mark.parametrize(
    ("impressions", "head"),
    [
        ([1, 5, 3, 1], [1]),  # 5 of 10
        ([1, 4, 3, 2], [1, 2]),  # 4 of 10 are not half
        ([2, 2, 2, 2], [0, 1]),
        ([2, 2, 2], [0, 1]),
        ([0, 0, 7], [2]),
        ([0, 0], []),
    ],
)
def test_head_queries_have_half_of_the_traffic(impressions: list[int], head: list[int]) -> None:
    assert np.flatnonzero(head_queries(np.array(impressions))).tolist() == head
    assert np.flatnonzero(head_queries(np.array(impressions, float))).tolist() == head
