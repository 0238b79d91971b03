"""Figure 1 of the policy-shift paper: one spider chart per click model, a spoke for every change of policy."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
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
"""Of the height, from below: the title is above, the legend below."""
_RADIUS, _TESTING, _TRAINING = 0.315, 0.375, 0.462
"""Of the chart and of the two circles of labels, as shares of the width."""
_EDGE = 0.95
"""Where the chart ends: a little beyond the worst model."""
_OOD, _IND = COLOURS[0], COLOURS[1]
_SECTORS = [*COLOURS[2:], *COLOURS[:2]] * 4
_LONGEST = 7
"""Letters of a test policy's label; the whole name is in the text under the pointer."""


def spider_figures(rows: Sequence[Row]) -> dict[str, Any]:
    """By model. All charts have the same spokes in the same order; with fewer than three of them they are bars."""
    found = policy_shifts(rows)
    changes = {shift.place for shift in found}
    spokes = [place for place in rows_by_setting(rows) if place in changes]
    users = dict(zip(dict.fromkeys(place.user for place in spokes), _SECTORS, strict=False))
    charts = {}
    for model, of_model in groupby(found, key=lambda shift: shift.model):
        by_place = {shift.place: shift for shift in of_model}
        charts[model] = _spider(model, spokes, by_place, users) if len(spokes) > 2 else _bars(model, spokes, by_place)
    return charts


def _spider(model: str, spokes: Sequence[Setting], known: dict[Setting, Shift], users: dict[str, str]) -> Any:
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
    for name, colour, dash, level in _lines():
        shown = [level(known[place]) if place in known else None for place in spokes]
        if any(there is not None and not math.isnan(there.high) for there in shown):
            figure.add_scatterpolar(**_band(shown, angles, name, colour))
        figure.add_scatterpolar(
            name=name,
            legendgroup=name,
            legendrank=1 if dash == "solid" else 2,
            theta=[*angles, angles[0]],
            r=_radii([None if there is None else there.value for there in (*shown, shown[0])]),
            mode="lines+markers",
            line={"color": colour, "width": 2, "dash": dash},
            marker={"color": colour, "size": 5, "symbol": "circle" if dash == "solid" else "diamond"},
            text=[_hover(known.get(place), place) for place in (*spokes, spokes[0])],
            hovertemplate="%{text}<extra></extra>",
        )
    return figure


def _lines() -> tuple[tuple[str, str, str, Callable[[Shift], NormalisedPerplexity]], ...]:
    return (
        ("ind nPPL", _IND, "dash", lambda shift: shift.ind),
        ("ood nPPL", _OOD, "solid", lambda shift: shift.ood),
    )


