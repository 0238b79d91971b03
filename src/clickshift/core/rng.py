"""Random generators derived from a seed and names, so that a draw does not depend on the order of other draws.

>>> a = generator(7, "train", "PBM").random()
>>> _ = generator(7, "train", "UBM").random()
>>> a == generator(7, "train", "PBM").random()
True
"""

from __future__ import annotations

import hashlib

import numpy as np


def generator(seed: int, *names: str | int) -> np.random.Generator:
    """Return a generator that is a function of the seed and the names only.

    Parameters
    ----------
    seed
        Random seed.
    *names
        Purpose of the draws, e.g. "train" and the name of a model.

    Examples
    --------
    >>> round(generator(0, "split").random(), 6) == round(generator(0, "split").random(), 6)
    True
    """
    text = "\x1f".join([str(int(seed)), *map(str, names)])
    digest = hashlib.blake2b(text.encode(), digest_size=32).digest()
    return np.random.default_rng(np.frombuffer(digest, dtype=np.uint32))


def as_generator(rng: int | np.random.Generator) -> np.random.Generator:
    """Return a random generator from a seed or a generator, as numpy's own functions accept both.

    Parameters
    ----------
    rng
        Random seed, or a generator that is returned unchanged.
    """
    return rng if isinstance(rng, np.random.Generator) else generator(rng)


def stream_key(rng: np.random.Generator) -> int:
    """Draw 63 random bits: the key from which a kernel derives one stream per session (see `random_streams`).

    Parameters
    ----------
    rng
        Random generator.
    """
    return int(rng.integers(0, 2**63))
