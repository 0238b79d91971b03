"""Curves by rank of a log with views or segments: observed examination, and the click-through rates of each segment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float

from clickshift.core.intervals import wilson_interval
from clickshift.counts.cells import Cells, has_views
from clickshift.counts.segment_differences import SegmentDifference, counts_by_segment, segment_difference
from clickshift.counts.segment_numbers import SegmentNumbers
from clickshift.data.encoded_log import Log
from clickshift.display.tables import Rows

__all__ = ["LogCurves", "SegmentClicks"]

MOST_LABELS, _LEAST_SESSIONS = 6, 100
"""Labels of a segment with a curve each, at most, and the number of sessions from which a label has one."""


@final
@dataclass(frozen=True, eq=False)
class SegmentClicks:
    """Clicks by rank of the largest labels of a segment.

    Parameters
    ----------
    name
        Name of the segment.
    n_labels
        Number of labels in the log.
    labels, sessions
        The largest labels, the largest first, and the number of their sessions.
    impressions, clicks
        Impressions and clicks by label and rank.
    difference
        Test that all labels click alike, given document and rank.
    """

    name: str
    n_labels: int
    labels: tuple[str, ...]
    sessions: tuple[int, ...]
    impressions: Float[np.ndarray, "label rank"]
    clicks: Float[np.ndarray, "label rank"]
    difference: SegmentDifference

    @classmethod
    def of(cls, segments: SegmentNumbers, cells: Cells) -> SegmentClicks | None:
        """Add up counts by segment; None if fewer than two labels have enough sessions.

        Parameters
        ----------
        segments
            The segment.
        cells
            Impressions and clicks by pair and rank, counted by segment.
        """
        sessions = np.array(segments.sessions[: len(segments.labels)])
        order = np.argsort(-sessions, kind="stable")[:MOST_LABELS]
        order = order[sessions[order] >= _LEAST_SESSIONS]
        if len(order) < 2:
            return None
        impressions, clicks = (counts.reshape(segments.n, -1)[order] for counts in cells.by_situation())
        labels = tuple(segments.labels[k] for k in order)
        difference = segment_difference(cells, segments)
        known = len(segments.labels)
        return cls(segments.name, known, labels, tuple(sessions[order].tolist()), impressions, clicks, difference)

    @property
    def sentence(self) -> str:
        """Whether labels differ, and which of them have a curve if not all do."""
        some = f" The {len(self.labels)} largest of {self.n_labels} labels are shown."
        return self.difference.sentence(self.name) + (some if len(self.labels) < self.n_labels else "")

    def rows(self) -> Rows:
        """Return the click-through rate of each label (segment) and rank with its 95 % Wilson interval."""
        rows = []
        for label, shown, clicks in zip(self.labels, self.impressions, self.clicks, strict=True):
            for k, rate in enumerate(_rates(clicks, shown)):
                row = {"segment": label, "rank": k + 1, "impressions": round(shown[k]), "clicks": round(clicks[k])}
                rows.append(row | dict(zip(("ctr", "low", "high"), rate, strict=True)))
        return rows

    def facts(self) -> dict[str, Any]:
        """Return the sentence, the p-value, and the sessions and rows of each label."""
        rows, ranks = self.rows(), self.clicks.shape[1]
        return {
            "segment": self.name,
            "conclusion": self.sentence,
            "p_value": self.difference.p_value,
            "labels": [
                {"label": label, "sessions": n, "by_rank": rows[k * ranks : (k + 1) * ranks]}
                for k, (label, n) in enumerate(zip(self.labels, self.sessions, strict=True))
            ],
        }


@final
@dataclass(frozen=True, eq=False)
class LogCurves:
    """Curves by rank of what a log has beyond lists and clicks.

    Parameters
    ----------
    observed
        Observed examination of each rank: rate, low and high, each None where no view is known; empty without views.
    segments
        Clicks by rank of each segment.
    """

    observed: Sequence[tuple[float | None, ...]] = ()
    segments: Sequence[SegmentClicks] = ()

    @classmethod
    def of(cls, log: Log) -> LogCurves:
        """Count a log: once for its views, and once for each of its segments.

        Parameters
        ----------
        log
            Sessions or an encoded log.
        """
        found = (SegmentClicks.of(segments, cells) for segments, cells in counts_by_segment(log))
        return cls(_observed(log), [one for one in found if one is not None])


def _observed(log: Log) -> list[tuple[float | None, ...]]:
    """Return the observed examination by rank; nothing if no result is known not to have been viewed."""
    if not has_views(log):
        return []
    cells = Cells.of(log, views=True)
    assert cells.views is not None
    if not cells.views.unviewed.any():
        return []
    clicks, skips, unviewed = (np.bincount(cells.rank(), counts, cells.n_ranks) for counts in cells.views[:3])
    return _rates(clicks + skips, clicks + skips + unviewed)


def _rates(successes: Float[np.ndarray, " rank"], trials: Float[np.ndarray, " rank"]) -> list[tuple[float | None, ...]]:
    """Return rates with the ends of their 95 % Wilson intervals, None where there are no trials."""
    known = np.maximum(trials, 1.0)
    columns = zip(
        (successes / known).tolist(), *(end.tolist() for end in wilson_interval(successes, known)), strict=True
    )
    return [rate if n else (None, None, None) for rate, n in zip(columns, trials, strict=True)]
