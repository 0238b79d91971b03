"""Charts of the comparison of click models and IPS rankers, modelled on the figures of the IPS paper."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Any

from clickshift.display.figures import COLOURS
from clickshift.display.tables import Row
from clickshift.display.values import measured
from clickshift.experiments._dots import PUBLISHED, grouped_dots
from clickshift.experiments.click_vs_ips.data import (
    CLICK_LOSS,
    IPS_LOSS,
    IPS_TRUE,
    NAIVE,
    PBM_ESTIMATED,
    PBM_TRUE,
    PRODUCTION,
)
from clickshift.experiments.click_vs_ips.published import published_curve, set_of_rows
from clickshift.metrics.significance import bootstrap_interval

_ORDER = (PRODUCTION, NAIVE, PBM_ESTIMATED, PBM_TRUE, IPS_TRUE)
_COLOUR = dict(zip(_ORDER, (COLOURS[6], COLOURS[3], COLOURS[2], COLOURS[0], COLOURS[1]), strict=True))
_COLOUR |= {CLICK_LOSS: COLOURS[0], IPS_LOSS: COLOURS[1]}
_AXES = {"sessions": "sessions", "collisions": "collision rate", "eta": "strength of the position bias, eta"}
_LEGEND = {"orientation": "h", "x": 0.5, "xanchor": "center", "y": -0.22, "yanchor": "top"}


def metric_curves(rows: Sequence[Row], axis: str, metric: str = "nDCG@10") -> Any:
    """Plot a metric of each model by sessions, collisions or eta.

    Lines have 95 % bootstrap bands over seeds; dashed lines are the limit of unlimited clicks, diamonds are published
    values.
    """
    import plotly.graph_objects as go

    figure = go.Figure()
    points = sorted({row[axis] for row in rows})
    models = list(dict.fromkeys(row["model"] for row in rows))
    for number, model in enumerate(sorted(models, key=lambda name: (*_ORDER, name).index(name))):
        colour, name = _COLOUR.get(model, COLOURS[number % len(COLOURS)]), html.escape(model)
        values = {point: _values(rows, metric, model, "trained", axis, point) for point in points}
        present = [point for point in points if values[point]]
        means, lows, highs = zip(*(bootstrap_interval(values[point]) for point in present), strict=True)
        if not any(map(math.isnan, lows)):
            figure.add_scatter(
                x=[*present, *reversed(present)],
                y=[*highs, *reversed(lows)],
                mode="lines",
                fill="toself",
                fillcolor=_translucent(colour),
                line={"width": 0},
                hoverinfo="skip",
                legendgroup=model,
                showlegend=False,
            )
        figure.add_scatter(
            name=name,
            x=present,
            y=means,
            mode="lines+markers",
            line={"color": colour, "width": 2},
            legendgroup=model,
            text=[f"{mean:.4f} ({low:.4f} to {high:.4f})" for mean, low, high in zip(means, lows, highs, strict=True)],
            hovertemplate="%{fullData.name}, %{x}: %{text}<extra></extra>",
        )
        if axis == "collisions":
            limits = [_mean(_values(rows, metric, model, "limit", axis, point)) for point in present]
            _add_limit_line(figure, name, present, limits, colour, model)
        if metric == "nDCG@10":
            _add_published_points(figure, published_curve(set_of_rows(rows), axis, model), colour, model)
    scale = {"type": "log", "dtick": 1} if axis == "sessions" else {}
    figure.update_layout(
        template="plotly_white",
        width=900,
        height=520,
        xaxis={"title": _AXES[axis], **scale},
        yaxis={"title": metric},
        legend=_LEGEND,
        margin={"l": 65, "r": 30, "t": 30, "b": 110},
    )
    return figure


def final_metric_figure(rows: Sequence[Row], metric: str = "nDCG@10") -> Any:
    """Plot a metric of each model after one number of sessions, with its interval over seeds, beside published values.

    Parameters
    ----------
    rows
        Rows of one number of sessions.
    metric
        Name of the metric.
    """
    trained = [row for row in rows if row["kind"] == "trained"]
    models = list(dict.fromkeys(row["model"] for row in trained))
    means = {
        model: measured([row[metric] for row in trained if row["model"] == model and metric in row]) for model in models
    }
    models.sort(key=lambda model: -means[model].mean)
    dots: list[dict[str, Any]] = [
        {"label": model, "value": means[model].mean, "low": None, "high": None, "from": "ours"} for model in models
    ]
    for dot, model in zip(dots, models, strict=True):
        half = means[model].half
        if not math.isnan(half):
            dot |= {"low": means[model].mean - half, "high": means[model].mean + half}
    name, sessions = set_of_rows(rows), rows[0]["sessions"]
    for model in models:
        value = published_curve(name, "sessions", model).get(sessions) if metric == "nDCG@10" else None
        if value is not None:
            dots.append({"label": model, "value": value, "low": None, "high": None, "from": PUBLISHED})
    return grouped_dots(dots, axis=f"{metric} (higher is better)", group="from")


def loss_figures(rows: Sequence[Row]) -> dict[str, Any]:
    """Plot figures 2 and 3: expected loss by predicted relevance, with a dot at its minimum; one chart per loss."""
    import plotly.graph_objects as go

    figures, varied = {}, "rank" if "rank" in rows[0] else "document"
    for model in (CLICK_LOSS, IPS_LOSS):
        model_rows = [row for row in rows if row["model"] == model]
        figure = go.Figure()
        for number, line in enumerate(dict.fromkeys(row[varied] for row in model_rows)):
            curve = [row for row in model_rows if row[varied] == line and row["kind"] == "loss"]
            (minimum,) = (row for row in model_rows if row[varied] == line and row["kind"] == "least")
            together = varied == "document" and line == 0
            colour = COLOURS[number % len(COLOURS)] if varied == "document" else _shade(number)
            name = "both documents" if together else f"{varied} {line}"
            figure.add_scatter(
                name=name,
                x=[row["relevance"] for row in curve],
                y=[row["loss"] for row in curve],
                mode="lines",
                line={"color": colour, "width": 2, "dash": "solid" if together or varied == "rank" else "dot"},
                legendgroup=name,
                hovertemplate="%{fullData.name}, relevance %{x}: loss %{y:.4f}<extra></extra>",
            )
            figure.add_scatter(
                x=[minimum["relevance"]],
                y=[minimum["loss"]],
                mode="markers",
                marker={"color": colour, "size": 10},
                legendgroup=name,
                showlegend=False,
                hovertemplate=f"{name}: minimum at %{{x:.4f}}, loss %{{y:.4f}}<extra></extra>",
            )
        figure.update_layout(
            title={"text": f"{model} loss", "x": 0.5, "y": 0.97, "yanchor": "top", "font": {"size": 14}},
            template="plotly_white",
            width=480,
            height=440,
            xaxis={"title": "predicted relevance", "range": [0, 1]},
            yaxis={"title": "expected loss", "range": [0, 4 if varied == "document" else 2]},
            legend=_LEGEND,
            margin={"l": 55, "r": 20, "t": 50, "b": 120},
        )
        figures[f"{model} loss"] = figure
    return figures


def gradient_figure(rows: Sequence[Row]) -> Any:
    """Plot the mean absolute gradient of a document's logit by its rank, from 1, on a log scale."""
    import plotly.graph_objects as go

    figure, dashes = go.Figure(), ("solid", "dot", "dash", "dashdot")
    counts = list(dict.fromkeys(row.get("sessions_per_query") for row in rows))
    for model in (CLICK_LOSS, IPS_LOSS):
        for count, dash in zip(counts, dashes, strict=False):
            line = [row for row in rows if row["model"] == model and row.get("sessions_per_query") == count]
            clicks = "unlimited clicks" if count is None else f"{count:,} sessions per query"
            figure.add_scatter(
                name=f"{model}, {clicks}",
                x=[row["rank"] for row in line],
                y=[row["gradient"] for row in line],
                mode="lines",
                line={"color": _COLOUR[model], "dash": dash, "width": 2},
                hovertemplate="%{fullData.name}, rank %{x}: %{y:.4f}<extra></extra>",
            )
    figure.update_layout(
        template="plotly_white",
        width=900,
        height=480,
        xaxis={"title": "rank"},
        yaxis={"title": "mean absolute gradient", "type": "log", "dtick": 1},
        legend=_LEGEND,
        margin={"l": 70, "r": 30, "t": 30, "b": 130},
    )
    return figure


