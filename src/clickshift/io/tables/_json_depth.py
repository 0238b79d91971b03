"""How deep JSON is nested, without recursion: parsers that recurse end the process on deep JSON."""

from __future__ import annotations

from typing import no_type_check

import numpy as np
from numba import njit

MAX_DEPTH = 100
"""Deepest nesting of lists and objects that is read; the rows of a log have two or three levels."""


def too_deep(data: bytes) -> bool:
    """Return whether some lists and objects of JSON lines are nested more than `MAX_DEPTH` levels deep.

    Parameters
    ----------
    data
        One or more lines. Line breaks end all nesting.

    Examples
    --------
    >>> too_deep(b'{"docs": [1, 2]}'), too_deep(b"[" * 200), too_deep(b'"' + b"[" * 200 + b'"')
    (False, True, False)
    """
    return bool(_depth(np.frombuffer(data, np.uint8)) > MAX_DEPTH)


@njit(cache=True, nogil=True)
@no_type_check
def _depth(data):
    """Return the deepest nesting of brackets outside of strings."""
    depth = deepest = 0
    in_string = escaped = False
    for byte in data:
        if byte == 10:  # line break
            depth, in_string, escaped = 0, False, False
        elif in_string:
            if escaped:
                escaped = False
            elif byte == 92:  # backslash
                escaped = True
            elif byte == 34:  # quotation mark
                in_string = False
        elif byte == 34:
            in_string = True
        elif byte == 91 or byte == 123:  # [ {
            depth += 1
            deepest = max(deepest, depth)
        elif byte == 93 or byte == 125:  # ] }
            depth -= 1
    return deepest
