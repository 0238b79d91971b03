"""A log grouped by query, so that a query is looked up in milliseconds: rows with equal lists and clicks are merged."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from jaxtyping import Int

from clickshift.core.unique_rows import stable_order
from clickshift.data.encoded_log import Log
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import UNSEEN
from clickshift.errors import DataError

__all__ = ["LogIndex"]

_WAITING_ROWS = 1 << 20
"""Number of rows that are read before equal ones are merged."""


@final
@dataclass(frozen=True, eq=False)
class LogIndex:
    """Rows of a log that differ in list or clicks, those of a query side by side.

    Parameters
    ----------
    sessions
        The rows with their counts, sorted by query.
    offsets
        Query q has the rows from `offsets[q]` to `offsets[q + 1] - 1`.
    """

    sessions: Sessions
    offsets: Int[np.ndarray, " bound"]

    @classmethod
    def of(cls, log: Log) -> LogIndex:
        """Read a log once and group it.

        Parameters
        ----------
        log
            The log.

        Returns
        -------
        LogIndex
            The grouped log; its memory grows with the number of rows that differ.

        Raises
        ------
        DataError
            If queries or documents have no id ("missing-id").
        """
        parts: list[Sessions] = []
        for chunk in log.chunks():
            parts.append(_merge(chunk))
            if sum(map(len, parts[1:])) > max(len(parts[0]), _WAITING_ROWS):
                parts = [Sessions.concat(parts).merged()]
        merged = parts[0] if len(parts) == 1 else Sessions.concat(parts).merged()
        rankings, n_queries = merged.rankings, merged.vocabulary.n_queries
        if rankings.query.min() == UNSEEN or ((rankings.pair == UNSEEN) & rankings.shown).any():
            raise DataError(
                "every query and document of the log must have an id, so that it can be looked up: some ids were lost "
                "when the log was translated to another vocabulary. Pass the log in its own vocabulary.",
                code="missing-id",
            )
        sessions = merged[stable_order(rankings.query, n_queries)]
        return cls(sessions, np.searchsorted(sessions.rankings.query, np.arange(n_queries + 1)))

    @cached_property
    def frequency(self) -> Int[np.ndarray, " query"]:
        """Number of sessions of each query."""
        total = np.append(0, np.cumsum(self.sessions.count))
        frequency: np.ndarray = np.diff(total[self.offsets])
        return frequency

    @cached_property
    def by_frequency(self) -> Int[np.ndarray, " shown_query"]:
        """Queries that were shown, the most frequent first, equally frequent ones by their ids."""
        order = np.argsort(-self.frequency, kind="stable")
        return order[: np.count_nonzero(self.frequency)]

    @cached_property
    def _names(self) -> np.ndarray:
        """Ids of the queries of `by_frequency` as text in lower case."""
        ids = self.sessions.vocabulary.query_ids[self.by_frequency].astype(np.dtypes.StringDType())
        lower: np.ndarray = np.strings.lower(ids)
        return lower

    def rows(self, query: int) -> slice:
        """Return the rows of a query."""
        return slice(int(self.offsets[query]), int(self.offsets[query + 1]))

    def search(self, text: str, limit: int) -> tuple[Int[np.ndarray, " found"], int]:
        """Find queries whose id contains a text, in any case.

        Parameters
        ----------
        text
            The text; an empty one finds all queries.
        limit
            Largest number of queries to return.

        Returns
        -------
        tuple of array and int
            Numbers of the queries, one with exactly this id first and then the most frequent ones, and how many match
            in all.
        """
        text = text.strip().lower()
        found = np.flatnonzero(np.strings.find(self._names, text) >= 0) if text else np.arange(len(self._names))
        if text:
            exact = self._names[found] == text
            found = np.concatenate([found[exact], found[~exact]])
        return self.by_frequency[found[:limit]], len(found)


def _merge(part: Sessions) -> Sessions:
    """Merge the rows of a part of the log with equal lists and clicks, whatever their propensities, times and users."""
    r = part.rankings
    rankings = Rankings.checked(r.vocabulary, r.query, r.pair, r.shown)
    return Sessions.checked(rankings, part.click, part.count).merged()
