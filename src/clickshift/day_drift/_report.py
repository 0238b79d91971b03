"""Comparison of days as a result: a verdict, tables and charts."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from clickshift.core.text import join_words
from clickshift.day_drift._results import (
    CLICK_THRESHOLD,
    NEW_DOCUMENT_THRESHOLD,
    POSITION_THRESHOLD,
    ChanceCorrectedChange,
    Change,
    Day,
)
from clickshift.display.document import Document, Section
from clickshift.display.figures import COLOURS
from clickshift.display.result import Result
from clickshift.display.tables import Rows

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


@final
@dataclass(frozen=True, repr=False, eq=False)
class DriftResult(Result):
    """Comparison of several days in order of time.

    Parameters
    ----------
    days
        The days.
    steps
        Change of each day since the day before.
    until_last
        Change from each day to the last one: whether a model of that day may be used now.
    reordered
        Whether the days were given in another order.
    ranks
        Number of ranks that were compared.

    Notes
    -----
    Facts, as `to_dict` returns them:

    - conclusion: which models should not be trusted on the last day, why, and when the change happened.
    - trusted: whether a model of every earlier day can be used on the last one.
    - days: for each day, its name (day), first and last time, sessions, clicks_per_session and ctr_by_rank, a list of
      rank, ctr, low and high (95 % Wilson interval).
    - since_the_day_before, until_the_last_day: changes between two days, each with earlier and later (names), verdict
      ("changed", "some", "same" or "unclear"), reasons, places and new_documents (observed share, share expected by
      chance, change beyond chance, and its lower confidence bound surely_above), new_queries, and
      clicks_like_for_like: by rank, the ratio of click-through rates of the same documents with low, high and the
      number of results.
    """

    days: tuple[Day, ...]
    steps: tuple[Change, ...]
    until_last: tuple[Change, ...]
    reordered: bool
    ranks: int = 10

    @property
    def trusted(self) -> bool:
        """Whether a model of every earlier day can be used on the last one."""
        return all(change.verdict != "changed" for change in self.until_last)

    @property
    def conclusion(self) -> str:
        """State which models should not be trusted on the last day, why, and when the change happened."""
        last = self.days[-1].name
        untrusted = [change for change in self.until_last if change.verdict == "changed"]
        paragraphs = []
        if untrusted:
            names, nearest = join_words([change.earlier for change in untrusted], "or"), untrusted[-1]
            paragraphs.append(
                f"A model fitted on {names} should not be trusted on {last}: since {nearest.earlier}, "
                f"{'; '.join(nearest.reasons)}."
            )
            changed_steps = [step for step in self.steps if step.verdict == "changed"]
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
            days = [change.earlier for change in self.until_last if change.verdict == verdict]
            paragraphs += [f"{join_words(days, 'or')} {text.format(last=last)}"] if days else []
        return "\n\n".join(paragraphs)

    def rows(self) -> Rows:
        """Return one row per change: since the day before, and until the last day."""
        compared = (("day before", self.steps), ("last day", self.until_last))
        return [
            {
                "compared_with": name,
                "earlier": change.earlier,
                "later": change.later,
                "verdict": change.verdict,
                "changed_positions": change.places.change,
                "new_documents": change.new_documents.change,
                "new_queries": change.new_queries,
            }
            for name, changes in compared
            for change in changes
        ]

    def facts(self) -> Mapping[str, Any]:
        """Return the facts that the notes of the class list."""
        return {
            "conclusion": self.conclusion,
            "trusted": self.trusted,
            "days": [
                {
                    "day": day.name,
                    "first": _plain_time(day.first),
                    "last": _plain_time(day.last),
                    "sessions": day.sessions,
                    "clicks_per_session": day.clicks_per_session,
                    "ctr_by_rank": [
                        {"rank": r + 1, "ctr": day.ctr[r], "low": day.low[r], "high": day.high[r]}
                        for r in range(len(day.ctr))
                    ],
                }
                for day in self.days
            ],
            "since_the_day_before": [_change_facts(change) for change in self.steps],
            "until_the_last_day": [_change_facts(change) for change in self.until_last],
        }

    def _document(self) -> Document:
        """Show the changes by day, and click-through rates."""
        sections = [
            Section(
                "Days, and changes since the day before (beyond chance)",
                table=_drift_table(self),
                figure=lambda: _change_figure(self.steps),
            ),
            Section(
                "Click-through rate by rank, with 95 % intervals",
                table=_ctr_table(self),
                figure=lambda: _ctr_figure(self.days),
            ),
            Section("Clicks on the same documents at the same ranks", table=_click_table(self.steps), page_only=True),
            Section("Method", _METHOD, page_only=True),
        ]
        return Document(
            "Drift between days: can an old model still be used?",
            self.conclusion,
            [section for section in sections if section.text or section.table],
            {"days": [day.name for day in self.days], "ranks": self.ranks},
            "usable" if self.trusted else "not usable",
        )


def _drift_table(result: DriftResult) -> Rows:
    """Tabulate the days and what changed since the day before."""
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


def _ctr_table(result: DriftResult) -> Rows:
    """Tabulate click-through rates by day and rank, with half the width of their 95 % intervals."""
    width = min(max(len(day.ctr) for day in result.days), result.ranks)
    return [{"day": day.name} | {f"rank {r + 1}": _rate_text(day, r) for r in range(width)} for day in result.days]


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


def _plain_time(time: Any) -> float | str | None:
    """Return a time as a number or text."""
    return time if time is None or isinstance(time, float) else str(time)
