"""clickshift log: describe click logs, encode, split and convert them, and count, merge and compare days."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from clickshift.cli._console import (
    encoding_progress,
    printable,
    progress,
    show,
    show_json,
    show_table,
    show_warnings,
    warnings_shown,
)
from clickshift.cli._options import COLUMN, JSON, LOG, LOG_FILES, SKIP_BAD, parse_columns

if TYPE_CHECKING:
    from clickshift.counts.daily import DayCounts

app = typer.Typer(
    help="Describe click logs, encode, split and convert them, and count, merge and compare days.",
    no_args_is_help=True,
)


@app.command()
def info(log: str = LOG, column: list[str] = COLUMN, skip_bad: bool = SKIP_BAD, json: bool = JSON) -> None:
    """Summarise a log: sessions, queries, click-through rates, variation of lists, and identifiability of ranks."""
    from clickshift.counts.open_log import open_log
    from clickshift.metrics.log_summary import log_summary, log_table

    with warnings_shown(), progress("reading") as report:
        sessions = open_log(
            log,
            columns=parse_columns(column),
            on_bad_line="skip" if skip_bad else "error",
            progress=encoding_progress(report),
        )
        facts = log_summary(sessions)
    show(facts if json else log_table(facts), json=json, title=f"Log {log}")


@app.command()
def encode(
    log: str = LOG,
    output: Path | None = typer.Option(
        None, "--output", "-o", help="Folder for the encoded log; by default, a hidden one next to the log."
    ),
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
    from clickshift.counts.open_log import open_log
    from clickshift.data.encoded_log import EncodedLog
    from clickshift.io.encode.duckdb import DuckdbLimits

    with warnings_shown(), progress("encoding") as report:
        encoded = open_log(
            log,
            columns=parse_columns(column),
            on_bad_line="skip" if skip_bad else "error",
            in_memory=False,
            output=output,
            spill=DuckdbLimits(memory, spill),
            progress=encoding_progress(report),
        )
    assert isinstance(encoded, EncodedLog)
    facts = {
        "output": str(encoded.folder),
        "sessions": encoded.total,
        "pairs": encoded.vocabulary.n_pairs,
        **encoded.facts,
    }
    show({name: facts[name] for name in facts if name not in {"key", "first_file"}}, json=json, title=f"Encoded {log}")


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
    skip_bad: bool = typer.Option(
        False, "--skip-bad", help="Skip bad lines and report their number, instead of stopping."
    ),
    json: bool = JSON,
) -> None:
    """Convert a public log to the layout of clickshift; the options are the policy-shift paper's preprocessing."""
    from clickshift.io.datasets.filters import drop_without_clicks
    from clickshift.io.datasets.registry import read_raw, read_raw_judgments
    from clickshift.io.read_log import check_output, write_log

    check_output(output, layout)
    with warnings_shown(), progress("converting"):
        judged = None if judgments is None else read_raw_judgments(judgments, format=format)
        sessions = read_raw(raw, format=format, judged=judged, on_bad_line="skip" if skip_bad else "error")
        n_read = sessions.total
        if with_clicks:
            sessions = drop_without_clicks(sessions)
        write_log(sessions, output, layout=layout)  # type: ignore[arg-type]
    show(
        {"output": str(output), "sessions_read": n_read, "sessions_written": sessions.total},
        json=json,
        title="Converted log",
    )


@app.command()
def split(
    log: str = LOG_FILES,
    train: Path = typer.Option(..., help="File for the training part."),
    test: Path = typer.Option(..., help="File for the test part."),
    fraction: float = typer.Option(0.8, help="Share of the sessions in the training part."),
    how: str = typer.Option("random", "--split", help="Method of the split: random, time, order or within-query."),
    seed: int = typer.Option(0, help="Random seed for the train/test split."),
    json: bool = JSON,
) -> None:
    """Split a log into a training part and a test part."""
    from clickshift.experiments.comparison import SPLITS, Comparison
    from clickshift.io.read_log import check_output, read_log, write_log

    Comparison(("gCTR",), how, fraction, seed)  # checks the options
    for output in (train, test):
        check_output(output)
    with warnings_shown(), progress("splitting"):
        parts = SPLITS[how](read_log(log), fraction, seed)
        for part, output in zip(parts, (train, test), strict=True):
            write_log(part, output)
    show({"train": parts[0].total, "test": parts[1].total}, json=json, title=f"Sessions of {log}")


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
    from clickshift.counts.daily import DayCounts
    from clickshift.counts.open_log import open_log

    with warnings_shown(), progress("counting"):
        counts = DayCounts.of(open_log(log, columns=parse_columns(column), on_bad_line="skip" if skip_bad else "error"))
        counts.save(output, notes={"logs": [log]})
    show(_describe_counts(counts, output), json=json, title=f"Counts of {log}")


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
    from clickshift.counts.daily import DayCounts, decay
    from clickshift.errors import DataError

    if repeated := [day for k, day in enumerate(days) if day.resolve() in {other.resolve() for other in days[:k]}]:
        raise DataError(
            f"a day must be added once: {repeated[0]} is named twice. Remove one of them.",
            code="duplicate-day",
            path=str(repeated[0]),
        )
    with warnings_shown(), progress("merging"):
        counts_by_day = [DayCounts.load(day) for day in days]
        total = DayCounts.merged(counts_by_day, half_life=half_life)
        total.save(output, notes={"logs": [str(day) for day in days], "half_life": half_life})
        last_days = [counts.last for counts in counts_by_day]
        weights = [1.0] * len(days) if half_life is None else decay(last_days, half_life)
    timed = total.last is not None
    parts = [
        {"day": str(day), **(_period(counts) if timed else {}), "sessions": round(counts.sessions), "weight": weight}
        for day, counts, weight in zip(days, counts_by_day, weights, strict=True)
    ]
    if json:
        show_json({"days": parts, **_describe_counts(total, output)})
        return
    show_table(parts, title="Days")
    show(_describe_counts(total, output), json=False, title="Merged counts")


