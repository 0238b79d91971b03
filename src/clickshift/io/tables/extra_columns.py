"""Columns of a log beyond lists and clicks: what was seen, further signals, propensities by position, segments.

Our names of the columns that a caller chooses have a prefix: "signal:cart", "segment:device". So they pass through
every function that takes `columns`, and cannot be mistaken for another column.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from jaxtyping import Bool

from clickshift.data._columns import ARM, PROPENSITY_AT_RANK, VIEWED, check_name
from clickshift.errors import DataError
from clickshift.io.tables.columns import Column

SIGNAL, SEGMENT = "signal:", "segment:"
"""Prefixes of our names of the columns of signals and segments."""
EXTRA_COLUMNS = (VIEWED, PROPENSITY_AT_RANK, ARM)
"""Optional columns of a log that are recognised by their name."""
_ROUNDING = 1e-9


def columns_with(
    columns: Mapping[str, str] | None, signals: Sequence[str] = (), segments: Sequence[str] = ()
) -> dict[str, str]:
    """Add the columns of signals and segments to the names of a log's columns.

    Parameters
    ----------
    columns
        The log's names of our columns.
    signals, segments
        Names of the columns of further signals of results, and of segments of sessions.

    Returns
    -------
    dict
        The names, those of signals and segments under "signal:NAME" and "segment:NAME".

    Raises
    ------
    DataError
        "bad-column-name" for a name that another column has.

    Examples
    --------
    >>> columns_with({"docs": "shown"}, ["cart", "viewed"], ["device"])
    {'docs': 'shown', 'signal:cart': 'cart', 'segment:device': 'device'}
    """
    for argument, names in (("signals", signals), ("segments", segments)):
        if isinstance(names, str):
            raise DataError(
                f'{argument} must be a list of names: got {names!r}. Pass ["{names}"].',
                code="bad-option",
                option=argument,
                value=names,
            )
    chosen = dict(columns or {})
    for prefix, names in ((SIGNAL, signals), (SEGMENT, segments)):
        for name in names:
            if name not in EXTRA_COLUMNS:  # those are found without being chosen
                check_name(prefix.removesuffix(":"), name)
                chosen.setdefault(f"{prefix}{name}", name)
    return chosen


def chosen_extras(columns: Mapping[str, str]) -> list[str]:
    """Return our names of the signals and segments that a caller chose, checked.

    Raises
    ------
    DataError
        "bad-column-name" for a name that another column has, or that both a signal and a segment have.
    """
    chosen = [name for name in columns if name.startswith((SIGNAL, SEGMENT)) and columns[name]]
    plain = [plain_name(name) for name in chosen]
    for name, own in zip(chosen, plain, strict=True):
        check_name(name.partition(":")[0], own, tuple(other for other in plain if plain.count(other) > 1))
    return chosen


def plain_name(name: str) -> str:
    """Return the name of a signal or segment in `Sessions`, without its prefix."""
    return name.removeprefix(SIGNAL).removeprefix(SEGMENT)


def is_of_results(name: str) -> bool:
    """Return whether a column has a value for each result of a list."""
    return name in {VIEWED, PROPENSITY_AT_RANK} or name.startswith(SIGNAL)


def is_signal(name: str) -> bool:
    """Return whether a column is a signal of results."""
    return name == VIEWED or name.startswith(SIGNAL)


def is_segment(name: str) -> bool:
    """Return whether a column is a segment of sessions."""
    return name == ARM or name.startswith(SEGMENT)


def violations_of_results(
    name: str, column: Column, hole: Bool[np.ndarray, " result"] | None
) -> Iterator[tuple[Bool[np.ndarray, " result"], str, str]]:
    """Yield the masks of the results that break a rule of their column, each with the rule's code and text.

    Parameters
    ----------
    name
        Our name of the column: a signal, or the propensity by position.
    column
        Its values; a missing one is unknown.
    hole
        Where no document is shown, if that is anywhere.
    """
    values, known = column.values, ~column.bad
    if column.unparsable is not None:
        yield column.unparsable, "not-a-number", "must be a number"
    if name == PROPENSITY_AT_RANK:
        bad = column.bad | ~((values > 0) & (values <= 1 + _ROUNDING))
        yield bad if hole is None else bad & ~hole, "not-a-probability", "must be above 0 and at most 1"
        return
    if name == VIEWED:
        yield known & (values != 0) & (values != 1), "not-zero-or-one", "must be 0 or 1, or missing"
    else:
        yield known & ~((values >= 0) & (values < np.inf)), "bad-signal", "must be 0 or more, or missing"
    if hole is not None:
        yield known & (values != 0) & hole, "signal-without-document", "must be 0 or missing where there is no document"


def result_values(name: str, column: Column) -> np.ndarray:
    """Return the values of a column of results as floats, NaN where a signal is unknown, and 0 for no propensity."""
    unknown = 0.0 if name == PROPENSITY_AT_RANK else np.nan
    values = column.values.astype(np.float64)
    return np.where(column.bad, unknown, values) if column.bad.any() else values
