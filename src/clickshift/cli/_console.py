"""What commands show: results as a table or as JSON on standard output; progress and warnings on standard error."""

from __future__ import annotations

import json as json_text
import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import typer

_FILE_WIDTH = 160

LogPath = typer.Argument(
    ..., help="The log: a .parquet, .csv or .jsonl file, a folder, a glob, FILE.duckdb::TABLE, or an encoded log."
)
Json = typer.Option(False, "--json", help="Print one JSON object, for machines.")
Workers = typer.Option(None, min=1, help="Processes; by default, one per core.")
Cluster = typer.Option(
    None, metavar="ADDRESS", help="Run on a Dask cluster, e.g. tcp://host:8786, instead of this machine's cores."
)


def show(result: Mapping[str, Any], *, json: bool, title: str = "") -> None:
    """One thing's facts: a two-column table, or the same as JSON."""
    if json:
        show_json(result)
        return
    show_table([{"": key.replace("_", " "), " ": value} for key, value in result.items()], title=title)


def show_json(result: Any) -> None:
    typer.echo(json_text.dumps(_plain(result), allow_nan=False))


def show_table(rows: Sequence[Mapping[str, Any]], *, title: str = "", caption: str = "") -> None:
    """Rows with the same keys, as an aligned table. Text from logs is shown as it is: no markup is read in it."""
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
    """One line of text; what would move the cursor or change a terminal's colours is written out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _plain(value: Any) -> Any:
    """JSON has no NaN and no numpy."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def sessions_encoded(hear: Callable[[str], None]) -> Callable[[int], None]:
    """For `open_log`: say how many sessions of a large log have been encoded."""
    done = 0

    def add(rows: int) -> None:
        nonlocal done
        done += rows
        hear(f"{done:,} sessions encoded")

    return add


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Callable[[int | str], None]]:
    """A bar on standard error while long work runs; nothing where that is not a terminal. Call the value with the work
    done, or with words on how it goes."""
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
        yield lambda done: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=total)

        def hear(done: int | str) -> None:
            if isinstance(done, str):
                bar.update(task, description=f"{what}: {done}")
            else:
                bar.advance(task, done)

        yield hear


@contextmanager
def warnings_shown() -> Iterator[None]:
    """Our own warnings, one line each on standard error; none where an error has the last word."""
    from clickshift.errors import ClickshiftWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ClickshiftWarning)
        yield
    for said in dict.fromkeys(str(w.message) for w in caught if issubclass(w.category, ClickshiftWarning)):
        typer.echo(f"clickshift: warning: {printable(said)}", err=True)
