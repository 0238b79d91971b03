"""Semi-synthetic set-up of unbiased learning to rank: a weak production ranker shows fixed rankings, PBM users click.

The ranking of a query never changes, so all its sessions show each document at one rank, and the clicks on a document
are one binomial draw: 100 million sessions cost as much as a thousand. (The papers' "CTR trick" draws the sessions and
keeps their mean; here only the counts are drawn. The distribution is the same.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import numpy as np
from jaxtyping import Float, Int

from clickshift.core.rng import generator
from clickshift.counts.cells import Cells
from clickshift.data.corpus import Corpus, CorpusSplit
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import UNSEEN
from clickshift.errors import DataError
from clickshift.policies.lambdamart import LambdaMART
from clickshift.simulation.users import PBM

PRODUCTION_QUERIES = 20
"""Number of training queries of the production ranker."""
TRUNCATION = 90
"""Percentage of the training queries that keep all their documents."""


@final
@dataclass(frozen=True, eq=False)
class FixedRanking:
    """One fixed ranking per query: all its documents in descending order of a score.

    Parameters
    ----------
    corpus
        Queries and documents.
    rank
        Rank of each pair, from 0.
    """

    corpus: Corpus
    rank: Int[np.ndarray, " pair"]

    @classmethod
    def of(cls, corpus: Corpus, score: Float[np.ndarray, " pair"], *, rng: np.random.Generator) -> FixedRanking:
        """Rank by descending score; equal scores are shuffled, once for all sessions.

        Without the shuffle ties would be ranked in the order of the file, which may be that of the labels.

        Parameters
        ----------
        corpus
            Queries and documents.
        score
            Score of each pair.
        rng
            Random generator for tie-breaking.

        Raises
        ------
        DataError
            "wrong-shape" if there is not one score per pair.
        """
        if score.shape != (corpus.n_pairs,):
            raise DataError(
                f"there must be one score per candidate, {corpus.n_pairs}: got shape {score.shape}.",
                code="wrong-shape",
                shape=score.shape,
                expected=(corpus.n_pairs,),
            )
        order = np.lexsort((rng.random(corpus.n_pairs), -score, corpus.vocabulary.pair_query))
        rank = np.empty(corpus.n_pairs, np.int64)
        rank[order] = np.arange(corpus.n_pairs) - np.repeat(corpus.offsets[:-1], corpus.n_candidates)
        return cls(corpus, rank)

    @property
    def n_ranks(self) -> int:
        """Length of the longest list."""
        return int(self.corpus.n_candidates.max())

    def click_prob(self, user: PBM) -> Float[np.ndarray, " pair"]:
        """Return the click probability of every document at its rank: examination times attractiveness."""
        prob: np.ndarray = self.examination(user) * _attractiveness(self.corpus, user)
        return prob

    def examination(self, user: PBM) -> Float[np.ndarray, " pair"]:
        """Return the examination of every document at its rank."""
        examination: np.ndarray = user.exposure(self.n_ranks)[self.rank]
        return examination

    def clicks(self, user: PBM, sessions: int, *, rng: np.random.Generator) -> Cells:
        """Simulate the impressions and clicks of a number of sessions.

        Queries arrive uniformly at random; a query without a session is left out.

        Parameters
        ----------
        user
            Simulated user.
        sessions
            Number of sessions.
        rng
            Random generator.

        Raises
        ------
        DataError
            "no-sessions" if `sessions` is below 1.
        """
        visits = self._visits(sessions, rng)[self.corpus.vocabulary.pair_query]
        clicks = rng.binomial(visits, self.click_prob(user))
        pair = np.flatnonzero(visits)
        return Cells(
            self.corpus.vocabulary,
            self.n_ranks,
            "rank",
            pair,
            self.rank[pair],
            visits[pair].astype(np.float64),
            clicks[pair].astype(np.float64),
        )

    def sessions(self, user: PBM, sessions: int, *, rng: np.random.Generator) -> Sessions:
        """Simulate single sessions from the same distribution, for checks; parameters as in `clicks`."""
        query = np.repeat(np.arange(self.corpus.n_queries), self._visits(sessions, rng)).astype(np.int32)
        pair, prob = self._lists[query], np.append(self.click_prob(user), 0.0)
        return Sessions(Rankings(self.corpus.vocabulary, query, pair), rng.random(pair.shape) < prob[pair])

    def _visits(self, sessions: int, rng: np.random.Generator) -> np.ndarray:
        """Draw the number of sessions of each query."""
        if sessions < 1:
            raise DataError(
                f"there must be at least one session: got {sessions}.", code="no-sessions", sessions=sessions
            )
        queries = self.corpus.n_queries
        return rng.multinomial(sessions, np.full(queries, 1 / queries))

    @cached_property
    def _lists(self) -> np.ndarray:
        """Pair numbers of each query's list, padded with `UNSEEN`."""
        lists = np.full((self.corpus.n_queries, self.n_ranks), UNSEEN, np.int32)
        lists[self.corpus.vocabulary.pair_query, self.rank] = np.arange(self.corpus.n_pairs)
        return lists


