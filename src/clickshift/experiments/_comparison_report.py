"""Report of a comparison of click models on one log: conclusion, table and chart."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from clickshift.display.document import Document, Section
from clickshift.display.figures import COLOURS
from clickshift.display.tables import Row, Rows
from clickshift.display.values import Measured
from clickshift.metrics.click_prediction import PROBABILITY_FLOOR

_BASELINES = ("gCTR", "rCTR", "dCTR", "drCTR")
_Z = 1.96  # 97.5 % quantile of the normal distribution


def comparison_document(rows: Sequence[Row], conclusion: str, settings: Mapping[str, Any]) -> Document:
    """Return the document of a comparison.

    Parameters
    ----------
    rows
        Rows of the models, the best first.
    conclusion
        The conclusion.
    settings
        Settings of the comparison, by name.

    Returns
    -------
    Document
        The conclusion, and a section with the table and the chart of the models.
    """
    sizes = f"{rows[0]['train_sessions']:,} training sessions, {rows[0]['test_sessions']:,} test sessions"
    caption = (
        "Lower perplexity is better; ± is the 95 % interval over test sessions. All models predict the same sessions, "
        f"so differences between them are more precise. Probabilities are clipped at {PROBABILITY_FLOOR:g}."
    )
    if error := max((row["marginal_error"] or 0.0 for row in rows), default=0.0):
        caption += f" Marginal probabilities of NCM have an error of at most {error:g}."
    errors = "\n\n".join(f"{row['model']} failed: {row['error']}" for row in rows if row["error"])
    section = Section(
        f"Models: {sizes}",
        errors,
        comparison_table(rows),
        partial(comparison_figure, rows),
        caption=caption,
        name="models",
    )
    settings = {**settings, "probability clip": PROBABILITY_FLOOR}
    return Document("Click models on one log", conclusion, [section], settings)


def comparison_conclusion(rows: Sequence[Row]) -> str:
    """Conclude a comparison of click models on one log.

    Parameters
    ----------
    rows
        Rows of the comparison, one per model.

    Returns
    -------
    str
        Which model predicts best, its improvement over the best baseline, and which models failed.
    """
    perplexity = {
        row["model"]: row["conditional_perplexity"] for row in rows if row["conditional_perplexity"] is not None
    }
    sentences = []
    if perplexity:
        best = min(perplexity, key=perplexity.__getitem__)
        lowest = perplexity[best]
        tied = [name for name, value in perplexity.items() if round(value, 3) == round(lowest, 3) and name != best]
        tie = f", tied with {' and '.join(tied)}" if tied else ""
        sentences.append(f"{best} predicts these clicks best: conditional perplexity {lowest:.4f}{tie}.")
        baseline = min((name for name in perplexity if name in _BASELINES), key=perplexity.__getitem__, default=None)
        if baseline is not None and baseline != best and perplexity[baseline] > 1:
            gain = (perplexity[baseline] - lowest) / (perplexity[baseline] - 1)
            sentences.append(
                f"That is {gain:.1%} closer to perfect prediction (perplexity 1) than {baseline}, the best baseline "
                f"({perplexity[baseline]:.4f})."
            )
    failed = [row["model"] for row in rows if row["error"]]
    if failed:
        sentences.append(f"Not compared: {', '.join(failed)}.")
    impossible = [row["model"] for row in rows if row["log_likelihood"] == -math.inf]
    if impossible:
        sentences.append(
            f"{', '.join(impossible)} gave probability 0 to clicks that happened: their perplexity depends on the "
            f"probability floor {PROBABILITY_FLOOR:g}."
        )
    return " ".join(sentences)


def comparison_figure(rows: Sequence[Row]) -> Any:
    """Plot conditional and marginal perplexity of every model, the best first; outliers are numbers at the edge.

    Parameters
    ----------
    rows
        Rows of the comparison, one per model.
    """
    import plotly.graph_objects as go

    finished = [row for row in best_first(rows) if row["conditional_perplexity"] is not None]
    names = [html.escape(row["model"]) for row in finished]
    figure = go.Figure()
    kinds = {"conditional": "given the clicks above", "marginal": "without them"}
    values = [row[f"{kind}_perplexity"] for row in finished for kind in kinds]
    limit = _axis_limit(values)
    for (kind, meaning), colour, symbol in zip(kinds.items(), COLOURS, ("circle", "diamond-open"), strict=False):
        perplexity = [row[f"{kind}_perplexity"] for row in finished]
        figure.add_scatter(
            name=f"{kind} ({meaning})",
            x=[min(value, limit) for value in perplexity],
            y=names,
            mode="markers+text",
            text=[f"{value:.3f} →" if value > limit else "" for value in perplexity],
            textposition="middle left",
            customdata=perplexity,
            marker={"color": colour, "size": 11, "symbol": symbol},
            error_x=_error_bars(finished, limit) if kind == "conditional" else None,
            cliponaxis=False,  # a mark at the end of the axis is drawn whole
            hovertemplate="%{y}: %{customdata:.4f}<extra></extra>",
        )
    shown = zip(finished, _errors(finished, limit), strict=True)
    reach = max((min(row["conditional_perplexity"], limit) + error for row, error in shown), default=limit)
    figure.update_layout(
        template="plotly_white",
        xaxis={"title": "perplexity (lower is better)", "range": [1, max(reach, limit) + 0.04 * (limit - 1) + 1e-6]},
        yaxis={"autorange": "reversed", "title": ""},
        legend={"orientation": "h", "y": 1.12},
        margin={"l": 90, "r": 20, "t": 40, "b": 60},
        height=140 + 32 * len(finished),
    )
    return figure


def _error_bars(rows: Sequence[Row], limit: float) -> dict[str, Any]:
    """Return 95 % intervals of conditional perplexity for plotly; none for outliers."""
    return {"type": "data", "array": _errors(rows, limit)}


def _errors(rows: Sequence[Row], limit: float) -> list[float]:
    """Return half the widths of the intervals; 0 for outliers."""
    return [_Z * row["conditional_perplexity_error"] * (row["conditional_perplexity"] <= limit) for row in rows]


def _axis_limit(values: Sequence[float]) -> float:
    """Return the upper limit of the axis: the largest value that is not an outlier.

    An outlier is more than ten times as far from the smallest value as the median is.
    """
    if not values:
        return 2.0
    ascending = sorted(values)
    lowest, median = ascending[0], ascending[len(ascending) // 2]
    inside = [value for value in ascending if value - lowest <= 10 * (median - lowest) + 1e-9]
    return inside[-1]


def best_first(rows: Sequence[Row]) -> Rows:
    """Return the rows sorted by conditional perplexity; failed models are last."""
    return sorted(map(dict, rows), key=lambda row: _sort_key(row["conditional_perplexity"]))


def comparison_table(rows: Sequence[Row]) -> Rows:
    """Return one line per model, sorted by conditional perplexity; failed models are last.

    Parameters
    ----------
    rows
        Rows of the comparison, one per model.
    """
    return [
        {
            "model": row["model"],
            "conditional perplexity": _measured(row),
            "marginal perplexity": row["marginal_perplexity"],
            "log-likelihood": row["log_likelihood"],
            "unseen pairs": row["unseen_pair_share"],
            "fit (s)": row["fit_seconds"],
            "whole time (s)": row["seconds"],
        }
        for row in best_first(rows)
    ]


def _measured(row: Row) -> Measured | None:
    """Return the conditional perplexity with its interval."""
    perplexity, error = row["conditional_perplexity"], row["conditional_perplexity_error"]
    return None if perplexity is None else Measured(perplexity, _Z * error)


def _sort_key(value: float | None) -> float:
    """Return the value for sorting; unknown values are last."""
    return math.inf if value is None or math.isnan(value) else value
