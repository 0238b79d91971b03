"""XXH64, a fast checksum of 64 bits that notices damage; it has no key, and so does not notice intent."""

from __future__ import annotations

from typing import no_type_check

import numpy as np
from numba import njit

_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)
_ZERO = np.uint64(0)


@njit(cache=True, nogil=True)
@no_type_check
def xxh64(content):
    """Return the XXH64 checksum of an array of bytes, with the seed 0.

    A quarter of the time of CRC-32, and about the time that it takes to read the memory. The names and steps are those
    of the specification, "XXH64 algorithm description" of xxHash by Y. Collet.
    """
    size = len(content)
    words = content[: size // 8 * 8].view(np.uint64)
    stripes = size // 32 * 4
    if stripes:
        a, b, c, d = _P1 + _P2, _P2, _ZERO, _ZERO - _P1
        for k in range(0, stripes, 4):
            a = _round(a, words[k])
            b = _round(b, words[k + 1])
            c = _round(c, words[k + 2])
            d = _round(d, words[k + 3])
        total = _rotate(a, 1) + _rotate(b, 7) + _rotate(c, 12) + _rotate(d, 18)
        for lane in (a, b, c, d):
            total = (total ^ _round(_ZERO, lane)) * _P1 + _P4
    else:
        total = _P5
    total += np.uint64(size)
    for k in range(stripes, len(words)):
        total = _rotate(total ^ _round(_ZERO, words[k]), 27) * _P1 + _P4
    at = 8 * len(words)
    if at + 4 <= size:
        half = _ZERO
        for k in range(4):
            half |= np.uint64(content[at + k]) << np.uint64(8 * k)
        total = _rotate(total ^ (half * _P1), 23) * _P2 + _P3
        at += 4
    for k in range(at, size):
        total = _rotate(total ^ (np.uint64(content[k]) * _P5), 11) * _P1
    total = (total ^ (total >> np.uint64(33))) * _P2
    total = (total ^ (total >> np.uint64(29))) * _P3
    return total ^ (total >> np.uint64(32))


@njit(cache=True, nogil=True)
@no_type_check
def _round(lane, word):
    """Mix a word into a lane."""
    return _rotate(lane + word * _P2, 31) * _P1


@njit(cache=True, nogil=True)
@no_type_check
def _rotate(word, bits):
    """Rotate a word to the left."""
    return (word << np.uint64(bits)) | (word >> np.uint64(64 - bits))
