"""Fixtures of the learners' tests."""

from __future__ import annotations

import numpy as np
import pytest

from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.policies.basic import Oracle
from clickshift.policies.plackett_luce import PlackettLuce
from clickshift.simulation.simulate import simulate
from clickshift.simulation.users import DBN as DBNUser
from clickshift.testing import random_rankings


@pytest.fixture(scope="session")
def world() -> tuple[Corpus, Sessions]:
    """Eight queries of six documents with features, and 20,000 sessions of DBN users on lists of three."""
    rng = np.random.default_rng(3)
    words = Vocabulary.of(np.repeat(np.arange(8), 6), np.arange(48))[0]
    label = rng.integers(0, 5, 48).astype(np.float32)
    features = np.stack([label + rng.normal(size=48), rng.normal(size=48) ** 2], axis=1).astype(np.float32)
    corpus = Corpus(words, label, features)
    return corpus, simulate(corpus, PlackettLuce(Oracle(), temperature=2.0), DBNUser(), 20_000, ranks=3, rng=1)


@pytest.fixture(scope="session")
def short_lists() -> Sessions:
    """Thirty queries of 3 to 9 documents, and 300 rows of lists of 1 to 3 of them, which stand for 1 to 3 sessions
    each, with clicks at random."""
    rng = np.random.default_rng(20221015)
    size = rng.integers(3, 10, 30)
    words = Vocabulary.of(np.repeat(np.arange(30), size), np.arange(size.sum()))[0]
    rankings = random_rankings(words, 300, 3, rng=rng)
    return Sessions(rankings, (rng.random(rankings.pair.shape) < 0.3) & rankings.shown, rng.integers(1, 4, 300))
