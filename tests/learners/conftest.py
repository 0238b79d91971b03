"""Fixtures of the learners' tests."""

from __future__ import annotations

import numpy as np
import pytest

from clickshift.corpus import Corpus
from clickshift.policies.plackett_luce import PlackettLuce
from clickshift.policies.scored import Oracle
from clickshift.sessions import Sessions
from clickshift.simulation import simulate
from clickshift.users import DBN as DBNUser
from clickshift.vocabulary import Vocabulary


@pytest.fixture(scope="module")
def world() -> tuple[Corpus, Sessions]:
    """Eight queries of six documents with features, and 30,000 sessions of DBN users on lists of four."""
    rng = np.random.default_rng(3)
    words = Vocabulary.of(np.repeat(np.arange(8), 6), np.arange(48))[0]
    label = rng.integers(0, 5, 48).astype(np.float32)
    features = np.stack([label + rng.normal(size=48), rng.normal(size=48) ** 2], axis=1).astype(np.float32)
    corpus = Corpus(words, label, features)
    return corpus, simulate(corpus, PlackettLuce(Oracle(), temperature=2.0), DBNUser(), 30_000, ranks=4, rng=1)
