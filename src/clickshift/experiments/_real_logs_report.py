"""The report of the real-log protocol: the logs, the tables of the policy-shift paper, and shifts between logs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from clickshift.display.document import Section, write_report
from clickshift.display.export import Written, write_exports
from clickshift.display.tables import Rows
from clickshift.experiments.policy_shift._report import shift_sections, write_shift_report
from clickshift.experiments.policy_shift._report_tables import perplexity_tables, ranking_tables
from clickshift.experiments.real_logs import log_warnings

_RANKS = (1, 2, 5, 10)
"""Ranks in the tables of the paper."""
_TITLE = "Click models on real logs"
_HOW_LOGS = """Models learned from one log and predicted clicks on others. Unseen: results or queries that the training
log never showed; a model predicts them from its prior. Rank displacement: change of a result's mean rank between the
two logs (root mean square, beyond chance). Perplexities of different logs also differ because their lists and users
do: compare models on the same log, not logs."""
_HOW_MARKS = """As in tables 1, 2 and 5 to 8 of the policy-shift paper, with 95 % confidence intervals over seeds. Bold:
the best. "=": not significantly worse than the best (Welch's t-test, 95 %, not corrected for multiple comparisons).
"†": a click model not significantly worse than the model that peeks at clicks. The perplexity of that model is in
brackets and not compared. Lower perplexity is better; higher AUROC, nDCG and Recall are better."""


def write_real_logs_report(output: Path, rows: Rows, settings: Mapping[str, Any]) -> Written:
    """Write the report of the policy-shift protocol, preceded by a description of the logs and tables of each log.

    Parameters
    ----------
    output
        Folder for report.html, rows.parquet and the folder exports.
    rows
        Rows of the finished tasks, those of `LogFacts` included.
    settings
        Settings of the run, shown on the page.

    Returns
    -------
    Written
        The files, and the tables, verdicts and notes for a terminal.
    """
    written = write_shift_report(output, rows, settings)
    log_table, tables = _log_table(rows), _one_log_tables(rows)
    by_log = {log: {title: t for (log_, title), t in tables.items() if log_ == log} for log, _ in tables}
    parts = [Section(log, parts=[Section(title, table=t) for title, t in own.items()]) for log, own in by_log.items()]
    shifted = any(row.get("shift") == "ood" for row in rows)
    sections = [
        Section("Logs", "\n\n".join([_HOW_LOGS, *log_warnings(rows)]), log_table),
        Section("Held-out clicks and judged documents", _HOW_MARKS, parts=parts),
        *(shift_sections(rows) if shifted else ()),  # for a single log they would repeat the tables above
    ]
    write_report(
        output / "report.html", title=_TITLE, sections=[s for s in sections if s.table or s.parts], settings=settings
    )
    shown = {"Logs": log_table} | {f"{title}: {log}": table for (log, title), table in tables.items()}
    exports = write_exports(output / "exports", shown, {})
    return replace(
        written,
        files=(*written.files, *exports.files),
        tables=shown | (written.tables if shifted else {}),
        verdicts=written.verdicts if shifted else [],
    )


def _log_table(rows: Rows) -> list[dict[str, Any]]:
    """One line per training log and test log: size, unseen results, and how much the rankings differ."""
    return [
        {
            "training log": row["training"],
            "test log": "its held-out part" if row["shift"] == "ind" else row["testing"],
            "sessions": row["sessions"],
            "unseen results": f"{row['unseen_pair_share']:.1%}",
            "unseen queries": f"{row['unseen_query_share']:.1%}",
            "rank displacement": row["displacement"],
            "lists in common": f"{row['lists_in_common']:.1%}",
        }
        for row in rows
        if row["kind"] == "log"
    ]


def _one_log_tables(rows: Rows) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Tables of the policy-shift paper's section 4 and appendices D and E, by training log and title.

    Perplexity and AUROC on held-out sessions, on average and at single ranks; nDCG and Recall of judged documents.
    """
    ind = [row for row in rows if row["kind"] == "clicks" and row["shift"] == "ind"]
    columns: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for metric, title, whole in (("perplexity", "Held-out perplexity", "average"), ("auroc", "Held-out AUROC", "full")):
        for name in (metric, *(f"{metric}@{rank}" for rank in _RANKS)):
            for log, table in perplexity_tables(ind, name).items():
                column = name.removeprefix(metric) or whole
                by_rank = columns.setdefault((log.training, title), {})
                by_rank[column] = {line["model"]: line["ind"] for line in table}
    for log, table in ranking_tables(rows).items():
        for title in ("nDCG", "Recall"):
            names = [name for name in table[0] if name.startswith(f"{title}@")]
            columns[log.training, title] = {
                name.removeprefix(title): {line["model"]: line[name] for line in table} for name in names
            }
    return {key: _join_columns(by_column) for key, by_column in columns.items()}


def _join_columns(columns: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Join columns of values by model into a table with one line per model."""
    models = dict.fromkeys(model for column in columns.values() for model in column)
    return [{"model": model} | {name: column.get(model) for name, column in columns.items()} for model in models]
