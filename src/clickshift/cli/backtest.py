"""clickshift ope backtest: which estimator would have predicted the rewards of past days?"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import typer

from clickshift.cli._console import encoding_progress, printable, progress, show_json, show_table, warnings_shown
from clickshift.cli._experiment_runner import show_paths
from clickshift.cli._options import JSON, REPORT_FOLDER


def backtest(
    log: str | None = typer.Argument(
        None, help="Click log with days: a file, a folder, a glob, or FILE.duckdb::TABLE."
    ),
    simulated: bool = typer.Option(
        False, "--simulated", help="Use a simulated log, whose ranker changes by day, instead of LOG."
    ),
    parts: int | None = typer.Option(
        None, min=2, help="Number of parts of each query's sessions, instead of days, for a log without times."
    ),
    in_order: bool = typer.Option(False, "--in-order", help="Form parts in the order of the log, not at random."),
    reward: list[str] = typer.Option(
        [],
        help="Reward: clicks, dcg, any-click, with @K for the first K ranks; repeatable. By default, the paper's four.",
    ),
    estimator: list[str] = typer.Option(
        [], help="Estimator: List, IP, PBM, Item or RCTR, self-normalised with the prefix SN-; repeatable."
    ),
    queries: int = typer.Option(
        100,
        min=1,
        help="Number of most frequent queries in the head group; the next ones, up to the 1000th, form the tail.",
    ),
    query: str | None = typer.Option(
        None, help="Query with a chart of its own; by default, one whose click rate changed between days."
    ),
    format: str = typer.Option("table", help="Format of the log: table, or a public one such as yandex-kaggle."),
    seed: int = typer.Option(0, help="Random seed for random parts, intervals and the simulated log."),
    output: Path | None = REPORT_FOLDER,
    json: bool = JSON,
) -> None:
    """Hold out one day after the other and measure which estimator predicts its reward best from the other days.

    Shows the errors of all estimators by clipping constant, and recommends one for each reward.
    """
    from clickshift.counts.open_log import open_log
    from clickshift.data.encoded_log import Log
    from clickshift.errors import SpecError
    from clickshift.experiments._backtest_report import (
        backtest_conclusion,
        error_table,
        gain_table,
        write_backtest_report,
    )
    from clickshift.experiments.backtest import TASKS, Backtest
    from clickshift.experiments.log_files import TABLE, LogFile
    from clickshift.ope.estimate import PAPER_ESTIMATORS
    from clickshift.simulation.drifting_log import DriftingLog

    if simulated == (log is not None):
        raise SpecError(
            "a backtest needs either a log or --simulated. Name a log, or pass --simulated without one.",
            code="bad-option",
        )
    tasks, names = tuple(dict.fromkeys(reward)) or TASKS, tuple(dict.fromkeys(estimator)) or PAPER_ESTIMATORS
    protocol = Backtest(tasks, names, queries=queries, query=query, parts=parts, in_order=in_order, seed=seed)
    with warnings_shown():
        sessions: Log
        if log is None:
            simulation = DriftingLog(seed=seed)
            with progress("simulating", simulation.sessions) as advance:
                sessions = simulation.draw(progress=advance)
        elif format == TABLE:
            with progress("reading") as report_progress:
                sessions = open_log(log, progress=encoding_progress(report_progress))
        else:
            with progress("reading"):
                sessions = LogFile.at(log, format=format).read()
        with progress("holding out days") as advance:
            result = protocol.on(sessions, progress=advance)
    words = backtest_conclusion(result)
    settings = {"log": log or str(DriftingLog(seed=seed)), "backtest": str(protocol)}
    written = None if output is None else write_backtest_report(output, result, settings)
    if json:
        chosen = {task: _finite_clip(result.choice(task)) for task in protocol.tasks}
        rows, days = (list(map(_finite_clip, rows)) for rows in (result.rows, result.day_rows))
        report = None if written is None else str(written.page)
        show_json({"rows": rows, "days": days, "chosen": chosen, "words": words, "report": report})
        return
    show_table(gain_table(result) or error_table(result), title=f"Backtest by {result.split}: root mean squared errors")
    for paragraph in words.split("\n\n"):
        typer.echo(printable(paragraph))
    if written is not None:
        for note in written.notes:
            typer.echo(note, err=True)
        show_paths(written)


def _finite_clip(row: dict[str, Any]) -> dict[str, Any]:
    """Write an infinite clipping constant as text: JSON has no infinity."""
    return {**row, "M": "inf" if math.isinf(row["M"]) else row["M"]}
