"""clickshift log: look at click logs, part them, and convert public ones."""

from __future__ import annotations

from pathlib import Path

import typer

from clickshift.cli.console import Json, LogPath, progress, sessions_encoded, show, warnings_shown
from clickshift.cli.log_days import count, drift, merge

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
    from clickshift.io.encode.duckdb import Spill

    with warnings_shown(), progress("encoding") as hear:
        found = open_log(
            log,
            columns=columns(column),
            on_bad_line="skip" if skip_bad else "error",
            in_memory=False,
            output=output,
            spill=Spill(memory, spill),
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


app.command()(count)
app.command()(merge)
app.command()(drift)
