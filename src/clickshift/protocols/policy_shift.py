"""The policy-shift protocol: will a click model hold when the ranker changes?

Models learn from a log of one policy and predict clicks on lists of others (Deffayet et al. 2022, section 5).
In-distribution (ind) perplexity is on held-out sessions of the training log, out-of-distribution (ood) perplexity on
other policies' lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from clickshift.corpus import Corpus
from clickshift.learners import fit
from clickshift.metrics.clicks import perplexity, unseen_pair_share
from clickshift.models.base import ClickModel
from clickshift.policies import POLICIES
from clickshift.policies.base import ScoredPolicy
from clickshift.policies.scored import Scores
from clickshift.seeds import generator
from clickshift.sessions import Sessions
from clickshift.simulation import Observed, PowerLaw, simulate
from clickshift.spec import parse
from clickshift.synthetic import builtin_corpus
from clickshift.users import USERS, User

ORACLE = "user (oracle)"
"""The row of the user's own model: nothing predicts its clicks better."""


@dataclass(frozen=True)
class PolicyShift:
    """One user, one training policy, several test policies and models. Texts as on the command line."""

    user: str = "DBN"
    training: str = "PlackettLuce(NoisyOracle, temperature=0.1, scores='log')"
    testing: tuple[tuple[str, str], ...] = (
        ("oracle", "Oracle"),
        ("random", "Uniform"),
        ("BM25", "BM25"),
        ("LambdaMART", "LambdaMART"),
    )
    """Names for the tables, and the policies: deterministic but for ties, which are broken anew in every session."""
    models: tuple[str, ...] = ("rCTR", "dCTR")
    queries: int = 1000
    sessions: int = 100_000
    """In the training policy's log: 80 % to learn from, 10 % to choose with, 10 % for the ind perplexity."""
    test_sessions: int = 10_000
    seed: int = 0

    def rows(
        self, corpus: Corpus | None = None, *, progress: Callable[[str], None] = lambda done: None
    ) -> Iterator[dict[str, Any]]:
        """Tidy rows, one per model and test log; `progress` hears what has just been done."""
        user, training = parse(self.user, USERS), parse(self.training, POLICIES)
        testing: list[tuple[str, ScoredPolicy]] = [(name, parse(text, POLICIES)) for name, text in self.testing]
        corpus = builtin_corpus(self.queries, seed=self.seed) if corpus is None else corpus
        corpus = corpus.with_queries(corpus.usable_queries()).sample_queries(self.queries, rng=self._rng("queries"))
        progress("corpus")
        log = simulate(corpus, training, user, self.sessions, queries=PowerLaw(seed=self.seed), rng=self._rng("log"))
        train, rest = log.split(0.8, rng=self._rng("split"))
        _, ind = rest.split(0.5, rng=self._rng("split", "rest"))
        progress("training log")
        models = {ORACLE: user.on(corpus)} | {name: fit(name, train) for name in self.models}
        progress("models")
        yield from self._evaluate(models, "ind", "training policy", ind)
        for name, policy in testing:
            yield from self._evaluate(models, "ood", name, self._ood(corpus, policy, user, train, name))
            progress(f"{name} test log")

    def _ood(self, corpus: Corpus, policy: ScoredPolicy, user: User, train: Sessions, name: str) -> Sessions:
        """Lists of documents that occur in training, for queries as frequent as in training."""
        seen = corpus.with_pairs(np.unique(train.rankings.pair[train.rankings.shown]))
        frequency = np.bincount(train.rankings.query, train.count, corpus.n_queries)
        ranker = Scores(corpus.vocabulary, policy.scores(corpus))
        law = Observed(frequency[frequency > 0])  # the queries of `seen`, in its order
        return simulate(seen, ranker, user, self.test_sessions, queries=law, rng=self._rng("ood", name))

    def _evaluate(
        self, models: dict[str, ClickModel], shift: str, testing: str, log: Sessions
    ) -> Iterator[dict[str, Any]]:
        for name, model in models.items():
            result = perplexity(model, log)
            yield {
                "user": self.user,
                "training": self.training,
                "testing": testing,
                "shift": shift,
                "model": name,
                "perplexity": result.average,
                **{f"perplexity@{r + 1}": float(value) for r, value in enumerate(result.at_rank)},
                "unseen_pair_share": unseen_pair_share(model, log),
                "sessions": log.total,
                "ctr": float((log.count @ log.click).sum() / log.total),
            }

    def _rng(self, *names: str) -> np.random.Generator:
        return generator(self.seed, "policy-shift", *names)
