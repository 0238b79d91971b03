"""Comparison of days as a result: a verdict, tables and charts."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from clickshift.core.text import join_words
from clickshift.data.description import period
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
from clickshift.display.values import decimals

_METHOD = f"""Positions: total variation distance (0 to 1) between the documents shown at each rank of a query on a day
and on the day before, corrected for the distance expected by chance from one ranker. New documents: results that the
day before never showed for the same query, corrected for chance. CTR ratio: click-through rate on the later day over
that on the earlier day, for the documents shown at a rank on both days. A model of an earlier day should not be trusted
if one of the changes is significantly larger than {POSITION_THRESHOLD:.0%} of the positions,
{NEW_DOCUMENT_THRESHOLD:.0%} of the results, or a CTR ratio of {1 + CLICK_THRESHOLD:.2f} in either direction."""
_VERDICT_TEXT = {"changed": "changed", "some": "a little", "same": "no", "unclear": "unclear"}
_LAYOUT: dict[str, Any] = {
    "template": "plotly_white",
    "margin": {"l": 60, "r": 20, "t": 40, "b": 50},
    "showlegend": False,
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

    @property
    def verdict(self) -> str:
        """Whether the last day differs from an earlier one: "changed", "not changed" or "unclear"."""
        verdicts = {change.verdict for change in self.until_last}
        return next((word for word in ("changed", "unclear") if word in verdicts), "not changed")

    def _document(self) -> Document:
        """Show the changes by day, and click-through rates."""
        width = max(len(day.ctr) for day in self.days)
        of = f" of {width}" if width > self.ranks else ""
        sections = [
            Section(
                f"Click-through rate by day, ranks 1 to {min(width, self.ranks)}{of}, with 95 % intervals",
                table=_ctr_table(self),
                figure=lambda: _ctr_figure(self.days, min(width, self.ranks)),
                name="click-through rate",
            ),
            Section(
                "Clicks on the same documents at the same ranks",
                table=_click_table(self.steps),
                caption="Ratio of the later to the earlier day's click-through rate, with its confidence interval, "
                "simultaneous for all ranks.",
                page_only=True,
            ),
            Section("Method", _METHOD, page_only=True),
        ]
        names = [day.name for day in self.days]
        first, last = self.days[0].first, self.days[-1].last
        span = period(first, last) or period(names[0], names[-1]).removeprefix("time ")
        sessions = round(sum(day.sessions for day in self.days))
        return Document(
            "Drift between days: can an old model still be used?",
            self.conclusion,
            [section for section in sections if section.text or section.table],
            {"days": names, "ranks": self.ranks},
            self.verdict,
            f"{sessions:,} sessions of {len(self.days)} days, {span}",
            Section(
                "Changes since the day before, beyond chance",
                table=_drift_table(self),
                figure=lambda: _change_figure(self.steps),
                caption="Dotted: the limits beyond which an old model should not be trusted; the nearer end of an "
                "interval decides, with an error probability of one in a thousand. Clicks: the click-through rate of "
                "the same documents, as a ratio to the day before.",
                name="changes",
            ),
        )


def _drift_table(result: DriftResult) -> Rows:
    """Tabulate the days and what changed since the day before."""
    has_times, table = all(day.last is not None for day in result.days), []
    for day, step in zip(result.days, (None, *result.steps), strict=True):
        row: dict[str, Any] = {"day": day.name}
        if has_times:
            row |= {"from": str(day.first), "to": str(day.last)}
        row |= {"sessions": round(day.sessions), "clicks per session": f"{day.clicks_per_session:.3f}"}
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
    """Plot a panel for each kind of change, corrected for chance, with its threshold."""
    from plotly.subplots import make_subplots

    ratios = (1 / (1 + CLICK_THRESHOLD), 1 + CLICK_THRESHOLD)
    kinds = (
        f"Changed positions (limit {POSITION_THRESHOLD:.0%})",
        f"New documents (limit {NEW_DOCUMENT_THRESHOLD:.0%})",
        f"Clicks at rank 1 (limits {ratios[0]:.2f} and {ratios[1]:.2f})",
    )
    days = _axis_names([step.later for step in steps])
    figure = make_subplots(3, 1, shared_xaxes=True, subplot_titles=kinds, vertical_spacing=0.11)
    figure.update_annotations(font={"size": 13})
    for panel, (field, threshold) in enumerate(
        (("places", POSITION_THRESHOLD), ("new_documents", NEW_DOCUMENT_THRESHOLD)), 1
    ):
        shares: list[ChanceCorrectedChange] = [getattr(step, field) for step in steps]
        ends = [(share.change, share.low, share.change) for share in shares]
        _add_day_dots(figure, panel, days, ends, ".1%", colour=COLOURS[panel - 1])
        _add_threshold(figure, panel, threshold)
        highest = max([threshold, *(share.change for share in shares if not math.isnan(share.change))])
        figure.update_yaxes(tickformat=".0%", range=[-0.04 * highest, 1.25 * highest], nticks=4, row=panel, col=1)
    firsts = [next((clicks for clicks in step.clicks if clicks.rank == 0), None) for step in steps]
    values = [(math.nan,) * 3 if one is None else (one.ratio, one.low, one.high) for one in firsts]
    _add_day_dots(figure, 3, days, values, ".2f", colour=COLOURS[2])
    for threshold in ratios:
        _add_threshold(figure, 3, threshold)
    figure.update_yaxes(title="ratio", nticks=4, row=3, col=1)
    figure.update_layout(**_LAYOUT, height=520)
    return figure.update_xaxes(type="category", categoryorder="array", categoryarray=days)


def _add_day_dots(
    figure: Any,
    panel: int,
    days: Sequence[str],
    values: Sequence[tuple[float, float, float]],
    number: str,
    *,
    colour: str,
    col: int = 1,
) -> None:
    """Add a value of each day, with its interval, to a panel."""
    known = [(day, *ends) for day, ends in zip(days, values, strict=True) if not math.isnan(ends[0])]
    figure.add_scatter(
        x=[day for day, *_ in known],
        y=[value for _, value, _, _ in known],
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [_finite_or_zero(high - value) for _, value, _, high in known],
            "arrayminus": [_finite_or_zero(value - low) for _, value, low, _ in known],
            "width": 4,
        },
        mode="lines+markers",
        line={"color": colour, "width": 1.5},
        marker={"color": colour, "size": 8},
        hovertemplate=f"%{{x}}: %{{y:{number}}}<extra></extra>",
        showlegend=False,
        row=panel,
        col=col,
    )


def _add_threshold(figure: Any, panel: int, threshold: float) -> None:
    """Add a threshold to a panel, whose title names it."""
    figure.add_hline(threshold, line={"color": COLOURS[-1], "width": 1, "dash": "dot"}, row=panel, col=1)


def _axis_names(days: Sequence[str]) -> list[str]:
    """Return the labels of an axis of days: dates of one year without it.

    >>> _axis_names(["2026-05-01", "2026-06-02"]), _axis_names(["2025-12-31", "2026-01-01"]), _axis_names(["mon"])
    (['1 May', '2 June'], ['2025-12-31', '2026-01-01'], ['mon'])
    """
    dates = [period(day, day).rpartition(" ") for day in days if re.fullmatch(r"\d{4}-\d\d-\d\d", day)]
    if len(dates) == len(days) and len({year for _, _, year in dates}) == 1:
        return [date for date, _, _ in dates]
    return [html.escape(day) for day in days]


def _ctr_figure(days: Sequence[Day], ranks: int) -> Any:
    """Plot a panel for each rank with its click-through rate by day, each on an axis of its own."""
    from plotly.subplots import make_subplots

    columns = min(2, ranks)
    lines = -(-ranks // columns)
    titles = [f"rank {rank}" for rank in range(1, ranks + 1)]
    figure = make_subplots(
        lines, columns, shared_xaxes=True, subplot_titles=titles, vertical_spacing=0.25 / lines, horizontal_spacing=0.12
    )
    figure.update_annotations(font={"size": 13})
    names = _axis_names([day.name for day in days])
    for r in range(ranks):
        values = [
            (float(day.ctr[r]), float(day.low[r]), float(day.high[r])) if r < len(day.ctr) else (math.nan,) * 3
            for day in days
        ]
        _add_day_dots(figure, r // columns + 1, names, values, ".2%", colour=COLOURS[0], col=r % columns + 1)
    figure.update_layout(**_LAYOUT, height=80 + 130 * lines)
    figure.update_yaxes(tickformat=".1~%", nticks=4)
    return figure.update_xaxes(type="category", categoryorder="array", categoryarray=names)


def _click_table(steps: Sequence[Change]) -> list[dict[str, Any]]:
    """Tabulate the ratios of click-through rates by step and rank."""
    return [
        {
            "since": step.earlier,
            "day": step.later,
            "rank": clicks.rank + 1,
            "CTR ratio": clicks.ratio,
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
    half = 100 * float(day.high[rank] - day.low[rank]) / 2
    digits = 1 if half >= 0.1 or not half > 0 else min(decimals(half), 3)
    return f"{100 * day.ctr[rank]:.{digits}f} ± {half:.{digits}f}%"


def _finite_or_zero(value: float) -> float:
    """Return the value, or 0 if it is not finite."""
    return value if math.isfinite(value) else 0.0


def _plain_time(time: Any) -> float | str | None:
    """Return a time as a number or text."""
    return time if time is None or isinstance(time, float) else str(time)
