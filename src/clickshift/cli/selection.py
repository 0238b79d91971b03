"""clickshift selection: which click model to choose before a new ranker is deployed?"""

from __future__ import annotations

from pathlib import Path

import typer

from clickshift.cli._console import render, warnings_shown
from clickshift.cli._options import CLUSTER, JSON, WORKERS
from clickshift.cli.shift import CORPUS, REFERENCE, render_experiment, reporting_tasks

app = typer.Typer(
    help="Measure how well a click model can be chosen before a new ranker is deployed.", no_args_is_help=True
)
_OUTPUT = typer.Option(Path("out/selection"), "--output", "-o", help="Folder for the result rows and the report.")


@app.callback()
def group() -> None:
    """Measure how well a click model can be chosen before a new ranker is deployed."""


@app.command()
def run(
    output: Path = _OUTPUT,
    scale: str = typer.Option("quick", help="Scale: 'quick' (minutes) or 'paper' (5,000,000 sessions a log: days)."),
    corpus: str = CORPUS,
    user: list[str] = typer.Option([], help="Simulated user, instead of the paper's four; repeatable."),
    training: list[str] = typer.Option(
        [], help="Logging policy of the training log, instead of the paper's two, e.g. LambdaMART; repeatable."
    ),
    queries: int | None = typer.Option(None, min=2, help="Number of queries of the corpus."),
    sessions: int | None = typer.Option(
        None, min=100, help="Number of sessions of a training log; the other logs have a fifth of it."
    ),
    seeds: int | None = typer.Option(None, min=1, help="Number of logs per user and policy."),
    model: list[str] = typer.Option([], help="Model to choose from, instead of the paper's seven; repeatable."),
    repeats: int = typer.Option(1000, min=1, help="Number of repetitions of the published cross-validation."),
    reference: bool = REFERENCE,
    workers: int | None = WORKERS,
    cluster: str | None = CLUSTER,
    json: bool = JSON,
) -> None:
    """Fit models on one policy's log, choose by metrics of that log, and measure the regret under another policy.

    Finished tasks are kept in the output folder: after an interruption, run again, and only the missing ones run.
    """
    from clickshift.experiments.model_selection.protocol import model_selection

    with reporting_tasks() as progress:
        result = model_selection(
            output,
            scale=scale,
            corpus=corpus,
            users=user,
            training=training,
            queries=queries,
            sessions=sessions,
            seeds=seeds,
            models=model,
            repeats=repeats,
            reference=reference,
            workers=workers,
            cluster=cluster,
            progress=progress,
        )
    render_experiment(result, json=json, output=output)


@app.command()
def status(output: Path = _OUTPUT, json: bool = JSON) -> None:
    """Show which tasks of a run are finished."""
    from clickshift.experiments.experiment import run_status

    render(run_status(output), json=json)


@app.command()
def report(
    output: Path = _OUTPUT,
    repeats: int | None = typer.Option(
        None, min=1, help="Number of repetitions of the published cross-validation; by default, that of the run."
    ),
    json: bool = JSON,
) -> None:
    """Write the tables and charts of a run again, from its finished tasks."""
    from clickshift.experiments.experiment import read_run

    with warnings_shown():
        result = read_run(output, repeats=repeats)
    render(result, json=json, output=output)
