"""What a log alone says about its ranker, on a log that can be counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from clickshift import Rankings, Sessions, Vocabulary
from clickshift.metrics.log_comparison import logged_exposure, logged_rank


@pytest.fixture
def log() -> Sessions:
    """Documents a, b, c of one query: a b (clicked: a) twice, b a (clicked: b, a), a c (no click); d is never shown."""
    words, _, _ = Vocabulary.of(["q"] * 4, ["a", "b", "c", "d"])
    lists = Rankings(words, np.zeros(3, np.int32), np.array([[0, 1], [1, 0], [0, 2]]))
    return Sessions(lists, np.array([[True, False], [True, True], [False, False]]), count=np.array([2, 1, 1]))


def test_mean_rank(log: Sessions) -> None:
    np.testing.assert_allclose(logged_rank(log), [-1 / 4, -2 / 3, -1, np.nan])


def test_exposure(log: Sessions) -> None:
    attention = 1 / 3  # rank 1 is clicked in 3 of 4 sessions, rank 2 in 1 of 4
    np.testing.assert_allclose(logged_exposure(log), [(3 + attention) / 4, (1 + 2 * attention) / 4, attention / 4, 0.0])
