"""clickshift predict: expected clicks on lists, shown or not."""

from __future__ import annotations

from pathlib import Path

import typer

from clickshift.cli.console import Json, progress, show_json, show_table, warnings_shown


def predict(
    model: Path = typer.Argument(..., help="The folder that `clickshift fit` wrote."),
    rankings: Path = typer.Argument(
        ..., help="The lists: a .parquet, .csv or .jsonl file with columns query and docs."
    ),
    output: Path | None = typer.Option(
        None, "--output", "-o", help="Where the forecast goes: .parquet, .csv or .jsonl."
    ),
    skip_bad: bool = typer.Option(
        False, "--skip-bad", help="Leave bad lists out, and say how many, instead of stopping."
    ),
    json: bool = Json,
) -> None:
    """Expected clicks of each list and of each of its results, with intervals where the model knows its errors.

    Intervals (95 %) are the delta method's, from the errors of the model's parameters, taken as independent.
    """
    from clickshift.io.rankings import read_rankings
    from clickshift.io.table_writer import table_ending, write_table
    from clickshift.models import model_name
    from clickshift.models.forecast import forecast, forecast_facts, forecast_table
    from clickshift.models.storage import load_model

    if output is not None:
        table_ending(output)
    with warnings_shown():
        fitted = load_model(model)
        lists = read_rankings(rankings, on_bad_line="skip" if skip_bad else "error")
        with progress("predicting", len(lists)) as advance:
            found = forecast(fitted, lists, progress=advance)
        table = found.table()
        if output is not None:
            write_table(
                table, output, notes={"model": model_name(fitted), "folder": str(model), "lists": str(rankings)}
            )
    facts = {"model": model_name(fitted), **forecast_facts(found)}
    if json:
        show_json(facts | ({"lists": table.to_pylist()} if output is None else {"output": str(output)}))
        return
    lines, rest = forecast_table(found)
    show_table(lines, title=f"Expected clicks, by {model_name(fitted)}", caption=rest)
    typer.echo(f"{facts['lists']:,} lists, {facts['unseen_share']:.1%} of their results unseen in training.")
    if output is not None:
        typer.echo(f"Forecast: {output}")
