"""The reports of the IPS paper's experiments: tidy rows -> one page, tables and charts as files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from clickshift.display.document import Section, write_report
from clickshift.display.export import Written, write_exports
from clickshift.display.tables import Row, Rows
from clickshift.display.values import Measured, measured
from clickshift.experiments.click_vs_ips._report_figures import gradient_figure, loss_figures, metric_curves
from clickshift.experiments.click_vs_ips.data import published_name, published_row
from clickshift.experiments.click_vs_ips.protocol import (
    IPS_TRUE,
    NAIVE,
    PBM_TRUE,
    PRODUCTION,
    RANKING_METRICS,
    values_by_seed,
)
from clickshift.io.table_writer import write_rows
from clickshift.metrics.significance import corrected_p_values, paired, welch

_ALPHA = 1e-4
"""The paper's level of significance, for all comparisons of a metric together."""
_ORDER = ((PRODUCTION, NAIVE), (NAIVE, PBM_TRUE), (NAIVE, IPS_TRUE), (PBM_TRUE, IPS_TRUE))

_HOW_SIZES = """A production ranker showed documents, users of a position-based model clicked, and rankers learned from
the clicks. nDCG@10 by true labels of other queries, where one without a relevant document counts as 0. Bands: 95 %
bootstrap intervals of the mean over seeds. Diamonds: published. (The bands of the published figure are called
bootstrapped 95 % intervals, and are one standard error.)"""
_HOW_TABLE = """Means over seeds with 95 % Student-t intervals. ▲ and ▼: significantly higher or lower than “PBM, true
bias”, by two-sided Welch tests at .0001 with Bonferroni's correction for all pairs of models. ARP is the average rank
of documents, weighted by grade; lower is better."""
_HOW_ONE_HOT = """The published rows of Naive and of estimated bias were, by all signs, made otherwise: with every
document in two queries of each part (that is the set one-hot-twice), of the last round instead of the best one, and
with an examination that stayed where it started by chance (docs/decisions/0010)."""
_HOW_ORDER = """Differences in nDCG@10 on the same seed's clicks, second minus first, and the p-value of a two-sided
paired t-test. Not corrected for several comparisons."""
_HOW_COLLISIONS = """Some documents have the features of others, so that a ranker must give them one score. The click
model leans to the documents that users looked at, IPS takes the plain mean. Dashed: what unlimited clicks give, in
closed form."""
_HOW_BIAS = """Both rankers are told the true examination, (1 / rank) to the power of eta. With unlimited clicks and a
parameter per document nothing would change; where features are shared, the click model loses."""
_HOW_SHARED = """Two documents with the same features: relevance .1, always examined, and .9, examined once in ten
times. Alone, each has its least loss at its own relevance. Together, IPS finds the mean, and the click loss finds
what is nearly the relevance of the document that is seen."""
_HOW_RANK = """One document of relevance .5 at ranks 1 to 10, examined with probability 1 / rank, with unlimited clicks.
The least loss is always at .5, but the click loss is the flatter the lower the rank."""
_HOW_GRADIENT = """How far the first step of training would move a document, by the rank at which it was shown, on the
one-hot set with all logits 0. The click loss hardly hears of low ranks. IPS hears of all alike, and of low ranks more
the fewer the sessions: that is its variance."""
_HOW_TUNING = """Means over runs of the least held-out loss of a run, which chooses, and of nDCG@10 on the test queries,
which does not. A run whose numbers overflow has no loss."""
_HOW_CHECKS = """nDCG@10 of rankers of drawn counts and of counted single sessions, with the p-value of their
difference. Distance: the largest difference between a score of the naive click model and of naive IPS on the same
clicks."""


