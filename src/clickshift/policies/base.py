"""What a policy is: it turns a corpus into a distribution over rankings, which can be drawn from and asked exactly."""

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
"""Where a person or a specification may write 0 for 0.0."""


@runtime_checkable
class RankingDistribution(Protocol):
    """A distribution over the rankings of every query. A list shows min(ranks, candidates) documents.

    Subclasses write `draw`, `log_prob` and `placement`, and get `sample`.
    """

    vocabulary: Vocabulary

    @abstractmethod
    def draw(
        self, query: Int[np.ndarray, " session"], *, ranks: int, key: int, first: int = 0
    ) -> tuple[Int[np.ndarray, "session rank"], Float[np.ndarray, " session"]]:
        """Pair numbers, `UNSEEN` below the end of a list, and the log-probability of each list; on one thread.

        Row s depends on its query, on `key` and on `first + s` alone, so a log may be drawn in any blocks.
        """

    @abstractmethod
    def log_prob(self, rankings: Rankings) -> Float[np.ndarray, " session"]:
        """The exact log-probability of each list among lists of its length, -inf where it cannot be drawn.

        Rankings of another vocabulary are translated; a list with a query or document unknown here gets -inf.
        """

    @abstractmethod
    def placement(
        self, query: Int[np.ndarray, " query"] | None = None, *, ranks: int = 10
    ) -> Float[np.ndarray, "pair rank"]:
        """The exact probability that each candidate stands at each rank.

        One row per pair of the vocabulary, so that pair numbers index it; rows of queries not asked for are 0.
        """

    def sample(
        self, query: Int[np.ndarray, " session"], *, ranks: int = 10, rng: int | np.random.Generator
    ) -> Rankings:
        """One list per query given, with its exact log-probability; the same on any number of threads."""
        key = stream_key(as_generator(rng))
        pair, log_prob = np.empty((len(query), ranks), np.int32), np.empty(len(query))

        def block(rows: slice) -> None:
            pair[rows], log_prob[rows] = self.draw(query[rows], ranks=ranks, key=key, first=rows.start)

        for_ranges(block, len(query))
        return Rankings(self.vocabulary, query, pair, log_prob=log_prob)


@runtime_checkable
class Policy(Protocol):
    """A rule by which a search engine ranks; `on` a corpus it is a distribution over rankings."""

    def on(self, corpus: Corpus) -> RankingDistribution: ...


@runtime_checkable
class ScoredPolicy(Policy, Protocol):
    """A policy that ranks by a score."""

    def scores(self, corpus: Corpus) -> Float[np.ndarray, " pair"]: ...


def checked_queries(
    vocabulary: Vocabulary, query: Int[np.ndarray, " session"], ranks: int
) -> Int[np.ndarray, " session"]:
    """Query numbers as kernels take them, all of them in the vocabulary."""
    if ranks < 1:
        raise DataError(f"a list must have at least one rank: got ranks = {ranks}.")
    bad = (query < 0) | (query >= vocabulary.n_queries)
    if bad.any():
        raise DataError(
            f"query numbers must be from 0 to {vocabulary.n_queries - 1}: got {query[bad][0]} in row "
            f"{int(np.argmax(bad)) + 1}. A policy can rank only the queries of its corpus."
        )
    return np.ascontiguousarray(query, np.int32)
