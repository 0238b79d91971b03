"""Policies that rank by a score: a feature, the labels, the labels with noise, given scores, or no score at all.

Used directly, such a policy sorts by score and breaks ties at random; `PlackettLuce` randomises its rankings.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, final

import numpy as np
from jaxtyping import Float, UInt64
from typing_extensions import override

from clickshift.core.splitmix import GOLDEN, mix
from clickshift.data.corpus import Corpus
from clickshift.data.vocabulary import UNSEEN, Ids, Vocabulary
from clickshift.errors import CapabilityError, DataError, SpecError
from clickshift.policies.base import Number, ScoredPolicy
from clickshift.policies.plackett_luce import PlackettLuceRankings, check_one_per_pair

Scale = Literal["gain", "label"]
"""Scale of the true relevance: "gain" is (2^label - 1) / (2^max_label - 1), from 0 to 1; "label" is the grade."""


class Scored(ABC):
    """Base class of policies that sort by a score and shuffle equal scores in every session.

    Subclasses implement `scores`.
    """

    @abstractmethod
    def scores(self, corpus: Corpus) -> Float[np.ndarray, " pair"]:
        """Return the score of every candidate; higher scores are ranked first."""

    @final
    def on(self, corpus: Corpus) -> PlackettLuceRankings:
        """Return the distribution over rankings sorted by score, with ties in random order."""
        return PlackettLuceRankings(corpus.vocabulary, self.scores(corpus), temperature=0.0)


@final
@dataclass(frozen=True)
class Uniform(Scored):
    """Uniformly random policy: all orders are equally likely, independently in every session.

    Examples
    --------
    >>> import clickshift as cs
    >>> vocabulary, _, _ = cs.Vocabulary.of(["shoes"] * 3, ["a", "b", "c"])
    >>> corpus = cs.Corpus(vocabulary, np.array([0, 2, 1]))
    >>> Uniform().on(corpus).placement(ranks=2).round(2).tolist()
    [[0.33, 0.33], [0.33, 0.33], [0.33, 0.33]]
    """

    @override
    def scores(self, corpus: Corpus) -> Float[np.ndarray, " pair"]:
        return np.zeros(corpus.n_pairs)


@dataclass(frozen=True)
class Feature(Scored):
    """Policy that ranks by one feature of the corpus.

    Parameters
    ----------
    number
        Feature number, from 1 as in the file.
    rescale
        Whether to map the feature to [0, 1] within each query.

    Examples
    --------
    >>> import clickshift as cs
    >>> vocabulary, _, _ = cs.Vocabulary.of(["shoes"] * 3, ["a", "b", "c"])
    >>> features = np.array([[0.0, 5.0], [0.0, 1.0], [0.0, 3.0]], np.float32)
    >>> Feature(2).scores(cs.Corpus(vocabulary, np.array([0, 2, 1]), features)).tolist()
    [1.0, 0.0, 0.5]
    """

    number: int = 110
    rescale: bool = True

    @override
    def scores(self, corpus: Corpus) -> Float[np.ndarray, " pair"]:
        score = corpus.feature(self.number).astype(np.float64)
        return min_max_scaled(corpus, score) if self.rescale else score


@final
@dataclass(frozen=True)
class BM25(Feature):
    """Production ranker of the policy-shift paper: feature 110 of MSLR, the BM25 score of the whole document.

    Parameters
    ----------
    number
        Feature number, from 1 as in the file.
    rescale
        Whether to map the feature to [0, 1] within each query.

    References
    ----------
    Deffayet, R., Renders, J.-M., de Rijke, M. (2022). Evaluating the robustness of click models to policy
    distributional shift. ACM TOIS.

    Examples
    --------
    >>> import clickshift as cs
    >>> BM25().scores(cs.builtin_corpus(2)).max().item()
    1.0
    """


@final
@dataclass(frozen=True)
class Oracle(Scored):
    """Policy that ranks by the true labels.

    Parameters
    ----------
    scale
        Scale of the scores: "gain" for (2^label - 1) / (2^max_label - 1), "label" for the grade.

    Examples
    --------
    >>> import clickshift as cs
    >>> vocabulary, _, _ = cs.Vocabulary.of(["shoes"] * 3, ["a", "b", "c"])
    >>> corpus = cs.Corpus(vocabulary, np.array([0, 2, 1]))
    >>> Oracle(scale="label").scores(corpus).tolist()
    [0.0, 2.0, 1.0]
    """

    scale: Scale = "gain"

    @override
    def scores(self, corpus: Corpus) -> Float[np.ndarray, " pair"]:
        return _true_relevance(corpus, self.scale)


@final
@dataclass(frozen=True)
class NoisyOracle(Scored):
    """Policy that ranks by the true labels plus Gaussian noise, drawn once per (query, document) pair.

    On the gain scale the sum is clipped to [0, 1] (policy-shift paper: sd .15); on the label scale it is not (CMIP
    paper: sd .5). The papers call `sd` a variance, but their code multiplies it by a standard normal draw.

    Parameters
    ----------
    sd
        Standard deviation of the noise.
    scale
        Scale of the scores: "gain" for (2^label - 1) / (2^max_label - 1), "label" for the grade.
    seed
        Random seed of the noise.

    Raises
    ------
    SpecError
        "bad-option" if `sd` is negative.

    Examples
    --------
    >>> import clickshift as cs
    >>> vocabulary, _, _ = cs.Vocabulary.of(["shoes"] * 3, ["a", "b", "c"])
    >>> corpus = cs.Corpus(vocabulary, np.array([0, 2, 1]))
    >>> NoisyOracle(sd=0.0, scale="label").scores(corpus).tolist()
    [0.0, 2.0, 1.0]
    """

    sd: Number = 0.15
    scale: Scale = "gain"
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.sd >= 0:
            raise SpecError(
                f"sd is a standard deviation, 0 or above: got {self.sd}.", code="bad-option", option="sd", value=self.sd
            )

    @override
    def scores(self, corpus: Corpus) -> Float[np.ndarray, " pair"]:
        score: np.ndarray = _true_relevance(corpus, self.scale) + self.sd * _pair_noise(corpus.vocabulary, self.seed)
        return np.clip(score, 0, 1) if self.scale == "gain" else score


@final
@dataclass(frozen=True)
class Reversed(Scored):
    """Policy that ranks by minus the scores of another policy, worst document first.

    Parameters
    ----------
    policy
        Policy whose scores are negated.

    Raises
    ------
    CapabilityError
        "no-scores" if the policy does not rank by a score.

    Examples
    --------
    >>> import clickshift as cs
    >>> vocabulary, _, _ = cs.Vocabulary.of(["shoes"] * 3, ["a", "b", "c"])
    >>> corpus = cs.Corpus(vocabulary, np.array([0, 2, 1]))
    >>> Reversed(Oracle(scale="label")).on(corpus).placement(ranks=3).tolist()  # worst document first
    [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
    """

    policy: ScoredPolicy

    def __post_init__(self) -> None:
        if not callable(getattr(self.policy, "scores", None)):
            raise CapabilityError(
                f"Reversed needs a policy with scores: {self.policy!r} has none. "
                "Reverse the scores first: PlackettLuce(Reversed(Oracle)).",
                code="no-scores",
            )

    @override
    def scores(self, corpus: Corpus) -> Float[np.ndarray, " pair"]:
        return -self.policy.scores(corpus)


@final
@dataclass(frozen=True, eq=False)
class Scores(Scored):
    """Policy that ranks by given scores, e.g. those computed on a larger corpus or by a click model.

    A corpus may hold fewer pairs than the vocabulary: each pair keeps its score, which would not hold for a policy that
    rescales within each query.

    Parameters
    ----------
    vocabulary
        Vocabulary of the scored pairs.
    score
        Score of each pair.

    Raises
    ------
    DataError
        "wrong-shape" if there is not one score per pair; "missing-score" if a corpus has a candidate without a score.

    Examples
    --------
    >>> import clickshift as cs
    >>> vocabulary, _, _ = cs.Vocabulary.of(["shoes"] * 3, ["a", "b", "c"])
    >>> corpus = cs.Corpus(vocabulary, np.array([0, 2, 1]))
    >>> Scores(vocabulary, np.array([0.5, 0.1, 0.9])).on(corpus).placement(ranks=1).ravel().tolist()
    [0.0, 0.0, 1.0]
    """

    vocabulary: Vocabulary
    score: Float[np.ndarray, " pair"]

    def __post_init__(self) -> None:
        check_one_per_pair(self.vocabulary, self.score)

    @override
    def scores(self, corpus: Corpus) -> Float[np.ndarray, " candidate"]:
        vocabulary = corpus.vocabulary
        pair = self.vocabulary.pairs_of(vocabulary)
        missing = np.flatnonzero(pair == UNSEEN)
        if len(missing):
            first = missing[0]
            document = vocabulary.doc_ids[vocabulary.pair_doc[first]]
            query = vocabulary.query_ids[vocabulary.pair_query[first]]
            raise DataError(
                f"there must be a score for every candidate: {len(missing):,} have none, e.g. document "
                f"{document} of query {query}. Score them, or leave them out of the corpus.",
                code="missing-score",
                count=len(missing),
                document=document,
                query=query,
            )
        score: np.ndarray = self.score[pair]
        return score


def min_max_scaled(corpus: Corpus, score: Float[np.ndarray, " pair"]) -> Float[np.ndarray, " pair"]:
    """Rescale each query's scores to run from 0 (its lowest) to 1 (its highest); .5 where all are equal.

    Parameters
    ----------
    corpus
        Corpus of the scored candidates.
    score
        Score of each candidate.
    """
    starts, query = corpus.offsets[:-1], corpus.vocabulary.pair_query
    low, high = np.minimum.reduceat(score, starts)[query], np.maximum.reduceat(score, starts)[query]
    varied = high > low
    return np.where(varied, (score - low) / np.where(varied, high - low, 1), 0.5)


def _true_relevance(corpus: Corpus, scale: Scale) -> Float[np.ndarray, " pair"]:
    """Return the labels of the corpus on the given scale."""
    if scale not in {"gain", "label"}:
        raise SpecError(
            f"scale must be 'gain' or 'label': got {scale!r}.", code="bad-option", option="scale", value=scale
        )
    return corpus.gain if scale == "gain" else corpus.label.astype(np.float64)


def _pair_noise(vocabulary: Vocabulary, seed: int) -> Float[np.ndarray, " pair"]:
    """Return one standard normal number per pair, a function of the seed and of its raw ids only.

    A document therefore keeps its noise when the corpus is cut down, e.g. to the documents that a log has shown.
    """
    from scipy.special import ndtri

    start = _mix(np.array([seed % 2**64], np.uint64))
    query = _mix(_hash(vocabulary.query_ids) ^ start)[vocabulary.pair_query]
    bits = _mix(query + _hash(vocabulary.doc_ids)[vocabulary.pair_doc])
    normal: np.ndarray = ndtri(((bits >> np.uint64(11)) + 0.5) * 2.0**-53)
    return normal


def _hash(ids: Ids) -> UInt64[np.ndarray, " id"]:
    """Hash each id to 64 bits; integers hash as their decimal text, so the type in the file does not matter."""
    text = np.array(ids.tolist(), np.str_)
    letters = text.view(np.uint32).reshape(len(text), -1)
    bits = np.zeros(len(text), np.uint64)
    for column in letters.T:  # over letters, not ids; the padding after a short id is skipped
        bits = np.where(column > 0, _mix(bits ^ column), bits)
    return bits


def _mix(bits: UInt64[np.ndarray, " n"]) -> UInt64[np.ndarray, " n"]:
    """Mix the bits of each number, as splitmix64 does."""
    mixed: np.ndarray = mix.py_func(bits + GOLDEN)
    return mixed
