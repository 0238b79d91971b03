"""clickshift compare: all click models on one log."""

from __future__ import annotations

from pathlib import Path

import typer

from clickshift.cli._console import encoding_progress, progress, show_json, show_table, warnings_shown
from clickshift.cli._options import JSON, LOG, REPORT_FOLDER


def compare(
    log: str = LOG,
    test: str | None = typer.Option(None, help="Test log; by default, a held-out part of the first log."),
    model: list[str] = typer.Option(
        [], help="Model or learner to compare, e.g. PBM; repeatable. By default, all models that predict clicks."
    ),
    split: str = typer.Option("random", help="Method of the train/test split: random, time, order or within-query."),
    fraction: float = typer.Option(0.8, help="Share of the sessions in the training part."),
    seed: int = typer.Option(0, help="Random seed for the train/test split."),
    output: Path | None = REPORT_FOLDER,
    json: bool = JSON,
) -> None:
    """Fit every click model on a log and compare how well they predict held-out clicks."""
    from dataclasses import asdict

    from clickshift._version import __version__
    from clickshift.counts.open_log import open_log
    from clickshift.display.document import Section, write_report
    from clickshift.display.tables import write_rows
    from clickshift.experiments._comparison_report import comparison_figure, comparison_table
    from clickshift.experiments.comparison import Comparison
    from clickshift.experiments.policy_shift._report_verdicts import comparison_verdict
    from clickshift.metrics.click_prediction import PROBABILITY_FLOOR

    protocol = Comparison(tuple(model), split, fraction, seed)
    rows = []
    with warnings_shown(), progress("comparing", len(protocol.models)) as advance:
        encoding = encoding_progress(advance)
        train, other = open_log(log, progress=encoding), None if test is None else open_log(test, progress=encoding)
        for row in protocol.rows(train, other, progress=lambda done: advance(1)):
            rows.append(row)
            if output is not None:  # after every model, so that an interrupted comparison keeps its finished rows
                write_rows(rows, output / "rows.parquet")
    table, conclusion = comparison_table(rows), comparison_verdict(rows)
    if output is not None:
        write_report(
            output / "report.html",
            title="Click models on one log",
            sections=[Section("Conclusion", conclusion), Section("Models", "", table, comparison_figure(rows))],
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
    sizes = f"{rows[0]['train_sessions']:,} training sessions, {rows[0]['test_sessions']:,} test sessions"
    show_table(
        table,
        title=f"Click models on {log}: {sizes}",
        caption=f"lower perplexity is better; probabilities are clipped at {PROBABILITY_FLOOR:g}",
    )
    typer.echo(conclusion)
    if output is not None:
        typer.echo(f"Report: {output / 'report.html'}   Rows: {output / 'rows.parquet'}")
