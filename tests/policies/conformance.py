"""What must hold of any policy, checked on any corpus that has a query of two to five candidates."""

from __future__ import annotations

from itertools import permutations

import numpy as np

from clickshift.corpus import Corpus
from clickshift.policies.base import Policy, RankingDistribution
from clickshift.sessions import Rankings
from clickshift.vocabulary import UNSEEN, Vocabulary

DRAWS = 40_000
STANDARD_ERRORS = 5.0  # a false alarm in two million comparisons


def small_corpus(*sizes: int, seed: int = 0, features: int = 4) -> Corpus:
    """Queries of these many candidates, grades 0 to 4, features of which the first follows the grade."""
    rng = np.random.default_rng(seed)
    query = np.repeat(np.arange(len(sizes)), sizes)
    vocabulary, _, _ = Vocabulary.of(query + 100, np.concatenate([np.arange(size) for size in sizes]))
    label = rng.choice(5, len(query), p=[0.4, 0.25, 0.2, 0.1, 0.05])
    table = rng.normal(size=(len(query), features))
    table[:, 0] += label
    return Corpus(vocabulary, label.astype(np.float32), table.astype(np.float32))


def all_lists(vocabulary: Vocabulary, query: int, ranks: int) -> Rankings:
    """Every list of that many of the query's candidates."""
    begin, end = vocabulary.query_offsets[query : query + 2].tolist()
    lists = np.array(list(permutations(range(begin, end), min(ranks, end - begin))), np.int32)
    return Rankings(vocabulary, np.full(len(lists), query, np.int32), lists)


def check_policy(policy: Policy, corpus: Corpus, rng: np.random.Generator) -> None:
    distribution = policy.on(corpus)
    assert distribution.vocabulary.same_as(corpus.vocabulary)
    small = np.flatnonzero((corpus.n_candidates > 1) & (corpus.n_candidates <= 5))
    assert len(small), "the corpus needs a query of two to five candidates"
    for query in small[:2].tolist():
        for ranks in range(1, int(corpus.n_candidates[query]) + 2):
            _check_lists(distribution, query, ranks, rng)
    _check_placement(distribution, corpus)
    _check_draws(distribution, corpus, rng)


def _check_lists(distribution: RankingDistribution, query: int, ranks: int, rng: np.random.Generator) -> None:
    """Probabilities of all lists sum to 1; placements are their sums; lists are drawn as often as they should be."""
    lists = all_lists(distribution.vocabulary, query, ranks)
    prob = np.exp(distribution.log_prob(lists))
    np.testing.assert_allclose(prob.sum(), 1, rtol=1e-12)

    placement = distribution.placement(np.array([query]), ranks=ranks)
    expected = np.zeros_like(placement)
    for rank in range(lists.n_ranks):
        np.add.at(expected[:, rank], lists.pair[:, rank], prob)
    np.testing.assert_allclose(placement, expected, atol=1e-10)

    drawn = distribution.sample(np.full(DRAWS, query), ranks=ranks, rng=rng)
    rows = {tuple(row): i for i, row in enumerate(lists.pair.tolist())}
    found, times = np.unique(drawn.pair[:, : lists.n_ranks], axis=0, return_counts=True)
    count = np.zeros(len(lists))
    count[[rows[tuple(row)] for row in found.tolist()]] = times
    assert not count[prob == 0].any(), "a list of probability 0 was drawn"
    error = np.sqrt(np.maximum(prob * (1 - prob), 1 / DRAWS) / DRAWS)
    worst = np.abs(count / DRAWS - prob) / error
    assert worst.max() < STANDARD_ERRORS, f"list {lists.pair[worst.argmax()]} is drawn too often or too seldom"


def _check_placement(distribution: RankingDistribution, corpus: Corpus) -> None:
    """A document stands at one rank at the most; a rank within the list shows one document, a rank below it none."""
    ranks = 10
    placement = distribution.placement(ranks=ranks)
    assert placement.shape == (corpus.n_pairs, ranks)
    assert placement.min() >= 0
    assert placement.sum(axis=1).max() <= 1 + 1e-10
    shown = np.add.reduceat(placement, corpus.offsets[:-1])
    expected = np.arange(ranks) < corpus.n_candidates[:, None]
    np.testing.assert_allclose(shown, expected, atol=1e-9)
    some = np.unique(np.arange(corpus.n_queries) // 2)
    asked = np.isin(corpus.vocabulary.pair_query, some)
    np.testing.assert_array_equal(distribution.placement(some, ranks=ranks), np.where(asked[:, None], placement, 0))


def _check_draws(distribution: RankingDistribution, corpus: Corpus, rng: np.random.Generator) -> None:
    """The same seed gives the same lists; a row depends on the key and its number; `log_prob` agrees with `sample`."""
    query = rng.integers(0, corpus.n_queries, 500).astype(np.int32)
    drawn = distribution.sample(query, rng=7)
    np.testing.assert_array_equal(drawn.pair, distribution.sample(query, rng=7).pair)
    np.testing.assert_array_equal(drawn.length, np.minimum(corpus.n_candidates[query], 10))
    assert drawn.log_prob is not None
    np.testing.assert_allclose(distribution.log_prob(drawn), drawn.log_prob, rtol=1e-12, atol=1e-12)

    pair, log_prob = distribution.draw(query, ranks=10, key=3)
    some_pair, some_log_prob = distribution.draw(query[123:200], ranks=10, key=3, first=123)
    np.testing.assert_array_equal(some_pair, pair[123:200])
    np.testing.assert_array_equal(some_log_prob, log_prob[123:200])

    # a vocabulary that lacks the document on top of the first list, and with it perhaps the query
    fewer = drawn.in_vocabulary(corpus.vocabulary.with_pairs(np.setdiff1d(np.arange(corpus.n_pairs), drawn.pair[0, 0])))
    unknown = (fewer.shown & (fewer.pair == UNSEEN)).any(axis=1)
    assert unknown[0]
    np.testing.assert_array_equal(np.isneginf(distribution.log_prob(fewer)), unknown)
