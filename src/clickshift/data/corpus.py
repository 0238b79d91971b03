"""Corpus: queries with their candidate documents, labels and features; what a simulated search engine ranks."""

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
    """Pairs of the vocabulary are the candidates; row p of every table belongs to pair p."""

    vocabulary: Vocabulary
    label: np.ndarray
    """Float[pair]: graded relevance, 0 to `max_label`."""
    features: np.ndarray | None = None
    """Float[pair feature]"""
    max_label: int = 4
    """The best grade of the scale, whether or not a document has it: MSLR 4, LETOR 4.0 2."""

    def __post_init__(self) -> None:
        label = np.asarray(self.label, np.float32)
        if label.shape != (self.vocabulary.n_pairs,):
            raise DataError(f"there must be one label per pair, {self.vocabulary.n_pairs}: got shape {label.shape}.")
        if not len(label):
            raise DataError("the corpus is empty: there must be at least one query with one document.")
        bad = ~((label >= 0) & (label <= self.max_label))
        if bad.any():
            raise DataError(
                f"a label must be from 0 to max_label = {self.max_label}: got {label[bad][0]} for query "
                f"{self.vocabulary.query_ids[self.vocabulary.pair_query[bad][0]]}. Give max_label, or mend the label."
            )
        object.__setattr__(self, "label", label)
        if self.features is not None:
            features = np.asarray(self.features, np.float32)
            if features.ndim != 2 or len(features) != len(label):
                raise DataError(f"features must have one row per pair, {len(label)}: got shape {features.shape}.")
            object.__setattr__(self, "features", features)

    @property
    def n_queries(self) -> int:
        return self.vocabulary.n_queries

    @property
    def n_pairs(self) -> int:
        return self.vocabulary.n_pairs

    @property
    def offsets(self) -> Int[np.ndarray, " bound"]:
        """Pairs `offsets[q]` up to, not including, `offsets[q + 1]` are the candidates of query q."""
        return self.vocabulary.query_offsets

    @property
    def n_candidates(self) -> Int[np.ndarray, " query"]:
        return np.diff(self.offsets)

    @property
    def gain(self) -> Float[np.ndarray, " pair"]:
        """(2^label - 1) / (2^max_label - 1), the papers' link from grades to probabilities."""
        gain: np.ndarray = (np.exp2(self.label.astype(np.float64)) - 1) / (2.0**self.max_label - 1)
        return gain

    def feature(self, number: int) -> Float[np.ndarray, " pair"]:
        """A feature by its number in the file, from 1 (MSLR: 110 is BM25 of the whole document)."""
        if self.features is None:
            raise DataError("this corpus has no features. Read one that has, or use a policy that needs none.")
        if not 1 <= number <= self.features.shape[1]:
            raise DataError(f"feature numbers must be from 1 to {self.features.shape[1]}: got {number}.")
        column: np.ndarray = self.features[:, number - 1]
        return column

    def with_pairs(self, keep: Int[np.ndarray, " kept"] | Bool[np.ndarray, " pair"]) -> Corpus:
        """The corpus of these pairs alone, renumbered."""
        keep = np.flatnonzero(keep) if keep.dtype == bool else np.unique(keep)
        features = None if self.features is None else self.features[keep]
        return Corpus(self.vocabulary.with_pairs(keep), self.label[keep], features, self.max_label)

    def with_queries(self, keep: Int[np.ndarray, " kept"] | Bool[np.ndarray, " query"]) -> Corpus:
        """The corpus of these queries alone, renumbered in their old order."""
        wanted = np.zeros(self.n_queries, bool)
        wanted[keep] = True
        return self.with_pairs(wanted[self.vocabulary.pair_query])

    def usable_queries(self, *, min_docs: int = 10) -> Bool[np.ndarray, " query"]:
        """Queries with enough candidates whose labels are not all equal: the others teach nothing about ranking."""
        starts = self.offsets[:-1]
        varied = np.maximum.reduceat(self.label, starts) > np.minimum.reduceat(self.label, starts)
        enough: np.ndarray = self.n_candidates >= min_docs
        return enough & varied

    def sample_queries(self, n: int, *, rng: np.random.Generator) -> Corpus:
        """A random subset of n queries; all of them where there are no more."""
        return self if n >= self.n_queries else self.with_queries(rng.permutation(self.n_queries)[:n])

    def stratified(self, n: int, *, rng: np.random.Generator) -> Corpus:
        """Up to n documents per query, each grade with its share of the query; queries left with fewer are kept.

        A fraction n / candidates of every grade is drawn (rounded to the nearest, halves to even) and where rounding
        gives more than n, low grades are dropped first, as in the CMIP paper's code. Which documents stand for a grade
        is random.
        """
        order, rank_in_grade, grade_size = self._shuffled_grades(rng)
        candidates = self.n_candidates[self.vocabulary.pair_query]
        quota = np.rint(grade_size * np.minimum(n / candidates, 1))
        return self._best_of(order, np.flatnonzero(rank_in_grade < quota), n)

    def ladder(self, n: int, *, per_grade: int = 3, rng: np.random.Generator) -> Corpus:
        """Exactly n documents per query: up to `per_grade` of every grade above 0, then grades 1 and 0 until n are
        there.

        The rule of the policy-shift paper's section 6.1 as its code has it; queries with fewer candidates are dropped.
        """
        order, rank_in_grade, _ = self._shuffled_grades(rng)
        # three rounds: the ladder, then what is left of grade 1, then grade 0; the rest fills up where those run out
        is_step = (rank_in_grade < per_grade) & (self.label >= 1)
        round_of = np.select([is_step, self.label == 1, self.label == 0], [0, 1, 2], 3)
        chosen = np.lexsort((order, -self.label, round_of, self.vocabulary.pair_query))
        place = np.arange(self.n_pairs) - np.repeat(self.offsets[:-1], self.n_candidates)
        keep = chosen[place < n]
        return self.with_pairs(keep).with_queries(self.n_candidates[np.unique(self.vocabulary.pair_query)] >= n)

    def _shuffled_grades(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """A random order of all pairs; each pair's place within its (query, grade) in that order; the size of that
        group."""
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

    def _best_of(self, order: np.ndarray, drawn: np.ndarray, n: int) -> Corpus:
        """Of the drawn pairs keep at most n per query, higher grades first, equal grades in random order."""
        query = self.vocabulary.pair_query[drawn]
        ranked = drawn[np.lexsort((order[drawn], -self.label[drawn], query))]
        query = self.vocabulary.pair_query[ranked]
        start = np.searchsorted(query, query)
        return self.with_pairs(ranked[np.arange(len(ranked)) - start < n])

    def __repr__(self) -> str:
        features = "no" if self.features is None else self.features.shape[1]
        return f"Corpus({self.n_queries:,} queries, {self.n_pairs:,} candidates, {features} features)"


class CorpusSplit(NamedTuple):
    """A learning-to-rank set. No two parts share a query."""

    train: Corpus
    held_out: Corpus
    test: Corpus
