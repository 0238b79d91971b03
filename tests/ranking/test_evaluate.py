"""Evaluation of rankers: never on the queries they were trained on, and paired with other rankers and the log."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import clickshift as cs
from clickshift.data.corpus import Corpus
from clickshift.data.vocabulary import Vocabulary
from clickshift.display.verdicts import badge
from clickshift.errors import DataError
from clickshift.metrics.ranking import JudgedPairs, ranking_quality
from clickshift.ranking import TreeRanker
from clickshift.ranking.evaluate import LOGGING_RANKER
from tests.codes import raises_code

TRAINED, ALL = 10, 40


@pytest.fixture(scope="module")
def whole() -> Corpus:
    return cs.builtin_corpus(ALL)


@pytest.fixture(scope="module")
def ranker() -> TreeRanker:
    corpus = cs.builtin_corpus(TRAINED)
    log = cs.simulate(corpus, cs.Uniform(), cs.users.PBM(), 2000, rng=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trained = cs.train_ranker(corpus, log, loss="BoostedRanker(trees=5)", examination="1/rank").ranker
    assert isinstance(trained, TreeRanker)
    return trained


def of_queries(corpus: Corpus, keep: np.ndarray) -> Corpus:
    return corpus.with_pairs(keep[corpus.vocabulary.pair_query])


def ndcg(scores: np.ndarray, corpus: Corpus) -> np.ndarray:
    judged = JudgedPairs.of(corpus.vocabulary, corpus.label.astype(float))
    return _ndcg(scores, judged)


def _ndcg(scores: np.ndarray, judged: JudgedPairs) -> np.ndarray:
    return ranking_quality(scores, judged, cutoffs=(5, 10), rng=0).per_query["nDCG@10"]


def mean_of(evaluation: cs.RankerEvaluation, metric: str = "nDCG@10") -> float:
    return float(next(row["mean"] for row in evaluation.rows() if row["metric"] == metric))


def test_training_queries_are_left_out_and_counted(whole: Corpus, ranker: TreeRanker, tmp_path: Path) -> None:
    cs.save_ranker(ranker, tmp_path / "ranker")
    trained = np.isin(whole.vocabulary.query_ids, cs.builtin_corpus(TRAINED).vocabulary.query_ids)
    assert trained.sum() == TRAINED
    new = of_queries(whole, ~trained)
    for one in (ranker, tmp_path / "ranker"):
        found = cs.evaluate_ranker(one, whole)
        assert found.training_queries == TRAINED
        assert "10 queries that were used for training are left out" in found.conclusion
        assert mean_of(found) == pytest.approx(ndcg(ranker.scores(new), new).mean())
    everything = cs.evaluate_ranker(ranker, whole, include_training=True)
    assert everything.training_queries == TRAINED
    assert mean_of(everything) == pytest.approx(ndcg(ranker.scores(whole), whole).mean())
    assert mean_of(everything) > mean_of(found)  # why they are left out
    with raises_code("no-new-queries", DataError, queries=TRAINED):
        cs.evaluate_ranker(ranker, cs.builtin_corpus(TRAINED))


def test_a_query_is_known_by_its_documents_not_by_its_id_alone(whole: Corpus, ranker: TreeRanker) -> None:
    assert whole.features is not None
    names = whole.vocabulary
    query, doc = names.query_ids[names.pair_query], names.doc_ids[names.pair_doc]
    renamed = Corpus(Vocabulary.of(query + 1000, doc)[0], whole.label, whole.features)
    assert cs.evaluate_ranker(ranker, renamed).training_queries == TRAINED
    others = Corpus(names, whole.label, whole.features + np.float32(0.5))
    assert cs.evaluate_ranker(ranker, others).training_queries == 0
    half = np.arange(whole.n_pairs) % 2 == 0  # half of the documents of each query, under its id
    assert cs.evaluate_ranker(ranker, whole.with_pairs(half)).training_queries == TRAINED
    unknown = cs.evaluate_ranker(replace(ranker, training_queries=None), whole)
    assert unknown.training_queries is None
    assert "does not know its training queries" in unknown.conclusion


def test_differences_to_another_ranker_and_to_the_log_are_paired(
    whole: Corpus, ranker: TreeRanker, tmp_path: Path
) -> None:
    other = replace(ranker, text=ranker.text, training_queries=np.zeros((0, 9), np.int64))
    same = cs.evaluate_ranker(ranker, whole, compare=other).comparisons
    assert [(row["difference"], row["low"], row["high"]) for row in same] == [(0, 0, 0)] * 3
    log = cs.simulate(whole, cs.BM25(), cs.users.PBM(), 400, rng=1)
    found = cs.evaluate_ranker(ranker, whole, clicks=log)
    row = next(row for row in found.comparisons if row["metric"] == "nDCG@10")
    assert row["other"] == "the logging ranker"
    times, total = np.zeros(whole.n_pairs), np.zeros(whole.n_pairs)
    pairs = whole.vocabulary.pairs_of(log.vocabulary)[log.rankings.pair]
    for listed, count in zip(pairs, log.count, strict=True):
        for rank, pair in enumerate(listed):
            times[pair] += count
            total[pair] += count * rank
    shown, mean_rank = times > 0, total / np.maximum(times, 1)
    trained = np.isin(whole.vocabulary.query_ids, cs.builtin_corpus(TRAINED).vocabulary.query_ids)
    keep = shown & ~trained[whole.vocabulary.pair_query]
    judged = JudgedPairs.of(whole.vocabulary, whole.label.astype(float), shown=keep)
    difference = _ndcg(ranker.scores(whole), judged) - _ndcg(-mean_rank, judged)
    assert row["difference"] == pytest.approx(difference.mean())
    assert row["queries"] == len(difference)
    assert row["low"] < row["difference"] < row["high"]
    dots = found.document.figures["comparisons"].data[0]
    assert list(dots.x) == [one["difference"] for one in found.comparisons if one["metric"] != "ARP"]
    wanted = "better than today's" if row["low"] > 0 else "worse than today's" if row["high"] < 0 else None
    assert found.document.verdict == (wanted or "no clear difference")
    assert cs.evaluate_ranker(ranker, whole, clicks=log, include_training=True).document.verdict == "caution"
    assert mean_of(found) - row["mean"] == pytest.approx(row["difference"])


def test_a_log_of_training_queries_alone_leaves_nothing_to_evaluate(whole: Corpus, ranker: TreeRanker) -> None:
    log = cs.simulate(cs.builtin_corpus(TRAINED), cs.BM25(), cs.users.PBM(), 200, rng=1)
    with raises_code("no-new-queries", DataError, queries=TRAINED) as caught:  # of the log, not of the corpus
        cs.evaluate_ranker(ranker, whole, clicks=log)
    assert "that the log shows" in str(caught.value)


@pytest.mark.parametrize(
    ("other", "today", "verdict"),
    [
        (-0.1, 0.0, "worse than the other"),
        (0.0, -0.1, "worse than today's"),
        (0.1, -0.1, "worse than today's"),
        (0.0, 0.1, "better than today's, not clearly than the other"),
        (0.1, 0.0, "better than the other, not clearly than today's"),
        (0.1, 0.1, "better than today's"),
        (0.0, 0.0, "no clear difference"),
    ],
)
def test_the_verdict_is_that_of_all_comparisons(
    whole: Corpus, ranker: TreeRanker, other: float, today: float, verdict: str
) -> None:
    """Differences with an interval of .05 on each side."""
    rows = tuple(
        {"metric": metric, "other": name, "mean": 0.5, "difference": value, "low": value - 0.05, "high": value + 0.05}
        for metric in ("nDCG@10", "ARP")
        for name, value in (("naive", other), (LOGGING_RANKER, today))
    )
    found = replace(cs.evaluate_ranker(ranker, whole), comparisons=rows)
    assert found.document.verdict == verdict
    assert badge(verdict).mood == ("bad" if min(other, today) < 0 else "good" if min(other, today) > 0 else "caution")
    ranks = found.document.figures["Average rank of relevant documents"].data[0]
    assert len(ranks.x) == 3, "the other rankers are shown, too"
