"""clickshift evaluate: how well a fitted model predicts the clicks of a log."""

from __future__ import annotations

from pathlib import Path

import typer

from clickshift.cli.console import Json, progress, show, warnings_shown


def evaluate(
    model: Path = typer.Argument(..., help="The folder that `clickshift fit` wrote."),
    log: str = typer.Argument(..., help="The log: a .parquet, .csv or .jsonl file, a folder or a glob."),
    json: bool = Json,
) -> None:
    """Perplexity and log-likelihood of a fitted model on a log."""
    from clickshift.metrics.clicks import evaluation
    from clickshift.models import model_name
    from clickshift.models.storage import load_model
    from clickshift.readers.tabular import read_log

    with warnings_shown(), progress("evaluating"):
        fitted = load_model(model)
        facts = evaluation(fitted, read_log(log))
    show(facts, json=json, title=f"{model_name(fitted)} on {log}")
