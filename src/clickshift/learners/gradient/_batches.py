"""Batches: sessions are divided once into equal batches and each batch is counted once.

A batch has its distinct pairs, so that a step computes the tower once for each pair, not once for each result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import pairwise

import numpy as np
from jaxtyping import Int

from clickshift.core.progress import Progress, silent
from clickshift.core.tempfiles import SYSTEM_STORAGE, ArraySpool, TemporaryStorage
from clickshift.core.unique_rows import distinct_rows
from clickshift.data import encoded_log
from clickshift.data.encoded_log import EncodedLog
from clickshift.learners.gradient._encoding import EncodedSessions

_MIN_BATCHES, _MIN_BATCH_SIZE = 64, 32
"""A small log gets smaller batches, so that an epoch has 64 of them, but not smaller than 32 sessions."""
RESIDENT_BYTES = 1 << 30
"""Largest size of batches that are kept in memory, in bytes; larger ones are streamed from a file."""
_BYTES_PER_RESULT = 100
"""Approximate memory per result while a log is made into batches."""
_REPORT_EVERY = 1000
"""Number of batches between two calls of `progress`."""

Batch = dict[str, np.ndarray]
"""Arrays of a batch, or of all batches stacked, by name."""
BatchRows = slice | np.ndarray
"""Rows of the log that are in a batch."""


def load_if_small(log: encoded_log.Log) -> encoded_log.Log:
    """Load an encoded log that is small enough into memory; return any other log unchanged."""
    small = len(log) * log.n_ranks * _BYTES_PER_RESULT <= RESIDENT_BYTES
    return log.sessions() if small and isinstance(log, EncodedLog) else log


def deal_batches(log: EncodedSessions, size: int, *, rng: np.random.Generator | None) -> list[BatchRows]:
    """Divide a log into batches of about equal size.

    A small log gets smaller batches: it must not be overfitted before the held-out loss is first computed.

    Parameters
    ----------
    log
        The sessions.
    size
        Sessions in a batch, about.
    rng
        Random generator; None if the log is in random order already.

    Returns
    -------
    list
        Rows of each batch.
    """
    rows = len(log)
    size = min(size, max(rows // _MIN_BATCHES, _MIN_BATCH_SIZE))
    n_batches = -(-rows // size)
    if rng is None:
        return [slice(*bounds) for bounds in pairwise(rows * k // n_batches for k in range(n_batches + 1))]
    return [*np.array_split(rng.permutation(rows), n_batches)]


def training_batches(
    log: EncodedSessions,
    batch_rows: Sequence[BatchRows],
    tables: Mapping[str, Int[np.ndarray, " pair"]],
    scratch: TemporaryStorage = SYSTEM_STORAGE,
    progress: Progress = silent,
) -> Batch:
    """Make the training batches: counts over the distinct pairs of each batch, numbered from 0, and their table rows.

    Parameters
    ----------
    log
        The sessions.
    batch_rows
        Rows of each batch.
    tables
        Row of each pair, for every table of the tower.
    scratch
        Storage of temporary files.
    progress
        Called with a message after every `_REPORT_EVERY` batches.

    Returns
    -------
    dict
        Arrays of all batches, stacked. "row.<table>" are the distinct table rows of a batch, "place.<table>" is the
        index of each distinct pair's row among them; `_loss_arrays` describes the others.
    """

    def batch(k: int) -> Batch:
        sessions = log[batch_rows[k]]
        pairs, place = np.unique(sessions.pair[sessions.shown], return_inverse=True)
        arrays = _loss_arrays(sessions, place)
        for name, row_of_pair in tables.items():
            arrays[f"row.{name}"], arrays[f"place.{name}"] = np.unique(row_of_pair[pairs], return_inverse=True)
        return arrays

    padding = {f"row.{name}": int(rows.max()) + 1 for name, rows in tables.items()}
    return _stack_batches(batch, len(batch_rows), padding, scratch, progress)


def held_out_batches(
    log: EncodedSessions,
    size: int,
    scratch: TemporaryStorage = SYSTEM_STORAGE,
    progress: Progress = silent,
) -> Batch:
    """Make the held-out batches, with pairs by their own numbers: they are evaluated on the outputs of all pairs."""

    def batch(k: int) -> Batch:
        part = log[k * size : (k + 1) * size]
        return _loss_arrays(part, part.pair[part.shown].astype(np.int64))

    return _stack_batches(batch, -(-len(log) // size), {}, scratch, progress)


def _loss_arrays(log: EncodedSessions, place: Int[np.ndarray, " result"]) -> Batch:
    """Return the arrays from which a loss is computed; `place` is the number of each shown result's pair.

    For models that are learned from counts, there is one entry per pair and situation: "cell.pair", "cell.situation",
    "impressions", "clicks". For recurrent models, there is one entry per branch for every rank: see `_tree_arrays`. For
    other models, there is one entry per result: "pair", "click", and "weight", which is 0 where nothing is shown; and
    "hole", which is true there, if the log has holes.
    """
    if log.as_tree:
        return _tree_arrays(log, place)
    weight = np.broadcast_to(log.count[:, None], log.shown.shape)
    if log.situation is None:
        pair = np.zeros(log.shown.shape, np.int64)
        pair[log.shown] = place
        arrays = {"pair": pair, "click": log.click, "weight": np.where(log.shown, weight, 0.0)}
        return arrays | ({"hole": ~log.shown} if log.has_holes else {})
    n_situations = int(log.situation.max()) + 1
    key, cell = np.unique(place * n_situations + log.situation[log.shown], return_inverse=True)
    pair, situation = np.divmod(key, n_situations)
    count = weight[log.shown]
    return {
        "cell.pair": pair,
        "cell.situation": situation,
        "impressions": np.bincount(cell, count, len(key)),
        "clicks": np.bincount(cell, count * log.click[log.shown], len(key)),
    }


def _tree_arrays(log: EncodedSessions, place: Int[np.ndarray, " result"]) -> Batch:
    """Return the distinct prefixes of lists and their clicks for every rank r.

    The arrays are "pair.r", "above.r" (1 if the result above was clicked), "parent.r" (the prefix without this result),
    "impressions.r" and "clicks.r". A hole is a result of pair -1, without impressions.
    """
    pair = np.full(log.shown.shape, -1, np.int64)
    pair[log.shown] = place
    listed = log.shown
    if log.has_holes:
        listed = np.logical_or.accumulate(log.shown[:, ::-1], axis=1)[:, ::-1]
    branch = np.zeros(len(pair), np.int64)
    out: Batch = {}
    for rank in range(log.shown.shape[1]):
        rows = np.flatnonzero(listed[:, rank])
        above = log.click[rows, rank - 1].astype(np.int64) if rank else np.zeros(len(rows), np.int64)
        group, first = distinct_rows(np.stack([branch[rows], pair[rows, rank], above], axis=1))
        out[f"pair.{rank}"], out[f"above.{rank}"] = pair[rows[first], rank], above[first].astype(np.float64)
        out[f"parent.{rank}"] = branch[rows[first]]
        count = log.count[rows] * log.shown[rows, rank]
        out[f"impressions.{rank}"] = np.bincount(group, count, len(first))
        out[f"clicks.{rank}"] = np.bincount(group, count * log.click[rows, rank], len(first))
        branch[rows] = group
    return out


def _stack_batches(
    batch: Callable[[int], Batch], n: int, padding: Mapping[str, int], scratch: TemporaryStorage, progress: Progress
) -> Batch:
    """Stack batches of different sizes, padded to the longest.

    Batches that would take much memory are kept in files: first as they are made, then padded, once the longest is
    known.
    """
    first = batch(0)
    if n * sum(array.nbytes for array in first.values()) <= 2 * RESIDENT_BYTES:  # integers are halved
        batches = [_to_device_types(batch(k)) for k in range(n)]
        return {name: np.stack([*_pad_to_longest([one[name] for one in batches], padding.get(name))]) for name in first}
    out: Batch = {}
    with ExitStack() as files:
        spools = {name: files.enter_context(ArraySpool(scratch)) for name in first}
        for k in range(n):
            for name, array in _to_device_types(batch(k)).items():
                spools[name].append(array)
            if (k + 1) % _REPORT_EVERY == 0:
                progress(f"{k + 1:,} of {n:,} batches counted")
        for name, spool in spools.items():
            with spool, ArraySpool(scratch) as padded:
                for array in _pad_to_longest(spool, padding.get(name)):
                    padded.append(array[None])
                out[name] = padded.whole
    return out


def _to_device_types(batch: Batch) -> Batch:
    """Convert arrays to the types of the device: single precision and 32-bit integers."""
    dtypes: dict[str, type] = {"f": np.float32, "b": np.bool_}
    return {name: array.astype(dtypes.get(array.dtype.kind, np.int32)) for name, array in batch.items()}


def _pad_to_longest(arrays: Sequence[np.ndarray] | ArraySpool, first_unused: int | None) -> Iterator[np.ndarray]:
    """Yield arrays padded to the length of the longest.

    The padding is zeros, which have weight 0; for table rows (`first_unused` given) it is distinct rows beyond the end
    of the table, so that every row is written at most once.
    """
    width = max(len(arrays[k]) for k in range(len(arrays)))
    filler = np.zeros((width, *arrays[0].shape[1:]), arrays[0].dtype)
    if first_unused is not None:
        filler += first_unused + np.arange(width, dtype=filler.dtype)
    for k in range(len(arrays)):
        yield np.concatenate([arrays[k], filler[len(arrays[k]) :]])
