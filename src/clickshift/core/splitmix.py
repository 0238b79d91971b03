"""Mixing function of splitmix64, for hashes and random streams: every bit of the result depends on every bit of x.

It is a bijection of 64-bit numbers. Kernels inline it; `mix.py_func` applies it to an array.

References
----------
Steele, G. L., Lea, D. and Flood, C. H. (2014). Fast splittable pseudorandom number generators. OOPSLA.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np
from numba import njit

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""2^64 divided by the golden ratio, odd: the increment of splitmix64."""
MULTIPLIER_1, MULTIPLIER_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_SHIFT_1, _SHIFT_2, _SHIFT_3 = np.uint64(30), np.uint64(27), np.uint64(31)


@njit(inline="always")
@no_type_check
def mix(x):
    """Return the mixed bits of x, a uint64."""
    x = (x ^ (x >> _SHIFT_1)) * MULTIPLIER_1
    x = (x ^ (x >> _SHIFT_2)) * MULTIPLIER_2
    return x ^ (x >> _SHIFT_3)
