"""Figure 1 of the policy-shift paper: one spider chart per click model, a spoke for every change of policy."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

from clickshift.display.figures import COLOURS, LABEL, PLATE, RING
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

_SIZE = 560
"""Width and height of a chart, in pixels."""
_FONT, _LETTER, _GAP = 11, 6.2, 7
"""Size of labels, width of one of their letters, and space between rings of labels, in pixels."""
_EDGE = 0.95
"""Largest nPPL of the radial axis, a little beyond the worst model."""
IND_LINE, OOD_LINE = "same ranker (ind nPPL)", "new ranker (ood nPPL)"
"""Names of the two lines of a chart."""
_OOD, _IND = COLOURS[0], COLOURS[1]
_SECTOR_COLOURS = [*COLOURS[2:], *COLOURS[:2]] * 4
_COLUMNS = 3
"""Number of charts in a row of the sheet."""
_FEWEST_SPOKES = 3
"""Number of changes of policy from which a spider has a shape."""
_TITLE_HEIGHT = 26
"""Height of the title above a chart, in pixels: labels around the rings reach the corners below it."""
_LEGEND_HEIGHT = 60
"""Height of the legend below the charts of the sheet, in pixels."""
_LABEL_LENGTH = 20
"""Longest label of a policy, in letters; the hover text has the full name."""


def spider_figures(rows: Sequence[Row]) -> dict[str, Any]:
    """Charts by model, all with the same spokes in the same order; none if there are fewer than three spokes."""
    shifts = policy_shifts(rows)
    shifted = {shift.setting for shift in shifts}
    spokes = [setting for setting in rows_by_setting(rows) if setting in shifted]
    if len(spokes) < _FEWEST_SPOKES:
        return {}
    users = dict(zip(dict.fromkeys(setting.user for setting in spokes), _SECTOR_COLOURS, strict=False))
    charts = {}
    for model, of_model in groupby(shifts, key=lambda shift: shift.model):
        by_setting = {shift.setting: shift for shift in of_model}
        charts[model] = _spider(model, spokes, by_setting, users)
    return charts


def spider_sheet(figures: Mapping[str, Any]) -> Any:
    """All charts of `spider_figures` on one sheet, three in a row, with one legend; None for one chart."""
    import plotly.graph_objects as go

    charts = list(figures.values())
    if len(charts) < 2:
        return None
    columns = min(_COLUMNS, len(charts))
    n_rows = -(-len(charts) // columns)
    cell = _SIZE + _TITLE_HEIGHT
    width, height = columns * _SIZE, n_rows * cell + _LEGEND_HEIGHT
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
        left, top = number % columns * _SIZE, height - number // columns * cell
        polar = f"polar{number + 1}" if number else "polar"
        margin = chart["layout"]["margin"]["l"]

        def x(value: float, left: float = left, margin: float = margin) -> float:
            return (left + margin + value * (_SIZE - 2 * margin)) / width

        def y(value: float, top: float = top, margin: float = margin) -> float:
            return (top - cell + margin + value * (_SIZE - 2 * margin)) / height

        for trace in chart["data"]:
            traces.append(trace | {"subplot": polar, "showlegend": number == 0 and trace.get("showlegend", True)})
        layout[polar] = chart["layout"]["polar"] | {"domain": {"x": [x(0), x(1)], "y": [y(0), y(1)]}}
        title = {"text": chart["layout"]["title"]["text"], "x": (left + 16) / width, "y": (top - 6) / height}
        title |= {"showarrow": False, "xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "top"}
        labels.append(title | {"font": {"size": 18}})
        labels.extend(label | {"x": x(label["x"]), "y": y(label["y"])} for label in chart["layout"]["annotations"])
    return go.Figure(traces, layout)


def _spider(model: str, spokes: Sequence[Setting], shifts: dict[Setting, Shift], users: dict[str, str]) -> Any:
    """Spider chart of one model: ind and ood nPPL on every spoke, with their intervals.

    Margins and distances of labels are in pixels, so that labels are readable at any size of the chart.
    """
    import plotly.graph_objects as go

    angles = [360 * (i + 0.5) / len(spokes) for i in range(len(spokes))]
    longest = max(len(_short(setting.testing)) for setting in spokes)
    outer = _GAP + _LETTER * longest + _GAP + _FONT / 2
    figure = go.Figure()
    for sector in _sectors(spokes, users):
        figure.add_barpolar(**sector)
    figure.update_layout(
        title=_title(model),
        template="plotly_white",
        width=_SIZE,
        height=_SIZE + _TITLE_HEIGHT,
        margin={side: outer + _FONT for side in "lrb"} | {"t": outer + _FONT + _TITLE_HEIGHT, "autoexpand": False},
        legend={"x": 0, "xref": "container", "y": 0, "yref": "container", "yanchor": "bottom", "font": {"size": 10}},
        polar=_polar(),
        annotations=[*_labels(spokes, angles, outer), *_ends()],
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
        (IND_LINE, _IND, "dash", lambda shift: shift.ind),
        (OOD_LINE, _OOD, "solid", lambda shift: shift.ood),
    )


def _polar() -> dict[str, Any]:
    """Layout of the polar axes; circles mark the best, the middle and the worst of eq. 16."""
    return {
        "bgcolor": "rgba(0,0,0,0)",
        "angularaxis": {
            "direction": "clockwise",
            "rotation": 90,
            "showticklabels": False,
            "ticks": "",
            "showgrid": False,
            "linecolor": RING,
        },
        "radialaxis": {
            "range": [0, _EDGE],
            "tickvals": [BEST, BEST + math.log(1.5), WORST],
            "showticklabels": False,
            "ticks": "",
            "gridcolor": RING,
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
                "name": f"{html.escape(user)} users" if user else "users",
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


def _labels(spokes: Sequence[Setting], angles: Sequence[float], outer: float) -> list[dict[str, Any]]:
    """Labels of test policies along their spokes, and of training policies around them, readable from left to right."""
    labels = []
    for setting, angle in zip(spokes, angles, strict=True):
        along, text = angle - 90 if angle <= 180 else angle + 90, _short(setting.testing)
        labels.append(_label(html.escape(text), angle, along, beyond=_GAP + _LETTER * len(text) / 2))
    start = 0
    for log, group in groupby(spokes, key=lambda setting: LogName(setting.user, setting.training)):
        count = len(list(group))
        angle = 360 * (start + count / 2) / len(spokes)
        around = angle - 180 if 90 < angle < 270 else angle
        labels.append(_label(f"<b>{html.escape(_short(log.training))}</b>", angle, around, beyond=outer))
        start += count
    return labels


def _ends() -> list[dict[str, Any]]:
    """Labels of the best and the worst value, between the last spoke and the first."""
    ends = {"best": BEST, "worst": WORST}
    return [_label(text, 0, 0, radius=value / _EDGE) | {"bgcolor": PLATE} for text, value in ends.items()]


def _label(text: str, angle: float, rotation: float, *, radius: float = 1.0, beyond: float = 0.0) -> dict[str, Any]:
    """A text of Plotly's HTML at an angle, at a share of the radius and so many pixels beyond it."""
    sine, cosine = math.sin(math.radians(angle)), math.cos(math.radians(angle))
    return {
        "text": text,
        "xref": "paper",
        "yref": "paper",
        "x": 0.5 + radius * sine / 2,
        "y": 0.5 + radius * cosine / 2,
        "xshift": beyond * sine,
        "yshift": beyond * cosine,
        "xanchor": "center",
        "yanchor": "middle",
        "textangle": (rotation + 180) % 360 - 180,
        "showarrow": False,
        "font": {"size": _FONT, "color": LABEL},
    }


def _short(name: str) -> str:
    """A name cut to the length of a label."""
    return name if len(name) <= _LABEL_LENGTH else f"{name[: _LABEL_LENGTH - 1]}…"


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
    """Title of a chart, in its corner."""
    return {"text": f"<b>{html.escape(model)}</b>", "x": 0.02, "y": 0.99, "yanchor": "top", "font": {"size": 18}}
