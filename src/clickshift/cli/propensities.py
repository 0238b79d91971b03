"""clickshift propensities: estimate the position bias of a log."""

from __future__ import annotations

from pathlib import Path

import typer

from clickshift.cli._console import check_report, render, reporting
from clickshift.cli._options import COLUMN, JSON, LEVEL, LOG, PAGE, SKIP_BAD, parse_columns


def propensities(
    log: str = LOG,
    method: str = typer.Option(
        "harvesting",
        help="Method: harvesting, swaps, regression-em, dual-learning, a click model to fit, e.g. PBM, or the folder "
        "of a fitted one.",
    ),
    by: str | None = typer.Option(
        None, help="Column of the log, e.g. device, each of whose labels gets its own curve."
    ),
    corpus: str | None = typer.Option(
        None, help="LETOR file or folder with the features that regression-em and dual-learning need."
    ),
    swapped: str | None = typer.Option(
        None,
        help="Column, for the method swaps, of the rank that was swapped with the reference rank, 0 where none was.",
    ),
    reference_rank: int = typer.Option(1, min=1, help="Reference rank, whose examination probability is set to 1."),
    level: float = LEVEL,
    replicates: int | None = typer.Option(
        None, min=0, help="Number of bootstrap replicates for intervals; the default depends on the method's cost."
    ),
    seed: int = typer.Option(0, help="Random seed for the bootstrap."),
    column: list[str] = COLUMN,
    skip_bad: bool = SKIP_BAD,
    output: Path | None = typer.Option(
        None,
        "--output",
        "-o",
        help="File for the curve, which `rank train` reads: .json, .csv, .parquet or .jsonl; or one .html page.",
    ),
    report: Path | None = PAGE,
    plot: Path | None = typer.Option(None, hidden=True, help="Former name of --report."),
    json: bool = JSON,
) -> None:
    """Estimate the examination probability of each rank from clicks, with intervals and a check of identifiability.

    Position bias is identified by documents that were shown at several ranks: by several rankers (harvesting) or by
    random swaps (swaps). Without them, only features can help (regression-em, dual-learning).
    """
    from clickshift.propensity.estimate import Propensities
    from clickshift.propensity.estimate import propensities as estimate_propensities

    if output is not None:
        Propensities.check_output(output)
    report = report or plot
    check_report(report)
    with reporting(f"propensities by {method}") as progress:
        result = estimate_propensities(
            log,
            method,
            by=by,
            corpus=corpus,
            swapped=swapped,
            reference_rank=reference_rank - 1,
            level=level,
            replicates=replicates,
            seed=seed,
            columns=parse_columns(column),
            on_bad_line="skip" if skip_bad else "error",
            progress=progress,
        )
    render(result, json=json, output=output, report=report)
