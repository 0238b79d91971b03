"""Checks that only the import of events can make: what the events had and a log cannot show."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from clickshift.counts.cells import Cells
from clickshift.data.sessions import Sessions
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
_ADDED = {
    "repeated-impression": (1, 0),
    "repeated-click": (0, 1),
    "shown-by-click": (1, 1),
    "click-before-impression": (0, 1),
    "late-click": (0, 1),
}
"""Impressions and clicks that each event of a reason adds to the counts of its result."""
_SHOWN, _ONCE = {"shown-by-click", "click-before-impression"}, {"click-before-impression", "late-click"}
"""Reasons whose repaired events the log has; and those of which one click of a result counts."""


class _Reasons(NamedTuple):
    """Reasons of an import that are one finding, and what they are compared with."""

    codes: tuple[str, ...]
    what: str
    total: tuple[str, ...]
    unit: str
    window: bool = False
    kept: bool = False  # whether `total` counts only what was not left out
    name: str = "these clicks"
    lists: bool = False  # whether whole lists are wrong, and not only the counts of these results

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
        return Evidence(
            text,
            found,
            total,
            shown=examples,
            unit=self.unit,
            **_effect(log, options, self.codes, found, self.name, self.lists),
        )


def _effect(
    log: LogColumns, options: CheckOptions, reasons: Collection[str], number: float, name: str, lists: bool
) -> dict[str, Any]:
    """Return fields of `Evidence`: what the curves with and without the events of some reasons are computed of.

    Of what is no result of a list there is no curve. Where whole lists are wrong, the curve is that without them.
    """
    events = options.events
    if not isinstance(log.log, Sessions) or isinstance(events.log, Path):
        return {"no_effect": "the import wrote the log to a file. Check the events themselves"}
    affected = {reason: found for reason, found in events.affected.items() if reason in reasons}
    if lists and affected:
        rows = np.zeros(len(log), bool)
        rows[np.concatenate([found[0] for found in affected.values()])] = True
        return {"rows": rows, "name": f"the {_counted(int(rows.sum()), 'list')} of {name}"}
    affected = {reason: found[:, found[1] >= 0] for reason, found in affected.items() if reason in _ADDED}
    known = int(sum(found[2].sum() for found in affected.values()))
    if not known:
        return {"no_effect": "these events belong to no result of the log"}
    repaired = {row["reason"] for row in events.reasons if row["outcome"] == "repaired"}
    named = name if known == number else f"{known:,} of {name}"
    return {"compared": partial(_counts, log, log.log, affected, _SHOWN & repaired), "name": named}


def _counts(
    log: LogColumns, sessions: Sessions, affected: Mapping[str, Int[np.ndarray, "3 result"]], shown: Collection[str]
) -> tuple[Cells, Cells]:
    """Return the counts with and without the events of some reasons; the log has those of `shown`."""
    cells = log.cells
    keys = cells.pair.astype(np.int64) * cells.n_situations + cells.situation
    more, fewer = np.zeros((2, len(keys))), np.zeros((2, len(keys)))
    for reason, (row, rank, number) in affected.items():
        if reason in _ONCE:  # a result is clicked or not; a click that the log has anyhow is no other one
            number = (~sessions.click[row, rank] | (reason in shown)).astype(np.int64)
        cell = np.searchsorted(keys, sessions.rankings.pair[row, rank] * np.int64(cells.n_situations) + rank)
        change = np.bincount(cell, number, len(keys))
        (fewer if reason in shown else more)[:] += np.array(_ADDED[reason])[:, None] * change
    return _plus(cells, more), _plus(cells, -fewer)


def _plus(cells: Cells, change: Float[np.ndarray, "2 cell"]) -> Cells:
    """Return counts with more or fewer impressions and clicks; the same object if they do not change."""
    if not change.any():
        return cells
    impressions = np.maximum(cells.impressions + change[0], 0)
    return replace(cells, impressions=impressions, clicks=np.clip(cells.clicks + change[1], 0, impressions))


def _counted(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


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
    effect = _effect(log, options, {row["reason"] for row in rows}, found, "these events", lists=True)
    return Evidence(text, found, total, shown=examples, unit="events", **effect)


_BY_NAME = {
    "ties": _Reasons(
        ("rank-taken",),
        "stand at a rank that another result of the list takes",
        ("results",),
        "results",
        kept=True,
        name="these results",
        lists=True,
    ),
    "repeated-events": _Reasons(
        ("repeated-impression", "repeated-click"),
        "repeat an earlier one of the same document and list",
        ("impressions", "clicks"),
        "events",
        name="these repetitions",
    ),
    "clicks-without-impressions": _Reasons(
        ("shown-by-click", "click-without-impression"),
        "have no impression",
        ("clicked",),
        "clicked results",
        kept=True,
        name="these results",
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
