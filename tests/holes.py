"""Logs whose lists have holes, made of logs without."""

from __future__ import annotations

import numpy as np

from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import UNSEEN


def lists_with_holes(lists: Rankings, rng: np.random.Generator, *, share: float = 0.25) -> Rankings:
    """The lists with holes in place of a share of their results, but not of the last one of a list."""
    kept = rng.random(lists.pair.shape) >= share
    kept |= np.arange(lists.n_ranks) == lists.length[:, None] - 1
    shown = lists.shown & kept
    return Rankings(lists.vocabulary, lists.query, np.where(shown, lists.pair, np.int32(UNSEEN)), shown)


def log_with_holes(log: Sessions, rng: np.random.Generator, *, share: float = 0.25) -> Sessions:
    """The log with such lists, without the clicks on what is a hole now."""
    lists = lists_with_holes(log.rankings, rng, share=share)
    return Sessions(lists, log.click & lists.shown, log.count, log.time, log.user)
