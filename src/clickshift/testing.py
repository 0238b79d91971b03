"""Conformance checks for click models and policies, for use in the tests of your own models and policies.

>>> from clickshift import builtin_corpus, users
>>> check_click_model(users.PBM().on(builtin_corpus(queries=5)))
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

import numpy as np
from jaxtyping import Bool

from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import UNSEEN, Vocabulary
from clickshift.models.base import ClickModel
from clickshift.policies.base import Policy, RankingDistribution

__all__ = ["check_click_model", "check_policy", "random_rankings"]

_MAX_STANDARD_ERRORS = 5.5
"""Largest accepted deviation of a frequency, in standard errors: one false alarm in thirty million comparisons."""


def check_click_model(
    model: ClickModel, *, ranks: int = 5, lists: int = 12, draws: int = 20_000, seed: int = 0
) -> None:
    """Check that a click model is consistent, on random lists.

    Probabilities lie in [0, 1]; likelihoods of all click patterns sum to 1; marginals equal the sum over patterns; a
    click changes no probability at or above its own rank; sampled frequencies match; padding changes nothing; permuting
    sessions permutes the results; a model that declares not to use history does not. Only the relevance is checked of a
    model that declares not to predict clicks, or to peek at them.

    Parameters
    ----------
    model
        Model to check.
    ranks
        Number of ranks of the lists; all 2^ranks click patterns are enumerated.
    lists
        Number of random lists.
    draws
        Number of sampled sessions.
    seed
        Random seed.

    Raises
    ------
    AssertionError
        If a rule is broken; the message names the first one.

    Examples
    --------
    >>> from clickshift import builtin_corpus, users
    >>> check_click_model(users.PBM().on(builtin_corpus(queries=5)))
    """
    rng = np.random.default_rng(seed)
    rankings = random_rankings(model.vocabulary, lists, ranks, rng=rng)
    if model.ranks_documents:
        relevance = model.relevance(np.arange(UNSEEN, model.vocabulary.n_pairs))
        _require(np.isfinite(relevance).all(), "relevance must be finite for every pair, unseen ones included")
    if not model.predicts_clicks or model.peeks:
        return
    marginal = model.click_prob(rankings)
    _require(((marginal >= 0) & (marginal <= 1)).all(), "click_prob must lie in [0, 1]")
    _require((marginal[~rankings.shown] == 0).all(), "click_prob must be 0 where nothing is shown")
    _check_click_patterns(model, rankings, marginal)
    _check_samples(model, rankings, draws, rng)
    _check_invariance(model, rankings, rng)


def _check_click_patterns(model: ClickModel, rankings: Rankings, marginal: np.ndarray) -> None:
    """Check conditional probabilities and likelihoods of all click patterns against the marginals."""
    total, expected = np.zeros(len(rankings)), np.zeros_like(marginal)
    base = model.click_prob_given_history(Sessions(rankings, np.zeros(rankings.shown.shape, bool)))
    for pattern in _click_patterns(rankings.n_ranks):
        possible = ~(pattern & ~rankings.shown).any(axis=1)
        rows = np.flatnonzero(possible)
        if not len(rows):
            continue
        click = np.broadcast_to(pattern, (len(rows), rankings.n_ranks)).copy()
        sessions = Sessions(rankings[rows], click)
        given = model.click_prob_given_history(sessions)
        _require(((given >= 0) & (given <= 1)).all(), "click_prob_given_history must lie in [0, 1]")
        if pattern.any():
            first = int(pattern.argmax())
            same = np.allclose(given[:, : first + 1], base[rows, : first + 1], atol=1e-10, rtol=0)
            _require(same, f"a click at rank {first + 1} must not change a probability at or above it")
        if not model.uses_history:
            same = np.allclose(given, marginal[rows], atol=1e-12, rtol=0)
            _require(same, "a model without uses_history must not change with the clicks above")
        prob = np.exp(model.log_likelihood(sessions))
        total[rows] += prob
        expected[rows] += prob[:, None] * pattern
    _require(np.allclose(total, 1, atol=1e-9), f"likelihoods of all click patterns must sum to 1: got {total}")
    worst = np.abs(expected - marginal).max()
    _require(worst < 1e-9, f"click_prob must equal the sum over all click patterns: differs by {worst:.2g}")


def _check_samples(model: ClickModel, rankings: Rankings, draws: int, rng: np.random.Generator) -> None:
    """Check sampled frequencies of whole click patterns on one list, which include the dependence between ranks."""
    longest = int(rankings.length.argmax())
    repeated = rankings[np.full(draws, longest)]
    sampled = model.sample(repeated, rng=rng)
    clicks, some_clicks = model.sample_clicks(repeated, key=1), model.sample_clicks(repeated[10:20], key=1, first=10)
    _require((clicks[10:20] == some_clicks).all(), "clicks must depend on the key and the session's number only")
    for pattern in _click_patterns(rankings.n_ranks):
        if (pattern & ~rankings.shown[longest]).any():
            continue
        session = Sessions(rankings[longest : longest + 1], pattern[None].copy())
        prob = float(np.exp(model.log_likelihood(session))[0])
        frequency = (sampled.click == pattern).all(axis=1).mean()
        error = np.sqrt(max(prob * (1 - prob), 1 / draws) / draws)
        _require(
            abs(frequency - prob) < _MAX_STANDARD_ERRORS * error,
            f"clicks {pattern.astype(int)} were sampled with frequency {frequency:.4f}, "
            f"their probability is {prob:.4f}",
        )


def _check_invariance(model: ClickModel, rankings: Rankings, rng: np.random.Generator) -> None:
    """Check that permuting sessions permutes the results, and that padding changes nothing."""
    sessions = model.sample(rankings, rng=rng)
    given = model.click_prob_given_history(sessions)
    order = rng.permutation(len(rankings))
    _require(
        np.allclose(model.click_prob_given_history(sessions[order]), given[order], atol=1e-12, rtol=0),
        "permuting sessions must permute the results",
    )
    pad = ((0, 0), (0, 3))
    padded = Sessions(
        Rankings(
            rankings.vocabulary,
            rankings.query,
            np.pad(rankings.pair, pad, constant_values=UNSEEN),
            np.pad(rankings.shown, pad),
        ),
        np.pad(sessions.click, pad),
    )
    ranks = rankings.n_ranks
    same = np.allclose(model.click_prob_given_history(padded)[:, :ranks], given, atol=1e-12, rtol=0) and np.allclose(
        model.click_prob(padded.rankings)[:, :ranks], model.click_prob(rankings), atol=1e-12, rtol=0
    )
    _require(same, "padding must change nothing")


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
    _require(distribution.vocabulary.same_as(corpus.vocabulary), "the distribution must have the corpus' vocabulary")
    small = np.flatnonzero((corpus.n_candidates > 1) & (corpus.n_candidates <= 5))
    _require(len(small) > 0, "the corpus needs a query of 2 to 5 candidates")
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
    _require(abs(prob.sum() - 1) < 1e-9, f"probabilities of all lists of {ranks} must sum to 1: got {prob.sum()}")

    placement = distribution.placement(np.array([query]), ranks=ranks)
    expected = np.zeros_like(placement)
    for rank in range(lists.n_ranks):
        np.add.at(expected[:, rank], lists.pair[:, rank], prob)
    worst = np.abs(placement - expected).max()
    _require(worst < 1e-9, f"placement must equal the sum over all lists: differs by {worst:.2g}")

    drawn = distribution.sample(np.full(draws, query), ranks=ranks, rng=rng)
    rows = {tuple(row): i for i, row in enumerate(lists.pair.tolist())}
    distinct, frequency = np.unique(drawn.pair[:, : lists.n_ranks], axis=0, return_counts=True)
    count = np.zeros(len(lists))
    count[[rows[tuple(row)] for row in distinct.tolist()]] = frequency
    _require(not count[prob == 0].any(), "a list of probability 0 must not be drawn")
    z = np.abs(count / draws - prob) / np.sqrt(np.maximum(prob * (1 - prob), 1 / draws) / draws)
    _require(z.max() < _MAX_STANDARD_ERRORS, f"list {lists.pair[z.argmax()]} is drawn too often or too rarely")


def _check_placement(distribution: RankingDistribution, corpus: Corpus, ranks: int = 10) -> None:
    """Check that placement probabilities are doubly stochastic as far as lists are filled."""
    placement = distribution.placement(ranks=ranks)
    _require(placement.shape == (corpus.n_pairs, ranks), "placement must have a row per pair and a column per rank")
    _require(placement.min() >= 0, "placement must not be negative")
    _require(placement.sum(axis=1).max() <= 1 + 1e-9, "a document must be placed at one rank at most")
    shown = np.add.reduceat(placement, corpus.offsets[:-1])
    expected = np.arange(ranks) < corpus.n_candidates[:, None]
    _require(
        np.allclose(shown, expected, atol=1e-9), "a rank within the list must show one document, a rank below it none"
    )
    some = np.unique(np.arange(corpus.n_queries) // 2)
    asked = np.isin(corpus.vocabulary.pair_query, some)
    part = distribution.placement(some, ranks=ranks)
    _require(
        (part == np.where(asked[:, None], placement, 0)).all(), "placement of some queries must be 0 for the others"
    )


def _check_draws(distribution: RankingDistribution, corpus: Corpus, rng: np.random.Generator) -> None:
    """Check seeds, lengths and log-probabilities of sampled lists."""
    query = rng.integers(0, corpus.n_queries, 500).astype(np.int32)
    drawn = distribution.sample(query, rng=7)
    _require((drawn.pair == distribution.sample(query, rng=7).pair).all(), "the same seed must give the same lists")
    _require((drawn.length == np.minimum(corpus.n_candidates[query], 10)).all(), "lists must be as long as possible")
    same = drawn.log_prob is not None and np.allclose(
        distribution.log_prob(drawn), drawn.log_prob, rtol=1e-9, atol=1e-9
    )
    _require(same, "sample must return the log_prob of its lists")

    pair, log_prob = distribution.draw(query, ranks=10, key=3)
    some_pair, some_log_prob = distribution.draw(query[123:200], ranks=10, key=3, first=123)
    same = (some_pair == pair[123:200]).all() and (some_log_prob == log_prob[123:200]).all()
    _require(same, "a list must depend on the key and the session's number only")

    # a vocabulary without the top document of the first list, and perhaps without its query
    rest = np.setdiff1d(np.arange(corpus.n_pairs), drawn.pair[0, 0])
    fewer = drawn.in_vocabulary(corpus.vocabulary.with_pairs(rest))
    unknown = (fewer.shown & (fewer.pair == UNSEEN)).any(axis=1)
    impossible = np.isneginf(distribution.log_prob(fewer))
    _require((impossible == unknown).all(), "a list with a document that the policy does not know must be impossible")


def random_rankings(vocabulary: Vocabulary, lists: int, ranks: int, *, rng: np.random.Generator) -> Rankings:
    """Draw random lists of different lengths, of which at least one is full if a query has enough documents.

    Parameters
    ----------
    vocabulary
        Queries and candidate documents.
    lists
        Number of lists.
    ranks
        Largest length of a list.
    rng
        Random generator.
    """
    offsets = vocabulary.query_offsets
    size = np.diff(offsets)
    query = rng.integers(0, vocabulary.n_queries, lists).astype(np.int32)
    query[0] = size.argmax()
    pair = np.full((lists, ranks), UNSEEN, np.int32)
    for i, q in enumerate(query):
        length = min(ranks, size[q]) if i == 0 else rng.integers(1, min(ranks, size[q]) + 1)
        pair[i, :length] = offsets[q] + rng.permutation(size[q])[:length]
    return Rankings(vocabulary, query, pair)


def _click_patterns(ranks: int) -> Iterator[Bool[np.ndarray, " rank"]]:
    """Yield all click patterns on a list."""
    for code in range(2**ranks):
        yield (code >> np.arange(ranks)) % 2 == 1


def _require(condition: object, rule: str) -> None:
    """Raise an AssertionError that names the rule unless the condition holds."""
    if not bool(condition):
        raise AssertionError(rule)
