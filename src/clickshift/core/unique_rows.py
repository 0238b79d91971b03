"""Distinct rows of an integer matrix: the operation behind pair numbers, merging and counting.

Sorting a million rows of ten numbers takes a second or more; hashing them, with exact comparison, takes a tenth of
that. Most of the time is spent waiting for memory. Rows are therefore hashed in small groups, and the table entries of
a group are prefetched by touching them before they are needed; large arrays are allocated by numpy, which asks for
large pages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final, no_type_check

import numpy as np
from jaxtyping import Int, UInt64
from numba import njit, uint64

from clickshift.core.splitmix import GOLDEN

_SHIFT = np.uint64(29)
_ROWS_AT_ONCE = 32
"""Number of rows whose table entries are prefetched together."""
_EMPTY_SLOT = np.uint64(0)
_NO_BITS = np.uint64(0)
_HASH_BITS = np.uint64(0xFFFFFFFF00000000)
_ROW_BITS = np.uint64(0x00000000FFFFFFFF)
"""A table entry has the upper half of a row's hash and the row's number plus 1; 0 if it is empty. At most half of the
entries are used."""


def distinct_rows(
    rows: Int[np.ndarray, "row column"],
) -> tuple[Int[np.ndarray, " row"], Int[np.ndarray, " group"]]:
    """Number the distinct rows of a matrix in order of appearance.

    Parameters
    ----------
    rows
        Matrix of integers.

    Returns
    -------
    tuple[array, array]
        The group of each row, and the first row of each group.

    Examples
    --------
    >>> group, first = distinct_rows(np.array([[1, 2], [3, 4], [1, 2]]))
    >>> group.tolist(), first.tolist()
    ([0, 1, 0], [0, 1])
    """
    rows = np.ascontiguousarray(rows, dtype=np.int64)
    n = len(rows)
    group, first, hashes = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.uint64)
    table, row, n_groups = np.zeros(1024, np.uint64), 0, 0
    while True:
        row, n_groups, _ = _group(rows, row, n_groups, table, group, first, hashes)
        if row == n:
            return group, first[:n_groups].copy()
        table = np.zeros(4 * len(table), np.uint64)
        _insert(hashes[:n_groups], first, table)


def distinct_sorted(values: Int[np.ndarray, " value"]) -> tuple[Int[np.ndarray, " group"], Int[np.ndarray, " value"]]:
    """Return the distinct values in ascending order, and the position of each value among them.

    This is `numpy.unique(values, return_inverse=True)`, several times faster if values repeat.

    Parameters
    ----------
    values
        Integers.

    Examples
    --------
    >>> distinct, position = distinct_sorted(np.array([5, 2, 5]))
    >>> distinct.tolist(), position.tolist()
    ([2, 5], [1, 0, 1])
    """
    group, first = distinct_rows(values[:, None])
    distinct = values[first]
    order = np.argsort(distinct)
    position = np.empty_like(order)
    position[order] = np.arange(len(order))
    return distinct[order], position[group]


@final
@dataclass(frozen=True, eq=False)
class RowIndex:
    """Hash index of distinct rows, which may be searched from several threads.

    Parameters
    ----------
    rows
        Distinct rows.
    table
        Hash table of the rows; use `RowIndex.of` to build it.

    Examples
    --------
    >>> RowIndex.of(np.array([[5, 6], [1, 2]])).find(np.array([[1, 2], [3, 4], [5, 6]])).tolist()
    [1, -1, 0]
    """

    rows: Int[np.ndarray, "row column"]
    table: UInt64[np.ndarray, " slot"]

    @classmethod
    def of(cls, rows: Int[np.ndarray, "row column"]) -> RowIndex:
        """Build the index of distinct rows."""
        rows = np.ascontiguousarray(rows, dtype=np.int64)
        hashes, table = np.empty(len(rows), np.uint64), np.zeros(1 << (2 * len(rows) + 2).bit_length(), np.uint64)
        _hash_rows(rows, hashes)
        _insert(hashes, np.arange(len(rows)), table)
        return cls(rows, table)

    def find(self, rows: Int[np.ndarray, "row column"]) -> Int[np.ndarray, " row"]:
        """Return the number that each row has in the index; -1 if it is not there."""
        number = np.empty(len(rows), np.int64)
        _find(np.ascontiguousarray(rows, dtype=np.int64), self.rows, self.table, number)
        return number


def row_hashes(rows: Int[np.ndarray, "row column"]) -> UInt64[np.ndarray, " row"]:
    """Return a 64-bit hash of each row; different rows hardly ever have the same.

    Parameters
    ----------
    rows
        Matrix of integers.
    """
    hashes = np.empty(len(rows), np.uint64)
    _hash_rows(np.ascontiguousarray(rows, dtype=np.int64), hashes)
    return hashes


def stable_order(number: Int[np.ndarray, " n"], size: int) -> Int[np.ndarray, " n"]:
    """Sort numbers from 0 to size - 1 by counting, like `numpy.argsort(number, kind="stable")`.

    Parameters
    ----------
    number
        Numbers to sort.
    size
        One more than the largest possible number.

    Returns
    -------
    array
        Positions in ascending order of the numbers.

    Examples
    --------
    >>> stable_order(np.array([2, 0, 2, 1]), 3).tolist()
    [1, 3, 0, 2]
    """
    order = np.empty(len(number), np.int64)
    _counting_sort(number, np.cumsum(np.bincount(number, minlength=size)), order)
    return order


@njit(inline="always")
@no_type_check
def _hash_of(rows, i):
    """Return the hash of row i."""
    h = uint64(rows.shape[1])
    for j in range(rows.shape[1]):
        h = (h ^ uint64(rows[i, j])) * GOLDEN
        h ^= h >> _SHIFT
    return h


@njit(inline="always")
@no_type_check
def _same(rows, i, others, o):
    """Return whether row i equals row o of `others`, without branches."""
    same = True
    for j in range(rows.shape[1]):
        same &= rows[i, j] == others[o, j]
    return same


@njit(cache=True, nogil=True)
@no_type_check
def _group(rows, begin, n_groups, table, group, first, hashes):
    """Number the rows from `begin`, after `n_groups` groups, until the end or until the table is half full.

    Return the next row, the number of groups, and the sum of the prefetched entries: without a use of that sum, the
    compiler would remove the prefetching.
    """
    n, last = len(rows), uint64(len(table) - 1)
    hash_of, touched = np.empty(_ROWS_AT_ONCE, np.uint64), uint64(0)
    for start in range(begin, n, _ROWS_AT_ONCE):
        if 2 * (n_groups + _ROWS_AT_ONCE) > len(table):
            return start, n_groups, touched
        size = min(_ROWS_AT_ONCE, n - start)
        for k in range(size):
            hash_of[k] = _hash_of(rows, start + k)
            touched += table[hash_of[k] & last]
        for k in range(size):
            entry = table[hash_of[k] & last]
            if entry != _EMPTY_SLOT and (entry ^ hash_of[k]) & _HASH_BITS == _NO_BITS:
                other = np.int64(entry & _ROW_BITS) - 1
                touched += uint64(group[other])
                for j in range(min(rows.shape[1], 1)):
                    touched += uint64(rows[other, j])
        for k in range(size):
            i, h = start + k, hash_of[k]
            slot = h & last
            while True:
                entry = table[slot]
                if entry == _EMPTY_SLOT:
                    table[slot] = (h & _HASH_BITS) | uint64(i + 1)
                    first[n_groups], hashes[n_groups], group[i] = i, h, n_groups
                    n_groups += 1
                    break
                if (entry ^ h) & _HASH_BITS == _NO_BITS:
                    other = np.int64(entry & _ROW_BITS) - 1
                    if _same(rows, i, rows, other):
                        group[i] = group[other]
                        break
                slot = (slot + uint64(1)) & last
    return n, n_groups, touched


@njit(cache=True, nogil=True)
@no_type_check
def _insert(hashes, row, table):
    """Insert rows that differ from each other and from all rows in the table."""
    last, touched = uint64(len(table) - 1), uint64(0)
    for start in range(0, len(hashes), _ROWS_AT_ONCE):
        end = min(start + _ROWS_AT_ONCE, len(hashes))
        for i in range(start, end):
            touched += table[hashes[i] & last]
        for i in range(start, end):
            slot = hashes[i] & last
            while table[slot] != _EMPTY_SLOT:
                slot = (slot + uint64(1)) & last
            table[slot] = (hashes[i] & _HASH_BITS) | uint64(row[i] + 1)
    return touched


@njit(cache=True, nogil=True)
@no_type_check
def _hash_rows(rows, out):
    """Fill `out` with the hash of each row."""
    for i in range(len(rows)):
        out[i] = _hash_of(rows, i)


@njit(cache=True, nogil=True)
@no_type_check
def _find(rows, indexed, table, number):
    """Fill `number` with the number of each row among the indexed rows; -1 if it is not there."""
    last, touched = uint64(len(table) - 1), uint64(0)
    hash_of = np.empty(_ROWS_AT_ONCE, np.uint64)
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        size = min(_ROWS_AT_ONCE, len(rows) - start)
        for k in range(size):
            hash_of[k] = _hash_of(rows, start + k)
            touched += table[hash_of[k] & last]
        for k in range(size):
            i, h = start + k, hash_of[k]
            slot = h & last
            number[i] = -1
            while table[slot] != _EMPTY_SLOT:
                other = np.int64(table[slot] & _ROW_BITS) - 1
                if (table[slot] ^ h) & _HASH_BITS == _NO_BITS and _same(rows, i, indexed, other):
                    number[i] = other
                    break
                slot = (slot + uint64(1)) & last
    return touched


@njit(cache=True, nogil=True)
@no_type_check
def _counting_sort(number, end, order):
    """Fill `order` with the positions of the numbers in ascending order; `end` has the end of each number's range."""
    for i in range(len(number) - 1, -1, -1):
        end[number[i]] -= 1
        order[end[number[i]]] = i
