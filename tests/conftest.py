"""Fixtures that many tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import settings

from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.display import export
from tests.cli.shell import pictures_without_a_browser

pytest_plugins = ["tests.suite"]

settings.register_profile("clickshift", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("clickshift")


@pytest.fixture(autouse=True, scope="session")
def own_cache_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tests neither find nor leave anything in the user's cache; the workers of a run share one."""
    base = tmp_path_factory.getbasetemp()
    os.environ["CLICKSHIFT_CACHE"] = str((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache")


_draw = export.draw


@pytest.fixture(autouse=True, scope="session")
def no_browser_is_started() -> Iterator[None]:
    """Reports that tests write have pictures that were not drawn; `real_pictures` is for tests of the drawing."""
    with pytest.MonkeyPatch.context() as patch:
        pictures_without_a_browser(patch)
        yield


@pytest.fixture
def real_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are drawn by a browser, or refused without one."""
    monkeypatch.setattr(export, "draw", _draw)


@pytest.fixture(autouse=True)
def pictures_of_browser_tests(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("browser"):
        request.getfixturevalue("real_pictures")


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
