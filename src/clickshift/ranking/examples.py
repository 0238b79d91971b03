"""Examples: what a ranker learns from, and how it is packed into batches of queries.

A document is there once per query, however often and wherever it was shown. A batch is packed: the documents of its
queries one after the other, filled up to the longest batch, not each list to the longest list.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int

from clickshift.counts.cells import Cells
from clickshift.errors import DataError
from clickshift.ranking.labels import sessions_by_query

Batches = dict[str, np.ndarray]
"""Arrays with one row per batch: "pair" (the documents; one beyond the last number fills up), "query" (the place of
their query in the batch), "queries" (how many there are). Where a document may have several terms also "term" (the
numbers of the terms; one beyond the last fills up) and "place" (where the document of each stands in the batch)."""


@dataclass(frozen=True, eq=False)
class Examples:
    """Queries with sessions, their documents of which something is known, and the terms of the loss, sorted by pair."""

    n_pairs: int
    pair: Int[np.ndarray, " document"]
    start: Int[np.ndarray, " query_and_end"]
    """Where the documents of each query begin."""
    terms: dict[str, Float[np.ndarray, " term"] | Int[np.ndarray, " term"]]
    """Numbers that the loss is computed from, by name: one row per pair of the corpus, or per cell."""
    cell_pair: Int[np.ndarray, " cell"] | None = None
    """The document of every cell, where the terms are cells."""
    cell_start: Int[np.ndarray, " query_and_end"] = field(default_factory=lambda: np.zeros(1, np.int64))

    @property
    def n_queries(self) -> int:
        return len(self.start) - 1

    @property
    def length(self) -> Int[np.ndarray, " query"]:
        """How many documents each query has."""
        return np.diff(self.start)

    @property
    def n_terms(self) -> int:
        return len(next(iter(self.terms.values())))

    def widths(self, dealt: Int[np.ndarray, "*round batch place"]) -> tuple[int, int]:
        """The most documents and terms of a batch."""
        parts = (self.start,) if self.cell_pair is None else (self.start, self.cell_start)
        widest = [int(np.append(np.diff(part), 0)[dealt].sum(axis=-1).max()) for part in parts]
        return widest[0], widest[-1]

    def packed(self, dealt: Int[np.ndarray, "batch place"], widths: tuple[int, int]) -> Batches:
        """The queries of each batch, -1 where it has no more, with their documents and terms."""
        n, most = dealt.shape
        batch, place_of_query = np.nonzero(dealt >= 0)
        order = dealt[batch, place_of_query]
        taken, its_batch, place, first = _in_batches(self.start, order, batch)
        query = np.repeat(place_of_query, np.diff(self.start)[order])
        shape = n, widths[0]
        out = {
            "pair": _spread(self.pair[taken], its_batch, place, shape, self.n_pairs),
            "query": _spread(query, its_batch, place, shape, most),
            "queries": np.bincount(batch, minlength=n).astype(np.float32),
        }
        if self.cell_pair is not None:
            term, its_batch, place, _ = _in_batches(self.cell_start, order, batch)
            size = np.diff(self.cell_start)[order]
            row = np.searchsorted(self.pair, self.cell_pair[term]) - np.repeat(self.start[order], size)
            shape = n, widths[1]
            out["term"] = _spread(term, its_batch, place, shape, self.n_terms)
            out["place"] = _spread(row + np.repeat(first, size), its_batch, place, shape, 0)
        return out


def examples(cells: Cells, terms: dict[str, np.ndarray], *, by_cell: bool, by_traffic: bool) -> Examples:
    """Of a log's counts. Weights ("positive" and "total") are divided by the mean sessions of a query, or each query's
    by its own sessions, so that a query weighs 1 on average, or always."""
    if not len(cells.pair):
        raise DataError("the clicks are on no document of the corpus: there is nothing to learn.")
    words = cells.vocabulary
    sessions = sessions_by_query(cells)
    seen = np.flatnonzero(sessions)
    scale = np.full(words.n_queries, 1 / sessions[seen].mean())
    if not by_traffic:
        scale[seen] = 1 / sessions[seen]
    its_scale = scale[words.pair_query[cells.pair if by_cell else slice(None)]]
    terms = {name: term * its_scale if name in {"positive", "total"} else term for name, term in terms.items()}
    shown = np.unique(cells.pair) if by_cell else np.flatnonzero(terms["total"])
    return Examples(
        words.n_pairs,
        shown,
        np.append(np.searchsorted(words.pair_query[shown], seen), len(shown)),
        terms,
        cells.pair if by_cell else None,
        np.append(np.searchsorted(words.pair_query[cells.pair], seen), len(cells.pair)),
    )


def shuffled_batches(
    length: Int[np.ndarray, " query"], size: int, rounds: int, rng: np.random.Generator
) -> Int[np.ndarray, "round batch place"]:
    """Queries dealt to batches of up to `size`, anew for every round; -1 where a batch has one less than others.

    Lists of about the same length are dealt one to each batch, at random. So all batches have about as many documents,
    and little fills them up; lists that are all of one length are dealt like cards.
    """
    n = len(length)
    batches = -(-n // size)
    cards = np.full((rounds, -(-n // batches) * batches), -1, np.int32)
    for row in cards:  # one after the other, so that more rounds do not change the first ones
        row[:n] = np.argsort(rng.random(n) - length)  # the longest first, equal ones shuffled
        row[:] = rng.permuted(row.reshape(-1, batches), axis=1).ravel()
    return cards.reshape(rounds, -1, batches).swapaxes(1, 2)


def ordered_batches(n_queries: int, size: int) -> Int[np.ndarray, "batch place"]:
    """Queries as they stand, in batches of `size`."""
    batches = -(-n_queries // size)
    dealt = np.full(batches * min(size, n_queries), -1, np.int32)
    dealt[:n_queries] = np.arange(n_queries)
    return dealt.reshape(batches, -1)


def _in_batches(
    start: np.ndarray, order: np.ndarray, batch: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The entries of queries in this order: their numbers, batches, places in the batch, and where queries begin."""
    size = np.diff(start)[order]
    before = np.cumsum(size) - size
    first = before - before[np.searchsorted(batch, batch)]  # within its batch
    within = np.arange(size.sum()) - np.repeat(before, size)
    return np.repeat(start[order], size) + within, np.repeat(batch, size), np.repeat(first, size) + within, first


def _spread(
    values: np.ndarray, batch: np.ndarray, place: np.ndarray, shape: tuple[int, int], fill: int
) -> Int[np.ndarray, "batch width"]:
    out = np.full(shape, fill, np.int32)
    out[batch, place] = values
    return out
