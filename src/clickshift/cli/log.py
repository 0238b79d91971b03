"""clickshift log: look at click logs, part them, and convert public ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from clickshift.cli._console import (
    Json,
    LogPath,
    printable,
    progress,
    sessions_encoded,
    show,
    show_json,
    show_table,
    warnings_shown,
)

if TYPE_CHECKING:
    from clickshift.counts.daily import DayCounts

app = typer.Typer(help="Look at click logs, count and compare days, and convert public ones.", no_args_is_help=True)


@app.command()
def info(
    log: str = typer.Argument(
        ..., help="The log: a .parquet, .csv or .jsonl file, a folder, a glob or FILE.duckdb::TABLE."
    ),
    column: list[str] = typer.Option([], help="OURS=THEIRS, where the log names a column otherwise; repeatable."),
    skip_bad: bool = typer.Option(
        False, "--skip-bad", help="Leave bad sessions out, and say how many, instead of stopping."
    ),
    json: bool = Json,
) -> None:
    """Sessions, queries, pairs, click-through rates, how much the lists vary, and whether that can tell ranks apart."""
    from clickshift.counts.open_log import open_log
    from clickshift.metrics.log_summary import log_summary, log_table

    with warnings_shown(), progress("reading") as hear:
        sessions = open_log(
            log,
            columns=columns(column),
            on_bad_line="skip" if skip_bad else "error",
            progress=sessions_encoded(hear),
        )
        facts = log_summary(sessions)
    show(facts if json else log_table(facts), json=json, title=f"Log {log}")


@app.command()
def encode(
    log: str = LogPath,
    output: Path | None = typer.Option(
        None, "--output", "-o", help="The folder for the encoded log; by default, a hidden one beside the log."
    ),
    memory: str = typer.Option("4GB", help="What DuckDB may take to join the rows of a session, or to read a table."),
    spill: Path | None = typer.Option(None, help="The folder for what does not fit into that."),
    column: list[str] = typer.Option([], help="OURS=THEIRS, where the log names a column otherwise; repeatable."),
    skip_bad: bool = typer.Option(
        False, "--skip-bad", help="Leave out bad sessions and files that cannot be read, and say how many."
    ),
    json: bool = Json,
) -> None:
    """Encode a log that is larger than memory: once, then every command reads it quickly.

    Other commands do this by themselves for logs of 256 MB and more. They also take the folder that is named here.
    """
    from clickshift.counts.open_log import open_log
    from clickshift.data.encoded_log import EncodedLog
    from clickshift.io.encode.duckdb import DuckdbLimits

    with warnings_shown(), progress("encoding") as hear:
        found = open_log(
            log,
            columns=columns(column),
            on_bad_line="skip" if skip_bad else "error",
            in_memory=False,
            output=output,
            spill=DuckdbLimits(memory, spill),
            progress=sessions_encoded(hear),
        )
    assert isinstance(found, EncodedLog)
    facts = {"output": str(found.folder), "sessions": found.total, "pairs": found.vocabulary.n_pairs, **found.facts}
    show({name: facts[name] for name in facts if name not in {"key", "first_file"}}, json=json, title=f"Encoded {log}")


@app.command()
def convert(
    raw: Path = typer.Argument(..., help="The raw log, plain or gzip."),
    format: str = typer.Option(..., help="yandex-wscd, yandex-sample, yandex-kaggle, trec or open-bandit."),
    output: Path = typer.Option(..., "--output", "-o", help="Where the log goes: .parquet, .csv or .jsonl."),
    layout: str = typer.Option("wide", help="'wide': a row per session; 'long': a row per result."),
    judgments: Path | None = typer.Option(
        None, help="Keep only queries judged in this relevance file (of the same format)."
    ),
    with_clicks: bool = typer.Option(False, "--with-clicks", help="Drop pages without clicks."),
    skip_bad: bool = typer.Option(
        False, "--skip-bad", help="Leave bad lines out, and say how many, instead of stopping."
    ),
    json: bool = Json,
) -> None:
    """Turn a public log into our layout; the options are the policy-shift paper's preprocessing."""
    from clickshift.io.datasets.filters import drop_without_clicks
    from clickshift.io.datasets.registry import read_raw, read_raw_judgments
    from clickshift.io.read_log import check_output, write_log

    check_output(output, layout)
    with warnings_shown(), progress("converting"):
        judged = None if judgments is None else read_raw_judgments(judgments, format=format)
        sessions = read_raw(raw, format=format, judged=judged, on_bad_line="skip" if skip_bad else "error")
        read = sessions.total
        if with_clicks:
            sessions = drop_without_clicks(sessions)
        write_log(sessions, output, layout=layout)  # type: ignore[arg-type]
    show(
        {"output": str(output), "sessions_read": read, "sessions_written": sessions.total}, json=json, title="Converted"
    )


