"""How well scores rank documents that people judged: nDCG, recall, reciprocal rank, average rank of the relevant.

Only judged documents are ranked: the others are taken out of the list before it is judged. Every metric has one value
per query, and means over queries do not weight them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from jaxtyping import Bool, Float, Int

from clickshift.core.rng import as_generator
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import DataError

CUTOFFS = (1, 3, 5, 10)


@final
@dataclass(frozen=True, eq=False)
class JudgedPairs:
    """Judged (query, document) pairs of a vocabulary, reduced to those on which rankings can differ.

    >>> words, _, _ = Vocabulary.of([1, 1, 1, 2, 2], [10, 20, 30, 10, 20])
    >>> JudgedPairs.of(words, np.array([0.0, 2.0, np.nan, 1.0, 1.0]))
    JudgedPairs(2 documents of 1 queries; dropped: 0 documents never shown, 1 queries of equal labels)
    """

    vocabulary: Vocabulary
    label: np.ndarray
    """Float[pair]: NaN where a pair is not judged or was dropped."""
    never_shown: int = 0
    """Judged documents dropped because they were never shown."""
    equal_queries: int = 0
    """Queries dropped because their remaining labels are all equal, those with a single one among them. A query without
    any label left is not counted here."""

    def __post_init__(self) -> None:
        label = np.asarray(self.label, np.float64)
        if label.shape != (self.vocabulary.n_pairs,):
            raise DataError(f"there must be one label per pair, {self.vocabulary.n_pairs}: got shape {label.shape}.")
        bad = np.isinf(label) | (label < 0)
        if bad.any():
            raise DataError(
                f"a label must be 0 or more, or NaN where there is none: got {label[bad][0]:g} for "
                f"{_pair_name(self.vocabulary, int(bad.argmax()))} ({bad.sum():,} such labels). "
                "Set it to 0 or to NaN, e.g. that of spam."
            )
        object.__setattr__(self, "label", label)

    @classmethod
    def of(
        cls,
        vocabulary: Vocabulary,
        label: Float[np.ndarray, " pair"],
        *,
        shown: Bool[np.ndarray, " pair"] | None = None,
    ) -> JudgedPairs:
        """Drop pairs that were never shown, then queries whose remaining labels are all equal.

        As in section 4.1 of the policy-shift paper: a model knows nothing of the former, and the latter cannot tell
        one ranker from another.
        """
        label = cls(vocabulary, label).label
        if shown is not None and shown.shape != label.shape:
            raise DataError(f"shown must have one entry per pair, {len(label)}: got shape {shown.shape}.")
        judged = ~np.isnan(label)
        kept = judged if shown is None else judged & shown
        pair = np.flatnonzero(kept)
        query, start = _groups(vocabulary.pair_query[pair])
        equal = np.minimum.reduceat(label[pair], start) == np.maximum.reduceat(label[pair], start)
        dropped = np.isin(vocabulary.pair_query, query[equal])
        left = np.where(kept & ~dropped, label, np.nan)
        return cls(vocabulary, left, int((judged & ~kept).sum()), int(equal.sum()))

    @property
    def queries(self) -> int:
        """How many queries are left."""
        return len(self.query)

    @property
    def documents(self) -> int:
        """How many judged documents are left, counted once per query."""
        return len(self.pair)

    @cached_property
    def pair(self) -> Int[np.ndarray, " judged"]:
        """The pair numbers that have a label, query by query."""
        return np.flatnonzero(~np.isnan(self.label))

    @cached_property
    def query(self) -> Int[np.ndarray, " judged_query"]:
        """The query numbers that have a label, ascending."""
        return _groups(self.vocabulary.pair_query[self.pair])[0]

    @cached_property
    def start(self) -> Int[np.ndarray, " judged_query"]:
        """Where the labels of each query begin in `pair`."""
        return _groups(self.vocabulary.pair_query[self.pair])[1]

    @cached_property
    def place(self) -> Int[np.ndarray, " judged"]:
        """0, 1, 2... within each query: the ranks of its judged documents once they are sorted."""
        size = np.diff(np.append(self.start, self.documents))
        place: np.ndarray = np.arange(self.documents) - np.repeat(self.start, size)
        return place

    @cached_property
    def ideal_gain(self) -> Float[np.ndarray, " judged"]:
        """Discounted gains of each query's documents in the best order."""
        label = self.label[self.pair]
        order = np.lexsort((-label, self.vocabulary.pair_query[self.pair]))
        return _discounted(label[order], self.place)

    def __repr__(self) -> str:
        return (
            f"JudgedPairs({self.documents:,} documents of {self.queries:,} queries; dropped: {self.never_shown:,} "
            f"documents never shown, {self.equal_queries:,} queries of equal labels)"
        )


@final
@dataclass(frozen=True, eq=False)
class RankingQuality:
    """Metrics of one ranker, by query."""

    queries: Int[np.ndarray, " query"]
    """The numbers of the queries that were judged."""
    per_query: Mapping[str, Float[np.ndarray, " query"]]
    """By name, "nDCG@3", "Recall@3", "MRR", "ARP"; NaN where a query has no value."""

    def means(
        self, among: Bool[np.ndarray, " vocabulary_query"] | None = None, *, missing: float | None = None
    ) -> dict[str, float]:
        """The unweighted mean of each metric over the queries that have a value, or over those `among` the queries of
        the vocabulary; NaN where there is none. With `missing`, a query without a value counts as that: 0 in the IPS
        paper."""
        rows = slice(None) if among is None else among[self.queries]
        found = {name: values[rows] for name, values in self.per_query.items()}
        if missing is not None:
            found = {name: np.where(np.isnan(values), missing, values) for name, values in found.items()}
        return {name: _mean(values) for name, values in found.items()}

    def __repr__(self) -> str:
        means = ", ".join(f"{name} {value:.4f}" for name, value in self.means().items())
        return f"RankingQuality({len(self.queries):,} queries: {means})"


