"""Simulated log with drift: rankers change from day to day, and documents rise and fall in the rankings.

The relevance of documents is constant; only their ranks change. Users continue until they are satisfied, so a bad
result at the top shifts clicks down the list rather than losing them. Li et al. (2018, section 6.5) found this in the
Yandex log: clicks at the first ranks vary from day to day, clicks summed over all ranks hardly do.

References
----------
Li, S., Abbasi-Yadkori, Y., Kveton, B., Muthukrishnan, S., Vinay, V., Wen, Z. (2018). Offline evaluation of ranking
policies with click models. KDD.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float

from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Sessions
from clickshift.errors import SpecError
from clickshift.policies.basic import NoisyOracle, Scores
from clickshift.policies.plackett_luce import PlackettLuce
from clickshift.simulation.search_engine import BUILTIN, SearchEngine
from clickshift.simulation.simulate import PowerLaw
from clickshift.simulation.users import CoCM

_USER = CoCM(modes=(1.0, 0.0, 0.0), satisfaction=0.5, continuation=0.93)
"""Simulated user: all sessions are top-down."""


@final
@dataclass(frozen=True)
class DriftingLog(SearchEngine):
    """Settings of a simulated log with drift; equal settings give the same log.

    The k-th most frequent query has a frequency proportional to k^-0.6.

    Parameters
    ----------
    queries
        Number of queries.
    documents
        Number of candidates per query.
    sessions
        Number of sessions, all days together.
    days
        Number of days.
    rankers
        Number of rankers, one after the other, for an equal share of the days each.
    noise
        Standard deviation, in grades, of a ranker's scores around the true grades.
    drift
        Standard deviation, in grades, of the daily change of documents' scores.
    memory
        Correlation of a document's change with that of the day before.
    temperature
        Plackett-Luce temperature: how much lists vary within a day.
    ranks
        Number of ranks of a list.
    seed
        Random seed.

    Raises
    ------
    SpecError
        "bad-option" if an option is out of range.
    """

    stream = "drifting log"
    spare = (3, 2)
    corpus = BUILTIN
    queries: int = 150
    documents: int = 16
    sessions: int = 300_000
    days: int = 27
    rankers: int = 3
    noise: float = 0.6
    drift: float = 0.7
    memory: float = 0.8
    temperature: float = 0.1
    ranks: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("queries", 1), ("documents", 2), ("days", 2), ("rankers", 1), ("ranks", 1)):
            if getattr(self, name) < least:
                raise SpecError(
                    f"{name} must be {least} or more: got {getattr(self, name)}.",
                    code="bad-option",
                    option=name,
                    value=getattr(self, name),
                )
        if self.sessions < self.days:
            raise SpecError(
                f"there must be a session on each of {self.days} days: got {self.sessions} sessions.",
                code="bad-option",
                option="sessions",
                value=self.sessions,
            )
        if not -1 < self.memory < 1:
            raise SpecError(
                f"memory is a correlation, between -1 and 1: got {self.memory}.",
                code="bad-option",
                option="memory",
                value=self.memory,
            )

    def draw(self, *, progress: Callable[[int], None] | None = None) -> Sessions:
        """Simulate the log, with the day (from 1) in `time` and the propensities of each day's ranker.

        Parameters
        ----------
        progress
            Called with the number of newly simulated sessions.
        """
        corpus = self.candidates()
        user, scores = _USER.on(corpus), self.scores(corpus)
        sessions_by_day = np.diff(np.arange(self.days + 1) * self.sessions // self.days)
        logs = [
            self.log(
                PlackettLuce(Scores(corpus.vocabulary, scores[d]), self.temperature),
                user,
                int(sessions_by_day[d]),
                *("day", d),
                queries=PowerLaw(0.6, seed=self.seed),
                ranks=self.ranks,
                progress=progress,
            )
            for d in range(self.days)
        ]
        log = Sessions.concat(logs)
        return Sessions(log.rankings, log.click, time=np.repeat(np.arange(1, self.days + 1), sessions_by_day))

    def _select(self, corpus: Corpus) -> Corpus:
        """Select queries with candidates of all grades that each query has."""
        usable = corpus.with_queries(corpus.usable_queries(min_docs=self.documents))
        reduced = usable.ladder(self.documents, rng=self.rng("documents"))
        return reduced.with_queries(np.arange(min(self.queries, reduced.n_queries)))

    def scores(self, corpus: Corpus) -> Float[np.ndarray, "day pair"]:
        """Return the scores of each day's ranker, in grades."""
        rankers = [NoisyOracle(self.noise, "label", self.seed + v).scores(corpus) for v in range(self.rankers)]
        change = self.rng("rise").standard_normal((self.days, corpus.n_pairs))
        for d in range(1, self.days):
            change[d] = self.memory * change[d - 1] + np.sqrt(1 - self.memory**2) * change[d]
        ranker_of_day = np.arange(self.days) * self.rankers // self.days
        scores: np.ndarray = np.stack(rankers)[ranker_of_day] + self.drift * change
        return scores
