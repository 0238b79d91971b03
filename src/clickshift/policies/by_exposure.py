"""Placement by exposure: the best documents at the most examined ranks, for users who do not read top-down."""

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
    """Policy that shows another policy's i-th best document at the i-th most examined rank.

    Ranks with equal exposure are filled from the top. A list of n documents uses the first n exposures.

    Parameters
    ----------
    policy
        Policy whose lists are rearranged.
    exposure
        Examination of each rank.
    as_published
        Whether to reproduce the CMIP paper's code: rank p shows the document numbered by the p-th most examined rank,
        i.e. the permutation where its inverse is needed.

    Raises
    ------
    SpecError
        "bad-option" if `exposure` is empty or not finite.

    References
    ----------
    Deffayet, R., Hager, P., Renders, J.-M., de Rijke, M. (2023). An offline metric for the debiasedness of click
    models. SIGIR.

    Examples
    --------
    >>> import clickshift as cs
    >>> vocabulary, _, _ = cs.Vocabulary.of(["shoes"] * 3, ["a", "b", "c"])
    >>> corpus = cs.Corpus(vocabulary, np.array([0, 2, 1]))
    >>> middle_first = Placed(cs.Oracle(), exposure=(0.5, 1.0, 0.2))  # the second rank is examined most
    >>> middle_first.on(corpus).placement(ranks=3).tolist()
    [[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
    """

    policy: Policy
    exposure: tuple[Number, ...]
    as_published: bool = False

    def __post_init__(self) -> None:
        if not len(self.exposure) or not np.isfinite(self.exposure).all():
            raise SpecError(
                f"exposure must be a number per rank, at least one: got {self.exposure}.",
                code="bad-option",
                option="exposure",
                value=self.exposure,
            )

    def on(self, corpus: Corpus) -> PlacedRankings:
        """Return the distribution over the rearranged rankings of the corpus' candidates."""
        inner = self.policy.on(corpus)
        return PlacedRankings(inner.vocabulary, inner, self.document_at())

    def document_at(self) -> Int[np.ndarray, "length rank"]:
        """Return which document of a sorted list of n stands at each rank, in row n.

        Ranks from n on are empty and stay where they are.
        """
        n_ranks = len(self.exposure)
        table = np.tile(np.arange(n_ranks), (n_ranks + 1, 1))
        for n in range(1, n_ranks + 1):
            best = np.argsort(-np.array(self.exposure[:n]), kind="stable")  # best[i]: the i-th most examined rank
            table[n, :n] = best if self.as_published else np.argsort(best)
        return table


@final
@dataclass(frozen=True, eq=False)
class PlacedRankings(RankingDistribution):
    """Lists of another distribution with their ranks permuted.

    Parameters
    ----------
    vocabulary
        Vocabulary of the lists.
    inner
        Distribution over the lists before the permutation.
    document_at
        Permutation of lists of n documents in row n, as in `Placed.document_at`.
    """

    vocabulary: Vocabulary
    inner: RankingDistribution
    document_at: Int[np.ndarray, "length rank"]

    @override
    def draw(
        self, query: Int[np.ndarray, " session"], *, ranks: int, key: int, first: int = 0
    ) -> tuple[Int[np.ndarray, "session rank"], Float[np.ndarray, " session"]]:
        self._check_ranks(ranks)
        pair, log_prob = self.inner.draw(query, ranks=ranks, key=key, first=first)
        length = (pair != UNSEEN).sum(axis=1)
        return np.take_along_axis(pair, self.document_at[length, :ranks], axis=1), log_prob

    @override
    def log_prob(self, rankings: Rankings) -> Float[np.ndarray, " session"]:
        ranks = int(rankings.length.max())
        self._check_ranks(ranks)
        if rankings.has_holes:  # no list of this distribution has a hole
            whole = rankings.n_shown == rankings.length
            log_prob = np.full(len(rankings), -np.inf)
            if whole.any():
                log_prob[whole] = self.log_prob(rankings[whole])
            return log_prob
        rank_of = np.argsort(self.document_at, axis=1)[rankings.length, :ranks]
        pair = np.take_along_axis(rankings.pair, rank_of, axis=1)
        return self.inner.log_prob(Rankings(rankings.vocabulary, rankings.query, pair, rankings.shown[:, :ranks]))

    @override
    def placement(
        self, query: Int[np.ndarray, " query"] | None = None, *, ranks: int = 10
    ) -> Float[np.ndarray, "pair rank"]:
        self._check_ranks(ranks)
        length = np.minimum(np.diff(self.vocabulary.query_offsets), ranks)[self.vocabulary.pair_query]
        return np.take_along_axis(self.inner.placement(query, ranks=ranks), self.document_at[length, :ranks], axis=1)

    def _check_ranks(self, ranks: int) -> None:
        """Raise an error if there are more ranks than exposures."""
        n_exposures = self.document_at.shape[1]
        if ranks > n_exposures:
            raise DataError(
                f"lists of {ranks} ranks need an exposure for each rank: got {n_exposures}. Pass more exposures, or "
                "use fewer ranks.",
                code="missing-exposure",
                ranks=ranks,
                count=n_exposures,
            )
