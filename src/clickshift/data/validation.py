"""The rules that rankings and sessions keep, each with an error that names the first row which breaks it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, no_type_check

import numpy as np
from numba import njit

from clickshift.core.parallel import for_ranges
from clickshift.data.vocabulary import UNSEEN, Vocabulary
from clickshift.errors import DataError


def check_integers(name: str, values: Any, ndim: int, dtype: type = np.int32) -> np.ndarray:
    array = np.asarray(values)
    if array.dtype.kind not in "iu" or array.ndim != ndim:
        raise DataError(f"{name} must be integers in {ndim} dimension(s): got {array.dtype} of shape {array.shape}.")
    return np.ascontiguousarray(array, dtype)


def check_bits(name: str, values: Any, ndim: int) -> np.ndarray:
    array = np.asarray(values)
    if array.ndim != ndim or array.dtype.kind not in "biuf":
        raise DataError(f"{name} must be 0 or 1 in {ndim} dimensions: got {array.dtype} of shape {array.shape}.")
    if array.dtype.kind != "b":
        bad = ~((array == 0) | (array == 1))
        raise_for_rows(
            bad,
            f"a {name} must be 0 or 1",
            lambda row: array[row, bad[row].argmax()],
            "Count repeated clicks as one, and drop or fill missing values.",
        )
    return np.ascontiguousarray(array, bool)


def check_shape(name: str, shape: tuple[int, ...], other: str, expected: tuple[int, ...]) -> None:
    if shape != expected:
        raise DataError(f"{name} must have the shape of {other}, {expected}: got {shape}.")


def raise_for_rows(bad: np.ndarray, rule: str, value: Callable[[int], Any], advice: str) -> None:
    """Raise for the first row with anything bad, with the value that it has, and say how many rows there are."""
    if bad.any():
        rows = np.flatnonzero(bad if bad.ndim == 1 else bad.any(axis=1))
        row = int(rows[0])
        raise DataError(f"session {row + 1}: {rule}: got {value(row)} ({len(rows):,} such sessions). {advice}")


_EMPTY, _GAP, _RANGE, _OTHER_QUERY, _DUPLICATE = 1, 2, 3, 4, 5
_LIST_RULES = {
    _EMPTY: "a list must show at least one document. Drop the session.",
    _GAP: "a list must have no gap: nothing is shown at rank {rank}, but something is below it. Close the gap.",
    _RANGE: "the pair number at rank {rank} is outside the vocabulary's {n_pairs} pairs. Was it made with another one?",
    _OTHER_QUERY: "the document at rank {rank} belongs to another query than the session. Number the pairs again.",
    _DUPLICATE: "a document must stand once in a list: {doc} stands at rank {other} and again at rank {rank}. "
    "Keep the first, or drop the session.",
}


def check_lists(vocabulary: Vocabulary, query: np.ndarray, pair: np.ndarray, shown: np.ndarray) -> None:
    problems: list[tuple[int, int, int, int]] = []

    def look(rows: slice) -> None:
        problem, row, rank, other = _first_problem(query[rows], pair[rows], shown[rows], vocabulary.pair_query)
        if problem:
            problems.append((rows.start + row, problem, rank, other))

    for_ranges(look, len(pair))
    row, problem, rank, other = min(problems, default=(0, 0, 0, 0))
    if problem:
        at = pair[row, rank]
        doc = vocabulary.doc_ids[vocabulary.pair_doc[at]] if problem == _DUPLICATE else None
        rule = _LIST_RULES[problem].format(rank=rank + 1, other=other + 1, n_pairs=vocabulary.n_pairs, doc=doc)
        raise DataError(f"session {row + 1}: {rule}")


@njit(cache=True, nogil=True)
@no_type_check
def _first_problem(query, pair, shown, pair_query):
    n, ranks = pair.shape
    for i in range(n):
        if not shown[i, 0]:
            for r in range(1, ranks):
                if shown[i, r]:
                    return _GAP, i, 0, 0
            return _EMPTY, i, 0, 0
        for r in range(ranks):
            if not shown[i, r]:
                for later in range(r + 1, ranks):
                    if shown[i, later]:
                        return _GAP, i, r, 0
                break
            p = pair[i, r]
            if p == UNSEEN:
                continue
            if p < 0 or p >= len(pair_query):
                return _RANGE, i, r, 0
            if pair_query[p] != query[i]:
                return _OTHER_QUERY, i, r, 0
            for earlier in range(r):
                if pair[i, earlier] == p:
                    return _DUPLICATE, i, r, earlier
    return 0, 0, 0, 0
