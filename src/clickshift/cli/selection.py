"""clickshift selection: can one tell, before a new ranker goes live, which click model to choose?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from clickshift.cli._console import Cluster, Json, Workers, show_json, show_table
from clickshift.cli._experiment_runner import Pool
from clickshift.cli.shift import Corpus

if TYPE_CHECKING:
    from clickshift.experiments.model_selection.protocol import ModelSelection

app = typer.Typer(help="Which click model to choose before a new ranker goes live?", no_args_is_help=True)
Output = typer.Option(Path("out/selection"), "--output", "-o", help="The folder for the rows and the report.")
Repeats = typer.Option(1000, min=1, help="Of the published cross-validation.")


@app.callback()
def group() -> None:
    """Which click model to choose before a new ranker goes live?"""


@app.command()
def run(
    output: Path = Output,
    scale: str = typer.Option("quick", help="'quick' (minutes) or 'paper' (5,000,000 sessions a log: days)."),
    corpus: str = Corpus,
    queries: int | None = typer.Option(None, min=2, help="How many queries of the corpus."),
    sessions: int | None = typer.Option(
        None, min=100, help="Sessions of a training log; a fifth of it for the others."
    ),
    seeds: int | None = typer.Option(None, min=1, help="Logs per user and policy."),
    model: list[str] = typer.Option([], help="Models to choose from, instead of the paper's seven; repeatable."),
    repeats: int = Repeats,
    workers: int | None = Workers,
    cluster: str | None = Cluster,
    json: bool = Json,
) -> None:
    """Learn from one policy's log, choose by what is known then, and see what that costs under another policy.

    Finished cells are kept in the output folder: run again after an interruption, and only the missing ones run.
    """
    from clickshift.cli._presets import selection_protocol

    pool = Pool(workers, cluster)
    protocol = selection_protocol(scale, corpus=corpus, queries=queries, sessions=sessions, seeds=seeds, models=model)
    run_and_report(protocol, output, corpus=corpus, pool=pool, repeats=repeats, json=json)


@app.command()
def status(output: Path = Output, json: bool = Json) -> None:
    """Which cells of a run are done."""
    protocol, folder, _ = _opened(output)
    done = {(cell.log, cell.contender.name): folder.has(cell) for cell in protocol.cells()}
    logs = dict.fromkeys(log for log, _ in done)
    table = [
        {"log": log, "done": sum(there for (of, _), there in done.items() if of == log), "of": len(protocol.contenders)}
        for log in logs
    ]
    if json:
        show_json({"logs": table, "done": sum(done.values()), "of": len(done)})
    else:
        show_table(table, title=f"{output}: {sum(done.values())} of {len(done)} cells are done")


@app.command()
def report(output: Path = Output, repeats: int = Repeats, json: bool = Json) -> None:
    """Write the tables and charts of a run again, from the cells that are done."""
    protocol, folder, settings = _opened(output)
    _show(folder.rows(protocol.cells()), output, settings, repeats=repeats, json=json)


def run_and_report(
    protocol: ModelSelection, output: Path, *, corpus: str, pool: Pool, repeats: int, json: bool
) -> None:
    from clickshift.cli._experiment_runner import run_with_progress
    from clickshift.experiments.model_selection.protocol import rows_of
    from clickshift.experiments.run_metadata import start_run

    folder, settings = start_run(protocol, output, corpus=corpus)
    cells = protocol.cells()
    failed = run_with_progress(cells, rows_of, folder, pool, name=lambda cell: cell.name)
    if any(map(folder.has, cells)):
        _show(folder.rows(cells), output, settings, repeats=repeats, json=json)
    failed.complain()


def _opened(output: Path) -> tuple[ModelSelection, Any, dict[str, Any]]:
    from clickshift.errors import RunError
    from clickshift.experiments.model_selection.protocol import ModelSelection
    from clickshift.experiments.run_metadata import open_run

    protocol, folder, settings = open_run(output)
    if not isinstance(protocol, ModelSelection):
        raise RunError(f"{output}: holds a run of another protocol. Look at it with `clickshift shift`.")
    return protocol, folder, settings


def _show(rows: list[dict[str, Any]], output: Path, settings: dict[str, Any], *, repeats: int, json: bool) -> None:
    from clickshift.cli._experiment_runner import show_written
    from clickshift.experiments.model_selection._report import write_selection_report
    from clickshift.experiments.model_selection.r2 import r2_rows
    from clickshift.experiments.model_selection.regret import regret_rows

    written = write_selection_report(output, rows, settings, repeats=repeats)
    if json:
        found = {"regret": regret_rows(rows), "r2": r2_rows(rows, repeats=repeats)}
        show_json({"rows": rows, **found, "report": str(written.page)})
        return
    show_written(written)
