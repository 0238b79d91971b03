"""clickshift shift: does a click model still predict clicks when the ranker changes?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from clickshift.cli._console import show_json, show_table
from clickshift.cli._experiment_runner import Pool, show_written
from clickshift.cli._options import CLUSTER, JSON, WORKERS
from clickshift.cli.shift_logs import logs, show_logs

if TYPE_CHECKING:
    from clickshift.experiments.policy_shift.protocol import PolicyShift
    from clickshift.experiments.real_logs import RealLogs
    from clickshift.experiments.runner import RunFolder

app = typer.Typer(
    help="Test click models under policy shift: does a model hold when the ranker changes?", no_args_is_help=True
)
_OUTPUT = typer.Option(Path("out/shift"), "--output", "-o", help="Folder for the result rows and the report.")
CORPUS = typer.Option("builtin", help="Corpus: 'builtin', or a LETOR file or folder.")
REFERENCE = typer.Option(
    True, "--reference/--no-reference", help="Use the reference rows that come with the package, where they apply."
)


@app.callback()
def group() -> None:
    """Test click models under policy shift: does a model hold when the ranker changes?"""


@app.command()
def run(
    output: Path = _OUTPUT,
    scale: str = typer.Option(
        "quick", help="Scale: 'quick' (minutes) or 'paper' (the whole grid, ten seeds: an hour)."
    ),
    candidate: list[str] = typer.Option(
        [], help="Own model to compare, as package.module:Class or as a learner; repeatable."
    ),
    corpus: str = CORPUS,
    user: list[str] = typer.Option([], help="Simulated user, instead of those of the scale; repeatable."),
    training: list[str] = typer.Option(
        [], help="Logging policy of the training log, e.g. PL-BM25, or several joined by ' + '; repeatable."
    ),
    testing: list[str] = typer.Option([], help="Policy of a test log, e.g. random or Feature(25); repeatable."),
    model: list[str] = typer.Option([], help="Click model to compare, instead of the paper's six; repeatable."),
    queries: int | None = typer.Option(None, min=2, help="Number of queries of the corpus."),
    sessions: int | None = typer.Option(None, min=100, help="Number of sessions of each training log."),
    test_sessions: int | None = typer.Option(None, min=10, help="Number of sessions of each test log."),
    seeds: int | None = typer.Option(None, min=1, help="Number of models per task, from different random seeds."),
    derived: bool = typer.Option(True, help="Also evaluate the policies derived from each model."),
    search: str | None = typer.Option(None, help="Search for Max-Reward: local, or sampled as in the paper."),
    penalty: list[float] = typer.Option(
        [], help="Also evaluate Max-Reward penalised by this number of standard deviations across seeds; repeatable."
    ),
    fair: bool = typer.Option(False, "--fair", help="Also evaluate a policy with exposure in proportion to relevance."),
    seed: int | None = typer.Option(None, help="Random seed for the simulated search engine."),
    reference: bool = REFERENCE,
    workers: int | None = WORKERS,
    cluster: str | None = CLUSTER,
    json: bool = JSON,
) -> None:
    """Fit click models on one policy's log and evaluate them on other policies' lists, with verdicts and a report.

    Finished tasks are kept in the output folder: after an interruption, run again, and only the missing ones run.
    """
    from clickshift.cli._presets import policy_shift_protocol

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
def status(output: Path = _OUTPUT, json: bool = JSON) -> None:
    """Show which tasks of a run are finished."""
    protocol, folder, _ = _open_run(output)
    done = {(cell.log, cell.contender.name): folder.has(cell) for cell in protocol.cells()}
    if json:
        cells = [{"log": log, "model": model, "done": finished} for (log, model), finished in done.items()]
        show_json({"cells": cells, "done": sum(done.values()), "of": len(done)})
        return
    models = [contender.name for contender in protocol.contenders]
    table = [
        {"log": log} | {model: "done" if done[log, model] else "–" for model in models}
        for log in dict.fromkeys(log for log, _ in done)
    ]
    show_table(table, title=f"{output}: {sum(done.values())} of {len(done)} tasks are finished")


@app.command()
def report(output: Path = _OUTPUT, json: bool = JSON) -> None:
    """Write the tables, charts and verdicts of a run again, from its finished tasks."""
    from clickshift.errors import RunError
    from clickshift.experiments.real_logs import RealLogs

    protocol, folder, settings = _open_run(output)
    rows = folder.rows(protocol.cells())
    if not rows:
        raise RunError(
            f"{output}: no task of this run is finished yet. Run it first.", code="empty-run", path=str(output)
        )
    if isinstance(protocol, RealLogs):
        show_logs([*folder.rows(protocol.facts()), *rows], output, settings, json=json)
    else:
        _show(rows, output, settings, json=json)


app.command()(logs)


def _open_run(output: Path) -> tuple[PolicyShift | RealLogs, RunFolder, dict[str, object]]:
    """Open the folder of a run, which must be one of policy shift, simulated or on real logs."""
    from clickshift.errors import RunError
    from clickshift.experiments.model_selection.protocol import ModelSelection
    from clickshift.experiments.run_metadata import open_run

    protocol, folder, settings = open_run(output)
    if isinstance(protocol, ModelSelection):
        raise RunError(
            f"{output}: holds a run of another protocol. Use `clickshift selection` for it.",
            code="other-protocol",
            path=str(output),
        )
    return protocol, folder, settings


def run_and_report(
    protocol: PolicyShift, output: Path, *, corpus: str, reference: bool, pool: Pool, json: bool
) -> None:
    """Run the missing tasks of a protocol and write its report: for `run`, and for tables and figures by name."""
    from clickshift.cli._experiment_runner import run_with_progress
    from clickshift.experiments.policy_shift.protocol import rows_of
    from clickshift.experiments.run_metadata import start_run
    from clickshift.experiments.runner import copy_reference_rows

    folder, settings = start_run(protocol, output, corpus=corpus)
    cells = protocol.cells()
    n_copied = copy_reference_rows(cells, folder) if reference else 0
    if n_copied and not json:
        typer.echo(f"{n_copied} of {len(cells)} tasks are taken from the reference rows of the package.", err=True)
    failures = run_with_progress(cells, rows_of, folder, pool, name=lambda cell: cell.name)
    rows = folder.rows(cells)
    if rows:
        _show(rows, output, settings, json=json)
    failures.raise_if_any()


def _show(rows: list[dict[str, object]], output: Path, settings: dict[str, object], *, json: bool) -> None:
    """Write the report of a run and print it, or its rows as JSON."""
    from clickshift.experiments.policy_shift._report import write_shift_report

    written = write_shift_report(output, rows, settings)
    if json:
        show_json({"rows": rows, "verdicts": written.verdicts, "report": str(written.page)})
        return
    show_written(written)
