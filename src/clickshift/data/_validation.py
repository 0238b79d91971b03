"""Validation rules of rankings and sessions. Each error names the first row that breaks the rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, no_type_check

import numpy as np
from numba import njit

from clickshift.core.parallel import for_ranges
from clickshift.data.vocabulary import UNSEEN, Vocabulary
from clickshift.errors import DataError


def check_integers(name: str, values: Any, ndim: int, dtype: type = np.int32) -> np.ndarray:
    """Return `values` as a contiguous integer array with `ndim` dimensions, or raise."""
    array = np.asarray(values)
    if array.dtype.kind not in "iu" or array.ndim != ndim:
        raise DataError(
            f"{name} must be integers in {ndim} dimension(s): got {array.dtype} of shape {array.shape}.",
            code="not-integers",
            name=name,
            dtype=str(array.dtype),
            shape=array.shape,
        )
    return np.ascontiguousarray(array, dtype)


def check_bits(name: str, values: Any, ndim: int) -> np.ndarray:
    """Return zeros and ones as a contiguous boolean array with `ndim` dimensions, or raise."""
    array = np.asarray(values)
    if array.ndim != ndim or array.dtype.kind not in "biuf":
        raise DataError(
            f"{name} must be 0 or 1 in {ndim} dimensions: got {array.dtype} of shape {array.shape}.",
            code="not-zero-or-one",
            name=name,
            dtype=str(array.dtype),
            shape=array.shape,
        )
    if array.dtype.kind != "b":
        bad = ~((array == 0) | (array == 1))
        raise_for_rows(
            bad,
            f"a {name} must be 0 or 1",
            lambda row: array[row, bad[row].argmax()],
            "Count repeated clicks as one, and remove or fill missing values.",
            code="not-zero-or-one",
        )
    return np.ascontiguousarray(array, bool)


def check_shape(name: str, shape: tuple[int, ...], other: str, expected: tuple[int, ...]) -> None:
    """Raise unless the array `name` has the shape that the array `other` implies."""
    if shape != expected:
        raise DataError(
            f"{name} must have the shape of {other}, {expected}: got {shape}.",
            code="wrong-shape",
            name=name,
            expected=expected,
            shape=shape,
        )


def raise_for_rows(bad: np.ndarray, rule: str, value: Callable[[int], Any], advice: str, *, code: str) -> None:
    """Raise if any entry of `bad` is set: name the first such row, its value, and the number of such rows."""
    if bad.any():
        rows = np.flatnonzero(bad if bad.ndim == 1 else bad.any(axis=1))
        row = int(rows[0])
        bad_value = value(row)
        raise DataError(
            f"session {row + 1}: {rule}: got {bad_value} ({len(rows):,} such sessions). {advice}",
            code=code,
            row=row + 1,
            value=bad_value.item() if isinstance(bad_value, np.generic) else bad_value,
            count=len(rows),
        )


_EMPTY, _RANGE, _OTHER_QUERY, _DUPLICATE = 1, 2, 3, 4
_LONG_LIST = 64
"""Length from which documents of a list are sorted to find a duplicate, instead of compared with each other."""
_LIST_RULES = {
    _EMPTY: ("empty-list", "a list must show at least one document. Remove the session."),
    _RANGE: (
        "pair-out-of-range",
        "the pair number at rank {rank} is outside the vocabulary's {n_pairs} pairs. "
        "Pass the vocabulary that it was made with.",
    ),
    _OTHER_QUERY: (
        "pair-of-other-query",
        "the document at rank {rank} belongs to another query than the session. Number the pairs again.",
    ),
    _DUPLICATE: (
        "duplicate-document",
        "a document must appear once in a list: {doc} is shown at rank {other} and again at rank {rank}. "
        "Keep the first, or remove the session.",
    ),
}
"""Code and message of each rule that a list must keep."""


def check_lists(vocabulary: Vocabulary, query: np.ndarray, pair: np.ndarray, shown: np.ndarray) -> None:
    """Raise for the first list that is empty, repeats a document, or does not fit its query."""
    violations: list[tuple[int, int, int, int]] = []

    def check_range(rows: slice) -> None:
        rule, row, rank, other = _first_violation(query[rows], pair[rows], shown[rows], vocabulary.pair_query)
        if rule:
            violations.append((rows.start + row, rule, rank, other))

    for_ranges(check_range, len(pair))
    row, rule, rank, other = min(violations, default=(0, 0, 0, 0))
    if rule:
        doc = vocabulary.doc_ids[vocabulary.pair_doc[pair[row, rank]]] if rule == _DUPLICATE else None
        code, template = _LIST_RULES[rule]
        message = template.format(rank=rank + 1, other=other + 1, n_pairs=vocabulary.n_pairs, doc=doc)
        facts: dict[str, Any] = {}
        if rule == _DUPLICATE:
            facts = {"document": str(doc), "first_rank": other + 1}
        elif rule == _RANGE:
            facts = {"n_pairs": vocabulary.n_pairs}
        raise DataError(f"session {row + 1}: {message}", code=code, row=row + 1, rank=rank + 1, **facts)


@njit(cache=True, nogil=True)
@no_type_check
def _first_violation(query, pair, shown, pair_query):
    """Return (rule, row, rank, other rank) of the first list that breaks a rule; zeros if there is none."""
    n, ranks = pair.shape
    for i in range(n):
        empty, compare = True, not (ranks > _LONG_LIST and _all_differ(pair[i], shown[i]))
        for r in range(ranks):
            if not shown[i, r]:
                continue
            empty = False
            p = pair[i, r]
            if p == UNSEEN:
                continue
            if p < 0 or p >= len(pair_query):
                return _RANGE, i, r, 0
            if pair_query[p] != query[i]:
                return _OTHER_QUERY, i, r, 0
            if compare:
                for earlier in range(r):
                    if pair[i, earlier] == p:
                        return _DUPLICATE, i, r, earlier
        if empty:
            return _EMPTY, i, 0, 0
    return 0, 0, 0, 0


@njit(cache=True, nogil=True)
@no_type_check
def _all_differ(pair, shown):
    """Return whether the known pairs of a list differ, by sorting them."""
    ordered = np.sort(pair[shown])
    same = (ordered[1:] == ordered[:-1]) & (ordered[1:] != UNSEEN)
    return not same.any()


def any_hole(shown: np.ndarray) -> bool:
    """Return whether a row shows nothing at a rank above one where it shows something."""
    return bool(_any_hole(shown))


def last_ranks(shown: np.ndarray) -> np.ndarray:
    """Return the last rank of each row where something is shown, from 1; 0 for a row that shows nothing."""
    last: np.ndarray = shown.shape[1] - shown[:, ::-1].argmax(axis=1)
    return np.where(shown.any(axis=1), last, 0)


@njit(cache=True, nogil=True)
@no_type_check
def _any_hole(shown):
    """Return whether an entry of a row that is True follows one that is False; rows are read one after the other."""
    n, ranks = shown.shape
    for i in range(n):
        found = False
        for r in range(1, ranks):
            found |= shown[i, r] and not shown[i, r - 1]
        if found:
            return True
    return False
