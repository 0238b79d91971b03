"""Columns of results and of segments in the files of an encoded log, block by block.

Only results that are shown have values. A block of a column is stored in the smallest of three forms: a bit per result
where all are 0 or 1, a byte where some of them are unknown, and else a 64-bit float.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, no_type_check

import numpy as np
from jaxtyping import Float, UInt8
from numba import njit

from clickshift.data._columns import PROPENSITY_AT_RANK, check_name
from clickshift.data.segments import UNKNOWN, check_labels

BITS, BYTES, FLOATS = "b", "t", "f"
"""Forms of a block: bits; bytes 0, 1, and 2 for unknown; 64-bit floats, NaN for unknown."""
_UNKNOWN_BYTE = 2
CODES = "<i2"
"""Type of the codes of segments, of which there are at most 1,000."""


def pack_results(values: Float[np.ndarray, " result"]) -> tuple[str, bytes]:
    """Return the form and the bytes of the values of a column's results.

    Parameters
    ----------
    values
        The values, NaN where unknown.
    """
    unknown = np.isnan(values)
    if not ((values == 0) | (values == 1) | unknown).all():
        return FLOATS, (np.where(unknown, np.nan, values) + 0.0).astype("<f8").tobytes()  # one zero and one NaN
    if unknown.any():
        return BYTES, np.where(unknown, _UNKNOWN_BYTE, values).astype(np.uint8).tobytes()
    return BITS, np.packbits(values == 1).tobytes()


def unpack_results(form: str, content: UInt8[np.ndarray, " byte"], n_results: int) -> np.ndarray:
    """Return the values that `pack_results` packed, as booleans or floats.

    Raises
    ------
    ValueError
        If a byte is not that of a value.
    """
    if form == BITS:
        return np.unpackbits(content, count=n_results).view(bool)
    if form == FLOATS:
        return content.view("<f8").astype(np.float64)
    if len(content) and content.max() > _UNKNOWN_BYTE:
        raise ValueError("a value of a signal must be 0, 1 or unknown")
    return np.where(content == _UNKNOWN_BYTE, np.nan, content)


def packed_size(form: str, n_results: int) -> int:
    """Return the number of bytes of the values of so many results."""
    return {BITS: -(-n_results // 8), BYTES: n_results, FLOATS: 8 * n_results}[form]


@dataclass(frozen=True, eq=False)
class ResultColumns:
    """Positions of the columns of results in their file: block by block, and column by column in a block.

    Parameters
    ----------
    names
        Names of the signals, and `propensity_at_rank`.
    forms
        Forms of the columns in each block, one letter per column.
    n_results
        Number of results that each block shows.
    """

    names: tuple[str, ...] = ()
    forms: tuple[str, ...] = ()
    n_results: tuple[int, ...] = ()

    @classmethod
    def of(cls, header: Mapping[str, Any], n_blocks: int) -> ResultColumns:
        """Read the positions from a header; ValueError if they are not those of an encoded log."""
        if "results" not in header:
            return cls()
        stored = header["results"]
        names, forms, sizes = (tuple(stored[name]) for name in ("names", "forms", "n_results"))
        for name in names:
            if name != PROPENSITY_AT_RANK:
                check_name("signal", name)
        if not names or len(set(names)) < len(names):
            raise ValueError("columns of results must have different names")
        if not len(forms) == len(sizes) == n_blocks:
            raise ValueError("columns of results must have a form and a size for each block")
        for form, size in zip(forms, sizes, strict=True):
            if len(form) != len(names) or not set(form) <= {BITS, BYTES, FLOATS} or type(size) is not int or size < 1:
                raise ValueError("a block of results must have a form for each column, and results")
        return cls(names, forms, sizes)

    def to_header(self) -> dict[str, Any]:
        """Return the entries of the header of a log."""
        stored = {"names": self.names, "forms": self.forms, "n_results": self.n_results}
        return {"results": {name: list(values) for name, values in stored.items()}} if self.names else {}

    @cached_property
    def ends(self) -> list[int]:
        """Position of the first byte of each block, and the size of the file."""
        sizes = [
            sum(packed_size(form, n) for form in forms) for forms, n in zip(self.forms, self.n_results, strict=True)
        ]
        return [0, *np.cumsum(sizes).tolist()]

    def block(self, number: int) -> slice:
        """Return the bytes of a block."""
        return slice(self.ends[number], self.ends[number + 1])

    def unpack(self, number: int, content: UInt8[np.ndarray, " byte"]) -> dict[str, np.ndarray]:
        """Return the values of each column in a block; a signal has one type in all blocks."""
        values, at = {}, 0
        for k, (name, form) in enumerate(zip(self.names, self.forms[number], strict=True)):
            end = at + packed_size(form, self.n_results[number])
            column = unpack_results(form, content[at:end], self.n_results[number])
            values[name] = column if k in self._truth_values else column.astype(np.float64)
            at = end
        return values

    @cached_property
    def _truth_values(self) -> frozenset[int]:
        """Numbers of the columns whose values are 0 or 1 in all blocks."""
        columns = (k for k, name in enumerate(self.names) if name != PROPENSITY_AT_RANK)
        return frozenset(k for k in columns if all(forms[k] == BITS for forms in self.forms))


def check_results(values: Mapping[str, np.ndarray]) -> None:
    """Raise ValueError if values of results are not those of a log."""
    for name, column in values.items():
        if name == PROPENSITY_AT_RANK and not ((column > 0) & (column <= 1 + 1e-9)).all():
            raise ValueError("a propensity by position must be a probability above 0 and at most 1")
        if column.dtype == np.float64 and not (np.isnan(column) | ((column >= 0) & (column < np.inf))).all():
            raise ValueError(f"the signal {name} must be a number of 0 or more, or unknown")


def stored_segments(header: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Read the labels of the segments from a header; ValueError if they are not those of an encoded log."""
    segments = {name: tuple(labels) for name, labels in header.get("segments", {}).items()}
    for name, labels in segments.items():
        check_name("segment", name)
        check_labels(labels)
    return segments


