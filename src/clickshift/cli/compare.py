"""clickshift compare: all click models on one log."""

from __future__ import annotations

from pathlib import Path

import typer

from clickshift.cli._console import Json, progress, sessions_encoded, show_json, show_table, warnings_shown


def compare(
    log: str = typer.Argument(
        ..., help="The log: a .parquet, .csv or .jsonl file, a folder, a glob or FILE.duckdb::TABLE."
    ),
    test: str | None = typer.Option(None, help="Another log to predict; by default, a part of the first one."),
    model: list[str] = typer.Option([], help="A model to compare; repeatable. By default, all that predict clicks."),
    split: str = typer.Option("random", help="How the log is parted: random, time, order or within-query."),
    fraction: float = typer.Option(0.8, help="The share of the log to learn from."),
    seed: int = typer.Option(0, help="Of the random split."),
    output: Path | None = typer.Option(None, "--output", "-o", help="The folder for the rows and the report."),
    json: bool = Json,
) -> None:
    """Fit every click model on a log and compare how well they predict held-out clicks."""
    from dataclasses import asdict

    from clickshift._version import __version__
    from clickshift.counts.open_log import open_log
    from clickshift.display.document import Section, write_report
    from clickshift.experiments._comparison_report import comparison_figure, comparison_table
    from clickshift.experiments.comparison import Comparison
    from clickshift.experiments.policy_shift._report_verdicts import comparison_verdict
    from clickshift.io.table_writer import write_rows
    from clickshift.metrics.click_prediction import PROBABILITY_FLOOR

    protocol = Comparison(tuple(model), split, fraction, seed)
    rows = []
    with warnings_shown(), progress("comparing", len(protocol.models)) as advance:
        tell = sessions_encoded(advance)
        train, other = open_log(log, progress=tell), None if test is None else open_log(test, progress=tell)
        for row in protocol.rows(train, other, progress=lambda done: advance(1)):
            rows.append(row)
            if output is not None:  # after every model, so that a killed comparison keeps what is done
                write_rows(rows, output / "rows.parquet")
    table, words = comparison_table(rows), comparison_verdict(rows)
    if output is not None:
        write_report(
            output / "report.html",
            title="Click models on one log",
            sections=[Section("What it says", words), Section("Models", "", table, comparison_figure(rows))],
            settings={
                "log": log,
                "test": test,
                **asdict(protocol),
                "probability clip": PROBABILITY_FLOOR,
                "clickshift": __version__,
            },
        )
    if json:
        show_json(
            {
                "rows": rows,
                "split": split,
                "clip": PROBABILITY_FLOOR,
                "report": None if output is None else str(output / "report.html"),
            }
        )
        return
    sizes = f"{rows[0]['train_sessions']:,} sessions to learn from, {rows[0]['test_sessions']:,} to predict"
    show_table(
        table,
        title=f"Click models on {log}: {sizes}",
        caption=f"lower perplexity is better; clip {PROBABILITY_FLOOR:g}",
    )
    typer.echo(words)
    if output is not None:
        typer.echo(f"Report: {output / 'report.html'}   Rows: {output / 'rows.parquet'}")