def write_pointwise_report(folder: Path, rows: Sequence[Row], settings: Mapping[str, Any]) -> Written:
    """Models by sessions, collisions or eta: figures 1, 4 and 5, table 2."""
    figures, sections = {}, []
    data = rows[0]["data"]
    varied = [axis for axis in ("sessions", "collisions", "eta") if len({row[axis] for row in rows}) > 1]
    how = {"sessions": _HOW_SIZES, "collisions": _HOW_COLLISIONS, "eta": _HOW_BIAS}
    for axis in varied:
        figures[f"nDCG@10 by {axis}"] = metric_curves(rows, axis)
        sections.append(Section(f"nDCG@10 by {axis}", how[axis], figure=figures[f"nDCG@10 by {axis}"]))
    last = max(row["sessions"] for row in rows)
    tables: dict[str, Rows] = {}
    if set(varied) <= {"sessions"}:
        end = [row for row in rows if row["sessions"] == last]
        tables[f"after {last:,} sessions"] = _quality_table(end)
        tables["order of models"] = _paired_difference_table(rows)
        how_table = f"{_HOW_TABLE}\n\n{_HOW_ONE_HOT}" if published_name(data) == "one-hot" else _HOW_TABLE
        sections.append(Section(f"After {last:,} sessions", how_table, tables[f"after {last:,} sessions"]))
        sections.append(Section("Order of models", _HOW_ORDER, tables["order of models"]))
    else:
        tables["values"] = _values_table(rows, varied[-1])
        sections.append(Section("In numbers", _HOW_TABLE.split(" ▲")[0], tables["values"]))
    title = f"Click models and IPS rankers on the set “{data}”"
    return _write(folder, title, rows, settings, sections, tables, figures)


def write_losses_report(folder: Path, rows: Sequence[Row], settings: Mapping[str, Any]) -> Written:
    """Figures 2 and 3."""
    figures = loss_figures(rows)
    table = [
        {
            "loss": row["model"],
            **({"rank": row["rank"]} if "rank" in row else {"document": row["document"] or "both"}),
            "least at": row["relevance"],
            "least loss": row["loss"],
        }
        for row in rows
        if row["kind"] == "least"
    ]
    how = _HOW_RANK if "rank" in rows[0] else _HOW_SHARED
    sections = [Section("Losses", how, parts=[Section(name, figure=figure) for name, figure in figures.items()])]
    sections.append(Section("Where losses are least", table=table))
    return _write(folder, "The click loss and the IPS loss", rows, settings, sections, {"least": table}, figures)


def write_gradient_report(folder: Path, rows: Sequence[Row], settings: Mapping[str, Any]) -> Written:
    """Section 4.2."""
    figure = gradient_figure(rows)
    table: Rows = []
    for rank in sorted({row["rank"] for row in rows}):
        line: dict[str, Any] = {"rank": rank}
        for row in (row for row in rows if row["rank"] == rank):
            count = row.get("sessions_per_query")
            line[f"{row['model']}, {'unlimited' if count is None else f'{count:,} sessions'}"] = row["gradient"]
        table.append(line)
    sections = [Section("Gradient by rank", _HOW_GRADIENT, table, figure)]
    title = "How much each rank teaches"
    return _write(folder, title, rows, settings, sections, {"gradients": table}, {"gradients": figure})


def write_tuning_report(folder: Path, rows: Sequence[Row], settings: Mapping[str, Any]) -> Written:
    from clickshift.experiments.click_vs_ips.tuning import best_settings

    lines = best_settings(rows)
    table = [
        {
            "model": line["model"],
            "optimiser": line["optimiser"],
            "rate": f"{line['rate']:g}",
            "held-out loss": Measured(line["held_out_loss"], standing="best" if line["best"] else ""),
            "nDCG@10": line["nDCG@10"],
            "rounds": line["rounds"],
        }
        for line in lines
    ]
    best = [
        {"model": line["model"], "optimiser": line["optimiser"], "rate": f"{line['rate']:g}"}
        for line in lines
        if line["best"]
    ]
    sections = [Section("What was chosen", _HOW_TUNING, best), Section("All settings", table=table)]
    tables = {"chosen": best, "settings": table}
    return _write(folder, "Optimiser and learning rate of each ranker", rows, settings, sections, tables, {})


def write_checks_report(folder: Path, rows: Sequence[Row], settings: Mapping[str, Any]) -> Written:
    from clickshift.experiments.click_vs_ips.checks import check_table

    table = check_table(rows)
    sections = [Section("Checks", _HOW_CHECKS, table)]
    return _write(folder, "Counts, sessions, and two naive rankers", rows, settings, sections, {"checks": table}, {})


