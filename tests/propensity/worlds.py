"""Small worlds with a planted examination curve, for tests of propensities."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clickshift.counts.cells import Cells
from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.models.base import pair_table
from clickshift.models.pbm import PBM
from clickshift.policies.basic import Feature
from clickshift.simulation.simulate import simulate

PLANTED = (1.0, 0.6, 0.45, 0.2)
"""Examination by rank."""
RANKS = len(PLANTED)


def world(queries: int, seed: int, *, docs: int = 6) -> Corpus:
    """Features: the grade, three noisy views of it that rankers may use, and noise."""
    rng = np.random.default_rng(seed)
    words = Vocabulary.of(np.repeat(np.arange(queries), docs), np.arange(queries * docs))[0]
    grade = rng.integers(0, 5, queries * docs)
    views = [grade + rng.normal(size=len(grade)) * sd for sd in (0, 1.0, 1.5, 2.0)]
    return Corpus(words, grade, np.stack([*views, rng.normal(size=len(grade))], axis=1))


def users(corpus: Corpus) -> PBM:
    """Attractiveness .06 to .6 by grade, examination as planted."""
    return PBM(corpus.vocabulary, pair_table(0.06 + 0.54 * corpus.gain, unseen=0.06), np.array(PLANTED))


def clicks(corpus: Corpus, sessions: int, seed: int, *, rankers: Sequence[int] = (2, 3, 4)) -> Sessions:
    """The log of rankers that order by one feature each."""
    rng = np.random.default_rng(seed)
    parts = [
        simulate(corpus, Feature(number), users(corpus), sessions // len(rankers), ranks=RANKS, rng=rng)
        for number in rankers
    ]
    return Sessions.concat(parts)


def swapped_clicks(corpus: Corpus, sessions: int, seed: int) -> tuple[Sessions, np.ndarray]:
    """One ranker whose first result changes places with a random rank (from 0; 0 for none), and that rank."""
    rng = np.random.default_rng(seed)
    ranked = simulate(corpus, Feature(2), users(corpus), sessions, ranks=RANKS, rng=rng).rankings
    rank, row, pair = rng.integers(0, RANKS, sessions), np.arange(sessions), ranked.pair.copy()
    pair[row, 0], pair[row, rank] = ranked.pair[row, rank], ranked.pair[row, 0]
    return users(corpus).sample(Rankings(corpus.vocabulary, ranked.query, pair), rng=rng), rank


def expected(corpus: Corpus, log: Sessions) -> Cells:
    """The log's counts with as many clicks as are expected, not as many as chance gave."""
    cells = Cells.of(log)
    prob = users(corpus).attractiveness[cells.pair] * np.array(PLANTED)[cells.situation]
    return Cells(
        cells.vocabulary,
        cells.n_ranks,
        "rank",
        cells.pair,
        cells.situation,
        cells.impressions,
        cells.impressions * prob,
    )
