"""clickshift import: make a log of tracked events."""

from __future__ import annotations

from pathlib import Path

import typer

from clickshift.cli._console import render, reporting
from clickshift.cli._options import JSON, parse_columns


def import_events(
    sources: list[str] = typer.Argument(
        ..., metavar="SOURCE...", help="Events: files, folders or globs; their format is recognised by their content."
    ),
    output: Path = typer.Option(..., "--output", "-o", help="File for the log: .parquet, .csv or .jsonl."),
    format: str = typer.Option("auto", help="Format of the events, e.g. ubi or events, if it is not to be recognised."),
    clicks: list[str] = typer.Option(
        [], "--clicks", help="Table of clicks, if SOURCE has the impressions only; repeatable."
    ),
    column: list[str] = typer.Option(
        [],
        help="Column name of the events, as OURS=THEIRS, e.g. doc=sku, where it differs from ours (event, list, "
        "session, query, doc, docs, rank, time, user, page, click, conversion, viewed, arm, device, source, "
        "signal:NAME, segment:NAME); repeatable.",
    ),
    click_types: str | None = typer.Option(None, help="Types of events that are clicks, e.g. click,item_click."),
    conversion_types: str | None = typer.Option(None, help="Types of events that are conversions, e.g. purchase."),
    impression_types: str | None = typer.Option(None, help="Types of events that are impressions."),
    window: str | None = typer.Option(
        None, help="Longest time from an impression to a click, e.g. 30min; by default, clicks count at any time."
    ),
    impression: str = typer.Option(
        "first", help="Impression that gives the rank of a document shown repeatedly in a list: 'first' or 'last'."
    ),
    rank_base: int | None = typer.Option(
        None, help="Number at which ranks begin, 0 or 1; by default, the smallest one of each source."
    ),
    page_size: int | None = typer.Option(None, help="Number of results of a page, if ranks begin again on each page."),
    gaps: str = typer.Option(
        "keep",
        help="Lists with a rank without result: 'keep' makes it a hole, 'truncate' keeps what is above it, 'close' "
        "moves up what is below it, 'drop' leaves the list out.",
    ),
    shown: str = typer.Option(
        "impressions", help="Results of a UBI query: 'impressions' that were seen, or 'hits' that the engine returned."
    ),
    application: str | None = typer.Option(None, help="Applications of UBI events to read, e.g. shop,help."),
    normalise: str | None = typer.Option(None, help="Normalisation of query texts: lower, strip, or lower,strip."),
    memory: str = typer.Option("4GB", help="DuckDB memory limit, e.g. 4GB."),
    spill: Path | None = typer.Option(None, help="Directory for temporary files."),
    skip_bad: bool = typer.Option(
        False, "--skip-bad", help="Skip events that break the format and count them by reason, instead of stopping."
    ),
    json: bool = JSON,
) -> None:
    """Make a log of tracked events: impressions and clicks are joined into lists with their clicks.

    What was left out or repaired is counted by reason, with examples.
    """
    from clickshift.counts.import_events import read_events

    def texts(value: str | None) -> list[str] | None:
        return None if value is None else [part.strip() for part in value.split(",")]

    with reporting("importing") as progress:
        result = read_events(
            sources,
            clicks=clicks or None,
            format=format,
            output=output,
            columns=parse_columns(column),
            click_types=texts(click_types),
            conversion_types=texts(conversion_types),
            impression_types=texts(impression_types),
            window=window,
            impression=impression,
            rank_base=rank_base,
            page_size=page_size,
            gaps=gaps,
            shown=shown,
            application=texts(application),
            normalise=texts(normalise) or (),
            on_bad_line="skip" if skip_bad else "error",
            memory=memory,
            spill=spill,
            progress=progress,
        )
    render(result, json=json)