@app.command()
def split(
    log: str = typer.Argument(..., help="The log: a .parquet, .csv or .jsonl file, a folder or a glob."),
    train: Path = typer.Option(..., help="Where the part to learn from goes."),
    test: Path = typer.Option(..., help="Where the rest goes."),
    fraction: float = typer.Option(0.8, help="The share of the sessions to learn from."),
    how: str = typer.Option("random", "--split", help="random, time, order or within-query."),
    seed: int = typer.Option(0, help="Of a random split."),
    json: bool = Json,
) -> None:
    """Part a log in two: one to learn from, one to be predicted."""
    from clickshift.experiments.comparison import SPLITS, Comparison
    from clickshift.io.read_log import check_output, read_log, write_log

    Comparison(("gCTR",), how, fraction, seed)  # tells what is wrong with the options
    for output in (train, test):
        check_output(output)
    with warnings_shown(), progress("splitting"):
        parts = SPLITS[how](read_log(log), fraction, seed)
        for part, output in zip(parts, (train, test), strict=True):
            write_log(part, output)
    show({"train": parts[0].total, "test": parts[1].total}, json=json, title=f"Sessions of {log}")


def columns(pairs: list[str]) -> dict[str, str] | None:
    """OURS=THEIRS options as a mapping."""
    from clickshift.errors import SpecError

    mapping = {}
    for pair in pairs:
        ours, equals, theirs = pair.partition("=")
        if not (ours and equals and theirs):
            raise SpecError(f"--column takes OURS=THEIRS, e.g. --column docs=results: got {pair!r}.")
        mapping[ours] = theirs
    return mapping or None


@app.command()
def count(
    log: str = typer.Argument(..., help="The log of a day: a .parquet, .csv or .jsonl file, a folder or a glob."),
    output: Path = typer.Option(..., "--output", "-o", help="The folder for the counts, e.g. monday.counts."),
    column: list[str] = typer.Option([], help="OURS=THEIRS, where the log names a column otherwise; repeatable."),
    skip_bad: bool = typer.Option(
        False, "--skip-bad", help="Leave bad sessions out, and say how many, instead of stopping."
    ),
    json: bool = Json,
) -> None:
    """Count a log once: all that models by counting and EM need of it, to be added, fitted and compared later."""
    from clickshift.counts.daily import DayCounts
    from clickshift.counts.open_log import open_log

    with warnings_shown(), progress("counting"):
        counts = DayCounts.of(open_log(log, columns=columns(column), on_bad_line="skip" if skip_bad else "error"))
        counts.save(output, notes={"logs": [log]})
    show(_facts(counts, output), json=json, title=f"Counts of {log}")


