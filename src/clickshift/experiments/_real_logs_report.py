"""The result of the real-log protocol: the logs, the tables of the policy-shift paper, and shifts between logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from math import hypot, isnan
from typing import Any

from clickshift.display.document import Document, Section
from clickshift.display.tables import Rows
from clickshift.display.values import Measured
from clickshift.experiments._best_model import best_model_figure, best_model_verdict, best_models, compared_logs
from clickshift.experiments._protocol_settings import shown_settings
from clickshift.experiments.experiment import ExperimentResult
from clickshift.experiments.policy_shift._report import shift_sections
from clickshift.experiments.policy_shift._report_robustness import rows_of_kind
from clickshift.experiments.policy_shift._report_tables import perplexity_tables, ranking_tables
from clickshift.experiments.policy_shift._report_verdicts import shift_summary, shift_verdicts
from clickshift.experiments.policy_shift.published import published_slips, published_table

_MANY_UNSEEN = 0.2
"""From this share of unseen results on, a comparison reflects the models' priors more than what they learned."""
_SAME_RANKER = 0.2
"""Rankers count as the same below this rank displacement, if unseen results are hardly more than in held-out data."""
_FEW_SESSIONS = 1000
"""Below this number of sessions, the sampling noise of a test log usually exceeds the differences between models."""
_RANKS = (1, 2, 5, 10)
"""Ranks in the tables of the paper."""
_SAME_LOG = 0.05
"""Numbers of queries and documents that differ by less than this share from the paper's are those of its log."""
_YANDEX_TABLES = ("table6", "table8")
"""Published tables of the Yandex log; table 6 is table 2 with intervals."""
_TITLE = "Click models on real logs"
_HOW_LOGS = """Models learned from one log and predicted clicks on others. Unseen: results or queries that the training
log never showed; a model predicts them from its prior. Rank displacement: change of a result's mean rank between the
two logs (root mean square, beyond chance). Perplexities of different logs also differ because their lists and users
do: compare models on the same log, not logs."""
_CAPTION_BEST = """Lower is better; 0 is the best model on a log. Bars: 95 % intervals of the difference from the best
model, over resampled sessions of the test log and over seeds. A model whose bar reaches 0 is not worse beyond
chance."""
_HOW_SIZES = "Counted after the log's preparation: queries and documents that its sessions show."
_HOW_PAPER_SIZES = """The policy-shift paper has 4,991 queries and 255,467 documents on Yandex: annotated queries only,
SERPs with clicks only, and queries named by QueryID alone, which --merge-regions does."""
_HOW_PUBLISHED = """Tables 2, 6 and 8 of the policy-shift paper beside the same numbers of this log, which has about as
many queries and documents. A number agrees if the 95 % intervals leave no difference. Typing errors are left out."""
_HOW_MARKS = """As in tables 1, 2 and 5 to 8 of the policy-shift paper. Intervals (95 %) of the average perplexity are
over resampled sessions of the test log and over seeds, all others over seeds only. Models that are fitted by counting
or by maximum likelihood are the same from every seed: for them, seeds break ties between documents in another order.
Bold: the best. "=": not significantly worse than the best (95 %, paired by resampled session for the average
perplexity, otherwise Welch's t-test; not corrected for multiple comparisons).
"†": a click model not significantly worse than the model that peeks at clicks. The perplexity of that model is in
brackets and not compared. Lower perplexity is better; higher AUROC, nDCG and Recall are better."""


