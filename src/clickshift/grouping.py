"""Number the distinct rows of an integer matrix: the one operation behind pair numbers, merging and counting.

Sorting a million rows of ten numbers takes a second and more; hashing them, with exact comparison, a tenth of that.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np
from jaxtyping import Int
from numba import njit, uint64

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)


def distinct_rows(
    rows: Int[np.ndarray, "row column"],
) -> tuple[Int[np.ndarray, " row"], Int[np.ndarray, " group"]]:
    """The group of every row, and the first row of every group; groups are numbered in order of appearance.

    >>> group, first = distinct_rows(np.array([[1, 2], [3, 4], [1, 2]]))
    >>> group.tolist(), first.tolist()
    ([0, 1, 0], [0, 1])
    """
    group, first = _group(np.ascontiguousarray(rows, dtype=np.int64))
    return group, first


def distinct_sorted(values: Int[np.ndarray, " value"]) -> tuple[Int[np.ndarray, " group"], Int[np.ndarray, " value"]]:
    """Like `numpy.unique(values, return_inverse=True)`, several times faster where values repeat."""
    group, first = distinct_rows(values[:, None])
    found = values[first]
    order = np.argsort(found)
    position = np.empty_like(order)
    position[order] = np.arange(len(order))
    return found[order], position[group]


@njit(cache=True, nogil=True)
@no_type_check
def _group(rows):
    n, width = rows.shape
    group = np.empty(n, np.int64)
    first = np.empty(max(n, 1), np.int64)
    size = 1024
    table = np.full(size, -1, np.int64)  # open addressing: hash -> group number
    hashes = np.empty(max(n, 1), np.uint64)  # of each group's first row, for growing and for a quick first comparison
    found = 0
    for i in range(n):
        h = uint64(width)
        for j in range(width):
            h = (h ^ uint64(rows[i, j])) * _MULTIPLIER
            h ^= h >> _SHIFT
        slot = np.int64(h & uint64(size - 1))
        while True:
            candidate = table[slot]
            if candidate < 0:
                table[slot] = found
                first[found] = i
                hashes[found] = h
                group[i] = found
                found += 1
                break
            if hashes[candidate] == h:
                other = first[candidate]
                same = True
                for j in range(width):
                    if rows[i, j] != rows[other, j]:
                        same = False
                        break
                if same:
                    group[i] = candidate
                    break
            slot = (slot + 1) & (size - 1)
        if 2 * found > size:
            size *= 4
            table = np.full(size, -1, np.int64)
            for g in range(found):
                slot = np.int64(hashes[g] & uint64(size - 1))
                while table[slot] >= 0:
                    slot = (slot + 1) & (size - 1)
                table[slot] = g
    return group, first[:found].copy()
