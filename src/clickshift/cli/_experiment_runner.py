"""Experiments on the command line: run the missing tasks, show progress, and collect failures."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import typer

from clickshift.cli._console import printable, progress, show_table, show_warnings

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from clickshift.display.export import Written
    from clickshift.experiments.runner import FinishedTask, RunFolder


@dataclass(frozen=True)
class Pool:
    """Workers that run tasks: processes of this machine, or a Dask cluster."""

    workers: int | None
    cluster: str | None

    def __post_init__(self) -> None:
        if self.workers is not None and self.cluster is not None:
            raise typer.BadParameter(
                "pass --workers or --cluster, not both: a cluster has as many workers as were started."
            )

    def open(self, folder: RunFolder) -> AbstractContextManager[Executor]:
        """Start the processes, or connect to the cluster."""
        from clickshift.experiments.dask import cluster
        from clickshift.experiments.runner import process_pool

        return process_pool(self.workers) if self.cluster is None else cluster(self.cluster, folder.path)


@dataclass
class Failures:
    """Messages of the tasks that failed."""

    messages: list[str] = field(default_factory=list)

    def raise_if_any(self) -> None:
        """Raise an error if a task failed; to be called after the results of the others are shown."""
        from clickshift.errors import RunError

        if self.messages:
            raise RunError(
                f"{len(self.messages)} tasks failed, the results of the others are kept. The first: "
                f"{self.messages[0]} Fix the cause and run again: only missing tasks run.",
                code="failed-tasks",
                count=len(self.messages),
                first=self.messages[0],
            )


def run_with_progress(
    cells: Sequence[Any],
    work: Callable[[Any], list[dict[str, Any]]],
    folder: RunFolder,
    pool: Pool,
    *,
    name: Callable[[Any], str],
) -> Failures:
    """Run the tasks whose rows are missing, each in one process, with a line on standard error per finished task.

    Parameters
    ----------
    cells
        All tasks of the experiment.
    work
        Function that computes the rows of a task.
    folder
        Folder of the run, which keeps the rows of finished tasks.
    pool
        Workers that run the tasks.
    name
        Function that names a task for the user.

    Returns
    -------
    Failures
        Messages of the tasks that failed.
    """
    from clickshift.experiments.runner import run_tasks

    failures, missing = Failures(), [cell for cell in cells if not folder.has(cell)]
    if not missing:
        return failures
    start, done, notes = time.perf_counter(), 0, dict[str, str]()
    with progress("tasks", len(cells)) as advance, pool.open(folder) as executor:
        advance(len(cells) - len(missing))

        def report(finished: FinishedTask[Any]) -> None:
            nonlocal done
            done += 1
            remaining = (time.perf_counter() - start) / done * (len(missing) - done)
            outcome = printable(f"{name(finished.task)}: {finished.error or f'{finished.seconds:.1f} s'}")
            count = f"[{len(cells) - len(missing) + done}/{len(cells)}]"
            typer.echo(f"{count} {outcome} (about {_duration(remaining)} left)", err=True)
            if finished.error:
                failures.messages.append(f"{name(finished.task)}: {finished.error}")
            for note in finished.notes:
                notes.setdefault(note, name(finished.task))
            advance(1)

        run_tasks(missing, work, folder, executor, progress=report)
    show_warnings(f"{first}: {note}" for note, first in notes.items())
    return failures


def _duration(seconds: float) -> str:
    """Format a duration in seconds or minutes."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def show_written(written: Written) -> None:
    """Print the tables and verdicts of a written report, and the paths of its files."""
    for title, table in written.tables.items():
        show_table(table, title=title)
    for verdict in written.verdicts:
        typer.echo(f"{verdict['model']}: {verdict['verdict']}. {verdict['text']}\n")
    for note in written.notes:
        typer.echo(note, err=True)
    show_paths(written)


def show_paths(written: Written) -> None:
    """Print the paths of a report's page and rows."""
    typer.echo(f"Report: {written.page}   Rows: {written.rows}")
