"""Ranking quality against judgments: nDCG, recall, mean reciprocal rank, and average rank of the relevant documents.

Only judged documents are ranked: the others are removed from the list first. Every metric has one value per query, and
means over queries are unweighted.
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
"""Default cutoffs of nDCG and recall."""


@final
@dataclass(frozen=True, eq=False)
class JudgedPairs:
    """Judged (query, document) pairs of a vocabulary, reduced to those on which rankings can differ.

    Parameters
    ----------
    vocabulary
        Vocabulary of the pairs.
    label
        Float[pair]: label of each pair, NaN where it is not judged or was dropped.
    never_shown
        Number of judged documents dropped because they were never shown.
    equal_queries
        Number of queries dropped because their remaining labels are all equal, including those with a single label. A
        query without any remaining label is not counted here.

    Raises
    ------
    DataError
        "wrong-shape" if there is not one label per pair; "label-out-of-range" if a label is negative or infinite.

    Examples
    --------
    >>> vocabulary, _, _ = Vocabulary.of([1, 1, 1, 2, 2], [10, 20, 30, 10, 20])
    >>> JudgedPairs.of(vocabulary, np.array([0.0, 2.0, np.nan, 1.0, 1.0]))
    JudgedPairs(2 documents of 1 queries; dropped: 0 documents never shown, 1 queries of equal labels)
    """

    vocabulary: Vocabulary
    label: np.ndarray
    never_shown: int = 0
    equal_queries: int = 0

    def __post_init__(self) -> None:
        label = np.asarray(self.label, np.float64)
        if label.shape != (self.vocabulary.n_pairs,):
            raise DataError(
                f"there must be one label per pair, {self.vocabulary.n_pairs}: got shape {label.shape}.",
                code="wrong-shape",
                expected=self.vocabulary.n_pairs,
                shape=label.shape,
            )
        bad = np.isinf(label) | (label < 0)
        if bad.any():
            raise DataError(
                f"a label must be 0 or more, or NaN where there is none: got {label[bad][0]:g} for "
                f"{_pair_name(self.vocabulary, int(bad.argmax()))} ({bad.sum():,} such labels). "
                "Set it to 0 or to NaN, e.g. that of spam.",
                code="label-out-of-range",
                value=float(label[bad][0]),
                count=int(bad.sum()),
                document=self.vocabulary.doc_ids[self.vocabulary.pair_doc[bad][0]],
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

        This follows section 4.1 of the policy-shift paper: a model knows nothing of the former, and the latter do not
        distinguish rankers.

        Parameters
        ----------
        vocabulary
            Vocabulary of the pairs.
        label
            Label of each pair, NaN where it is not judged.
        shown
            Whether each pair was shown; None if all were.

        Raises
        ------
        DataError
            "wrong-shape" if there is not one label, or one entry of `shown`, per pair; "label-out-of-range" if a label
            is negative or infinite.
        """
        label = cls(vocabulary, label).label
        if shown is not None and shown.shape != label.shape:
            raise DataError(
                f"shown must have one entry per pair, {len(label)}: got shape {shown.shape}.", code="wrong-shape"
            )
        judged = ~np.isnan(label)
        kept = judged if shown is None else judged & shown
        pair = np.flatnonzero(kept)
        query, start = _groups(vocabulary.pair_query[pair])
        equal = np.minimum.reduceat(label[pair], start) == np.maximum.reduceat(label[pair], start)
        dropped = np.isin(vocabulary.pair_query, query[equal])
        kept_label = np.where(kept & ~dropped, label, np.nan)
        return cls(vocabulary, kept_label, int((judged & ~kept).sum()), int(equal.sum()))

    @property
    def queries(self) -> int:
        """Number of remaining queries."""
        return len(self.query)

    @property
    def documents(self) -> int:
        """Number of remaining judged documents, counted once per query."""
        return len(self.pair)

    @cached_property
    def pair(self) -> Int[np.ndarray, " judged"]:
        """Pair numbers that have a label, query by query."""
        return np.flatnonzero(~np.isnan(self.label))

    @cached_property
    def query(self) -> Int[np.ndarray, " judged_query"]:
        """Query numbers that have a label, ascending."""
        return _groups(self.vocabulary.pair_query[self.pair])[0]

    @cached_property
    def start(self) -> Int[np.ndarray, " judged_query"]:
        """Index in `pair` of each query's first pair."""
        return _groups(self.vocabulary.pair_query[self.pair])[1]

    @cached_property
    def place(self) -> Int[np.ndarray, " judged"]:
        """0, 1, 2... within each query: the ranks of its judged documents once they are sorted."""
        size = np.diff(np.append(self.start, self.documents))
        place: np.ndarray = np.arange(self.documents) - np.repeat(self.start, size)
        return place

    @cached_property
    def ideal_gain(self) -> Float[np.ndarray, " judged"]:
        """Discounted gains of each query's documents in the ideal order."""
        label = self.label[self.pair]
        order = np.lexsort((-label, self.vocabulary.pair_query[self.pair]))
        return _discounted_gain(label[order], self.place)

    def __repr__(self) -> str:
        """Return a short text with the numbers of kept and dropped documents and queries."""
        return (
            f"JudgedPairs({self.documents:,} documents of {self.queries:,} queries; dropped: {self.never_shown:,} "
            f"documents never shown, {self.equal_queries:,} queries of equal labels)"
        )