def _values(rows: Sequence[Row], metric: str, model: str, kind: str, axis: str, point: float) -> list[float]:
    """Return the values of a metric at one point of an axis, one per seed."""
    return [
        row[metric] for row in rows if (row["model"], row["kind"], row[axis]) == (model, kind, point) and metric in row
    ]


def _mean(values: Sequence[float]) -> float:
    """Return the mean; NaN without values."""
    return sum(values) / len(values) if values else math.nan


def _add_limit_line(figure: Any, name: str, x: Sequence[float], y: Sequence[float], colour: str, group: str) -> None:
    """Add a dashed line of the limit of unlimited clicks, if it is known."""
    if all(map(math.isnan, y)):
        return
    figure.add_scatter(
        name=f"{name}, unlimited clicks",
        x=x,
        y=y,
        mode="lines",
        line={"color": colour, "width": 2, "dash": "dash"},
        legendgroup=group,
        hovertemplate="%{fullData.name}, %{x}: %{y:.4f}<extra></extra>",
    )


def _add_published_points(figure: Any, curve: dict[float, float], colour: str, group: str) -> None:
    """Add diamonds at published values, with one legend entry for all models."""
    if not curve:
        return
    in_legend = any(trace.name == "published" for trace in figure.data)
    figure.add_scatter(
        name="published",
        x=list(curve),
        y=list(curve.values()),
        mode="markers",
        marker={"symbol": "diamond-open", "size": 9, "color": colour, "line": {"width": 2}},
        legendgroup="published",
        legendrank=2000,
        showlegend=not in_legend,
        hovertemplate=f"{html.escape(group)}, published: %{{y:.3f}}<extra></extra>",
    )


def _translucent(colour: str) -> str:
    """Return a hexadecimal colour as rgba with low opacity."""
    red, green, blue = (int(colour[k : k + 2], 16) for k in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.18)"


def _shade(number: int, of: int = 10) -> str:
    """Return a blue from dark to light: the first ranks are the darkest."""
    part = min(number / of, 1)
    low, high = (27, 60, 108), (188, 208, 230)
    red, green, blue = (round(a + part * (b - a)) for a, b in zip(low, high, strict=True))
    return f"rgb({red},{green},{blue})"
