"""The simulated search engine of a protocol: a corpus, who ranks it, who clicks, and the logs that this gives.

Everything is a function of the settings, so any process makes the same logs; what takes time is kept for the next cell.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from clickshift.core.rng import generator
from clickshift.core.spec import key, parse
from clickshift.data.builtin_corpus import builtin_corpus
from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Sessions
from clickshift.io.datasets.letor import read_corpus
from clickshift.metrics.ranking import JudgedPairs
from clickshift.models.base import ClickModel
from clickshift.policies import POLICIES
from clickshift.policies.base import Policy, ScoredPolicy
from clickshift.policies.basic import Scores
from clickshift.policies.plackett_luce import PlackettLuce
from clickshift.simulation.simulate import ObservedFrequencies, PowerLaw, simulate
from clickshift.simulation.users import USERS

Named = tuple[tuple[str, str], ...]
"""Names for the tables, each with the text that makes the thing."""

BUILTIN = "builtin"
IND = "ind"
"""The name of the test log that the training policy ranked; all others are out of its distribution."""


class SimulatedLogs(NamedTuple):
    """What a cell learns from and is judged by."""

    train: Sessions
    held_out: Sessions
    """Decides when to stop."""
    test: dict[str, Sessions]
    """By name: `IND` is the training policy's own."""
    user: ClickModel
    seen: Corpus
    """The documents that training has shown: what other policies rank."""
    frequency: Float[np.ndarray, " seen_query"]
    """Training sessions of each query of `seen`."""
    judged: JudgedPairs
    impressions: Float[np.ndarray, " query"]
    logging_score: Float[np.ndarray, " pair"]
    """What the training policy ranks by; 0 for all where it has no single score."""


@dataclass(frozen=True)
class World:
    """Texts and numbers only: a world is a part of every cell's key."""

    testing: Named = (("oracle", "Oracle"), ("random", "Uniform"), ("BM25", "BM25"), ("LambdaMART", "LambdaMART"))
    """Deterministic but for ties, which are broken anew in every session."""
    queries: int = 1000
    """Those with at least 10 candidates whose labels differ; all of them where there are no more."""
    documents: int | None = None
    """So many per query, a ladder of grades as in section 6.1; None keeps all candidates."""
    sessions: int = 100_000
    """In a training policy's log: 80 % to learn from, 10 % to stop by, 10 % for the ind perplexity."""
    test_sessions: int = 10_000
    ranks: int = 10
    seed: int = 0
    content: str = BUILTIN
    """What tells one corpus from another: a digest of its files."""
    corpus: str = field(default=BUILTIN, repr=False, compare=False)
    """Where it is."""

    def logs(self, user: str, training: str) -> SimulatedLogs:
        """`training` may join several policies with " + ": each ranks an equal share of the log."""
        return _logs(self, user, training)

    def rng(self, *names: str) -> np.random.Generator:
        return generator(self.seed, "policy-shift", *names)


def check_specs(world: World, users: Named, training: Named) -> None:
    """Raise for a text that names nothing, before any work."""
    for _, text in users:
        parse(text, USERS)
    for _, text in (*training, *world.testing):
        for part in text.split(" + "):
            parse(part, POLICIES)


@lru_cache(maxsize=1)
def _corpus(world: World) -> Corpus:
    spare = world.queries * 13 // 10 + 20  # some have few candidates or equal labels
    corpus = builtin_corpus(spare, seed=world.seed) if world.corpus == BUILTIN else read_corpus(world.corpus)
    corpus = corpus.with_queries(corpus.usable_queries()).sample_queries(world.queries, rng=world.rng("queries"))
    return corpus if world.documents is None else corpus.ladder(world.documents, rng=world.rng("documents"))


@lru_cache(maxsize=8)
def _scores(world: World, policy: str) -> Scores:
    """A policy with its scores computed once: a LambdaMART takes its time."""
    corpus, ranker = _corpus(world), parse(policy, POLICIES)
    return Scores(corpus.vocabulary, ranker.scores(corpus))


def _policy(world: World, text: str) -> Policy:
    policy: Policy = parse(text, POLICIES)
    if isinstance(policy, PlackettLuce):
        return replace(policy, policy=_scores(world, key(policy.policy)))
    return _scores(world, text) if isinstance(policy, ScoredPolicy) else policy


@lru_cache(maxsize=1)
def _logs(world: World, user: str, training: str) -> SimulatedLogs:
    corpus, law = _corpus(world), PowerLaw(seed=world.seed)
    model = parse(user, USERS).on(corpus)
    policies = [_policy(world, text) for text in training.split(" + ")]
    share = world.sessions // len(policies)
    parts = [
        simulate(
            corpus, policy, model, share, queries=law, ranks=world.ranks, rng=world.rng("log", user, training, str(i))
        )
        for i, policy in enumerate(policies)
    ]
    log = parts[0] if len(parts) == 1 else Sessions.concat(parts)
    train, rest = log.split(0.8, rng=world.rng("split"))
    held_out, ind = rest.split(0.5, rng=world.rng("split", "rest"))
    shown = np.bincount(train.rankings.pair[train.rankings.shown], minlength=corpus.n_pairs) > 0
    impressions = np.bincount(train.rankings.query, train.count, corpus.n_queries)
    seen, frequency = corpus.with_pairs(shown), impressions[impressions > 0]
    test = {IND: ind}
    for name, text in world.testing:
        ranker, rng = _policy(world, text), world.rng("ood", user, training, name)
        law_seen = ObservedFrequencies(frequency)  # queries as frequent as in training
        test[name] = simulate(seen, ranker, model, world.test_sessions, queries=law_seen, ranks=world.ranks, rng=rng)
    judged = JudgedPairs.of(corpus.vocabulary, corpus.label.astype(np.float64), shown=shown)
    first = policies[0].policy if len(policies) == 1 and isinstance(policies[0], PlackettLuce) else None
    score = first.scores(corpus) if first is not None else np.zeros(corpus.n_pairs)
    return SimulatedLogs(train, held_out, test, model, seen, frequency, judged, impressions, score)
