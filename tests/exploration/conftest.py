"""Logs and explorations that the tests of the page share."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest

import clickshift as cs
from clickshift.exploration import Exploration
from clickshift.exploration._server import PageServer
from clickshift.testing import random_rankings

HOSTILE = (
    "</script><script>window.hacked=1</script>",
    "<img src=x onerror=window.hacked=1>",
    "\"'><svg onload=window.hacked=1>",
    "{{7*7}}${7*7}\u2028\ue000data\ue001",
    "a & b <!--",
)
"""Ids that would run, or end the data, if they were written as they are."""


@contextmanager
def running(exploration: Exploration) -> Iterator[PageServer]:
    """A server in a thread, which ends with the block."""
    with PageServer(exploration) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="session")
def uneven() -> cs.Sessions:
    """Twelve hundred rows of lists of 1 to 5 documents, each of which stands for 1 to 4 sessions."""
    rng = np.random.default_rng(20261118)
    size = rng.integers(3, 10, 30)
    vocabulary, _, _ = cs.Vocabulary.of(np.repeat(np.arange(30), size), np.arange(size.sum()))
    rankings = random_rankings(vocabulary, 1200, 5, rng=rng)
    click = (rng.random(rankings.pair.shape) < 0.3) & rankings.shown
    return cs.Sessions(rankings, click, rng.integers(1, 5, 1200))


@pytest.fixture(scope="session")
def simulated() -> cs.Sessions:
    """A log whose ranker follows relevance, so that raw click rates mislead."""
    corpus = cs.builtin_corpus(queries=12)
    policy = cs.PlackettLuce(cs.Oracle(), temperature=1.0)
    return cs.simulate(corpus, policy, cs.users.DBN(), 6_000, ranks=6, rng=4)


@pytest.fixture(scope="session")
def exploration(simulated: cs.Sessions) -> Exploration:
    return cs.explore(simulated, sample=3_000)


@pytest.fixture(scope="session")
def hostile() -> cs.Sessions:
    """A log whose queries and documents have hostile ids."""
    rng = np.random.default_rng(7)
    rows = [
        {"query": query, "docs": docs, "clicks": (rng.random(len(docs)) < 0.4).astype(int).tolist()}
        for query in HOSTILE
        for docs in (list(rng.permutation(HOSTILE)) for _ in range(80))
    ]
    return cs.read_log(pd.DataFrame(rows))
