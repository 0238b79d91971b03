"""clickshift shift: will a click model hold when the ranker changes?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from clickshift.cli.console import Cluster, Json, Workers, show_json, show_table
from clickshift.cli.experiment_runner import Pool, show_written
from clickshift.cli.shift_logs import logs, show_logs

if TYPE_CHECKING:
    from clickshift.experiments.policy_shift.protocol import PolicyShift
    from clickshift.experiments.real_logs import RealLogs
    from clickshift.experiments.runner import RunFolder

app = typer.Typer(help="Will a click model hold when the ranker changes?", no_args_is_help=True)
Output = typer.Option(Path("out/shift"), "--output", "-o", help="The folder for the rows and the report.")
Corpus = typer.Option("builtin", help="'builtin', or a LETOR file or folder.")
Fresh = typer.Option(True, "--reference/--no-reference", help="Take shipped rows for cells that have them.")


@app.callback()
def group() -> None:
    """Will a click model hold when the ranker changes?"""


@app.command()
def run(
    output: Path = Output,
    scale: str = typer.Option("quick", help="'quick' (minutes) or 'paper' (the whole grid, ten seeds: an hour)."),
    candidate: list[str] = typer.Option(
        [], help="Your model to compare, as package.module:Class or as a learner; repeatable."
    ),
    corpus: str = Corpus,
    user: list[str] = typer.Option([], help="Who clicks, instead of the scale's; repeatable."),
    training: list[str] = typer.Option(
        [], help="Who ranked the log, e.g. PL-BM25, a policy, or several joined by ' + '; repeatable."
    ),
    testing: list[str] = typer.Option([], help="Who ranks the test lists, e.g. random or Feature(25); repeatable."),
    model: list[str] = typer.Option([], help="Click models to compare, instead of the paper's six; repeatable."),
    queries: int | None = typer.Option(None, min=2, help="How many queries of the corpus."),
    sessions: int | None = typer.Option(None, min=100, help="Sessions of each training policy's log."),
    test_sessions: int | None = typer.Option(None, min=10, help="Sessions of each test policy's log."),
    seeds: int | None = typer.Option(None, min=1, help="Models per cell, from different starts."),
    derived: bool = typer.Option(True, help="Also try the policies that each model would derive."),
    search: str | None = typer.Option(None, help="How Max-Reward is found: local, or sampled as in the paper."),
    penalty: list[float] = typer.Option(
        [], help="Also Max-Reward less so many standard deviations between seeds; repeatable."
    ),
    fair: bool = typer.Option(False, "--fair", help="Also a policy with exposure in proportion to relevance."),
    seed: int | None = typer.Option(None, help="Of the simulated world."),
    reference: bool = Fresh,
    workers: int | None = Workers,
    cluster: str | None = Cluster,
    json: bool = Json,
) -> None:
    """Learn from one policy's log, predict clicks on other policies' lists: tables, charts, verdicts and a report.

    Finished cells are kept in the output folder: run again after an interruption, and only the missing ones run.
    """
    from clickshift.cli.presets import policy_shift_protocol

    pool = Pool(workers, cluster)
    protocol = policy_shift_protocol(
        scale,
        candidates=candidate,
        corpus=corpus,
        users=user,
        training=training,
        testing=testing,
        models=model,
        queries=queries,
        sessions=sessions,
        test_sessions=test_sessions,
        seeds=seeds,
        derived=derived,
        search=search,
        penalties=penalty,
        fair=fair,
        seed=seed,
    )
    run_and_report(protocol, output, corpus=corpus, reference=reference, pool=pool, json=json)


@app.command()
def status(output: Path = Output, json: bool = Json) -> None:
    """Which cells of a run are done."""
    protocol, folder, _ = _opened(output)
    done = {(cell.log, cell.contender.name): folder.has(cell) for cell in protocol.cells()}
    if json:
        cells = [{"log": log, "model": model, "done": there} for (log, model), there in done.items()]
        show_json({"cells": cells, "done": sum(done.values()), "of": len(done)})
        return
    models = [contender.name for contender in protocol.contenders]
    table = [
        {"log": log} | {model: "done" if done[log, model] else "–" for model in models}
        for log in dict.fromkeys(log for log, _ in done)
    ]
    show_table(table, title=f"{output}: {sum(done.values())} of {len(done)} cells are done")


@app.command()
def report(output: Path = Output, json: bool = Json) -> None:
    """Write the tables, charts and verdicts of a run again, from the cells that are done."""
    from clickshift.errors import RunError
    from clickshift.experiments.real_logs import RealLogs

    protocol, folder, settings = _opened(output)
    rows = folder.rows(protocol.cells())
    if not rows:
        raise RunError(f"{output}: no cell of this run is done yet. Run it first.")
    if isinstance(protocol, RealLogs):
        show_logs([*folder.rows(protocol.facts()), *rows], output, settings, json=json)
    else:
        _show(rows, output, settings, json=json)


app.command()(logs)


def _opened(output: Path) -> tuple[PolicyShift | RealLogs, RunFolder, dict[str, object]]:
    from clickshift.errors import RunError
    from clickshift.experiments.model_selection.protocol import ModelSelection
    from clickshift.experiments.run_metadata import open_run

    protocol, folder, settings = open_run(output)
    if isinstance(protocol, ModelSelection):
        raise RunError(f"{output}: holds a run of another protocol. Look at it with `clickshift selection`.")
    return protocol, folder, settings


def run_and_report(
    protocol: PolicyShift, output: Path, *, corpus: str, reference: bool, pool: Pool, json: bool
) -> None:
    """What `run` and every table and figure by name have in common."""
    from clickshift.cli.experiment_runner import run_with_progress
    from clickshift.experiments.policy_shift.protocol import rows_of
    from clickshift.experiments.run_metadata import start_run
    from clickshift.experiments.runner import copy_reference_rows

    folder, settings = start_run(protocol, output, corpus=corpus)
    cells = protocol.cells()
    shipped = copy_reference_rows(cells, folder) if reference else 0
    if shipped and not json:
        typer.echo(f"{shipped} of {len(cells)} cells are taken from the shipped reference rows.", err=True)
    failed = run_with_progress(cells, rows_of, folder, pool, name=lambda cell: cell.name)
    rows = folder.rows(cells)
    if rows:
        _show(rows, output, settings, json=json)
    failed.complain()


def _show(rows: list[dict[str, object]], output: Path, settings: dict[str, object], *, json: bool) -> None:
    from clickshift.experiments.policy_shift._report import write_shift_report

    written = write_shift_report(output, rows, settings)
    if json:
        show_json({"rows": rows, "verdicts": written.verdicts, "report": str(written.page)})
        return
    show_written(written)
