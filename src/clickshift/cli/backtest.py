"""clickshift ope backtest: which estimator would have been right about past days?"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import typer

from clickshift.cli.console import (
    Json,
    printable,
    progress,
    sessions_encoded,
    show_json,
    show_table,
    warnings_shown,
)


def backtest(
    log: str | None = typer.Argument(None, help="A log with days: a file, a folder, a glob, or FILE.duckdb::TABLE."),
    simulated: bool = typer.Option(False, "--simulated", help="Instead of a log: one whose rankers change by day."),
    parts: int | None = typer.Option(
        None, min=2, help="Instead of days: so many parts of each query's sessions. For a log without time."
    ),
    in_order: bool = typer.Option(False, "--in-order", help="Parts as the log stands, not random ones."),
    reward: list[str] = typer.Option(
        [], help="clicks, dcg, any-click, with @K for the first K ranks; repeatable. By default, the paper's four."
    ),
    estimator: list[str] = typer.Option([], help="List, IP, PBM, Item, RCTR, with SN- before it; repeatable."),
    queries: int = typer.Option(100, min=1, help="So many of the most frequent queries; the next, to 1000, apart."),
    query: str | None = typer.Option(None, help="The query that is shown alone; by default one whose clicks moved."),
    format: str = typer.Option("table", help="Of the log: table, or a public one such as yandex-kaggle."),
    seed: int = typer.Option(0, help="Of random parts, intervals and the simulated log."),
    output: Path | None = typer.Option(None, "--output", "-o", help="The folder for the rows and the report."),
    json: bool = Json,
) -> None:
    """Leave out one day after the other, and see which estimator tells best from the others what it earned.

    Shows the errors of all estimators along the clipping constant, and recommends one for each reward.
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
    from clickshift.ope.evaluate import PAPER
    from clickshift.simulation.drifting_log import DriftingLog

    if simulated == (log is not None):
        raise SpecError("a backtest needs a log or --simulated, one of them. Name a log, or leave it out.")
    tasks, names = tuple(dict.fromkeys(reward)) or TASKS, tuple(dict.fromkeys(estimator)) or PAPER
    protocol = Backtest(tasks, names, queries=queries, query=query, parts=parts, in_order=in_order, seed=seed)
    with warnings_shown():
        sessions: Log
        if log is None:
            world = DriftingLog(seed=seed)
            with progress("simulating", world.sessions) as advance:
                sessions = world.draw(progress=advance)
        else:
            with progress("reading") as hear:
                ours = format == TABLE
                tell = sessions_encoded(hear)
                sessions = open_log(log, progress=tell) if ours else LogFile.at(log, format=format).read()
        with progress("leaving out days") as advance:
            found = protocol.on(sessions, progress=advance)
    words = backtest_conclusion(found)
    settings = {"log": log or str(DriftingLog(seed=seed)), "backtest": str(protocol)}
    written = None if output is None else write_backtest_report(output, found, settings)
    if json:
        chosen = {task: _plain(found.choice(task)) for task in protocol.tasks}
        rows, days = (list(map(_plain, rows)) for rows in (found.rows, found.day_rows))
        report = None if written is None else str(written.page)
        show_json({"rows": rows, "days": days, "chosen": chosen, "words": words, "report": report})
        return
    show_table(gain_table(found) or error_table(found), title=f"Backtest by {found.split}: root mean square errors")
    for paragraph in words.split("\n\n"):
        typer.echo(printable(paragraph))
    if written is not None:
        for note in written.notes:
            typer.echo(note, err=True)
        typer.echo(f"Report: {written.page}   Rows: {written.rows}")


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """JSON has no infinity."""
    return {**row, "M": "inf" if math.isinf(row["M"]) else row["M"]}
