"""clickshift ope backtest: which estimator would have predicted the rewards of past days?"""

from __future__ import annotations

from pathlib import Path

import typer

from clickshift.cli._console import render, reporting
from clickshift.cli._options import COLUMN, JSON, REPORT, SKIP_BAD, parse_columns


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
        ["clicks@2", "clicks@3", "dcg", "clicks"],
        help="Reward: clicks, dcg, any-click, with @K for the first K ranks; repeatable. By default, the paper's four.",
    ),
    estimator: list[str] = typer.Option(
        ["List", "IP", "PBM", "Item", "RCTR"],
        help="Estimator: List, IP, PBM, Item or RCTR, self-normalised with the prefix SN-; repeatable.",
    ),
    clip: list[float] = typer.Option(
        [1, 2, 3, 5, 9, 10, 20, 30, 40, 50, 100, 200, 500, 1000, float("inf")],
        help="Clipping constant M: the largest importance weight; repeatable, ascending, may be below 1.",
        show_default="1 to 1000, and inf",
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
    column: list[str] = COLUMN,
    skip_bad: bool = SKIP_BAD,
    output: Path | None = REPORT,
    json: bool = JSON,
) -> None:
    """Hold out one day after the other and measure which estimator predicts its reward best from the other days.

    Shows the errors of all estimators by clipping constant, and recommends one for each reward.
    """
    from clickshift.experiments.backtest import BacktestResult
    from clickshift.experiments.backtest import backtest as run_backtest

    if output is not None:
        BacktestResult.check_output(output)
    with reporting("holding out days") as progress:
        result = run_backtest(
            log,
            simulated=simulated,
            parts=parts,
            in_order=in_order,
            rewards=reward,
            estimators=estimator,
            clip=clip,
            queries=queries,
            query=query,
            format=format,
            seed=seed,
            columns=parse_columns(column),
            on_bad_line="skip" if skip_bad else "error",
            progress=progress,
        )
    render(result, json=json, output=output)
