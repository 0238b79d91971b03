"""A progress bar for terminals and notebooks, and a line now and then for log files."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from clickshift.core.progress import Progress
from clickshift.core.text import printable

__all__ = ["progress"]

_SECONDS = 15.0
"""Time between two lines of progress in a log file."""


@contextmanager
def progress(description: str, total: int | None = None) -> Iterator[Progress]:
    """Show the progress of the block on standard error.

    A terminal and a notebook show a bar. A log file receives a line every 15 seconds, so that short work leaves none.
    A text that ends with a line break is a result: it stays on the terminal, above the bar.

    Parameters
    ----------
    description
        What is being done, e.g. "fitting UBM".
    total
        Number of steps in all, if it is known.

    Yields
    ------
    Progress
        The function to pass as `progress=...`.

    Examples
    --------
    >>> with progress("counting", total=2) as report:
    ...     report(1)
    ...     report("the second file")
    ...     report(1)
    """
    from rich.console import Console

    console = Console(stderr=True)
    if console.is_terminal or console.is_jupyter:
        with _bar(console, description, total) as report:
            yield report
    else:
        yield _Lines(description, total)


@contextmanager
def _bar(console: object, description: str, total: int | None) -> Iterator[Progress]:
    """Show a progress bar of rich."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(description, total=total)

        def report(step: int | str, /, *, total: int | None = None) -> None:
            if total is not None:
                bar.update(task, total=total)
            if isinstance(step, str) and step.endswith("\n"):
                bar.print(printable(step[:-1]), markup=False, highlight=False)
            elif isinstance(step, str):
                bar.update(task, description=f"{description}: {printable(step)}")
            else:
                bar.advance(task, step)

        yield report


class _Lines:
    """Progress as lines of a log file, a few per minute."""

    def __init__(self, description: str, total: int | None) -> None:
        self._description, self._total, self._done, self._state = description, total, 0, ""
        self._start = self._last = time.monotonic()

    def __call__(self, step: int | str, /, *, total: int | None = None) -> None:
        self._total = total if total is not None else self._total
        if isinstance(step, str):
            self._state = f": {printable(step.rstrip())}"
        else:
            self._done += step
        now = time.monotonic()
        if now - self._last < _SECONDS:
            return
        self._last = now
        count = f", {self._done:,}{'' if self._total is None else f' of {self._total:,}'}" if self._done else ""
        print(f"clickshift: {self._description}{self._state}{count} ({now - self._start:.0f} s)", file=sys.stderr)
