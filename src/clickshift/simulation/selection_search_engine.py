"""Simulated search engine of the model-selection protocol (CMIP paper): ten documents per query, one log per seed.

Corpus and policies, with their noise, are the same for all seeds. A seed changes what differs between two logs of one
engine: which queries arrive, how a stochastic policy orders documents, and which results users click.

References
----------
Deffayet, R., Hager, P., Renders, J.-M., de Rijke, M. (2023). An offline metric for the debiasedness of click models.
SIGIR.
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
    """Training and test data of one seed; equal sessions are merged.

    Parameters
    ----------
    train
        Training sessions.
    held_out
        Held-out sessions of the training policy, for early stopping and as the data available before deployment.
    test
        Test sessions by policy name.
    judged
        True labels of all pairs, for ranking metrics.
    label
        True label of each pair.
    logging_score
        Training policy's score of each pair, before randomisation.
    logging_placement
        Probability of each pair at each rank under the training policy.
    target_placement
        Probability of each pair at each rank under each test policy.
    """

    train: Sessions
    held_out: Sessions
    test: dict[str, Sessions]
    judged: JudgedPairs
    label: Float[np.ndarray, " pair"]
    logging_score: Float[np.ndarray, " pair"]
    logging_placement: Float[np.ndarray, "pair rank"]
    target_placement: dict[str, Float[np.ndarray, "pair rank"]]


@dataclass(frozen=True)
class SelectionWorld:
    """Settings of the simulated search engine of the model-selection protocol.

    Fields are texts and numbers only, because they are part of every task's digest.

    Every query has exactly `documents` candidates, a stratified sample, and every session shows all of them; queries
    with fewer are dropped. Lists are placed by the user's exposure: the i-th best document is shown at the i-th most
    examined rank. For users who read top-down that is the list itself. The published code uses the permutation where
    its inverse is needed; here it is the inverse (`Placed`). LambdaMART is cross-fitted: unlike the published one, it
    never ranks a query that it was fitted on.

    Parameters
    ----------
    testing
        Test policies, deterministic but for ties: Uniform has only ties, and orders every session independently. A
        test policy with the name of a training policy ranks by the same scores.
    queries
        Number of queries, about what the published rule keeps of 6,000; all of them if there are fewer.
    documents
        Number of candidates per query, and of ranks.
    sessions
        Number of training sessions.
    held_out_sessions
        Number of held-out sessions.
    test_sessions
        Number of sessions of each test policy. Queries are equally frequent in all logs.
    seed
        Random seed of the corpus, from which the seeds of the logs are derived. The noise of NoisyOracle and the folds
        of LambdaMART have the seeds of their own specifications.
    content
        Identity of the corpus: a digest of its files.
    corpus
        Path of the corpus.
    """

    testing: Named = (
        ("Uniform", "Uniform"),
        ("LambdaMART", "LambdaMART(rescale=False)"),
        ("NoisyOracle", "NoisyOracle(sd=0.5, scale='label')"),
    )
    queries: int = 5000
    documents: int = 10
    sessions: int = 5_000_000
    held_out_sessions: int = 1_000_000
    test_sessions: int = 1_000_000
    seed: int = 0
    content: str = BUILTIN
    corpus: str = field(default=BUILTIN, repr=False, compare=False)

    def logs(self, user: str, training: str, seed: int) -> SeedLogs:
        """Simulate the logs of one user, training policy and seed.

        Parameters
        ----------
        user
            Specification of the simulated user.
        training
            Specification of the training policy, which must rank by a score.
        seed
            Seed of the logs.

        Raises
        ------
        SpecError
            "no-scores" if a policy does not rank by a score.
        DataError
            "too-few-documents" if no query of the corpus has enough candidates.
        """
        return _logs(self, user, training, seed)

    def rng(self, *names: str | int) -> np.random.Generator:
        """Return the random generator of a named part of the simulation."""
        return generator(self.seed, "model-selection", *names)


@lru_cache(maxsize=1)
def _corpus(world: SelectionWorld) -> Corpus:
    """Return the corpus with the queries and candidates of the simulation."""
    spare = world.queries * 14 // 10 + 20  # rounding within strata leaves about one query in five with too few
    corpus = builtin_corpus(spare, seed=world.seed) if world.corpus == BUILTIN else read_corpus(world.corpus)
    corpus = corpus.stratified(world.documents, rng=world.rng("documents"))
    full = corpus.n_candidates == world.documents
    if not full.any():
        raise DataError(
            f"a query must have {world.documents} documents: no query of the corpus has. Use a larger corpus.",
            code="too-few-documents",
            documents=world.documents,
        )
    return corpus.with_queries(full).sample_queries(world.queries, rng=world.rng("queries"))


@lru_cache(maxsize=8)
def _scores(world: SelectionWorld, policy: str) -> Scores:
    """Return a policy with cached scores, because fitting LambdaMART takes time."""
    corpus = _corpus(world)
    return Scores(corpus.vocabulary, parse(policy, POLICIES).scores(corpus))


def _policy_with_scores(world: SelectionWorld, text: str) -> tuple[Policy, Scores]:
    """Return the policy of a specification, and the scores that it ranks by."""
    policy: Policy = parse(text, POLICIES)
    if isinstance(policy, PlackettLuce):
        scores = _scores(world, key(policy.policy))
        return replace(policy, policy=scores), scores
    if isinstance(policy, ScoredPolicy):
        scores = _scores(world, key(policy))
        return scores, scores
    raise SpecError(
        f"debiasedness compares a click model with the policy's scores: {text!r} has none. Choose a policy that ranks "
        "by a score.",
        code="no-scores",
        policy=text,
    )


@lru_cache(maxsize=1)
def _logs(world: SelectionWorld, user: str, training: str, seed: int) -> SeedLogs:
    """Simulate training and test logs; the last result is cached."""
    corpus, simulated_user = _corpus(world), parse(user, USERS)
    model, ranks = simulated_user.on(corpus), world.documents

    def simulated(policy: Policy, sessions: int, *names: str) -> Sessions:
        rng = world.rng(*names, user, seed)
        return simulate(corpus, policy, model, sessions, ranks=ranks, rng=rng).merged()

    ranker, scores = _policy_with_scores(world, training)
    logging = _placed(ranker, simulated_user, ranks)
    testing = {
        name: _placed(_policy_with_scores(world, text)[0], simulated_user, ranks) for name, text in world.testing
    }
    label = corpus.label.astype(np.float64)
    return SeedLogs(
        train=simulated(logging, world.sessions, "train", training),
        held_out=simulated(logging, world.held_out_sessions, "held out", training),
        test={name: simulated(policy, world.test_sessions, "test", name) for name, policy in testing.items()},
        judged=JudgedPairs.of(corpus.vocabulary, label),
        label=label,
        logging_score=scores.score,
        logging_placement=logging.on(corpus).placement(ranks=ranks),
        target_placement={name: policy.on(corpus).placement(ranks=ranks) for name, policy in testing.items()},
    )


def _placed(policy: Policy, user: User, ranks: int) -> Placed:
    """Place a policy's documents by the user's exposure."""
    return Placed(policy, tuple(user.exposure(ranks).tolist()))
