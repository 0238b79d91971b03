"""Tidy rows -> Plotly figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clickshift.report.tables import Row

COLOURS = ["#1b6ca8", "#d1495b", "#3d8361", "#edae49", "#7b5ea7", "#8d6346", "#5c677d"]
"""Distinct on white, also for the colour-blind: blue, red, green, amber, violet, brown, grey."""


def shift_figure(rows: Sequence[Row]) -> Any:
    """Perplexity above the oracle's, per test policy: what each model loses, beyond what nobody can know."""
    import plotly.graph_objects as go

    logs = list(dict.fromkeys((row["shift"], row["testing"]) for row in rows))
    models = list(dict.fromkeys(row["model"] for row in rows))
    value = {(row["model"], row["shift"], row["testing"]): row["perplexity"] for row in rows}
    figure = go.Figure()
    for i, model in enumerate(models):
        figure.add_bar(
            name=model,
            x=[f"{shift}<br>{testing}" for shift, testing in logs],
            y=[value[model, *log] for log in logs],
            marker_color=COLOURS[i % len(COLOURS)],
            hovertemplate="%{fullData.name}: %{y:.4f}<extra></extra>",
        )
    lowest, highest = min(value.values()), max(value.values())
    margin = 0.1 * (highest - lowest) + 1e-6
    figure.update_layout(
        barmode="group",
        template="plotly_white",
        yaxis={
            "title": "conditional perplexity (lower is better)",
            "range": [max(1, lowest - margin), highest + margin],
        },
        xaxis={"title": "who ranked the test log"},
        legend={"orientation": "h", "y": 1.12},
        margin={"l": 60, "r": 20, "t": 40, "b": 60},
    )
    return figure