@final
@dataclass(frozen=True, eq=False)
class RankingQuality:
    """Ranking metrics of one ranker by query.

    Parameters
    ----------
    queries
        Numbers of the judged queries.
    per_query
        Values by metric name, "nDCG@3", "Recall@3", "MRR", "ARP"; NaN where a query has no value.
    """

    queries: Int[np.ndarray, " query"]
    per_query: Mapping[str, Float[np.ndarray, " query"]]

    def means(
        self, among: Bool[np.ndarray, " vocabulary_query"] | None = None, *, missing: float | None = None
    ) -> dict[str, float]:
        """Compute the unweighted mean of each metric over the queries that have a value.

        Parameters
        ----------
        among
            Whether each query of the vocabulary counts; None for all queries.
        missing
            Value of a query without one (0 in the IPS paper); None leaves such queries out.

        Returns
        -------
        dict
            Mean by metric name; NaN where no query has a value.
        """
        rows = slice(None) if among is None else among[self.queries]
        per_query = {name: values[rows] for name, values in self.per_query.items()}
        if missing is not None:
            per_query = {name: np.where(np.isnan(values), missing, values) for name, values in per_query.items()}
        return {name: _mean(values) for name, values in per_query.items()}

    def __repr__(self) -> str:
        """Return a short text with the means."""
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
    """Evaluate the ranking of each query's judged documents by descending score.

    nDCG@k: sum over the first k ranks r of (2^label - 1) / log2(r + 1), divided by the same sum for the ideal order.
    The ideal order is that of all remaining judged documents of the query, cut at k.
    Recall@k: share of the relevant documents that are among the first k.
    MRR: 1 / rank of the first relevant document.
    ARP: mean rank of the relevant documents, within a query first, then over queries; lower is better.
    A query without a relevant document has no recall, MRR and ARP, and does not count in their means.

    Parameters
    ----------
    score
        Score of each pair of the judgments' vocabulary. For a model with another vocabulary, pass
        `model.relevance(model.vocabulary.pairs_of(judgments.vocabulary))`.
    judgments
        Judged pairs.
    cutoffs
        Cutoffs k of nDCG and recall.
    threshold
        Smallest label of a relevant document.
    graded_arp
        Whether a document counts in ARP as often as its label says, instead of once.
    rng
        Seed or random generator for tie-breaking.

    Returns
    -------
    RankingQuality
        Metrics by query.

    Raises
    ------
    DataError
        "bad-option" if a cutoff is below 1; "wrong-shape" if there is not one score per pair; "missing-score" if a
        judged document has the score NaN.

    References
    ----------
    Joachims, T., Swaminathan, A., Schnabel, T. (2017). Unbiased learning-to-rank with biased feedback. WSDM. (ARP)

    Examples
    --------
    >>> vocabulary, _, _ = Vocabulary.of([1, 1, 1], [10, 20, 30])
    >>> judged = JudgedPairs.of(vocabulary, np.array([0.0, 1.0, 0.0]))
    >>> ranking_quality(np.array([0.9, 0.5, 0.1]), judged, cutoffs=(1, 3), rng=0)
    RankingQuality(1 queries: nDCG@1 0.0000, nDCG@3 0.6309, Recall@1 0.0000, Recall@3 1.0000, MRR 0.5000, ARP 2.0000)
    """
    if not cutoffs or min(cutoffs) < 1:
        raise DataError(
            f"cutoffs must be ranks from 1 on: got {tuple(cutoffs)}.",
            code="bad-option",
            option="cutoffs",
            value=tuple(cutoffs),
        )
    pair, place, vocabulary = judgments.pair, judgments.place, judgments.vocabulary
    judged_score = _checked_scores(score, judgments)[pair]
    order = np.lexsort((as_generator(rng).random(len(pair)), -judged_score, vocabulary.pair_query[pair]))
    label = judgments.label[pair][order]
    gain, relevant = _discounted_gain(label, place), label >= threshold

    def total(values: np.ndarray) -> np.ndarray:
        return _sums(values, judgments.start)

    n_relevant = total(relevant)
    first = np.minimum.reduceat(np.where(relevant, place + 1.0, np.inf), judgments.start)
    with np.errstate(invalid="ignore", divide="ignore"):
        ndcg = {f"nDCG@{k}": _sum_at(k, gain, judgments) / _sum_at(k, judgments.ideal_gain, judgments) for k in cutoffs}
        recall = {f"Recall@{k}": _sum_at(k, relevant, judgments) / n_relevant for k in cutoffs}
        mrr = np.where(n_relevant > 0, 1 / first, np.nan)
        weight = np.where(relevant, label if graded_arp else 1.0, 0.0)
        arp = total(weight * (place + 1.0)) / total(weight)
    return RankingQuality(judgments.query, {**ndcg, **recall, "MRR": mrr, "ARP": arp})


