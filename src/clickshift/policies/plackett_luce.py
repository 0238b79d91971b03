"""Plackett-Luce policy: rankings sampled by score at a temperature, including the limit 0."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, final

import numpy as np
from jaxtyping import Float, Int
from typing_extensions import override

from clickshift.core.parallel import for_ranges
from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Rankings
from clickshift.data.vocabulary import UNSEEN, Vocabulary
from clickshift.errors import CapabilityError, DataError, SpecError
from clickshift.policies._plackett_luce_marginals import fill_placements
from clickshift.policies._plackett_luce_sampling import TieredOrder, draw_lists, log_prob_of_lists
from clickshift.policies.base import Number, RankingDistribution, ScoredPolicy, checked_queries

_LOG_OFFSET = 0.01
_MAX_LOG_RANGE = 1e9
"""Largest range of score / temperature: beyond it a float has no digits left for the randomness of ties."""


@final
@dataclass(frozen=True)
class PlackettLuce:
    """Policy that fills each rank with one of the remaining documents, with probability proportional to its weight.

    At temperature 0 lists are sorted by score, with equal scores in random order.

    Parameters
    ----------
    policy
        Policy that provides the scores.
    temperature
        Temperature: 0 is deterministic but for ties, infinity is uniform.
    scores
        "raw" weighs exp(score / temperature), as the CMIP paper's code does. "log" weighs
        (score + .01)^(1 / temperature), as the policy-shift paper's code does, which sorts
        log(score + .01) + temperature x Gumbel noise.

    Raises
    ------
    CapabilityError
        "no-scores" if the policy does not rank by a score.
    SpecError
        "bad-option" if an option is out of range.

    References
    ----------
    Plackett, R. L. (1975). The analysis of permutations. Applied Statistics.

    Examples
    --------
    >>> import clickshift as cs
    >>> vocabulary, _, _ = cs.Vocabulary.of(["shoes"] * 3, ["a", "b", "c"])
    >>> corpus = cs.Corpus(vocabulary, np.array([0, 2, 1]))
    >>> PlackettLuce(cs.Oracle(scale="label"), temperature=1.0).on(corpus).placement(ranks=1).ravel().round(3).tolist()
    [0.09, 0.665, 0.245]
    """

    policy: ScoredPolicy
    temperature: Number = 1.0
    scores: Literal["raw", "log"] = "raw"

    def __post_init__(self) -> None:
        if not callable(getattr(self.policy, "scores", None)):
            raise CapabilityError(
                f"PlackettLuce needs a policy with scores, such as Oracle or LambdaMART: {self.policy!r} has none.",
                code="no-scores",
            )
        if self.scores not in {"raw", "log"}:
            raise SpecError(
                f"scores must be 'raw' or 'log': got {self.scores!r}.",
                code="bad-option",
                option="scores",
                value=self.scores,
            )
        if not 0 <= self.temperature < math.inf:
            raise SpecError(
                f"temperature must be 0 or above: got {self.temperature}.",
                code="bad-option",
                option="temperature",
                value=self.temperature,
            )

    def on(self, corpus: Corpus) -> PlackettLuceRankings:
        """Return the distribution over rankings of the corpus' candidates.

        Raises
        ------
        DataError
            "score-out-of-range" if `scores` is "log" and a score is too low for a logarithm.
        """
        score = self.policy.scores(corpus)
        if self.scores == "log":
            if (score <= -_LOG_OFFSET).any():
                raise DataError(
                    f"scores='log' takes the logarithm of score + {_LOG_OFFSET}: {self.policy!r} gives "
                    f"{score.min():.4g}. Rescale its scores to [0, 1], or use scores='raw'.",
                    code="score-out-of-range",
                    value=float(score.min()),
                )
            score = np.log(score + _LOG_OFFSET)
        return PlackettLuceRankings(corpus.vocabulary, score, self.temperature)


@final
@dataclass(frozen=True, eq=False)
class PlackettLuceRankings(RankingDistribution):
    """Plackett-Luce distribution: the next document is i with probability proportional to exp(score_i / temperature).

    The probabilities are normalised over the documents that are not ranked yet.

    Parameters
    ----------
    vocabulary
        Vocabulary of the candidates.
    score
        Score of each pair.
    temperature
        Temperature; at 0 lists are sorted by score, with ties in random order.

    Raises
    ------
    DataError
        "wrong-shape" if there is not one score per pair; "not-finite" if a score is not a finite number.
    SpecError
        "bad-option", on first use, if the temperature is too small for the range of the scores.
    """

    vocabulary: Vocabulary
    score: Float[np.ndarray, " pair"]
    temperature: Number = 1.0

    def __post_init__(self) -> None:
        check_one_per_pair(self.vocabulary, self.score)
        bad = ~np.isfinite(self.score)
        if bad.any():
            query = self.vocabulary.query_ids[self.vocabulary.pair_query[bad][0]]
            raise DataError(
                f"a score must be a finite number: got {self.score[bad][0]} for a document of query {query}. "
                "Fix the feature or the policy that gave it.",
                code="not-finite",
                count=int(bad.sum()),
                query=query,
            )

    @override
    def draw(
        self, query: Int[np.ndarray, " session"], *, ranks: int, key: int, first: int = 0
    ) -> tuple[Int[np.ndarray, "session rank"], Float[np.ndarray, " session"]]:
        query = checked_queries(self.vocabulary, query, ranks)
        pair, log_prob = np.full((len(query), ranks), UNSEEN, np.int32), np.zeros(len(query))
        draw_lists(query, key, first, self.order, pair, log_prob)
        return pair, log_prob

    @override
    def log_prob(self, rankings: Rankings) -> Float[np.ndarray, " session"]:
        translated = rankings.in_vocabulary(self.vocabulary)
        query, pair, length = (
            np.ascontiguousarray(part, np.int32) for part in (translated.query, translated.pair, translated.length)
        )
        log_prob = np.zeros(len(translated))

        def block(rows: slice) -> None:
            log_prob_of_lists(query[rows], pair[rows], length[rows], self.order, log_prob[rows])

        for_ranges(block, len(translated))
        return log_prob

    @override
    def placement(
        self, query: Int[np.ndarray, " query"] | None = None, *, ranks: int = 10
    ) -> Float[np.ndarray, "pair rank"]:
        wanted = np.arange(self.vocabulary.n_queries) if query is None else np.unique(query)
        wanted = checked_queries(self.vocabulary, wanted, ranks)
        prob = np.zeros((self.vocabulary.n_pairs, ranks))
        for_ranges(lambda rows: fill_placements(wanted[rows], self.order, 1.0, prob), len(wanted), chunk=16)
        return prob

    @cached_property
    def order(self) -> TieredOrder:
        """All candidates in descending order of score within their query, with their weights."""
        offset, pair_query = self.vocabulary.query_offsets, self.vocabulary.pair_query
        pair = np.lexsort((-self.score, pair_query))
        score, places = self.score[pair].astype(np.float64), np.arange(len(pair))
        starts_tier = np.r_[True, pair_query[1:] != pair_query[:-1]]  # pairs, and so places, are sorted by query
        if self.temperature == 0:
            starts_tier[1:] |= score[1:] != score[:-1]
        start = np.flatnonzero(starts_tier)
        tier = np.cumsum(starts_tier) - 1
        log_weight = score - score[start[tier]]
        if log_weight.min() < -_MAX_LOG_RANGE * self.temperature:
            raise SpecError(
                f"temperature {self.temperature} is too small for scores that differ by {-log_weight.min():.4g}: "
                "use temperature=0, its limit.",
                code="bad-option",
                option="temperature",
                value=self.temperature,
            )
        if self.temperature > 0:
            log_weight /= self.temperature
        place_of = np.empty(len(pair), np.int32)
        place_of[pair] = places
        tier_end = np.append(start[1:], len(pair))[tier]
        return TieredOrder(offset, pair.astype(np.int32), place_of, tier_end, log_weight, np.exp(log_weight))


def check_one_per_pair(vocabulary: Vocabulary, score: np.ndarray) -> None:
    """Check that there is one score per pair.

    Raises
    ------
    DataError
        "wrong-shape" if there is not.
    """
    if score.shape != (vocabulary.n_pairs,):
        raise DataError(
            f"there must be one score per pair, {vocabulary.n_pairs}: got shape {score.shape}.",
            code="wrong-shape",
            expected=vocabulary.n_pairs,
            shape=score.shape,
        )