@app.command()
def drift(
    days: list[str] = typer.Argument(
        ..., help="Logs or counts of two or more days, or one log with several days in its 'time' or 'day' column."
    ),
    ranks: int = typer.Option(10, min=1, help="Number of ranks to compare."),
    output: Path | None = typer.Option(None, "--output", "-o", help="File for the report, one .html page."),
    json: bool = JSON,
) -> None:
    """Compare days: click rates by rank, new documents, changes of the ranker, and whether an old model still holds.

    Every change is shown next to what chance alone would give for two days of the same ranker, also of one that varies
    its lists.
    """
    from clickshift.display.document import check_page
    from clickshift.drift._report import ctr_table, drift_facts, drift_table, drift_verdict, write_drift_report
    from clickshift.drift.compare import compare_days as compare_days

    if output is not None:
        check_page(output)
    with warnings_shown(), progress("comparing"):
        counts, names = _read_days(days)
        comparison = compare_days(counts, names, ranks=ranks)
        if output is not None:
            write_drift_report(output, comparison, {"days": days, "ranks": ranks}, ranks=ranks)
    if comparison.reordered:
        show_warnings([f"days are compared in chronological order: {', '.join(d.name for d in comparison.days)}."])
    if json:
        show_json({**drift_facts(comparison), "report": None if output is None else str(output)})
        return
    show_table(drift_table(comparison), title="Days, and changes since the day before (beyond chance)")
    show_table(ctr_table(comparison, ranks), title="Click-through rate by rank, with 95 % intervals")
    for paragraph in drift_verdict(comparison):
        typer.echo(printable(paragraph))
    if output is not None:
        typer.echo(f"Report: {output}")


def _read_days(days: Sequence[str]) -> tuple[list[DayCounts], list[str]]:
    """Return the counts of each day with its name; a single log is split by its days."""
    import numpy as np

    from clickshift.counts.daily import DayCounts, is_counts
    from clickshift.counts.open_log import open_log
    from clickshift.errors import DataError
    from clickshift.io.read_log import read_log
    from clickshift.ope.daily_residuals import days_of

    if len(days) == 1 and not is_counts(days[0]):
        sessions = read_log(days[0])
        if sessions.time is None:
            raise DataError(
                "there must be two or more days to compare: this log has no 'time' or 'day' column. Pass a log for "
                "each day.",
                code="missing-time",
            )
        day, day_names = days_of(sessions.time)
        return [DayCounts.of(sessions[np.flatnonzero(day == d)]) for d in range(len(day_names))], list(day_names)
    stems = [Path(day).stem for day in days]
    names = stems if len(set(stems)) == len(stems) else list(days)
    return [DayCounts.load(day) if is_counts(day) else DayCounts.of(open_log(day)) for day in days], names


def _period(counts: DayCounts) -> dict[str, str]:
    """Return the first and the last day of counts, where they have days."""
    return {} if counts.first is None or counts.last is None else {"from": str(counts.first), "to": str(counts.last)}


def _describe_counts(counts: DayCounts, output: Path) -> dict[str, object]:
    """Summarise counts and name the folder that holds them."""
    return {
        **_period(counts),
        "sessions": counts.sessions if counts.sessions % 1 else int(counts.sessions),
        "queries": counts.vocabulary.n_queries,
        "pairs": counts.vocabulary.n_pairs,
        "ranks": counts.n_ranks,
        "clicks_per_session": float(counts.cells.clicks.sum() / counts.sessions),
        "output": str(output),
    }
