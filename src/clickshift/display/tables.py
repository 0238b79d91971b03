"""Rows of tables: the types that functions return, and tables that people read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
"""One row of a table: values by column name."""
Rows = list[dict[str, Any]]
"""Tidy rows, as functions return them."""


def curve_table(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Format the browsing parameters of a click model as a table: sessions without a click read "none".

    Parameters
    ----------
    rows
        Tidy rows of one parameter, with `last_click` (the rank of the last click) where the parameter depends on it.

    Returns
    -------
    list of dict
        The same rows with the headings of a table.

    Examples
    --------
    >>> curve_table([{"parameter": "examination", "rank": 1, "last_click": None, "estimate": 0.9}])
    [{'parameter': 'examination', 'rank': 1, 'last click': 'none', 'estimate': 0.9}]
    """
    headings = {"last_click": "last click"}
    return [
        {headings.get(name, name): value or "none" if name in headings else value for name, value in row.items()}
        for row in rows
    ]
