"""Values of tables as text, the same on a page and on a terminal: each column with the digits that its error allows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from clickshift.display.tables import Row
from clickshift.display.values import Measured, decimal, decimals

_DIGITS = 4
"""Decimals of a number whose error is not known, and the most that an interval allows."""
_ITEMS = 12
"""Most values of a list in one cell."""
_NOTHING = 1e-15
"""A probability below this is a rounding error of zero; a p-value below it is shown as below it."""
_P_VALUE = "p"
"""Name of columns of p-values."""


def texts(rows: Sequence[Row]) -> list[dict[str, str | Measured]]:
    """Format the values of a table.

    Numbers have the digits that the interval of their row allows, shares are percentages, seconds have one or two
    digits, and large numbers have thousands separators.

    Parameters
    ----------
    rows
        Rows with equal keys.

    Returns
    -------
    list of dict
        The rows with texts as values; a `Measured` stays one, with the digits that its column allows.

    Examples
    --------
    >>> texts([{"value": 0.123456, "low": 0.1011, "high": 0.1458, "unseen_share": 0.0015, "sessions": 10000}])
    [{'value': '0.123', 'low': '0.101', 'high': '0.146', 'unseen_share': '0.15%', 'sessions': '10,000'}]
    """
    if not rows:
        return []
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    digits = _interval_digits(columns)
    named = [_name_of(row) for row in rows] if _is_facts(columns) else None
    shown: list[dict[str, str | Measured]] = [{} for _ in rows]
    for name, values in columns.items():
        spread = _digits_of([value.half for value in values if isinstance(value, Measured)])
        for k, value in enumerate(values):
            if isinstance(value, Measured):
                fewer = replace(value, digits=min(value.digits, spread)) if spread is not None else value
                shown[k][name] = fewer
            else:
                shown[k][name] = text(value, named[k] if named else name, digits.get(name))
    return shown


def text(value: Any, name: str = "", digits: int | None = None) -> str:
    """Format one value.

    Parameters
    ----------
    value
        A number, text, list, mapping or None.
    name
        Name of the value, which tells shares and seconds.
    digits
        Number of decimals; by default four.

    Returns
    -------
    str
        The text, with no more than a few values of a list.

    Examples
    --------
    >>> text(10000), text(0.25), text(0.0015, "unseen share"), text(1.6307, "seconds"), text(2e-308), text(None)
    ('10,000', '0.2500', '0.15%', '1.6', '0.0000', '')
    >>> text(2e-8, "p"), text(3e-17, "p")
    ('2e-08', '<1e-15')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if not _is_ordinal(name) else str(value)
    if isinstance(value, float):
        return _number(value, name, digits)
    if isinstance(value, Mapping):
        return _listed([f"{k} {text(v, name)}" for k, v in value.items()], ", ")
    if isinstance(value, list | tuple):
        return _listed([text(item, name) for item in value], "  ")
    return str(value)


def _number(value: float, name: str, digits: int | None) -> str:
    """Format a number by the name of its column."""
    if not math.isfinite(value):
        return "–" if math.isnan(value) else "∞" if value > 0 else "−∞"
    if _is_share(name) and abs(value) <= 1:
        return share(value)
    if _is_seconds(name):
        return f"{value:,.0f}" if abs(value) >= 10 else f"{value:.1f}" if abs(value) >= 1 else f"{value:.2f}"
    if name == _P_VALUE and 0 <= value < _NOTHING:
        return f"<{_NOTHING:g}"
    value = 0.0 if abs(value) < _NOTHING else value
    if digits is not None:
        return f"{value:,.{digits}f}"
    return f"{value:,.1f}" if abs(value) >= 1000 else decimal(value)


def share(value: float) -> str:
    """Format a share as a percentage, with one digit, or two below one percent.

    Examples
    --------
    >>> share(0.5), share(0.0015), share(0.0), share(1e-9)
    ('50.0%', '0.15%', '0%', '<0.01%')
    """
    if value == 0:
        return "0%"
    if 0 < value < 5e-5:
        return "<0.01%"
    return f"{value:.2%}" if abs(value) < 0.01 else f"{value:.1%}"


def _interval_digits(columns: Mapping[str, Sequence[Any]]) -> dict[str, int]:
    """Return the decimals of columns that are intervals, that lie in one, or that are half of their widths."""
    found: dict[str, int] = {}
    for name, values in columns.items():
        if name.endswith("half-width") and (largest := max(filter(_is_float, values), default=0.0)) > 0:
            found[name] = decimals(largest) + 1  # so that parts of a whole can be compared with it
    for low_name in columns:
        high_name = low_name.replace("low", "high")
        if high_name == low_name or high_name not in columns:
            continue
        ends = list(zip(columns[low_name], columns[high_name], strict=True))
        digits = _digits_of([(high - low) / 2 for low, high in ends if _is_float(low) and _is_float(high)])
        if digits is None:
            continue
        for name, values in columns.items():
            inside = (
                low <= value <= high
                for value, (low, high) in zip(values, ends, strict=True)
                if _is_float(value) and _is_float(low) and _is_float(high)
            )
            if name in {low_name, high_name} or (any(isinstance(value, float) for value in values) and all(inside)):
                found.setdefault(name, digits)
    return found


def _digits_of(halves: Sequence[float]) -> int | None:
    """Return the decimals that typical half-widths allow; None without any."""
    known = [half for half in halves if half > 0 and math.isfinite(half)]
    return min(decimals(median(known)), _DIGITS) if known else None


def _is_float(value: Any) -> bool:
    """Return whether a value is a number that is not NaN."""
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)


def _is_facts(columns: Mapping[str, Sequence[Any]]) -> bool:
    """Return whether a table has facts by name: two columns without headings."""
    return len(columns) == 2 and not "".join(columns).strip()


def _name_of(row: Row) -> str:
    """Return the name of a fact."""
    return str(next(iter(row.values())))


def _is_share(name: str) -> bool:
    """Return whether a column holds shares of a whole."""
    return name.replace("_", " ").split(" ")[-1].lower() in {"share", "shares"}


def _is_seconds(name: str) -> bool:
    """Return whether a column holds durations."""
    return name.replace("_", " ").split(" ")[-1].lower() in {"seconds", "s"}


def _is_ordinal(name: str) -> bool:
    """Return whether whole numbers of a column are names, which have no thousands separators."""
    return name.replace("_", " ").split(" ")[-1].lower() in {"seed", "year", "id", "query", "doc", "day"}


def _listed(items: Sequence[str], separator: str) -> str:
    """Join items; of many, the first ones."""
    if len(items) <= _ITEMS:
        return separator.join(items)
    return f"{separator.join(items[: _ITEMS - 2])}{separator}… ({len(items):,} in all)"
