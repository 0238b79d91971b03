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
LABEL, RING, PLATE = "#2b3742", "#cdd5dd", "rgba(255,255,255,0.6)"
"""Colours of labels within a chart, of circles, and of the plate below a label; charts.js has each for dark pages."""
_ORDERED = ["#7b5ea7", "#9a5aa8", "#b65aa0", "#cc6090", "#dc6c7c", "#e67d66", "#ea9152", "#e8a746", "#dfbf4a"]
"""Colours of lines with an order."""


def curve_figure(rows: Sequence[Row]) -> Any:
    """Plot a browsing parameter of a click model, with 95 % intervals where the rows have them.

    Parameters
    ----------
    rows
        Tidy rows of one parameter: parameter, estimate, rank or after, and low and high where there are intervals;
        last_click where the parameter depends on the rank of the last click; segment where there is a curve for each;
        support, as `examination_table` names it:
        what the log does not identify is hollow, without interval.

    Returns
    -------
    plotly.graph_objects.Figure
        A line with its band over ranks if the parameter has them, one line per rank of the last click; else one dot per
        row.
    """
    import plotly.graph_objects as go

    parameter, intervals = html.escape(str(rows[0]["parameter"])), "low" in rows[0]
    axis = f"{parameter} with 95 % intervals" if intervals else parameter
    if "rank" not in rows[0]:
        dots = [
            {
                "label": " ".join([f"{row['segment']}," if "segment" in row else "", f"after {row['after']}"]).lstrip(),
                "value": row["estimate"],
                "low": row.get("low"),
                "high": row.get("high"),
            }
            for row in rows
        ]
        return dot_plot(dots, axis=axis)
    figure = go.Figure()
    lines, segments = _lines(rows), "segment" in rows[0]
    for i, (name, line) in enumerate(lines.items()):
        colour = COLOURS[i % len(COLOURS)] if segments else COLOURS[0] if i == 0 else _gradient(i)
        add_curve(
            figure,
            [row["rank"] for row in line],
            [row["estimate"] for row in line],
            [None if _is_unidentified(row) else row.get("low") for row in line],
            [None if _is_unidentified(row) else row.get("high") for row in line],
            name=name,
            symbol=["circle-open" if _is_unidentified(row) else "circle" for row in line],
            colour=colour,
            width=2.5 if segments or i == 0 else 1.5,
            band=segments or i == 0,
        )
        if segments and "observed" in line[0]:
            _add_views(figure, line, label=name, colours=(colour, colour))
        elif i == 0 and "observed" in line[0]:
            _add_views(figure, line, colours=(COLOURS[1], COLOURS[2]))
    figure.update_layout(
        template="plotly_white",
        yaxis={"title": axis, "rangemode": "tozero"},
        xaxis={"title": "rank", "dtick": rank_step(len(next(iter(lines.values()))))},
        showlegend=len({trace.name for trace in figure.data if trace.showlegend is not False}) > 1,
        margin={"l": 60, "r": 20, "t": 40, "b": 60},
        height=380,
    )
    return figure


def _add_views(figure: Any, line: Sequence[Row], *, colours: tuple[str, str], label: str = "") -> None:
    """Add the observed examination, and the one that clicks alone would suggest; the label names its segment."""
    ranks, of_label = [row["rank"] for row in line], f", {label}" if label else ""
    for name, column, mode, style in (
        ("observed", "observed", "markers", {"marker": {"symbol": "cross", "size": 9, "color": colours[0]}}),
        ("from clicks alone", "from_clicks", "lines", {"line": {"dash": "dot", "color": colours[1]}}),
    ):
        values = [row[column] for row in line]
        hover = f"rank %{{x}}: %{{y:.3f}}<extra>{name}{of_label}</extra>"
        name += of_label
        figure.add_scatter(x=ranks, y=values, name=name, mode=mode, hovertemplate=hover, showlegend=True, **style)


def add_curve(
    figure: Any,
    x: Sequence[Any],
    y: Sequence[float],
    low: Sequence[float | None],
    high: Sequence[float | None],
    *,
    name: str = "",
    colour: str = COLOURS[0],
    symbol: str | Sequence[str] = "circle",
    width: float = 2.5,
    band: bool = True,
    number: str = ".3f",
    row: int | None = None,
    col: int | None = None,
) -> None:
    """Add a line with the band of its intervals to a figure.

    Parameters
    ----------
    figure
        A Plotly figure.
    x, y
        Points of the line.
    low, high
        Ends of the intervals; None or NaN where there is none.
    name
        Name of the line in the legend, not escaped.
    colour, symbol, width
        Colour of line and band, marker (or that of each point), and width of the line.
    band
        Whether the intervals are drawn; without, they are shown on hovering only.
    number
        Format of values on hovering.
    row, col
        Panel of a figure with several.

    Examples
    --------
    >>> import plotly.graph_objects as go
    >>> figure = go.Figure()
    >>> add_curve(figure, [1, 2], [0.5, 0.4], [0.4, 0.3], [0.6, 0.5], name="PBM")
    >>> [len(trace.x) for trace in figure.data]
    [4, 2]
    """
    for ends in _runs(list(zip(x, low, high, strict=True))) if band else []:
        figure.add_scatter(
            x=[a for a, _, _ in ends] + [a for a, _, _ in reversed(ends)],
            y=[b for _, b, _ in ends] + [c for _, _, c in reversed(ends)],
            fill="toself",
            fillcolor=_transparent(colour),
            line={"width": 0},
            mode="lines",
            hoverinfo="skip",
            showlegend=False,
            row=row,
            col=col,
        )
    intervals = [
        f" [{b:{number}}, {c:{number}}]" if _is_known(b) and _is_known(c) else ""
        for b, c in zip(low, high, strict=True)
    ]
    figure.add_scatter(
        name=html.escape(name),
        x=list(x),
        y=list(y),
        customdata=intervals,
        mode="lines+markers",
        line={"color": colour, "width": width},
        marker={
            "color": colour,
            "size": 8 if width > 2 else 6,
            "symbol": symbol,
            "line": {"color": colour, "width": 1},
        },
        hovertemplate=f"%{{x}}: %{{y:{number}}}%{{customdata}}<extra>%{{fullData.name}}</extra>",
        showlegend=bool(name),
        row=row,
        col=col,
    )


