"""The report of real logs: what the logs are like, tables of one log as in the paper, and the shift between logs."""

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
"""Those of the paper's tables."""
_TITLE = "Click models on real logs"
_HOW_LOGS = """Models learned from one log and predicted others. Unseen: what the log that was learned from never
showed; a model cannot know it. Ranks displaced: by how much the mean rank of a result changes (root mean square,
beyond chance). Perplexities of different logs differ also because their lists and users do: compare models on a log,
not logs."""
_HOW_MARKS = """As in tables 1, 2 and 5 to 8 of the policy-shift paper, with 95 % intervals over seeds. Bold: the
best. "=": not significantly worse than the best (Welch, 95 %, several comparisons are not corrected for). "†": a
click model not significantly worse than the one that peeks at clicks, whose perplexity, in brackets, is not compared.
Lower perplexity is better, and higher AUROC, nDCG and Recall."""


def write_real_logs_report(output: Path, rows: Rows, settings: Mapping[str, Any]) -> Written:
    """The report of the simulated protocol, after what the logs are like and the tables of one log."""
    written = write_shift_report(output, rows, settings)
    about, tables = _log_table(rows), _one_log_tables(rows)
    logs = {log: {title: t for (log_, title), t in tables.items() if log_ == log} for log, _ in tables}
    parts = [Section(log, parts=[Section(title, table=t) for title, t in found.items()]) for log, found in logs.items()]
    shifted = any(row.get("shift") == "ood" for row in rows)
    sections = [
        Section("Logs", "\n\n".join([_HOW_LOGS, *log_warnings(rows)]), about),
        Section("Held-out clicks and judged documents", _HOW_MARKS, parts=parts),
        *(shift_sections(rows) if shifted else ()),  # of one log alone it would say nothing new
    ]
    write_report(written.page, title=_TITLE, sections=[s for s in sections if s.table or s.parts], settings=settings)
    shown = {"Logs": about} | {f"{title}: {log}": table for (log, title), table in tables.items()}
    exports = write_exports(output / "exports", shown, {})
    return replace(
        written,
        files=(*written.files, *exports.files),
        tables=shown | (written.tables if shifted else {}),
        verdicts=written.verdicts if shifted else [],
    )


def _log_table(rows: Rows) -> list[dict[str, Any]]:
    return [
        {
            "learned from": row["training"],
            "predicted": "its held-out part" if row["shift"] == "ind" else row["testing"],
            "sessions": row["sessions"],
            "unseen results": f"{row['unseen_pair_share']:.1%}",
            "unseen queries": f"{row['unseen_query_share']:.1%}",
            "ranks displaced": row["displacement"],
            "lists in common": f"{row['lists_in_common']:.1%}",
        }
        for row in rows
        if row["kind"] == "log"
    ]


def _one_log_tables(rows: Rows) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """By training log and title: the tables of the policy-shift paper's section 4 and appendices D and E: perplexity
    and AUROC on held-out sessions, on average and at single ranks; nDCG and Recall of judged documents."""
    ind = [row for row in rows if row["kind"] == "clicks" and row["shift"] == "ind"]
    columns: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for metric, title, whole in (("perplexity", "Held-out perplexity", "average"), ("auroc", "Held-out AUROC", "full")):
        for name in (metric, *(f"{metric}@{rank}" for rank in _RANKS)):
            for log, table in perplexity_tables(ind, name).items():
                column = name.removeprefix(metric) or whole
                found = columns.setdefault((log.training, title), {})
                found[column] = {line["model"]: line["ind"] for line in table}
    for log, table in ranking_tables(rows).items():
        for title in ("nDCG", "Recall"):
            names = [name for name in table[0] if name.startswith(f"{title}@")]
            columns[log.training, title] = {
                name.removeprefix(title): {line["model"]: line[name] for line in table} for name in names
            }
    return {key: _crossed(found) for key, found in columns.items()}


def _crossed(columns: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    models = dict.fromkeys(model for column in columns.values() for model in column)
    return [{"model": model} | {name: column.get(model) for name, column in columns.items()} for model in models]
