"""Placed: the best documents where users look most, for users who do not read from the top down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float, Int
from typing_extensions import override

from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Rankings
from clickshift.data.vocabulary import UNSEEN, Vocabulary
from clickshift.errors import DataError, SpecError
from clickshift.policies.base import Number, Policy, RankingDistribution


@final
@dataclass(frozen=True)
class Placed:
    """A policy's i-th best document goes to the i-th most examined rank; equal exposures are filled from the top.

    A list of n documents uses the first n exposures. `as_published` is the CMIP paper's code: rank p shows the document
    numbered by the p-th most examined rank, i.e. the permutation where its inverse is needed.
    """

    policy: Policy
    exposure: tuple[Number, ...]
    as_published: bool = False

    def __post_init__(self) -> None:
        if not len(self.exposure) or not np.isfinite(self.exposure).all():
            raise SpecError(f"exposure must be a number per rank, at least one: got {self.exposure}.")

    def on(self, corpus: Corpus) -> PlacedRankings:
        inner = self.policy.on(corpus)
        return PlacedRankings(inner.vocabulary, inner, self.document_at())

    def document_at(self) -> Int[np.ndarray, "length rank"]:
        """Row n: which document of a sorted list of n stands at each rank. Ranks from n on, which are empty, stay."""
        n_ranks = len(self.exposure)
        table = np.tile(np.arange(n_ranks), (n_ranks + 1, 1))
        for n in range(1, n_ranks + 1):
            best = np.argsort(-np.array(self.exposure[:n]), kind="stable")  # best[i]: the i-th most examined rank
            table[n, :n] = best if self.as_published else np.argsort(best)
        return table


@final
@dataclass(frozen=True, eq=False)
class PlacedRankings(RankingDistribution):
    """The lists of another distribution, their ranks permuted."""

    vocabulary: Vocabulary
    inner: RankingDistribution
    document_at: Int[np.ndarray, "length rank"]

    @override
    def draw(
        self, query: Int[np.ndarray, " session"], *, ranks: int, key: int, first: int = 0
    ) -> tuple[Int[np.ndarray, "session rank"], Float[np.ndarray, " session"]]:
        self._check(ranks)
        pair, log_prob = self.inner.draw(query, ranks=ranks, key=key, first=first)
        length = (pair != UNSEEN).sum(axis=1)
        return np.take_along_axis(pair, self.document_at[length, :ranks], axis=1), log_prob

    @override
    def log_prob(self, rankings: Rankings) -> Float[np.ndarray, " session"]:
        ranks = int(rankings.length.max())
        self._check(ranks)
        rank_of = np.argsort(self.document_at, axis=1)[rankings.length, :ranks]
        pair = np.take_along_axis(rankings.pair, rank_of, axis=1)
        return self.inner.log_prob(Rankings(rankings.vocabulary, rankings.query, pair, rankings.shown[:, :ranks]))

    @override
    def placement(
        self, query: Int[np.ndarray, " query"] | None = None, *, ranks: int = 10
    ) -> Float[np.ndarray, "pair rank"]:
        self._check(ranks)
        length = np.minimum(np.diff(self.vocabulary.query_offsets), ranks)[self.vocabulary.pair_query]
        return np.take_along_axis(self.inner.placement(query, ranks=ranks), self.document_at[length, :ranks], axis=1)

    def _check(self, ranks: int) -> None:
        known = self.document_at.shape[1]
        if ranks > known:
            raise DataError(f"lists of {ranks} ranks need an exposure for each: got {known}. Give more, or show fewer.")
