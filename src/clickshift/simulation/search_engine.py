"""Simulated search engines: a corpus, rankers and users give a log, as a function of the settings.

`World` is the search engine of the policy-shift protocol, `SelectionWorld` that of the model-selection protocol. They
share how queries and documents are chosen, how rankers are scored and how logs are drawn (`SearchEngine`). Any process
creates the same logs from the same settings; expensive parts are cached for the next task.

References
----------
Deffayet, R., Renders, J.-M., de Rijke, M. (2022). Evaluating the robustness of click models to policy distributional
shift. ACM TOIS.
Deffayet, R., Hager, P., Renders, J.-M., de Rijke, M. (2023). An offline metric for the debiasedness of click models.
SIGIR.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float

from clickshift.core.files import content_key
from clickshift.core.rng import generator
from clickshift.core.spec import ADDED_LATER, Registry, key, parse
from clickshift.data.builtin_corpus import builtin_corpus
from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Sessions
from clickshift.errors import DataError, SpecError
from clickshift.io.datasets.letor import (
    SAVED_CORPUS,
    CorpusLike,
    corpus_files,
    load_corpus,
    open_corpus,
    read_corpus,
    save_corpus,
)
from clickshift.io.query_counts import read_query_counts
from clickshift.metrics.ranking import JudgedPairs
from clickshift.models.base import ClickModel
from clickshift.policies import POLICIES
from clickshift.policies.base import Policy, ScoredPolicy
from clickshift.policies.basic import Scores
from clickshift.policies.by_exposure import Placed
from clickshift.policies.plackett_luce import PlackettLuce
from clickshift.policies.score_file import SCORE_FILES, located
from clickshift.simulation.simulate import ObservedFrequencies, PowerLaw, QueryDistribution, simulate
from clickshift.simulation.users import USERS

Named = tuple[tuple[str, str], ...]
"""(name, specification) pairs: the name is used in tables, the specification creates the object."""

BUILTIN = "builtin"
"""Name of the built-in corpus."""
IND = "ind"
"""Name of the in-distribution test log, ranked by the training policy; all other test logs are out-of-distribution."""


AnyEngine = TypeVar("AnyEngine", bound="SearchEngine")


class SearchEngine:
    """A simulated search engine: base class of settings whose fields are texts and numbers only.

    The fields are part of the digest of every task that uses the engine, so they are stable.
    """

    stream: ClassVar[str]
    """Name of the engine's random streams."""
    spare: ClassVar[tuple[int, int]]
    """Queries of the built-in corpus per query of the engine, as a fraction: some are not usable."""
    queries: int
    seed: int
    corpus: str

    def rng(self, *names: str | int) -> np.random.Generator:
        """Return the random generator of a named part of the simulation."""
        return generator(self.seed, self.stream, *names)

    def on_corpus(self: AnyEngine, corpus: CorpusLike, folder: str | Path | None = None) -> AnyEngine:
        """Return the same search engine with the documents of another corpus.

        Parameters
        ----------
        corpus
            "builtin", a LETOR file or folder, a `Corpus` or a data frame.
        folder
            Folder in which a `Corpus` or a data frame is saved for other processes.

        Returns
        -------
        SearchEngine
            The settings, with the identity of the corpus: a digest of its files, or of its content.

        Raises
        ------
        SpecError
            "bad-option" for a `Corpus` without a folder.
        """
        if isinstance(corpus, str) and corpus == BUILTIN:
            return self
        changes: dict[str, Any]
        if isinstance(corpus, str | Path):
            changes = {"corpus": str(corpus), "content": content_key(corpus_files(corpus))}
        elif folder is None:
            raise SpecError(
                "a Corpus or a data frame is saved for other processes. Pass `folder`.",
                code="bad-option",
                option="folder",
            )
        else:
            path, content = save_corpus(open_corpus(corpus), folder)
            changes = {"corpus": str(path.absolute()), "content": content}
        return replace(self, **changes)  # type: ignore[type-var]

    def all_documents(self) -> Corpus:
        """Return the whole corpus, from which `candidates` selects."""
        if self.corpus.endswith(SAVED_CORPUS):
            return load_corpus(self.corpus)
        if self.corpus != BUILTIN:
            return read_corpus(self.corpus)
        numerator, denominator = self.spare
        return builtin_corpus(self.queries * numerator // denominator + 20, seed=self.seed)

    def candidates(self) -> Corpus:
        """Return the corpus with the queries and candidates of the simulation; the last one is cached."""
        return _candidates(self)

    def _select(self, corpus: Corpus) -> Corpus:
        """Select queries and candidates."""
        raise NotImplementedError

    def policy(self, text: str) -> Policy:
        """Return the policy of a specification."""
        policy: Policy = parse(text, POLICIES)
        return policy

    def ranker(self, text: str) -> tuple[Policy, Scores | None]:
        """Return the policy of a specification, and the cached scores that it ranks by, if it has any."""
        policy = self.policy(text)
        if isinstance(policy, PlackettLuce):
            scores = _scores(self, key(policy.policy))
            return replace(policy, policy=scores), scores
        if isinstance(policy, ScoredPolicy):
            scores = _scores(self, key(policy))
            return scores, scores
        return policy, None

    def log(
        self,
        policy: Policy,
        user: ClickModel,
        sessions: int,
        *names: str | int,
        corpus: Corpus | None = None,
        **options: Any,
    ) -> Sessions:
        """Simulate a log: the policy ranks the corpus, the user clicks; `names` are those of its random stream.

        `options` are those of `simulate`: the query distribution, the number of ranks.
        """
        documents = self.candidates() if corpus is None else corpus
        return simulate(documents, policy, user, sessions, rng=self.rng(*names), **options)


@lru_cache(maxsize=1)
def _candidates(engine: SearchEngine) -> Corpus:
    """Return the corpus of a search engine; the last one is cached."""
    return engine._select(engine.all_documents())


@lru_cache(maxsize=8)
def _scores(engine: SearchEngine, text: str) -> Scores:
    """Return a policy with cached scores, because fitting LambdaMART takes time."""
    corpus, policy = engine.candidates(), engine.policy(text)
    assert isinstance(policy, ScoredPolicy)
    return Scores(corpus.vocabulary, policy.scores(corpus))


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
class World(SearchEngine):
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
    query_counts
        Digest of a table with the frequency of each query; empty for the power law of the paper. Queries without a
        frequency are left out.
    corpus
        Path of the corpus.
    tables
        Paths of the table of query frequencies and of files of scores, by the digests of their contents.

    References
    ----------
    Deffayet, R., Renders, J.-M., de Rijke, M. (2022). Evaluating the robustness of click models to policy
    distributional shift. ACM TOIS.
    """

    stream = "policy-shift"
    spare = (13, 10)
    testing: Named = (("oracle", "Oracle"), ("random", "Uniform"), ("BM25", "BM25"), ("LambdaMART", "LambdaMART"))
    queries: int = 1000
    documents: int | None = None
    sessions: int = 100_000
    test_sessions: int = 10_000
    ranks: int = 10
    seed: int = 0
    content: str = BUILTIN
    query_counts: str = field(default="", metadata=ADDED_LATER)
    corpus: str = field(default=BUILTIN, repr=False, compare=False)
    tables: Named = field(default=(), repr=False, compare=False)

    def policy(self, text: str) -> Policy:
        """Return the policy of a specification, which may rank by the scores of a file."""
        policy: Policy = located(parse(text, {**POLICIES, **SCORE_FILES}), dict(self.tables))
        return policy

    def query_distribution(self) -> QueryDistribution:
        """Return the distribution of the query of a session: as frequent as counted, or a power law."""
        if not self.query_counts:
            return PowerLaw(seed=self.seed)
        return ObservedFrequencies(self._frequencies(self.candidates()))

    def _frequencies(self, corpus: Corpus) -> Float[np.ndarray, " query"]:
        """Return the frequency of each query of a corpus."""
        return read_query_counts(dict(self.tables)[self.query_counts], corpus.vocabulary)

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

    def _select(self, corpus: Corpus) -> Corpus:
        corpus = corpus.with_queries(corpus.usable_queries())
        if self.query_counts:
            corpus = corpus.with_queries(self._frequencies(corpus) > 0)
        corpus = corpus.sample_queries(self.queries, rng=self.rng("queries"))
        return corpus if self.documents is None else corpus.ladder(self.documents, rng=self.rng("documents"))


def named_specs(texts: Sequence[str], known: Named, registry: Registry) -> Named:
    """Name the specifications that a caller gave.

    Parameters
    ----------
    texts
        Names of known specifications, or specifications; " + " joins several policies of one log.
    known
        Specifications by name.
    registry
        Names that begin a specification.

    Returns
    -------
    tuple of (str, str)
        The texts, with the specifications that they stand for.

    Raises
    ------
    SpecError
        "unknown-name" for a word that is neither a known specification nor begins one.

    Examples
    --------
    >>> from clickshift.policies import POLICIES
    >>> named_specs(["random", "random + BM25"], (("random", "Uniform"),), POLICIES)
    (('random', 'Uniform'), ('random + BM25', 'Uniform + BM25'))
    """
    by_name = dict(known)
    for part in (part for text in texts for part in text.split(" + ")):
        if re.fullmatch(r"[\w-]+", part) and part not in by_name and part not in registry:
            raise SpecError(
                f"{part!r} is not known. Choose one of: {', '.join(by_name)}; or a text that begins with one of: "
                f"{', '.join(registry)}.",
                code="unknown-name",
                value=part,
                known=[*by_name, *registry],
            )
    return tuple((text, " + ".join(by_name.get(part, part) for part in text.split(" + "))) for text in texts)


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
            world.policy(part)


@lru_cache(maxsize=1)
def _logs(world: World, user: str, training: str) -> SimulatedLogs:
    """Simulate training and test logs; the last result is cached."""
    corpus, distribution = world.candidates(), world.query_distribution()
    model = parse(user, USERS).on(corpus)
    texts = training.split(" + ")
    policies = [world.ranker(text)[0] for text in texts]
    parts = [
        world.log(
            policy,
            model,
            world.sessions // len(policies),
            *("log", user, training, str(i)),
            queries=distribution,
            ranks=world.ranks,
        )
        for i, policy in enumerate(policies)
    ]
    log = parts[0] if len(parts) == 1 else Sessions.concat(parts)
    train, rest = log.split(0.8, rng=world.rng("split"))
    held_out, ind = rest.split(0.5, rng=world.rng("split", "rest"))
    shown = np.bincount(train.rankings.pair[train.rankings.shown], minlength=corpus.n_pairs) > 0
    impressions = np.bincount(train.rankings.query, train.count, corpus.n_queries)
    seen, frequency = corpus.with_pairs(shown), impressions[impressions > 0]
    observed = ObservedFrequencies(frequency)  # queries are as frequent as in training
    test = {IND: ind} | {
        name: world.log(
            world.ranker(text)[0],
            model,
            world.test_sessions,
            *("ood", user, training, name),
            corpus=seen,
            queries=observed,
            ranks=world.ranks,
        )
        for name, text in world.testing
    }
    judged = JudgedPairs.of(corpus.vocabulary, corpus.label.astype(np.float64), shown=shown)
    scored = policies[0].policy if len(policies) == 1 and isinstance(policies[0], PlackettLuce) else None
    score = scored.scores(corpus) if scored is not None else np.zeros(corpus.n_pairs)
    return SimulatedLogs(train, held_out, test, model, seen, frequency, judged, impressions, score)


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
class SelectionWorld(SearchEngine):
    """Settings of the simulated search engine of the model-selection protocol.

    Corpus and policies, with their noise, are the same for all seeds. A seed changes what differs between two logs of
    one engine: which queries arrive, how a stochastic policy orders documents, and which results users click.

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
    as_published
        Whether lists are placed as by the published code.
    """

    stream = "model-selection"
    spare = (14, 10)  # rounding within strata leaves about one query in five with too few documents
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
    as_published: bool = field(default=False, metadata=ADDED_LATER)

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
        return _seed_logs(self, user, training, seed)

    def _select(self, corpus: Corpus) -> Corpus:
        corpus = corpus.stratified(self.documents, rng=self.rng("documents"))
        full = corpus.n_candidates == self.documents
        if not full.any():
            raise DataError(
                f"a query must have {self.documents} documents: no query of the corpus has. Use a larger corpus.",
                code="too-few-documents",
                documents=self.documents,
            )
        return corpus.with_queries(full).sample_queries(self.queries, rng=self.rng("queries"))


@lru_cache(maxsize=1)
def _seed_logs(world: SelectionWorld, user: str, training: str, seed: int) -> SeedLogs:
    """Simulate training and test logs; the last result is cached."""
    corpus, simulated_user = world.candidates(), parse(user, USERS)
    model, ranks = simulated_user.on(corpus), world.documents

    def placed(text: str) -> tuple[Placed, Scores]:
        """Place a policy's documents by the user's exposure."""
        policy, scores = world.ranker(text)
        if scores is None:
            raise SpecError(
                f"debiasedness compares a click model with the policy's scores: {text!r} has none. Choose a policy "
                "that ranks by a score.",
                code="no-scores",
                policy=text,
            )
        return Placed(policy, tuple(simulated_user.exposure(ranks).tolist()), world.as_published), scores

    def log(policy: Policy, sessions: int, *names: str) -> Sessions:
        return world.log(policy, model, sessions, *names, user, seed, ranks=ranks).merged()

    logging, scores = placed(training)
    testing = {name: placed(text)[0] for name, text in world.testing}
    label = corpus.label.astype(np.float64)
    return SeedLogs(
        train=log(logging, world.sessions, "train", training),
        held_out=log(logging, world.held_out_sessions, "held out", training),
        test={name: log(policy, world.test_sessions, "test", name) for name, policy in testing.items()},
        judged=JudgedPairs.of(corpus.vocabulary, label),
        label=label,
        logging_score=scores.score,
        logging_placement=logging.on(corpus).placement(ranks=ranks),
        target_placement={name: policy.on(corpus).placement(ranks=ranks) for name, policy in testing.items()},
    )
