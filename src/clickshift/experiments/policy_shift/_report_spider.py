"""Figure 1 of the policy-shift paper: one spider chart per click model, a spoke for every change of policy."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

from clickshift.display.figures import COLOURS
from clickshift.display.tables import Row
from clickshift.experiments.policy_shift._report_robustness import (
    WORST,
    LogName,
    NormalisedPerplexity,
    Setting,
    Shift,
    policy_shifts,
    rows_by_setting,
)
from clickshift.metrics.robustness import BEST

_WIDTH, _HEIGHT = 480, 590
_CENTRE = 0.542
"""Vertical position of the centre, as a fraction of the height from below: the title is above, the legend below."""
_RADIUS, _TESTING, _TRAINING = 0.315, 0.375, 0.462
"""Radius of the chart and of the circles of labels of test and training policies, as fractions of the width."""
_EDGE = 0.95
"""Largest nPPL of the radial axis, a little beyond the worst model."""
_OOD, _IND = COLOURS[0], COLOURS[1]
_SECTOR_COLOURS = [*COLOURS[2:], *COLOURS[:2]] * 4
_COLUMNS = 3
"""Number of charts in a row of the sheet."""
_LEGEND_HEIGHT = 60
"""Height of the legend below the charts of the sheet, in pixels."""
_CHART_HEIGHT = 520
"""Height of a chart on the sheet, in pixels: without a legend of its own."""
_LABEL_LENGTH = 7
"""Longest label of a test policy, in letters; the hover text has the full name."""


def spider_figures(rows: Sequence[Row]) -> dict[str, Any]:
    """Charts by model, all with the same spokes in the same order; bar charts if there are fewer than three spokes."""
    shifts = policy_shifts(rows)
    shifted = {shift.setting for shift in shifts}
    spokes = [setting for setting in rows_by_setting(rows) if setting in shifted]
    users = dict(zip(dict.fromkeys(setting.user for setting in spokes), _SECTOR_COLOURS, strict=False))
    charts = {}
    for model, of_model in groupby(shifts, key=lambda shift: shift.model):
        by_setting = {shift.setting: shift for shift in of_model}
        if len(spokes) > 2:
            charts[model] = _spider(model, spokes, by_setting, users)
        else:
            charts[model] = _bars(model, spokes, by_setting)
    return charts


def spider_sheet(figures: Mapping[str, Any]) -> Any:
    """All charts of `spider_figures` on one sheet, three in a row, with one legend, as in the paper; None for bars."""
    import plotly.graph_objects as go

    charts = list(figures.values())
    if len(charts) < 2 or any(trace.type == "bar" for chart in charts for trace in chart.data):
        return None
    columns = min(_COLUMNS, len(charts))
    n_rows = -(-len(charts) // columns)
    width, height = columns * _WIDTH, n_rows * _CHART_HEIGHT + _LEGEND_HEIGHT
    traces: list[dict[str, Any]] = []
    labels: list[dict[str, Any]] = []
    layout: dict[str, Any] = {
        "template": "plotly_white",
        "width": width,
        "height": height,
        "margin": {"l": 0, "r": 0, "t": 0, "b": 0, "autoexpand": False},
        "legend": {"orientation": "h", "x": 0.5, "xanchor": "center", "y": 0.01, "yanchor": "bottom"},
        "hoverlabel": {"align": "left"},
        "annotations": labels,
    }
    for number, chart in enumerate(chart.to_plotly_json() for chart in charts):
        left, top = number % columns * _WIDTH, height - number // columns * _CHART_HEIGHT
        polar = f"polar{number + 1}" if number else "polar"

        def x(value: float, left: float = left) -> float:
            return (left + value * _WIDTH) / width

        def y(value: float, top: float = top) -> float:
            return (top - _HEIGHT + value * _HEIGHT) / height

        for trace in chart["data"]:
            traces.append(trace | {"subplot": polar, "showlegend": number == 0 and trace.get("showlegend", True)})
        axes = chart["layout"]["polar"]
        domain = {"x": list(map(x, axes["domain"]["x"])), "y": list(map(y, axes["domain"]["y"]))}
        layout[polar] = axes | {"domain": domain}
        title = {"text": chart["layout"]["title"]["text"], "x": x(0.5), "y": (top - 18) / height, "showarrow": False}
        labels.append(title | {"xref": "paper", "yref": "paper", "xanchor": "center", "font": {"size": 16}})
        labels.extend(label | {"x": x(label["x"]), "y": y(label["y"])} for label in chart["layout"]["annotations"])
    return go.Figure(traces, layout)


def _spider(model: str, spokes: Sequence[Setting], shifts: dict[Setting, Shift], users: dict[str, str]) -> Any:
    """Spider chart of one model: ind and ood nPPL on every spoke, with their intervals."""
    import plotly.graph_objects as go

    angles = [360 * (i + 0.5) / len(spokes) for i in range(len(spokes))]
    figure = go.Figure()
    for sector in _sectors(spokes, users):
        figure.add_barpolar(**sector)
    figure.update_layout(
        title=_title(model),
        template="plotly_white",
        width=_WIDTH,
        height=_HEIGHT,
        margin={"l": 0, "r": 0, "t": 0, "b": 0, "autoexpand": False},
        legend={
            "orientation": "h",
            "x": 0.5,
            "xanchor": "center",
            "y": 0.01,
            "yanchor": "bottom",
            "font": {"size": 11},
        },
        polar=_polar(),
        annotations=[*_labels(spokes, angles), *_ends()],
        hoverlabel={"align": "left"},
    )
    for name, colour, dash, select in _lines():
        nppl = [select(shifts[setting]) if setting in shifts else None for setting in spokes]
        if any(point is not None and not math.isnan(point.high) for point in nppl):
            figure.add_scatterpolar(**_band(nppl, angles, name, colour))
        figure.add_scatterpolar(
            name=name,
            legendgroup=name,
            legendrank=1 if dash == "solid" else 2,
            theta=[*angles, angles[0]],
            r=_radii([None if point is None else point.value for point in (*nppl, nppl[0])]),
            mode="lines+markers",
            line={"color": colour, "width": 2, "dash": dash},
            marker={"color": colour, "size": 5, "symbol": "circle" if dash == "solid" else "diamond"},
            text=[_hover(shifts.get(setting), setting) for setting in (*spokes, spokes[0])],
            hovertemplate="%{text}<extra></extra>",
        )
    return figure


def _lines() -> tuple[tuple[str, str, str, Callable[[Shift], NormalisedPerplexity]], ...]:
    """Name, colour, dash and value of the two lines of a chart."""
    return (
        ("ind nPPL", _IND, "dash", lambda shift: shift.ind),
        ("ood nPPL", _OOD, "solid", lambda shift: shift.ood),
    )


def _polar() -> dict[str, Any]:
    """Layout of the polar axes; circles mark the best, the middle and the worst of eq. 16."""
    half_height, half_width = _RADIUS * _WIDTH / _HEIGHT, _RADIUS
    return {
        "domain": {"x": [0.5 - half_width, 0.5 + half_width], "y": [_CENTRE - half_height, _CENTRE + half_height]},
        "bgcolor": "rgba(0,0,0,0)",
        "angularaxis": {
            "direction": "clockwise",
            "rotation": 90,
            "showticklabels": False,
            "ticks": "",
            "showgrid": False,
            "linecolor": "#c3cad3",
        },
        "radialaxis": {
            "range": [0, _EDGE],
            "tickvals": [BEST, BEST + math.log(1.5), WORST],
            "showticklabels": False,
            "ticks": "",
            "gridcolor": "#d9dee4",
            "showline": False,
        },
    }


def _sectors(spokes: Sequence[Setting], users: dict[str, str]) -> list[dict[str, Any]]:
    """Background sectors: one colour per user, a little darker for every second training policy."""
    step = 360 / len(spokes)
    sectors = []
    for user, colour in users.items():
        trainings = list(dict.fromkeys(setting.training for setting in spokes if setting.user == user))
        own = [i for i, setting in enumerate(spokes) if setting.user == user]
        sectors.append(
            {
                "name": html.escape(user) or "user",
                "theta": [step * (i + 0.5) for i in own],
                "r": [_EDGE] * len(own),
                "width": [step] * len(own),
                "marker": {
                    "color": colour,
                    "opacity": [0.13 + 0.1 * (trainings.index(spokes[i].training) % 2) for i in own],
                    "line": {"width": 0},
                },
                "hoverinfo": "skip",
            }
        )
    return sectors


def _band(
    nppl: Sequence[NormalisedPerplexity | None], angles: Sequence[float], name: str, colour: str
) -> dict[str, Any]:
    """Band of the intervals: along the upper ends and back along the lower ones; without width for a single seed."""
    high = _radii([None if point is None else _bound(point.high, point.value) for point in (*nppl, nppl[0])])
    low = _radii([None if point is None else _bound(point.low, point.value) for point in (*nppl, nppl[0])])
    around = [*angles, angles[0]]
    return {
        "name": name,
        "legendgroup": name,
        "showlegend": False,
        "theta": around + around[::-1],
        "r": high + low[::-1],
        "mode": "lines",
        "line": {"width": 0},
        "fill": "toself",
        "fillcolor": f"rgba({', '.join(str(int(colour[i : i + 2], 16)) for i in (1, 3, 5))}, 0.2)",
        "hoverinfo": "skip",
    }


def _bound(bound: float, value: float) -> float:
    """End of an interval; the value itself for a single seed."""
    return value if math.isnan(bound) else bound


def _radii(values: Sequence[float | None]) -> list[float | None]:
    """Values limited to the chart; None, which leaves a gap, for missing ones."""
    return [None if value is None or math.isnan(value) else min(max(value, 0.0), _EDGE) for value in values]


def _labels(spokes: Sequence[Setting], angles: Sequence[float]) -> list[dict[str, Any]]:
    """Labels of test policies along their spokes, and of training policies around them, readable from left to right."""
    labels = []
    for setting, angle in zip(spokes, angles, strict=True):
        along = angle - 90 if angle <= 180 else angle + 90
        labels.append(_label(_short(setting.testing), angle, _TESTING, along, size=9, colour="#323f4b"))
    start = 0
    for log, group in groupby(spokes, key=lambda setting: LogName(setting.user, setting.training)):
        count = len(list(group))
        angle = 360 * (start + count / 2) / len(spokes)
        around = angle - 180 if 90 < angle < 270 else angle
        labels.append(_label(log.training, angle, _TRAINING, around, size=10.5, colour="#1f2933"))
        start += count
    return labels


def _ends() -> list[dict[str, Any]]:
    """Labels of the best and the worst value, between the last spoke and the first."""
    ends = {"best": BEST, "worst": WORST}
    return [
        _label(text, 0, _RADIUS * value / _EDGE, 0, size=9, colour="#52606d") | {"bgcolor": "rgba(255,255,255,0.6)"}
        for text, value in ends.items()
    ]


def _label(text: str, angle: float, radius: float, rotation: float, *, size: float, colour: str) -> dict[str, Any]:
    """A text at an angle and radius around the centre."""
    sine, cosine = math.sin(math.radians(angle)), math.cos(math.radians(angle))
    return {
        "text": html.escape(text),
        "xref": "paper",
        "yref": "paper",
        "x": 0.5 + radius * sine,
        "y": _CENTRE + radius * cosine * _WIDTH / _HEIGHT,
        "xanchor": "center",
        "yanchor": "middle",
        "textangle": (rotation + 180) % 360 - 180,
        "showarrow": False,
        "font": {"size": size, "color": colour},
    }


def _short(name: str) -> str:
    """A name cut to the length of a label."""
    return name if len(name) <= _LABEL_LENGTH else f"{name[: _LABEL_LENGTH - 1]}."


def _hover(shift: Shift | None, setting: Setting) -> str:
    """Hover text of a spoke."""
    if shift is None:
        return ""
    significance = {True: "significant", False: "within noise", None: "one seed: noise unknown"}[shift.significant]
    lines = [
        f"<b>{html.escape(shift.model)}</b>",
        f"{html.escape(setting.user) or 'unknown'} users",
        f"trained on {html.escape(setting.training)}",
        f"tested on {html.escape(setting.testing)}",
        f"ood nPPL {shift.ood.value:.3f}, perplexity {shift.ood.perplexity}",
        f"ind nPPL {shift.ind.value:.3f}, perplexity {shift.ind.perplexity}",
        f"difference {shift.difference:+.3f} ({significance})",
    ]
    return "<br>".join(lines)


def _title(model: str) -> dict[str, Any]:
    """Title of a chart."""
    return {"text": f"<b>{html.escape(model)}</b>", "x": 0.5, "y": 0.975, "yanchor": "top", "font": {"size": 16}}


def _bars(model: str, spokes: Sequence[Setting], shifts: dict[Setting, Shift]) -> Any:
    """Bar chart of one model, for one or two spokes."""
    import plotly.graph_objects as go

    figure = go.Figure()
    for name, colour, _, select in _lines():
        nppl = [select(shifts[setting]) if setting in shifts else None for setting in spokes]
        figure.add_bar(
            name=name,
            x=[f"{html.escape(setting.testing)}<br>{html.escape(setting.user)}" for setting in spokes],
            y=_radii([None if point is None else point.value for point in nppl]),
            error_y={
                "type": "data",
                "symmetric": False,
                "array": [0 if point is None else _bound(point.high, point.value) - point.value for point in nppl],
                "arrayminus": [0 if point is None else point.value - _bound(point.low, point.value) for point in nppl],
            },
            marker={"color": colour, "opacity": 0.85},
            text=[_hover(shifts.get(setting), setting) for setting in spokes],
            textposition="none",
            hovertemplate="%{text}<extra></extra>",
        )
    figure.update_layout(
        title=_title(model),
        template="plotly_white",
        barmode="group",
        width=_WIDTH,
        height=_HEIGHT * 0.7,
        yaxis={"title": "nPPL (.2 best, .893 worst)", "range": [0, _EDGE]},
        legend={"orientation": "h", "x": 0.5, "xanchor": "center", "y": -0.2},
        margin={"l": 55, "r": 15, "t": 45, "b": 70},
    )
    return figure
