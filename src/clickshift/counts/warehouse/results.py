"""What comes back from an engine: distinct pairs and cells as Arrow tables, and their numbers in a vocabulary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int

from clickshift.counts.cells import By, Cells, count_situations
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import UNSEEN, Vocabulary
from clickshift.errors import DataError

ArrowTable = Any  # a pyarrow.Table
_LONGEST_PREFIX = 30


@dataclass(frozen=True, eq=False)
class PairNumbers:
    """The number of each pair of a log, by its hash."""

    hash: np.ndarray
    """64-bit hashes, ascending."""
    number: Int[np.ndarray, " pair"]

    def of(self, hashes: np.ndarray) -> Int[np.ndarray, " row"]:
        """The numbers of these pairs, all of which must be known."""
        place = np.minimum(np.searchsorted(self.hash, hashes), len(self.hash) - 1)
        if not np.array_equal(self.hash[place], hashes):
            raise DataError("a log must stay as it is while it is counted: a new pair came in. Count it again.")
        numbers: np.ndarray = self.number[place]
        return numbers


def number_pairs(pairs: ArrowTable) -> tuple[Vocabulary, PairNumbers]:
    """The vocabulary of distinct rows (pair, query, doc). Two with one hash are pairs that would be counted as one."""
    vocabulary, _, number = Vocabulary.of(pairs["query"], pairs["doc"])
    hashes = pairs["pair"].to_numpy()
    order = np.argsort(hashes)
    hashes = hashes[order]
    same = np.flatnonzero(hashes[1:] == hashes[:-1])
    if len(same):
        one, other = (
            f"(query {pairs['query'][row].as_py()}, document {pairs['doc'][row].as_py()})"
            for row in order[[same[0], same[0] + 1]].tolist()
        )
        raise DataError(
            f"pairs must differ in their 64-bit hashes: {one} and {other} have the same, and would be counted as one "
            f"({len(same):,} such). Give one of the documents another id, or read the log with read_log."
        )
    return vocabulary, PairNumbers(hashes, number[order])


def check_list_lengths(lists: int, ranks: int | None, bad: int, first: str | None, by: By | None = None) -> int:
    """The length of the longest list of a log, where there is one and no list breaks a rule."""
    if bad:
        raise DataError(
            f"{first} ({bad:,} of {lists:,} lists break a rule). Mend them, or drop them with a WHERE clause."
        )
    if not ranks:
        raise DataError("the log is empty: there must be at least one session with one result.")
    if by == "prefix" and ranks > _LONGEST_PREFIX:
        raise DataError(
            f"counting by all clicks above needs lists of at most {_LONGEST_PREFIX}: got {ranks}. "
            "Cut the lists, or use a model that looks at the last click only."
        )
    return ranks


def cells_of(table: ArrowTable, vocabulary: Vocabulary, pair: Int[np.ndarray, " row"], n_ranks: int, by: By) -> Cells:
    """From rows (place from 1, above, impressions, clicks) and their pairs' numbers."""
    first = np.array([count_situations(by, rank) for rank in range(n_ranks)])
    situation = first[np.asarray(table["place"]) - 1] + np.asarray(table["above"])
    order = np.argsort(pair * np.int64(count_situations(by, n_ranks)) + situation)
    impressions, clicks = (np.asarray(table[name], np.float64)[order] for name in ("impressions", "clicks"))
    return Cells(vocabulary, n_ranks, by, pair[order].astype(np.int64), situation[order], impressions, clicks)


def sessions_of(table: ArrowTable, vocabulary: Vocabulary, pair: Int[np.ndarray, " result"], n_ranks: int) -> Sessions:
    """Sessions of lists (pairs, clicks, times), with the numbers of all their pairs one after the other."""
    import pyarrow.compute as pc

    length = np.asarray(pc.list_value_length(table["pairs"]))
    shown = np.arange(n_ranks) < length[:, None]
    pairs, click = np.full(shown.shape, UNSEEN, np.int32), np.zeros(shown.shape, bool)
    pairs[shown], click[shown] = pair, np.asarray(pc.list_flatten(table["clicks"]))
    query = vocabulary.pair_query[pairs[:, 0]]
    return Sessions(Rankings(vocabulary, query, pairs, shown), click, np.asarray(table["times"]).astype(np.int64))
