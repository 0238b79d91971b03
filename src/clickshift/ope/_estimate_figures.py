"""Charts of an off-policy evaluation: the answer beside all estimators, estimates by clipping constant, and by day."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

from clickshift.display.figures import COLOURS, SYMBOLS, dot_plot
from clickshift.display.values import with_interval
from clickshift.ope.answer import Answer
from clickshift.ope.daily_residuals import DayResidual
from clickshift.ope.estimate import Estimate, Evaluation
from clickshift.ope.estimators import clip_text
from clickshift.ope.slope import best_clip

_NAMES = {
    "List": "whole lists (List)",
    "IP": "document at rank (IP)",
    "PBM": "position-based (PBM)",
    "Item": "documents (Item)",
    "RCTR": "rank only (RCTR)",
    "DM": "direct method (DM)",
}
"""What an estimator matches between the log and the target."""
_QUIET = {
    "single estimator, usable": COLOURS[6],
    "single estimator, weak overlap": COLOURS[3],
    "baseline": "#8d99ae",
}


def estimates_figure(answers: Mapping[str, Answer], estimates: Mapping[str, Sequence[Estimate]], reward: str) -> Any:
    """Plot the answer and all estimators with their intervals, beside today's reward.

    Parameters
    ----------
    answers
        Answers by target.
    estimates
        One estimate per estimator, by target.
    reward
        Name of the reward.
    """
    several = len(estimates) > 1
    rows: list[dict[str, Any]] = []
    for name, answer in answers.items():
        if answer.estimator:
            low, high = answer.today + answer.difference_low, answer.today + answer.difference_high
            value = {"value": answer.today + answer.difference, "low": low, "high": high}
            rows.append({"label": f"{_short(name)}: answer" if several else "answer", "group": "answer", **value})
    for name, own in estimates.items():
        for e in own:
            if e.estimator == "RCTR" and (answers or len(own) > 1):
                continue  # it is today's reward
            label = with_clip(e)
            if not several:
                label = label.replace(e.estimator, _NAMES.get(e.estimator, e.estimator), 1)
            group = e.verdict if e.verdict == "baseline" else f"single estimator, {e.verdict}"
            none = math.isnan(e.low)
            ends = {"low": None if none else e.low, "high": None if none else e.high}
            label = f"{_short(name)}: {label}" if several else label
            rows.append({"label": label, "group": group, "value": e.value, **ends})
    todays = [answer.today for answer in answers.values()]
    todays += [e.value for own in estimates.values() for e in own if e.estimator == "RCTR"]
    today = todays[0] if todays else None
    return dot_plot(
        rows,
        axis=f"{reward} per session",
        group="group",
        reference=today,
        reference_name="" if today is None else f"today {today:.3g}",
        colours={"answer": COLOURS[0], **_QUIET},
    )


def with_clip(estimate: Estimate) -> str:
    """Name an estimator, with its clipping constant where that clips."""
    clips = estimate.clip < estimate.largest_weight
    return estimate.estimator + (f" (M = {clip_text(estimate.clip)})" if clips else "")


def clipping_matters(evaluations: Sequence[Evaluation]) -> list[Evaluation]:
    """Return the evaluations whose value changes with the clipping constant by more than its standard error."""
    found = []
    for evaluation in evaluations:
        values = [e.value for e in evaluation.estimates if not math.isnan(e.value)]
        if values and max(values) - min(values) > best_clip(evaluation).error:
            found.append(evaluation)
    return found


def clipping_figure(evaluations: Sequence[Evaluation]) -> Any:
    """Plot value and interval by clipping constant, one line per estimator."""
    import plotly.graph_objects as go

    figure = go.Figure()
    for k, evaluation in enumerate(evaluations):
        estimates = evaluation.estimates
        figure.add_scatter(
            name=html.escape(estimates[0].estimator),
            x=[clip_text(e.clip) for e in estimates],
            y=[e.value for e in estimates],
            error_y=_error_bars(estimates),
            mode="lines+markers",
            line={"color": COLOURS[k % len(COLOURS)], "width": 1.5},
            marker={"size": 8, "symbol": SYMBOLS[k % len(SYMBOLS)]},
            text=[with_interval(e.value, e.low, e.high) for e in estimates],
            hovertemplate="M = %{x}: %{text}<extra>%{fullData.name}</extra>",
        )
    figure.update_layout(
        template="plotly_white",
        height=320,
        showlegend=True,
        xaxis={"title": "clipping constant M", "type": "category"},
        yaxis={"title": f"{html.escape(evaluations[0].estimates[0].reward)} per session"},
        margin={"l": 60, "r": 32, "t": 24, "b": 55},
    )
    return figure


def residual_figure(residuals: Sequence[DayResidual]) -> Any:
    """Plot the daily residuals of each estimator."""
    import plotly.graph_objects as go

    figure = go.Figure()
    names = list(dict.fromkeys(r.estimator for r in residuals))
    first = [r for r in residuals if r.estimator == names[0]]
    _add_band(figure, [html.escape(r.day) for r in first], [-2 * r.error for r in first], [2 * r.error for r in first])
    for k, name in enumerate(names):
        own = [r for r in residuals if r.estimator == name]
        figure.add_scatter(
            x=[html.escape(r.day) for r in own],
            y=[r.residual for r in own],
            mode="lines+markers",
            name=html.escape(name),
            line={"color": COLOURS[k % len(COLOURS)], "width": 1.5},
            marker={"symbol": SYMBOLS[k % len(SYMBOLS)], "size": 7},
            text=[f"estimated {r.estimated:.4f}, earned {r.earned:.4f}, {r.sessions:,} sessions" for r in own],
            hovertemplate="%{x}: %{text}<extra></extra>",
        )
    figure.update_layout(
        template="plotly_white",
        height=380,
        xaxis={"title": "day", "type": "category"},
        yaxis={"title": "estimated minus earned reward"},
        legend={"orientation": "h", "yref": "container", "y": 0.0, "yanchor": "bottom"},
        margin={"l": 60, "r": 32, "t": 24, "b": 90},
    )
    return figure


def _error_bars(estimates: Sequence[Estimate]) -> dict[str, Any]:
    """Return the intervals of estimates as error bars."""
    high, low = [e.high - e.value for e in estimates], [e.value - e.low for e in estimates]
    return {"type": "data", "symmetric": False, "array": high, "arrayminus": low, "thickness": 1.4, "width": 4}


def _add_band(figure: Any, x: Sequence[str], low: Sequence[float], high: Sequence[float]) -> None:
    """Add a grey band to a figure."""
    style = {"line": {"width": 0.5, "color": "#c9d3dd"}, "fillcolor": "rgba(92, 103, 125, 0.15)"}
    for edge, fill in ((low, None), (high, "tonexty")):
        figure.add_scatter(x=x, y=edge, mode="lines", fill=fill, hoverinfo="skip", showlegend=False, **style)


def _short(name: str) -> str:
    """Name of a file without its folder, and at most 24 characters of it.

    >>> _short("new/rankings.parquet"), _short("a-very-long-name-of-a-ranker")
    ('rankings.parquet', 'a-very-long-name-of-a-r…')
    """
    name = name.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]
    return name if len(name) <= 24 else f"{name[:23]}…"
