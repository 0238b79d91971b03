"""Number ids and pairs as they come, by 96 bits of hash in one growing table, so that no text is kept but the new one.

Two different pairs of equal 64-bit hash are told apart by 32 more bits, so that a collision is found rather than taken
for the same pair; among a thousand million pairs one in 10^11 logs has two that agree in all 96.
"""

from __future__ import annotations

from typing import Any, final, no_type_check

import numpy as np
from jaxtyping import Int, UInt64
from numba import njit, uint64

_FREE = np.uint64(0)
_LOW = np.uint64(0x00000000FFFFFFFF)
_HIGH = np.uint64(0xFFFFFFFF00000000)
_AT_ONCE = 64
_A, _B = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
_C, _D = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@final
class IdTable:
    """Numbers from 0 for whatever was not seen before."""

    def __init__(self) -> None:
        self.found = 0
        self._table = np.zeros((1 << 14, 2), np.uint64)

    def number(self, hashes: UInt64[np.ndarray, "2 n"]) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " new"]]:
        """The number of each, and the places of those that are new, in the order of their numbers."""
        n = hashes.shape[1]
        numbers, new = np.empty(n, np.int32), np.empty(n, np.int64)
        at, fresh = 0, 0
        while True:
            at, fresh, _ = _number(*hashes, at, self._table, self.found, fresh, numbers, new)
            if at == n:
                break
            larger = np.zeros((4 * len(self._table), 2), np.uint64)
            _move(self._table, larger)
            self._table = larger
        self.found += fresh
        return numbers, new[:fresh].copy()


def hashes_of(ids: Any) -> UInt64[np.ndarray, "2 n"]:
    """Two hashes of each id of a pyarrow array of 64-bit integers or of text, with nothing missing."""
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
    """Two hashes of each result's pair; results `start[i]` up to `start[i + 1]` are those of session i."""
    out = np.empty_like(doc)
    _hash_pairs(query, doc, start, out)
    return out


@njit(inline="always")
@no_type_check
def _mixed(x):
    x = (x ^ (x >> uint64(30))) * _C
    x = (x ^ (x >> uint64(27))) * _D
    return x ^ (x >> uint64(31))


@njit(cache=True, nogil=True)
@no_type_check
def _hash_integers(ids, out):
    for i in range(len(ids)):
        x = uint64(ids[i])
        out[0, i], out[1, i] = _mixed(x + _A), x


@njit(inline="always")
@no_type_check
def _word(text, at):
    # written out, which a compiler takes for what it is: one load
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
    """Eight bytes at a time, in two lanes with multipliers of their own."""
    for i in range(len(bounds) - 1):
        at, end = np.uint64(bounds[i]), np.uint64(bounds[i + 1])
        one, two = uint64(end - at) * _A, uint64(end - at) ^ _B
        while at + uint64(8) <= end:
            word = _word(text, at)
            one = (one ^ word) * _C
            one ^= one >> uint64(29)
            two = (two + word) * _D
            two ^= two >> uint64(32)
            at += uint64(8)
        word, k = uint64(0), uint64(0)
        while at < end:
            word |= uint64(text[at]) << k
            k += uint64(8)
            at += uint64(1)
        out[0, i], out[1, i] = _mixed(one ^ word), _mixed((two + word) * _B)


@njit(cache=True, nogil=True)
@no_type_check
def _hash_pairs(query, doc, start, out):
    for i in range(len(start) - 1):
        one, two = _mixed(query[0, i] * _A), query[1, i] * _B
        for j in range(start[i], start[i + 1]):
            h = (one ^ doc[0, j]) * _C
            out[0, j] = h ^ (h >> uint64(32))
            out[1, j] = (two + doc[1, j]) * _D


@njit(cache=True, nogil=True)
@no_type_check
def _number(first, second, at, table, before, fresh, numbers, new):
    """Go on until the end, or until the table is half full. A place has 64 bits of hash, then 32 more and a number plus
    1, side by side: one look in memory finds both.

    The sum of what was touched is returned for one reason: what nobody asks for is not fetched.
    """
    n, last, touched = len(first), uint64(len(table) - 1), uint64(0)
    for start in range(at, n, _AT_ONCE):
        if 2 * (before + fresh + _AT_ONCE) > len(table):
            return start, fresh, touched
        end = min(start + _AT_ONCE, n)
        for i in range(start, end):
            touched += table[first[i] & last, 0]
        for i in range(start, end):
            slot, check = first[i] & last, second[i] & _HIGH
            while True:
                there = table[slot, 1]
                if there == _FREE:
                    table[slot, 0], table[slot, 1] = first[i], check | uint64(before + fresh + 1)
                    numbers[i], new[fresh] = before + fresh, i
                    fresh += 1
                    break
                if table[slot, 0] == first[i] and there & _HIGH == check:
                    numbers[i] = np.int64(there & _LOW) - 1
                    break
                slot = (slot + uint64(1)) & last
    return n, fresh, touched


@njit(cache=True, nogil=True)
@no_type_check
def _move(table, larger):
    last = uint64(len(larger) - 1)
    for i in range(len(table)):
        if table[i, 1] != _FREE:
            slot = table[i, 0] & last
            while larger[slot, 1] != _FREE:
                slot = (slot + uint64(1)) & last
            larger[slot, 0], larger[slot, 1] = table[i, 0], table[i, 1]