@app.command()
def merge(
    days: list[Path] = typer.Argument(..., help="Folders that `log count` or `log merge` wrote."),
    output: Path = typer.Option(..., "--output", "-o", help="The folder for their sum, e.g. week.counts."),
    half_life: float | None = typer.Option(
        None, help="A day weighs half as much as one that is so many days later; where logs have no times, files."
    ),
    json: bool = Json,
) -> None:
    """Add the counts of several days; with --half-life, old days weigh less.

    Yesterday's sum and today's counts give today's sum, with the same half-life.
    """
    from clickshift.counts.daily import DayCounts, decay
    from clickshift.errors import DataError

    if twice := [day for k, day in enumerate(days) if day.resolve() in {other.resolve() for other in days[:k]}]:
        raise DataError(f"a day must be added once: {twice[0]} is named twice. Leave one of them out.")
    with warnings_shown(), progress("adding"):
        read = [DayCounts.load(day) for day in days]
        total = DayCounts.merged(read, half_life=half_life)
        total.save(output, notes={"logs": [str(day) for day in days], "half_life": half_life})
        weights = [1.0] * len(read) if half_life is None else decay([day.last for day in read], half_life)
    timed = total.last is not None
    parts = [
        {"day": str(day), **(_ends(counts) if timed else {}), "sessions": round(counts.sessions), "weight": weight}
        for day, counts, weight in zip(days, read, weights, strict=True)
    ]
    if json:
        show_json({"days": parts, **_facts(total, output)})
        return
    show_table(parts, title="Days added")
    show(_facts(total, output), json=False, title="Their sum")


@app.command()
def drift(
    days: list[str] = typer.Argument(
        ..., help="Logs or counts of two or more days; or one log with several days in its 'time' or 'day' column."
    ),
    ranks: int = typer.Option(10, min=1, help="How many ranks of the lists are compared."),
    output: Path | None = typer.Option(None, "--output", "-o", help="Where the report goes: one .html page."),
    json: bool = Json,
) -> None:
    """Compare days: clicks by rank, new documents, whether the ranker changed, and whether an old model still holds.

    Everything is beside what chance alone would give for two days of one ranker, also one that varies its lists.
    """
    from clickshift.display.document import check_page
    from clickshift.drift._report import ctr_table, drift_facts, drift_table, drift_verdict, write_drift_report
    from clickshift.drift.compare import drift as compared

    if output is not None:
        check_page(output)
    with warnings_shown(), progress("comparing"):
        read, names = _read(days)
        found = compared(read, names, ranks=ranks)
        if output is not None:
            write_drift_report(output, found, {"days": days, "ranks": ranks}, ranks=ranks)
    if found.reordered:
        typer.echo(
            f"clickshift: warning: days are compared in order of time: {', '.join(d.name for d in found.days)}.",
            err=True,
        )
    if json:
        show_json({**drift_facts(found), "report": None if output is None else str(output)})
        return
    show_table(drift_table(found), title="Days, and what changed since the day before (beyond chance)")
    show_table(ctr_table(found, ranks), title="Click-through rate by rank, with 95 % intervals")
    for paragraph in drift_verdict(found):
        typer.echo(printable(paragraph))
    if output is not None:
        typer.echo(f"Report: {output}")


def _read(days: Sequence[str]) -> tuple[list[DayCounts], list[str]]:
    """The counts of each day with its name; a log that stands alone is parted by its days."""
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
                "there must be two or more days to compare: this log has no 'time' or 'day'. Name a log for each day."
            )
        day, found = days_of(sessions.time)
        return [DayCounts.of(sessions[np.flatnonzero(day == d)]) for d in range(len(found))], list(found)
    short = [Path(day).stem for day in days]
    names = short if len(set(short)) == len(short) else list(days)
    return [DayCounts.load(day) if is_counts(day) else DayCounts.of(open_log(day)) for day in days], names


def _ends(counts: DayCounts) -> dict[str, str]:
    return {} if counts.first is None or counts.last is None else {"from": str(counts.first), "to": str(counts.last)}


def _facts(counts: DayCounts, output: Path) -> dict[str, object]:
    return {
        **_ends(counts),
        "sessions": counts.sessions if counts.sessions % 1 else int(counts.sessions),
        "queries": counts.vocabulary.n_queries,
        "pairs": counts.vocabulary.n_pairs,
        "ranks": counts.n_ranks,
        "clicks_per_session": float(counts.cells.clicks.sum() / counts.sessions),
        "output": str(output),
    }
