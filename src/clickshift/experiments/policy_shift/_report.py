"""The report of the policy-shift protocol: a page, and tables and figures as files, from tidy rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clickshift.display.document import Section, write_report
from clickshift.display.export import Written, write_exports
from clickshift.display.tables import Row, Rows, write_rows
from clickshift.experiments.policy_shift._report_derived import policy_figures
from clickshift.experiments.policy_shift._report_robustness import LogName, oracle_gap_figure, rows_by_log, rows_of_kind
from clickshift.experiments.policy_shift._report_spider import spider_figures
from clickshift.experiments.policy_shift._report_tables import (
    nppl_table,
    perplexity_tables,
    policy_tables,
    ranking_notes,
    ranking_tables,
    robustness_table,
)
from clickshift.experiments.policy_shift._report_verdicts import shift_summary, shift_verdicts

TITLE = "Policy shift: are click models robust when the ranker changes?"
_TERMINAL_LOGS = 3
"""Number of logs whose tables are shown on a terminal; the page has all."""

_HOW_VERDICTS = """Each click model learned from a log that one policy ranked, and predicted clicks on lists of other
policies. A model is more robust than its peers if its normalised perplexity on another policy's lists (ood nPPL) is
below that on its own policy's lists (ind nPPL)."""
_HOW_SPIDERS = """One spoke per change of policy: the outer circle of labels names the policy that ranked the training
log, the inner circle the policy that ranked the test log, and the background colour the user who clicked. The centre is
the best click model on a log, the edge the worst (nPPL, eq. 16 of the policy-shift paper). Where the solid line (ood)
is inside the dashed line (ind), the model is more robust than its peers. Shaded: 95 % confidence intervals over
seeds."""
_HOW_ROBUSTNESS = """Number of shifts in which ood nPPL is below ind nPPL ("more robust") or above it ("less robust"),
and how many of these differences are significant over seeds (95 %, paired). A difference below 0 is good. A model that
is the best on both logs has no difference."""
_HOW_ORACLE = """Perplexity above that of the user's own model, which no model can beat except by chance. Lower is
better. nPPL ranks the models; this chart shows how large the differences are."""
_HOW_POLICIES = """Top-Down ranks documents by the model's relevance. Max-Reward is the ranking with the most clicks
according to the model. Bars: expected clicks per list under the user. Diamonds: clicks that the model predicted. A
Max-Reward below Top-Down is a sign of a poorly robust model; a diamond far above its bar is the optimiser's curse."""
_HOW_GAINS = """Expected clicks per list, with 95 % confidence intervals over seeds. Gain: Max-Reward minus Top-Down.
Curse: clicks that the model predicted for Max-Reward minus expected clicks under the user. Bold: the best. "=": not
significantly worse."""
_HOW_RANKING = """Bold: the best. "=": not significantly worse than the best (Welch's t-test, 95 %, not corrected for
multiple comparisons). "†": a click model not significantly worse than the model that peeks at clicks. Higher is better,
except for ARP, the average rank of relevant documents. The oracle and the logging policy are not compared."""
_HOW_PERPLEXITY = """Conditional perplexity with 95 % confidence intervals over seeds; lower is better. Bold: the best.
"=": not significantly worse than the best (Welch's t-test, 95 %). In brackets: a model that peeks at the click it
predicts, not compared. The oracle, the user's own model, is a lower bound except for chance."""
_HOW_NPPL = """From .2, the best click model on a log, to .893, the worst. Bold: ood below ind of the same users and
training policy."""


def write_shift_report(folder: str | Path, rows: Sequence[Row], settings: Mapping[str, Any]) -> Written:
    """Write report.html, rows.parquet, and every table and figure as a file in the folder exports.

    Parameters
    ----------
    folder
        Folder of the report.
    rows
        Rows of the finished tasks.
    settings
        Settings of the run, shown on the page.

    Returns
    -------
    Written
        The files, and the tables, verdicts and notes for a terminal.
    """
    folder = Path(folder)
    write_rows(rows, folder / "rows.parquet")
    write_report(folder / "report.html", title=TITLE, sections=shift_sections(rows), settings=settings)
    exports = write_exports(folder / "exports", _shift_tables(rows), _shift_figures(rows))
    tables, note = _terminal_tables(rows)
    return Written(
        folder / "report.html",
        folder / "rows.parquet",
        exports.files,
        shift_verdicts(rows),
        tables,
        [text for text in (note, exports.note) if text],
    )


