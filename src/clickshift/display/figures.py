"""Plotly figures of tidy rows, and the colours and symbols that all figures share."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from clickshift.display.tables import Row

COLOURS = ["#1b6ca8", "#d1495b", "#3d8361", "#edae49", "#7b5ea7", "#8d6346", "#5c677d"]
"""Distinct on white, also for colour-blind readers: blue, red, green, amber, violet, brown, grey."""
SYMBOLS = ["circle", "diamond", "square", "triangle-up", "x", "star", "cross"]
"""Marker symbols, distinct without colour."""


def curve_figure(rows: Sequence[Row]) -> Any:
    """Plot a browsing parameter of a click model, with 95 % intervals where the rows have them.

    Parameters
    ----------
    rows
        Tidy rows of one parameter: parameter, estimate, rank or after, and low and high where there are intervals;
        last_click where the parameter depends on the rank of the last click.

    Returns
    -------
    plotly.graph_objects.Figure
        A line over ranks if the parameter has them, one line per rank of the last click; else one point per row.
    """
    import plotly.graph_objects as go

    figure = go.Figure()
    parameter, intervals = html.escape(str(rows[0]["parameter"])), "low" in rows[0]
    for i, (name, line) in enumerate(_lines(rows).items()):
        figure.add_scatter(
            name=name,
            x=[row.get("rank", row.get("after")) for row in line],
            y=[row["estimate"] for row in line],
            error_y=_error_bars(line) if intervals else None,
            mode="lines+markers" if "rank" in rows[0] else "markers",
            marker={"color": COLOURS[i % len(COLOURS)], "size": 8},
            hovertemplate="%{x}: %{y:.4f}<extra>%{fullData.name}</extra>",
        )
    figure.update_layout(
        template="plotly_white",
        yaxis={"title": f"{parameter} (95 % intervals)" if intervals else parameter, "rangemode": "tozero"},
        xaxis={"title": "rank", "dtick": 1} if "rank" in rows[0] else {"title": "after"},
        showlegend=len(figure.data) > 1,
        margin={"l": 60, "r": 20, "t": 40, "b": 60},
    )
    return figure


def training_figure(rows: Sequence[Row]) -> Any:
    """Plot a training curve, with a mark at its best point.

    Parameters
    ----------
    rows
        Rows of `round` and `held_out_loss`, or of `trees` and `held_out_ndcg`.

    Returns
    -------
    plotly.graph_objects.Figure
        A line over rounds or numbers of trees.

    Examples
    --------
    >>> figure = training_figure([{"round": 1, "held_out_loss": 0.5}, {"round": 2, "held_out_loss": 0.4}])
    >>> figure.data[1].x
    (2,)
    """
    import plotly.graph_objects as go

    x, y = rows[0].keys()
    choose, better = (min, "lower") if y == "held_out_loss" else (max, "higher")
    finite = [row for row in rows if row[y] == row[y]]
    best = [choose(finite, key=lambda row: float(row[y]))] if finite else []
    figure = go.Figure()
    for points, mode, size, symbol in ((rows, "lines+markers", 5, "circle"), (best, "markers", 13, "diamond")):
        figure.add_scatter(
            name="best" if points is best else "held-out",
            x=[row[x] for row in points],
            y=[row[y] for row in points],
            mode=mode,
            marker={"color": COLOURS[points is best], "size": size, "symbol": symbol},
            hovertemplate=f"{x} %{{x}}: %{{y:.4f}}<extra>%{{fullData.name}}</extra>",
        )
    titles = {"held_out_loss": "held-out loss, nats per query", "held_out_ndcg": "held-out nDCG@10"}
    figure.update_layout(
        template="plotly_white",
        xaxis={"title": {"round": "round", "trees": "number of trees"}[x]},
        yaxis={"title": f"{titles[y]} ({better} is better)"},
        showlegend=False,
        margin={"l": 60, "r": 20, "t": 40, "b": 60},
    )
    return figure


def _error_bars(line: Sequence[Row]) -> dict[str, Any]:
    """Return the intervals of a line, as Plotly takes them."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [row["high"] - row["estimate"] for row in line],
        "arrayminus": [row["estimate"] - row["low"] for row in line],
    }


def _lines(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Group rows by the rank of the last click."""
    lines: dict[str, list[Row]] = {}
    for row in rows:
        last = row.get("last_click")
        name = "no click above" if last is None else f"last click at rank {last}"
        lines.setdefault(name, []).append(row)
    return lines
