"""The report of an audit: which models still know what the logging policy thought, in words, numbers and pictures."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from clickshift.debiasedness.scored_pairs import ScoredPairs, mid_ranks
from clickshift.display.document import Section, write_report
from clickshift.display.export import Written, write_exports
from clickshift.display.figures import COLOURS
from clickshift.experiments.audit import AuditResult
from clickshift.io.table_writer import write_rows

_TITLE = "Debiasedness: do click models still know who ranked their log?"
_SIGNIFICANCE_LEVEL = 0.05
"""Up to this p-value a dependence is not put down to chance."""
_NEGLIGIBLE_SHARE = 0.05
"""Below this share of the variance a dependence is there, but hardly matters."""
_POINTS = 400
"""Of each label in a chart: more would hide each other."""
_BINS = 8
_HOW = """Once the true relevance of a document is known, a debiased model's estimate says nothing more about what
the logging policy thought of it. Mean dependence asks this of the mean of the estimates, and is what to look at
first. CMIP (conditional mutual information, in nats) asks it of everything, and so also sees that estimates are
noisier where users seldom looked, which is no bias. Debiasedness is necessary for a model to hold under another
ranker, not sufficient: random scores are debiased too. Read it beside nDCG and perplexity."""
_HOW_TABLE = """With 95 % intervals over random halves of the queries. Chance: what 95 % of logging scores shuffled
within labels stay below; p: how often they look as dependent. Change: of the estimate, from the least to the most
favoured document of equal label. Lower perplexity and higher nDCG are better."""
_HOW_CHARTS = """Documents of equal label, from the one that the logging policy favoured least to the one it
favoured most. The lines are means with two standard errors. Lines that rise or fall are bias; points that spread
more on one side are noise."""


def write_audit_report(
    folder: Path,
    audited: Sequence[AuditResult],
    chosen: Mapping[str, str],
    cautions: Sequence[str],
    settings: Mapping[str, Any],
) -> Written:
    """Write report.html, rows.parquet, and tables and charts as files in the folder exports."""
    facts, figures = [one.facts for one in audited], {str(a.facts["model"]): _scatter_figure(a) for a in audited}
    table, verdicts = audit_table(facts), [verdict(one) for one in facts]
    write_rows(facts, folder / "rows.parquet")
    answer = "\n\n".join([choice_note(chosen), *cautions, _HOW])
    sections = [
        Section("Verdicts", answer, parts=[Section(f"{v['model']}: {v['verdict']}", v["text"]) for v in verdicts]),
        Section("In numbers", _HOW_TABLE, table),
        Section("Within labels", _HOW_CHARTS, parts=[Section(name, figure=f) for name, f in figures.items()]),
    ]
    write_report(folder / "report.html", title=_TITLE, sections=sections, settings=settings)
    exports = write_exports(folder / "exports", {"audit": table}, figures)
    notes = [exports.note] if exports.note else []
    return Written(folder / "report.html", folder / "rows.parquet", exports.files, verdicts, {"Audit": table}, notes)


def audit_table(facts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "model": one["model"],
            "mean dependence": _with_interval(one, "mean_dependence"),
            "chance": _digits(one["mean_dependence_null_high"]),
            "p": _digits(one["mean_dependence_p_value"], 2),
            "change": _digits(one["mean_dependence_slope"], signed=True),
            "CMIP": _with_interval(one, "cmip"),
            "CMIP by chance": _digits(one["cmip_null_high"]),
            "perplexity": one["perplexity"],
            "nDCG@10": one["nDCG@10"],
        }
        for one in facts
    ]


def verdict(facts: Mapping[str, Any]) -> dict[str, str]:
    """What the numbers of one model mean, and what they do not."""
    value, slope = facts["mean_dependence"], facts["mean_dependence_slope"]
    biased = facts["mean_dependence_p_value"] <= _SIGNIFICANCE_LEVEL
    noisy = facts["cmip_p_value"] <= _SIGNIFICANCE_LEVEL
    if biased:
        short = "favours what the logging policy favoured" if slope > 0 else "corrects too much"
        short = "hardly depends on the logging policy" if value < _NEGLIGIBLE_SHARE else short
        text = (
            "Of documents with the same label, the estimate of the one that the logging policy favoured most differs "
            f"from that of the one it favoured least by {slope:+.3f}. Its ranking explains {value:.1%} of the variance "
            f"of the estimates within labels; chance would stay below {facts['mean_dependence_null_high']:.1%}."
        )
    elif noisy:
        short = "no bias seen, but uneven noise"
        text = (
            "The mean of its estimates does not depend on the logging policy beyond chance "
            f"(p = {facts['mean_dependence_p_value']:.2f}). The estimates depend on it in another way "
            f"(CMIP {facts['cmip']:.3f} nats): as a rule they are noisier for documents that users seldom looked at."
        )
    else:
        short = "no dependence seen"
        text = (
            "Neither the mean nor anything else of its estimates depends on the logging policy beyond chance "
            f"(p = {facts['mean_dependence_p_value']:.2f} and {facts['cmip_p_value']:.2f}). With "
            f"{facts['pairs']:,} judged pairs a small dependence would not be seen, and random scores would pass."
        )
    return {"model": str(facts["model"]), "verdict": short, "text": text}


def choice_note(chosen: Mapping[str, str]) -> str:
    """One sentence on the model that a strategy takes; none where there was nothing to choose."""
    if not chosen:
        return ""
    return f"Recommended by the strategy “{chosen['strategy']}”: {chosen['model']}."


def _scatter_figure(audited: AuditResult) -> Any:
    """Estimates of one model against the logging policy's ranking within each label."""
    import plotly.graph_objects as go

    rows, figure = audited.rows, go.Figure()
    labels = np.unique(rows.label)
    for i, label in enumerate(labels):
        colour = COLOURS[i % len(COLOURS)]
        mine = np.flatnonzero(rows.label == label)
        rank = mid_ranks(np.zeros(len(mine), np.int64), rows.logging[mine])
        estimate = rows.estimate[mine]
        some = slice(None, None, max(len(mine) // _POINTS, 1))  # rows are in the order of queries: an even sample
        group = {"legendgroup": str(label), "name": f"label {label:g}", "hoverinfo": "skip"}
        figure.add_scatter(
            x=rank[some],
            y=estimate[some],
            mode="markers",
            showlegend=False,
            marker={"color": colour, "size": 3, "opacity": 0.3},
            **group,
        )
        where, mean, error = _binned(rank, estimate)
        figure.add_scatter(
            x=where,
            y=mean,
            error_y={"type": "data", "array": 2 * error, "thickness": 1.2, "width": 2},
            mode="lines+markers",
            line={"color": colour, "width": 2},
            marker={"size": 6},
            **group,
        )
    name = html.escape(str(audited.facts["model"]))
    figure.update_layout(
        title={"text": name, "x": 0.5, "y": 0.97, "yanchor": "top", "font": {"size": 14}},
        template="plotly_white",
        width=480,
        height=430,
        xaxis={"title": "logging policy's ranking within the label", "range": [-0.02, 1.02]},
        yaxis={"title": "the model's relevance", "range": _range(rows)},
        legend={"orientation": "h", "x": 0.5, "xanchor": "center", "yref": "container", "y": 0.0, "yanchor": "bottom"},
        margin={"l": 55, "r": 32, "t": 58, "b": 105},
    )
    return figure


def _binned(rank: np.ndarray, estimate: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means of parts with equally many documents, and their standard errors."""
    parts = np.array_split(np.argsort(rank, kind="stable"), min(_BINS, max(len(rank) // 5, 1)))
    where, mean = (np.array([values[part].mean() for part in parts]) for values in (rank, estimate))
    error = np.array([estimate[part].std() / math.sqrt(len(part)) for part in parts])
    return where, mean, error


def _range(rows: ScoredPairs) -> list[float]:
    """All but the most extreme estimates, of which one would flatten the others."""
    low, high = np.quantile(rows.estimate, [0.002, 0.998])
    margin = 0.05 * (high - low) or 0.5
    return [float(low - margin), float(high + margin)]


def _with_interval(facts: Mapping[str, Any], name: str) -> str:
    value, low, high = (facts[part] for part in (name, f"{name}_low", f"{name}_high"))
    return f"{value:.4f}" if math.isnan(low) else f"{value:.4f} [{low:.4f}, {high:.4f}]"


def _digits(value: float, digits: int = 4, *, signed: bool = False) -> str:
    return "–" if math.isnan(value) else f"{value:{'+' if signed else ''}.{digits}f}"
