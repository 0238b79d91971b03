"""LambdaMART ranks queries that it has not seen, and the same way every time."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from clickshift.data.corpus import Corpus
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import DataError, SpecError
from clickshift.policies.basic import Feature, Uniform
from clickshift.policies.lambdamart import LambdaMART
from tests.codes import raises_code
from tests.policies.small_corpora import small_corpus

SMALL = LambdaMART(trees=15, leaves=8)


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """So little work is not worth the threads' waiting for each other."""
    monkeypatch.setenv("CLICKSHIFT_THREADS", "1")


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return small_corpus(*[15] * 80, seed=1)


def mean_label_on_top(policy: Feature | LambdaMART | Uniform, corpus: Corpus) -> float:
    return float(corpus.label @ policy.on(corpus).placement(ranks=3).sum(axis=1)) / corpus.n_queries


def renamed(corpus: Corpus) -> Corpus:
    """The same queries under other ids."""
    words = corpus.vocabulary
    vocabulary, _, _ = Vocabulary.of(words.query_ids[words.pair_query] + 1000, words.doc_ids[words.pair_doc])
    return dataclasses.replace(corpus, vocabulary=vocabulary)


def test_it_learns_to_rank(corpus: Corpus) -> None:
    learned, random = mean_label_on_top(SMALL, corpus), mean_label_on_top(Uniform(), corpus)
    useless = mean_label_on_top(Feature(2), corpus)
    assert learned > 1.6 * max(random, useless)
    score = SMALL.scores(corpus)
    assert np.minimum.reduceat(score, corpus.offsets[:-1]).tolist() == [0] * 80
    assert np.maximum.reduceat(score, corpus.offsets[:-1]).tolist() == [1] * 80


def test_a_query_is_scored_without_its_own_labels(corpus: Corpus) -> None:
    score = SMALL.scores(corpus)
    label = corpus.label.copy()
    label[:15] = 4 - label[:15]
    changed = SMALL.scores(dataclasses.replace(corpus, label=label))
    np.testing.assert_array_equal(changed[:15], score[:15])
    assert (changed[15:] != score[15:]).any()


def test_the_seed_decides(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = LambdaMART(trees=2, leaves=4)
    score = policy.scores(corpus)
    monkeypatch.setenv("CLICKSHIFT_THREADS", "2")
    np.testing.assert_array_equal(policy.scores(corpus), score)
    assert (dataclasses.replace(policy, seed=1).scores(corpus) != score).any()


def test_few_queries_make_a_weak_ranker(corpus: Corpus) -> None:
    weak = dataclasses.replace(SMALL, n_queries=4)
    assert mean_label_on_top(weak, corpus) < mean_label_on_top(SMALL, corpus)


def test_another_corpus_to_fit_on(corpus: Corpus) -> None:
    elsewhere = renamed(corpus)
    policy = dataclasses.replace(SMALL, train=elsewhere)
    cut = corpus.with_queries(np.arange(3))  # scores of a query do not depend on which others are ranked
    np.testing.assert_array_equal(policy.scores(cut), policy.scores(corpus)[:45])
    with raises_code("shared-query", DataError, count=80, query=1100):
        policy.scores(elsewhere)


def test_what_cannot_be_fitted_is_refused(corpus: Corpus) -> None:
    with raises_code("no-features", DataError):
        SMALL.scores(dataclasses.replace(corpus, features=None))
    with raises_code("too-few-queries", DataError, count=1):
        SMALL.scores(corpus.with_queries(np.arange(1)))
    with raises_code("too-few-queries", DataError, count=40, value=41):
        dataclasses.replace(SMALL, n_queries=41).scores(corpus)
    with raises_code("not-integers", DataError, value=0.5):
        SMALL.scores(dataclasses.replace(corpus, label=corpus.label / 2))
    fewer = dataclasses.replace(renamed(corpus), features=corpus.features[:, :2])
    with raises_code("wrong-shape", DataError, expected=4, count=2):
        dataclasses.replace(SMALL, train=fewer).scores(corpus)
    with raises_code("bad-option", SpecError, option="folds", value=1):
        LambdaMART(folds=1)
    with raises_code("bad-option", SpecError, leaves=1):
        LambdaMART(leaves=1)
