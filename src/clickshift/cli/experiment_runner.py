"""Run the tasks of an experiment with progress on a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import typer

from clickshift.cli.console import printable, progress, show_table

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from clickshift.display.export import Written
    from clickshift.experiments.runner import FinishedTask, RunFolder


@dataclass(frozen=True)
class Pool:
    """Who runs the cells: processes of this machine, or a cluster."""

    workers: int | None
    cluster: str | None

    def __post_init__(self) -> None:
        if self.workers is not None and self.cluster is not None:
            raise typer.BadParameter(
                "give --workers or --cluster, not both: a cluster has as many workers as were started."
            )

    def open(self, folder: RunFolder) -> AbstractContextManager[Executor]:
        from clickshift.experiments.dask import cluster
        from clickshift.experiments.runner import process_pool

        return process_pool(self.workers) if self.cluster is None else cluster(self.cluster, folder.path)


@dataclass
class Failures:
    """What went wrong, cell by cell."""

    said: list[str] = field(default_factory=list)

    def complain(self) -> None:
        """Raise if a cell failed: after the results of the others are shown."""
        from clickshift.errors import RunError

        if self.said:
            raise RunError(
                f"{len(self.said)} cells failed, the others are kept. The first: {self.said[0]} "
                "Mend the cause and run again: only missing cells run."
            )


def run_with_progress(
    cells: Sequence[Any],
    work: Callable[[Any], list[dict[str, Any]]],
    folder: RunFolder,
    pool: Pool,
    *,
    name: Callable[[Any], str],
) -> Failures:
    """Run the cells that are missing, each in one process; one line per finished cell on standard error."""
    from clickshift.experiments.runner import run_tasks

    failures, missing = Failures(), [cell for cell in cells if not folder.has(cell)]
    if not missing:
        return failures
    start, done, notes = time.perf_counter(), 0, dict[str, str]()
    with progress("cells", len(cells)) as advance, pool.open(folder) as executor:
        advance(len(cells) - len(missing))

        def hear(news: FinishedTask[Any]) -> None:
            nonlocal done
            done += 1
            left = (time.perf_counter() - start) / done * (len(missing) - done)
            what = printable(f"{name(news.task)}: {news.error or f'{news.seconds:.1f} s'}")
            typer.echo(f"[{len(cells) - len(missing) + done}/{len(cells)}] {what} (about {_time(left)} left)", err=True)
            if news.error:
                failures.said.append(f"{name(news.task)}: {news.error}")
            for note in news.notes:
                notes.setdefault(note, name(news.task))
            advance(1)

        run_tasks(missing, work, folder, executor, progress=hear)
    for note, first in notes.items():
        typer.echo(f"clickshift: warning: {printable(f'{first}: {note}')}", err=True)
    return failures


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def show_written(written: Written) -> None:
    """What of a report a terminal shows, and where the rest is."""
    for title, table in written.tables.items():
        show_table(table, title=title)
    for verdict in written.verdicts:
        typer.echo(f"{verdict['model']}: {verdict['verdict']}. {verdict['text']}\n")
    for note in written.notes:
        typer.echo(note, err=True)
    typer.echo(f"Report: {written.page}   Rows: {written.rows}")
