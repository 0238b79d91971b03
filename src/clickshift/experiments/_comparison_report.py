"""Tables and charts of a comparison of click models on one log."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Any

from clickshift.display.figures import COLOURS
from clickshift.display.tables import Row


def comparison_figure(rows: Sequence[Row]) -> Any:
    """Conditional and marginal perplexity of every model, the best first; what is far off is a number at the edge."""
    import plotly.graph_objects as go

    done = [row for row in rows if row["conditional_perplexity"] is not None]
    done.sort(key=lambda row: row["conditional_perplexity"])
    names = [html.escape(row["model"]) for row in done]
    figure = go.Figure()
    kinds = {"conditional": "given the clicks above", "marginal": "without them"}
    values = [row[f"{kind}_perplexity"] for row in done for kind in kinds]
    lowest, edge = min(values, default=1.0), _axis_limit(values)
    for (kind, said), colour, symbol in zip(kinds.items(), COLOURS, ("circle", "diamond-open"), strict=False):
        here = [row[f"{kind}_perplexity"] for row in done]
        figure.add_scatter(
            name=f"{kind} ({said})",
            x=[min(value, edge) for value in here],
            y=names,
            mode="markers+text",
            text=[f"{value:.3f} →" if value > edge else "" for value in here],
            textposition="middle left",
            customdata=here,
            marker={"color": colour, "size": 11, "symbol": symbol},
            hovertemplate="%{y}: %{customdata:.4f}<extra></extra>",
        )
    margin = 0.05 * (edge - lowest) + 1e-6
    figure.update_layout(
        template="plotly_white",
        xaxis={"title": "perplexity (lower is better)", "range": [1, edge + margin]},
        yaxis={"autorange": "reversed", "title": ""},
        legend={"orientation": "h", "y": 1.12},
        margin={"l": 90, "r": 20, "t": 40, "b": 60},
        height=140 + 32 * len(done),
    )
    return figure


def _axis_limit(values: Sequence[float]) -> float:
    """Where the plot ends: beyond most values, but not for the sake of one ten times as far off as the middle one."""
    if not values:
        return 2.0
    ascending = sorted(values)
    lowest, middle = ascending[0], ascending[len(ascending) // 2]
    near = [value for value in ascending if value - lowest <= 10 * (middle - lowest) + 1e-9]
    return near[-1]


def comparison_table(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """One row per model, the best conditional perplexity first; those that failed last, with their errors."""
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
    return math.inf if value is None or math.isnan(value) else value
