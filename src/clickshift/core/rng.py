"""Random generators derived from names, so that a draw does not depend on the order of other draws.

>>> a = generator(7, "train", "PBM").random()
>>> _ = generator(7, "train", "UBM").random()
>>> a == generator(7, "train", "PBM").random()
True
"""

from __future__ import annotations

import hashlib

import numpy as np


def generator(seed: int, *names: str | int) -> np.random.Generator:
    """A generator that is a function of the seed and the names alone."""
    text = "\x1f".join([str(int(seed)), *map(str, names)])
    digest = hashlib.blake2b(text.encode(), digest_size=32).digest()
    return np.random.default_rng(np.frombuffer(digest, dtype=np.uint32))


def as_generator(rng: int | np.random.Generator) -> np.random.Generator:
    """Accept a seed where a generator is expected, as numpy's own functions do."""
    return rng if isinstance(rng, np.random.Generator) else generator(rng)


def stream_key(rng: np.random.Generator) -> int:
    """63 random bits: the key from which a compiled kernel derives one stream per session (see `streams`)."""
    return int(rng.integers(0, 2**63))
