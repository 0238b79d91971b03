"""Interfaces of ranking policies.

A policy applied to a corpus is a distribution over rankings, from which lists can be sampled and whose probabilities
are exact.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from clickshift.core.parallel import for_ranges
from clickshift.core.rng import as_generator, stream_key
from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Rankings
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import DataError

Number = int | float
"""Type of a real-valued option, so that a person or a specification may write 0 for 0.0."""


@runtime_checkable
class RankingDistribution(Protocol):
    """Probability distribution over the rankings of every query.

    A list shows min(ranks, candidates) documents. Subclasses implement `draw`, `log_prob` and `placement`; `sample` is
    provided.
    """

    vocabulary: Vocabulary

    @abstractmethod
    def draw(
        self, query: Int[np.ndarray, " session"], *, ranks: int, key: int, first: int = 0
    ) -> tuple[Int[np.ndarray, "session rank"], Float[np.ndarray, " session"]]:
        """Draw one list per session on the calling thread.

        Row s depends only on its query, on `key` and on `first + s`, so a log may be drawn in blocks of any size.

        Parameters
        ----------
        query
            Query number of each session.
        ranks
            Number of ranks of a list.
        key
            Key of the random streams.
        first
            Stream number of the first session.

        Returns
        -------
        pair
            Pair numbers, `UNSEEN` below the end of a list.
        log_prob
            Log-probability of each list.
        """

    @abstractmethod
    def log_prob(self, rankings: Rankings) -> Float[np.ndarray, " session"]:
        """Return the exact log-probability of each list among lists of its length, -inf for an impossible list.

        Rankings with another vocabulary are translated; a list with a query or document unknown to this distribution
        gets -inf.
        """

    @abstractmethod
    def placement(
        self, query: Int[np.ndarray, " query"] | None = None, *, ranks: int = 10
    ) -> Float[np.ndarray, "pair rank"]:
        """Return the exact probability that each candidate is shown at each rank.

        Parameters
        ----------
        query
            Query numbers to compute; None for all queries.
        ranks
            Number of ranks of a list.

        Returns
        -------
        Float[pair, rank]
            One row per pair of the vocabulary, so that pair numbers index it; rows of other queries are 0.
        """

    def sample(
        self, query: Int[np.ndarray, " session"], *, ranks: int = 10, rng: int | np.random.Generator
    ) -> Rankings:
        """Sample one list per given query, with its exact log-probability, independently of the number of threads.

        Parameters
        ----------
        query
            Query number of each session.
        ranks
            Number of ranks of a list.
        rng
            Seed or random generator.
        """
        key = stream_key(as_generator(rng))
        pair, log_prob = np.empty((len(query), ranks), np.int32), np.empty(len(query))

        def block(rows: slice) -> None:
            pair[rows], log_prob[rows] = self.draw(query[rows], ranks=ranks, key=key, first=rows.start)

        for_ranges(block, len(query))
        return Rankings(self.vocabulary, query, pair, log_prob=log_prob)


@runtime_checkable
class Policy(Protocol):
    """Rule by which a search engine ranks; applied to a corpus it is a distribution over rankings."""

    def on(self, corpus: Corpus) -> RankingDistribution:
        """Return the distribution over rankings of the corpus' candidates."""
        ...


@runtime_checkable
class ScoredPolicy(Policy, Protocol):
    """Policy that ranks by a score."""

    def scores(self, corpus: Corpus) -> Float[np.ndarray, " pair"]:
        """Return the score of every candidate of the corpus."""
        ...


def checked_queries(
    vocabulary: Vocabulary, query: Int[np.ndarray, " session"], ranks: int
) -> Int[np.ndarray, " session"]:
    """Check query numbers and list length, and convert the numbers for kernels.

    Parameters
    ----------
    vocabulary
        Vocabulary that the numbers must belong to.
    query
        Query number of each session.
    ranks
        Number of ranks of a list.

    Returns
    -------
    Int[session]
        The query numbers as contiguous 32-bit integers.

    Raises
    ------
    DataError
        "bad-ranks" if `ranks` is below 1; "query-out-of-range" if a number is not in the vocabulary.
    """
    if ranks < 1:
        raise DataError(f"a list must have at least one rank: got ranks = {ranks}.", code="bad-ranks", ranks=ranks)
    bad = (query < 0) | (query >= vocabulary.n_queries)
    if bad.any():
        row = int(np.argmax(bad)) + 1
        raise DataError(
            f"query numbers must be from 0 to {vocabulary.n_queries - 1}: got {query[bad][0]} in row {row}. A policy "
            "can rank only the queries of its corpus.",
            code="query-out-of-range",
            row=row,
            value=int(query[bad][0]),
        )
    return np.ascontiguousarray(query, np.int32)
