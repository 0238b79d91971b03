"""Results of an engine: distinct pairs and cells as Arrow tables, converted to count tables with pair numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from clickshift.counts.cells import MAX_PREFIX_RANKS, By, Cells, CellViews, count_situations, lists_too_long
from clickshift.data.sessions import Rankings, Sessions, as_matrix
from clickshift.data.vocabulary import UNSEEN, Vocabulary
from clickshift.errors import DataError

ArrowTable = Any  # a pyarrow.Table


@dataclass(frozen=True, eq=False)
class PairNumbers:
    """Pair numbers by the hash of the pair.

    Parameters
    ----------
    hash
        64-bit hashes, ascending.
    number
        Number of each pair in the vocabulary.
    """

    hash: np.ndarray
    number: Int[np.ndarray, " pair"]

    def of(self, hashes: np.ndarray) -> Int[np.ndarray, " row"]:
        """Return the numbers of some pairs, or raise if one of them is new."""
        position = np.minimum(np.searchsorted(self.hash, hashes), len(self.hash) - 1)
        if not np.array_equal(self.hash[position], hashes):
            raise DataError(
                "a log must not change while it is counted: a new pair was added. Count it again.", code="log-changed"
            )
        numbers: np.ndarray = self.number[position]
        return numbers


def number_pairs(pairs: ArrowTable) -> tuple[Vocabulary, PairNumbers]:
    """Build the vocabulary of distinct rows (pair hash, query, doc), or raise if two pairs have the same hash."""
    vocabulary, _, number = Vocabulary.of(pairs["query"], pairs["doc"])
    hashes = pairs["pair"].to_numpy()
    order = np.argsort(hashes)
    hashes = hashes[order]
    same = np.flatnonzero(hashes[1:] == hashes[:-1])
    if len(same):
        rows = order[[same[0], same[0] + 1]].tolist()
        ids = [(pairs["query"][row].as_py(), pairs["doc"][row].as_py()) for row in rows]
        one, other = (f"(query {query}, document {doc})" for query, doc in ids)
        raise DataError(
            f"pairs must differ in their 64-bit hashes: {one} and {other} have the same, and would be counted as one "
            f"({len(same):,} such). Rename one of the documents, or read the log with read_log.",
            code="hash-collision",
            count=len(same),
            pairs=ids,
        )
    return vocabulary, PairNumbers(hashes, number[order])


class Extent(NamedTuple):
    """Size of a log.

    Parameters
    ----------
    ranks
        Length of the longest list.
    sessions
        Number of sessions.
    has_holes
        Whether a list has a hole.
    """

    ranks: int
    sessions: float
    has_holes: bool


def extent_of(summary: Mapping[str, Any], by: By | None = None) -> Extent:
    """Return the size of a log, or raise if it is empty, breaks a rule or has too long lists."""
    ranks = check_summary(summary["lists"], summary["ranks"], summary["bad"] or 0, summary["first"], by)
    return Extent(ranks, float(summary["sessions"]), bool(summary["holes"]))


def check_summary(lists: int, ranks: int | None, bad: int, first: str | None, by: By | None = None) -> int:
    """Return the length of the longest list, or raise if the log is empty, breaks a rule or has too long lists."""
    if bad:
        raise DataError(
            f"{first} ({bad:,} of {lists:,} lists break a rule). Fix them, or remove them with a WHERE clause.",
            code="bad-sessions",
            count=bad,
            total=lists,
            first=first,
        )
    if not ranks:
        raise DataError("the log is empty: there must be at least one session with one result.", code="empty-log")
    if by == "prefix" and ranks > MAX_PREFIX_RANKS:
        raise lists_too_long(ranks)
    return ranks


def cells_of(table: ArrowTable, vocabulary: Vocabulary, pair: Int[np.ndarray, " row"], log: Extent, by: By) -> Cells:
    """Build count tables from rows (place: rank from 1, above, impressions, clicks; views) and their pair numbers."""
    n_ranks = log.ranks
    first = np.array([count_situations(by, rank) for rank in range(n_ranks)])
    situation = first[np.asarray(table["place"]) - 1] + np.asarray(table["above"])
    order = np.argsort(pair * np.int64(count_situations(by, n_ranks)) + situation)
    impressions, clicks = (np.asarray(table[name], np.float64)[order] for name in ("impressions", "clicks"))
    columns = pair[order].astype(np.int64), situation[order], impressions, clicks
    views = None
    if "skips" in table.column_names:
        known, skips, unviewed, contradicted = (
            np.asarray(table[name], np.float64)[order] for name in ("known_clicks", "skips", "unviewed", "contradicted")
        )
        views = CellViews(known, skips, unviewed, float(contradicted.sum()))
    return Cells(vocabulary, n_ranks, by, *columns, views=views, sessions=log.sessions)


def sessions_of(table: ArrowTable, vocabulary: Vocabulary, pair: Int[np.ndarray, " result"], n_ranks: int) -> Sessions:
    """Build sessions from lists (pairs, clicks, times: the count) and the concatenated numbers of their pairs.

    If a list has a hole, `places` has the ranks of its pairs, from 1.
    """
    import pyarrow.compute as pc

    length = np.asarray(pc.list_value_length(table["pairs"]))
    shown = np.arange(n_ranks) < length[:, None]
    if "places" in table.column_names:
        shown = np.zeros((len(length), n_ranks), bool)
        shown[np.repeat(np.arange(len(length)), length), np.asarray(pc.list_flatten(table["places"])) - 1] = True
    pairs = as_matrix(pair.astype(np.int32), shown, UNSEEN)
    click = as_matrix(np.asarray(pc.list_flatten(table["clicks"])).astype(bool), shown, False)
    query = vocabulary.pair_query[pairs.max(axis=1)]
    return Sessions(Rankings(vocabulary, query, pairs, shown), click, np.asarray(table["times"]).astype(np.int64))
