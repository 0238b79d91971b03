"""A log in random order, outside memory: every order is equally likely.

Sessions come in runs. Each session of a run is sent to a bucket at random, and the run is written bucket by bucket.
Then each bucket, which is a piece of every run, is put in random order in memory and written after the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

import numpy as np

from clickshift.core.tempfiles import ArraySpool, TemporaryStorage
from clickshift.core.unique_rows import stable_order
from clickshift.learners.gradient._encoding import EncodedSessions

BUCKET_BYTES = 1 << 26
"""Bytes of sessions in a run, and in a bucket, about: what is in memory at a time."""
_DTYPES = {"pair": np.int32, "shown": np.bool_, "click": np.bool_, "count": np.float64, "situation": np.int32}


def shuffle_on_disk(
    parts: Iterable[EncodedSessions],
    rows: int,
    scratch: TemporaryStorage,
    *,
    rng: np.random.Generator,
    progress: Callable[[str], None] = lambda said: None,
) -> EncodedSessions:
    """The rows of all parts, of which there are about `rows`, mapped from a file."""
    first = next(parts := iter(parts))
    buckets, done = max(1, -(-rows * _records(first[:0]).itemsize // BUCKET_BYTES)), 0
    with ArraySpool(scratch) as pieces, ArraySpool(scratch) as dealt:
        for run in _runs(chain([first], parts)):
            bucket = rng.integers(buckets, size=len(run))
            ends = np.cumsum(np.bincount(bucket, minlength=buckets))
            for piece in np.split(run[stable_order(bucket, buckets)], ends[:-1]):
                pieces.append(piece)
            done += len(run)
            progress(f"{done:,} sessions shuffled")
        for k in range(buckets):
            some = np.concatenate([pieces[piece] for piece in range(k, len(pieces), buckets)])
            dealt.append(some[rng.permutation(len(some))])
        fields = {name: dealt.whole[name] for name in dealt.whole.dtype.names or ()}
        return EncodedSessions(**fields, as_tree=first.as_tree)


def _runs(parts: Iterable[EncodedSessions]) -> Iterator[np.ndarray]:
    """Parts put together, one record per session."""
    waiting: list[np.ndarray] = []
    for part in parts:
        waiting.append(_records(part))
        if sum(some.nbytes for some in waiting) >= BUCKET_BYTES:
            yield np.concatenate(waiting)
            waiting = []
    if waiting:
        yield np.concatenate(waiting)


def _records(log: EncodedSessions) -> np.ndarray:
    fields = {name: array for name in _DTYPES if (array := getattr(log, name)) is not None}
    records = np.empty(len(log), [(name, _DTYPES[name], array.shape[1:]) for name, array in fields.items()])
    for name, array in fields.items():
        records[name] = array
    return records