def rank_step(n_ranks: int) -> int | None:
    """Return the step of the labels of an axis of ranks; None to let the chart choose.

    Parameters
    ----------
    n_ranks
        Number of ranks.

    Examples
    --------
    >>> rank_step(10), rank_step(300)
    (1, None)
    """
    return 1 if n_ranks <= 20 else None


def counts_figure(counts: Sequence[int], *, axis: str, unit: str = "documents") -> Any:
    """Plot the number of documents, or of other things, by a whole number from 0, as bars.

    Parameters
    ----------
    counts
        The numbers.
    axis
        What the whole number is, such as "grade".
    unit
        What is counted.

    Returns
    -------
    plotly.graph_objects.Figure
        The chart.

    Examples
    --------
    >>> counts_figure([3, 1], axis="grade").data[0].y
    (3, 1)
    """
    import plotly.graph_objects as go

    bars = go.Bar(
        y=list(counts),
        marker={"color": COLOURS[0]},
        hovertemplate=f"{html.escape(axis)} %{{x}}: %{{y:,}} {html.escape(unit)}<extra></extra>",
    )
    return go.Figure(bars).update_layout(
        template="plotly_white",
        xaxis={"title": html.escape(axis), "dtick": 1},
        yaxis={"title": html.escape(unit)},
        margin={"l": 60, "r": 20, "t": 30, "b": 50},
        height=300,
    )


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


def training_figure(rows: Sequence[Row], *, reference: float | None = None, reference_name: str = "") -> Any:
    """Plot a training curve, with a mark at its best point.

    Parameters
    ----------
    rows
        Rows of `round` and `held_out_loss`, or of `trees` and `held_out_ndcg`.
    reference
        Value of a dotted line, such as the nDCG of the logging ranker.
    reference_name
        Text at that line.

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
        height=340,
    )
    if reference is not None:
        figure.add_hline(reference, line_dash="dot", annotation_text=html.escape(reference_name))
    return figure


def _is_unidentified(row: Row) -> bool:
    """Return whether the log does not identify a value."""
    return row.get("support") == "not identified"


def _is_known(value: float | None) -> bool:
    """Return whether the end of an interval is a number."""
    return value is not None and math.isfinite(value)


def _runs(points: Sequence[tuple[Any, Any, Any]]) -> list[list[tuple[Any, Any, Any]]]:
    """Return the runs of points whose intervals are known; that of a single point is given some width."""
    runs: list[list[tuple[Any, Any, Any]]] = [[]]
    for x, low, high in points:
        if _is_known(low) and _is_known(high):
            runs[-1].append((x, low, high))
        elif runs[-1]:
            runs.append([])
    wide = ([(run[0][0] + step, *run[0][1:]) for step in (-0.06, 0.06)] if _is_lonely(run) else run for run in runs)
    return [run for run in wide if len(run) > 1]


def _is_lonely(run: Sequence[tuple[Any, Any, Any]]) -> bool:
    """Return whether a run is one point at a number."""
    return len(run) == 1 and isinstance(run[0][0], int | float)


def _transparent(colour: str) -> str:
    """Return the colour of a band, through which grid lines are seen."""
    red, green, blue = (int(colour[k : k + 2], 16) for k in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.2)"


def _gradient(step: int) -> str:
    """Return the colour of a line of an ordered set: violet to orange, the later the warmer."""
    return _ORDERED[min(step - 1, len(_ORDERED) - 1)]


def by_segment(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Group rows by their segment; rows without one are a group of their own.

    Parameters
    ----------
    rows
        Rows of a curve.
    """
    lines: dict[str, list[Row]] = {}
    for row in rows:
        own = {name: value for name, value in row.items() if name != "segment"} if "segment" in row else row
        lines.setdefault(str(row.get("segment", "")), []).append(own)
    return lines


def _lines(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Group rows by segment, without a click above; or else by the rank of the last click."""
    if "segment" in rows[0]:
        return {
            label: [row for row in line if row.get("last_click") is None] for label, line in by_segment(rows).items()
        }
    lines: dict[str, list[Row]] = {}
    for row in rows:
        last = row.get("last_click")
        name = "no click above" if last is None else f"last click at rank {last}"
        name = name if "last_click" in row else "fitted"
        lines.setdefault(name, []).append(row)
    return lines
