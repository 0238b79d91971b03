"""How days differ, for reading: a verdict in words, tables and charts."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clickshift.display.document import Section, write_report
from clickshift.display.figures import COLOURS
from clickshift.drift._results import CLICKS, NEW, PLACES, BeyondChance, Change, Day, DriftResult

_HOW = f"""Places: how far the documents at each rank of a query are others than the day before (total variation
distance, 0 to 1), less what chance alone gives for one and the same ranker. New documents: results that the day before
never showed for the same query, less what chance gives. Clicks, like for like: the click-through rate of the documents
that stood at a rank on both days, later by earlier. An old model is called untrustworthy where one of them is surely
beyond {PLACES:.0%}, {NEW:.0%} or {1 + CLICKS:.2f} times."""
_SHOWN = {"changed": "changed", "some": "a little", "same": "no", "unclear": "cannot tell"}
_CTR_RANKS = (1, 2, 3, 5, 10)


def drift_verdict(found: DriftResult) -> list[str]:
    """The verdict: which models should not be trusted any more and why; then when that came."""
    last = found.days[-1].name
    old = [change for change in found.until_last if change.verdict == "changed"]
    said = []
    if old:
        names, nearest = _listed([change.earlier for change in old]), old[-1]
        said.append(
            f"A model fitted on {names} should not be trusted on {last}: since {nearest.earlier}, "
            f"{'; '.join(nearest.reasons)}."
        )
        came = [step for step in found.steps if step.verdict == "changed"]
        for step in came:
            if (step.earlier, step.later) != (nearest.earlier, nearest.later):
                said.append(f"From {step.earlier} to {step.later}, {'; '.join(step.reasons)}.")
        if not came:
            said.append("No day differs as much from the day before: the change came little by little.")
    for verdict, words in (
        ("some", "surely differs from {last}, but too little to matter: a model fitted on it can be used."),
        ("same", "does not differ from {last} beyond chance: a model fitted on it can be used."),
        ("unclear", "has too few sessions of the same queries as {last} to tell whether the ranker changed."),
    ):
        names_of = [change.earlier for change in found.until_last if change.verdict == verdict]
        said += [f"{_listed(names_of)} {words.format(last=last)}"] if names_of else []
    return said


def drift_table(found: DriftResult) -> list[dict[str, Any]]:
    """A row per day, and what changed since the day before."""
    timed, table = all(day.last is not None for day in found.days), []
    for day, step in zip(found.days, (None, *found.steps), strict=True):
        line: dict[str, Any] = {"day": day.name}
        if timed:
            line |= {"from": str(day.first), "to": str(day.last)}
        line |= {"sessions": round(day.sessions), "clicks per session": day.clicks_per_session}
        line |= {
            "places": None if step is None else _beyond(step.places),
            "new documents": None if step is None else _beyond(step.new_documents),
            "new queries": None if step is None else f"{step.new_queries:.1%}",
            "rank 1, like for like": None if step is None else _ratio(step),
            "changed": None if step is None else _SHOWN[step.verdict],
        }
        table.append(line)
    return table


def ctr_table(found: DriftResult, ranks: int) -> list[dict[str, Any]]:
    """A row per day: click-through rates by rank with half the width of their 95 % intervals."""
    width = min(max(len(day.ctr) for day in found.days), ranks)
    return [{"day": day.name} | {f"rank {r + 1}": _rate(day, r) for r in range(width)} for day in found.days]


def drift_facts(found: DriftResult) -> dict[str, Any]:
    """Everything, as plain values."""
    return {
        "days": [
            {
                "day": day.name,
                "first": None if day.first is None else _plain(day.first),
                "last": None if day.last is None else _plain(day.last),
                "sessions": day.sessions,
                "clicks_per_session": day.clicks_per_session,
                "ctr_by_rank": [
                    {"rank": r + 1, "ctr": day.ctr[r], "low": day.low[r], "high": day.high[r]}
                    for r in range(len(day.ctr))
                ],
            }
            for day in found.days
        ],
        "since_the_day_before": [_change_facts(change) for change in found.steps],
        "until_the_last_day": [_change_facts(change) for change in found.until_last],
        "trusted": all(change.verdict != "changed" for change in found.until_last),
        "words": drift_verdict(found),
    }


def write_drift_report(path: Path, found: DriftResult, settings: Mapping[str, Any], *, ranks: int) -> None:
    """One page: the verdict, what changed day by day, and click-through rates."""
    sections = [
        Section("What was found", "\n\n".join([*drift_verdict(found), _HOW])),
        Section("Since the day before", table=drift_table(found), figure=_change_figure(found.steps)),
        Section("Clicks by rank", table=ctr_table(found, ranks), figure=_ctr_figure(found.days)),
        Section("Clicks on the same documents at the same ranks", table=_like_for_like(found.steps)),
    ]
    sections = [section for section in sections if section.text or section.table]
    write_report(
        path, title="How days differ, and whether an old model still holds", sections=sections, settings=settings
    )


def _change_figure(steps: Sequence[Change]) -> Any:
    """Places and new documents beyond chance, with what counts as much."""
    import plotly.graph_objects as go

    figure = go.Figure()
    for name, colour, symbol, field, much in (
        ("places", COLOURS[0], "circle", "places", PLACES),
        ("new documents", COLOURS[1], "diamond", "new_documents", NEW),
    ):
        shares: list[BeyondChance] = [getattr(step, field) for step in steps]
        figure.add_scatter(
            name=name,
            x=[html.escape(step.later) for step in steps],
            y=[None if math.isnan(share.change) else share.change for share in shares],
            error_y={"type": "data", "array": [_known(share.change - share.low) for share in shares], "width": 4},
            mode="lines+markers",
            line={"color": colour, "width": 1.5},
            marker={"size": 8, "symbol": symbol},
            hovertemplate="%{x}: %{y:.3f}<extra>%{fullData.name}</extra>",
        )
        figure.add_hline(y=much, line={"color": colour, "width": 1, "dash": "dot"})
    figure.update_layout(**_LAYOUT, yaxis={"title": "changed since the day before, beyond chance"})
    figure.update_xaxes(type="category")
    return figure


def _ctr_figure(days: Sequence[Day]) -> Any:
    """Click-through rates of some ranks, day by day."""
    import plotly.graph_objects as go

    figure, width = go.Figure(), max(len(day.ctr) for day in days)
    for i, r in enumerate(rank - 1 for rank in _CTR_RANKS if rank <= width):
        there = [day for day in days if r < len(day.ctr) and not math.isnan(day.ctr[r])]
        figure.add_scatter(
            name=f"rank {r + 1}",
            x=[html.escape(day.name) for day in there],
            y=[float(day.ctr[r]) for day in there],
            error_y={
                "type": "data",
                "symmetric": False,
                "array": [float(day.high[r] - day.ctr[r]) for day in there],
                "arrayminus": [float(day.ctr[r] - day.low[r]) for day in there],
                "width": 4,
            },
            mode="lines+markers",
            line={"color": COLOURS[i], "width": 1.5},
            hovertemplate="%{x}: %{y:.4f}<extra>%{fullData.name}</extra>",
        )
    figure.update_layout(**_LAYOUT, yaxis={"title": "click-through rate", "rangemode": "tozero"})
    figure.update_xaxes(type="category")
    return figure


_LAYOUT: dict[str, Any] = {
    "template": "plotly_white",
    "legend": {"orientation": "h", "x": 0.5, "xanchor": "center", "y": -0.2, "yanchor": "top"},
    "margin": {"l": 60, "r": 20, "t": 40, "b": 80},
}


def _like_for_like(steps: Sequence[Change]) -> list[dict[str, Any]]:
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


def _beyond(share: BeyondChance) -> str:
    if math.isnan(share.change):
        return "cannot tell"
    return f"{max(share.change, 0.0):.1%} ({share.observed:.1%}, by chance {share.chance:.1%})"


def _ratio(step: Change) -> str:
    first = next((clicks for clicks in step.clicks if clicks.rank == 0), None)
    if first is None or math.isnan(first.ratio):
        return "cannot tell"
    return f"{first.ratio:.2f} [{first.low:.2f}, {first.high:.2f}]"


def _rate(day: Day, rank: int) -> str | None:
    if rank >= len(day.ctr) or math.isnan(day.ctr[rank]):
        return None
    half = f"{(day.high[rank] - day.low[rank]) / 2:.3f}"
    return f"{day.ctr[rank]:.3f} ± {half[1:] if half.startswith('0.') else half}"


def _known(value: float) -> float:
    return value if math.isfinite(value) else 0.0


def _plain(time: Any) -> Any:
    return time if isinstance(time, float) else str(time)


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
