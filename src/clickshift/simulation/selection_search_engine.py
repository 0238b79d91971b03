"""The simulated search engine of the CMIP paper: ten documents per query, and a log of its own for every seed.

Corpus and policies, with their noise, are the same for all seeds. What varies with a seed is what varies between two
logs of one engine: which queries arrive, how the policy's chance orders documents, what users click.
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
from clickshift.errors import DataError, SpecError
from clickshift.io.datasets.letor import read_corpus
from clickshift.metrics.ranking import JudgedPairs
from clickshift.policies import POLICIES
from clickshift.policies.base import Policy, ScoredPolicy
from clickshift.policies.basic import Scores
from clickshift.policies.by_exposure import Placed
from clickshift.policies.plackett_luce import PlackettLuce
from clickshift.simulation.search_engine import BUILTIN, Named
from clickshift.simulation.simulate import simulate
from clickshift.simulation.users import USERS, User


class SeedLogs(NamedTuple):
    """What one seed's models learn from and are judged by. Equal sessions are merged."""

    train: Sessions
    held_out: Sessions
    """Of the training policy: decides when to stop, and is what a person has before deployment."""
    test: dict[str, Sessions]
    """By the name of the policy."""
    judged: JudgedPairs
    label: Float[np.ndarray, " pair"]
    logging_score: Float[np.ndarray, " pair"]
    """What the training policy thinks of each document, before chance orders them."""
    logging_placement: Float[np.ndarray, "pair rank"]
    target_placement: dict[str, Float[np.ndarray, "pair rank"]]
    """Where each test policy puts documents."""


@dataclass(frozen=True)
class SelectionWorld:
    """Texts and numbers only: a world is a part of every cell's key.

    Every query has exactly `documents` candidates, a stratified sample, and every session shows all of them; queries
    that are left with fewer are dropped. A list is placed by the user's exposure: the i-th best document goes to the
    i-th most examined rank. For users who read from the top down that is the list itself. The published code has the
    permutation where its inverse is needed; here it is the inverse (`Placed`). LambdaMART is cross-fitted: it never
    ranks a query that it was fitted on, as the published one does.
    """

    testing: Named = (
        ("Uniform", "Uniform"),
        ("LambdaMART", "LambdaMART(rescale=False)"),
        ("NoisyOracle", "NoisyOracle(sd=0.5, scale='label')"),
    )
    """Without chance but for ties: Uniform has only ties, and orders every session anew. The one that has the name of a
    training policy ranks by the same scores."""
    queries: int = 5000
    """About what the published rule leaves of 6,000; all of them where there are no more."""
    documents: int = 10
    sessions: int = 5_000_000
    held_out_sessions: int = 1_000_000
    test_sessions: int = 1_000_000
    """Of each test policy. Queries are equally frequent in all logs."""
    seed: int = 0
    """Of the corpus, and of what the seeds of logs are derived from. The noise of NoisyOracle and the folds of
    LambdaMART have the seeds of their own texts."""
    content: str = BUILTIN
    """What tells one corpus from another: a digest of its files."""
    corpus: str = field(default=BUILTIN, repr=False, compare=False)
    """Where it is."""

    def logs(self, user: str, training: str, seed: int) -> SeedLogs:
        return _logs(self, user, training, seed)

    def rng(self, *names: str | int) -> np.random.Generator:
        return generator(self.seed, "model-selection", *names)


@lru_cache(maxsize=1)
def _corpus(world: SelectionWorld) -> Corpus:
    spare = world.queries * 14 // 10 + 20  # the rounding of strata leaves about one query in five with too few
    corpus = builtin_corpus(spare, seed=world.seed) if world.corpus == BUILTIN else read_corpus(world.corpus)
    corpus = corpus.stratified(world.documents, rng=world.rng("documents"))
    full = corpus.n_candidates == world.documents
    if not full.any():
        raise DataError(f"a query must have {world.documents} documents: none of the corpus has. Use a larger corpus.")
    return corpus.with_queries(full).sample_queries(world.queries, rng=world.rng("queries"))


@lru_cache(maxsize=8)
def _scores(world: SelectionWorld, policy: str) -> Scores:
    """A policy with its scores computed once: a LambdaMART takes its time."""
    corpus = _corpus(world)
    return Scores(corpus.vocabulary, parse(policy, POLICIES).scores(corpus))


def _scored(world: SelectionWorld, text: str) -> tuple[Policy, Scores]:
    """A policy, and the scores that it ranks by."""
    policy: Policy = parse(text, POLICIES)
    if isinstance(policy, PlackettLuce):
        scores = _scores(world, key(policy.policy))
        return replace(policy, policy=scores), scores
    if isinstance(policy, ScoredPolicy):
        scores = _scores(world, key(policy))
        return scores, scores
    raise SpecError(f"debiasedness is about a policy's scores: {text!r} has none. Name one that ranks by a score.")


@lru_cache(maxsize=1)
def _logs(world: SelectionWorld, user: str, training: str, seed: int) -> SeedLogs:
    corpus, who = _corpus(world), parse(user, USERS)
    model, ranks = who.on(corpus), world.documents

    def drawn(policy: Policy, sessions: int, *names: str) -> Sessions:
        rng = world.rng(*names, user, seed)
        return simulate(corpus, policy, model, sessions, ranks=ranks, rng=rng).merged()

    ranker, scores = _scored(world, training)
    logging = _placed(ranker, who, ranks)
    testing = {name: _placed(_scored(world, text)[0], who, ranks) for name, text in world.testing}
    label = corpus.label.astype(np.float64)
    return SeedLogs(
        train=drawn(logging, world.sessions, "train", training),
        held_out=drawn(logging, world.held_out_sessions, "held out", training),
        test={name: drawn(policy, world.test_sessions, "test", name) for name, policy in testing.items()},
        judged=JudgedPairs.of(corpus.vocabulary, label),
        label=label,
        logging_score=scores.score,
        logging_placement=logging.on(corpus).placement(ranks=ranks),
        target_placement={name: policy.on(corpus).placement(ranks=ranks) for name, policy in testing.items()},
    )


def _placed(policy: Policy, user: User, ranks: int) -> Placed:
    return Placed(policy, tuple(user.exposure(ranks).tolist()))
