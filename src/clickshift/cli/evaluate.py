"""clickshift evaluate: how well a fitted model predicts the clicks of a log."""

from __future__ import annotations

from pathlib import Path

import typer

from clickshift.cli.console import Json, progress, sessions_encoded, show, warnings_shown


def evaluate(
    model: Path = typer.Argument(..., help="The folder that `clickshift fit` wrote."),
    log: str = typer.Argument(
        ..., help="The log: a .parquet, .csv or .jsonl file, a folder, a glob or FILE.duckdb::TABLE."
    ),
    json: bool = Json,
) -> None:
    """Perplexity and log-likelihood of a fitted model on a log; of several seeds, their mean and its 95 % interval."""
    from clickshift.counts.open_log import open_log
    from clickshift.metrics.click_prediction import evaluation_of_seeds
    from clickshift.models import model_name
    from clickshift.models.storage import load_seeds

    with warnings_shown(), progress("evaluating") as hear:
        fitted = load_seeds(model)
        facts = evaluation_of_seeds(fitted, open_log(log, progress=sessions_encoded(hear)))
    if fitted[0].peeks:
        facts["caution"] = "this model is shown the clicks that it predicts: its perplexity must not be compared."
    show(facts, json=json, title=f"{model_name(fitted[0])} on {log}")
