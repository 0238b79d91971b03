"""Shuffling of logs larger than memory: every order is equally likely.

Sessions come in runs. Each session of a run is assigned to a random bucket, and the run is written bucket by bucket.
Then each bucket, which has a piece of every run, is shuffled in memory and written after the one before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np

from clickshift.core.progress import Progress, silent
from clickshift.core.tempfiles import ArraySpool, TemporaryStorage
from clickshift.core.unique_rows import stable_order
from clickshift.learners.gradient._encoding import EncodedSessions

BUCKET_BYTES = 1 << 26
"""Approximate size of a run and of a bucket, in bytes: the part that is in memory at a time."""
_DTYPES = {"pair": np.int32, "shown": np.bool_, "click": np.bool_, "count": np.float64, "situation": np.int32}


def shuffle_on_disk(
    parts: Iterable[EncodedSessions],
    rows: int,
    scratch: TemporaryStorage,
    *,
    rng: np.random.Generator,
    progress: Progress = silent,
) -> EncodedSessions:
    """Shuffle sessions on disk.

    Parameters
    ----------
    parts
        The sessions, some at a time.
    rows
        Approximate number of rows.
    scratch
        Storage of temporary files.
    rng
        Random generator.
    progress
        Called with a message after each run.

    Returns
    -------
    EncodedSessions
        All rows in random order, mapped from a file.
    """
    first = next(parts := iter(parts))
    buckets, done = max(1, -(-rows * _records(first[:0]).itemsize // BUCKET_BYTES)), 0
    with ArraySpool(scratch) as pieces, ArraySpool(scratch) as shuffled:
        for run in _runs(chain([first], parts)):
            bucket = rng.integers(buckets, size=len(run))
            ends = np.cumsum(np.bincount(bucket, minlength=buckets))
            for piece in np.split(run[stable_order(bucket, buckets)], ends[:-1]):
                pieces.append(piece)
            done += len(run)
            progress(f"{done:,} sessions shuffled")
        for k in range(buckets):
            rows_of_bucket = np.concatenate([pieces[piece] for piece in range(k, len(pieces), buckets)])
            shuffled.append(rows_of_bucket[rng.permutation(len(rows_of_bucket))])
        fields = {name: shuffled.whole[name] for name in shuffled.whole.dtype.names or ()}
        return EncodedSessions(**fields, as_tree=first.as_tree, has_holes=first.has_holes)


def _runs(parts: Iterable[EncodedSessions]) -> Iterator[np.ndarray]:
    """Yield runs of about `BUCKET_BYTES`, one record per session."""
    pending: list[np.ndarray] = []
    for part in parts:
        pending.append(_records(part))
        if sum(records.nbytes for records in pending) >= BUCKET_BYTES:
            yield np.concatenate(pending)
            pending = []
    if pending:
        yield np.concatenate(pending)


def _records(log: EncodedSessions) -> np.ndarray:
    """Return sessions as a structured array, one record per row."""
    fields = {name: array for name in _DTYPES if (array := getattr(log, name)) is not None}
    records = np.empty(len(log), [(name, _DTYPES[name], array.shape[1:]) for name, array in fields.items()])
    for name, array in fields.items():
        records[name] = array
    return records