def check_codes(codes: np.ndarray, labels: Sequence[Sequence[str]]) -> None:
    """Raise ValueError if a code of a segment (a row of the matrix) has no label."""
    for column, names in zip(codes, labels, strict=True):
        if len(column) and not (column.min() >= UNKNOWN and column.max() < len(names)):
            raise ValueError("a segment must have a label for each code")


def blocks_of_similar_lists(extent: np.ndarray, length: np.ndarray, largest: int, small: int) -> list[slice]:
    """Return runs of lists, in order, whose matrix is not far larger than their results; one for most logs.

    Parameters
    ----------
    extent
        Rank of the last result of each list, from 1: its row in a matrix needs so many places.
    length
        Number of results of each list.
    largest
        Largest size of a matrix as a multiple of its results.
    small
        Number of places that a matrix may have, however few results it has.
    """
    if len(extent) * int(extent.max()) <= max(largest * int(length.sum()), small):
        return [slice(0, len(extent))]
    starts = _block_starts(extent.astype(np.int64), length.astype(np.int64), largest, small)
    return [slice(start, stop) for start, stop in pairwise([*starts.tolist(), len(extent)])]


@njit(cache=True, nogil=True)
@no_type_check
def _block_starts(extent, length, largest, small):
    """Return the first list of each run; a run ends where one more list would make its matrix too large."""
    starts = np.zeros(len(extent), np.int64)
    n, start, width, results = 1, 0, 0, 0
    for i in range(len(extent)):
        width, results = max(width, extent[i]), results + length[i]
        if i > start and (i + 1 - start) * width > max(largest * results, small):
            starts[n], start, width, results = i, i, extent[i], length[i]
            n += 1
    return starts[:n]