@dataclass(frozen=True, repr=False)
class RealLogsResult(ExperimentResult):
    """How well click models predict held-out clicks and the clicks of other rankers' logs, and rank judged documents.

    Parameters
    ----------
    task_rows
        Tidy rows of the finished tasks, and of the descriptions of the logs.
    settings
        Settings of the run, which end the page.
    failures
        Messages of the tasks that failed; the other tasks are in the rows.

    Notes
    -----
    Facts (`to_dict`, `--json`):

    - `conclusion`: the best model on logs of other rankers with the models by verdict, or the best model of each log
      where no log is another ranker's.
    - `logs`: one row per training log and test log: `training`, `testing`, `shift`, `train_sessions`, `sessions`,
      `unseen_pair_share`, `unseen_query_share`, `displacement` and `lists_in_common`.
    - `sizes`: one row per training log: `queries` and `documents` after its preparation, and for the Yandex relevance
      log `published_queries` and `published_documents`.
    - `warnings`: sentences about unseen results, small logs and rankers that hardly differ; notes of the tasks.
    - `rows`: tidy rows of kind "clicks" and "ranking", as in `PolicyShiftResult`.
    - `verdicts`: as in `PolicyShiftResult`; empty without a test log of another ranker.
    - `failures`: messages of the tasks that failed.
    """

    @cached_property
    def warnings(self) -> list[str]:
        """Warnings about the logs, and notes of the tasks."""
        return log_warnings(self.task_rows)

    @cached_property
    def verdicts(self) -> list[dict[str, str]]:
        """Verdict of each click model under a change of policy; empty without a log of another ranker."""
        return shift_verdicts(self.task_rows) if any(row.get("shift") == "ood" for row in self.task_rows) else []

    def _answer(self) -> str:
        best, verdicts = best_models(self.task_rows), shift_summary(self.verdicts)
        return "\n\n".join(filter(None, (best, f"Robustness when the ranker changes. {verdicts}" if verdicts else "")))

    def facts(self) -> Mapping[str, Any]:
        """Return the conclusion, logs, warnings, rows, verdicts and failures."""
        return {
            **super().facts(),
            "logs": rows_of_kind(self.task_rows, "log"),
            "sizes": rows_of_kind(self.task_rows, "size"),
            "warnings": self.warnings,
            "rows": [row for row in self.task_rows if row["kind"] in {"clicks", "ranking"}],
            "verdicts": self.verdicts,
        }

    def _document(self) -> Document:
        rows, tables, sizes = self.task_rows, _one_log_tables(self.task_rows), _size_table(self.task_rows)
        parts = [Section(f"{title}: {log}", table=table) for (log, title), table in tables.items()]
        published = any("published" in line for line in sizes)
        how_sizes = f"{_HOW_SIZES} {_HOW_PAPER_SIZES}" if published else _HOW_SIZES
        shifted = any(row.get("shift") == "ood" for row in rows)
        compared = compared_logs(rows)
        headline = Section(
            "Perplexity above the best model",
            figure=partial(best_model_figure, compared),
            caption=_CAPTION_BEST,
            name="above the best",
        )
        sections = [
            Section("Logs", "\n\n".join(self.warnings), _log_table(rows), explanation=_HOW_LOGS),
            Section("Queries and documents", table=sizes, explanation=how_sizes),
            Section("Held-out clicks and judged documents", parts=parts, explanation=_HOW_MARKS),
            Section(
                "Published numbers of the Yandex log",
                table=_published_lines(rows, tables),
                explanation=_HOW_PUBLISHED,
                name="published",
                page_only=True,
            ),
            *(shift_sections(rows, self.verdicts) if shifted else ()),  # for a single log they repeat the tables above
        ]
        shown = [section for section in sections if section.table or section.parts]
        return Document(
            _TITLE,
            self.conclusion,
            shown,
            shown_settings(self.settings),
            verdict=best_model_verdict(compared),
            data=_data_line(rows),
            headline=headline if compared else None,
        )


