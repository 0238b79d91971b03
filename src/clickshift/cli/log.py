"""clickshift log: describe click logs, encode, split and convert them, and count, merge and compare days."""

from __future__ import annotations

from pathlib import Path

import typer

from clickshift.cli._console import render, reporting
from clickshift.cli._exit_codes import GATE_FAILED
from clickshift.cli._options import COLUMN, JSON, LOG, MERGE_REGIONS, REPORT, SKIP_BAD, parse_columns

app = typer.Typer(
    help="Describe click logs, encode, split and convert them, and count, merge and compare days.",
    no_args_is_help=True,
)


@app.command()
def info(
    log: str = LOG,
    column: list[str] = COLUMN,
    skip_bad: bool = SKIP_BAD,
    output: Path | None = REPORT,
    json: bool = JSON,
) -> None:
    """Summarise a log: sessions, queries, click-through rates, variation of lists, and identifiability of ranks."""
    from clickshift.counts.log_summary import LogSummary, log_summary

    if output is not None:
        LogSummary.check_output(output)
    with reporting("reading") as progress:
        result = log_summary(
            log,
            columns=parse_columns(column),
            on_bad_line="skip" if skip_bad else "error",
            progress=progress,
        )
    render(result, json=json, output=output)


@app.command()
def group(
    log: str = LOG,
    output: Path | None = typer.Option(
        None, "--output", "-o", help="Table of query and group (.parquet, .csv or .jsonl), or a page (.html)."
    ),
    by: str = typer.Option("text", help="What variants have in common: text or results."),
    ignore_word_order: bool = typer.Option(False, "--ignore-word-order", help="Texts in another order of their words."),
    ignore_plurals: bool = typer.Option(False, "--ignore-plurals", help="Texts with an s at the end of words."),
    overlap: float = typer.Option(0.5, help="Smallest Jaccard index of the results of variants."),
    top: int = typer.Option(10, help="Number of results of a query that are compared."),
    max_size: int = typer.Option(100, help="Largest number of queries of a group."),
    column: list[str] = COLUMN,
    skip_bad: bool = SKIP_BAD,
    json: bool = JSON,
) -> None:
    """Group queries that are variants of each other, by text or by results, for `clickshift fit --groups`."""
    from clickshift.counts.query_groups import QueryGroups, group_queries

    if output is not None:
        QueryGroups.check_output(output)
    with reporting("reading") as progress:
        result = group_queries(
            log,
            by=by,
            ignore_word_order=ignore_word_order,
            ignore_plurals=ignore_plurals,
            overlap=overlap,
            top=top,
            max_size=max_size,
            columns=parse_columns(column),
            on_bad_line="skip" if skip_bad else "error",
            progress=progress,
        )
    render(result, json=json, output=output)


@app.command()
def encode(
    log: str = LOG,
    output: Path | None = typer.Option(
        None, "--output", "-o", help="Folder for the encoded log; by default, a hidden one next to the log."
    ),
    format: str = typer.Option("table", help="Format of the log: table, yandex-wscd or yandex-kaggle."),
    judgments: Path | None = typer.Option(
        None, help="Relevance file of the same format; only queries that it judges are kept. For Yandex logs."
    ),
    most_frequent: int | None = typer.Option(
        None, min=1, help="Number of most frequent queries to keep, for Yandex logs, which are then read twice."
    ),
    with_clicks: bool = typer.Option(False, "--with-clicks", help="Drop sessions without clicks, of Yandex logs."),
    merge_regions: bool = MERGE_REGIONS,
    memory: str = typer.Option("4GB", help="DuckDB memory limit, e.g. 4GB."),
    spill: Path | None = typer.Option(None, help="Directory for DuckDB's temporary files."),
    column: list[str] = COLUMN,
    skip_bad: bool = typer.Option(
        False,
        "--skip-bad",
        help="Skip bad sessions and unreadable files and report their number, instead of stopping.",
    ),
    json: bool = JSON,
) -> None:
    """Encode a log that is larger than memory once, so that every command reads it quickly.

    Other commands do this automatically for logs of 256 MB and more. They also take the folder that is written here.
    DuckDB joins the rows of a session if the log has one row per result, and reads tables of databases.
    """
    from clickshift.counts.prepare_log import encode_log

    with reporting("encoding") as progress:
        result = encode_log(
            log,
            output,
            format=format,
            judgments=judgments,
            most_frequent=most_frequent,
            with_clicks=with_clicks,
            merge_regions=merge_regions,
            memory=memory,
            spill=spill,
            columns=parse_columns(column),
            on_bad_line="skip" if skip_bad else "error",
            progress=progress,
        )
    render(result, json=json)


