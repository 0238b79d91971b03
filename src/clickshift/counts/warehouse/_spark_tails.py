"""Cascade counts of lists on a Spark cluster.

Lists are sorted into pieces once and stay on the cluster; each piece has its own numbers for its pairs. For an E-step,
parameters are sent out and sums come back, so the traffic has the size of the parameters, not of the log.
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
from clickshift.counts.tails import TailsByShape, TailsInParts, run_e_step
from clickshift.counts.warehouse._results import PairNumbers, sessions_of
from clickshift.data.vocabulary import Vocabulary

Batches = Iterator[Any]
"""Iterator over pyarrow.RecordBatch."""
SparkRow = dict[str, Any]

_PAIR_TABLES = ("impressions", "examined", "clicks", "followed", "open_last", "first_examined", "first_clicks")
_RANK_TABLES = ("followed_at_rank", "open_last_at_rank")
_SHAPES = {"start": np.int64, "length": np.int64, "sessions": np.int64}
_TAILS = {**_SHAPES, "pair": np.uint32, "count": np.float64}
_COUNTS = {"number": np.int32, "tables": np.float64, "ranks": np.float64}
_POOLED = {f"pooled_{name}": dtype for name, dtype in _TAILS.items()}
_PIECE = ", ".join(f"{name} BINARY" for name in (*_TAILS, *_COUNTS, *_POOLED)) + ", passed DOUBLE"
_SUMS = {"number": np.int32, **dict.fromkeys(EStepSums._fields, np.float64)}
"""Columns of Spark tables and their types: shapes, tails, counts and pooled tails of a piece, and sums of an E-step."""
_LISTS_IN_A_PIECE = 1 << 18
"""Number of lists from which a piece is complete."""


class _CachedPieces:
    """Table of pieces that the cluster keeps until this object is garbage-collected."""

    def __init__(self, table: Any) -> None:
        self.table = table.persist()  # in memory, or on disk if memory is full
        weakref.finalize(self, _release, self.table).atexit = False


def _release(table: Any) -> None:
    """Release a persisted table."""
    with suppress(Exception):  # if the Spark session has ended, the table is released already
        table.unpersist()


@dataclass(frozen=True, eq=False)
class SparkTails:
    """Tails on a Spark cluster, in pieces.

    Parameters
    ----------
    pieces
        Table of pieces on the cluster.
    shapes
        One tail of each shape, and of its holes, with their total count.
    """

    pieces: _CachedPieces
    shapes: TailsByShape

    def expect(self, walk: TailTransitions, turns: TransitionDerivatives | None = None) -> ExpectedTails:
        """Run the E-step as a Spark job; each piece returns one row, with sums over the pairs that it contains."""
        table = self.pieces.table
        values = tuple(walk), None if turns is None else tuple(turns)
        parameters = table.sparkSession.sparkContext.broadcast(values)
        work = partial(_e_step_partition, parameters)
        batches = table.mapInArrow(work, ", ".join(f"{name} BINARY" for name in _SUMS)).toArrow().to_batches()
        parameters.destroy()
        total = EStepSums.zeros(walk, turns)
        for row in _rows(batches):
            piece = _to_arrays(row, _SUMS)
            for name in ("below", "clicked"):
                sums = getattr(total, name)
                sums[piece["number"]] += piece[name].reshape(-1, sums.shape[1])  # pairs are distinct within a piece
            for name in ("ranks", "totals"):
                sums = getattr(total, name)
                sums += piece[name].reshape(sums.shape)
        return total.tails()

    @property
    def parts(self) -> Sequence[TailsByShape]:
        """No parts: the tails are on the cluster."""
        return []

    def pooled(self) -> TailsByShape:
        """Return one tail of each shape, and of its holes, as if all documents were pair 0; these are in memory."""
        return self.shapes


def cascade_of(lists: Any, vocabulary: Vocabulary, numbers: PairNumbers, n_ranks: int) -> Cascade:
    """Count the lists (pair hashes, clicks, times: the count) of a data frame."""
    shared_numbers = lists.sparkSession.sparkContext.broadcast(numbers)
    pieces = _CachedPieces(lists.mapInArrow(partial(_sort_partition, shared_numbers, n_ranks), _PIECE))
    wanted = pieces.table.select(*_COUNTS, *_POOLED, "passed")
    rows = [_to_arrays(row, _COUNTS | _POOLED) for row in _rows(wanted.toArrow().to_batches())]
    tables = np.zeros((len(_PAIR_TABLES), vocabulary.n_pairs + 1))
    for row in rows:
        tables[:, row["number"]] += row["tables"].reshape(len(tables), -1)
    ranks = np.sum([row["ranks"] for row in rows], axis=0).reshape(len(_RANK_TABLES), n_ranks)
    pooled = TailsInParts([_tails(row, 1, "pooled_") for row in rows]).pooled()
    tails = SparkTails(pieces, pooled)
    columns: dict[str, Any] = dict(zip(_PAIR_TABLES, tables, strict=True))
    columns |= dict(zip(_RANK_TABLES, ranks, strict=True))
    return Cascade(
        vocabulary=vocabulary,
        n_ranks=n_ranks,
        sort_tails=lambda: tails,
        passed=float(sum(row["passed"] for row in rows)),
        **columns,
    )


def _tails(piece: SparkRow, n_pairs: int, prefix: str = "") -> TailsByShape:
    """Return the tails of a piece, whose own pairs are numbered from 0; a hole is the second number after them."""
    tails = TailsByShape(**{name: piece[prefix + name] for name in _TAILS})
    return replace(tails, hole=n_pairs + 1) if tails.pair.max(initial=0) > n_pairs else tails


def _sort_partition(numbers: Any, n_ranks: int, batches: Batches) -> Batches:
    """On a worker: divide the lists of a partition into pieces, count them and sort their tails."""
    _use_one_thread()
    piece, size = [], 0
    for batch in batches:
        piece.append(batch)
        size += batch.num_rows
        if size >= _LISTS_IN_A_PIECE:
            yield _make_piece(numbers.value, n_ranks, piece)
            piece, size = [], 0
    if size:
        yield _make_piece(numbers.value, n_ranks, piece)


def _make_piece(numbers: PairNumbers, n_ranks: int, batches: list[Any]) -> Any:
    """Count some lists in pair numbers of their own, and return the counts and sorted tails as one row."""
    import pyarrow as pa
    import pyarrow.compute as pc

    table = pa.Table.from_batches(batches)
    hashes, pair = distinct_sorted(pc.list_flatten(table["pairs"]).to_numpy())
    own_number, zero = np.arange(len(hashes)), np.zeros(len(hashes), np.int64)
    counts = Cascade.of(sessions_of(table, Vocabulary(zero[:1], own_number, zero, own_number), pair, n_ranks))
    tails = counts.tails
    assert isinstance(tails, TailsByShape)
    row = {name: getattr(tails, name) for name in _TAILS}
    row["number"] = numbers.of(hashes)
    row["tables"] = np.stack([getattr(counts, name)[:-1] for name in _PAIR_TABLES])
    row["ranks"] = np.stack([getattr(counts, name) for name in _RANK_TABLES])
    pooled = tails.pooled()
    row |= {f"pooled_{name}": getattr(pooled, name) for name in _TAILS}
    return _to_batch(row, _TAILS | _COUNTS | _POOLED, passed=counts.passed)


def _e_step_partition(parameters: Any, batches: Batches) -> Batches:
    """On a worker: run the E-step on each piece of a partition."""
    _use_one_thread()
    (skip, g, h_pair, h_rank), turns = parameters.value
    for row in _rows(batches):
        piece = _to_arrays(row, _TAILS | {"number": np.int32})
        tails = _tails(piece, len(piece["number"]))
        number = np.append(piece["number"], -1)  # the last row belongs to UNSEEN
        derivatives = None
        if turns is not None:
            derivatives = TransitionDerivatives(turns[0], np.ascontiguousarray(turns[1][:, number]), turns[2])
        sums = run_e_step([tails], TailTransitions(skip[number], g, h_pair[number], h_rank), derivatives)
        by_name = {"below": sums.below[:-1], "clicked": sums.clicked[:-1], "ranks": sums.ranks, "totals": sums.totals}
        yield _to_batch({"number": piece["number"], **by_name}, _SUMS)


def _use_one_thread() -> None:
    """Use one thread, since a Spark task has one core."""
    os.environ.setdefault("CLICKSHIFT_THREADS", "1")


def _to_batch(row: SparkRow, dtypes: dict[str, Any], **values: float) -> Any:
    """Return one row of arrays as a record batch of bytes."""
    import pyarrow as pa

    return pa.RecordBatch.from_pydict(
        {
            name: pa.array([np.ascontiguousarray(row[name], dtype).tobytes()], pa.binary())
            for name, dtype in dtypes.items()
        }
        | {name: [value] for name, value in values.items()}
    )


def _rows(batches: Any) -> Iterator[SparkRow]:
    """Yield the rows of record batches."""
    for batch in batches:
        for row in range(batch.num_rows):
            yield {name: batch.column(name)[row] for name in batch.schema.names}


def _to_arrays(row: SparkRow, dtypes: dict[str, Any]) -> SparkRow:
    """Return the arrays of a row, without copying."""
    return {
        name: np.frombuffer(value.as_buffer(), dtypes[name]) if name in dtypes else value.as_py()
        for name, value in row.items()
        if name in dtypes or name == "passed"
    }
