"""Output of commands: results as tables or JSON on standard output, progress and warnings on standard error."""

from __future__ import annotations

import json as json_text
import logging
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from clickshift.cli._startup import compilation_announced, leave_out_pandas, modules_are_loaded
from clickshift.core.text import printable

if TYPE_CHECKING:
    from clickshift.core.progress import Progress
    from clickshift.display.result import Result


_verbosity = {"quiet": False, "verbose": False}
_log = logging.getLogger("clickshift")


def set_verbosity(*, quiet: bool = False, verbose: bool = False) -> None:
    """Choose what is printed on standard error beside errors; log lines have a time, for machines."""
    _verbosity.update(quiet=quiet, verbose=verbose)
    for handler in [handler for handler in _log.handlers if isinstance(handler, _LogLines)]:
        _log.removeHandler(handler)
    _log.setLevel(logging.DEBUG if verbose else logging.NOTSET)
    if verbose:
        handler = _LogLines(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s.%(msecs)03d %(levelname)s %(name)s: %(message)s", _TIME))
        _log.addHandler(handler)


_TIME = "%Y-%m-%dT%H:%M:%S"


class _LogLines(logging.StreamHandler):  # type: ignore[type-arg]
    """Log lines on standard error, in which text from data is escaped."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        return printable(super().format(record))


def is_verbose() -> bool:
    """Return whether log lines and tracebacks are printed."""
    return _verbosity["verbose"]


def say(message: str) -> None:
    """Print a note on standard error, unless only results and errors are wanted."""
    if not _verbosity["quiet"]:
        typer.echo(printable(message), err=True)


def show_json(result: Any) -> None:
    """Print a result as one line of JSON."""
    from clickshift.display.result import plain

    typer.echo(json_text.dumps(plain(result), allow_nan=False))


def show_table(rows: Sequence[Mapping[str, Any]], *, title: str = "", caption: str = "") -> None:
    """Print rows with the same keys as an aligned table."""
    from clickshift.display.terminal import print_table

    print_table(rows, title=title, caption=caption)


def render(result: Result, *, json: bool, output: Path | None = None, report: Path | None = None) -> None:
    """Write a result to its output and its report, if asked for, and print it: its document, or its facts as JSON.

    A report is needed apart from the output where the output is the file or folder that the result is for.
    """
    from clickshift.display.result import Result
    from clickshift.display.terminal import print_document

    asked = {name: path for name, path in (("output", output), ("report", report)) if path is not None}
    written = [result.write(path) if name == "output" else Result.write(result, path) for name, path in asked.items()]
    if json:
        show_json(result.to_dict() | {name: str(path) for name, path in asked.items()})
        return
    print_document(result.document)
    for path, files in zip(asked.values(), written, strict=True):
        for note in files.notes:
            say(note)
        paths = {"Report": files.page, "Rows": files.rows, "Tables and figures": files.exports}
        shown = [f"{name}: {path}" for name, path in paths.items() if path is not None] or [f"Output: {path}"]
        typer.echo("   ".join(shown))


def check_report(report: Path | None) -> None:
    """Check that a report can be written, before the work whose result it shows."""
    from clickshift.display.result import Result

    if report is not None:
        Result.check_output(report)


@contextmanager
def reporting(description: str, total: int | None = None) -> Iterator[Progress]:
    """Show the progress of the block on standard error, and its warnings after it, one line each."""
    from clickshift.core.progress import silent
    from clickshift.display.progress import progress as shown

    leave_out_pandas()
    if _verbosity["quiet"]:
        with warnings_shown():
            yield silent
        return
    with warnings_shown(), shown(description, total) as report, compilation_announced():
        yield _logged(report, description) if _verbosity["verbose"] else report


def _logged(report: Progress, description: str) -> Progress:
    """Return a function that also writes the texts of progress to the log."""

    def logged(step: int | str, /, *, total: int | None = None) -> None:
        if isinstance(step, str):
            _log.debug("%s: %s", description, step.strip())
        report(step, total=total)

    return logged


@contextmanager
def warnings_shown() -> Iterator[None]:
    """Print each distinct clickshift warning of the block as one line on standard error; none if the block fails."""
    from clickshift.errors import ClickshiftWarning

    modules_are_loaded()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ClickshiftWarning)
        yield
    show_warnings(dict.fromkeys(str(w.message) for w in caught if issubclass(w.category, ClickshiftWarning)))


def show_warnings(messages: Iterable[str]) -> None:
    """Print warnings on standard error, one line each."""
    for message in messages:
        say(f"clickshift: warning: {message}")
