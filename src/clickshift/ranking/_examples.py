"""Training examples of a ranker, and how they are packed into batches of queries.

A document occurs once per query, however often and wherever it was shown. A batch is packed: the documents of its
queries are concatenated and padded to the longest batch, instead of padding each list to the longest list.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int

from clickshift.counts.cells import Cells
from clickshift.errors import DataError
from clickshift.ranking.labels import sessions_by_query

Batches = dict[str, np.ndarray]
"""Arrays with one row per batch: "pair" (the documents; padded with the number of pairs), "query" (the slot of their
query in the batch), "queries" (the number of queries). Where a document may have several loss terms also "term" (the
terms; padded with the number of terms) and "place" (the position of each term's document in the batch)."""


@dataclass(frozen=True, eq=False)
class Examples:
    """Queries with sessions, their documents with information, and the loss terms, sorted by pair.

    Parameters
    ----------
    n_pairs
        Number of pairs of the corpus.
    pair
        The pair of every document.
    start
        Index of the first document of each query, and the number of documents.
    terms
        Columns that the loss is computed from, by name: one row per pair of the corpus, or per cell.
    cell_pair
        The pair of every cell, where the terms are cells.
    cell_start
        Index of the first cell of each query, and the number of cells.
    """

    n_pairs: int
    pair: Int[np.ndarray, " document"]
    start: Int[np.ndarray, " query_and_end"]
    terms: dict[str, Float[np.ndarray, " term"] | Int[np.ndarray, " term"]]
    cell_pair: Int[np.ndarray, " cell"] | None = None
    cell_start: Int[np.ndarray, " query_and_end"] = field(default_factory=lambda: np.zeros(1, np.int64))

    @property
    def n_queries(self) -> int:
        """Number of queries."""
        return len(self.start) - 1

    @property
    def length(self) -> Int[np.ndarray, " query"]:
        """Number of documents of each query."""
        return np.diff(self.start)

    @property
    def n_terms(self) -> int:
        """Number of rows of the loss terms."""
        return len(next(iter(self.terms.values())))

    def widths(self, assignment: Int[np.ndarray, "*round batch slot"]) -> tuple[int, int]:
        """Return the largest number of documents and of terms in a batch."""
        starts = (self.start,) if self.cell_pair is None else (self.start, self.cell_start)
        widest = [int(np.append(np.diff(start), 0)[assignment].sum(axis=-1).max()) for start in starts]
        return widest[0], widest[-1]

    def packed(self, assignment: Int[np.ndarray, "batch slot"], widths: tuple[int, int]) -> Batches:
        """Pack the documents and terms of the queries of each batch; -1 marks an empty slot of the assignment."""
        n_batches, n_slots = assignment.shape
        batch, slot = np.nonzero(assignment >= 0)
        query = assignment[batch, slot]
        index, entry_batch, position, first = _positions_in_batches(self.start, query, batch)
        entry_slot = np.repeat(slot, np.diff(self.start)[query])
        shape = n_batches, widths[0]
        packed = {
            "pair": _padded(self.pair[index], entry_batch, position, shape, self.n_pairs),
            "query": _padded(entry_slot, entry_batch, position, shape, n_slots),
            "queries": np.bincount(batch, minlength=n_batches).astype(np.float32),
        }
        if self.cell_pair is not None:
            term, entry_batch, position, _ = _positions_in_batches(self.cell_start, query, batch)
            size = np.diff(self.cell_start)[query]
            within_query = np.searchsorted(self.pair, self.cell_pair[term]) - np.repeat(self.start[query], size)
            shape = n_batches, widths[1]
            packed["term"] = _padded(term, entry_batch, position, shape, self.n_terms)
            packed["place"] = _padded(within_query + np.repeat(first, size), entry_batch, position, shape, 0)
        return packed


def build_examples(cells: Cells, terms: dict[str, np.ndarray], *, by_cell: bool, by_traffic: bool) -> Examples:
    """Build the training examples of a log's counts.

    Parameters
    ----------
    cells
        Impressions and clicks by pair and rank.
    terms
        Columns of the loss terms. Those named "positive" and "total" are weights: they are divided by the mean number
        of sessions per query, so that a query weighs 1 on average, or by the query's own number of sessions, so that
        every query weighs 1.
    by_cell
        Whether the terms have one row per cell; otherwise one per pair.
    by_traffic
        Whether a query is weighted by its number of sessions.

    Raises
    ------
    DataError
        If there are no counts ("no-common-documents").
    """
    if not len(cells.pair):
        raise DataError(
            "no document of the corpus was shown: there is nothing to learn from. Check that the log and the corpus "
            "use the same query and document ids.",
            code="no-common-documents",
        )
    vocabulary = cells.vocabulary
    sessions = sessions_by_query(cells)
    queries = np.flatnonzero(sessions)
    scale = np.full(vocabulary.n_queries, 1 / sessions[queries].mean())
    if not by_traffic:
        scale[queries] = 1 / sessions[queries]
    term_scale = scale[vocabulary.pair_query[cells.pair if by_cell else slice(None)]]
    terms = {name: term * term_scale if name in {"positive", "total"} else term for name, term in terms.items()}
    pair = np.unique(cells.pair) if by_cell else np.flatnonzero(terms["total"])
    return Examples(
        vocabulary.n_pairs,
        pair,
        np.append(np.searchsorted(vocabulary.pair_query[pair], queries), len(pair)),
        terms,
        cells.pair if by_cell else None,
        np.append(np.searchsorted(vocabulary.pair_query[cells.pair], queries), len(cells.pair)),
    )


def shuffled_batches(
    length: Int[np.ndarray, " query"], size: int, rounds: int, rng: np.random.Generator
) -> Int[np.ndarray, "round batch slot"]:
    """Assign queries to batches of up to `size` at random, independently for every round; -1 marks an empty slot.

    Queries are sorted by list length and spread over the batches in that order, one to each batch at random. All
    batches then have about the same number of documents, and little padding. Lists of equal length are assigned
    uniformly at random.
    """
    n = len(length)
    batches = -(-n // size)
    slots = np.full((rounds, -(-n // batches) * batches), -1, np.int32)
    for row in slots:  # one round after the other, so that more rounds do not change the first ones
        row[:n] = np.argsort(rng.random(n) - length)  # the longest first, equal ones shuffled
        row[:] = rng.permuted(row.reshape(-1, batches), axis=1).ravel()
    return slots.reshape(rounds, -1, batches).swapaxes(1, 2)


def ordered_batches(n_queries: int, size: int) -> Int[np.ndarray, "batch slot"]:
    """Assign queries to batches of `size` in their order; -1 marks an empty slot."""
    batches = -(-n_queries // size)
    slots = np.full(batches * min(size, n_queries), -1, np.int32)
    slots[:n_queries] = np.arange(n_queries)
    return slots.reshape(batches, -1)


def _positions_in_batches(
    start: np.ndarray, query: np.ndarray, batch: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return index, batch and position in the batch of the queries' entries, and each query's first position."""
    size = np.diff(start)[query]
    before = np.cumsum(size) - size
    first = before - before[np.searchsorted(batch, batch)]  # within its batch
    within = np.arange(size.sum()) - np.repeat(before, size)
    return np.repeat(start[query], size) + within, np.repeat(batch, size), np.repeat(first, size) + within, first


def _padded(
    values: np.ndarray, batch: np.ndarray, position: np.ndarray, shape: tuple[int, int], fill: int
) -> Int[np.ndarray, "batch width"]:
    """Scatter values to their batch and position in an array of padding."""
    padded = np.full(shape, fill, np.int32)
    padded[batch, position] = values
    return padded
