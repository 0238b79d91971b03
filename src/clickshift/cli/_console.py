"""Output of commands: results as tables or JSON on standard output, progress and warnings on standard error."""

from __future__ import annotations

import json as json_text
import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import typer

_FILE_WIDTH = 160
"""Width of tables, in characters, where standard output is a file or a pipe."""


def show(result: Mapping[str, Any], *, json: bool, title: str = "") -> None:
    """Print the facts of one result: a two-column table, or the same as JSON."""
    if json:
        show_json(result)
        return
    show_table([{"": key.replace("_", " "), " ": value} for key, value in result.items()], title=title)


def show_json(result: Any) -> None:
    """Print a result as one line of JSON."""
    typer.echo(json_text.dumps(_plain(result), allow_nan=False))


def show_table(rows: Sequence[Mapping[str, Any]], *, title: str = "", caption: str = "") -> None:
    """Print rows with the same keys as an aligned table. Text is printed literally, without reading markup in it."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    columns = list(rows[0]) if rows else []
    table = Table(
        title=Text(title) if title else None,
        caption=Text(caption) if caption else None,
        title_justify="left",
        show_header=any(column.strip() for column in columns),
    )
    for column in columns:
        values = [row[column] for row in rows if row[column] is not None]
        numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
        table.add_column(Text(column), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(row[column])) for column in columns))
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:  # a file or a pipe has no width to fold to
        console = Console(width=_FILE_WIDTH)
    console.print(table)


def _cell(value: Any) -> str:
    """Format a value for a table cell."""
    if isinstance(value, float):
        from clickshift.display.values import decimal

        return f"{value:,.1f}" if abs(value) >= 1000 else decimal(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {_cell(v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return "  ".join(_cell(item) for item in value)
    return "" if value is None else printable(str(value))


def printable(text: str) -> str:
    """Escape control characters, which would move the cursor or change a terminal's colours, and line breaks."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _plain(value: Any) -> Any:
    """Convert a value to what JSON can hold: it has no NaN, no infinity and no numpy arrays."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def encoding_progress(report: Callable[[str], None]) -> Callable[[int], None]:
    """Return a progress callback for `open_log` that reports the number of sessions encoded so far."""
    total = 0

    def add(rows: int) -> None:
        nonlocal total
        total += rows
        report(f"{total:,} sessions encoded")

    return add


@contextmanager
def progress(description: str, total: int | None = None) -> Iterator[Callable[[int | str], None]]:
    """Show a progress bar on standard error while the block runs; nothing where that is not a terminal.

    The block receives a function to call with the number of newly completed steps, or with a text on the current state.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda step: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(description, total=total)

        def report(step: int | str) -> None:
            if isinstance(step, str):
                bar.update(task, description=f"{description}: {step}")
            else:
                bar.advance(task, step)

        yield report


@contextmanager
def warnings_shown() -> Iterator[None]:
    """Print each distinct clickshift warning of the block as one line on standard error; none if the block fails."""
    from clickshift.errors import ClickshiftWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ClickshiftWarning)
        yield
    show_warnings(dict.fromkeys(str(w.message) for w in caught if issubclass(w.category, ClickshiftWarning)))


def show_warnings(messages: Iterable[str]) -> None:
    """Print warnings on standard error, one line each."""
    for message in messages:
        typer.echo(f"clickshift: warning: {printable(message)}", err=True)
