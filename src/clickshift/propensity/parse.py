"""Examination in words: "1/rank", "1/rank^0.5", or numbers such as "1,0.6,0.4"."""

from __future__ import annotations

import re

import numpy as np
from jaxtyping import Float

from clickshift.errors import SpecError

_POWER = re.compile(r"1\s*/\s*rank\s*(?:(?:\^|\*\*)\s*([0-9]*\.?[0-9]+))?")


def parse_examination(text: str, ranks: int) -> Float[np.ndarray, " rank"]:
    """A curve by its law, for so many ranks, or as it is written.

    >>> parse_examination("1/rank^0.5", 4).round(3).tolist()
    [1.0, 0.707, 0.577, 0.5]
    >>> parse_examination("1, 0.6", 4).tolist()
    [1.0, 0.6]
    """
    if law := _POWER.fullmatch(text.strip()):
        curve: np.ndarray = np.arange(1.0, ranks + 1) ** -float(law[1] or 1)
        return curve
    try:
        return np.array([float(part) for part in text.split(",")])
    except ValueError:
        raise SpecError(
            f"examination must be 1/rank, 1/rank^0.5 or the like, or numbers such as 1,0.6,0.4: got {text!r}."
        ) from None
