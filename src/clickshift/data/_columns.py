"""Optional columns of a log beyond clicks: propensities by position, signals of results, segments of sessions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from clickshift.data._validation import check_shape, raise_for_rows
from clickshift.data.segments import Segment, check_number_of_labels
from clickshift.errors import DataError

VIEWED = "viewed"
"""Signal of a result that was in the viewport."""
ARM = "arm"
"""Segment of the experiment arm."""
PROPENSITY_AT_RANK = "propensity_at_rank"
"""Name of the column of propensities by position."""
TABLE_COLUMNS = frozenset(
    (
        *("session", "query", "docs", "clicks", "rank", "doc", "click"),
        *("time", "day", "user", "count", "propensity", "log_propensity", PROPENSITY_AT_RANK),
    )
)
"""Names of the columns of a log that no signal and no segment may have."""
_ROUNDING = 1e-9


def check_name(kind: str, name: Any, others: Collection[str] = ()) -> None:
    """Check the name of a signal or a segment: text that no other column of a log has.

    Parameters
    ----------
    kind
        "signal" or "segment".
    name
        The name.
    others
        Further names that it must not have.

    Raises
    ------
    DataError
        "bad-column-name".
    """
    reserved = TABLE_COLUMNS | {VIEWED if kind == "segment" else ARM, *others}
    if not isinstance(name, str) or not name or not name.isprintable() or name in reserved:
        raise DataError(
            f"the name of a {kind} must be text, and not one of {', '.join(sorted(reserved))}: got {name!r}. Choose "
            "another name.",
            code="bad-column-name",
            value=str(name),
        )


def checked_propensity(propensity: Any, shown: np.ndarray) -> np.ndarray:
    """Return propensities by position as floats, 0 where nothing is shown, or raise "not-a-probability"."""
    values = _numbers("propensity", propensity, shown)
    bad = shown & ~((values > 0) & (values <= 1 + _ROUNDING))
    raise_for_rows(
        bad,
        "a propensity by position must be a probability above 0 and at most 1 where a document is shown",
        lambda row: f"{values[row, bad[row].argmax()]} at rank {bad[row].argmax() + 1}",
        "Remove the session, or pass no propensities.",
        code="not-a-probability",
    )
    return np.where(shown, values, 0.0)


def checked_signals(signals: Mapping[str, Any], shown: np.ndarray) -> dict[str, np.ndarray]:
    """Return signals as booleans (all 0 or 1, and known) or floats (NaN where unknown), 0 where nothing is shown."""
    checked = {}
    for name, given in signals.items():
        check_name("signal", name)
        array = np.asarray(given)
        if array.dtype.kind == "b":
            check_shape(name, array.shape, "pair", shown.shape)
            check_on_results(name, array, shown)
            checked[name] = np.ascontiguousarray(array)
            continue
        values = _numbers(name, given, shown)
        known = ~np.isnan(values)
        check_on_results(name, known & (values != 0), shown)
        check_signal_values(name, values, raise_for_rows)
        checked[name] = as_signal(values, shown)
    return checked


def check_signal_values(name: str, values: np.ndarray, complain: Callable[..., None]) -> None:
    """Complain about values of a signal that are negative or infinite, or of `viewed` that are neither 0 nor 1."""
    if name == VIEWED:
        bad = ~(np.isnan(values) | (values == 0) | (values == 1))
        rule, code, advice = "viewed must be 0 or 1, or unknown", "not-zero-or-one", "Fix or remove the value."
    else:
        bad = ~(np.isnan(values) | ((values >= 0) & (values < np.inf)))
        rule, code = f"the signal {name} must be a finite number of 0 or more, or unknown", "bad-signal"
        advice = "Keep refunds in a signal of their own."
    complain(bad, rule, lambda row: values[row, bad[row].argmax()], advice, code=code)


def check_on_results(name: str, present: np.ndarray, shown: np.ndarray) -> None:
    """Raise if a signal is on a rank where nothing is shown."""
    wrong = present & ~shown
    raise_for_rows(
        wrong,
        f"the signal {name} must be on a document that is shown",
        lambda row: f"one at rank {wrong[row].argmax() + 1}",
        "Remove it, or show the document.",
        code="signal-without-document",
    )


def as_signal(values: np.ndarray, shown: np.ndarray) -> np.ndarray:
    """Return a signal in its smallest form: booleans if all values are 0 or 1, else floats; 0 where nothing is shown.

    Equal signals have equal bits: there is one zero and one NaN.
    """
    values = np.where(shown, values, 0.0)
    if ((values == 0) | (values == 1)).all():
        return values.astype(bool)
    values[np.isnan(values)] = np.nan
    return values + 0.0


def checked_segments(
    segments: Mapping[str, Segment], n_sessions: int, signals: Collection[str] = ()
) -> dict[str, Segment]:
    """Return segments if there is a label for each session, and no signal of the same name, or raise."""
    checked = {}
    for name, segment in segments.items():
        check_name("segment", name, signals)
        check_number_of_labels(len(segment.labels), name)
        check_shape(name, segment.code.shape, "query", (n_sessions,))
        checked[name] = segment
    return checked


def rows_of(columns: Mapping[str, Any], rows: Any) -> dict[str, Any]:
    """Return some rows of signals or of segments."""
    return {name: values[rows] for name, values in columns.items()}


def padded(values: np.ndarray, ranks: int, padding: Any = 0) -> np.ndarray:
    """Return a matrix with more ranks, on the right."""
    missing = ranks - values.shape[1]
    return values if missing <= 0 else np.pad(values, ((0, 0), (0, missing)), constant_values=padding)


def concat_signals(parts: Sequence[Mapping[str, np.ndarray]], ranks: int) -> dict[str, np.ndarray]:
    """Concatenate the signals that every part has, with the same number of ranks."""
    names = [name for name in parts[0] if all(name in part for part in parts)]
    return {name: np.concatenate([padded(part[name], ranks) for part in parts]) for name in names}


def concat_segments(parts: Sequence[Mapping[str, Segment]]) -> dict[str, Segment]:
    """Concatenate the segments that every part has."""
    names = [name for name in parts[0] if all(name in part for part in parts)]
    return {name: Segment.concat([part[name] for part in parts]) for name in names}


def key_columns(
    propensity: np.ndarray | None, signals: Mapping[str, np.ndarray], segments: Mapping[str, Segment]
) -> list[np.ndarray]:
    """Return matrices of integers that are equal in two rows if, and only if, these columns are."""
    keys = [] if propensity is None else [propensity.view(np.int64)]
    for values in signals.values():
        keys.append(pack_bits(values) if values.dtype == bool else np.ascontiguousarray(values).view(np.int64))
    return keys + [segment.code[:, None].astype(np.int64) for segment in segments.values()]


def pack_bits(bits: np.ndarray) -> np.ndarray:
    """Pack the bits of a row into one integer per 32 ranks, which hash faster."""
    weights = 1 << (np.arange(bits.shape[1], dtype=np.int64) % 32)
    starts = np.arange(0, bits.shape[1], 32)
    packed: np.ndarray = np.add.reduceat(bits * weights, starts, axis=1)
    return packed


def _numbers(name: str, values: Any, shown: np.ndarray) -> np.ndarray:
    """Return a matrix of numbers as floats, or raise."""
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise DataError(
            f"{name} must be numbers: got {array.dtype} of shape {array.shape}. Convert them first.",
            code="not-a-number",
            name=name,
            dtype=str(array.dtype),
            shape=array.shape,
        )
    check_shape(name, array.shape, "pair", shown.shape)
    return np.array(array, np.float64)
