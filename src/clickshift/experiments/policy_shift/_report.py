"""The report of the policy-shift protocol: tidy rows -> one page, tables and charts as files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clickshift.display.document import Section, write_report
from clickshift.display.export import Written, write_exports
from clickshift.display.tables import Row, Rows
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
from clickshift.io.table_writer import write_rows

TITLE = "Policy shift: do click models hold when the ranker changes?"
_FEW = 3
"""So many logs have their tables on a terminal; the page has all."""

_HOW_VERDICTS = """Each click model learned from a log that one policy ranked, and predicted clicks on lists of other
policies. A model is more robust than its peers where its normalised perplexity on the other policy's lists (ood nPPL)
is below that on its own policy's lists (ind nPPL)."""
_HOW_SPIDERS = """One spoke per change of policy: the outer circle of labels names the policy that ranked the training
log, the inner one the policy that ranked the test log, the background the user who clicked. The centre is the best
click model on a log, the edge the worst (nPPL, eq. 16 of the policy-shift paper). Where the solid line (ood) is inside
the dashed one (ind), the model is more robust than its peers. Shaded: 95 % intervals over seeds."""
_HOW_ROBUSTNESS = """In how many shifts ood nPPL is below ind nPPL, and in how many of these the seeds agree (95 %,
paired). A difference below 0 is good. A model that is the best on both logs has no difference to show."""
_HOW_ORACLE = """Perplexity above that of the user's own model, which no model can beat but by chance. Lower is better.
nPPL says who is better than whom; this says how much that matters."""
_HOW_POLICIES = """Top-Down ranks documents by the model's relevance; Max-Reward is the ranking that the model expects
the most clicks from. Bars: the clicks per list that the user would give. Diamonds: what the model promised. A
Max-Reward below Top-Down marks a poorly robust model, a diamond far above its bar the optimiser's curse."""
_HOW_GAINS = """Expected clicks per list, with 95 % intervals over seeds. Gain: Max-Reward minus Top-Down. Curse:
what the model promised of Max-Reward minus what the user gives. Bold: the best. "=": not significantly worse."""
_HOW_RANKING = """Bold: the best. "=": not significantly worse than the best (Welch, 95 %, several comparisons are not
corrected for). "†": a click model not significantly worse than the one that peeks at clicks. Higher is better, but for
ARP, the average rank of the relevant. Neither the oracle nor the logging policy is compared."""
_HOW_PERPLEXITY = """Conditional perplexity with 95 % intervals over seeds; lower is better. Bold: the best. "=": not
significantly worse than the best (Welch, 95 %). In brackets: a model that peeks at the click it predicts, not compared.
The oracle, the user's own model, is a lower bound but for chance."""
_HOW_NPPL = """From .2, the best click model on a log, to .893, the worst. Bold: ood below ind of the same users and
training policy."""


def write_shift_report(folder: str | Path, rows: Sequence[Row], settings: Mapping[str, Any]) -> Written:
    """Write report.html, rows.parquet, and every table and chart as a file in the folder exports."""
    folder = Path(folder)
    write_rows(rows, folder / "rows.parquet")
    write_report(folder / "report.html", title=TITLE, sections=shift_sections(rows), settings=settings)
    exports = write_exports(folder / "exports", _shift_tables(rows), _shift_figures(rows))
    tables, note = _for_terminals(rows)
    return Written(
        folder / "report.html",
        folder / "rows.parquet",
        exports.files,
        shift_verdicts(rows),
        tables,
        [text for text in (note, exports.note) if text],
    )


def _shift_tables(rows: Sequence[Row]) -> dict[str, Rows]:
    """All tables, by names for files."""
    tables = {"robustness": robustness_table(rows), "nppl": nppl_table(rows)}
    for metric in ("perplexity", "marginal_perplexity", "auroc"):
        tables |= _named(metric.replace("_", " "), perplexity_tables(rows, metric))
    tables |= _named("ranking", ranking_tables(rows)) | _named("policies", policy_tables(rows))
    return {name: table for name, table in tables.items() if table}


def _shift_figures(rows: Sequence[Row]) -> dict[str, Any]:
    """All charts, by names for files."""
    spiders = {f"robustness {model}": figure for model, figure in spider_figures(rows).items()}
    return spiders | _named("oracle", _oracle_figures(rows)) | _named("policies", policy_figures(rows))


def shift_sections(rows: Sequence[Row]) -> list[Section]:
    """What the page shows, the answer first; only what the rows have."""
    spiders, robustness, nppl = spider_figures(rows), robustness_table(rows), nppl_table(rows)
    policies, notes, verdicts = policy_figures(rows), ranking_notes(rows), shift_verdicts(rows)
    sections = [
        Section("Verdicts", f"{shift_summary(verdicts)}\n\n{_HOW_VERDICTS}", parts=_verdict_parts(verdicts)),
        Section("Robustness of predictions", _HOW_SPIDERS, parts=_figures(spiders)),
        Section("Robustness in numbers", _HOW_ROBUSTNESS, robustness),
        Section("Distance from the oracle", _HOW_ORACLE, parts=_figures(_oracle_figures(rows))),
        Section("Derived policies", _HOW_POLICIES, parts=_figures(policies)),
        Section("Derived policies in numbers", _HOW_GAINS, parts=_tables(policy_tables(rows))),
        Section("Relevance", _HOW_RANKING, parts=_tables(ranking_tables(rows), notes)),
        Section("Perplexity", _HOW_PERPLEXITY, parts=_tables(perplexity_tables(rows))),
        Section("Normalised perplexity", _HOW_NPPL, nppl if robustness else ()),
    ]
    return [section for section in sections if section.parts or section.table]


def _verdict_parts(verdicts: Sequence[Mapping[str, str]]) -> list[Section]:
    return [Section(f"{one['model']}: {one['verdict']}", one["text"].replace("\n", "\n\n")) for one in verdicts]


def _figures(figures: Mapping[Any, Any]) -> list[Section]:
    return [Section(str(name), figure=figure) for name, figure in figures.items()]


def _tables(tables: Mapping[LogName, Rows], notes: Mapping[LogName, str] | None = None) -> list[Section]:
    return [Section(str(log), (notes or {}).get(log, ""), table) for log, table in tables.items() if table]


def _oracle_figures(rows: Sequence[Row]) -> dict[LogName, Any]:
    figures = {log: oracle_gap_figure(there) for log, there in rows_by_log(rows_of_kind(rows, "clicks")).items()}
    return {log: figure for log, figure in figures.items() if figure is not None}


def _named(kind: str, found: Mapping[LogName, Any]) -> dict[str, Any]:
    return {" ".join(filter(None, (kind, *log))): thing for log, thing in found.items()}


def _for_terminals(rows: Sequence[Row]) -> tuple[dict[str, Rows], str]:
    perplexity, policies = perplexity_tables(rows), policy_tables(rows)
    tables = {f"Perplexity: {log}": table for log, table in list(perplexity.items())[:_FEW]}
    tables |= {f"Clicks of derived policies: {log}": table for log, table in list(policies.items())[:_FEW]}
    tables["Robustness: ood nPPL below ind nPPL is more robust"] = robustness_table(rows)
    more = max(len(perplexity), len(policies)) > _FEW
    note = f"Tables of the first {_FEW} logs are shown; the report has all." if more else ""
    return {title: table for title, table in tables.items() if table}, note
