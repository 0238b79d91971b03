"""Output of commands: results as tables or JSON on standard output, progress and warnings on standard error."""

from __future__ import annotations

import json as json_text
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from clickshift.cli._startup import compilation_announced, leave_out_pandas
from clickshift.core.text import printable

if TYPE_CHECKING:
    from clickshift.core.progress import Progress
    from clickshift.display.result import Result


def show_json(result: Any) -> None:
    """Print a result as one line of JSON."""
    from clickshift.display.result import plain

    typer.echo(json_text.dumps(plain(result), allow_nan=False))


def show_table(rows: Sequence[Mapping[str, Any]], *, title: str = "", caption: str = "") -> None:
    """Print rows with the same keys as an aligned table."""
    from clickshift.display.terminal import print_table

    print_table(rows, title=title, caption=caption)


def render(result: Result, *, json: bool, output: Path | None = None) -> None:
    """Write a result to its output, if one was asked for, and print it: its document, or its facts as JSON."""
    from clickshift.display.terminal import print_document

    written = None if output is None else result.write(output)
    if json:
        show_json(result.to_dict() | ({} if written is None else {"output": str(output)}))
        return
    print_document(result.document)
    if written is not None:
        for note in written.notes:
            typer.echo(note, err=True)
        paths = {"Report": written.page, "Rows": written.rows}
        shown = [f"{name}: {path}" for name, path in paths.items() if path is not None] or [f"Output: {output}"]
        typer.echo("   ".join(shown))


@contextmanager
def reporting(description: str, total: int | None = None) -> Iterator[Progress]:
    """Show the progress of the block on standard error, and its warnings after it, one line each."""
    from clickshift.display.progress import progress as shown

    leave_out_pandas()
    with warnings_shown(), shown(description, total) as report, compilation_announced():
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
