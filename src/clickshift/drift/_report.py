"""Report of a comparison of days: a verdict, tables and charts."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clickshift.display.document import Section, write_report
from clickshift.display.figures import COLOURS
from clickshift.drift._results import (
    CLICK_THRESHOLD,
    NEW_DOCUMENT_THRESHOLD,
    POSITION_THRESHOLD,
    ChanceCorrectedChange,
    Change,
    Day,
    DriftResult,
)

_METHOD = f"""Positions: total variation distance (0 to 1) between the documents shown at each rank of a query on a day
and on the day before, corrected for the distance expected by chance from one ranker. New documents: results that the
day before never showed for the same query, corrected for chance. CTR ratio: click-through rate on the later day over
that on the earlier day, for the documents shown at a rank on both days. A model of an earlier day should not be trusted
if one of the changes is significantly larger than {POSITION_THRESHOLD:.0%} of the positions,
{NEW_DOCUMENT_THRESHOLD:.0%} of the results, or a CTR ratio of {1 + CLICK_THRESHOLD:.2f} in either direction."""
_VERDICT_TEXT = {"changed": "changed", "some": "a little", "same": "no", "unclear": "unclear"}
_CTR_RANKS = (1, 2, 3, 5, 10)
"""Ranks whose click-through rates are plotted."""
_LAYOUT: dict[str, Any] = {
    "template": "plotly_white",
    "legend": {"orientation": "h", "x": 0.5, "xanchor": "center", "y": -0.2, "yanchor": "top"},
    "margin": {"l": 60, "r": 20, "t": 40, "b": 80},
}


def drift_verdict(result: DriftResult) -> list[str]:
    """State which models should not be trusted on the last day, why, and when the change happened.

    Parameters
    ----------
    result
        Comparison of days.

    Returns
    -------
    list of str
        One paragraph per statement.
    """
    last = result.days[-1].name
    untrusted = [change for change in result.until_last if change.verdict == "changed"]
    paragraphs = []
    if untrusted:
        names, nearest = _join_names([change.earlier for change in untrusted]), untrusted[-1]
        paragraphs.append(
            f"A model fitted on {names} should not be trusted on {last}: since {nearest.earlier}, "
            f"{'; '.join(nearest.reasons)}."
        )
        changed_steps = [step for step in result.steps if step.verdict == "changed"]
        for step in changed_steps:
            if (step.earlier, step.later) != (nearest.earlier, nearest.later):
                paragraphs.append(f"From {step.earlier} to {step.later}, {'; '.join(step.reasons)}.")
        if not changed_steps:
            paragraphs.append("No day differs this much from the day before: the change was gradual.")
    for verdict, text in (
        ("some", "differs significantly from {last}, but too little to matter: a model fitted on it can be used."),
        ("same", "does not differ from {last} beyond chance: a model fitted on it can be used."),
        ("unclear", "has too few sessions of the same queries as {last} to decide whether the ranker changed."),
    ):
        days = [change.earlier for change in result.until_last if change.verdict == verdict]
        paragraphs += [f"{_join_names(days)} {text.format(last=last)}"] if days else []
    return paragraphs


def drift_table(result: DriftResult) -> list[dict[str, Any]]:
    """Tabulate the days and what changed since the day before, for display.

    Parameters
    ----------
    result
        Comparison of days.
    """
    has_times, table = all(day.last is not None for day in result.days), []
    for day, step in zip(result.days, (None, *result.steps), strict=True):
        row: dict[str, Any] = {"day": day.name}
        if has_times:
            row |= {"from": str(day.first), "to": str(day.last)}
        row |= {"sessions": round(day.sessions), "clicks per session": day.clicks_per_session}
        row |= {
            "positions": None if step is None else _change_text(step.places),
            "new documents": None if step is None else _change_text(step.new_documents),
            "new queries": None if step is None else f"{step.new_queries:.1%}",
            "rank 1 CTR ratio": None if step is None else _ratio_text(step),
            "changed": None if step is None else _VERDICT_TEXT[step.verdict],
        }
        table.append(row)
    return table


def ctr_table(result: DriftResult, ranks: int) -> list[dict[str, Any]]:
    """Tabulate click-through rates by day and rank, with half the width of their 95 % intervals.

    Parameters
    ----------
    result
        Comparison of days.
    ranks
        Number of ranks.
    """
    width = min(max(len(day.ctr) for day in result.days), ranks)
    return [{"day": day.name} | {f"rank {r + 1}": _rate_text(day, r) for r in range(width)} for day in result.days]


def drift_facts(result: DriftResult) -> dict[str, Any]:
    """Return the whole comparison as plain values, for JSON output.

    Parameters
    ----------
    result
        Comparison of days.
    """
    return {
        "days": [
            {
                "day": day.name,
                "first": None if day.first is None else _plain_time(day.first),
                "last": None if day.last is None else _plain_time(day.last),
                "sessions": day.sessions,
                "clicks_per_session": day.clicks_per_session,
                "ctr_by_rank": [
                    {"rank": r + 1, "ctr": day.ctr[r], "low": day.low[r], "high": day.high[r]}
                    for r in range(len(day.ctr))
                ],
            }
            for day in result.days
        ],
        "since_the_day_before": [_change_facts(change) for change in result.steps],
        "until_the_last_day": [_change_facts(change) for change in result.until_last],
        "trusted": all(change.verdict != "changed" for change in result.until_last),
        "words": drift_verdict(result),
    }


def write_drift_report(path: Path, result: DriftResult, settings: Mapping[str, Any], *, ranks: int) -> None:
    """Write an HTML page with the verdict, the changes by day, and click-through rates.

    Parameters
    ----------
    path
        File to write.
    result
        Comparison of days.
    settings
        Settings to list on the page.
    ranks
        Number of ranks in the table of click-through rates.
    """
    sections = [
        Section("Conclusion", "\n\n".join([*drift_verdict(result), _METHOD])),
        Section("Since the day before", table=drift_table(result), figure=_change_figure(result.steps)),
        Section("Clicks by rank", table=ctr_table(result, ranks), figure=_ctr_figure(result.days)),
        Section("Clicks on the same documents at the same ranks", table=_click_table(result.steps)),
    ]
    sections = [section for section in sections if section.text or section.table]
    write_report(
        path, title="Drift between days: can an old model still be used?", sections=sections, settings=settings
    )


def _change_figure(steps: Sequence[Change]) -> Any:
    """Plot changed positions and new documents, corrected for chance, with their thresholds."""
    import plotly.graph_objects as go

    figure = go.Figure()
    for name, colour, symbol, field, threshold in (
        ("positions", COLOURS[0], "circle", "places", POSITION_THRESHOLD),
        ("new documents", COLOURS[1], "diamond", "new_documents", NEW_DOCUMENT_THRESHOLD),
    ):
        shares: list[ChanceCorrectedChange] = [getattr(step, field) for step in steps]
        figure.add_scatter(
            name=name,
            x=[html.escape(step.later) for step in steps],
            y=[None if math.isnan(share.change) else share.change for share in shares],
            error_y={
                "type": "data",
                "array": [_finite_or_zero(share.change - share.low) for share in shares],
                "width": 4,
            },
            mode="lines+markers",
            line={"color": colour, "width": 1.5},
            marker={"size": 8, "symbol": symbol},
            hovertemplate="%{x}: %{y:.3f}<extra>%{fullData.name}</extra>",
        )
        figure.add_hline(y=threshold, line={"color": colour, "width": 1, "dash": "dot"})
    figure.update_layout(**_LAYOUT, yaxis={"title": "change since the day before, beyond chance"})
    figure.update_xaxes(type="category")
    return figure


def _ctr_figure(days: Sequence[Day]) -> Any:
    """Plot click-through rates of some ranks by day."""
    import plotly.graph_objects as go

    figure, width = go.Figure(), max(len(day.ctr) for day in days)
    for i, r in enumerate(rank - 1 for rank in _CTR_RANKS if rank <= width):
        with_rank = [day for day in days if r < len(day.ctr) and not math.isnan(day.ctr[r])]
        figure.add_scatter(
            name=f"rank {r + 1}",
            x=[html.escape(day.name) for day in with_rank],
            y=[float(day.ctr[r]) for day in with_rank],
            error_y={
                "type": "data",
                "symmetric": False,
                "array": [float(day.high[r] - day.ctr[r]) for day in with_rank],
                "arrayminus": [float(day.ctr[r] - day.low[r]) for day in with_rank],
                "width": 4,
            },
            mode="lines+markers",
            line={"color": COLOURS[i], "width": 1.5},
            hovertemplate="%{x}: %{y:.4f}<extra>%{fullData.name}</extra>",
        )
    figure.update_layout(**_LAYOUT, yaxis={"title": "click-through rate", "rangemode": "tozero"})
    figure.update_xaxes(type="category")
    return figure


def _click_table(steps: Sequence[Change]) -> list[dict[str, Any]]:
    """Tabulate the ratios of click-through rates by step and rank."""
    return [
        {
            "from": step.earlier,
            "to": step.later,
            "rank": clicks.rank + 1,
            "ratio": clicks.ratio,
            "low": clicks.low,
            "high": clicks.high,
            "results": round(clicks.impressions),
        }
        for step in steps
        for clicks in step.clicks
    ]


def _change_facts(change: Change) -> dict[str, Any]:
    """Return a change as plain values, for JSON output."""
    shares = {
        name: {"observed": s.observed, "chance": s.chance, "change": s.change, "surely_above": s.low}
        for name, s in (("places", change.places), ("new_documents", change.new_documents))
    }
    return {
        "earlier": change.earlier,
        "later": change.later,
        "verdict": change.verdict,
        "reasons": change.reasons,
        **shares,
        "new_queries": change.new_queries,
        "clicks_like_for_like": [
            {"rank": c.rank + 1, "ratio": c.ratio, "low": c.low, "high": c.high, "results": c.impressions}
            for c in change.clicks
        ],
    }


def _change_text(share: ChanceCorrectedChange) -> str:
    """Return a corrected change with the observed share and that expected by chance, as text."""
    if math.isnan(share.change):
        return "unknown"
    return f"{max(share.change, 0.0):.1%} ({share.observed:.1%}, by chance {share.chance:.1%})"


def _ratio_text(step: Change) -> str:
    """Return the ratio of click-through rates at the first rank with its interval, as text."""
    first = next((clicks for clicks in step.clicks if clicks.rank == 0), None)
    if first is None or math.isnan(first.ratio):
        return "unknown"
    return f"{first.ratio:.2f} [{first.low:.2f}, {first.high:.2f}]"


def _rate_text(day: Day, rank: int) -> str | None:
    """Return a click-through rate with half the width of its interval, as text; None if the rank is empty."""
    if rank >= len(day.ctr) or math.isnan(day.ctr[rank]):
        return None
    half = f"{(day.high[rank] - day.low[rank]) / 2:.3f}"
    return f"{day.ctr[rank]:.3f} ± {half[1:] if half.startswith('0.') else half}"


def _finite_or_zero(value: float) -> float:
    """Return the value, or 0 if it is not finite."""
    return value if math.isfinite(value) else 0.0


def _plain_time(time: Any) -> Any:
    """Return a time as a number or text."""
    return time if isinstance(time, float) else str(time)


def _join_names(names: Sequence[str]) -> str:
    """Return names as text, e.g. "a, b or c"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
