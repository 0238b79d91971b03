"""Policies that rank by a score: a feature, the labels, the labels with noise, or nothing at all.

Each is a policy by itself, which sorts by score with ties in random order; `PlackettLuce` adds randomness to it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, final

import numpy as np
from jaxtyping import Float, UInt64
from typing_extensions import override

from clickshift.data.corpus import Corpus
from clickshift.data.vocabulary import UNSEEN, Ids, Vocabulary
from clickshift.errors import CapabilityError, DataError, SpecError
from clickshift.policies.base import Number, ScoredPolicy
from clickshift.policies.plackett_luce import PlackettLuceRankings

Scale = Literal["gain", "label"]
"""gain: (2^label - 1) / (2^max_label - 1), from 0 to 1; label: the grade itself."""


class Scored(ABC):
    """Subclasses write `scores`. Lists are sorted by score; equal scores are shuffled anew in every session."""

    @abstractmethod
    def scores(self, corpus: Corpus) -> Float[np.ndarray, " pair"]:
        """The higher, the better."""

    @final
    def on(self, corpus: Corpus) -> PlackettLuceRankings:
        return PlackettLuceRankings(corpus.vocabulary, self.scores(corpus), temperature=0.0)


@final
@dataclass(frozen=True)
class Uniform(Scored):
    """All orders are equally likely, and every session gets its own."""

    @override
    def scores(self, corpus: Corpus) -> Float[np.ndarray, " pair"]:
        return np.zeros(corpus.n_pairs)


@dataclass(frozen=True)
class Feature(Scored):
    """Rank by one feature, numbered from 1 as in the file; `rescale` maps it to [0, 1] within each query."""

    number: int = 110
    rescale: bool = True

    @override
    def scores(self, corpus: Corpus) -> Float[np.ndarray, " pair"]:
        score = corpus.feature(self.number).astype(np.float64)
        return min_max_scaled(corpus, score) if self.rescale else score


@final
@dataclass(frozen=True)
class BM25(Feature):
    """The production ranker of the policy-shift paper: feature 110 of MSLR, BM25 of the whole document."""


@final
@dataclass(frozen=True)
class Oracle(Scored):
    """Rank by the true labels."""

    scale: Scale = "gain"

    @override
    def scores(self, corpus: Corpus) -> Float[np.ndarray, " pair"]:
        return _truth(corpus, self.scale)


@final
@dataclass(frozen=True)
class NoisyOracle(Scored):
    """Rank by the true labels plus Gaussian noise, one draw per (query, document), whatever the session.

    `sd` is a standard deviation: the papers call it a variance, but their code multiplies it with a normal draw. On the
    gain scale the sum is clipped to [0, 1] (policy shift: sd .15); on the label scale it is not (CMIP: sd .5).
    """

    sd: Number = 0.15
    scale: Scale = "gain"
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.sd >= 0:
            raise SpecError(f"sd is a standard deviation, 0 or above: got {self.sd}.")

    @override
    def scores(self, corpus: Corpus) -> Float[np.ndarray, " pair"]:
        score: np.ndarray = _truth(corpus, self.scale) + self.sd * _pair_noise(corpus.vocabulary, self.seed)
        return np.clip(score, 0, 1) if self.scale == "gain" else score


@final
@dataclass(frozen=True)
class Reversed(Scored):
    """The worst first: minus the scores of another policy."""

    policy: ScoredPolicy

    def __post_init__(self) -> None:
        if not callable(getattr(self.policy, "scores", None)):
            raise CapabilityError(
                f"Reversed needs a policy with scores: {self.policy!r} has none. "
                "Reverse the scores first: PlackettLuce(Reversed(Oracle))."
            )

    @override
    def scores(self, corpus: Corpus) -> Float[np.ndarray, " pair"]:
        return -self.policy.scores(corpus)


@final
@dataclass(frozen=True, eq=False)
class Scores(Scored):
    """Rank by scores found elsewhere, e.g. on a larger corpus or by a click model: one per pair of that vocabulary.

    A corpus may hold fewer pairs: each keeps its score, where a policy that rescales would not.
    """

    vocabulary: Vocabulary
    score: Float[np.ndarray, " pair"]

    def __post_init__(self) -> None:
        if self.score.shape != (self.vocabulary.n_pairs,):
            raise DataError(f"there must be one score per pair, {self.vocabulary.n_pairs}: got {self.score.shape}.")

    @override
    def scores(self, corpus: Corpus) -> Float[np.ndarray, " candidate"]:
        place = self.vocabulary.pairs_of(corpus.vocabulary)
        missing = np.flatnonzero(place == UNSEEN)
        if len(missing):
            words, pair = corpus.vocabulary, missing[0]
            raise DataError(
                f"there must be a score for every candidate: {len(missing):,} have none, e.g. document "
                f"{words.doc_ids[words.pair_doc[pair]]} of query {words.query_ids[words.pair_query[pair]]}. "
                "Score them, or leave them out of the corpus."
            )
        score: np.ndarray = self.score[place]
        return score


def min_max_scaled(corpus: Corpus, score: Float[np.ndarray, " pair"]) -> Float[np.ndarray, " pair"]:
    """Each query's scores from 0 (its lowest) to 1 (its highest); .5 where all are equal."""
    starts, query = corpus.offsets[:-1], corpus.vocabulary.pair_query
    low, high = np.minimum.reduceat(score, starts)[query], np.maximum.reduceat(score, starts)[query]
    varied = high > low
    return np.where(varied, (score - low) / np.where(varied, high - low, 1), 0.5)


def _truth(corpus: Corpus, scale: Scale) -> Float[np.ndarray, " pair"]:
    if scale not in {"gain", "label"}:
        raise SpecError(f"scale must be 'gain' or 'label': got {scale!r}.")
    return corpus.gain if scale == "gain" else corpus.label.astype(np.float64)


def _pair_noise(vocabulary: Vocabulary, seed: int) -> Float[np.ndarray, " pair"]:
    """A standard normal number per pair, a function of the seed and of its raw ids alone.

    So a document keeps its noise when the corpus is cut down, e.g. to the documents that a log has shown.
    """
    from scipy.special import ndtri

    start = _mix(np.array([seed % 2**64], np.uint64))
    query = _mix(_hash(vocabulary.query_ids) ^ start)[vocabulary.pair_query]
    bits = _mix(query + _hash(vocabulary.doc_ids)[vocabulary.pair_doc])
    normal: np.ndarray = ndtri(((bits >> np.uint64(11)) + 0.5) * 2.0**-53)
    return normal


def _hash(ids: Ids) -> UInt64[np.ndarray, " id"]:
    """64 bits per id. Integers hash as their decimal text, so it does not matter how a file was read."""
    text = np.array(ids.tolist(), np.str_)
    letters = text.view(np.uint32).reshape(len(text), -1)
    bits = np.zeros(len(text), np.uint64)
    for column in letters.T:  # over letters, not ids; the padding after a short id is skipped
        bits = np.where(column > 0, _mix(bits ^ column), bits)
    return bits


def _mix(bits: UInt64[np.ndarray, " n"]) -> UInt64[np.ndarray, " n"]:
    """splitmix64: a bijection after which every bit depends on every bit."""
    bits = bits + np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = bits ^ (bits >> np.uint64(31))
    return mixed
