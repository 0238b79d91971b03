"""Simulation: queries arrive, a policy ranks, a user clicks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from clickshift.core.parallel import for_ranges
from clickshift.core.rng import as_generator, stream_key
from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Rankings, Sessions
from clickshift.errors import DataError
from clickshift.models.base import ClickModel
from clickshift.policies.base import Policy
from clickshift.simulation.users import User


@dataclass(frozen=True)
class UniformQueries:
    """Every query is as frequent as any other."""

    def probs(self, queries: int) -> Float[np.ndarray, " query"]:
        return np.full(queries, 1 / queries)


@dataclass(frozen=True)
class PowerLaw:
    """The k-th most frequent query has a probability proportional to k^-exponent (1.12 in the policy-shift paper).

    Which query is how frequent is drawn once, by `seed`, so that it is the same in a training and a test log.
    """

    exponent: float = 1.12
    seed: int = 0

    def probs(self, queries: int) -> Float[np.ndarray, " query"]:
        weight = np.arange(1, queries + 1.0) ** -self.exponent
        place = np.random.default_rng(self.seed).permutation(queries)
        probs: np.ndarray = (weight / weight.sum())[place]
        return probs


@dataclass(frozen=True, eq=False)
class ObservedFrequencies:
    """Queries arrive as often as they did elsewhere, e.g. in a training log."""

    counts: Float[np.ndarray, " query"]

    def probs(self, queries: int) -> Float[np.ndarray, " query"]:
        if len(self.counts) != queries:
            raise DataError(f"there must be one count per query, {queries}: got {len(self.counts)}.")
        probs: np.ndarray = self.counts / self.counts.sum()
        return probs


QueryDistribution = UniformQueries | PowerLaw | ObservedFrequencies


def simulate(
    corpus: Corpus,
    policy: Policy,
    user: User | ClickModel,
    sessions: int,
    *,
    queries: QueryDistribution | Literal["uniform"] = "uniform",
    ranks: int = 10,
    rng: int | np.random.Generator,
    progress: Callable[[int], None] | None = None,
) -> Sessions:
    """Draw a log. The same seed gives the same log, on any number of threads.

    `progress` is called with the number of sessions of every finished block.
    """
    if sessions < 1 or ranks < 1:
        raise DataError(f"there must be at least one session and one rank: got {sessions} sessions, {ranks} ranks.")
    rng = as_generator(rng)
    law = UniformQueries() if isinstance(queries, str) else queries
    query = _draw_queries(law.probs(corpus.n_queries), sessions, rng)
    distribution = policy.on(corpus)
    model = user if isinstance(user, ClickModel) else user.on(corpus)
    ranks = min(ranks, int(corpus.n_candidates.max()))
    list_key, click_key = stream_key(rng), stream_key(rng)
    pair = np.empty((sessions, ranks), np.int32)
    click, log_prob = np.empty((sessions, ranks), bool), np.empty(sessions)

    def work(rows: slice) -> None:
        pair[rows], log_prob[rows] = distribution.draw(query[rows], ranks=ranks, key=list_key, first=rows.start)
        lists = Rankings(corpus.vocabulary, query[rows], pair[rows])
        click[rows] = model.sample_clicks(lists, key=click_key, first=rows.start)
        if progress is not None:
            progress(rows.stop - rows.start)

    for_ranges(work, sessions)
    return Sessions(Rankings(corpus.vocabulary, query, pair, log_prob=log_prob), click)


def _draw_queries(probs: np.ndarray, sessions: int, rng: np.random.Generator) -> Int[np.ndarray, " session"]:
    """By counts, then shuffled: drawing each session apart takes ten times as long for many queries."""
    counts = rng.multinomial(sessions, probs / probs.sum())
    query = np.repeat(np.arange(len(probs), dtype=np.int32), counts)
    rng.shuffle(query)
    return query