def _attractiveness(corpus: Corpus, user: PBM) -> Float[np.ndarray, " pair"]:
    """Return noise + (1 - noise) (2^label - 1) / (2^max_label - 1) of every pair."""
    return user.noise + (1 - user.noise) * corpus.gain


@final
@dataclass(frozen=True, eq=False)
class FixedRankingEngine:
    """Search engine with a production ranker that fixes the rankings of training and held-out queries.

    Parameters
    ----------
    parts
        Training, held-out and test queries.
    train
        Rankings of the training queries.
    held_out
        Rankings of the held-out queries.
    test_score
        Production ranker's score of each test pair.
    """

    parts: CorpusSplit
    train: FixedRanking
    held_out: FixedRanking
    test_score: Float[np.ndarray, " test_pair"]

    @classmethod
    def of(
        cls, parts: CorpusSplit, production: LambdaMART | None, *, seed: int, own_queries: bool = False
    ) -> FixedRankingEngine:
        """Fit the production ranker and rank the training and held-out queries.

        Parameters
        ----------
        parts
            Training, held-out and test queries.
        production
            Settings of the production ranker; None orders documents at random, once.
        seed
            Random seed of the ranker, of its training queries and of tie-breaking.
        own_queries
            Whether the production ranker also ranks the 20 queries on which it was fitted, as published.

        Raises
        ------
        DataError
            "too-few-queries" if there are not enough training queries.
        """
        ranker = None if production is None else replace(production, seed=seed)
        rng = generator(seed, "production", "queries")
        train, held_out, test = _production_scores(parts, ranker, rng=rng, own_queries=own_queries)
        return cls(
            parts,
            FixedRanking.of(parts.train, train, rng=generator(seed, "production", "ties", "train")),
            FixedRanking.of(parts.held_out, held_out, rng=generator(seed, "production", "ties", "held out")),
            test,
        )

    def clicks(self, user: PBM, sessions: int, *, seed: int) -> tuple[Cells, Cells]:
        """Simulate training and held-out clicks, with held-out sessions in proportion to the number of queries.

        Parameters
        ----------
        user
            Simulated user.
        sessions
            Number of training sessions.
        seed
            Random seed.
        """
        held_out_sessions = max(1, int(sessions * self.parts.held_out.n_queries / self.parts.train.n_queries))
        return (
            self.train.clicks(user, sessions, rng=generator(seed, "clicks", "train", sessions)),
            self.held_out.clicks(user, held_out_sessions, rng=generator(seed, "clicks", "held out", sessions)),
        )

    @property
    def n_ranks(self) -> int:
        """Length of the longest training or held-out list."""
        return max(self.train.n_ranks, self.held_out.n_ranks)


def truncated(parts: CorpusSplit, *, seed: int) -> CorpusSplit:
    """Limit the documents per query to the number that 90 % of the training queries do not exceed.

    Longer queries are sampled with each grade keeping its share.

    Parameters
    ----------
    parts
        Training, held-out and test queries.
    seed
        Random seed of the samples.
    """
    max_docs = int(np.ceil(np.percentile(parts.train.n_candidates, TRUNCATION)))
    return CorpusSplit(
        *(
            corpus.stratified(max_docs, rng=generator(seed, "truncation", name))
            if (corpus.n_candidates > max_docs).any()
            else corpus
            for name, corpus in zip(CorpusSplit._fields, parts, strict=True)
        )
    )


def _production_scores(
    parts: CorpusSplit, production: LambdaMART | None, *, rng: np.random.Generator, own_queries: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the scores of all three parts by a ranker fitted on 20 training queries.

    Those 20 queries are scored by another ranker, fitted on 20 others, because on its own training queries a ranker is
    nearly an oracle. With `own_queries` they are scored by the ranker that was fitted on them, as in the paper.
    """
    if production is None:
        train, held_out, test = (np.zeros(corpus.n_pairs) for corpus in parts)
        return train, held_out, test
    order, n = rng.permutation(parts.train.n_queries), PRODUCTION_QUERIES
    if len(order) <= n:
        raise DataError(
            f"a production ranker needs {n} training queries, and others to rank: the set has {len(order)}. "
            "Use a larger one.",
            code="too-few-queries",
            count=len(order),
        )
    fitted = np.zeros(parts.train.n_queries, bool)
    fitted[order[:n]] = True
    fitted_pair, fitted_corpus = fitted[parts.train.vocabulary.pair_query], parts.train.with_queries(fitted)
    ranker = replace(production, train=fitted_corpus)
    other_ranker = replace(production, train=parts.train.with_queries(order[n : 2 * n]))
    train = np.empty(parts.train.n_pairs)
    train[~fitted_pair] = ranker.scores(parts.train.with_queries(~fitted))
    train[fitted_pair] = ranker.scores(_renamed(fitted_corpus)) if own_queries else other_ranker.scores(fitted_corpus)
    return train, ranker.scores(parts.held_out), ranker.scores(parts.test)


def _renamed(corpus: Corpus) -> Corpus:
    """Return the corpus with other query ids: a LambdaMART refuses to rank the queries on which it was fitted."""
    names = np.array([f"own {number:06d}" for number in range(corpus.n_queries)])
    return replace(corpus, vocabulary=replace(corpus.vocabulary, query_ids=names))
