"""The semi-synthetic set-up of unbiased learning to rank: a weak production ranker shows, PBM users click.

The ranking of a query never changes, so that all sessions of it show each document at one rank, and the clicks on a
document are a binomial draw: 100 million sessions cost what a thousand do. (The papers' "CTR trick" draws the
sessions and keeps their mean; here nothing but the counts is drawn. The law is the same.)
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
TRUNCATION = 90
"""Percent of the queries whose documents are all kept."""


@final
@dataclass(frozen=True, eq=False)
class FixedRanking:
    """One fixed ranking of every query: all its documents, in the order of a score."""

    corpus: Corpus
    rank: Int[np.ndarray, " pair"]
    """From 0."""

    @classmethod
    def of(cls, corpus: Corpus, score: Float[np.ndarray, " pair"], *, rng: np.random.Generator) -> FixedRanking:
        """The highest score first; equal scores are shuffled, once for all sessions.

        Without the shuffle the order of the file would decide, which may be that of the labels.
        """
        if score.shape != (corpus.n_pairs,):
            raise DataError(f"there must be one score per candidate, {corpus.n_pairs}: got shape {score.shape}.")
        order = np.lexsort((rng.random(corpus.n_pairs), -score, corpus.vocabulary.pair_query))
        rank = np.empty(corpus.n_pairs, np.int64)
        rank[order] = np.arange(corpus.n_pairs) - np.repeat(corpus.offsets[:-1], corpus.n_candidates)
        return cls(corpus, rank)

    @property
    def n_ranks(self) -> int:
        return int(self.corpus.n_candidates.max())

    def click_prob(self, user: PBM) -> Float[np.ndarray, " pair"]:
        """Examination times attractiveness, of every document where it stands."""
        prob: np.ndarray = self.examination(user) * _attractiveness(self.corpus, user)
        return prob

    def examination(self, user: PBM) -> Float[np.ndarray, " pair"]:
        examination: np.ndarray = user.exposure(self.n_ranks)[self.rank]
        return examination

    def clicks(self, user: PBM, sessions: int, *, rng: np.random.Generator) -> Cells:
        """What so many sessions give: queries arrive uniformly at random; a query without a session is left out."""
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
        """The same as single sessions, for checks: the cost is that of the sessions."""
        query = np.repeat(np.arange(self.corpus.n_queries), self._visits(sessions, rng)).astype(np.int32)
        pair, prob = self._lists[query], np.append(self.click_prob(user), 0.0)
        return Sessions(Rankings(self.corpus.vocabulary, query, pair), rng.random(pair.shape) < prob[pair])

    def _visits(self, sessions: int, rng: np.random.Generator) -> np.ndarray:
        if sessions < 1:
            raise DataError(f"there must be at least one session: got {sessions}.")
        queries = self.corpus.n_queries
        return rng.multinomial(sessions, np.full(queries, 1 / queries))

    @cached_property
    def _lists(self) -> np.ndarray:
        lists = np.full((self.corpus.n_queries, self.n_ranks), UNSEEN, np.int32)
        lists[self.corpus.vocabulary.pair_query, self.rank] = np.arange(self.corpus.n_pairs)
        return lists


def _attractiveness(corpus: Corpus, user: PBM) -> Float[np.ndarray, " pair"]:
    """noise + (1 - noise) (2^label - 1) / (2^max_label - 1)."""
    return user.noise + (1 - user.noise) * corpus.gain


@final
@dataclass(frozen=True, eq=False)
class FixedRankingEngine:
    """A production ranker at work on a set: what it shows in training and held-out sessions, what it thinks of the
    test documents."""

    parts: CorpusSplit
    train: FixedRanking
    held_out: FixedRanking
    test_score: Float[np.ndarray, " test_pair"]

    @classmethod
    def of(cls, parts: CorpusSplit, production: LambdaMART | None, *, seed: int) -> FixedRankingEngine:
        """`production` None is a ranker that knows nothing, and orders documents at random, once."""
        ranker = None if production is None else replace(production, seed=seed)
        rng = generator(seed, "production", "queries")
        train, held_out, test = _production_scores(parts, ranker, rng=rng)
        return cls(
            parts,
            FixedRanking.of(parts.train, train, rng=generator(seed, "production", "ties", "train")),
            FixedRanking.of(parts.held_out, held_out, rng=generator(seed, "production", "ties", "held out")),
            test,
        )

    def clicks(self, user: PBM, sessions: int, *, seed: int) -> tuple[Cells, Cells]:
        """Training and held-out clicks; held-out sessions are fewer as its queries are."""
        other = max(1, int(sessions * self.parts.held_out.n_queries / self.parts.train.n_queries))
        return (
            self.train.clicks(user, sessions, rng=generator(seed, "clicks", "train", sessions)),
            self.held_out.clicks(user, other, rng=generator(seed, "clicks", "held out", sessions)),
        )

    @property
    def n_ranks(self) -> int:
        return max(self.train.n_ranks, self.held_out.n_ranks)


def truncated(parts: CorpusSplit, *, seed: int) -> CorpusSplit:
    """At most as many documents per query as 90 % of the training queries have; each grade keeps its share."""
    most = int(np.ceil(np.percentile(parts.train.n_candidates, TRUNCATION)))
    return CorpusSplit(
        *(
            corpus.stratified(most, rng=generator(seed, "truncation", name))
            if (corpus.n_candidates > most).any()
            else corpus
            for name, corpus in zip(CorpusSplit._fields, parts, strict=True)
        )
    )


def _production_scores(
    parts: CorpusSplit, production: LambdaMART | None, *, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores of all three parts by a ranker of 20 training queries.

    Those 20 queries are ranked by another one, of 20 others: on its own queries a ranker is nearly an oracle. The
    paper ranks them with the ranker that knows them.
    """
    if production is None:
        train, held_out, test = (np.zeros(corpus.n_pairs) for corpus in parts)
        return train, held_out, test
    order, n = rng.permutation(parts.train.n_queries), PRODUCTION_QUERIES
    if len(order) <= n:
        raise DataError(
            f"a production ranker needs {n} training queries, and others to rank: the set has {len(order)}. "
            "Use a larger one."
        )
    known = np.zeros(parts.train.n_queries, bool)
    known[order[:n]] = True
    own, fitted_on = known[parts.train.vocabulary.pair_query], parts.train.with_queries(known)
    ranker = replace(production, train=fitted_on)
    other = replace(production, train=parts.train.with_queries(order[n : 2 * n]))
    train = np.empty(parts.train.n_pairs)
    train[~own], train[own] = ranker.scores(parts.train.with_queries(~known)), other.scores(fitted_on)
    return train, ranker.scores(parts.held_out), ranker.scores(parts.test)
