"""Whether the segments of a log click alike, given documents and ranks: the Cochran-Mantel-Haenszel test.

If segments examine alike, a document is clicked at the same rate in all of them whenever it is in the same situation.
Given the clicks of a document in a situation, those of each segment are then hypergeometric: their expectation and
covariance are known, however rarely a document was shown, and no model is fitted. Observed minus expected clicks are
added up over documents, and compared with their covariance, situation by situation.

References
----------
Mantel, N. and Haenszel, W. (1959). Statistical aspects of the analysis of data from retrospective studies of disease.
JNCI.

Agresti, A. (2013). Categorical data analysis, section 6.4. Wiley.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final, no_type_check

import numpy as np
from jaxtyping import Float
from numba import njit

from clickshift.counts.cells import Cells, count_situations, rank_of
from clickshift.counts.segment_numbers import SegmentNumbers, segment_names
from clickshift.data._columns import ARM
from clickshift.data.encoded_log import Log
from clickshift.errors import DataError

_LEAST_VARIANCE = 3.0
"""Variance of the clicks of a segment in a situation, below which they are left out: they are not nearly normal."""
DIFFER_P_VALUE = 0.05
"""P-value below which segments differ significantly."""
CLEAR_P_VALUE, CLEAR_DIFFERENCE = 0.001, 0.05
"""P-value and relative difference of click rates from which on segments clearly differ."""


@final
@dataclass(frozen=True)
class SegmentDifference:
    """Result of the test that all segments click alike, given document and situation.

    Parameters
    ----------
    statistic
        Chi-square statistic.
    degrees_of_freedom
        Its degrees of freedom; 0 where nothing can be compared.
    relative
        Root mean square of the relative differences of click rates between segments, beyond noise.
    largest
        The label and the rank, from 1, whose clicks differ most clearly, and observed divided by expected clicks.
    """

    statistic: float
    degrees_of_freedom: float
    relative: float = 0.0
    largest: tuple[str, int, float] = ("", 0, 1.0)

    @property
    def p_value(self) -> float:
        """Probability of a statistic as large as this if segments click alike."""
        return chi_square_p_value(self.statistic, self.degrees_of_freedom)

    @property
    def is_clear(self) -> bool:
        """Whether segments differ beyond noise, and by enough to matter."""
        return self.p_value < CLEAR_P_VALUE and self.relative >= CLEAR_DIFFERENCE

    def sentence(self, name: str) -> str:
        """Say whether segments differ, and where most.

        Parameters
        ----------
        name
            Name of the segment.
        """
        if not self.degrees_of_freedom:
            return f"No document was shown to enough users of several labels of {name} to compare them."
        p = "below 0.001" if self.p_value < CLEAR_P_VALUE else f"{self.p_value:.2g}"
        if self.p_value >= DIFFER_P_VALUE:
            return f"The labels of {name} do not differ significantly in clicks on the same documents (p-value {p})."
        label, rank, ratio = self.largest
        where = f", most at rank {rank} on {label}: {ratio:.2f} times the clicks of all together" if label else ""
        return f"The labels of {name} differ in clicks on the same documents at the same ranks (p-value {p}){where}."


def chi_square_p_value(statistic: float, degrees_of_freedom: float) -> float:
    """Return the probability that a chi-square variable is at least as large as a statistic.

    Parameters
    ----------
    statistic
        The statistic.
    degrees_of_freedom
        Degrees of freedom; with 0, nothing was compared, and the probability is 1.

    Examples
    --------
    >>> round(chi_square_p_value(3.841, 1), 3)
    0.05
    """
    from scipy.special import gammaincc

    return float(gammaincc(degrees_of_freedom / 2, statistic / 2)) if degrees_of_freedom > 0 else 1.0


def segment_difference(cells: Cells, segments: SegmentNumbers) -> SegmentDifference:
    """Test whether all segments click alike, given document and situation.

    Parameters
    ----------
    cells
        Impressions and clicks by pair and situation, counted by segment.
    segments
        The segment. Sessions without a known label are left out.
    """
    n, labels = count_situations(cells.by, cells.n_ranks), len(segments.labels)
    excess, expected, covariance = np.zeros((n, labels)), np.zeros((n, labels)), np.zeros((n, labels, labels))
    situation = cells.situation.astype(np.int32, copy=False)
    columns = cells.offsets, situation, cells.impressions, cells.clicks
    _add_hypergeometric(*columns, n, excess, expected, covariance)
    variance = np.einsum("sgg->sg", covariance)
    statistic = freedom = 0.0
    for s in range(n):
        used = np.flatnonzero(variance[s] >= _LEAST_VARIANCE)
        among = covariance[s][np.ix_(used, used)]
        inverse = np.linalg.pinv(among, rcond=1e-9, hermitian=True)
        statistic += float(excess[s, used] @ inverse @ excess[s, used])
        freedom += float(np.rint(np.trace(inverse @ among)))
    relative = np.sqrt(max(statistic - freedom, 0.0) / max(float(cells.clicks.sum()), 1.0))
    at_rank = np.eye(cells.n_ranks)[rank_of(cells.by, cells.n_ranks)].T  # (rank, situation)
    by_rank = at_rank @ excess, at_rank @ expected, at_rank @ variance
    return SegmentDifference(statistic, freedom, float(relative), _largest(*by_rank, segments.labels))


def segment_differences(log: Log) -> dict[str, SegmentDifference]:
    """Test each segment of a log; one with fewer than two labels, or too many to count, is left out.

    Arms of an experiment are left out, too: their users are alike, and their lists differ on purpose.

    Parameters
    ----------
    log
        Sessions or an encoded log.
    """
    return {segments.name: segment_difference(cells, segments) for segments, cells in counts_by_segment(log)}


def counts_by_segment(log: Log) -> Iterator[tuple[SegmentNumbers, Cells]]:
    """Count a log by each segment that `segment_differences` tests, by pair and rank.

    Parameters
    ----------
    log
        Sessions or an encoded log.
    """
    for segments in comparable_segments(log):
        if segments.name != ARM:
            yield segments, Cells.of(log, segments=segments)


def comparable_segments(log: Log) -> Iterator[SegmentNumbers]:
    """Find the segments of a log, arms included, that have at least two labels and at most 100.

    Parameters
    ----------
    log
        Sessions or an encoded log.
    """
    for name in segment_names(log):
        try:
            segments = SegmentNumbers.in_log(log, name)
        except DataError as error:
            if error.code != "one-segment":
                raise
            continue
        if segments.n <= _MAX_LABELS:
            yield segments


_MAX_LABELS = 100
"""Labels of a segment that is tested unasked, at most."""


def _largest(
    excess: Float[np.ndarray, "rank segment"],
    expected: Float[np.ndarray, "rank segment"],
    variance: Float[np.ndarray, "rank segment"],
    labels: tuple[str, ...],
) -> tuple[str, int, float]:
    """Return the label and rank whose clicks differ by most standard errors, and observed divided by expected."""
    score = np.where(variance >= _LEAST_VARIANCE, np.abs(excess) / np.sqrt(np.maximum(variance, 1e-12)), 0.0)
    rank, label = np.unravel_index(int(np.argmax(score)), score.shape)
    if not score[rank, label]:
        return "", 0, 1.0
    return labels[label], int(rank) + 1, float(1 + excess[rank, label] / expected[rank, label])


@njit(cache=True, nogil=True)
@no_type_check
def _add_hypergeometric(offsets, situation, impressions, clicks, n_situations, excess, expected, covariance):
    """Add up observed minus expected clicks by situation and segment, the expected ones, and their covariance.

    Cells of a pair are sorted by segment, then by situation. Segments beyond the last one are left out.
    """
    labels = excess.shape[1]
    shown, clicked = np.zeros((n_situations, labels)), np.zeros((n_situations, labels))
    present, size = np.zeros((n_situations, labels), np.int64), np.zeros(n_situations, np.int64)
    for p in range(len(offsets) - 1):
        for k in range(offsets[p], offsets[p + 1]):
            g, s = situation[k] // n_situations, situation[k] % n_situations
            if g < labels:
                present[s, size[s]] = g
                size[s] += 1
                shown[s, g], clicked[s, g] = impressions[k], clicks[k]
        for k in range(offsets[p], offsets[p + 1]):
            s = situation[k] % n_situations
            n, size[s] = size[s], 0
            if n < 2:
                continue
            total, yes = 0.0, 0.0
            for i in range(n):
                total += shown[s, present[s, i]]
                yes += clicked[s, present[s, i]]
            if yes <= 0 or yes >= total or total <= 1:
                continue
            factor = yes * (total - yes) / (total * total * (total - 1))
            for i in range(n):
                g = present[s, i]
                mean = shown[s, g] * yes / total
                excess[s, g] += clicked[s, g] - mean
                expected[s, g] += mean
                covariance[s, g, g] += factor * shown[s, g] * total
                for j in range(n):
                    covariance[s, g, present[s, j]] -= factor * shown[s, g] * shown[s, present[s, j]]
