"""clickshift shift logs: compare click models on real logs, of one ranker or of several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from clickshift.cli._console import progress, show_json, show_warnings
from clickshift.cli._experiment_runner import Pool, show_written
from clickshift.cli._options import CLUSTER, JSON, WORKERS

if TYPE_CHECKING:
    from clickshift.display.tables import Rows
    from clickshift.experiments.real_logs import LogFacts
    from clickshift.experiments.runner import RunFolder


def logs(
    train: list[str] = typer.Option(
        ..., help="Training log: .parquet, .csv or .jsonl, a folder or a glob; repeatable, models are fitted on each."
    ),
    test: list[str] = typer.Option([], help="Log of another ranker, used only for testing; repeatable."),
    judgments: Path | None = typer.Option(
        None, help="Relevance labels for ranking metrics: qrels, or the labels of a public log's own format."
    ),
    model: list[str] = typer.Option(
        [],
        help="Model of the paper, e.g. PBM, or a learner, e.g. \"EM('PBM')\"; repeatable. "
        "By default, the paper's six, the baselines and ARM NC.",
    ),
    candidate: list[str] = typer.Option([], help="Own model, as package.module:Class or as a learner; repeatable."),
    seeds: int = typer.Option(10, min=1, help="Number of random seeds for models fitted by gradient."),
    split: str = typer.Option(
        "auto",
        help="Method to split a training log: time, order, random or within-query; auto is time if the log has times.",
    ),
    held_out: float = typer.Option(
        1 / 30,
        help="Share of a training log that is held out for early stopping, and the same share for the ind test set.",
        show_default="1/30",
    ),
    annotated: bool = typer.Option(False, "--annotated", help="Keep only queries with judgments, as in the paper."),
    with_clicks: bool = typer.Option(
        False, "--with-clicks", help="Drop sessions without clicks, as in the paper; this inflates click rates."
    ),
    format: str = typer.Option(
        "table", help="Format of the logs: table, trec, yandex-sample, yandex-wscd or yandex-kaggle."
    ),
    judgments_format: str | None = typer.Option(
        None, help="Format of the judgments: qrels, trec or yandex-wscd; by default, that of the logs."
    ),
    seed: int = typer.Option(0, help="Random seed for the train/test split."),
    output: Path = typer.Option(Path("out/logs"), "--output", "-o", help="Folder for the result rows and the report."),
    workers: int | None = WORKERS,
    cluster: str | None = CLUSTER,
    json: bool = JSON,
) -> None:
    """Compare click models on real logs: on held-out clicks (ind), other rankers' logs (ood), and judged documents.

    Finished tasks are kept in the output folder: after an interruption, run again, and only the missing ones run.
    """
    from clickshift.cli._experiment_runner import run_with_progress
    from clickshift.experiments.log_files import JudgmentFile, named_logs
    from clickshift.experiments.models import candidate_model as own_model
    from clickshift.experiments.models import compared_model
    from clickshift.experiments.real_logs import PAPER_MODELS, Preparation, RealLogs, log_warnings, rows_of
    from clickshift.experiments.run_metadata import start_run
    from clickshift.io.datasets.registry import JUDGMENTS

    pool = Pool(workers, cluster)
    default_format = format if format in JUDGMENTS else "qrels"
    judged = None if judgments is None else JudgmentFile.at(judgments, format=judgments_format or default_format)
    files = named_logs([*train, *test], format=format)
    models = tuple(map(compared_model, dict.fromkeys(model))) or PAPER_MODELS
    protocol = RealLogs(
        tuple(files[: len(train)]),
        tuple(files[len(train) :]),
        (*models, *map(own_model, candidate)),
        Preparation(judged, annotated, with_clicks, split, (held_out, held_out), seed),
        seeds,
    )
    paths = {log.name: ", ".join(log.files) for log in protocol.logs}
    folder, settings = start_run(protocol, output, logs=paths, judgments=None if judgments is None else str(judgments))
    facts, cells = protocol.facts(), protocol.cells()
    shown = _summarise_logs(facts, folder)
    failures = run_with_progress(cells, rows_of, folder, pool, name=lambda cell: cell.name)
    if not any(map(folder.has, cells)):
        failures.raise_if_any()
    rows = folder.rows([*facts, *cells])
    show_warnings(text for text in log_warnings(rows) if text not in shown)
    show_logs(rows, output, settings, json=json)
    failures.raise_if_any()


def _summarise_logs(facts: Sequence[LogFacts], folder: RunFolder) -> list[str]:
    """Read every log before the long work, so that unreadable ones stop it here; print and return warnings."""
    from clickshift.display.tables import write_rows
    from clickshift.experiments.real_logs import clear_log_cache, log_warnings

    with progress("reading", len(facts)) as advance:
        for log in facts:
            if not folder.has(log):
                write_rows(log.rows(), folder.file(log))
            advance(1)
    clear_log_cache()  # worker processes read the logs themselves
    messages = log_warnings(folder.rows(facts))
    show_warnings(messages)
    return messages


def show_logs(rows: Rows, output: Path, settings: Mapping[str, Any], *, json: bool) -> None:
    """Write the report of a run on real logs and print it, or its rows as JSON."""
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
