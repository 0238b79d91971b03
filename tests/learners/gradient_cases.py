"""What the tests of the gradient learner share."""

from __future__ import annotations

import numpy as np
import pytest

from clickshift.corpus import Corpus
from clickshift.learners.gradient import Gradient
from clickshift.learners.gradient.preparation import Prepared, prepared
from clickshift.models.base import ClickModel
from clickshift.policies.plackett_luce import PlackettLuce
from clickshift.policies.scored import Oracle
from clickshift.sessions import Sessions
from clickshift.simulation import simulate
from clickshift.users import DBN as DBNUser
from clickshift.vocabulary import Vocabulary


def small(name: str, **options: object) -> Gradient:
    """A learner whose networks take little time."""
    return Gradient(name, **{"embedding": 8, "hidden": (8,), "state": 6, "rounds": 2, **options})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def world() -> tuple[Corpus, Sessions]:
    """Eight queries of six documents with features, and 30,000 sessions of DBN users on lists of four."""
    rng = np.random.default_rng(3)
    words = Vocabulary.of(np.repeat(np.arange(8), 6), np.arange(48))[0]
    label = rng.integers(0, 5, 48).astype(np.float32)
    features = np.stack([label + rng.normal(size=48), rng.normal(size=48) ** 2], axis=1).astype(np.float32)
    corpus = Corpus(words, label, features)
    return corpus, simulate(corpus, PlackettLuce(Oracle(), temperature=2.0), DBNUser(), 30_000, ranks=4, rng=1)


def ready(learner: Gradient, log: Sessions) -> Prepared:
    return prepared(learner, learner._class(), log, log, None)


def arrays(model: ClickModel) -> list[np.ndarray]:
    parts = [model.relevance()] + [getattr(model, name, {}) for name in ("shared", "by_pair")]
    return [np.asarray(a) for part in parts for a in (part.values() if isinstance(part, dict) else [part])]
