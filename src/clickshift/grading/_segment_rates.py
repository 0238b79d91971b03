"""What follows a click on each label of a segment, with tests of whether labels differ on the same documents."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, final

import numpy as np

from clickshift.core.intervals import normal_quantile
from clickshift.core.text import join_words
from clickshift.counts.segment_conversions import SegmentConversions
from clickshift.counts.segment_differences import SegmentDifference, segment_difference
from clickshift.data.signal_values import SignalValue
from clickshift.display.document import Section
from clickshift.display.figures import dot_plot
from clickshift.display.tables import Rows
from clickshift.learners.conversion_rates import rank_trend
from clickshift.models.intervals import counts_interval

RATE_LEVEL = 0.01
"""P-value below which conversions depend on the rank of the click, or on the segment."""
_LABELS_NAMED = 3
"""Number of labels that a conclusion names."""


@final
@dataclass(frozen=True, eq=False)
class SegmentRates:
    """Conversions of one value, by one segment.

    Parameters
    ----------
    counts
        Clicks of each label, and what followed them.
    number
        Number of the value in `counts`.
    value
        The value.
    level
        Confidence level of the intervals.
    """

    counts: SegmentConversions
    number: int
    value: SignalValue
    level: float

    @property
    def name(self) -> str:
        """Name of the segment."""
        return self.counts.segments.name

    @cached_property
    def difference(self) -> SegmentDifference:
        """Test of whether the same documents convert alike in all labels, given the rank of the click."""
        return segment_difference(self.counts.followed[self.number], self.counts.segments)

    @cached_property
    def rank_trend(self) -> tuple[float, float]:
        """Relative change of the rate per rank for the same documents on the same label, and its p-value."""
        cells = self.counts.followed[self.number]
        label, rank = np.divmod(cells.situation, cells.n_ranks)
        return rank_trend(cells.pair * cells.n_segments + label, rank, cells.impressions, cells.clicks)

    @property
    def differs(self) -> bool:
        """Whether labels differ beyond chance."""
        return self.difference.p_value < RATE_LEVEL

    @cached_property
    def is_rate(self) -> bool:
        """Whether what follows a click is 0 or 1, so that its mean is the rate of conversions."""
        conversions = self.counts.by_label(self.counts.followed[self.number])[1]
        return bool((self.counts.amounts[self.number][0] == conversions).all())

    def facts(self) -> dict[str, Any]:
        """Return the tests, and a row per label."""
        slope, p_value = self.rank_trend
        return {
            "segment": self.name,
            "signal": str(self.value),
            "p_value": self.difference.p_value,
            "rank_slope": slope,
            "rank_p_value": p_value,
            "labels": self.labels,
        }

    @cached_property
    def labels(self) -> Rows:
        """Rows of the labels: clicks, conversions and value per click, and how they compare on the same documents."""
        counts, k = self.counts, self.number
        shown, followed = counts.by_label(counts.shown), counts.by_label(counts.followed[k])
        clicks, conversions = followed[0], followed[1]
        n = np.maximum(clicks, 1e-12)
        low, high = counts_interval(np.stack([conversions, clicks]), self.level)
        total, squares = counts.amounts[k]
        mean = total / n
        half = normal_quantile((1 + self.level) / 2) * np.sqrt(np.maximum(squares / n - mean**2, 0) / n)
        value_low, value_high = np.maximum(mean - half, 0.0), mean + half
        if self.is_rate:
            value_low, value_high = low, high
        columns = {
            "label": counts.segments.labels,
            "sessions": counts.segments.sessions[: len(n)],
            "impressions": shown[0],
            "click_through_rate": shown[1] / np.maximum(shown[0], 1e-12),
            "relative_clicks": shown[1] / np.maximum(shown[2], 1e-12),
            "clicks": clicks,
            "conversions": conversions,
            "rate": conversions / n,
            "rate_low": low,
            "rate_high": high,
            "relative_conversions": conversions / np.maximum(followed[2], 1e-12),
            "value": mean + self.value.click,
            "low": value_low + self.value.click,
            "high": value_high + self.value.click,
        }
        lists = [column.tolist() if isinstance(column, np.ndarray) else list(column) for column in columns.values()]
        rows: Rows = [dict(zip(columns, row, strict=True)) for row in zip(*lists, strict=True)]
        return [row for row in rows if row["clicks"] > 0]

    def sentence(self) -> str:
        """Say how often clicks of each label are followed; "" if labels do not differ beyond chance."""
        if not self.differs:
            return ""
        first = sorted(self.labels, key=lambda row: -row["clicks"])[:_LABELS_NAMED]
        rates = join_words([f"{row['rate']:.1%} on {row['label']}" for row in first])
        return f"{str(self.value)[:1].upper()}{str(self.value)[1:]} follows {rates} ({self.name}), beyond chance."

    def section(self) -> Section:
        """Return the section of a page: a dot per label, and the table."""
        unit = f"{self.value} per click"
        table = [
            {
                self.name: row["label"],
                "click-through rate": f"{row['click_through_rate']:.1%}",
                "clicks": as_count(row["clicks"]),
                "conversions": as_count(row["conversions"]),
                **({} if self.is_rate and not self.value.click else {"rate": f"{row['rate']:.1%}"}),
                "ratio": f"{row['relative_conversions']:.2f}",
                unit: row["value"],
                "low": row["low"],
                "high": row["high"],
            }
            for row in self.labels
        ]
        if (slope := self.rank_trend)[1] < RATE_LEVEL:
            trend = f"On the same {self.name}, the same documents convert {slope[0]:+.1%} per rank of the click. "
        else:
            trend = f"On the same {self.name}, conversions do not depend on the rank of the click beyond chance. "
        return Section(
            f"{self.value} by {self.name}",
            table=table,
            figure=partial(dot_plot, self.labels, axis=f"{unit}, with {self.level:.0%} intervals"),
            text=f"{self._test()} {trend}",
            caption="Ratio: conversions divided by what they were if each document converted alike on all labels.",
            name=f"{self.value}-by-{self.name}",
        )

    def _test(self) -> str:
        """Say whether labels differ on the same documents."""
        if not self.difference.degrees_of_freedom:
            return f"Too few documents were clicked on several labels of {self.name} to compare them."
        p = "below 0.001" if self.difference.p_value < 0.001 else f"{self.difference.p_value:.2g}"
        verb = "differ" if self.differs else "do not differ beyond chance"
        return f"The labels of {self.name} {verb} in conversions of the same documents at the same ranks (p-value {p})."


def as_count(count: float) -> float | int:
    """Return a count as an integer, unless it is a fraction because sessions had weights."""
    return int(count) if count == int(count) else count
