"""Rows of experiments without what differs between equal runs."""

from __future__ import annotations

from clickshift.display.tables import Rows


def without_costs(rows: Rows) -> Rows:
    """The rows without what their task cost: seconds and megabytes."""
    return [{name: value for name, value in row.items() if not name.endswith(("seconds", "megabytes"))} for row in rows]
