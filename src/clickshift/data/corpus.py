"""Corpus: queries with candidate documents, relevance labels and features, as ranked by a simulated search engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
from jaxtyping import Bool, Float, Int

from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import DataError


@final
@dataclass(frozen=True, eq=False)
class Corpus:
    """Queries with candidate documents, relevance labels and features: a learning-to-rank collection.

    The pairs of the vocabulary are the candidates; row p of every table belongs to pair p.

    Parameters
    ----------
    vocabulary
        Queries, documents and candidate pairs.
    label
        Float[pair]: graded relevance, from 0 to `max_label`.
    features
        Float[pair feature]: features of each pair; None if there are none.
    max_label
        Highest grade of the scale, whether or not a document has it: 4 for MSLR, 2 for LETOR 4.0.

    Raises
    ------
    DataError
        If an array has the wrong shape ("wrong-shape"), the corpus is empty ("empty-corpus"), or a label is outside
        the scale ("label-out-of-range").

    Examples
    --------
    >>> vocabulary, _, _ = Vocabulary.of(["cats", "cats", "dogs"], [7, 12, 12])
    >>> corpus = Corpus(vocabulary, np.array([0, 2, 1]), max_label=2)
    >>> corpus
    Corpus(2 queries, 3 candidates, no features)
    >>> corpus.gain.round(2).tolist()
    [0.0, 1.0, 0.33]
    """

    vocabulary: Vocabulary
    label: np.ndarray
    features: np.ndarray | None = None
    max_label: int = 4

    def __post_init__(self) -> None:
        label = np.asarray(self.label, np.float32)
        if label.shape != (self.vocabulary.n_pairs,):
            raise DataError(
                f"there must be one label per pair, {self.vocabulary.n_pairs}: got shape {label.shape}.",
                code="wrong-shape",
                name="label",
                expected=(self.vocabulary.n_pairs,),
                shape=label.shape,
            )
        if not len(label):
            raise DataError(
                "the corpus is empty: there must be at least one query with one document.", code="empty-corpus"
            )
        bad = ~((label >= 0) & (label <= self.max_label))
        if bad.any():
            query = self.vocabulary.query_ids[self.vocabulary.pair_query[bad][0]]
            raise DataError(
                f"a label must be from 0 to max_label = {self.max_label}: got {label[bad][0]} for query {query}. "
                "Pass max_label, or fix the label.",
                code="label-out-of-range",
                value=float(label[bad][0]),
                max_label=self.max_label,
                query=str(query),
                count=int(bad.sum()),
            )
        object.__setattr__(self, "label", label)
        if self.features is not None:
            features = np.asarray(self.features, np.float32)
            if features.ndim != 2 or len(features) != len(label):
                raise DataError(
                    f"features must have one row per pair, {len(label)}: got shape {features.shape}.",
                    code="wrong-shape",
                    name="features",
                    expected=len(label),
                    shape=features.shape,
                )
            object.__setattr__(self, "features", features)

    @property
    def n_queries(self) -> int:
        """Number of queries."""
        return self.vocabulary.n_queries

    @property
    def n_pairs(self) -> int:
        """Number of (query, document) pairs: the candidates of all queries."""
        return self.vocabulary.n_pairs

    @property
    def offsets(self) -> Int[np.ndarray, " bound"]:
        """Bounds of the queries: query q has the candidates from pair `offsets[q]` to `offsets[q + 1] - 1`."""
        return self.vocabulary.query_offsets

    @property
    def n_candidates(self) -> Int[np.ndarray, " query"]:
        """Number of candidate documents of each query."""
        return np.diff(self.offsets)

    @property
    def gain(self) -> Float[np.ndarray, " pair"]:
        """Normalised gain (2^label - 1) / (2^max_label - 1), which turns grades into probabilities as in the papers."""
        gain: np.ndarray = (np.exp2(self.label.astype(np.float64)) - 1) / (2.0**self.max_label - 1)
        return gain

    def feature(self, number: int) -> Float[np.ndarray, " pair"]:
        """Return a feature by its number in the file, from 1 (MSLR: 110 is BM25 of the whole document).

        Raises
        ------
        DataError
            If the corpus has no features ("no-features") or no such feature ("unknown-feature").
        """
        if self.features is None:
            raise DataError(
                "this corpus has no features. Read a corpus with features, or use a policy that needs none.",
                code="no-features",
            )
        if not 1 <= number <= self.features.shape[1]:
            raise DataError(
                f"feature numbers must be from 1 to {self.features.shape[1]}: got {number}.",
                code="unknown-feature",
                value=number,
                count=self.features.shape[1],
            )
        column: np.ndarray = self.features[:, number - 1]
        return column

    def with_pairs(self, keep: Int[np.ndarray, " kept"] | Bool[np.ndarray, " pair"]) -> Corpus:
        """Return the corpus of some pairs (numbers or a mask), renumbered."""
        keep = np.flatnonzero(keep) if keep.dtype == bool else np.unique(keep)
        features = None if self.features is None else self.features[keep]
        return Corpus(self.vocabulary.with_pairs(keep), self.label[keep], features, self.max_label)

    def with_queries(self, keep: Int[np.ndarray, " kept"] | Bool[np.ndarray, " query"]) -> Corpus:
        """Return the corpus of some queries (numbers or a mask), renumbered in their old order."""
        wanted = np.zeros(self.n_queries, bool)
        wanted[keep] = True
        return self.with_pairs(wanted[self.vocabulary.pair_query])

    def usable_queries(self, *, min_docs: int = 10) -> Bool[np.ndarray, " query"]:
        """Return a mask of the queries with at least `min_docs` candidates whose labels are not all equal.

        The other queries carry no information about ranking.
        """
        starts = self.offsets[:-1]
        varied = np.maximum.reduceat(self.label, starts) > np.minimum.reduceat(self.label, starts)
        enough: np.ndarray = self.n_candidates >= min_docs
        return enough & varied

    def sample_queries(self, n: int, *, rng: np.random.Generator) -> Corpus:
        """Return a random subset of n queries; the whole corpus if it has no more than n."""
        return self if n >= self.n_queries else self.with_queries(rng.permutation(self.n_queries)[:n])

    def stratified(self, n: int, *, rng: np.random.Generator) -> Corpus:
        """Return a stratified sample of up to n documents per query, in which each grade keeps its share.

        A fraction n / candidates of every grade is drawn (rounded to the nearest, halves to even). If rounding gives
        more than n documents, low grades are dropped first, as in the CMIP paper's code. The documents of a grade are
        drawn at random; queries with fewer than n documents are kept.

        Parameters
        ----------
        n
            Largest number of documents per query.
        rng
            Random generator.
        """
        order, rank_in_grade, grade_size = self._shuffled_grades(rng)
        candidates = self.n_candidates[self.vocabulary.pair_query]
        quota = np.rint(grade_size * np.minimum(n / candidates, 1))
        return self._top_grades(order, np.flatnonzero(rank_in_grade < quota), n)

    def ladder(self, n: int, *, per_grade: int = 3, rng: np.random.Generator) -> Corpus:
        """Return a sample of exactly n documents per query: `per_grade` of every grade above 0, then grades 1 and 0.

        This is the rule of section 6.1 of the policy-shift paper, as in its code. Queries with fewer than n candidates
        are dropped.

        Parameters
        ----------
        n
            Number of documents per query.
        per_grade
            Largest number of documents of each grade above 0 in the first round.
        rng
            Random generator.
        """
        order, rank_in_grade, _ = self._shuffled_grades(rng)
        # three rounds: the ladder, then the remaining documents of grade 1, then grade 0; other grades fill the rest
        is_step = (rank_in_grade < per_grade) & (self.label >= 1)
        round_of = np.select([is_step, self.label == 1, self.label == 0], [0, 1, 2], 3)
        chosen = np.lexsort((order, -self.label, round_of, self.vocabulary.pair_query))
        position = np.arange(self.n_pairs) - np.repeat(self.offsets[:-1], self.n_candidates)
        keep = chosen[position < n]
        return self.with_pairs(keep).with_queries(self.n_candidates[np.unique(self.vocabulary.pair_query)] >= n)

    def _shuffled_grades(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return a random order of all pairs, and each pair's position in and the size of its (query, grade) group."""
        order = rng.permutation(self.n_pairs)
        by_grade = np.lexsort((order, self.label, self.vocabulary.pair_query))
        query, label = self.vocabulary.pair_query[by_grade], self.label[by_grade]
        new = np.r_[True, (query[1:] != query[:-1]) | (label[1:] != label[:-1])]
        start, group = np.flatnonzero(new), np.cumsum(new) - 1
        size = np.diff(np.r_[start, self.n_pairs])
        rank_in_grade, grade_size = np.empty(self.n_pairs, np.int64), np.empty(self.n_pairs, np.int64)
        rank_in_grade[by_grade] = np.arange(self.n_pairs) - start[group]
        grade_size[by_grade] = size[group]
        return order, rank_in_grade, grade_size

    def _top_grades(self, order: np.ndarray, drawn: np.ndarray, n: int) -> Corpus:
        """Keep at most n of the drawn pairs per query, higher grades first, equal grades in random order."""
        query = self.vocabulary.pair_query[drawn]
        ranked = drawn[np.lexsort((order[drawn], -self.label[drawn], query))]
        query = self.vocabulary.pair_query[ranked]
        start = np.searchsorted(query, query)
        return self.with_pairs(ranked[np.arange(len(ranked)) - start < n])

    def __repr__(self) -> str:
        features = "no" if self.features is None else self.features.shape[1]
        return f"Corpus({self.n_queries:,} queries, {self.n_pairs:,} candidates, {features} features)"


class CorpusSplit(NamedTuple):
    """A learning-to-rank collection in three parts that share no query.

    Parameters
    ----------
    train
        Queries to train on.
    held_out
        Queries for validation, e.g. early stopping or tuning.
    test
        Queries to evaluate on.
    """

    train: Corpus
    held_out: Corpus
    test: Corpus


def signed_log(features: Float[np.ndarray, "pair feature"]) -> Float[np.ndarray, "pair feature"]:
    """Return sign(x) log(1 + |x|): features of learning to rank span many magnitudes (Qin et al. 2021)."""
    scaled: np.ndarray = np.copysign(np.log1p(np.abs(features)), features)
    return scaled
