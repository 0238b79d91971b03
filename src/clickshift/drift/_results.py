"""What can be said of days and of the changes between them, and when a change is one: `drift` measures them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float

from clickshift.counts.daily import Time

ALARM = 0.001
"""How likely a sure change may be chance, for each of the three questions: daily, a false alarm in a year."""
PLACES = 0.10
"""A tenth of the places show something else. In simulations, perplexity above 1 of a model of before is then .1 to .6 %
more than that of a new one; 1 to 5 % from a third of the places on, 2 to 16 % from half of them on."""
NEW = 0.05
"""A twentieth of the results are documents that the model has never seen, of queries that it knows: it can only guess
them, and was not asked whether they are better than those it knows."""
CLICKS = 0.15
"""A seventh more or fewer clicks on the same documents at the same ranks: weekdays and seasons move them by less."""
UNCLEAR = 0.5
"""Where a ranker that changes half of the places might go unnoticed, days are too small to say that nothing changed."""


@final
@dataclass(frozen=True)
class BeyondChance:
    """A share of what is seen that is not as before, with what chance alone would give."""

    observed: float
    """NaN where the days have nothing that could tell."""
    chance: float
    """What it would be for two days of one ranker."""
    error: float
    """The standard error of the difference."""
    squared: bool
    """Whether change and chance add as squares do: noise can hide a change of places, but not new documents."""

    @property
    def change(self) -> float:
        """0 if as by chance, 1 if nothing is as before."""
        return self._beyond(self.observed)

    @property
    def low(self) -> float:
        """The change is surely this much; 0 where it may be chance."""
        return self._beyond(self.observed - _sure() * self.error)

    def noticed(self, much: float) -> float:
        """The change from which on one would surely see that it is more than `much`."""
        power = 2 if self.squared else 1
        seen = (much**power * (1 - self.chance**power) + self.chance**power) ** (1 / power)
        return self._beyond(seen + _sure() * self.error)

    def _beyond(self, observed: float) -> float:
        power = 2 if self.squared else 1
        if math.isnan(observed):
            return math.nan
        share = (max(observed, self.chance) ** power - self.chance**power) / (1 - self.chance**power)
        return float(share ** (1 / power))


@final
@dataclass(frozen=True)
class ClickChange:
    """Clicks at one rank on documents that stood there on both days."""

    rank: int
    ratio: float
    """Of click-through rates, later by earlier, like for like (Mantel-Haenszel). NaN without clicks."""
    low: float
    high: float
    """Sure for all ranks together."""
    impressions: float
    """On the later day, of such documents."""


@final
@dataclass(frozen=True)
class Change:
    """How a later day differs from an earlier one."""

    earlier: str
    later: str
    new_queries: float
    """Sessions of the later day whose query the earlier one has not."""
    places: BeyondChance
    """How far the documents at ranks 1..k of a query are others: total variation distance, averaged over ranks,
    weighted by what a query's traffic on both days can tell."""
    new_documents: BeyondChance
    """Results of the later day that the earlier one never showed for the same query, of queries that both have."""
    clicks: tuple[ClickChange, ...]

    @property
    def reasons(self) -> list[str]:
        """Why a model of the earlier day should not be trusted on the later one, in words; empty if there are none."""
        said = []
        if self.places.low > PLACES:
            said.append(f"{_percent(self.places.change)} of the places show other documents, beyond chance")
        if self.new_documents.low > NEW:
            said.append(f"{_percent(self.new_documents.change)} of the results are new documents, beyond chance")
        moved = [c for c in self.clicks if c.low > 1 + CLICKS or c.high < 1 / (1 + CLICKS)]
        if moved:
            most = max(moved, key=lambda c: abs(math.log(max(c.ratio, 1e-9))))
            said.append(
                f"the same documents at rank {most.rank + 1} are clicked {most.ratio:.2f} times as often"
                + (f", and {len(moved) - 1} more ranks changed" if len(moved) > 1 else "")
            )
        return said

    @property
    def verdict(self) -> str:
        """changed: do not trust an old model. some: surely not the same, but little. same: nothing beyond chance.
        unclear: too few sessions in common to tell."""
        if self.reasons:
            return "changed"
        if not self.places.noticed(PLACES) <= UNCLEAR:
            return "unclear"
        some = self.places.low > 0 or self.new_documents.low > 0 or any(c.low > 1 or c.high < 1 for c in self.clicks)
        return "some" if some else "same"


@final
@dataclass(frozen=True)
class Day:
    """One day by itself."""

    name: str
    first: Time | None
    last: Time | None
    sessions: float
    clicks_per_session: float
    ctr: Float[np.ndarray, " rank"]
    low: Float[np.ndarray, " rank"]
    high: Float[np.ndarray, " rank"]
    """Wilson's interval, 95 %."""


@final
@dataclass(frozen=True)
class DriftResult:
    """Several days in order of time."""

    days: tuple[Day, ...]
    steps: tuple[Change, ...]
    """Each day since the day before."""
    until_last: tuple[Change, ...]
    """From each day to the last one: may a model of that day be used now?"""
    reordered: bool
    """The days were given in another order."""


def _sure() -> float:
    return -quantile(ALARM)


def quantile(prob: float) -> float:
    """Of the standard normal distribution."""
    from scipy.special import ndtri

    return float(ndtri(prob))


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
