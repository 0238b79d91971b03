"""Totals of what a log has beyond lists and clicks: holes, signals of results, segments of sessions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from clickshift.data._columns import VIEWED
from clickshift.data.sessions import Sessions

_LABELS_SHOWN = 6
"""Number of labels of a segment that a text names."""


class SignalTotals(NamedTuple):
    """Totals of a signal over the results of a log.

    Parameters
    ----------
    known
        Number of results whose value is known.
    positive
        Number of those with a value above 0.
    total
        Sum of the known values.
    """

    known: float
    positive: float
    total: float


@dataclass(frozen=True)
class ColumnTotals:
    """Totals of the optional columns of a log; each session counts as often as its row says.

    Parameters
    ----------
    results
        Number of results.
    holes
        Number of ranks above the end of a list where nothing is shown.
    signals
        Totals of each signal.
    segments
        Number of sessions of each label of each segment; sessions without a label are not in it.
    by_position
        Whether the log has propensities by position.
    """

    results: float
    holes: float
    signals: dict[str, SignalTotals]
    segments: dict[str, dict[str, int]]
    by_position: bool

    @classmethod
    def of(cls, part: Sessions) -> ColumnTotals:
        """Add up the sessions of one part of a log."""
        rankings, count = part.rankings, part.count.astype(np.float64)
        holes = float(count @ (rankings.length - rankings.n_shown)) if rankings.has_holes else 0.0
        signals = {}
        for name, values in part.signals.items():
            known = rankings.shown if values.dtype == bool else rankings.shown & ~np.isnan(values)
            number = np.where(known, values, 0.0)
            sums = (known, number > 0, number)
            signals[name] = SignalTotals(*(float((count @ column).sum()) for column in sums))
        segments = {
            name: dict(zip(segment.labels, segment.sizes(part.count).tolist(), strict=True))
            for name, segment in part.segments.items()
        }
        results = float(count @ rankings.n_shown)
        return cls(results, holes, signals, segments, rankings.propensity is not None)

    @classmethod
    def sum(cls, parts: Sequence[ColumnTotals]) -> ColumnTotals:
        """Add up the parts of a log, which have the same columns and labels."""
        signals = {
            name: SignalTotals(*map(sum, zip(*(part.signals[name] for part in parts), strict=True)))
            for name in parts[0].signals
        }
        segments = {
            name: {label: sum(part.segments[name][label] for part in parts) for label in labels}
            for name, labels in parts[0].segments.items()
        }
        results, holes = sum(part.results for part in parts), sum(part.holes for part in parts)
        return cls(results, holes, signals, segments, parts[0].by_position)

    @property
    def hole_share(self) -> float:
        """Share of the ranks down to the ends of lists where nothing is shown."""
        return self.holes / (self.results + self.holes)

    def facts(self) -> dict[str, Any]:
        """Return the facts of the columns that the log has; see `LogSummary`."""
        facts: dict[str, Any] = {}
        if self.holes:
            facts |= {"holes": round(self.holes), "hole_share": self.hole_share}
        if self.signals:
            facts["signals"] = {
                name: {
                    "known": signal.known / self.results,
                    "rate": signal.positive / signal.known if signal.known else None,
                    "total": signal.total,
                }
                for name, signal in self.signals.items()
            }
        if self.segments:
            facts["segments"] = self.segments
        return facts | ({"propensities_by_position": True} if self.by_position else {})

    def sizes(self, sessions: int) -> dict[str, str]:
        """Return the columns that the log has as people read them, by what they are.

        Parameters
        ----------
        sessions
            Number of sessions of the log.
        """
        texts = {"holes": f"{self.holes:,.0f} ({self.hole_share:.1%} of ranks)"} if self.holes else {}
        for name, signal in self.signals.items():
            rate = f"{signal.positive / signal.known:.1%} of results" if signal.known else "unknown"
            total = "" if signal.total == signal.positive else f", {signal.total:,.6g} in all"
            known = "" if signal.known == self.results else f", known of {signal.known / self.results:.1%}"
            texts[name if name == "viewed" else f"signal {name}"] = f"{rate}{total}{known}"
        for name, labels in self.segments.items():
            texts["arm" if name == "arm" else f"segment {name}"] = _shares(labels, sessions)
        return texts | ({"propensities by position": "yes"} if self.by_position else {})

    def describe(self) -> str:
        """Return what the log has in one line: holes, views, further signals and segments; "" if it has none."""
        named = [f"{self.holes:,.0f} holes"] if self.holes else []
        if (views := self.signals.get(VIEWED)) is not None:
            named += [f"views of {views.known:,.0f} results"]
        others = [name for name in self.signals if name != VIEWED]
        named += [f"signals {', '.join(others)}"] if others else []
        named += [f"segments {', '.join(self.segments)}"] if self.segments else []
        return "; ".join(named)


def _shares(labels: dict[str, int], sessions: int) -> str:
    """Return the largest labels of a segment with their shares of the sessions."""
    ordered = sorted(labels.items(), key=lambda item: (-item[1], item[0]))
    rest = sum(size for _, size in ordered[_LABELS_SHOWN:])
    unknown = sessions - sum(labels.values())
    shown = [
        *ordered[:_LABELS_SHOWN],
        *([("others", rest)] if rest else []),
        *([("unknown", unknown)] if unknown else []),
    ]
    return ", ".join(f"{label} {size / sessions:.1%}" for label, size in shown)
