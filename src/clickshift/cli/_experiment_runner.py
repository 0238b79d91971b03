"""Paths of a written report, for commands that do not return a result yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from clickshift.display.export import Written


def show_paths(written: Written) -> None:
    """Print the paths of a report's page and rows."""
    typer.echo(f"Report: {written.page}   Rows: {written.rows}")
