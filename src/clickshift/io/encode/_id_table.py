"""Number ids and pairs in order of appearance with one growing hash table of 96-bit hashes; no text is kept in it.

Two different pairs with the same 64-bit hash are distinguished by 32 more bits, so that a collision is detected instead
of merging two pairs. Among 10^9 pairs, one in 10^11 logs has two that agree in all 96 bits.
"""

from __future__ import annotations

from typing import Any, final, no_type_check

import numpy as np
from jaxtyping import Int, UInt64
from numba import njit, uint64

from clickshift.core.splitmix import GOLDEN, MULTIPLIER_1, MULTIPLIER_2, mix

_FREE = np.uint64(0)
_LOW = np.uint64(0x00000000FFFFFFFF)
_HIGH = np.uint64(0xFFFFFFFF00000000)
_PREFETCH = 64  # hashes whose slots are fetched from memory together
_SECOND = np.uint64(0xD6E8FEB86659FD93)  # multiplier of the second hash


@final
class IdTable:
    """Hash table that numbers ids from 0, in order of first appearance."""

    def __init__(self) -> None:
        self.n_ids = 0
        self._table = np.zeros((1 << 14, 2), np.uint64)

    def number(self, hashes: UInt64[np.ndarray, "2 n"]) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " new"]]:
        """Number ids by their hashes.

        Parameters
        ----------
        hashes
            Two hashes of each id, as `hashes_of` and `pair_hashes` return them.

        Returns
        -------
        numbers
            Number of each id.
        new
            Indices of the ids that were not in the table before, in the order of their numbers.
        """
        n = hashes.shape[1]
        numbers, new = np.empty(n, np.int32), np.empty(n, np.int64)
        position, n_new = 0, 0
        while True:
            position, n_new, _ = _number(*hashes, position, self._table, self.n_ids, n_new, numbers, new)
            if position == n:
                break
            larger = np.zeros((4 * len(self._table), 2), np.uint64)
            _rehash(self._table, larger)
            self._table = larger
        self.n_ids += n_new
        return numbers, new[:n_new].copy()


def hashes_of(ids: Any) -> UInt64[np.ndarray, "2 n"]:
    """Return two hashes of each id of a pyarrow array of 64-bit integers or text without missing values."""
    import pyarrow as pa

    out = np.empty((2, len(ids)), np.uint64)
    if pa.types.is_integer(ids.type):
        _hash_integers(ids.to_numpy(), out)
        return out
    offsets, data = ids.buffers()[1:]
    kind = np.int64 if pa.types.is_large_string(ids.type) else np.int32
    bounds = np.frombuffer(offsets, kind)[ids.offset : ids.offset + len(ids) + 1]
    text = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    _hash_texts(bounds, text, out)
    return out


def pair_hashes(
    query: UInt64[np.ndarray, "2 session"], doc: UInt64[np.ndarray, "2 result"], start: Int[np.ndarray, " bound"]
) -> UInt64[np.ndarray, "2 result"]:
    """Return two hashes of each result's (query, document) pair.

    Parameters
    ----------
    query
        Two hashes of each session's query.
    doc
        Two hashes of each result's document.
    start
        Results `start[i]` up to `start[i + 1]` belong to session i.
    """
    out = np.empty_like(doc)
    _hash_pairs(query, doc, start, out)
    return out


@njit(cache=True, nogil=True)
@no_type_check
def _hash_integers(ids, out):
    """Hash integers; the second hash is the integer itself."""
    for i in range(len(ids)):
        x = uint64(ids[i])
        out[0, i], out[1, i] = mix(x + GOLDEN), x


@njit(inline="always")
@no_type_check
def _load_word(text, at):
    """Load eight bytes; written out because the compiler turns this form into one load."""
    return (
        uint64(text[at])
        | uint64(text[at + uint64(1)]) << uint64(8)
        | uint64(text[at + uint64(2)]) << uint64(16)
        | uint64(text[at + uint64(3)]) << uint64(24)
        | uint64(text[at + uint64(4)]) << uint64(32)
        | uint64(text[at + uint64(5)]) << uint64(40)
        | uint64(text[at + uint64(6)]) << uint64(48)
        | uint64(text[at + uint64(7)]) << uint64(56)
    )


@njit(cache=True, nogil=True)
@no_type_check
def _hash_texts(bounds, text, out):
    """Hash texts eight bytes at a time, in two lanes with different multipliers."""
    for i in range(len(bounds) - 1):
        at, end = np.uint64(bounds[i]), np.uint64(bounds[i + 1])
        one, two = uint64(end - at) * GOLDEN, uint64(end - at) ^ _SECOND
        while at + uint64(8) <= end:
            word = _load_word(text, at)
            one = (one ^ word) * MULTIPLIER_1
            one ^= one >> uint64(29)
            two = (two + word) * MULTIPLIER_2
            two ^= two >> uint64(32)
            at += uint64(8)
        word, k = uint64(0), uint64(0)
        while at < end:
            word |= uint64(text[at]) << k
            k += uint64(8)
            at += uint64(1)
        out[0, i], out[1, i] = mix(one ^ word), mix((two + word) * _SECOND)


@njit(cache=True, nogil=True)
@no_type_check
def _hash_pairs(query, doc, start, out):
    """Combine the hashes of every result's query and document."""
    for i in range(len(start) - 1):
        one, two = mix(query[0, i] * GOLDEN), query[1, i] * _SECOND
        for j in range(start[i], start[i + 1]):
            h = (one ^ doc[0, j]) * MULTIPLIER_1
            out[0, j] = h ^ (h >> uint64(32))
            out[1, j] = (two + doc[1, j]) * MULTIPLIER_2


@njit(cache=True, nogil=True)
@no_type_check
def _number(first, second, position, table, n_before, n_new, numbers, new):
    """Number hashes from `position` on, until the end or until the table is half full.

    A slot holds 64 bits of hash in one word, and 32 more bits with the number plus 1 in the next word, so one memory
    access reads both. Returned are the position, the number of new ids, and the sum of the touched words. The sum only
    keeps the compiler from removing the loop that fetches the slots ahead.
    """
    n, last, touched = len(first), uint64(len(table) - 1), uint64(0)
    for start in range(position, n, _PREFETCH):
        if 2 * (n_before + n_new + _PREFETCH) > len(table):
            return start, n_new, touched
        end = min(start + _PREFETCH, n)
        for i in range(start, end):
            touched += table[first[i] & last, 0]
        for i in range(start, end):
            slot, check = first[i] & last, second[i] & _HIGH
            while True:
                entry = table[slot, 1]
                if entry == _FREE:
                    table[slot, 0], table[slot, 1] = first[i], check | uint64(n_before + n_new + 1)
                    numbers[i], new[n_new] = n_before + n_new, i
                    n_new += 1
                    break
                if table[slot, 0] == first[i] and entry & _HIGH == check:
                    numbers[i] = np.int64(entry & _LOW) - 1
                    break
                slot = (slot + uint64(1)) & last
    return n, n_new, touched


@njit(cache=True, nogil=True)
@no_type_check
def _rehash(table, larger):
    """Copy all entries to a larger table."""
    last = uint64(len(larger) - 1)
    for i in range(len(table)):
        if table[i, 1] != _FREE:
            slot = table[i, 0] & last
            while larger[slot, 1] != _FREE:
                slot = (slot + uint64(1)) & last
            larger[slot, 0], larger[slot, 1] = table[i, 0], table[i, 1]
