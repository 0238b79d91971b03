"""Conformance checks for policies."""

from __future__ import annotations

from itertools import permutations

import numpy as np

from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Rankings
from clickshift.data.vocabulary import UNSEEN
from clickshift.policies.base import Policy, RankingDistribution
from clickshift.testing._rules import MAX_STANDARD_ERRORS, require


def check_policy(policy: Policy, corpus: Corpus, *, draws: int = 40_000, seed: int = 0) -> None:
    """Check that a policy is a consistent distribution over lists.

    Probabilities of all lists sum to 1; placement probabilities are their sums; sampled frequencies match; `log_prob`
    agrees with `sample`; the same seed gives the same lists; a list with a document that the policy does not know has
    probability 0.

    Parameters
    ----------
    policy
        Policy to check.
    corpus
        Queries to rank; one of them must have 2 to 5 documents.
    draws
        Number of sampled lists.
    seed
        Random seed.

    Raises
    ------
    AssertionError
        If a rule is broken; the message names the first one.

    Examples
    --------
    >>> from clickshift import Uniform, builtin_corpus
    >>> rng = np.random.default_rng(0)
    >>> check_policy(Uniform(), builtin_corpus(queries=5).stratified(3, rng=rng), draws=1000)
    """
    rng, distribution = np.random.default_rng(seed), policy.on(corpus)
    require(distribution.vocabulary.same_as(corpus.vocabulary), "the distribution must have the corpus' vocabulary")
    small = np.flatnonzero((corpus.n_candidates > 1) & (corpus.n_candidates <= 5))
    require(len(small) > 0, "the corpus needs a query of 2 to 5 candidates")
    for query in small[:2].tolist():
        for ranks in range(1, int(corpus.n_candidates[query]) + 2):
            _check_lists(distribution, query, ranks, draws, rng)
    _check_placement(distribution, corpus)
    _check_draws(distribution, corpus, rng)


def _check_lists(
    distribution: RankingDistribution, query: int, ranks: int, draws: int, rng: np.random.Generator
) -> None:
    """Check probabilities, placements and sampled frequencies of all lists of one query."""
    vocabulary = distribution.vocabulary
    begin, end = vocabulary.query_offsets[query : query + 2].tolist()
    pairs = np.array(list(permutations(range(begin, end), min(ranks, end - begin))), np.int32)
    lists = Rankings(vocabulary, np.full(len(pairs), query, np.int32), pairs)
    prob = np.exp(distribution.log_prob(lists))
    require(abs(prob.sum() - 1) < 1e-9, f"probabilities of all lists of {ranks} must sum to 1: got {prob.sum()}")
    holed = pairs.copy()
    holed[:, 0] = UNSEEN
    if lists.n_ranks > 1:
        impossible = np.isneginf(distribution.log_prob(Rankings(vocabulary, lists.query, holed)))
        require(impossible.all(), "a list with a hole must be impossible")

    placement = distribution.placement(np.array([query]), ranks=ranks)
    expected = np.zeros_like(placement)
    for rank in range(lists.n_ranks):
        np.add.at(expected[:, rank], lists.pair[:, rank], prob)
    worst = np.abs(placement - expected).max()
    require(worst < 1e-9, f"placement must equal the sum over all lists: differs by {worst:.2g}")

    drawn = distribution.sample(np.full(draws, query), ranks=ranks, rng=rng)
    rows = {tuple(row): i for i, row in enumerate(lists.pair.tolist())}
    distinct, frequency = np.unique(drawn.pair[:, : lists.n_ranks], axis=0, return_counts=True)
    count = np.zeros(len(lists))
    count[[rows[tuple(row)] for row in distinct.tolist()]] = frequency
    require(not count[prob == 0].any(), "a list of probability 0 must not be drawn")
    z = np.abs(count / draws - prob) / np.sqrt(np.maximum(prob * (1 - prob), 1 / draws) / draws)
    require(z.max() < MAX_STANDARD_ERRORS, f"list {lists.pair[z.argmax()]} is drawn too often or too rarely")


def _check_placement(distribution: RankingDistribution, corpus: Corpus, ranks: int = 10) -> None:
    """Check that placement probabilities are doubly stochastic as far as lists are filled."""
    placement = distribution.placement(ranks=ranks)
    require(placement.shape == (corpus.n_pairs, ranks), "placement must have a row per pair and a column per rank")
    require(placement.min() >= 0, "placement must not be negative")
    require(placement.sum(axis=1).max() <= 1 + 1e-9, "a document must be placed at one rank at most")
    shown = np.add.reduceat(placement, corpus.offsets[:-1])
    expected = np.arange(ranks) < corpus.n_candidates[:, None]
    require(
        np.allclose(shown, expected, atol=1e-9), "a rank within the list must show one document, a rank below it none"
    )
    some = np.unique(np.arange(corpus.n_queries) // 2)
    asked = np.isin(corpus.vocabulary.pair_query, some)
    part = distribution.placement(some, ranks=ranks)
    require(
        (part == np.where(asked[:, None], placement, 0)).all(), "placement of some queries must be 0 for the others"
    )


def _check_draws(distribution: RankingDistribution, corpus: Corpus, rng: np.random.Generator) -> None:
    """Check seeds, lengths and log-probabilities of sampled lists."""
    query = rng.integers(0, corpus.n_queries, 500).astype(np.int32)
    drawn = distribution.sample(query, rng=7)
    require((drawn.pair == distribution.sample(query, rng=7).pair).all(), "the same seed must give the same lists")
    require((drawn.length == np.minimum(corpus.n_candidates[query], 10)).all(), "lists must be as long as possible")
    same = drawn.log_prob is not None and np.allclose(
        distribution.log_prob(drawn), drawn.log_prob, rtol=1e-9, atol=1e-9
    )
    require(same, "sample must return the log_prob of its lists")

    pair, log_prob = distribution.draw(query, ranks=10, key=3)
    some_pair, some_log_prob = distribution.draw(query[123:200], ranks=10, key=3, first=123)
    same = (some_pair == pair[123:200]).all() and (some_log_prob == log_prob[123:200]).all()
    require(same, "a list must depend on the key and the session's number only")

    # a vocabulary without the top document of the first list, and perhaps without its query
    rest = np.setdiff1d(np.arange(corpus.n_pairs), drawn.pair[0, 0])
    fewer = drawn.in_vocabulary(corpus.vocabulary.with_pairs(rest))
    unknown = (fewer.shown & (fewer.pair == UNSEEN)).any(axis=1)
    impossible = np.isneginf(distribution.log_prob(fewer))
    require((impossible == unknown).all(), "a list with a document that the policy does not know must be impossible")
