"""The report of a position-bias curve: examination by rank with intervals and warnings."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clickshift.display.document import Section, write_report
from clickshift.display.figures import COLOURS
from clickshift.propensity.files import Propensities

_HOW = """Examination is the probability that a user looks at the result at this rank, relative to the reference rank,
whatever its relevance. Effective swaps count how often documents were shown at this rank and at another one: they are
the evidence for the comparison."""


def propensities_table(propensities: Propensities) -> list[dict[str, Any]]:
    """Make a table for people, with a row per rank."""
    rows = propensities.table()
    titles = {"rank": "rank", "examination": "examination", "low": "low", "high": "high", "error": "standard error"}
    table = [{title: row[name] for name, title in titles.items()} for row in rows]
    for name, title in (("impressions", "impressions"), ("swaps", "effective swaps")):
        if getattr(propensities, name) is not None:
            table = [shown | {title: round(row[name])} for shown, row in zip(table, rows, strict=True)]
    return table


def propensities_title(propensities: Propensities) -> str:
    """Title of the table and of the report."""
    level = (
        f"{100 * propensities.level:g} % intervals: {propensities.interval}"
        if propensities.interval != "none"
        else "no intervals"
    )
    return f"Examination relative to rank {propensities.reference_rank + 1}, by {propensities.method} ({level})"


def _propensities_figure(propensities: Propensities) -> Any:
    """Plot the curve with its intervals, and 1 / rank for comparison."""
    import plotly.graph_objects as go

    rows = [row for row in propensities.table() if not math.isnan(row["examination"])]
    figure = go.Figure()
    ranks = list(range(1, propensities.n_ranks + 1))
    figure.add_scatter(
        name="1 / rank",
        x=ranks,
        y=[(propensities.reference_rank + 1) / rank for rank in ranks],
        mode="lines",
        line={"color": COLOURS[-1], "width": 1, "dash": "dot"},
        hoverinfo="skip",
    )
    figure.add_scatter(
        name=html.escape(propensities.method),
        x=[row["rank"] for row in rows],
        y=[row["examination"] for row in rows],
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [_bar_length(row["high"] - row["examination"]) for row in rows],
            "arrayminus": [_bar_length(row["examination"] - row["low"]) for row in rows],
            "thickness": 1.4,
            "width": 4,
        },
        mode="lines+markers",
        line={"color": COLOURS[0], "width": 1.5},
        marker={"size": 8},
        hovertemplate="rank %{x}: %{y:.4f}<extra></extra>",
    )
    figure.update_layout(
        template="plotly_white",
        xaxis={"title": "rank", "dtick": 1 if propensities.n_ranks <= 20 else None},
        yaxis={"title": f"examination relative to rank {propensities.reference_rank + 1}", "rangemode": "tozero"},
        legend={"orientation": "h", "x": 0.5, "xanchor": "center", "y": -0.2, "yanchor": "top"},
        margin={"l": 60, "r": 20, "t": 40, "b": 80},
    )
    return figure


def write_propensities_report(path: Path, propensities: Propensities, settings: Mapping[str, Any]) -> None:
    """Write a page with the curve, the table and all warnings."""
    text = "\n\n".join([*propensities.warnings, _HOW])
    title = propensities_title(propensities)
    sections = [Section(title, text, propensities_table(propensities), _propensities_figure(propensities))]
    write_report(path, title="Position bias", sections=sections, settings=settings)


def _bar_length(value: float) -> float:
    """Length of an error bar."""
    return 0.0 if math.isnan(value) else max(value, 0.0)
