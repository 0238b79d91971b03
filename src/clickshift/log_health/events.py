"""Checks that only the import of events can make: what the events had and a log cannot show."""

from __future__ import annotations

from typing import NamedTuple

from clickshift.log_health._columns import LogColumns
from clickshift.log_health.finding import Check, CheckOptions, Evidence, NeedsError

WINDOW = "30min"
"""Window of clicks with which a file of events is imported to be checked."""
_OWN = {
    "other-action",
    "gap-closed",
    "gap-truncated",
    "gap",
    "gap-click",
    "no-first-rank",
    "beyond-gap",
    "beyond-gap-click",
    "late-conversion",
    "conversion-before-impression",
}
"""Reasons of the check of gaps, and what is meant to be left out."""


class _Reasons(NamedTuple):
    """Reasons of an import that are one finding, and what they are compared with."""

    codes: tuple[str, ...]
    what: str
    total: tuple[str, ...]
    unit: str
    window: bool = False
    kept: bool = False  # whether `total` counts only what was not left out

    def find(self, log: LogColumns, options: CheckOptions) -> Evidence:
        """Measure the share of what was counted for these reasons."""
        if options.events is None:
            raise NeedsError("needs events: pass the result of read_events, or the file of events")
        rows = [row for row in options.events.reasons if row["reason"] in self.codes]
        numbers = options.events.numbers
        found = float(sum(row["count"] for row in rows))
        lost = sum(row["count"] for row in rows if self.kept and row["outcome"] != "repaired")
        total = max(sum(float(numbers.get(name, 0)) for name in self.total) + lost, found)
        if not total:
            raise NeedsError(f"needs {self.unit}, of which these events have none")
        if self.window and not found and log.time is None:
            raise NeedsError("needs the column time")
        if self.window and not found and not options.window:
            raise NeedsError("needs a window: `clickshift import --window 30min`, or the file of events itself")
        examples = [{"event": text} for row in rows for text in row["examples"].split("; ") if text][:5]
        text = f"{found:,.0f} of {total:,.0f} {self.unit} {self.what}."
        return Evidence(text, found, total, shown=examples, unit=self.unit)


def left_out(log: LogColumns, options: CheckOptions) -> Evidence:
    """Measure how many events were left out for reasons that no other check names."""
    if options.events is None:
        raise NeedsError("needs events: pass the result of read_events, or the file of events")
    named = _OWN.union(_PARTS, *(reasons.codes for reasons in _BY_NAME.values()))
    rows = [row for row in options.events.reasons if row["outcome"] != "repaired" and row["reason"] not in named]
    found = float(sum(row["count"] for row in rows))
    numbers = options.events.numbers
    uncounted = float(sum(row["count"] for row in rows if row["reason"] not in _COUNTED))
    total = uncounted + sum(float(numbers.get(name, 0)) for name in ("impressions", "clicks", "conversions"))
    rows.sort(key=lambda row: -row["count"])
    named_reasons = ", ".join(f"{row['what']} ({row['count']:,})" for row in rows[:3])
    text = f"{found:,.0f} of {total:,.0f} events were left out: {named_reasons}." if rows else "No event was left out."
    examples = [{"event": text} for row in rows for text in row["examples"].split("; ") if text][:5]
    return Evidence(text, found, total, shown=examples, unit="events")


_BY_NAME = {
    "ties": _Reasons(
        ("rank-taken",),
        "stand at a rank that another result of the list takes",
        ("results",),
        "results",
        kept=True,
    ),
    "repeated-events": _Reasons(
        ("repeated-impression", "repeated-click"),
        "repeat an earlier one of the same document and list",
        ("impressions", "clicks"),
        "events",
    ),
    "clicks-without-impressions": _Reasons(
        ("shown-by-click", "click-without-impression"),
        "have no impression",
        ("clicked",),
        "clicked results",
        kept=True,
    ),
    "clicks-before-impressions": _Reasons(
        ("click-before-impression",), "came before the impression of their document", ("clicks",), "clicks"
    ),
    "late-clicks": _Reasons(
        ("late-click",), "came more than the window after their impression", ("clicks",), "clicks", window=True
    ),
}
_COUNTED = {"no-rank", "rank-below-base", "rank-too-high", "conversion-without-impression", "view-without-result"}
"""Reasons for which events are left out that are among the numbers of events."""
_PARTS = {"rank-taken-click"}
"""Reasons whose events are counted for another reason, too."""


def _check(name: str, title: str, remedy: str, limits: tuple[float, float, float]) -> Check:
    """Make the check of some reasons of an import."""
    return Check(name, title, _BY_NAME[name].find, remedy, limits[0], limits[1], limits[2])


CHECKS = (
    _check(
        "ties",
        "Two results at a rank (ties)",
        "Give each shown list an id of its own: type-ahead states, pages or tabs are one list here. Otherwise the "
        "earliest impression keeps the rank.",
        (1e-9, 0.02, 0.2),
    ),
    _check(
        "repeated-events",
        "Repeated events",
        "The import counts them once. Find out why they are sent repeatedly: scrolling back, retries, two trackers.",
        (0.001, 0.05, 2.0),
    ),
    _check(
        "clicks-without-impressions",
        "Clicks without impressions",
        "Fix the tracking of impressions: these results were seen, and others like them, without a click, are missing. "
        "The import shows them at the rank of their click, which makes click-through rates too high.",
        (1e-9, 0.02, 0.2),
    ),
    _check(
        "clicks-before-impressions",
        "Clicks before impressions",
        "Compare the clocks of both kinds of events; impressions that are sent in batches come late. With `--window`, "
        "the import leaves such clicks out.",
        (0.001, 0.02, 0.2),
    ),
    _check(
        "late-clicks",
        "Late clicks",
        "These users came back to an old page. `clickshift import --window 30min` leaves such clicks out.",
        (0.001, 0.05, 0.2),
    ),
    Check(
        "left-out-events",
        "Events that belong to no list",
        left_out,
        "Read the reasons that `clickshift import --json` counts.",
        0.001,
        0.05,
        0.5,
    ),
)
"""Checks of events."""