def ranking_quality(
    score: Float[np.ndarray, " pair"],
    judgments: JudgedPairs,
    *,
    cutoffs: Sequence[int] = CUTOFFS,
    threshold: float = 1.0,
    graded_arp: bool = False,
    rng: int | np.random.Generator,
) -> RankingQuality:
    """Judge the ranking of each query's judged documents by descending score; equal scores in random order, by `rng`.

    `score` has one value per pair of the judgments' vocabulary. Of a model with another vocabulary it is
    `model.relevance(model.vocabulary.pairs_of(judgments.vocabulary))`. A document is relevant from the label
    `threshold` on.

    nDCG@k: sum over the first k ranks r of (2^label - 1) / log2(r + 1), over the same sum of the best order. The best
    order is that of all judged documents left in the query, cut at k.
    Recall@k: share of the relevant documents that are among the first k.
    MRR: 1 / rank of the first relevant document.
    ARP: mean rank of the relevant documents (Joachims et al. 2017), each counted once whatever its label, or with
    `graded_arp` as often as its label says; first within a query, then over queries; lower is better.
    A query without a relevant document has no recall, MRR and ARP, and does not count in their means.

    >>> words, _, _ = Vocabulary.of([1, 1, 1], [10, 20, 30])
    >>> judged = JudgedPairs.of(words, np.array([0.0, 1.0, 0.0]))
    >>> ranking_quality(np.array([0.9, 0.5, 0.1]), judged, cutoffs=(1, 3), rng=0)
    RankingQuality(1 queries: nDCG@1 0.0000, nDCG@3 0.6309, Recall@1 0.0000, Recall@3 1.0000, MRR 0.5000, ARP 2.0000)
    """
    if not cutoffs or min(cutoffs) < 1:
        raise DataError(f"cutoffs must be ranks from 1 on: got {tuple(cutoffs)}.")
    pair, place, words = judgments.pair, judgments.place, judgments.vocabulary
    by_pair = _checked_scores(score, judgments)[pair]
    order = np.lexsort((as_generator(rng).random(len(pair)), -by_pair, words.pair_query[pair]))
    label = judgments.label[pair][order]
    gain, relevant = _discounted(label, place), label >= threshold

    def total(values: np.ndarray) -> np.ndarray:
        return _sums(values, judgments.start)

    n_relevant = total(relevant)
    first = np.minimum.reduceat(np.where(relevant, place + 1.0, np.inf), judgments.start)
    with np.errstate(invalid="ignore", divide="ignore"):
        ndcg = {f"nDCG@{k}": _upto(k, gain, judgments) / _upto(k, judgments.ideal_gain, judgments) for k in cutoffs}
        recall = {f"Recall@{k}": _upto(k, relevant, judgments) / n_relevant for k in cutoffs}
        mrr = np.where(n_relevant > 0, 1 / first, np.nan)
        counted = np.where(relevant, label if graded_arp else 1.0, 0.0)
        arp = total(counted * (place + 1.0)) / total(counted)
    return RankingQuality(judgments.query, {**ndcg, **recall, "MRR": mrr, "ARP": arp})


def head_queries(impressions: Int[np.ndarray, " query"] | Float[np.ndarray, " query"]) -> Bool[np.ndarray, " query"]:
    """The most frequent queries that together make half of the traffic; the others are the tail.

    Queries are taken from the most frequent on, equally frequent ones by their number, until those taken have at least
    half of all impressions. A query without impressions is never among them.

    >>> head_queries(np.array([1, 5, 3, 1])).tolist()
    [False, True, False, False]
    """
    order = np.argsort(-impressions, kind="stable")
    before = np.cumsum(impressions[order]) - impressions[order]
    head = np.zeros(len(impressions), bool)
    head[order] = before < impressions.sum() / 2
    return head


def _discounted(label: np.ndarray, place: np.ndarray) -> np.ndarray:
    gain: np.ndarray = (np.exp2(label) - 1) / np.log2(place + 2)
    return gain


def _upto(k: int, values: np.ndarray, judgments: JudgedPairs) -> np.ndarray:
    return _sums(np.where(judgments.place < k, values, 0.0), judgments.start)


def _sums(values: np.ndarray, start: np.ndarray) -> np.ndarray:
    sums: np.ndarray = np.add.reduceat(values, start, dtype=np.float64)
    return sums


def _groups(ascending: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct values, and where each begins."""
    start = np.flatnonzero(np.diff(ascending, prepend=-1))
    return ascending[start], start


def _mean(values: np.ndarray) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


def _checked_scores(score: np.ndarray, judgments: JudgedPairs) -> np.ndarray:
    if score.shape != judgments.label.shape:
        raise DataError(f"there must be one score per pair, {len(judgments.label)}: got shape {score.shape}.")
    missing = judgments.pair[np.isnan(score[judgments.pair])]
    if len(missing):
        raise DataError(
            f"a score must be a number: got NaN for {_pair_name(judgments.vocabulary, int(missing[0]))} "
            f"({len(missing):,} such documents). Give it a score, or leave it out of the judgments."
        )
    return score


def _pair_name(words: Vocabulary, pair: int) -> str:
    return f"document {words.doc_ids[words.pair_doc[pair]]} of query {words.query_ids[words.pair_query[pair]]}"
