"""Reports of the IPS paper's experiments: tidy rows to one HTML page, with tables and charts as files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from clickshift.display.document import Section, write_report
from clickshift.display.export import Written, write_exports
from clickshift.display.tables import Row, Rows, write_rows
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
from clickshift.metrics.significance import corrected_p_values, paired_t_test, welch

_ALPHA = 1e-4
"""Significance level of the paper, for all comparisons of a metric together."""
_COMPARED = ((PRODUCTION, NAIVE), (NAIVE, PBM_TRUE), (NAIVE, IPS_TRUE), (PBM_TRUE, IPS_TRUE))
"""Pairs of models whose difference is tested."""
_MAX_SHOWN_ROWS = 40
"""Largest table that the terminal shows."""

_TEXT_SIZES = """A production ranker showed documents, users of a position-based model clicked, and rankers were trained
on the clicks. nDCG@10 is computed from the true labels of other queries, where a query without a relevant document
counts as 0. Bands are 95 % bootstrap intervals of the mean over seeds, diamonds are published values. (The bands of the
published figure are called bootstrapped 95 % intervals, but are one standard error.)"""
_TEXT_TABLE = """Means over seeds with 95 % Student-t intervals. ▲ and ▼: significantly higher or lower than “PBM, true
bias”, by two-sided Welch tests at level .0001 with Bonferroni correction for all pairs of models. ARP is the average
rank of documents, weighted by grade; lower is better."""
_TEXT_ONE_HOT = """The published rows of Naive and of estimated bias were in all likelihood computed differently: with
every document in two queries of each split (the set one-hot-twice), from the last round instead of the best one, and
with an examination that stayed near its random initial values (docs/decisions/0010)."""
_TEXT_DIFFERENCES = """Differences in nDCG@10 on the same seed's clicks, second minus first, and the p-value of a
two-sided paired t-test. Not corrected for multiple comparisons."""
_TEXT_COLLISIONS = """Some documents have the features of others, so that a ranker must give them one score. The click
model is biased towards the documents that users examine often, IPS takes the plain mean. Dashed: the limit with
unlimited clicks, in closed form."""
_TEXT_BIAS = """Both rankers are given the true examination, (1 / rank) to the power of eta. With unlimited clicks and a
parameter per document nothing would change; where features are shared, the click model loses."""
_TEXT_SHARED = """Two documents with the same features: relevance .1, always examined, and .9, examined one time in
ten. Alone, each has its minimum at its own relevance. Together, the IPS loss has its minimum at the mean, and the click
loss close to the relevance of the document that is always examined."""
_TEXT_RANK = """One document of relevance .5 at ranks 1 to 10, examined with probability 1 / rank, with unlimited
clicks. The minimum is always at .5, but the click loss is flatter at lower ranks."""
_TEXT_GRADIENT = """Mean absolute gradient of a document's logit in the first step of training, by the rank at which the
document was shown, on the one-hot set with all logits 0. The click loss has small gradients at low ranks. IPS has
similar gradients at all ranks, and larger ones at low ranks if there are few sessions: that is its variance."""
_TEXT_TUNING = """Means over runs of the smallest held-out loss of a run, which decides, and of nDCG@10 on the test
queries, which does not. A run that diverged has no loss."""
_TEXT_CHECKS = """nDCG@10 of rankers trained on drawn counts and on counted single sessions, with the p-value of their
difference. Distance: the largest difference between a score of the naive click model and of naive IPS on the same
clicks."""


def write_pointwise_report(folder: Path, rows: Sequence[Row], settings: Mapping[str, Any]) -> Written:
    """Write the report of models by sessions, collisions or eta: figures 1, 4 and 5, table 2."""
    figures, sections = {}, []
    data = rows[0]["data"]
    varied = [axis for axis in ("sessions", "collisions", "eta") if len({row[axis] for row in rows}) > 1]
    texts = {"sessions": _TEXT_SIZES, "collisions": _TEXT_COLLISIONS, "eta": _TEXT_BIAS}
    for axis in varied:
        figures[f"nDCG@10 by {axis}"] = metric_curves(rows, axis)
        sections.append(Section(f"nDCG@10 by {axis}", texts[axis], figure=figures[f"nDCG@10 by {axis}"]))
    most = max(row["sessions"] for row in rows)
    tables: dict[str, Rows] = {}
    if set(varied) <= {"sessions"}:
        tables[f"after {most:,} sessions"] = _quality_table([row for row in rows if row["sessions"] == most])
        tables["order of models"] = _paired_difference_table(rows)
        text = f"{_TEXT_TABLE}\n\n{_TEXT_ONE_HOT}" if published_name(data) == "one-hot" else _TEXT_TABLE
        sections.append(Section(f"After {most:,} sessions", text, tables[f"after {most:,} sessions"]))
        sections.append(Section("Order of models", _TEXT_DIFFERENCES, tables["order of models"]))
    else:
        tables["values"] = _values_table(rows, varied[-1])
        sections.append(Section("In numbers", _TEXT_TABLE.split(" ▲")[0], tables["values"]))
    title = f"Click models and IPS rankers on the data set “{data}”"
    return _write(folder, title, rows, settings, sections, tables, figures)


def write_losses_report(folder: Path, rows: Sequence[Row], settings: Mapping[str, Any]) -> Written:
    """Write the report of the expected losses: figures 2 and 3."""
    figures = loss_figures(rows)
    table = [
        {
            "loss": row["model"],
            **({"rank": row["rank"]} if "rank" in row else {"document": row["document"] or "both"}),
            "minimum at": row["relevance"],
            "minimum loss": row["loss"],
        }
        for row in rows
        if row["kind"] == "least"
    ]
    text = _TEXT_RANK if "rank" in rows[0] else _TEXT_SHARED
    sections = [Section("Losses", text, parts=[Section(name, figure=figure) for name, figure in figures.items()])]
    sections.append(Section("Minima of the losses", table=table))
    return _write(folder, "Click loss and IPS loss", rows, settings, sections, {"minima": table}, figures)


def write_gradient_report(folder: Path, rows: Sequence[Row], settings: Mapping[str, Any]) -> Written:
    """Write the report of gradients by rank: section 4.2."""
    figure = gradient_figure(rows)
    table: Rows = []
    for rank in sorted({row["rank"] for row in rows}):
        line: dict[str, Any] = {"rank": rank}
        for row in (row for row in rows if row["rank"] == rank):
            count = row.get("sessions_per_query")
            line[f"{row['model']}, {'unlimited' if count is None else f'{count:,} sessions'}"] = row["gradient"]
        table.append(line)
    sections = [Section("Gradient by rank", _TEXT_GRADIENT, table, figure)]
    title = "Gradients of the click loss and the IPS loss by rank"
    return _write(folder, title, rows, settings, sections, {"gradients": table}, {"gradients": figure})


def write_tuning_report(folder: Path, rows: Sequence[Row], settings: Mapping[str, Any]) -> Written:
    """Write the report of the search for optimisers and learning rates: appendix C.2."""
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
    sections = [Section("Chosen settings", _TEXT_TUNING, best), Section("All settings", table=table)]
    tables = {"chosen": best, "settings": table}
    return _write(folder, "Optimiser and learning rate of each ranker", rows, settings, sections, tables, {})


def write_checks_report(folder: Path, rows: Sequence[Row], settings: Mapping[str, Any]) -> Written:
    """Write the report of the checks of drawn counts and of naive rankers."""
    from clickshift.experiments.click_vs_ips.checks import check_table

    table = check_table(rows)
    sections = [Section("Checks", _TEXT_CHECKS, table)]
    return _write(
        folder,
        "Checks: drawn counts against sessions, naive PBM against naive IPS",
        rows,
        settings,
        sections,
        {"checks": table},
        {},
    )


def _quality_table(rows: Sequence[Row]) -> Rows:
    """Return table 2: one line per model, with the published values of the data set."""
    trained = [row for row in rows if row["kind"] == "trained"]
    models = list(dict.fromkeys(row["model"] for row in trained))
    data, table = rows[0]["data"], []
    marks = {metric: _marks(trained, models, metric) for metric in RANKING_METRICS}
    for model in models:
        line: dict[str, Any] = {"model": model}
        published = published_row(data, model)
        for number, metric in enumerate(RANKING_METRICS):
            line[metric] = measured([*values_by_seed(trained, metric, model=model).values()], digits=3)
            line[f"{metric} mark"] = marks[metric][model]
            if published_name(data):
                line[f"{metric} published"] = None if published is None else Measured(published[number][0], digits=3)
        table.append(line)
    return table


def _marks(rows: Sequence[Row], models: Sequence[str], metric: str) -> dict[str, str]:
    """Mark models that differ significantly from the click model with the true bias.

    All marks are "" without that model, or with a single seed.
    """
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
    """Return paired differences in nDCG@10 between models on the same clicks, by number of sessions."""
    trained, table = [row for row in rows if row["kind"] == "trained"], []
    for sessions in sorted({row["sessions"] for row in trained}):
        for first, second in _COMPARED:
            a, b = (values_by_seed(trained, "nDCG@10", model=model, sessions=sessions) for model in (first, second))
            seeds = sorted(a.keys() & b.keys())
            if not seeds:
                continue
            differences = [b[seed] - a[seed] for seed in seeds]
            p = (
                paired_t_test([b[seed] for seed in seeds], [a[seed] for seed in seeds])
                if len(seeds) > 1
                else float("nan")
            )
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
    """Return nDCG@10 by collisions or eta, with the limit of unlimited clicks where it is known."""
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
    """Write rows.parquet, report.html, and tables and charts in the folder exports."""
    write_rows(rows, folder / "rows.parquet")
    write_report(folder / "report.html", title=title, sections=sections, settings=settings)
    exports = write_exports(folder / "exports", tables, figures)
    notes = [exports.note] if exports.note else []
    shown = {name.capitalize(): table for name, table in tables.items() if len(table) <= _MAX_SHOWN_ROWS}
    return Written(folder / "report.html", folder / "rows.parquet", exports.files, [], shown, notes)
