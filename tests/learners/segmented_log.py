"""Logs of users whose examination differs by device, with the same attractiveness."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clickshift.data.segments import Segment
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import Vocabulary

RANKS = np.arange(1, 7)
FLAT, STEEP = 1 / RANKS**0.3, 0.95 / RANKS**1.2
"""Examination on desktops and on phones."""


def segmented_log(
    curves: Sequence[np.ndarray] = (FLAT, STEEP),
    sessions: int = 6000,
    *,
    seed: int = 0,
    shares: Sequence[float] = (0.4, 0.6),
    unknown: float = 0.0,
    queries: int = 30,
) -> tuple[Sessions, np.ndarray]:
    """A log of position-based users on desktops and phones, and the attractiveness of its pairs."""
    rng, docs = np.random.default_rng(seed), 10
    vocabulary, _, _ = Vocabulary.of(np.repeat(np.arange(queries), docs), np.tile(np.arange(docs), queries))
    attractiveness = rng.beta(1.5, 3, (queries, docs))
    query = rng.integers(0, queries, sessions)
    score = np.log(attractiveness)[query] + rng.gumbel(size=(sessions, docs))
    doc = np.argsort(-score, axis=1)[:, : len(curves[0])]
    device = rng.choice(len(shares), sessions, p=shares)
    click = rng.random(doc.shape) < attractiveness[query[:, None], doc] * np.stack(curves)[device]
    labels = ("desktop", "phone", "tablet", "tv")[: len(shares)]
    code = np.where(rng.random(sessions) < unknown, -1, device)
    pair = (query[:, None] * docs + doc).astype(np.int32)
    rankings = Rankings(vocabulary, query.astype(np.int32), pair, segments={"device": Segment(labels, code)})
    return Sessions(rankings, click), attractiveness.ravel()
