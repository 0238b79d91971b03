"""Metrics on files in published formats, which stand in for the real samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import ndcg_score

from clickshift.counts.daily import DayCounts
from clickshift.data.sessions import Sessions
from clickshift.day_drift.compare import compare_days
from clickshift.io.datasets.letor import read_corpus
from clickshift.io.datasets.open_bandit import read_open_bandit
from clickshift.metrics.ranking import CUTOFFS, JudgedPairs, ranking_quality


@pytest.mark.parametrize(
    ("file", "feature", "equal"), [("mq2008/S5.txt.gz", 25, 2), ("mslr_sample/web10k_fold1_test_5k.txt.gz", 110, 0)]
)
def test_ndcg_of_a_published_file_is_that_of_scikit_learn(standins: Path, file: str, feature: int, equal: int) -> None:
    """One feature as a ranker, ties in order of the pairs; queries whose labels are all 0 are not judged."""
    corpus = read_corpus(standins / file, cache=False)
    judged = JudgedPairs.of(corpus.vocabulary, corpus.label.astype(float))
    score = np.empty(corpus.n_pairs)
    score[np.lexsort((np.arange(corpus.n_pairs), corpus.feature(feature)))] = np.arange(corpus.n_pairs)
    quality = ranking_quality(score, judged, rng=0)
    assert judged.equal_queries == equal
    lists = [
        (corpus.label[a:b], score[a:b])
        for a, b in zip(corpus.offsets[:-1], corpus.offsets[1:], strict=True)
        if np.ptp(corpus.label[a:b]) > 0
    ]
    for k in CUTOFFS:
        expected = [ndcg_score([2.0**label - 1], [value], k=k) for label, value in lists]
        assert quality.per_query[f"nDCG@{k}"] == pytest.approx(expected, abs=1e-9)
    assert quality.means()["nDCG@10"] > ranking_quality(-score, judged, rng=0).means()["nDCG@10"] + 0.05


def verdict(earlier: Sessions, later: Sessions) -> str:
    found = compare_days([DayCounts.of(earlier), DayCounts.of(later)], ["earlier", "later"]).steps[0].verdict
    return str(found)


def test_a_policy_that_learns_is_told_from_one_that_draws_at_random(standins: Path) -> None:
    """A week of each: `random` stays the same, `bts` moves to the items that are clicked most."""
    chance, learning = (read_open_bandit(standins / "open_bandit" / name / "men") for name in ("random", "bts"))
    for log in (chance, learning):
        assert verdict(*log.split(0.5, rng=1)) == "same"
    assert verdict(*chance.split_by_time(0.5)) == "same"
    assert verdict(*learning.split_by_time(0.5)) == "changed"
    assert verdict(chance, learning) == "changed"
