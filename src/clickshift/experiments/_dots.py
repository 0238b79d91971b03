"""Dot plots of several values per row: ours and published ones, or one value per log."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from clickshift.display.figures import dot_plot
from clickshift.display.tables import Row

PUBLISHED = "published"


def grouped_dots(dots: Sequence[Row], *, axis: str, group: str, hollow: Collection[str] = (PUBLISHED,)) -> Any:
    """Plot values with intervals as horizontal dots, several on a line, the first line on top.

    Parameters
    ----------
    dots
        `label`, `value`, `low` and `high` of each dot, and its group.
    axis
        Title of the axis of values.
    group
        Column with the group, which decides colour and symbol.
    hollow
        Groups that are drawn as open diamonds.

    Returns
    -------
    plotly.graph_objects.Figure
        The chart, with one line per label.
    """
    figure = dot_plot(dots, axis=axis, group=group)
    lines = list(dict.fromkeys(figure.layout.yaxis.categoryarray))
    for trace in figure.data:
        if trace.name in hollow:
            trace.marker.symbol = "diamond-open"
        if not any(trace.error_x.array) and not any(trace.error_x.arrayminus):
            trace.error_x.visible = False  # intervals without width look like ticks inside the dots
    figure.update_layout(yaxis={"categoryarray": lines}, height=150 + 32 * len(lines))
    return figure
