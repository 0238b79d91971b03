"""Figure and table of the sources of a click model's loss under a new ranker, from tidy rows."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from clickshift.display.figures import COLOURS
from clickshift.display.tables import Row, Rows
from clickshift.display.values import Measured
from clickshift.experiments.policy_shift._loss_parts import PARTS
from clickshift.simulation.search_engine import IND

_LOSSES = ("excess", *PARTS)
_LEGEND = 60
"""Height of the legend above the bars, in pixels."""


def mean_losses(rows: Sequence[Row]) -> Rows:
    """Average the parts of the loss over other policies' lists, by users and model.

    Parameters
    ----------
    rows
        Rows with `user`, `testing`, `model`, `excess` and its parts.

    Returns
    -------
    list of dict
        One line per users and model.
    """
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row["testing"] != IND:
            groups.setdefault((str(row["user"]), str(row["model"])), []).append(row)
    return [
        {"user": user, "model": model} | {name: float(np.mean([row[name] for row in group])) for name in _LOSSES}
        for (user, model), group in groups.items()
    ]


def loss_table(means: Sequence[Mapping[str, Any]]) -> Rows:
    """Tabulate what `mean_losses` returns."""
    return [
        {name: Measured(value, digits=4) if name in _LOSSES else value for name, value in row.items()} for row in means
    ]


def loss_figure(means: Sequence[Mapping[str, Any]]) -> Any:
    """Plot the parts of each model's loss as stacked bars, with a line at their sum."""
    import plotly.graph_objects as go

    figure = go.Figure()
    names = [html.escape(f"{row['model']}, {row['user']} users") for row in means]
    for part, colour in zip(PARTS, COLOURS, strict=False):
        figure.add_bar(
            name=part,
            x=[row[part] for row in means],
            y=names,
            orientation="h",
            marker_color=colour,
            hovertemplate="%{fullData.name}: %{x:.4f}<extra></extra>",
        )
    figure.add_scatter(
        name="all of it",
        x=[row["excess"] for row in means],
        y=names,
        mode="markers",
        marker={"symbol": "line-ns", "size": 22, "line": {"width": 3, "color": COLOURS[6]}, "color": COLOURS[6]},
        hovertemplate="all of it: %{x:.4f}<extra></extra>",
    )
    figure.update_layout(
        template="plotly_white",
        barmode="relative",
        xaxis={"title": "perplexity above the best possible"},
        yaxis={"autorange": "reversed", "automargin": True},
        height=90 + _LEGEND + 38 * len(names),
        legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        margin={"l": 20, "r": 20, "t": _LEGEND, "b": 60},
    )
    return figure


def loss_sentence(rows: Sequence[Row]) -> str:
    """Say what each model loses on other policies' lists, and its largest part; empty without rows."""
    texts = []
    ood = [row for row in rows if row["testing"] != IND]
    for model in dict.fromkeys(str(row["model"]) for row in ood):
        own = [row for row in ood if row["model"] == model]
        mean = {name: float(np.mean([row[name] for row in own])) for name in _LOSSES}
        largest = max(PARTS, key=mean.__getitem__)
        texts.append(f"{model} loses {mean['excess']:.4f}, most by {largest} ({mean[largest]:.4f})")
    return f"Mean perplexity above the users' own model, on lists of other policies: {'; '.join(texts)}." * bool(texts)
