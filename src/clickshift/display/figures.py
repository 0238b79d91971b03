"""Tidy rows -> Plotly figures."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Any

from clickshift.display.tables import Row
from clickshift.display.values import measured
from clickshift.experiments.policy_shift._report_robustness import IND, Log, by_seed, name_of, peers, places, role_of

COLOURS = ["#1b6ca8", "#d1495b", "#3d8361", "#edae49", "#7b5ea7", "#8d6346", "#5c677d"]
"""Distinct on white, also for the colour-blind: blue, red, green, amber, violet, brown, grey."""
_SYMBOLS = ["circle", "diamond", "square", "triangle-up", "x", "star", "cross"]
"""Distinct without any colour."""


def shift_figure(rows: Sequence[Row]) -> Any:
    """Perplexity above the oracle's on each test log of one training log: what each model loses beyond what nobody can
    know. None where there is no oracle."""
    import plotly.graph_objects as go

    logs = places(rows)
    found = {place: by_seed(there, "perplexity") for place, there in logs.items()}
    roles = {name_of(row, "model"): role_of(row) for row in rows}
    oracles = [model for model, role in roles.items() if role == "oracle"]
    truth = {place: found[place][name] for place in logs for name in oracles if name in found[place]}
    logs = {place: there for place, there in logs.items() if place in truth}
    if not logs:
        return None
    names = [IND if place.testing == IND else f"ood<br>{html.escape(place.testing)}" for place in logs]
    figure = go.Figure()
    models = [model for model in peers(rows) if any(model in found[place] for place in logs)]
    step = 0.6 / max(len(models), 1)
    for i, model in enumerate(models):
        excess = [
            measured([value - next(iter(truth[place].values())) for value in found[place].get(model, {}).values()])
            for place in logs
        ]
        figure.add_scatter(
            name=html.escape(model),
            x=[n + step * (i - (len(models) - 1) / 2) for n in range(len(logs))],
            y=[None if math.isnan(value.mean) else value.mean for value in excess],
            error_y={"type": "data", "array": [0 if math.isnan(value.half) else value.half for value in excess]},
            mode="markers",
            marker={"color": COLOURS[i % len(COLOURS)], "size": 8, "symbol": _SYMBOLS[i % len(_SYMBOLS)]},
            text=[str(value) for value in excess],
            hovertemplate="%{fullData.name}: %{text}<extra></extra>",
        )
    log = next(iter(logs))
    figure.update_layout(
        title={"text": Log(*log[:2]).as_chart_title(), "x": 0.5, "y": 0.97, "yanchor": "top", "font": {"size": 14}},
        template="plotly_white",
        width=480,
        height=430,
        yaxis={"title": "perplexity above the oracle's", "rangemode": "tozero"},
        xaxis={
            "tickvals": list(range(len(logs))),
            "ticktext": names,
            "range": [-0.5, len(logs) - 0.5],
            "tickfont": {"size": 10},
        },
        legend={"orientation": "h", "x": 0.5, "xanchor": "center", "y": -0.2, "yanchor": "top"},
        margin={"l": 62, "r": 32, "t": 58, "b": 105},
    )
    return figure


def comparison_figure(rows: Sequence[Row]) -> Any:
    """Conditional and marginal perplexity of every model, the best first; what is far off is a number at the edge."""
    import plotly.graph_objects as go

    done = [row for row in rows if row["conditional_perplexity"] is not None]
    done.sort(key=lambda row: row["conditional_perplexity"])
    names = [html.escape(row["model"]) for row in done]
    figure = go.Figure()
    kinds = {"conditional": "given the clicks above", "marginal": "without them"}
    values = [row[f"{kind}_perplexity"] for row in done for kind in kinds]
    lowest, edge = min(values, default=1.0), _edge(values)
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


def _edge(values: Sequence[float]) -> float:
    """Where the plot ends: beyond most values, but not for the sake of one ten times as far off as the middle one."""
    if not values:
        return 2.0
    ascending = sorted(values)
    lowest, middle = ascending[0], ascending[len(ascending) // 2]
    near = [value for value in ascending if value - lowest <= 10 * (middle - lowest) + 1e-9]
    return near[-1]


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