def head_queries(impressions: Int[np.ndarray, " query"] | Float[np.ndarray, " query"]) -> Bool[np.ndarray, " query"]:
    """Select the most frequent queries that together make half of the traffic; the others are the tail.

    Queries are taken in descending order of frequency, ties by query number, until those taken have at least half of
    all impressions. A query without impressions is never among them.

    Parameters
    ----------
    impressions
        Number of sessions of each query.

    Returns
    -------
    Bool[query]
        Whether each query is a head query.

    Examples
    --------
    >>> head_queries(np.array([1, 5, 3, 1])).tolist()
    [False, True, False, False]
    """
    order = np.argsort(-impressions, kind="stable")
    before = np.cumsum(impressions[order]) - impressions[order]
    head = np.zeros(len(impressions), bool)
    head[order] = before < impressions.sum() / 2
    return head


def _discounted_gain(label: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Return (2^label - 1) / log2(rank + 1), with ranks from 1."""
    gain: np.ndarray = (np.exp2(label) - 1) / np.log2(place + 2)
    return gain


def _sum_at(k: int, values: np.ndarray, judgments: JudgedPairs) -> np.ndarray:
    """Return each query's sum over the first k ranks."""
    return _sums(np.where(judgments.place < k, values, 0.0), judgments.start)


def _sums(values: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Return each query's sum."""
    sums: np.ndarray = np.add.reduceat(values, start, dtype=np.float64)
    return sums


def _groups(ascending: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct values of an ascending array, and the index of the first occurrence of each."""
    start = np.flatnonzero(np.diff(ascending, prepend=-1))
    return ascending[start], start


def _mean(values: np.ndarray) -> float:
    """Return the mean of the values that are not NaN; NaN if there is none."""
    present = values[~np.isnan(values)]
    return float(present.mean()) if len(present) else float("nan")


def _checked_scores(score: np.ndarray, judgments: JudgedPairs) -> np.ndarray:
    """Return the scores after checking that every judged pair has one."""
    if score.shape != judgments.label.shape:
        raise DataError(
            f"there must be one score per pair, {len(judgments.label)}: got shape {score.shape}.",
            code="wrong-shape",
            expected=len(judgments.label),
            shape=score.shape,
        )
    missing = judgments.pair[np.isnan(score[judgments.pair])]
    if len(missing):
        raise DataError(
            f"a score must be a number: got NaN for {_pair_name(judgments.vocabulary, int(missing[0]))} "
            f"({len(missing):,} such documents). Set its score, or leave it out of the judgments.",
            code="missing-score",
            count=len(missing),
        )
    return score


def _pair_name(vocabulary: Vocabulary, pair: int) -> str:
    """Return the ids of a pair as text, for messages."""
    document = vocabulary.doc_ids[vocabulary.pair_doc[pair]]
    return f"document {document} of query {vocabulary.query_ids[vocabulary.pair_query[pair]]}"
