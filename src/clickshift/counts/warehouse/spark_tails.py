"""The counts of cascades where the lists are on a Spark cluster.

Lists are sorted into pieces once and stay there, each piece with numbers of its own for the pairs that it has. For an
E-step parameters go out and sums come back, so that what travels is of the size of the parameters, not of the log.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from clickshift.core.unique_rows import distinct_sorted
from clickshift.counts.cascade import Cascade
from clickshift.counts.tail_e_step import EStepSums, ExpectedTails, TailTransitions, TransitionDerivatives
from clickshift.counts.tails import TailsByShape, run_e_step
from clickshift.counts.warehouse.results import PairNumbers, sessions_of
from clickshift.data.vocabulary import Vocabulary

Batches = Iterator[Any]  # of pyarrow.RecordBatch
SparkRow = dict[str, Any]

_PAIR_TABLES = ("impressions", "examined", "clicks", "followed", "open_last", "first_examined", "first_clicks")
_RANK_TABLES = ("followed_at_rank", "open_last_at_rank")
_SHAPES = {"start": np.int64, "length": np.int64, "sessions": np.int64}
_TAILS = {**_SHAPES, "pair": np.uint32, "count": np.float64}
_COUNTS = {"number": np.int32, "tables": np.float64, "ranks": np.float64, "weight": np.float64}
_PIECE = ", ".join(f"{name} BINARY" for name in (*_TAILS, *_COUNTS)) + ", passed DOUBLE"
_SUMS = {"number": np.int32, **dict.fromkeys(EStepSums._fields, np.float64)}
_LISTS_IN_A_PIECE = 1 << 18


class CachedPieces:
    """A table of pieces, kept by the cluster as long as anybody here has a use for it."""

    def __init__(self, table: Any) -> None:
        self.table = table.persist()  # in memory, and on disk where that is full
        weakref.finalize(self, _release, self.table).atexit = False


def _release(table: Any) -> None:
    with suppress(Exception):  # a session that has ended has released it
        table.unpersist()


@dataclass(frozen=True, eq=False)
class SparkTails:
    """Tails on a cluster, in pieces."""

    pieces: CachedPieces
    shapes: TailsByShape
    """One tail of each shape, with the number of all of them."""

    def expect(self, walk: TailTransitions, turns: TransitionDerivatives | None = None) -> ExpectedTails:
        """One row per piece comes back, with sums over the pairs that it has."""
        table = self.pieces.table
        given = tuple(walk), None if turns is None else tuple(turns)
        parameters = table.sparkSession.sparkContext.broadcast(given)
        work = partial(_expect, parameters)
        found = table.mapInArrow(work, ", ".join(f"{name} BINARY" for name in _SUMS)).toArrow().to_batches()
        parameters.destroy()
        total = EStepSums.zeros(walk, turns)
        for row in _rows(found):
            piece = _numbers(row, _SUMS)
            for name in ("below", "clicked"):
                table_of = getattr(total, name)
                table_of[piece["number"]] += piece[name].reshape(-1, table_of.shape[1])  # a piece has a pair once
            for name in ("ranks", "totals"):
                sums = getattr(total, name)
                sums += piece[name].reshape(sums.shape)
        return total.tails()

    @property
    def parts(self) -> Sequence[TailsByShape]:
        return []

    def alike(self) -> TailsByShape:
        """One tail of each shape, as if all documents were pair 0; these are here."""
        return self.shapes


def cascade_of(lists: Any, vocabulary: Vocabulary, numbers: PairNumbers, n_ranks: int) -> Cascade:
    """Count the lists (pairs, clicks, times) of a data frame."""
    known = lists.sparkSession.sparkContext.broadcast(numbers)
    pieces = CachedPieces(lists.mapInArrow(partial(_sort, known, n_ranks), _PIECE))
    wanted = pieces.table.select("number", "tables", "ranks", "weight", "passed", *_SHAPES)
    rows = [_numbers(row, _COUNTS | _SHAPES) for row in _rows(wanted.toArrow().to_batches())]
    tables = np.zeros((len(_PAIR_TABLES), vocabulary.n_pairs + 1))
    for row in rows:
        tables[:, row["number"]] += row["tables"].reshape(len(tables), -1)
    ranks = np.sum([row["ranks"] for row in rows], axis=0).reshape(len(_RANK_TABLES), n_ranks)
    tails = SparkTails(pieces, _shapes(rows))
    return Cascade(
        vocabulary=vocabulary,
        n_ranks=n_ranks,
        sort_tails=lambda: tails,
        passed=float(sum(row["passed"] for row in rows)),
        **dict(zip(_PAIR_TABLES, tables, strict=True)),
        **dict(zip(_RANK_TABLES, ranks, strict=True)),
    )


def _shapes(rows: list[SparkRow]) -> TailsByShape:
    start, length, weight = (np.concatenate([row[name] for row in rows]) for name in ("start", "length", "weight"))
    shape, place = np.unique(np.stack([start, length], axis=1), axis=0, return_inverse=True)
    one = TailsByShape.empty(shape[:, 0].copy(), shape[:, 1].copy(), np.ones(len(shape), np.int64))
    return replace(one, count=np.bincount(place.ravel(), weight, len(shape)).astype(np.float64))


def _sort(known: Any, n_ranks: int, batches: Batches) -> Batches:
    """On a worker: pieces of the lists of a partition, counted and with their tails sorted."""
    one_thread()
    some, size = [], 0
    for batch in batches:
        some.append(batch)
        size += batch.num_rows
        if size >= _LISTS_IN_A_PIECE:
            yield _piece(known.value, n_ranks, some)
            some, size = [], 0
    if size:
        yield _piece(known.value, n_ranks, some)


def _piece(numbers: PairNumbers, n_ranks: int, batches: list[Any]) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    table = pa.Table.from_batches(batches)
    hashes, pair = distinct_sorted(pc.list_flatten(table["pairs"]).to_numpy())
    own, zero = np.arange(len(hashes)), np.zeros(len(hashes), np.int64)
    found = Cascade.of(sessions_of(table, Vocabulary(zero[:1], own, zero, own), pair, n_ranks))
    tails = found.tails
    assert isinstance(tails, TailsByShape)
    row = {name: getattr(tails, name) for name in _TAILS}
    row["number"] = numbers.of(hashes)
    row["tables"] = np.stack([getattr(found, name)[:-1] for name in _PAIR_TABLES])
    row["ranks"] = np.stack([getattr(found, name) for name in _RANK_TABLES])
    row["weight"] = tails.alike().count
    return _batch(row, _TAILS | _COUNTS, passed=found.passed)


def _expect(parameters: Any, batches: Batches) -> Batches:
    """On a worker: the sums of each piece of a partition."""
    one_thread()
    (skip, g, h_pair, h_rank), turns = parameters.value
    for row in _rows(batches):
        piece = _numbers(row, _TAILS | {"number": np.int32})
        tails = TailsByShape(*(piece[name] for name in _TAILS))
        own = np.append(piece["number"], -1)  # the last row is that of UNSEEN
        some = (
            None if turns is None else TransitionDerivatives(turns[0], np.ascontiguousarray(turns[1][:, own]), turns[2])
        )
        sums = run_e_step([tails], TailTransitions(skip[own], g, h_pair[own], h_rank), some)
        found = {"below": sums.below[:-1], "clicked": sums.clicked[:-1], "ranks": sums.ranks, "totals": sums.totals}
        yield _batch({"number": piece["number"], **found}, _SUMS)


def one_thread() -> None:
    """A task has one core: others are at work on the rest."""
    os.environ.setdefault("CLICKSHIFT_THREADS", "1")


def _batch(row: SparkRow, kinds: dict[str, Any], **values: float) -> Any:
    """One row of arrays, as bytes."""
    import pyarrow as pa

    return pa.RecordBatch.from_pydict(
        {name: pa.array([np.ascontiguousarray(row[name], kind).tobytes()], pa.binary()) for name, kind in kinds.items()}
        | {name: [value] for name, value in values.items()}
    )


def _rows(batches: Any) -> Iterator[SparkRow]:
    for batch in batches:
        for at in range(batch.num_rows):
            yield {name: batch.column(name)[at] for name in batch.schema.names}


def _numbers(row: SparkRow, kinds: dict[str, Any]) -> SparkRow:
    """The arrays of a row, where they lie."""
    return {
        name: np.frombuffer(value.as_buffer(), kinds[name]) if name in kinds else value.as_py()
        for name, value in row.items()
        if name in kinds or name == "passed"
    }
