"""Tidy rows -> tables that a person reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]


def pivot(rows: Sequence[Row], *, index: str, columns: str, values: str) -> list[dict[str, Any]]:
    """One row per value of `index`, one column per value of `columns`, in order of appearance."""
    names = list(dict.fromkeys(row[columns] for row in rows))
    table: dict[Any, dict[str, Any]] = {}
    for row in rows:
        table.setdefault(row[index], {index: row[index]} | dict.fromkeys(names))[row[columns]] = row[values]
    return list(table.values())


def shift_table(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Perplexity of each model: on the training policy's own lists (ind), then on every other policy's (ood)."""
    return pivot(
        [{**row, "log": f"{row['shift']}: {row['testing']}"} for row in rows],
        index="model",
        columns="log",
        values="perplexity",
    )
