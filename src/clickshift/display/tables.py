"""Tidy rows -> tables that a person reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
"""One row of a table: a value by column name."""
Rows = list[dict[str, Any]]
"""Tidy rows, as functions return them."""


def curve_table(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """How users move through the list, for reading: the last click says so where there was none."""
    read = {"last_click": "last click"}
    return [
        {read.get(name, name): value or "none" if name in read else value for name, value in row.items()}
        for row in rows
    ]