def _data_line(rows: Rows) -> str:
    """Return what the logs were, in one line."""
    parts = []
    for row in rows_of_kind(rows, "log"):
        ind = row["shift"] == "ind"
        tested = f"{row['sessions']:,} held-out sessions" if ind else f"{row['sessions']:,} of {row['testing']}"
        trained = f"{row['train_sessions']:,} sessions of {row['training']}"
        if ind:
            parts.append(f"trained on {trained}, tested on {tested}")
        else:
            parts.append(f"on {tested} ({row['unseen_pair_share']:.0%} of the results never seen in training)")
    text = " and ".join(parts)
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def log_warnings(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Collect the warnings that apply to the rows of a run, as sentences.

    Parameters
    ----------
    rows
        Rows of `LogFacts`, and of `LogCell` tasks that are finished.

    Returns
    -------
    list of str
        Warnings about unseen results, small logs and rankers that hardly differ; then the notes of the tasks.
    """
    messages = []
    facts = [row for row in rows if row["kind"] == "log"]
    ind_facts = {row["training"]: row for row in facts if row["shift"] == "ind"}
    for row in facts:
        ind = row["shift"] == "ind"
        log = f"the held-out part of {row['training']}" if ind else row["testing"]
        if row["unseen_pair_share"] >= _MANY_UNSEEN:
            messages.append(
                f"{row['unseen_pair_share']:.0%} of the results of {log} were never shown in {row['training']}. "
                "A model predicts documents that it never saw from its prior: on these results, priors are compared."
            )
        if row["sessions"] < _FEW_SESSIONS:
            messages.append(
                f"Only {row['sessions']:,} sessions are in {log}: differences between models are mostly noise."
                f"{' Hold out more sessions.' if ind else ''}"
            )
        extra_unseen = row["unseen_pair_share"] - ind_facts[row["training"]]["unseen_pair_share"]
        if not ind and row["displacement"] < _SAME_RANKER and extra_unseen < _SAME_RANKER:
            messages.append(
                f"The rankers of {row['training']} and {row['testing']} hardly differ: the mean rank of a result "
                f"changes by {row['displacement']:.2f}. These two logs hardly test a policy shift."
            )
    notes = dict.fromkeys(row["text"] for row in rows if row["kind"] == "note")
    # a note about a log is not repeated for every model that was trained on it
    log_notes = [note.partition(": ")[2] for note in notes if note.partition(": ")[0] in ind_facts]
    return messages + [
        note for note in notes if note.partition(": ")[0] in ind_facts or not note.endswith(tuple(log_notes))
    ]


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


def _size_table(rows: Rows) -> list[dict[str, Any]]:
    """One line per training log and quantity: found, published, and the difference."""
    lines: list[dict[str, Any]] = []
    for row in rows_of_kind(rows, "size"):
        for name in ("queries", "documents"):
            published = row.get(f"published_{name}")
            line = {"training log": row["training"], "quantity": name, "found": row[name]}
            compared = {"published": published, "difference": None if published is None else row[name] - published}
            lines.append(line | compared)
    if all(line["published"] is None for line in lines):
        lines = [{name: line[name] for name in ("training log", "quantity", "found")} for line in lines]
    return lines


def _one_log_tables(rows: Rows) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Tables of the policy-shift paper's section 4 and appendices D and E, by training log and title.

    Columns have the paper's names. Perplexity and AUROC on held-out sessions, on average and at single ranks; nDCG and
    Recall of judged documents.
    """
    ind = [row for row in rows if row["kind"] in {"clicks", "resample"} and row["shift"] == "ind"]
    columns: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for metric, title, short in (("perplexity", "Held-out perplexity", "PPL"), ("auroc", "Held-out AUROC", "AUROC")):
        for name in (metric, *(f"{metric}@{rank}" for rank in _RANKS)):
            for log, table in perplexity_tables(ind, name).items():
                by_rank = columns.setdefault((log.training, title), {})
                by_rank[name.replace(metric, short)] = {line["model"]: line["ind"] for line in table}
    for log, table in ranking_tables(rows).items():
        for title in ("nDCG", "Recall"):
            names = [name for name in table[0] if name.startswith(f"{title}@")]
            columns[log.training, title] = {name: {line["model"]: line[name] for line in table} for name in names}
    return {key: _join_columns(by_column) for key, by_column in columns.items()}


def _published_lines(rows: Rows, tables: Mapping[tuple[str, str], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Put the paper's tables of the Yandex log beside ours, for logs of the same size; nothing for any other log."""
    same = [
        row["training"]
        for row in rows_of_kind(rows, "size")
        if all(
            row.get(f"published_{name}") and abs(row[name] / row[f"published_{name}"] - 1) < _SAME_LOG
            for name in ("queries", "documents")
        )
    ]
    ours: dict[tuple[str, str], Measured] = {
        (line["model"], column): value
        for (log, _), lines in tables.items()
        if log in same
        for line in lines
        for column, value in line.items()
        if isinstance(value, Measured)
    }
    found = []
    for name in _YANDEX_TABLES:
        slips = {(slip.model, slip.column) for slip in published_slips(name)}
        for model, cells in published_table(name).items():
            for column, published in cells.items():
                own = ours.get((model, column))
                if published is None or own is None or (model, column) in slips:
                    continue
                difference = own.mean - published.mean
                noise = hypot(*(0.0 if isnan(value.half) else value.half for value in (own, published)))
                found.append(
                    {
                        "model": model,
                        "metric": column,
                        "published": published,
                        "ours": own,
                        "difference": Measured(difference, signed=True),
                        "verdict": "agrees" if abs(difference) <= noise + 5e-5 else "differs",
                    }
                )
    return found


def _join_columns(columns: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Join columns of values by model into a table with one line per model."""
    models = dict.fromkeys(model for column in columns.values() for model in column)
    return [{"model": model} | {name: column.get(model) for name, column in columns.items()} for model in models]
