"""A simulated log that drifts as a search engine does: rankers change by day, and documents rise and fall.

Documents are as good on one day as on another: what moves is where they stand. Users go on until they are satisfied, so
a bad result on top sends clicks down the list rather than away. That is what Li et al. (2018, section 6.5) found in the
Yandex log: clicks on the first ranks move from day to day, clicks on all ranks hardly do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float

from clickshift.core.rng import generator
from clickshift.data.builtin_corpus import builtin_corpus
from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Sessions
from clickshift.errors import SpecError
from clickshift.policies.basic import NoisyOracle, Scores
from clickshift.policies.plackett_luce import PlackettLuce
from clickshift.simulation.simulate import PowerLaw, simulate
from clickshift.simulation.users import CoCM

_USER = CoCM(modes=(1.0, 0.0, 0.0), satisfaction=0.5, continuation=0.93)
"""All walk down the list."""


@final
@dataclass(frozen=True)
class DriftingLog:
    """The same value gives the same log."""

    queries: int = 150
    documents: int = 16
    """Candidates of a query."""
    sessions: int = 300_000
    """On all days together. The k-th most frequent query is as frequent as k^-0.6."""
    days: int = 27
    rankers: int = 3
    """One after the other, for an equal share of the days."""
    noise: float = 0.6
    """How far a ranker is from the true grades: standard deviation, in grades."""
    drift: float = 0.7
    """How far documents rise and fall between days: standard deviation, in grades."""
    memory: float = 0.8
    """The correlation of a document's rise with that of the day before."""
    temperature: float = 0.1
    """How far lists differ within a day."""
    ranks: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("queries", 1), ("documents", 2), ("days", 2), ("rankers", 1), ("ranks", 1)):
            if getattr(self, name) < least:
                raise SpecError(f"{name} must be {least} or more: got {getattr(self, name)}.")
        if self.sessions < self.days:
            raise SpecError(f"there must be a session on each of {self.days} days: got {self.sessions} sessions.")
        if not -1 < self.memory < 1:
            raise SpecError(f"memory is a correlation, between -1 and 1: got {self.memory}.")

    def draw(self, *, progress: Callable[[int], None] | None = None) -> Sessions:
        """Days from 1 on are in `time`. Propensities are those of the day's ranker."""
        corpus = self.corpus()
        user, scores = _USER.on(corpus), self.scores(corpus)
        share = np.diff(np.arange(self.days + 1) * self.sessions // self.days)
        logs = [
            simulate(
                corpus,
                PlackettLuce(Scores(corpus.vocabulary, scores[d]), self.temperature),
                user,
                int(share[d]),
                queries=PowerLaw(0.6, seed=self.seed),
                ranks=self.ranks,
                rng=self._rng("day", d),
                progress=progress,
            )
            for d in range(self.days)
        ]
        log = Sessions.concat(logs)
        return Sessions(log.rankings, log.click, time=np.repeat(np.arange(1, self.days + 1), share))

    def corpus(self) -> Corpus:
        """Queries of the built-in corpus with documents of all grades that they have."""
        spare = builtin_corpus(self.queries * 3 // 2 + 20, seed=self.seed)
        usable = spare.with_queries(spare.usable_queries(min_docs=self.documents))
        few = usable.ladder(self.documents, rng=self._rng("documents"))
        return few.with_queries(np.arange(min(self.queries, few.n_queries)))

    def scores(self, corpus: Corpus) -> Float[np.ndarray, "day pair"]:
        """What each day's ranker ranks by, in grades."""
        rankers = [NoisyOracle(self.noise, "label", self.seed + v).scores(corpus) for v in range(self.rankers)]
        rise = self._rng("rise").standard_normal((self.days, corpus.n_pairs))
        for d in range(1, self.days):
            rise[d] = self.memory * rise[d - 1] + np.sqrt(1 - self.memory**2) * rise[d]
        of_day = np.arange(self.days) * self.rankers // self.days
        scores: np.ndarray = np.stack(rankers)[of_day] + self.drift * rise
        return scores

    def _rng(self, *names: str | int) -> np.random.Generator:
        return generator(self.seed, "drifting log", *names)
