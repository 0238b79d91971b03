"""Judged pairs with a click model's estimate and the logging policy's score: the input of debiasedness metrics."""

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
    """Estimates, logging scores and labels, with one row per judged (query, document) pair.

    Parameters
    ----------
    query
        Query of each row. Rows of one query are dependent: intervals resample queries, not rows.
    estimate
        Click model's relevance.
    logging
        Logging policy's score, or where it showed the document; higher is better.
    label
        True relevance: a grade, or any number.

    Raises
    ------
    DataError
        "unequal-lengths" if the columns differ in length; "not-finite" if a number is not finite.

    Examples
    --------
    >>> rows = ScoredPairs.of([1, 1, 2], estimate=[0.2, 0.5, 0.1], logging=[3, 1, 2], label=[0, 1, float("nan")])
    >>> rows
    ScoredPairs(2 pairs of 1 queries, 2 labels)
    """

    query: Int[np.ndarray, " row"]
    estimate: Float[np.ndarray, " row"]
    logging: Float[np.ndarray, " row"]
    label: Float[np.ndarray, " row"]

    def __post_init__(self) -> None:
        shapes = {column.shape for column in (self.query, self.estimate, self.logging, self.label)}
        if len(shapes) > 1:
            raise DataError(
                f"there must be one query, estimate, logging score and label per row: got shapes {shapes}.",
                code="unequal-lengths",
            )
        for name in ("estimate", "logging", "label"):
            bad = ~np.isfinite(getattr(self, name))
            if bad.any():
                row = int(bad.argmax()) + 1
                raise DataError(
                    f"every {name} must be a finite number: row {row} has {getattr(self, name)[bad][0]} "
                    f"({bad.sum():,} such rows). Remove those rows.",
                    code="not-finite",
                    column=name,
                    row=row,
                    count=int(bad.sum()),
                )

    @classmethod
    def of(cls, query: object, *, estimate: object, logging: object, label: object) -> ScoredPairs:
        """Create rows from columns, without those that lack one of the three numbers (NaN).

        Parameters
        ----------
        query
            Query of each row, of any type.
        estimate
            Click model's relevance.
        logging
            Logging policy's score; higher is better.
        label
            True relevance.
        """
        numbers = [np.asarray(column, np.float64) for column in (estimate, logging, label)]
        complete = ~np.isnan(np.sum(np.broadcast_arrays(*numbers), axis=0))
        _, query_number = np.unique(np.asarray(query)[complete], return_inverse=True)
        return cls(query_number, *(column[complete] for column in numbers))

    @classmethod
    def of_pairs(
        cls,
        vocabulary: Vocabulary,
        estimate: Float[np.ndarray, " pair"],
        logging: Float[np.ndarray, " pair"],
        label: Float[np.ndarray, " pair"],
    ) -> ScoredPairs:
        """Create rows from one number per pair of a vocabulary, NaN where there is none.

        Parameters
        ----------
        vocabulary
            Vocabulary of the pairs.
        estimate
            Click model's relevance.
        logging
            Logging policy's score; higher is better.
        label
            True relevance.
        """
        return cls.of(vocabulary.pair_query, estimate=estimate, logging=logging, label=label)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.label)

    def __getitem__(self, rows: np.ndarray) -> ScoredPairs:
        """Select rows by number."""
        return ScoredPairs(self.query[rows], self.estimate[rows], self.logging[rows], self.label[rows])

    @property
    def n_queries(self) -> int:
        """Number of distinct queries."""
        return len(np.unique(self.query))

    @cached_property
    def by_label(self) -> tuple[np.ndarray, ...]:
        """Row numbers of each label, in ascending order of the labels."""
        order = np.argsort(self.label, kind="stable")
        return tuple(np.split(order, np.flatnonzero(np.diff(self.label[order])) + 1))

    @cached_property
    def block(self) -> Int[np.ndarray, " row"]:
        """Block of each row: rows of equal label and query, which are exchangeable if nothing but these matters.

        All scores of a query may have an effect in common, so rows of different queries are not exchangeable. Queries
        with a single row are exchangeable with each other: they count as one query.
        """
        _, query, size = np.unique(self.query, return_inverse=True, return_counts=True)
        cluster = np.where(size[query] > 1, query, len(size))
        order = np.lexsort((cluster, self.label))
        starts = (np.diff(self.label[order]) != 0) | (np.diff(cluster[order]) != 0)
        block = np.zeros(len(self), np.int64)
        block[order[1:]] = np.cumsum(starts)
        return block

    @cached_property
    def log_arrangements(self) -> float:
        """Logarithm of the number of different arrangements of the logging scores within blocks."""
        from scipy.special import gammaln

        _, equal = np.unique(np.stack((self.block, mid_ranks(self.block, self.logging))), axis=1, return_counts=True)
        return float(gammaln(np.bincount(self.block) + 1).sum() - gammaln(equal + 1).sum())

    def with_logging(self, logging: Float[np.ndarray, " row"]) -> ScoredPairs:
        """Return the rows with other logging scores."""
        return replace(self, logging=logging)

    def within_queries(self) -> ScoredPairs:
        """Replace estimates and logging scores by their ranks within the query, from 0 to 1.

        This is for scores that are not comparable between queries. Equal scores share their mean rank.
        """
        return replace(self, estimate=mid_ranks(self.query, self.estimate), logging=mid_ranks(self.query, self.logging))

    def __repr__(self) -> str:
        """Return a short text with the numbers of pairs, queries and labels."""
        return f"ScoredPairs({len(self):,} pairs of {self.n_queries:,} queries, {len(self.by_label)} labels)"


def mid_ranks(group: Int[np.ndarray, " row"], score: Float[np.ndarray, " row"]) -> Float[np.ndarray, " row"]:
    """Compute ascending ranks from 0 to 1 within each group: (number below + half the number of equals) / size.

    Parameters
    ----------
    group
        Group of each row.
    score
        Score of each row.

    Examples
    --------
    >>> mid_ranks(np.array([0, 0, 1]), np.array([2.0, 1.0, 5.0])).tolist()
    [0.75, 0.25, 0.5]
    """
    order = np.lexsort((score, group))
    sorted_group, sorted_score = group[order], score[order]
    starts_group = np.r_[True, sorted_group[1:] != sorted_group[:-1]]
    starts_value = starts_group | np.r_[True, sorted_score[1:] != sorted_score[:-1]]
    start, size = _runs(starts_group)
    first, equals = _runs(starts_value)
    rank: np.ndarray = np.empty(len(score))
    rank[order] = (first - start + equals / 2) / size
    return rank


def _runs(starts_run: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the start and the length of each element's run."""
    begin = np.flatnonzero(starts_run)
    length = np.diff(np.r_[begin, len(starts_run)])
    run = np.cumsum(starts_run) - 1
    return begin[run], length[run]
