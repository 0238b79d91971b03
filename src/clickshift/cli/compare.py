"""clickshift compare: click models on one log."""

from __future__ import annotations

from pathlib import Path

import typer

from clickshift.cli._console import render, reporting
from clickshift.cli._options import COLUMN, EXACT, JSON, LOG, REPORT_FOLDER, SKIP_BAD, parse_columns


def compare(
    log: str = LOG,
    test: str | None = typer.Option(None, help="Test log; by default, a held-out part of the first log."),
    model: list[str] = typer.Option(
        [], help="Model or learner to compare, e.g. PBM; repeatable. By default, all classical models."
    ),
    neural: bool = typer.Option(False, "--neural", help="Compare all neural models as well."),
    exact: bool = EXACT,
    split: str = typer.Option("random", help="Method of the train/test split: random, time, order or within-query."),
    fraction: float = typer.Option(0.8, help="Share of the sessions in the training part."),
    seed: int = typer.Option(0, help="Random seed for the train/test split."),
    column: list[str] = COLUMN,
    skip_bad: bool = SKIP_BAD,
    output: Path | None = REPORT_FOLDER,
    json: bool = JSON,
) -> None:
    """Fit click models on a log and compare how well they predict held-out clicks."""
    from clickshift.experiments.comparison import Comparison
    from clickshift.experiments.comparison import compare as compare_models

    if output is not None:
        Comparison.check_output(output)
    with reporting("comparing") as progress:
        result = compare_models(
            log,
            test=test,
            models=model,
            neural=neural,
            exact=exact,
            split=split,
            fraction=fraction,
            seed=seed,
            columns=parse_columns(column),
            on_bad_line="skip" if skip_bad else "error",
            output=output,
            progress=progress,
        )
    render(result, json=json, output=output)
