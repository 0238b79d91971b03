"""Judged pairs with what a click model and the logging policy think of them: the rows of an audit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import numpy as np
from jaxtyping import Float, Int

from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import DataError


@final
@dataclass(frozen=True, eq=False)
class ScoredPairs:
    """One row per judged (query, document) pair.

    >>> rows = ScoredPairs.of([1, 1, 2], estimate=[0.2, 0.5, 0.1], logging=[3, 1, 2], label=[0, 1, float("nan")])
    >>> rows
    ScoredPairs(2 pairs of 1 queries, 2 labels)
    """

    query: Int[np.ndarray, " row"]
    """Rows of one query are dependent: intervals draw queries, not rows."""
    estimate: Float[np.ndarray, " row"]
    """The click model's relevance."""
    logging: Float[np.ndarray, " row"]
    """What the logging policy thought: its score, or where it put the document (higher is better)."""
    label: Float[np.ndarray, " row"]
    """The true relevance: a grade, or any number."""

    def __post_init__(self) -> None:
        shapes = {column.shape for column in (self.query, self.estimate, self.logging, self.label)}
        if len(shapes) > 1:
            raise DataError(f"there must be one query, estimate, logging score and label per row: got {shapes}.")
        for name in ("estimate", "logging", "label"):
            bad = ~np.isfinite(getattr(self, name))
            if bad.any():
                raise DataError(
                    f"every {name} must be a finite number: row {int(bad.argmax()) + 1} has "
                    f"{getattr(self, name)[bad][0]} ({bad.sum():,} such rows). Leave those rows out."
                )

    @classmethod
    def of(cls, query: object, *, estimate: object, logging: object, label: object) -> ScoredPairs:
        """From columns, without the rows that lack one of the three numbers (NaN)."""
        numbers = [np.asarray(column, np.float64) for column in (estimate, logging, label)]
        known = ~np.isnan(np.sum(np.broadcast_arrays(*numbers), axis=0))
        _, query_number = np.unique(np.asarray(query)[known], return_inverse=True)
        return cls(query_number, *(column[known] for column in numbers))

    @classmethod
    def of_pairs(
        cls,
        vocabulary: Vocabulary,
        estimate: Float[np.ndarray, " pair"],
        logging: Float[np.ndarray, " pair"],
        label: Float[np.ndarray, " pair"],
    ) -> ScoredPairs:
        """From one number per pair of a vocabulary, NaN where there is none."""
        return cls.of(vocabulary.pair_query, estimate=estimate, logging=logging, label=label)

    def __len__(self) -> int:
        return len(self.label)

    def __getitem__(self, rows: np.ndarray) -> ScoredPairs:
        return ScoredPairs(self.query[rows], self.estimate[rows], self.logging[rows], self.label[rows])

    @property
    def n_queries(self) -> int:
        return len(np.unique(self.query))

    @cached_property
    def by_label(self) -> tuple[np.ndarray, ...]:
        """The row numbers of each label, in ascending order of the labels."""
        order = np.argsort(self.label, kind="stable")
        return tuple(np.split(order, np.flatnonzero(np.diff(self.label[order])) + 1))

    def with_logging(self, logging: Float[np.ndarray, " row"]) -> ScoredPairs:
        return replace(self, logging=logging)

    def within_queries(self) -> ScoredPairs:
        """Estimates and logging scores as ranks within their query, from 0 to 1: for scores that cannot be compared
        between queries. Equal scores share their mean rank."""
        return replace(self, estimate=mid_ranks(self.query, self.estimate), logging=mid_ranks(self.query, self.logging))

    def __repr__(self) -> str:
        return f"ScoredPairs({len(self):,} pairs of {self.n_queries:,} queries, {len(self.by_label)} labels)"


def mid_ranks(group: Int[np.ndarray, " row"], score: Float[np.ndarray, " row"]) -> Float[np.ndarray, " row"]:
    """Ranks from 0 to 1 within each group, ascending: (number below + half the number of equals) / size."""
    order = np.lexsort((score, group))
    g, s = group[order], score[order]
    new_group = np.r_[True, g[1:] != g[:-1]]
    new_value = new_group | np.r_[True, s[1:] != s[:-1]]
    start, size = _runs(new_group)
    first, equals = _runs(new_value)
    rank: np.ndarray = np.empty(len(score))
    rank[order] = (first - start + equals / 2) / size
    return rank


def _runs(new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where each element's run begins, and how long that run is."""
    begin = np.flatnonzero(new)
    length = np.diff(np.r_[begin, len(new)])
    run = np.cumsum(new) - 1
    return begin[run], length[run]