def _shift_tables(rows: Sequence[Row]) -> dict[str, Rows]:
    """All tables by file name."""
    tables = {"robustness": robustness_table(rows), "nppl": nppl_table(rows)}
    for metric in ("perplexity", "marginal_perplexity", "auroc"):
        tables |= _by_file_name(metric.replace("_", " "), perplexity_tables(rows, metric))
    tables |= _by_file_name("ranking", ranking_tables(rows)) | _by_file_name("policies", policy_tables(rows))
    return {name: table for name, table in tables.items() if table}


def _shift_figures(rows: Sequence[Row]) -> dict[str, Any]:
    """All figures by file name."""
    spiders = {f"robustness {model}": figure for model, figure in spider_figures(rows).items()}
    return spiders | _by_file_name("oracle", _oracle_figures(rows)) | _by_file_name("policies", policy_figures(rows))


def shift_sections(rows: Sequence[Row]) -> list[Section]:
    """Sections of the page, the verdicts first; sections without content are left out.

    Parameters
    ----------
    rows
        Rows of the finished tasks.

    Returns
    -------
    list of Section
        Text, tables and figures.
    """
    spiders, robustness, nppl = spider_figures(rows), robustness_table(rows), nppl_table(rows)
    policies, notes, verdicts = policy_figures(rows), ranking_notes(rows), shift_verdicts(rows)
    sections = [
        Section("Verdicts", f"{shift_summary(verdicts)}\n\n{_HOW_VERDICTS}", parts=_verdict_sections(verdicts)),
        Section("Robustness of predictions", _HOW_SPIDERS, parts=_figure_sections(spiders)),
        Section("Robustness in numbers", _HOW_ROBUSTNESS, robustness),
        Section("Distance from the oracle", _HOW_ORACLE, parts=_figure_sections(_oracle_figures(rows))),
        Section("Derived policies", _HOW_POLICIES, parts=_figure_sections(policies)),
        Section("Derived policies in numbers", _HOW_GAINS, parts=_table_sections(policy_tables(rows))),
        Section("Relevance", _HOW_RANKING, parts=_table_sections(ranking_tables(rows), notes)),
        Section("Perplexity", _HOW_PERPLEXITY, parts=_table_sections(perplexity_tables(rows))),
        Section("Normalised perplexity", _HOW_NPPL, nppl if robustness else ()),
    ]
    return [section for section in sections if section.parts or section.table]


def _verdict_sections(verdicts: Sequence[Mapping[str, str]]) -> list[Section]:
    """One section per model, with its verdict."""
    return [
        Section(f"{verdict['model']}: {verdict['verdict']}", verdict["text"].replace("\n", "\n\n"))
        for verdict in verdicts
    ]


def _figure_sections(figures: Mapping[Any, Any]) -> list[Section]:
    """One section per figure."""
    return [Section(str(name), figure=figure) for name, figure in figures.items()]


def _table_sections(tables: Mapping[LogName, Rows], notes: Mapping[LogName, str] | None = None) -> list[Section]:
    """One section per training log, with its table and note."""
    return [Section(str(log), (notes or {}).get(log, ""), table) for log, table in tables.items() if table]


def _oracle_figures(rows: Sequence[Row]) -> dict[LogName, Any]:
    """Charts of the distance from the oracle, by training log."""
    figures = {log: oracle_gap_figure(group) for log, group in rows_by_log(rows_of_kind(rows, "clicks")).items()}
    return {log: figure for log, figure in figures.items() if figure is not None}


def _by_file_name(kind: str, by_log: Mapping[LogName, Any]) -> dict[str, Any]:
    """Tables or figures of one kind by file name, instead of by training log."""
    return {" ".join(filter(None, (kind, *log))): item for log, item in by_log.items()}


def _terminal_tables(rows: Sequence[Row]) -> tuple[dict[str, Rows], str]:
    """Tables for a terminal by title, and a note if some are left out."""
    perplexity, policies = perplexity_tables(rows), policy_tables(rows)
    tables = {f"Perplexity: {log}": table for log, table in list(perplexity.items())[:_TERMINAL_LOGS]}
    tables |= {f"Clicks of derived policies: {log}": table for log, table in list(policies.items())[:_TERMINAL_LOGS]}
    tables["Robustness: ood nPPL below ind nPPL is more robust"] = robustness_table(rows)
    more = max(len(perplexity), len(policies)) > _TERMINAL_LOGS
    note = f"Tables of the first {_TERMINAL_LOGS} logs are shown; the report has all." if more else ""
    return {title: table for title, table in tables.items() if table}, note
