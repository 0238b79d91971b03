"""clickshift selection: which click model to choose before a new ranker is deployed?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from clickshift.cli._console import show_json, show_table
from clickshift.cli._experiment_runner import Pool
from clickshift.cli._options import CLUSTER, JSON, WORKERS
from clickshift.cli.shift import CORPUS

if TYPE_CHECKING:
    from clickshift.experiments.model_selection.protocol import ModelSelection

app = typer.Typer(
    help="Measure how well a click model can be chosen before a new ranker is deployed.", no_args_is_help=True
)
_OUTPUT = typer.Option(Path("out/selection"), "--output", "-o", help="Folder for the result rows and the report.")
_REPEATS = typer.Option(1000, min=1, help="Number of repetitions of the published cross-validation.")


@app.callback()
def group() -> None:
    """Measure how well a click model can be chosen before a new ranker is deployed."""


@app.command()
def run(
    output: Path = _OUTPUT,
    scale: str = typer.Option("quick", help="Scale: 'quick' (minutes) or 'paper' (5,000,000 sessions a log: days)."),
    corpus: str = CORPUS,
    queries: int | None = typer.Option(None, min=2, help="Number of queries of the corpus."),
    sessions: int | None = typer.Option(
        None, min=100, help="Number of sessions of a training log; the other logs have a fifth of it."
    ),
    seeds: int | None = typer.Option(None, min=1, help="Number of logs per user and policy."),
    model: list[str] = typer.Option([], help="Model to choose from, instead of the paper's seven; repeatable."),
    repeats: int = _REPEATS,
    workers: int | None = WORKERS,
    cluster: str | None = CLUSTER,
    json: bool = JSON,
) -> None:
    """Fit models on one policy's log, choose by metrics of that log, and measure the regret under another policy.

    Finished tasks are kept in the output folder: after an interruption, run again, and only the missing ones run.
    """
    from clickshift.cli._presets import selection_protocol

    pool = Pool(workers, cluster)
    protocol = selection_protocol(scale, corpus=corpus, queries=queries, sessions=sessions, seeds=seeds, models=model)
    run_and_report(protocol, output, corpus=corpus, pool=pool, repeats=repeats, json=json)


@app.command()
def status(output: Path = _OUTPUT, json: bool = JSON) -> None:
    """Show which tasks of a run are finished."""
    protocol, folder, _ = _open_run(output)
    done = {(cell.log, cell.contender.name): folder.has(cell) for cell in protocol.cells()}
    table = [
        {
            "log": log,
            "done": sum(finished for (its_log, _), finished in done.items() if its_log == log),
            "of": len(protocol.contenders),
        }
        for log in dict.fromkeys(log for log, _ in done)
    ]
    if json:
        show_json({"logs": table, "done": sum(done.values()), "of": len(done)})
    else:
        show_table(table, title=f"{output}: {sum(done.values())} of {len(done)} tasks are finished")


@app.command()
def report(output: Path = _OUTPUT, repeats: int = _REPEATS, json: bool = JSON) -> None:
    """Write the tables and charts of a run again, from its finished tasks."""
    protocol, folder, settings = _open_run(output)
    _show(folder.rows(protocol.cells()), output, settings, repeats=repeats, json=json)


def run_and_report(
    protocol: ModelSelection, output: Path, *, corpus: str, pool: Pool, repeats: int, json: bool
) -> None:
    """Run the missing tasks of a protocol and write its report."""
    from clickshift.cli._experiment_runner import run_with_progress
    from clickshift.experiments.model_selection.protocol import rows_of
    from clickshift.experiments.run_metadata import start_run

    folder, settings = start_run(protocol, output, corpus=corpus)
    cells = protocol.cells()
    failures = run_with_progress(cells, rows_of, folder, pool, name=lambda cell: cell.name)
    if any(map(folder.has, cells)):
        _show(folder.rows(cells), output, settings, repeats=repeats, json=json)
    failures.raise_if_any()


def _open_run(output: Path) -> tuple[ModelSelection, Any, dict[str, Any]]:
    """Open the folder of a run, which must be one of this protocol."""
    from clickshift.errors import RunError
    from clickshift.experiments.model_selection.protocol import ModelSelection
    from clickshift.experiments.run_metadata import open_run

    protocol, folder, settings = open_run(output)
    if not isinstance(protocol, ModelSelection):
        raise RunError(
            f"{output}: holds a run of another protocol. Use `clickshift shift` for it.",
            code="other-protocol",
            path=str(output),
        )
    return protocol, folder, settings


def _show(rows: list[dict[str, Any]], output: Path, settings: dict[str, Any], *, repeats: int, json: bool) -> None:
    """Write the report of a run and print it, or its rows as JSON."""
    from clickshift.cli._experiment_runner import show_written
    from clickshift.experiments.model_selection._report import write_selection_report
    from clickshift.experiments.model_selection.r2 import r2_rows
    from clickshift.experiments.model_selection.regret import regret_rows

    written = write_selection_report(output, rows, settings, repeats=repeats)
    if json:
        tables = {"regret": regret_rows(rows), "r2": r2_rows(rows, repeats=repeats)}
        show_json({"rows": rows, **tables, "report": str(written.page)})
        return
    show_written(written)
