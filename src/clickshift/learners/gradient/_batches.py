"""Batches: sessions dealt once into equal heaps, each counted once, so that a step computes nothing twice.

A batch knows its distinct pairs: a tower is computed once for each of them, not once for each result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import pairwise

import numpy as np
from jaxtyping import Int

from clickshift.core.tempfiles import ANYWHERE, ArraySpool, TemporaryStorage
from clickshift.core.unique_rows import distinct_rows
from clickshift.data import encoded_log
from clickshift.data.encoded_log import EncodedLog
from clickshift.learners.gradient._encoding import EncodedSessions

_MIN_BATCHES, _MIN_BATCH_SIZE = 64, 32
"""A small log gets smaller batches, so that an epoch has 64 of them; but not smaller than 32 sessions."""
RESIDENT_BYTES = 1 << 30
"""Bytes of batches that are kept in memory; more are kept in a file, and streamed from it."""
_BYTES_PER_RESULT = 100
"""Bytes that a result of a log takes while it becomes batches in memory, about."""
_REPORT_EVERY = 1000
"""Batches after which `progress` hears of them."""

Batch = dict[str, np.ndarray]
BatchRows = slice | np.ndarray
Progress = Callable[[str], None]


def load_if_small(log: encoded_log.Log) -> encoded_log.Log:
    """A log on disk that is small enough as sessions in memory, any other as it is."""
    small = len(log) * log.n_ranks * _BYTES_PER_RESULT <= RESIDENT_BYTES
    return log.sessions() if small and isinstance(log, EncodedLog) else log


def deal_batches(log: EncodedSessions, size: int, *, rng: np.random.Generator | None) -> list[BatchRows]:
    """The rows of each batch, about `size` of them; as they stand where a log is in random order already (rng None).

    A small log gets smaller batches: it must not be learned by heart before held-out sessions are looked at.
    """
    rows = len(log)
    size = min(size, max(rows // _MIN_BATCHES, _MIN_BATCH_SIZE))
    heaps = -(-rows // size)
    if rng is None:
        return [slice(*bounds) for bounds in pairwise(rows * k // heaps for k in range(heaps + 1))]
    return [*np.array_split(rng.permutation(rows), heaps)]


def training_batches(
    log: EncodedSessions,
    heaps: Sequence[BatchRows],
    tables: Mapping[str, Int[np.ndarray, " pair"]],
    scratch: TemporaryStorage = ANYWHERE,
    progress: Progress = lambda said: None,
) -> Batch:
    """Each heap with its distinct pairs numbered from 0, and what a tower needs for them.

    `tables` say, for every table of the tower, in which row each pair stands. "row.<table>" are the distinct rows of a
    batch, "place.<table>" says for each distinct pair where its row stands among them.
    """

    def batch(k: int) -> Batch:
        heap = log[heaps[k]]
        pairs, place = np.unique(heap.pair[heap.shown], return_inverse=True)
        made = _loss_arrays(heap, place)
        for name, row_of_pair in tables.items():
            made[f"row.{name}"], made[f"place.{name}"] = np.unique(row_of_pair[pairs], return_inverse=True)
        return made

    beyond = {f"row.{name}": int(rows.max()) + 1 for name, rows in tables.items()}
    return _stack_batches(batch, len(heaps), beyond, scratch, progress)


def held_out_batches(
    log: EncodedSessions, size: int, scratch: TemporaryStorage = ANYWHERE, progress: Progress = lambda said: None
) -> Batch:
    """Slices of a log with pairs by their own numbers: the outputs of all pairs are at hand when it is judged."""

    def batch(k: int) -> Batch:
        part = log[k * size : (k + 1) * size]
        return _loss_arrays(part, part.pair[part.shown].astype(np.int64))

    return _stack_batches(batch, -(-len(log) // size), {}, scratch, progress)


def _loss_arrays(log: EncodedSessions, place: Int[np.ndarray, " result"]) -> Batch:
    """What a loss is computed from, with `place` the number of the pair of each result that is shown.

    From counts, one entry per pair and situation: "cell.pair", "cell.situation", "impressions", "clicks".
    As a tree, for every rank one entry per branch: see `_tree_arrays`. Else one per result: "pair", "click", and "weight",
    which is 0 where nothing is shown.
    """
    if log.as_tree:
        return _tree_arrays(log, place)
    weight = np.broadcast_to(log.count[:, None], log.shown.shape)
    if log.situation is None:
        pair = np.zeros(log.shown.shape, np.int64)
        pair[log.shown] = place
        return {"pair": pair, "click": log.click, "weight": np.where(log.shown, weight, 0.0)}
    n_situations = int(log.situation.max()) + 1
    key, cell = np.unique(place * n_situations + log.situation[log.shown], return_inverse=True)
    pair, situation = np.divmod(key, n_situations)
    times = weight[log.shown]
    return {
        "cell.pair": pair,
        "cell.situation": situation,
        "impressions": np.bincount(cell, times, len(key)),
        "clicks": np.bincount(cell, times * log.click[log.shown], len(key)),
    }


def _tree_arrays(log: EncodedSessions, place: Int[np.ndarray, " result"]) -> Batch:
    """For every rank r the distinct beginnings of lists: "pair.r", "above.r" (was the result above clicked), "parent.r"
    (the beginning without this result), "impressions.r" and "clicks.r"."""
    pair = np.full(log.shown.shape, -1, np.int64)
    pair[log.shown] = place
    branch = np.zeros(len(pair), np.int64)
    out: Batch = {}
    for rank in range(log.shown.shape[1]):
        rows = np.flatnonzero(log.shown[:, rank])
        above = log.click[rows, rank - 1].astype(np.int64) if rank else np.zeros(len(rows), np.int64)
        group, first = distinct_rows(np.stack([branch[rows], pair[rows, rank], above], axis=1))
        out[f"pair.{rank}"], out[f"above.{rank}"] = pair[rows[first], rank], above[first].astype(np.float64)
        out[f"parent.{rank}"] = branch[rows[first]]
        times = log.count[rows]
        out[f"impressions.{rank}"] = np.bincount(group, times, len(first))
        out[f"clicks.{rank}"] = np.bincount(group, times * log.click[rows, rank], len(first))
        branch[rows] = group
    return out


def _stack_batches(
    batch: Callable[[int], Batch], n: int, beyond: Mapping[str, int], scratch: TemporaryStorage, progress: Progress
) -> Batch:
    """Batches of different sizes as one array each.

    What would take much memory is kept in files: as it is made, and then, when it is known how wide it is, filled up.
    """
    first = batch(0)
    if n * sum(array.nbytes for array in first.values()) <= 2 * RESIDENT_BYTES:  # integers are halved
        made = [_to_device_types(batch(k)) for k in range(n)]
        return {name: np.stack([*_pad_to_longest([one[name] for one in made], beyond.get(name))]) for name in first}
    out: Batch = {}
    with ExitStack() as files:
        spools = {name: files.enter_context(ArraySpool(scratch)) for name in first}
        for k in range(n):
            for name, array in _to_device_types(batch(k)).items():
                spools[name].append(array)
            if (k + 1) % _REPORT_EVERY == 0:
                progress(f"{k + 1:,} of {n:,} batches counted")
        for name, spool in spools.items():
            with spool, ArraySpool(scratch) as filled:
                for array in _pad_to_longest(spool, beyond.get(name)):
                    filled.append(array[None])
                out[name] = filled.whole
    return out


def _to_device_types(batch: Batch) -> Batch:
    """In the numbers that a device computes with."""
    kinds: dict[str, type] = {"f": np.float32, "b": np.bool_}
    return {name: array.astype(kinds.get(array.dtype.kind, np.int32)) for name, array in batch.items()}


def _pad_to_longest(arrays: Sequence[np.ndarray] | ArraySpool, beyond: int | None) -> Iterator[np.ndarray]:
    """All as long as the longest, with zeros, hence weight 0; but rows of tables with rows beyond the table's end, all
    different, so that every row is written once."""
    width = max(len(arrays[k]) for k in range(len(arrays)))
    filler = np.zeros((width, *arrays[0].shape[1:]), arrays[0].dtype)
    if beyond is not None:
        filler += beyond + np.arange(width, dtype=filler.dtype)
    for k in range(len(arrays)):
        yield np.concatenate([arrays[k], filler[len(arrays[k]) :]])
