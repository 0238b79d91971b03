"""Results of a comparison of days, and the thresholds above which a change matters."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float

from clickshift.core.intervals import normal_quantile
from clickshift.data.days import Time

FALSE_ALARM_RATE = 0.001
"""Significance level of each of the three kinds of change: with daily comparisons, about one false alarm a year."""
POSITION_THRESHOLD = 0.10
"""Share of changed positions above which an old model should not be trusted. In simulations, perplexity above 1 of a
model fitted before the change is then .1 to .6 % higher than that of a new one; 1 to 5 % from a third of the positions
on, 2 to 16 % from half of them on."""
NEW_DOCUMENT_THRESHOLD = 0.05
"""Share of new documents, for known queries, above which an old model should not be trusted: it has no data on them,
and so cannot compare them with the documents that it knows."""
CLICK_THRESHOLD = 0.15
"""Relative change of clicks on the same documents at the same ranks above which an old model should not be trusted:
weekdays and seasons cause smaller changes."""
DETECTION_THRESHOLD = 0.5
"""Smallest detectable share of changed positions above which days are too small to conclude that nothing changed."""


@final
@dataclass(frozen=True)
class ChanceCorrectedChange:
    """Observed share of a change, with the share expected by chance alone.

    Parameters
    ----------
    observed
        Observed share; NaN if the days have no data to compare.
    chance
        Expected share for two days of one ranker.
    error
        Standard error of the difference.
    squared
        Whether change and chance add in squares: noise can mask changed positions, but not new documents.
    """

    observed: float
    chance: float
    error: float
    squared: bool

    @property
    def change(self) -> float:
        """Change corrected for chance: 0 if it is what chance gives, 1 if everything changed."""
        return self._correct(self.observed)

    @property
    def low(self) -> float:
        """Lower confidence bound of the change; 0 where it may be chance."""
        return self._correct(self.observed - _critical_value() * self.error)

    def detectable(self, threshold: float) -> float:
        """Return the smallest change whose lower confidence bound exceeds a threshold.

        Parameters
        ----------
        threshold
            Change to exceed.
        """
        power = 2 if self.squared else 1
        expected = (threshold**power * (1 - self.chance**power) + self.chance**power) ** (1 / power)
        return self._correct(expected + _critical_value() * self.error)

    def _correct(self, observed: float) -> float:
        """Correct an observed share for chance."""
        power = 2 if self.squared else 1
        if math.isnan(observed):
            return math.nan
        share = (max(observed, self.chance) ** power - self.chance**power) / (1 - self.chance**power)
        return float(share ** (1 / power))


@final
@dataclass(frozen=True)
class ClickChange:
    """Change of clicks at one rank on the documents that were shown there on both days.

    Parameters
    ----------
    rank
        Rank, from 0.
    ratio
        Mantel-Haenszel ratio of click-through rates, later to earlier day, stratified by document. NaN without clicks.
    low, high
        Confidence bounds, simultaneous for all ranks.
    impressions
        Impressions of such documents on the later day.
    """

    rank: int
    ratio: float
    low: float
    high: float
    impressions: float


@final
@dataclass(frozen=True)
class Change:
    """Differences of a later day from an earlier one.

    Parameters
    ----------
    earlier, later
        Names of the days.
    new_queries
        Share of the later day's sessions whose query the earlier day does not have.
    places
        Change of the documents at ranks 1..k of a query: total variation distance, averaged over ranks and weighted by
        the information that a query's traffic on both days gives.
    new_documents
        Share of the later day's results that the earlier day never showed for the same query, over common queries.
    clicks
        Changes of clicks by rank.
    """

    earlier: str
    later: str
    new_queries: float
    places: ChanceCorrectedChange
    new_documents: ChanceCorrectedChange
    clicks: tuple[ClickChange, ...]

    @property
    def reasons(self) -> list[str]:
        """Reasons not to trust a model of the earlier day on the later one; empty if there are none."""
        reasons = []
        if self.places.low > POSITION_THRESHOLD:
            reasons.append(f"{_percent(self.places.change)} of the positions show other documents, beyond chance")
        if self.new_documents.low > NEW_DOCUMENT_THRESHOLD:
            reasons.append(f"{_percent(self.new_documents.change)} of the results are new documents, beyond chance")
        changed = [c for c in self.clicks if c.low > 1 + CLICK_THRESHOLD or c.high < 1 / (1 + CLICK_THRESHOLD)]
        if changed:
            largest = max(changed, key=lambda c: abs(math.log(max(c.ratio, 1e-9))))
            reasons.append(
                f"the same documents at rank {largest.rank + 1} are clicked {largest.ratio:.2f} times as often"
                + (f", and {len(changed) - 1} more ranks changed" if len(changed) > 1 else "")
            )
        return reasons

    @property
    def verdict(self) -> str:
        """Verdict on the change.

        "changed": an old model should not be trusted. "some": a significant but small change. "same": no change beyond
        chance. "unclear": too few common sessions to decide.
        """
        if self.reasons:
            return "changed"
        if not self.places.detectable(POSITION_THRESHOLD) <= DETECTION_THRESHOLD:
            return "unclear"
        some = self.places.low > 0 or self.new_documents.low > 0 or any(c.low > 1 or c.high < 1 for c in self.clicks)
        return "some" if some else "same"


@final
@dataclass(frozen=True)
class Day:
    """Summary of one day.

    Parameters
    ----------
    name
        Name of the day.
    first, last
        Times of its first and last session, if known.
    sessions
        Number of sessions.
    clicks_per_session
        Mean number of clicks of a session.
    ctr
        Click-through rate of each rank.
    low, high
        95 % Wilson intervals of the click-through rates.
    """

    name: str
    first: Time | None
    last: Time | None
    sessions: float
    clicks_per_session: float
    ctr: Float[np.ndarray, " rank"]
    low: Float[np.ndarray, " rank"]
    high: Float[np.ndarray, " rank"]


def _critical_value() -> float:
    """Return the critical value of a one-sided test at the false alarm rate."""
    return -normal_quantile(FALSE_ALARM_RATE)


def _percent(share: float) -> str:
    """Return a share as text, e.g. "12 %"."""
    return f"{100 * share:.0f} %"
