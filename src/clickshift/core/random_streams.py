"""Random numbers for compiled kernels: one xoshiro256++ stream per session.

A stream is a function of (key, session number) only, so a simulated log does not depend on the number of threads.

References
----------
Blackman, D. and Vigna, S. (2021). Scrambled linear pseudorandom number generators. ACM Transactions on Mathematical
Software. Streams are seeded by splitmix64, as the authors advise.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np
from numba import njit, uint64

from clickshift.core.splitmix import GOLDEN, MULTIPLIER_1, mix

_TO_UNIT = 1.0 / 4503599627370496.0  # 2 ** -52


@njit(inline="always")
@no_type_check
def open_stream(state, key, number):
    """Initialise the state of a stream.

    Parameters
    ----------
    state
        Array of 4 x uint64 to fill.
    key
        Key that all streams of one draw share.
    number
        Number of the stream, e.g. of the session.
    """
    seed = mix(uint64(key) + GOLDEN) ^ mix(uint64(number) * GOLDEN + MULTIPLIER_1)
    for i in range(4):
        seed += GOLDEN
        state[i] = mix(seed)


@njit(inline="always")
@no_type_check
def next_uniform(state):
    """Return the next uniform float64 of a stream, and advance its state.

    The number lies in (0, 1). It is never 0 or 1, so the logarithms of it and of 1 minus it are finite.

    Parameters
    ----------
    state
        State that `open_stream` initialised.
    """
    total = state[0] + state[3]
    result = ((total << uint64(23)) | (total >> uint64(41))) + state[0]
    shifted = state[1] << uint64(17)
    state[2] ^= state[0]
    state[3] ^= state[1]
    state[1] ^= state[2]
    state[0] ^= state[3]
    state[2] ^= shifted
    state[3] = (state[3] << uint64(45)) | (state[3] >> uint64(19))
    return (float(result >> uint64(12)) + 0.5) * _TO_UNIT  # 52 bits: with 53, the largest number would round to 1


@njit(cache=True, nogil=True)
@no_type_check
def uniforms(key, first, out):
    """Fill row i of `out` with uniform numbers in (0, 1) from stream `first + i` of `key`.

    Parameters
    ----------
    key
        Key that all streams share.
    first
        Number of the stream of row 0.
    out
        Matrix of float64 to fill.
    """
    state = np.empty(4, np.uint64)
    for i in range(out.shape[0]):
        open_stream(state, key, first + i)
        for j in range(out.shape[1]):
            out[i, j] = next_uniform(state)
