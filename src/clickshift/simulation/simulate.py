"""Simulation of a click log: queries arrive, a policy ranks, a user clicks."""

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

_MAX_SESSIONS = 1 << 40
"""Number of sessions that no machine holds."""


@dataclass(frozen=True)
class UniformQueries:
    """Query distribution in which all queries are equally frequent."""

    def probs(self, queries: int) -> Float[np.ndarray, " query"]:
        """Return the probability of each of a number of queries."""
        return np.full(queries, 1 / queries)


@dataclass(frozen=True)
class PowerLaw:
    """Query distribution in which the k-th most frequent query has a probability proportional to k^-exponent.

    Parameters
    ----------
    exponent
        Exponent of the power law (1.12 in the policy-shift paper).
    seed
        Random seed of the assignment of frequencies to queries, which is drawn once so that training and test logs
        share it.

    Examples
    --------
    >>> PowerLaw(exponent=1.0).probs(3).round(2).tolist()
    [0.18, 0.55, 0.27]
    """

    exponent: float = 1.12
    seed: int = 0

    def probs(self, queries: int) -> Float[np.ndarray, " query"]:
        """Return the probability of each of a number of queries."""
        weight = np.arange(1, queries + 1.0) ** -self.exponent
        frequency_rank = np.random.default_rng(self.seed).permutation(queries)
        probs: np.ndarray = (weight / weight.sum())[frequency_rank]
        return probs


@dataclass(frozen=True, eq=False)
class ObservedFrequencies:
    """Query distribution in proportion to observed counts, e.g. those of a training log.

    Parameters
    ----------
    counts
        Number of sessions of each query.

    Raises
    ------
    DataError
        "unequal-lengths", when used on a corpus with another number of queries.
    """

    counts: Float[np.ndarray, " query"]

    def probs(self, queries: int) -> Float[np.ndarray, " query"]:
        """Return the probability of each of a number of queries."""
        if len(self.counts) != queries:
            raise DataError(
                f"there must be one count per query, {queries}: got {len(self.counts)}.",
                code="unequal-lengths",
                expected=queries,
                count=len(self.counts),
            )
        probs: np.ndarray = self.counts / self.counts.sum()
        return probs


QueryDistribution = UniformQueries | PowerLaw | ObservedFrequencies
"""Distribution of the query of a session."""


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
    """Simulate a click log; the same seed gives the same log on any number of threads.

    Parameters
    ----------
    corpus
        Queries and candidates.
    policy
        Logging policy.
    user
        Simulated user, or a click model that draws the clicks.
    sessions
        Number of sessions.
    queries
        Distribution of the query of a session.
    ranks
        Number of ranks of a list, at most the number of candidates.
    rng
        Seed or random generator.
    progress
        Called with the number of sessions of every finished block.

    Returns
    -------
    Sessions
        The log, with the log-probability of each list under the logging policy.

    Raises
    ------
    DataError
        "no-sessions" or "bad-ranks" if `sessions` or `ranks` is below 1, "too-many-sessions" from 2^40 sessions.

    Examples
    --------
    >>> from clickshift import PlackettLuce, Oracle, builtin_corpus, users
    >>> log = simulate(builtin_corpus(queries=5), PlackettLuce(Oracle()), users.PBM(), 100, rng=0)
    >>> log.total, log.n_ranks
    (100, 10)
    """
    if sessions < 1 or ranks < 1:
        raise DataError(
            f"there must be at least one session and one rank: got {sessions} sessions, {ranks} ranks.",
            code="no-sessions" if sessions < 1 else "bad-ranks",
            sessions=sessions,
            ranks=ranks,
        )
    if sessions >= _MAX_SESSIONS:
        raise DataError(
            f"there must be fewer than 2^40 sessions: got {sessions}. Simulate several smaller logs.",
            code="too-many-sessions",
            sessions=sessions,
        )
    rng = as_generator(rng)
    distribution = UniformQueries() if isinstance(queries, str) else queries
    query = _draw_queries(distribution.probs(corpus.n_queries), sessions, rng)
    rankings = policy.on(corpus)
    model = user if isinstance(user, ClickModel) else user.on(corpus)
    ranks = min(ranks, int(corpus.n_candidates.max()))
    list_key, click_key = stream_key(rng), stream_key(rng)
    pair = np.empty((sessions, ranks), np.int32)
    click, log_prob = np.empty((sessions, ranks), bool), np.empty(sessions)

    def work(rows: slice) -> None:
        pair[rows], log_prob[rows] = rankings.draw(query[rows], ranks=ranks, key=list_key, first=rows.start)
        lists = Rankings(corpus.vocabulary, query[rows], pair[rows])
        click[rows] = model.sample_clicks(lists, key=click_key, first=rows.start)
        if progress is not None:
            progress(rows.stop - rows.start)

    for_ranges(work, sessions)
    return Sessions(Rankings(corpus.vocabulary, query, pair, log_prob=log_prob), click)


def _draw_queries(probs: np.ndarray, sessions: int, rng: np.random.Generator) -> Int[np.ndarray, " session"]:
    """Draw query counts and shuffle them: drawing each session separately takes ten times as long for many queries."""
    counts = rng.multinomial(sessions, probs / probs.sum())
    query = np.repeat(np.arange(len(probs), dtype=np.int32), counts)
    rng.shuffle(query)
    return query
