"""Tidy rows -> Plotly figures."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from clickshift.display.tables import Row

COLOURS = ["#1b6ca8", "#d1495b", "#3d8361", "#edae49", "#7b5ea7", "#8d6346", "#5c677d"]
"""Distinct on white, also for the colour-blind: blue, red, green, amber, violet, brown, grey."""
SYMBOLS = ["circle", "diamond", "square", "triangle-up", "x", "star", "cross"]
"""Distinct without any colour."""


def curve_figure(rows: Sequence[Row]) -> Any:
    """How users move through the list, with intervals: over ranks where the parameter has them, else one point each."""
    import plotly.graph_objects as go

    figure = go.Figure()
    parameter = html.escape(str(rows[0]["parameter"]))
    for i, (name, line) in enumerate(_lines(rows).items()):
        figure.add_scatter(
            name=name,
            x=[row.get("rank", row.get("after")) for row in line],
            y=[row["estimate"] for row in line],
            error_y={
                "type": "data",
                "symmetric": False,
                "array": [row["high"] - row["estimate"] for row in line],
                "arrayminus": [row["estimate"] - row["low"] for row in line],
            },
            mode="lines+markers" if "rank" in rows[0] else "markers",
            marker={"color": COLOURS[i % len(COLOURS)], "size": 8},
            hovertemplate="%{x}: %{y:.4f}<extra>%{fullData.name}</extra>",
        )
    figure.update_layout(
        template="plotly_white",
        yaxis={"title": f"{parameter} (95 % intervals)", "rangemode": "tozero"},
        xaxis={"title": "rank", "dtick": 1} if "rank" in rows[0] else {"title": "after"},
        showlegend=len(figure.data) > 1,
        margin={"l": 60, "r": 20, "t": 40, "b": 60},
    )
    return figure


def _lines(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """One line per rank of the last click, where the parameter depends on it."""
    lines: dict[str, list[Row]] = {}
    for row in rows:
        last = row.get("last_click")
        name = "no click above" if last is None else f"last click at rank {last}"
        lines.setdefault(name, []).append(row)
    return lines
