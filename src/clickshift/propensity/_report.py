"""The page of an examination curve: how likely each rank is examined, how sure that is, and what is in doubt."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clickshift.display.document import Section, write_report
from clickshift.display.figures import COLOURS
from clickshift.propensity.files import Propensities

_HOW = """Examination is how likely a result at this rank is looked at, relative to the reference rank, whatever the
result is worth. Effective swaps are how often documents were seen at this rank and at another one: what the comparison
rests on."""


def propensities_table(found: Propensities) -> list[dict[str, Any]]:
    """A row per rank, for reading."""
    rows = found.table()
    read = {"rank": "rank", "examination": "examination", "low": "low", "high": "high", "error": "standard error"}
    table = [{title: row[name] for name, title in read.items()} for row in rows]
    for name, title in (("impressions", "impressions"), ("swaps", "effective swaps")):
        if getattr(found, name) is not None:
            table = [line | {title: round(row[name])} for line, row in zip(table, rows, strict=True)]
    return table


def propensities_title(found: Propensities) -> str:
    """What the numbers are."""
    level = f"{100 * found.level:g} % intervals: {found.interval}" if found.interval != "none" else "no intervals"
    return f"Examination relative to rank {found.reference_rank + 1}, by {found.method} ({level})"


def _propensities_figure(found: Propensities) -> Any:
    """The curve with its intervals, beside 1 / rank as a guide for the eye."""
    import plotly.graph_objects as go

    rows = [row for row in found.table() if not math.isnan(row["examination"])]
    figure = go.Figure()
    ranks = list(range(1, found.n_ranks + 1))
    figure.add_scatter(
        name="1 / rank",
        x=ranks,
        y=[(found.reference_rank + 1) / rank for rank in ranks],
        mode="lines",
        line={"color": COLOURS[-1], "width": 1, "dash": "dot"},
        hoverinfo="skip",
    )
    figure.add_scatter(
        name=html.escape(found.method),
        x=[row["rank"] for row in rows],
        y=[row["examination"] for row in rows],
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [_length(row["high"] - row["examination"]) for row in rows],
            "arrayminus": [_length(row["examination"] - row["low"]) for row in rows],
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
        xaxis={"title": "rank", "dtick": 1 if found.n_ranks <= 20 else None},
        yaxis={"title": f"examination relative to rank {found.reference_rank + 1}", "rangemode": "tozero"},
        legend={"orientation": "h", "x": 0.5, "xanchor": "center", "y": -0.2, "yanchor": "top"},
        margin={"l": 60, "r": 20, "t": 40, "b": 80},
    )
    return figure


def write_propensities_report(path: Path, found: Propensities, settings: Mapping[str, Any]) -> None:
    """One page: the curve, the table, and every doubt in words."""
    words = "\n\n".join([*found.warnings, _HOW])
    title = propensities_title(found)
    sections = [Section(title, words, propensities_table(found), _propensities_figure(found))]
    write_report(path, title="How likely each rank is examined", sections=sections, settings=settings)


def _length(value: float) -> float:
    return 0.0 if math.isnan(value) else max(value, 0.0)
