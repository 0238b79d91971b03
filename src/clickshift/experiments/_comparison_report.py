"""Tables and charts of a comparison of click models on one log."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Any

from clickshift.display.figures import COLOURS
from clickshift.display.tables import Row


def comparison_figure(rows: Sequence[Row]) -> Any:
    """Plot conditional and marginal perplexity of every model, the best first; outliers are numbers at the edge.

    Parameters
    ----------
    rows
        Rows of `Comparison.rows`.
    """
    import plotly.graph_objects as go

    finished = [row for row in rows if row["conditional_perplexity"] is not None]
    finished.sort(key=lambda row: row["conditional_perplexity"])
    names = [html.escape(row["model"]) for row in finished]
    figure = go.Figure()
    kinds = {"conditional": "given the clicks above", "marginal": "without them"}
    values = [row[f"{kind}_perplexity"] for row in finished for kind in kinds]
    lowest, limit = min(values, default=1.0), _axis_limit(values)
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
            hovertemplate="%{y}: %{customdata:.4f}<extra></extra>",
        )
    margin = 0.05 * (limit - lowest) + 1e-6
    figure.update_layout(
        template="plotly_white",
        xaxis={"title": "perplexity (lower is better)", "range": [1, limit + margin]},
        yaxis={"autorange": "reversed", "title": ""},
        legend={"orientation": "h", "y": 1.12},
        margin={"l": 90, "r": 20, "t": 40, "b": 60},
        height=140 + 32 * len(finished),
    )
    return figure


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


def comparison_table(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return one line per model, sorted by conditional perplexity; failed models are last, with their errors.

    Parameters
    ----------
    rows
        Rows of `Comparison.rows`.
    """
    ranked = sorted(rows, key=lambda row: _sort_key(row["conditional_perplexity"]))
    table = [
        {
            "model": row["model"],
            "conditional perplexity": row["conditional_perplexity"],
            "marginal perplexity": row["marginal_perplexity"],
            "log-likelihood": row["log_likelihood"],
            "unseen pairs": row["unseen_pair_share"],
            "seconds": row["seconds"],
            "error": row["error"],
        }
        for row in ranked
    ]
    if not any(row["error"] for row in rows):
        for line in table:
            del line["error"]
    return table


def _sort_key(value: float | None) -> float:
    """Return the value for sorting; unknown values are last."""
    return math.inf if value is None or math.isnan(value) else value
