"""Plotly figures of tidy rows, and the colours and symbols that all figures share."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

from clickshift.display.tables import Row
from clickshift.display.values import with_interval

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


def dot_plot(
    rows: Sequence[Row],
    *,
    axis: str,
    label: str = "label",
    group: str = "",
    reference: float | None = None,
    reference_name: str = "",
    colours: Mapping[str, str] | None = None,
) -> Any:
    """Plot values with intervals as horizontal dots, the first row on top.

    Parameters
    ----------
    rows
        One row per dot: its label, `value`, and `low` and `high`, which may be None.
    axis
        Title of the axis of values, with its unit.
    label
        Column with the label of a row.
    group
        Column with the group, which decides colour and symbol; groups are named in one legend.
    reference
        Value of a dotted vertical line, such as today's reward.
    reference_name
        Text at that line.
    colours
        Colours of groups; others have those of all figures.

    Returns
    -------
    plotly.graph_objects.Figure
        The chart; its axis spans the values, not zero.

    Examples
    --------
    >>> figure = dot_plot([{"label": "PBM", "value": 0.5, "low": 0.4, "high": 0.6}], axis="clicks per session")
    >>> figure.data[0].x
    (0.5,)
    """
    import plotly.graph_objects as go

    figure = go.Figure()
    groups = list(dict.fromkeys(str(row[group]) for row in rows)) if group else [""]
    for i, name in enumerate(groups):
        part = [row for row in rows if not group or str(row[group]) == name]
        known = [(row["value"], row["low"], row["high"]) for row in part]
        ends = [
            (value, math.nan, math.nan) if low is None or high is None else (value, low, high)
            for value, low, high in known
        ]
        figure.add_scatter(
            name=html.escape(name),
            x=[value for value, _, _ in ends],
            y=[html.escape(str(row[label])) for row in part],
            mode="markers",
            marker={"color": (colours or {}).get(name, COLOURS[i % len(COLOURS)]), "size": 12}
            | {"symbol": SYMBOLS[i % len(SYMBOLS)]},
            error_x={
                "type": "data",
                "symmetric": False,
                "array": [None if math.isnan(high) else high - value for value, _, high in ends],
                "arrayminus": [None if math.isnan(low) else value - low for value, low, _ in ends],
                "thickness": 2,
                "width": 5,
            },
            text=[with_interval(*end) for end in ends],
            hovertemplate="%{y}: %{text}<extra>%{fullData.name}</extra>",
        )
    if reference is not None:
        _add_reference(figure, reference, reference_name)
    figure.update_layout(
        template="plotly_white",
        xaxis={"title": html.escape(axis), "zeroline": reference != 0},
        yaxis={
            "type": "category",
            "autorange": "reversed",
            "categoryorder": "array",
            "categoryarray": [html.escape(str(row[label])) for row in rows],
            "automargin": True,
        },
        showlegend=len(groups) > 1,
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"},
        margin={"l": 20, "r": 20, "t": 40, "b": 60},
        height=130 + 30 * len(rows),
    )
    return figure


def _add_reference(figure: Any, value: float, name: str) -> None:
    """Add a dotted vertical line whose name stays inside of the chart."""
    known = [x for trace in figure.data for x in trace.x if x is not None]
    low, high = min([*known, value]), max([*known, value])
    place = (value - low) / (high - low) if high > low else 0.5
    anchor = "left" if place < 0.2 else "right" if place > 0.8 else "center"
    figure.add_vline(
        value,
        line={"dash": "dot", "width": 1.5, "color": "#5c677d"},
        annotation={"text": html.escape(name), "yref": "paper", "y": 1.0, "yanchor": "bottom", "xanchor": anchor},
    )


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
