"""clickshift conversions: what follows a click, by (query, document) pair."""

from __future__ import annotations

from pathlib import Path

import typer

from clickshift.cli._console import render, reporting, warnings_shown
from clickshift.cli._options import COLUMN, JSON, LEVEL, LOG, REPORT, SKIP_BAD, parse_columns


def conversions(
    log: str = LOG,
    signal: list[str] = typer.Option(
        ...,
        help="Signal of the log, e.g. purchase or revenue, or a weighted sum such as 'click + 3*cart + 10*purchase'; "
        "repeatable.",
    ),
    without_click: str = typer.Option(
        "drop", help="Treatment of conversions without a click: 'drop', or 'keep' as if clicked."
    ),
    level: float = LEVEL,
    column: list[str] = COLUMN,
    skip_bad: bool = SKIP_BAD,
    output: Path | None = REPORT,
    json: bool = JSON,
) -> None:
    """Estimate conversion rates after a click, or values per click, of (query, document) pairs, with intervals.

    Rates are shrunk towards those of the query as far as documents are alike. Whether they depend on the rank of the
    click is tested.
    """
    from clickshift.grading.conversions import Conversions
    from clickshift.grading.conversions import conversions as estimate

    if output is not None:
        Conversions.check_output(output)
    with warnings_shown():
        with reporting("counting conversions") as progress:
            result = estimate(
                log,
                signal,
                without_click=without_click,
                level=level,
                columns=parse_columns(column),
                on_bad_line="skip" if skip_bad else "error",
                progress=progress,
            )
        render(result, json=json, output=output)
