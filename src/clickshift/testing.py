"""Conformance suites: what must hold of any click model and any policy. Run them on your own.

>>> from clickshift import builtin_corpus, users
>>> check_click_model(users.PBM().on(builtin_corpus(queries=5)))
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

import numpy as np
from jaxtyping import Bool

from clickshift.corpus import Corpus
from clickshift.models.base import ClickModel
from clickshift.policies.base import Policy
from clickshift.sessions import Rankings, Sessions
from clickshift.vocabulary import UNSEEN, Vocabulary

_Z = 5.5  # standard errors: a false alarm in thirty million comparisons


def check_click_model(
    model: ClickModel, *, ranks: int = 5, lists: int = 12, draws: int = 20_000, seed: int = 0
) -> None:
    """Raise an AssertionError that names the first rule which the model breaks.

    Probabilities lie in [0, 1]; likelihoods of all click patterns sum to 1; marginals equal the sum over patterns; no
    click moves a probability at or above its own rank; sampled frequencies match; padding changes nothing; permuting
    sessions permutes results; a model that says it does not use history does not.
    """
    rng = np.random.default_rng(seed)
    rankings = random_rankings(model.vocabulary, lists, ranks, rng=rng)
    if model.ranks_documents:
        relevance = model.relevance(np.arange(UNSEEN, model.vocabulary.n_pairs))
        _hold(np.isfinite(relevance).all(), "relevance must be finite for every pair, unseen ones included")
    if not model.predicts_clicks:
        return
    marginal = model.click_prob(rankings)
    _hold(((marginal >= 0) & (marginal <= 1)).all(), "click_prob must lie in [0, 1]")
    _hold((marginal[~rankings.shown] == 0).all(), "click_prob must be 0 where nothing is shown")
    _check_patterns(model, rankings, marginal)
    _check_samples(model, rankings, draws, rng)
    _check_invariance(model, rankings, rng)


def _check_patterns(model: ClickModel, rankings: Rankings, marginal: np.ndarray) -> None:
    total, expected = np.zeros(len(rankings)), np.zeros_like(marginal)
    base = model.click_prob_given_history(Sessions(rankings, np.zeros(rankings.shown.shape, bool)))
    for pattern in _patterns(rankings.n_ranks):
        possible = ~(pattern & ~rankings.shown).any(axis=1)
        rows = np.flatnonzero(possible)
        if not len(rows):
            continue
        click = np.broadcast_to(pattern, (len(rows), rankings.n_ranks)).copy()
        sessions = Sessions(rankings[rows], click)
        given = model.click_prob_given_history(sessions)
        _hold(((given >= 0) & (given <= 1)).all(), "click_prob_given_history must lie in [0, 1]")
        if pattern.any():
            first = int(pattern.argmax())
            same = np.allclose(given[:, : first + 1], base[rows, : first + 1], atol=1e-10, rtol=0)
            _hold(same, f"a click at rank {first + 1} must not move a probability at or above it")
        if not model.uses_history:
            same = np.allclose(given, marginal[rows], atol=1e-12, rtol=0)
            _hold(same, "a model without uses_history must not change with the clicks above")
        prob = np.exp(model.log_likelihood(sessions))
        total[rows] += prob
        expected[rows] += prob[:, None] * pattern
    _hold(np.allclose(total, 1, atol=1e-9), f"likelihoods of all click patterns must sum to 1: got {total}")
    worst = np.abs(expected - marginal).max()
    _hold(worst < 1e-9, f"click_prob must equal the sum over all click patterns: differs by {worst:.2g}")


def _check_samples(model: ClickModel, rankings: Rankings, draws: int, rng: np.random.Generator) -> None:
    """Frequencies of whole click patterns on one list, which also hold the dependence between ranks."""
    longest = int(rankings.length.argmax())
    repeated = rankings[np.full(draws, longest)]
    sampled = model.sample(repeated, rng=rng)
    again = model.sample_clicks(repeated, key=1), model.sample_clicks(repeated[10:20], key=1, first=10)
    _hold((again[0][10:20] == again[1]).all(), "clicks must depend on the key and the session's number alone")
    for pattern in _patterns(rankings.n_ranks):
        if (pattern & ~rankings.shown[longest]).any():
            continue
        one = Sessions(rankings[longest : longest + 1], pattern[None].copy())
        prob = float(np.exp(model.log_likelihood(one))[0])
        frequency = (sampled.click == pattern).all(axis=1).mean()
        error = np.sqrt(max(prob * (1 - prob), 1 / draws) / draws)
        _hold(
            abs(frequency - prob) < _Z * error,
            f"clicks {pattern.astype(int)} were sampled with frequency {frequency:.4f}, "
            f"their probability is {prob:.4f}",
        )


def _check_invariance(model: ClickModel, rankings: Rankings, rng: np.random.Generator) -> None:
    sessions = model.sample(rankings, rng=rng)
    given = model.click_prob_given_history(sessions)
    order = rng.permutation(len(rankings))
    _hold(
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
    _hold(same, "padding must change nothing")


def check_policy(policy: Policy, corpus: Corpus, *, draws: int = 40_000, seed: int = 0) -> None:
    """Raise an AssertionError that names the first rule which the policy breaks.

    The corpus needs a query of 2 to 6 documents.

    Probabilities of all lists sum to 1; they agree with `placement`; sampled frequencies match both; what `sample`
    says of a list's probability is what `log_prob` says; the same seed gives the same lists.
    """
    small = np.flatnonzero((corpus.n_candidates >= 2) & (corpus.n_candidates <= 6))
    _hold(len(small) > 0, "the corpus needs a query of 2 to 6 candidates")
    query, rankings = int(small[0]), policy.on(corpus)
    first, last = corpus.offsets[query], corpus.offsets[query + 1]
    for ranks in {1, int(last - first) - 1, int(last - first)} - {0}:
        lists = np.array(list(permutations(range(first, last), ranks)), np.int32)
        every = Rankings(corpus.vocabulary, np.full(len(lists), query, np.int32), lists)
        prob = np.exp(rankings.log_prob(every))
        _hold(abs(prob.sum() - 1) < 1e-9, f"probabilities of all lists of {ranks} must sum to 1: got {prob.sum()}")
        placed = np.stack([np.bincount(lists[:, r] - first, prob, last - first) for r in range(ranks)], axis=1)
        exact = rankings.placement(ranks=ranks)[first:last]
        worst = np.abs(placed - exact).max()
        _hold(worst < 1e-8, f"placement must equal the sum over all lists: differs by {worst:.2g}")
        asked = np.full(draws, query, np.int32)
        drawn = rankings.sample(asked, ranks=ranks, rng=np.random.default_rng(seed))
        again = rankings.sample(asked, ranks=ranks, rng=np.random.default_rng(seed))
        _hold((drawn.pair == again.pair).all(), "the same seed must give the same lists")
        _hold(
            drawn.log_prob is not None and np.allclose(drawn.log_prob, rankings.log_prob(drawn), atol=1e-9),
            "sample must return the log_prob of its lists",
        )
        base = np.int64(last - first) ** np.arange(ranks)
        index = {int(code): i for i, code in enumerate((lists - first) @ base)}
        counts = np.zeros(len(lists))
        for code, count in zip(*np.unique((drawn.pair - first) @ base, return_counts=True), strict=True):
            counts[index[int(code)]] = count
        error = np.sqrt(np.maximum(prob * (1 - prob), 1 / draws) / draws)
        _hold((np.abs(counts / draws - prob) < _Z * error).all(), "lists must be sampled with their probabilities")


def random_rankings(vocabulary: Vocabulary, lists: int, ranks: int, *, rng: np.random.Generator) -> Rankings:
    """Lists of different lengths, at least one of them full where a query has enough documents."""
    offsets = vocabulary.query_offsets
    size = np.diff(offsets)
    query = rng.integers(0, vocabulary.n_queries, lists).astype(np.int32)
    query[0] = size.argmax()
    pair = np.full((lists, ranks), UNSEEN, np.int32)
    for i, q in enumerate(query):
        length = min(ranks, size[q]) if i == 0 else rng.integers(1, min(ranks, size[q]) + 1)
        pair[i, :length] = offsets[q] + rng.permutation(size[q])[:length]
    return Rankings(vocabulary, query, pair)


def _patterns(ranks: int) -> Iterator[Bool[np.ndarray, " rank"]]:
    for code in range(2**ranks):
        yield (code >> np.arange(ranks)) % 2 == 1


def _hold(condition: object, rule: str) -> None:
    if not bool(condition):
        raise AssertionError(rule)
