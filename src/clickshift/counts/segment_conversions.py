"""Clicks, and what followed them, by segment: whether the same documents are clicked, and convert, alike in all labels.

Clicks whose value is known are the impressions of conversions: the counts of a signal by pair, rank and segment are
`Cells`, and the tests for clicks by segment (`segment_differences`) apply.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float

from clickshift.counts.cells import Cells
from clickshift.counts.conversion_counts import count_click_cells
from clickshift.counts.segment_differences import comparable_segments
from clickshift.counts.segment_numbers import SegmentNumbers
from clickshift.data.encoded_log import Log
from clickshift.data.signal_values import SignalValue


@final
@dataclass(frozen=True, eq=False)
class SegmentConversions:
    """Clicks of each label of a segment, and what followed them.

    Parameters
    ----------
    segments
        The segment.
    shown
        Impressions and clicks by pair and rank, by segment.
    followed
        Of each value: clicks whose value is known, as impressions, and conversions, as clicks.
    amounts
        Of each value: its sum, and the sum of its squares, by label.
    """

    segments: SegmentNumbers
    shown: Cells
    followed: tuple[Cells, ...]
    amounts: Float[np.ndarray, "value 2 label"]

    @classmethod
    def of(
        cls, log: Log, values: Sequence[SignalValue], *, keep_without_click: bool = False
    ) -> list[SegmentConversions]:
        """Count a log by each of its segments, arms included; ones with fewer than two labels or over 100 are left out.

        Parameters
        ----------
        log
            Sessions or an encoded log.
        values
            What to count.
        keep_without_click
            Whether a conversion without a click counts as one with a click.
        """
        found = sorted(comparable_segments(log), key=lambda segments: segments.name)
        return [cls._count(log, values, segments, keep_without_click) for segments in found]

    @classmethod
    def _count(
        cls, log: Log, values: Sequence[SignalValue], segments: SegmentNumbers, keep_without_click: bool
    ) -> SegmentConversions:
        """Count a log by one segment."""
        n_situations, labels = log.n_ranks * segments.n, len(segments.labels)
        followed, amounts = [], np.zeros((len(values), 2, labels))
        counted = count_click_cells(log, values, keep_without_click=keep_without_click, segments=segments)
        for k, (key, (clicks, conversions, total, squares), _) in enumerate(counted):
            pair, situation = np.divmod(key, n_situations)
            columns = pair, situation, clicks, conversions
            followed.append(Cells(log.vocabulary, log.n_ranks, "rank", *columns, n_segments=segments.n))
            for j, amount in enumerate((total, squares)):
                amounts[k, j] = np.bincount(situation // log.n_ranks, amount, segments.n)[:labels]
        return cls(segments, Cells.of(log, segments=segments), tuple(followed), amounts)

    def by_label(self, cells: Cells) -> Float[np.ndarray, "3 label"]:
        """Return the impressions and clicks of each label, and its clicks if all labels clicked alike.

        Parameters
        ----------
        cells
            `shown`, or one of `followed`. Labels are alike if each document is clicked at the same rate in all of them
            at the same rank; for conversions, whatever the rank.
        """
        n, labels = cells.n_ranks, len(self.segments.labels)
        label, rank = np.divmod(cells.situation, n)
        alike = cells.pair * n + rank if cells is self.shown else cells.pair
        size = cells.vocabulary.n_pairs * n
        impressions, clicks = (np.bincount(alike, counts, size) for counts in (cells.impressions, cells.clicks))
        expected = cells.impressions * (clicks / np.maximum(impressions, 1e-12))[alike]
        columns = (cells.impressions, cells.clicks, expected)
        return np.stack([np.bincount(label, column, self.segments.n)[:labels] for column in columns])
