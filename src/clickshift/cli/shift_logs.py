"""clickshift shift logs: the comparison on real logs, of one ranker or of several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from clickshift.cli.console import Cluster, Json, Workers, printable, progress, show_json
from clickshift.cli.experiment_runner import Pool, show_written
from clickshift.display.tables import Rows

if TYPE_CHECKING:
    from clickshift.experiments.real_logs import LogFacts
    from clickshift.experiments.runner import RunFolder


def logs(
    train: list[str] = typer.Option(
        ..., help="A log to learn from: .parquet, .csv or .jsonl, a folder or a glob; repeatable, each in turn."
    ),
    test: list[str] = typer.Option([], help="A log of another ranker, to be predicted only; repeatable."),
    judgments: Path | None = typer.Option(
        None, help="Relevance labels, to compare rankings: qrels, or the format's own."
    ),
    model: list[str] = typer.Option(
        [],
        help="A model of the paper, e.g. PBM, or a learner, e.g. \"EM('PBM')\"; repeatable. "
        "By default, the paper's six, the baselines and ARM NC.",
    ),
    candidate: list[str] = typer.Option([], help="Your own model, as package.module:Class or a learner; repeatable."),
    seeds: int = typer.Option(10, min=1, help="Models by gradient are learned from so many starts."),
    split: str = typer.Option(
        "auto", help="How a training log is parted: time, order, random or within-query; auto is time if it has times."
    ),
    held_out: float = typer.Option(
        1 / 30, help="The share of a training log to stop training by, and as much for ind.", show_default="1/30"
    ),
    annotated: bool = typer.Option(False, "--annotated", help="Only queries with judgments, as in the paper."),
    with_clicks: bool = typer.Option(
        False, "--with-clicks", help="Without pages that have no click, as in the paper: click rates are then too high."
    ),
    format: str = typer.Option("table", help="Of the logs: table, trec, yandex-sample, yandex-wscd or yandex-kaggle."),
    judgments_format: str | None = typer.Option(None, help="qrels, trec or yandex-wscd; by default that of the logs."),
    seed: int = typer.Option(0, help="Of a random split."),
    output: Path = typer.Option(Path("out/logs"), "--output", "-o", help="The folder for the rows and the report."),
    workers: int | None = Workers,
    cluster: str | None = Cluster,
    json: bool = Json,
) -> None:
    """Compare click models on logs of your own: held-out clicks (ind), other rankers' logs (ood), judged documents.

    Finished cells are kept in the output folder: run again after an interruption, and only the missing ones run.
    """
    from clickshift.cli.experiment_runner import run_with_progress
    from clickshift.experiments.log_files import JudgmentFile, named_logs
    from clickshift.experiments.models import candidate_model as own_model
    from clickshift.experiments.models import compared_model
    from clickshift.experiments.real_logs import PAPER_MODELS, Preparation, RealLogs, log_warnings, rows_of
    from clickshift.experiments.run_metadata import start_run
    from clickshift.io.datasets.registry import JUDGMENTS

    pool = Pool(workers, cluster)
    usual = format if format in JUDGMENTS else "qrels"
    judged = None if judgments is None else JudgmentFile.at(judgments, format=judgments_format or usual)
    files = named_logs([*train, *test], format=format)
    models = tuple(map(compared_model, dict.fromkeys(model))) or PAPER_MODELS
    protocol = RealLogs(
        tuple(files[: len(train)]),
        tuple(files[len(train) :]),
        (*models, *map(own_model, candidate)),
        Preparation(judged, annotated, with_clicks, split, (held_out, held_out), seed),
        seeds,
    )
    where = {log.name: ", ".join(log.files) for log in protocol.logs}
    folder, settings = start_run(protocol, output, logs=where, judgments=None if judgments is None else str(judgments))
    facts, cells = protocol.facts(), protocol.cells()
    said = _look_at_logs(facts, folder)
    failed = run_with_progress(cells, rows_of, folder, pool, name=lambda cell: cell.name)
    if not any(map(folder.has, cells)):
        failed.complain()
    rows = folder.rows([*facts, *cells])
    _warn([text for text in log_warnings(rows) if text not in said])
    show_logs(rows, output, settings, json=json)
    failed.complain()


def _look_at_logs(facts: Sequence[LogFacts], folder: RunFolder) -> list[str]:
    """Before the long work: a log that cannot be read stops it here, and what is doubtful about logs is said."""
    from clickshift.experiments.real_logs import clear_log_cache, log_warnings
    from clickshift.io.table_writer import write_rows

    with progress("reading", len(facts)) as advance:
        for log in facts:
            if not folder.has(log):
                write_rows(log.rows(), folder.file(log))
            advance(1)
    clear_log_cache()  # other processes read them for themselves
    said = log_warnings(folder.rows(facts))
    _warn(said)
    return said


def _warn(texts: Sequence[str]) -> None:
    for text in texts:
        typer.echo(f"clickshift: warning: {printable(text)}", err=True)


def show_logs(rows: Rows, output: Path, settings: Mapping[str, Any], *, json: bool) -> None:
    from clickshift.experiments._real_logs_report import write_real_logs_report
    from clickshift.experiments.real_logs import log_warnings

    written = write_real_logs_report(output, rows, settings)
    facts = [row for row in rows if row["kind"] == "log"]
    if json:
        kept = [row for row in rows if row["kind"] in {"clicks", "ranking"}]
        result = {"logs": facts, "warnings": log_warnings(rows), "rows": kept, "verdicts": written.verdicts}
        show_json({**result, "report": str(written.page)})
        return
    show_written(written)
