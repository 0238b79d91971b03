"""Charts of a backtest: errors by clipping constant, values by day, and clicks of a query."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from clickshift.display.document import Section
from clickshift.display.figures import COLOURS
from clickshift.display.tables import Row
from clickshift.ope.estimators import clip_text

Lines = dict[str, tuple[list[str], list[Any]]]
"""Coordinates x and y of lines, by name."""


def error_figures(rows: Sequence[Row]) -> dict[str, Any]:
    """Plot error by M, one line per estimator, for each task and group: figures 1 to 4 of the paper.

    Parameters
    ----------
    rows
        Errors by task, group, estimator and clipping constant.
    """
    figures = {}
    for task, group in dict.fromkeys((row["task"], row["group"]) for row in rows):
        selected = [row for row in rows if (row["task"], row["group"]) == (task, group)]
        lines = {
            name: ([clip_text(row["M"]) for row in curve], [row["rmse"] for row in curve])
            for name in dict.fromkeys(row["estimator"] for row in selected)
            if (curve := [row for row in selected if row["estimator"] == name])
        }
        axes = {"xaxis": {"title": "clipping constant M", "type": "category"}, "yaxis": {"title": "error (RMSE)"}}
        figures[f"{task}, {group}"] = partial(line_figure, f"{task}, {group}", lines, axes, _error_range(lines))
    return figures


def click_figure(group: str, days: Sequence[Row], unit: str = "day") -> dict[str, Any]:
    """Plot clicks of a query at the first and at all ranks by day: figure 5 of the paper.

    Parameters
    ----------
    group
        Name of the query.
    days
        Rows of `day`, `first_clicks` and `all_clicks`.
    unit
        What a day is called.
    """
    names = {"first_clicks": "clicks at rank 1", "all_clicks": "clicks at all ranks"}
    lines: Lines = {
        name: ([row["day"] for row in days], [None if math.isnan(row[key]) else row[key] for row in days])
        for key, name in names.items()
    }
    highest = max(value for _, values in lines.values() for value in values if value is not None)
    axes = {"xaxis": {"title": unit}, "yaxis": {"title": "per session"}}
    title = f"{group}: clicks by rank"
    return {title: partial(line_figure, title, lines, axes, (0.0, 1.06 * highest + 1e-6))}


def lines_by_day(days: Sequence[Row], task: str, group: str, column: str) -> Lines:
    """Return a column of the rows by day, one line per estimator.

    Parameters
    ----------
    days
        Rows by task, group, estimator and day.
    task, group
        Reward, and group of queries.
    column
        Name of the column.
    """
    lines: Lines = {}
    for row in (row for row in days if (row["task"], row["group"]) == (task, group)):
        x, y = lines.setdefault(row["estimator"], ([], []))
        x.append(row["day"])
        y.append(row[column])
    return lines


_STYLES = {
    "List": (COLOURS[1], "diamond", "solid"),
    "IP": (COLOURS[0], "circle", "solid"),
    "PBM": (COLOURS[2], "square", "solid"),
    "Item": (COLOURS[4], "triangle-up", "solid"),
    "RCTR": (COLOURS[6], "x", "dash"),
    "earned": ("#222222", "circle-open", "solid"),
}
"""Colour, symbol and dash of an estimator, the same in all charts."""


def line_figure(title: str, lines: Lines, axes: Mapping[str, Any], y_range: tuple[float, float]) -> Any:
    """Plot lines; the legend gives the nearest value of a line that is outside the range.

    Parameters
    ----------
    title
        Title of the figure.
    lines
        Lines by name.
    axes
        Layout of the axes.
    y_range
        Range of the vertical axis.
    """
    import plotly.graph_objects as go

    figure, (low, high) = go.Figure(), y_range
    for i, (name, (x, y)) in enumerate(lines.items()):
        colour, symbol, dash = _STYLES.get(name, (COLOURS[i % len(COLOURS)], "circle", "solid"))
        finite = [value for value in y if value is not None and not math.isnan(value)]
        outside = bool(finite) and (min(finite) > high or max(finite) < low)
        nearest = min(finite, key=abs) if outside else math.nan
        figure.add_scatter(
            name=html.escape(f"{name} (outside: {nearest:.3g})" if outside else name),
            x=x,
            y=[None if value is None or math.isnan(value) else value for value in y],
            mode="lines+markers",
            line={"color": colour, "width": 2, "dash": dash},
            marker={"size": 6, "symbol": symbol},
            hovertemplate="%{x}: %{y:.4f}<extra>%{fullData.name}</extra>",
        )
    figure.update_layout(
        title={"text": html.escape(title), "x": 0.5, "y": 0.97, "yanchor": "top", "font": {"size": 14}},
        template="plotly_white",
        height=380,
        legend={"orientation": "h", "x": 0.5, "xanchor": "center", "yref": "container", "y": 0.0, "yanchor": "bottom"},
        margin={"l": 62, "r": 32, "t": 58 if title else 24, "b": 120},
        **axes,
    )
    figure.update_xaxes(type="category")
    figure.update_yaxes(range=[low, high])
    return figure


def _error_range(lines: Lines) -> tuple[float, float]:
    """Return the range from 0 to well above the smallest errors of the estimators other than List."""
    smallest = {name: min((v for v in y if not math.isnan(v)), default=0.0) for name, (_, y) in lines.items()}
    others = [value for name, value in smallest.items() if name != "List"] or list(smallest.values())
    return 0.0, 2.5 * max(others) + 1e-6


def residual_range(lines: Lines) -> tuple[float, float]:
    """Return the range of all lines, but of List at most three times that of the others: it would flatten them.

    Parameters
    ----------
    lines
        Lines by name.
    """
    finite = {name: [v for v in y if v is not None and not math.isnan(v)] for name, (_, y) in lines.items()}
    others = [v for name, values in finite.items() if name != "List" for v in values]
    others = others or [v for values in finite.values() for v in values] or [0.0, 1.0]
    low, high = min(others), max(others)
    extension = max(high - low, 0.5 * max(abs(low), abs(high)), 1e-6)
    of_list = finite.get("List", []) or others
    low, high = max(min(of_list + others), low - extension), min(max(of_list + others), high + extension)
    margin = 0.06 * (high - low) or 0.05
    return low - margin, high + margin


def figure_sections(figures: Mapping[str, Any]) -> list[Section]:
    """Return one section per figure.

    Parameters
    ----------
    figures
        Functions that make figures, by title.
    """
    return [Section(name, figure=figure) for name, figure in figures.items()]
