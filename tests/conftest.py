"""Fixtures that many tests share."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from clickshift.corpus import Corpus
from clickshift.models import MODELS
from clickshift.models.base import ClickModel, Evidence
from clickshift.sessions import Rankings, Sessions
from clickshift.spec import resolve
from clickshift.vocabulary import Vocabulary

settings.register_profile("clickshift", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("clickshift")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data samples, which are not part of the project: $CLICKSHIFT_TEST_DATA or ../shared/data."""
    folder = Path(os.environ.get("CLICKSHIFT_TEST_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data samples at {folder}; set CLICKSHIFT_TEST_DATA to their folder")
    return folder


@pytest.fixture(autouse=True, scope="session")
def own_cache_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tests neither find nor leave anything in the user's cache."""
    os.environ["CLICKSHIFT_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20221015)


@pytest.fixture
def corpus(rng: np.random.Generator) -> Corpus:
    """Thirty queries of 3 to 9 documents, all grades, no features."""
    size = rng.integers(3, 10, 30)
    vocabulary, _, _ = Vocabulary.of(np.repeat(np.arange(30), size), np.arange(size.sum()))
    return Corpus(vocabulary, rng.integers(0, 5, size.sum()).astype(np.float32))


@pytest.fixture
def log(corpus: Corpus, rng: np.random.Generator) -> Sessions:
    """Five hundred sessions of lists of 1 to 5 documents, with clicks at random."""
    from clickshift.testing import random_rankings

    rankings = random_rankings(corpus.vocabulary, 500, 5, rng=rng)
    return Sessions(rankings, (rng.random(rankings.pair.shape) < 0.3) & rankings.shown)


def random_neural(name: str, vocabulary: Vocabulary, *, ranks: int = 5, state: int = 6, seed: int = 5) -> ClickModel:
    """A model that is usually found by gradient, with parameters at random: quicker than learning them."""
    cls, rng = resolve(name, MODELS), np.random.default_rng(seed)
    by_pair = {
        output: rng.normal(size=(vocabulary.n_pairs + 1, *([] if width == 1 else [width]))).astype(np.float32)
        for output, width in cls.outputs(state).items()
    }
    start = cls.start(ranks, state, rng)
    shared = {key: (value + rng.normal(size=value.shape)).astype(np.float32) for key, value in start.items()}
    seen = np.append(np.ones(vocabulary.n_pairs), 0.0)
    model: ClickModel = cls.found(vocabulary, by_pair, shared, Evidence(f"Gradient({name!r})", seen, seen / 2))
    return model


def rankings_of(vocabulary: Vocabulary, query: int, *pairs: int) -> Rankings:
    """One list of one query."""
    return Rankings(vocabulary, np.array([query]), np.array([pairs]))