@app.command()
def convert(
    raw: Path = typer.Argument(..., help="Raw public log, plain or gzip."),
    format: str = typer.Option(
        ..., help="Format of the raw log: yandex-wscd, yandex-sample, yandex-kaggle, trec or open-bandit."
    ),
    output: Path = typer.Option(..., "--output", "-o", help="File for the log: .parquet, .csv or .jsonl."),
    layout: str = typer.Option(
        "wide", help="Layout of the file: 'wide' (one row per session) or 'long' (one row per result)."
    ),
    judgments: Path | None = typer.Option(
        None, help="Relevance file of the same format; only queries that it judges are kept."
    ),
    with_clicks: bool = typer.Option(False, "--with-clicks", help="Drop sessions without clicks."),
    merge_regions: bool = MERGE_REGIONS,
    skip_bad: bool = typer.Option(
        False, "--skip-bad", help="Skip bad lines and report their number, instead of stopping."
    ),
    json: bool = JSON,
) -> None:
    """Convert a public log to the layout of clickshift; the options are the policy-shift paper's preprocessing."""
    from clickshift.counts.prepare_log import convert_log

    with reporting("converting") as progress:
        result = convert_log(
            raw,
            output,
            format=format,
            layout=layout,
            judgments=judgments,
            with_clicks=with_clicks,
            merge_regions=merge_regions,
            on_bad_line="skip" if skip_bad else "error",
            progress=progress,
        )
    render(result, json=json)


@app.command()
def split(
    log: str = LOG,
    train: Path = typer.Option(..., help="File for the training part."),
    test: Path = typer.Option(..., help="File for the test part."),
    fraction: float = typer.Option(0.8, help="Share of the sessions in the training part."),
    how: str = typer.Option("random", "--split", help="Method of the split: random, time, order or within-query."),
    seed: int = typer.Option(0, help="Random seed for the train/test split."),
    column: list[str] = COLUMN,
    skip_bad: bool = SKIP_BAD,
    json: bool = JSON,
) -> None:
    """Split a log into a training part and a test part."""
    from clickshift.counts.prepare_log import split_log

    with reporting("splitting") as progress:
        result = split_log(
            log,
            train,
            test,
            fraction=fraction,
            split=how,
            seed=seed,
            columns=parse_columns(column),
            on_bad_line="skip" if skip_bad else "error",
            progress=progress,
        )
    render(result, json=json)


@app.command()
def count(
    log: str = LOG,
    output: Path = typer.Option(..., "--output", "-o", help="Folder for the counts, e.g. monday.counts."),
    column: list[str] = COLUMN,
    skip_bad: bool = SKIP_BAD,
    json: bool = JSON,
) -> None:
    """Count the log of a day once: the sufficient statistics to merge, fit and compare days later.

    They suffice for all models that are fitted by counting or by maximum likelihood.
    """
    from clickshift.counts.count_log import count_log

    with reporting("counting") as progress:
        result = count_log(
            log,
            output,
            columns=parse_columns(column),
            on_bad_line="skip" if skip_bad else "error",
            progress=progress,
        )
    render(result, json=json)


@app.command()
def merge(
    days: list[Path] = typer.Argument(..., help="Folders of counts, as `log count` or `log merge` writes them."),
    output: Path = typer.Option(..., "--output", "-o", help="Folder for the merged counts, e.g. week.counts."),
    half_life: float | None = typer.Option(
        None, help="Half-life of the exponential decay, in days (in files if logs carry no timestamps)."
    ),
    json: bool = JSON,
) -> None:
    """Add the counts of several days, with exponential decay of older days if --half-life is given.

    Yesterday's merged counts and today's counts give today's merged counts, with the same half-life.
    """
    from clickshift.counts.count_log import merge_counts

    with reporting("merging") as progress:
        result = merge_counts(days, output, half_life=half_life, progress=progress)
    render(result, json=json)


@app.command()
def drift(
    days: list[str] = typer.Argument(
        ..., help="Logs or counts of two or more days, or one log with several days in its 'time' or 'day' column."
    ),
    ranks: int = typer.Option(10, min=1, help="Number of ranks to compare."),
    fail_on_change: bool = typer.Option(
        False, "--fail-on-change", help="Exit with code 1 if a model of an earlier day should not be trusted."
    ),
    column: list[str] = COLUMN,
    skip_bad: bool = SKIP_BAD,
    output: Path | None = REPORT,
    json: bool = JSON,
) -> None:
    """Compare days: click rates by rank, new documents, changes of the ranker, and whether an old model still holds.

    Every change is shown next to what chance alone would give for two days of the same ranker, also of one that varies
    its lists.
    """
    from clickshift.day_drift._report import DriftResult
    from clickshift.day_drift.compare import drift as compare_days

    if output is not None:
        DriftResult.check_output(output)
    with reporting("comparing") as progress:
        result = compare_days(
            days,
            ranks=ranks,
            columns=parse_columns(column),
            on_bad_line="skip" if skip_bad else "error",
            progress=progress,
        )
    render(result, json=json, output=output)
    if fail_on_change and not result.trusted:
        raise typer.Exit(GATE_FAILED)