def _quality_table(rows: Sequence[Row]) -> Rows:
    """Rows 2: one line per model, with what was published of the set."""
    known = [row for row in rows if row["kind"] == "trained"]
    models = list(dict.fromkeys(row["model"] for row in known))
    data, table = rows[0]["data"], []
    marks = {metric: _marks(known, models, metric) for metric in RANKING_METRICS}
    for model in models:
        line: dict[str, Any] = {"model": model}
        published = published_row(data, model)
        for number, metric in enumerate(RANKING_METRICS):
            line[metric] = measured([*values_by_seed(known, metric, model=model).values()], digits=3)
            line[f"{metric} mark"] = marks[metric][model]
            if published_name(data):
                line[f"{metric} published"] = None if published is None else Measured(published[number][0], digits=3)
        table.append(line)
    return table


def _marks(rows: Sequence[Row], models: Sequence[str], metric: str) -> dict[str, str]:
    """Against the click model with the true bias; "" without it, or from single seeds."""
    values = {model: [*values_by_seed(rows, metric, model=model).values()] for model in models}
    marks = dict.fromkeys(models, "")
    if PBM_TRUE not in models or min(map(len, values.values())) < 2:
        return marks
    pairs = list(combinations(models, 2))
    p_values = corrected_p_values([welch(values[a], values[b]) for a, b in pairs], "bonferroni")
    for (a, b), p in zip(pairs, p_values, strict=True):
        if PBM_TRUE in (a, b) and p < _ALPHA:
            other = b if a == PBM_TRUE else a
            marks[other] = "▲" if np.mean(values[other]) > np.mean(values[PBM_TRUE]) else "▼"
    return marks


def _paired_difference_table(rows: Sequence[Row]) -> Rows:
    """Who is better than whom, size by size, on the same clicks."""
    known, table = [row for row in rows if row["kind"] == "trained"], []
    for sessions in sorted({row["sessions"] for row in known}):
        for first, second in _ORDER:
            a, b = (values_by_seed(known, "nDCG@10", model=model, sessions=sessions) for model in (first, second))
            seeds = sorted(a.keys() & b.keys())
            if not seeds:
                continue
            differences = [b[seed] - a[seed] for seed in seeds]
            p = paired([b[seed] for seed in seeds], [a[seed] for seed in seeds]) if len(seeds) > 1 else float("nan")
            table.append(
                {
                    "sessions": sessions,
                    "first": first,
                    "second": second,
                    "difference": measured(differences, signed=True),
                    "p": p,
                }
            )
    return table


def _values_table(rows: Sequence[Row], axis: str) -> Rows:
    """nDCG@10 by collisions or eta, with what unlimited clicks give where that is known."""
    table: Rows = []
    for point in sorted({row[axis] for row in rows}):
        line: dict[str, Any] = {axis: point}
        for model in dict.fromkeys(row["model"] for row in rows):
            where = {"model": model, axis: point}
            line[model] = measured([*values_by_seed(rows, "nDCG@10", kind="trained", **where).values()])
            limit = [*values_by_seed(rows, "nDCG@10", kind="limit", **where).values()]
            if limit:
                line[f"{model}, unlimited clicks"] = measured(limit)
        table.append(line)
    return table


def _write(
    folder: Path,
    title: str,
    rows: Sequence[Row],
    settings: Mapping[str, Any],
    sections: Sequence[Section],
    tables: Mapping[str, Rows],
    figures: Mapping[str, Any],
) -> Written:
    write_rows(rows, folder / "rows.parquet")
    write_report(folder / "report.html", title=title, sections=sections, settings=settings)
    exports = write_exports(folder / "exports", tables, figures)
    notes = [exports.note] if exports.note else []
    shown = {name.capitalize(): table for name, table in tables.items() if len(table) <= 40}
    return Written(folder / "report.html", folder / "rows.parquet", exports.files, [], shown, notes)