def _polar() -> dict[str, Any]:
    up, across = _RADIUS * _WIDTH / _HEIGHT, _RADIUS
    return {
        "domain": {"x": [0.5 - across, 0.5 + across], "y": [_CENTRE - up, _CENTRE + up]},
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
    """The background: a colour per user, a little darker for every second training policy."""
    step = 360 / len(spokes)
    sectors = []
    for user, colour in users.items():
        trainings = list(dict.fromkeys(place.training for place in spokes if place.user == user))
        here = [i for i, place in enumerate(spokes) if place.user == user]
        sectors.append(
            {
                "name": html.escape(user) or "user",
                "theta": [step * (i + 0.5) for i in here],
                "r": [_EDGE] * len(here),
                "width": [step] * len(here),
                "marker": {
                    "color": colour,
                    "opacity": [0.13 + 0.1 * (trainings.index(spokes[i].training) % 2) for i in here],
                    "line": {"width": 0},
                },
                "hoverinfo": "skip",
            }
        )
    return sectors


def _band(
    shown: Sequence[NormalisedPerplexity | None], angles: Sequence[float], name: str, colour: str
) -> dict[str, Any]:
    """The intervals: around by the upper bounds, back by the lower ones. One without seeds is its value."""
    high = _radii([None if there is None else _known(there.high, there.value) for there in (*shown, shown[0])])
    low = _radii([None if there is None else _known(there.low, there.value) for there in (*shown, shown[0])])
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


def _known(bound: float, value: float) -> float:
    return value if math.isnan(bound) else bound


def _radii(values: Sequence[float | None]) -> list[float | None]:
    """Within the chart; a gap where nothing is known."""
    return [None if value is None or math.isnan(value) else min(max(value, 0.0), _EDGE) for value in values]


def _labels(spokes: Sequence[Setting], angles: Sequence[float]) -> list[dict[str, Any]]:
    """Test policies along their spokes, training policies around them, all to be read from left to right."""
    labels = []
    for place, angle in zip(spokes, angles, strict=True):
        along = angle - 90 if angle <= 180 else angle + 90
        labels.append(_label(_short(place.testing), angle, _TESTING, along, size=9, colour="#323f4b"))
    start = 0
    for log, group in groupby(spokes, key=lambda place: LogName(place.user, place.training)):
        count = len(list(group))
        angle = 360 * (start + count / 2) / len(spokes)
        around = angle - 180 if 90 < angle < 270 else angle
        labels.append(_label(log.training, angle, _TRAINING, around, size=10.5, colour="#1f2933"))
        start += count
    return labels


def _ends() -> list[dict[str, Any]]:
    """What the centre and the edge mean, between the last spoke and the first."""
    ends = {"best": BEST, "worst": WORST}
    return [
        _label(text, 0, _RADIUS * value / _EDGE, 0, size=9, colour="#52606d") | {"bgcolor": "rgba(255,255,255,0.6)"}
        for text, value in ends.items()
    ]


def _label(text: str, angle: float, radius: float, turned: float, *, size: float, colour: str) -> dict[str, Any]:
    sine, cosine = math.sin(math.radians(angle)), math.cos(math.radians(angle))
    return {
        "text": html.escape(text),
        "xref": "paper",
        "yref": "paper",
        "x": 0.5 + radius * sine,
        "y": _CENTRE + radius * cosine * _WIDTH / _HEIGHT,
        "xanchor": "center",
        "yanchor": "middle",
        "textangle": (turned + 180) % 360 - 180,
        "showarrow": False,
        "font": {"size": size, "color": colour},
    }


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}."


def _hover(shift: Shift | None, place: Setting) -> str:
    if shift is None:
        return ""
    sure = {True: "beyond noise", False: "within noise", None: "one seed: noise unknown"}[shift.sure]
    lines = [
        f"<b>{html.escape(shift.model)}</b>",
        f"{html.escape(place.user) or 'unknown'} users",
        f"trained on {html.escape(place.training)}",
        f"tested on {html.escape(place.testing)}",
        f"ood nPPL {shift.ood.value:.3f}, perplexity {shift.ood.perplexity}",
        f"ind nPPL {shift.ind.value:.3f}, perplexity {shift.ind.perplexity}",
        f"difference {shift.difference:+.3f} ({sure})",
    ]
    return "<br>".join(lines)


def _title(model: str) -> dict[str, Any]:
    return {"text": f"<b>{html.escape(model)}</b>", "x": 0.5, "y": 0.975, "yanchor": "top", "font": {"size": 16}}


def _bars(model: str, spokes: Sequence[Setting], known: dict[Setting, Shift]) -> Any:
    """Two spokes make no web."""
    import plotly.graph_objects as go

    figure = go.Figure()
    for name, colour, _, level in _lines():
        shown = [level(known[place]) if place in known else None for place in spokes]
        figure.add_bar(
            name=name,
            x=[f"{html.escape(place.testing)}<br>{html.escape(place.user)}" for place in spokes],
            y=_radii([None if there is None else there.value for there in shown]),
            error_y={
                "type": "data",
                "symmetric": False,
                "array": [0 if there is None else _known(there.high, there.value) - there.value for there in shown],
                "arrayminus": [0 if there is None else there.value - _known(there.low, there.value) for there in shown],
            },
            marker={"color": colour, "opacity": 0.85},
            text=[_hover(known.get(place), place) for place in spokes],
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
