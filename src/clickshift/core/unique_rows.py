"""Number the distinct rows of an integer matrix: the one operation behind pair numbers, merging and counting.

Sorting a million rows of ten numbers takes a second and more; hashing them, with exact comparison, a tenth of that.
What takes time is waiting for memory. So rows are hashed some at a time, and what the table has for them is touched
before it is needed; and large arrays are made by numpy, which asks for large pages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final, no_type_check

import numpy as np
from jaxtyping import Int, UInt64
from numba import njit, uint64

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)
_AT_ONCE = 32
"""Rows whose places in the table are fetched together."""
_FREE = np.uint64(0)
_TAG = np.uint64(0xFFFFFFFF00000000)
_ROW = np.uint64(0x00000000FFFFFFFF)
"""A place in a table has half of a row's hash, and the row's number plus 1; 0 if it is free. Half is free or full."""


def distinct_rows(
    rows: Int[np.ndarray, "row column"],
) -> tuple[Int[np.ndarray, " row"], Int[np.ndarray, " group"]]:
    """The group of every row, and the first row of every group; groups are numbered in order of appearance.

    >>> group, first = distinct_rows(np.array([[1, 2], [3, 4], [1, 2]]))
    >>> group.tolist(), first.tolist()
    ([0, 1, 0], [0, 1])
    """
    rows = np.ascontiguousarray(rows, dtype=np.int64)
    n = len(rows)
    group, first, hashes = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.uint64)
    table, at, found = np.zeros(1024, np.uint64), 0, 0
    while True:
        at, found, _ = _group(rows, at, found, table, group, first, hashes)
        if at == n:
            return group, first[:found].copy()
        table = np.zeros(4 * len(table), np.uint64)
        _enter(hashes[:found], first, table)


def distinct_sorted(values: Int[np.ndarray, " value"]) -> tuple[Int[np.ndarray, " group"], Int[np.ndarray, " value"]]:
    """Like `numpy.unique(values, return_inverse=True)`, several times faster where values repeat."""
    group, first = distinct_rows(values[:, None])
    found = values[first]
    order = np.argsort(found)
    position = np.empty_like(order)
    position[order] = np.arange(len(order))
    return found[order], position[group]


@final
@dataclass(frozen=True, eq=False)
class RowIndex:
    """Rows that differ from each other, made ready to be looked up; from several threads, if need be.

    >>> RowIndex.of(np.array([[5, 6], [1, 2]])).find(np.array([[1, 2], [3, 4], [5, 6]])).tolist()
    [1, -1, 0]
    """

    rows: Int[np.ndarray, "row column"]
    table: UInt64[np.ndarray, " place"]

    @classmethod
    def of(cls, rows: Int[np.ndarray, "row column"]) -> RowIndex:
        rows = np.ascontiguousarray(rows, dtype=np.int64)
        hashes, table = np.empty(len(rows), np.uint64), np.zeros(1 << (2 * len(rows) + 2).bit_length(), np.uint64)
        _hash(rows, hashes)
        _enter(hashes, np.arange(len(rows)), table)
        return cls(rows, table)

    def find(self, rows: Int[np.ndarray, "row column"]) -> Int[np.ndarray, " row"]:
        """The number of each row here, -1 for one that is not."""
        place = np.empty(len(rows), np.int64)
        _find(np.ascontiguousarray(rows, dtype=np.int64), self.rows, self.table, place)
        return place


def row_hashes(rows: Int[np.ndarray, "row column"]) -> UInt64[np.ndarray, " row"]:
    """64 bits that equal rows share and different ones hardly ever do."""
    hashes = np.empty(len(rows), np.uint64)
    _hash(np.ascontiguousarray(rows, dtype=np.int64), hashes)
    return hashes


def stable_order(number: Int[np.ndarray, " n"], size: int) -> Int[np.ndarray, " n"]:
    """Like `numpy.argsort(number, kind="stable")`, for numbers from 0 to size - 1: by counting.

    >>> stable_order(np.array([2, 0, 2, 1]), 3).tolist()
    [1, 3, 0, 2]
    """
    order = np.empty(len(number), np.int64)
    _order(number, np.cumsum(np.bincount(number, minlength=size)), order)
    return order


@njit(inline="always")
@no_type_check
def _hash_of(rows, i):
    h = uint64(rows.shape[1])
    for j in range(rows.shape[1]):
        h = (h ^ uint64(rows[i, j])) * _MULTIPLIER
        h ^= h >> _SHIFT
    return h


@njit(inline="always")
@no_type_check
def _same(rows, i, others, o):
    same = True
    for j in range(rows.shape[1]):
        same &= rows[i, j] == others[o, j]
    return same


@njit(cache=True, nogil=True)
@no_type_check
def _group(rows, at, found, table, group, first, hashes):
    """Go on at row `at`, where `found` groups have been found, until the end, or until the table is half full.

    The sum of what was touched is returned for one reason: what nobody asks for is not fetched.
    """
    n, last = len(rows), uint64(len(table) - 1)
    hash_of, touched = np.empty(_AT_ONCE, np.uint64), uint64(0)
    for start in range(at, n, _AT_ONCE):
        if 2 * (found + _AT_ONCE) > len(table):
            return start, found, touched
        some = min(_AT_ONCE, n - start)
        for k in range(some):
            hash_of[k] = _hash_of(rows, start + k)
            touched += table[hash_of[k] & last]
        for k in range(some):
            entry = table[hash_of[k] & last]
            if entry != _FREE and (entry ^ hash_of[k]) & _TAG == _FREE:
                other = np.int64(entry & _ROW) - 1
                touched += uint64(group[other])
                for j in range(min(rows.shape[1], 1)):
                    touched += uint64(rows[other, j])
        for k in range(some):
            i, h = start + k, hash_of[k]
            slot = h & last
            while True:
                entry = table[slot]
                if entry == _FREE:
                    table[slot] = (h & _TAG) | uint64(i + 1)
                    first[found], hashes[found], group[i] = i, h, found
                    found += 1
                    break
                if (entry ^ h) & _TAG == _FREE:
                    other = np.int64(entry & _ROW) - 1
                    if _same(rows, i, rows, other):
                        group[i] = group[other]
                        break
                slot = (slot + uint64(1)) & last
    return n, found, touched


@njit(cache=True, nogil=True)
@no_type_check
def _enter(hashes, row, table):
    """Rows that differ from each other and from all that the table has."""
    last, touched = uint64(len(table) - 1), uint64(0)
    for start in range(0, len(hashes), _AT_ONCE):
        end = min(start + _AT_ONCE, len(hashes))
        for i in range(start, end):
            touched += table[hashes[i] & last]
        for i in range(start, end):
            slot = hashes[i] & last
            while table[slot] != _FREE:
                slot = (slot + uint64(1)) & last
            table[slot] = (hashes[i] & _TAG) | uint64(row[i] + 1)
    return touched


@njit(cache=True, nogil=True)
@no_type_check
def _hash(rows, out):
    for i in range(len(rows)):
        out[i] = _hash_of(rows, i)


@njit(cache=True, nogil=True)
@no_type_check
def _find(rows, known, table, place):
    last, touched = uint64(len(table) - 1), uint64(0)
    hash_of = np.empty(_AT_ONCE, np.uint64)
    for start in range(0, len(rows), _AT_ONCE):
        some = min(_AT_ONCE, len(rows) - start)
        for k in range(some):
            hash_of[k] = _hash_of(rows, start + k)
            touched += table[hash_of[k] & last]
        for k in range(some):
            i, h = start + k, hash_of[k]
            slot = h & last
            place[i] = -1
            while table[slot] != _FREE:
                other = np.int64(table[slot] & _ROW) - 1
                if (table[slot] ^ h) & _TAG == _FREE and _same(rows, i, known, other):
                    place[i] = other
                    break
                slot = (slot + uint64(1)) & last
    return touched


@njit(cache=True, nogil=True)
@no_type_check
def _order(number, end, order):
    for i in range(len(number) - 1, -1, -1):
        end[number[i]] -= 1
        order[end[number[i]]] = i
