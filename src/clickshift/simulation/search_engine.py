"""Simulated search engine of the policy-shift protocol: a corpus, ranking policies, users, and the resulting logs.

Everything is a function of the settings, so any process creates the same logs; expensive parts are cached for the next
task.
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
"""(name, specification) pairs: the name is used in tables, the specification creates the object."""

BUILTIN = "builtin"
"""Name of the built-in corpus."""
IND = "ind"
"""Name of the in-distribution test log, ranked by the training policy; all other test logs are out-of-distribution."""


class SimulatedLogs(NamedTuple):
    """Training and test data of one task.

    Parameters
    ----------
    train
        Training sessions.
    held_out
        Held-out sessions for early stopping.
    test
        Test sessions by policy name; `IND` is the training policy's own log.
    user
        Click model of the simulated user.
    seen
        Corpus of the documents shown in training: the candidates of the test policies.
    frequency
        Number of training sessions of each query of `seen`.
    judged
        True labels of the documents shown in training.
    impressions
        Number of training sessions of each query of the whole corpus.
    logging_score
        Training policy's score of each pair; 0 for all pairs where it has no single score.
    """

    train: Sessions
    held_out: Sessions
    test: dict[str, Sessions]
    user: ClickModel
    seen: Corpus
    frequency: Float[np.ndarray, " seen_query"]
    judged: JudgedPairs
    impressions: Float[np.ndarray, " query"]
    logging_score: Float[np.ndarray, " pair"]


@dataclass(frozen=True)
class World:
    """Settings of the simulated search engine of the policy-shift protocol.

    Fields are texts and numbers only, because they are part of every task's digest.

    Parameters
    ----------
    testing
        Test policies. They are deterministic but for ties, which are broken in every session.
    queries
        Number of queries, drawn from those with at least 10 candidates whose labels differ; all of them if there are
        fewer.
    documents
        Number of candidates per query, a ladder of grades as in section 6.1 of the paper; None keeps all candidates.
    sessions
        Number of sessions of the training policy's log: 80 % for training, 10 % for early stopping, 10 % for the
        in-distribution perplexity.
    test_sessions
        Number of sessions of each out-of-distribution test log.
    ranks
        Number of ranks of a list.
    seed
        Random seed.
    content
        Identity of the corpus: a digest of its files.
    corpus
        Path of the corpus.

    References
    ----------
    Deffayet, R., Renders, J.-M., de Rijke, M. (2022). Evaluating the robustness of click models to policy
    distributional shift. ACM TOIS.
    """

    testing: Named = (("oracle", "Oracle"), ("random", "Uniform"), ("BM25", "BM25"), ("LambdaMART", "LambdaMART"))
    queries: int = 1000
    documents: int | None = None
    sessions: int = 100_000
    test_sessions: int = 10_000
    ranks: int = 10
    seed: int = 0
    content: str = BUILTIN
    corpus: str = field(default=BUILTIN, repr=False, compare=False)

    def logs(self, user: str, training: str) -> SimulatedLogs:
        """Simulate the logs of one user and one training policy.

        Parameters
        ----------
        user
            Specification of the simulated user.
        training
            Specification of the training policy. " + " joins several policies, each of which ranks an equal share of
            the log.
        """
        return _logs(self, user, training)

    def rng(self, *names: str) -> np.random.Generator:
        """Return the random generator of a named part of the simulation."""
        return generator(self.seed, "policy-shift", *names)


def check_specs(world: World, users: Named, training: Named) -> None:
    """Parse all specifications of a protocol, so that errors are raised before any work.

    Parameters
    ----------
    world
        Settings with the test policies.
    users
        Simulated users.
    training
        Training policies.

    Raises
    ------
    SpecError
        If a specification cannot be parsed.
    """
    for _, text in users:
        parse(text, USERS)
    for _, text in (*training, *world.testing):
        for part in text.split(" + "):
            parse(part, POLICIES)


@lru_cache(maxsize=1)
def _corpus(world: World) -> Corpus:
    """Return the corpus with the queries and candidates of the simulation."""
    spare = world.queries * 13 // 10 + 20  # some queries have few candidates or equal labels
    corpus = builtin_corpus(spare, seed=world.seed) if world.corpus == BUILTIN else read_corpus(world.corpus)
    corpus = corpus.with_queries(corpus.usable_queries()).sample_queries(world.queries, rng=world.rng("queries"))
    return corpus if world.documents is None else corpus.ladder(world.documents, rng=world.rng("documents"))


@lru_cache(maxsize=8)
def _scores(world: World, policy: str) -> Scores:
    """Return a policy with cached scores, because fitting LambdaMART takes time."""
    corpus, ranker = _corpus(world), parse(policy, POLICIES)
    return Scores(corpus.vocabulary, ranker.scores(corpus))


def _policy(world: World, text: str) -> Policy:
    """Return the policy of a specification, with cached scores where it ranks by a score."""
    policy: Policy = parse(text, POLICIES)
    if isinstance(policy, PlackettLuce):
        return replace(policy, policy=_scores(world, key(policy.policy)))
    return _scores(world, text) if isinstance(policy, ScoredPolicy) else policy


@lru_cache(maxsize=1)
def _logs(world: World, user: str, training: str) -> SimulatedLogs:
    """Simulate training and test logs; the last result is cached."""
    corpus, power_law = _corpus(world), PowerLaw(seed=world.seed)
    model = parse(user, USERS).on(corpus)
    policies = [_policy(world, text) for text in training.split(" + ")]
    sessions_per_policy = world.sessions // len(policies)
    parts = [
        simulate(
            corpus,
            policy,
            model,
            sessions_per_policy,
            queries=power_law,
            ranks=world.ranks,
            rng=world.rng("log", user, training, str(i)),
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
        observed = ObservedFrequencies(frequency)  # queries are as frequent as in training
        test[name] = simulate(seen, ranker, model, world.test_sessions, queries=observed, ranks=world.ranks, rng=rng)
    judged = JudgedPairs.of(corpus.vocabulary, corpus.label.astype(np.float64), shown=shown)
    scored = policies[0].policy if len(policies) == 1 and isinstance(policies[0], PlackettLuce) else None
    score = scored.scores(corpus) if scored is not None else np.zeros(corpus.n_pairs)
    return SimulatedLogs(train, held_out, test, model, seen, frequency, judged, impressions, score)
