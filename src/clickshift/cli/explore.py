"""clickshift explore: an interactive page of a log, written or served on this machine."""

from __future__ import annotations

from pathlib import Path

import typer

from clickshift.cli._console import render, reporting
from clickshift.cli._options import COLUMN, JSON, LOG, SKIP_BAD, parse_columns


def explore(
    log: str = LOG,
    model: Path | None = typer.Option(
        None, help="Folder of a fitted model of these queries and documents; by default, PBM is fitted on the log."
    ),
    output: Path | None = typer.Option(
        None, "--output", "-o", help="Interactive page (.html), or a folder for the page, its rows, tables and figures."
    ),
    serve: bool = typer.Option(
        False, "--serve", help="Serve the page on this machine until Ctrl-C, with all queries and any model."
    ),
    port: int = typer.Option(8790, min=0, max=65535, help="Port of --serve on 127.0.0.1; 0 for any free one."),
    queries: int = typer.Option(200, min=1, help="Number of most frequent queries in a written page, at most 5 MB."),
    sample: int = typer.Option(
        100_000, min=0, help="Largest number of sessions for the comparison of models; 0 leaves the comparison out."
    ),
    seed: int = typer.Option(0, help="Random seed of the sample and of its train/test split."),
    column: list[str] = COLUMN,
    skip_bad: bool = SKIP_BAD,
    json: bool = JSON,
) -> None:
    """Explore a log in the browser: its health, its queries, why a document is ranked so, and what if.

    One interactive page shows clicks and examination by rank, a comparison of models, and for every query its lists,
    its documents with raw and corrected click rates, why a model prefers one document to another, and the clicks that
    it predicts for another order.
    """
    from clickshift.core.interrupts import keep_after_interrupt
    from clickshift.exploration.explore import Exploration
    from clickshift.exploration.explore import explore as explore_log

    if output is not None:
        Exploration.check_output(output)
    with reporting("exploring") as progress:
        result = explore_log(
            log,
            model,
            queries=queries,
            sample=sample,
            seed=seed,
            columns=parse_columns(column),
            on_bad_line="skip" if skip_bad else "error",
            progress=progress,
        )
    if not serve:
        render(result, json=json, output=output)
        return
    if output is not None or json:
        render(result, json=json, output=output)
    keep_after_interrupt("the page is no longer served")
    result.serve(port, ready=lambda address: typer.echo(f"{address}   Ctrl-C ends the server.", err=json))
