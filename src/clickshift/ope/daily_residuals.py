"""Day by day: what estimators make of each day from all other days, beside what the day earned.

Estimators see queries and lists alone. Where users, documents or the season change, residuals drift, and so may what is
said of a target.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
from jaxtyping import Int, Shaped

from clickshift.errors import DataError
from clickshift.ope.bound_estimator import BoundEstimator
from clickshift.ope.estimators import Estimator
from clickshift.ope.grouped_log import GroupedLog, Tally
from clickshift.ope.target_policy import TargetProbabilities
from clickshift.ope.weights import IPWeights, ItemWeights, ListWeights, PBMWeights, RCTRWeights

_MOST_DAYS = 1000
"""More distinct days than this are something else, such as seconds."""


class LeaveOneOut(NamedTuple):
    """One day, all others, and the policy of the day as the log shows it."""

    today: Tally
    others: Tally
    aim: TargetProbabilities


@final
@dataclass(frozen=True)
class DayResidual:
    """One estimator on one day, over the queries that other days have too."""

    estimator: str
    day: str
    sessions: int
    earned: float
    """Reward per session."""
    estimated: float
    """By the other days. What they lack of the day's lists counts as earning nothing."""
    error: float
    """The standard error of what was earned."""

    @property
    def residual(self) -> float:
        return self.estimated - self.earned


def days_of(time: Shaped[np.ndarray, " row"]) -> tuple[Int[np.ndarray, " row"], tuple[str, ...]]:
    """The number of each row's day, and the days' names."""
    if time.dtype.kind in "Mm":
        time = time.astype(f"{'datetime' if time.dtype.kind == 'M' else 'timedelta'}64[D]")
    elif time.dtype.kind == "f":
        time = np.floor(time)
    days, day = np.unique(time, return_inverse=True)
    if not 2 <= len(days) <= _MOST_DAYS:
        raise DataError(
            f"the times of a log must be of 2 to {_MOST_DAYS} days: got {len(days):,} distinct ones. "
            "Give it a 'day' column, or take parts instead."
        )
    return day, tuple(f"{value:g}" if isinstance(value, float) else str(value) for value in days.tolist())


def leave_one_out(logged: GroupedLog, day: Int[np.ndarray, " row"], days: int) -> Iterator[LeaveOneOut]:
    """Each day in turn; the other days are all days less one."""
    for d in range(days):
        today = logged.tally(day == d)
        yield LeaveOneOut(today, logged.total - today, TargetProbabilities.frequencies(logged, today))


def day_residuals(
    logged: GroupedLog,
    day: Int[np.ndarray, " row"],
    names: Sequence[str],
    estimators: Sequence[Estimator],
    *,
    clip: float,
) -> list[DayResidual]:
    """Of plain estimators; others would need more of the day's policy than its counts. Days as `days_of` gives them."""
    asked = [
        e
        for e in estimators
        if isinstance(e.weights, ListWeights | IPWeights | PBMWeights | ItemWeights | RCTRWeights) and e.model is None
    ]
    limits = np.array([clip])
    square = np.bincount(day, logged.count * logged.reward.earned(logged.click) ** 2, len(names))
    count = np.bincount(day, logged.count, len(names))
    found = []
    for d, (today, others, aim) in enumerate(leave_one_out(logged, day, len(names))):
        here, there = (logged.per_query(part.shown)[:, 0] for part in (today, others))
        both = (here > 0) & (there > 0)
        sessions = float(here[both].sum())
        if not sessions:
            continue
        earned = float(logged.per_query(today.earned)[both, 0].sum() / sessions)
        spread = max(square[d] / count[d] - earned**2, 0.0)
        for estimator in asked:
            value = np.nan_to_num(BoundEstimator.of(estimator, logged, aim).per_query(others, limits)[both, 0])
            estimated = float(here[both] @ value / sessions)
            error = float(np.sqrt(spread / sessions))
            found.append(DayResidual(estimator.name, names[d], int(sessions), earned, estimated, error))
    return found


@final
@dataclass(frozen=True)
class ResidualDrift:
    """The residuals of one estimator over all days, weighted by sessions."""

    estimator: str
    mean: float
    rms: float
    chance: float
    """What the root mean square would be if only chance moved what a day earns."""

    @classmethod
    def of(cls, residuals: Sequence[DayResidual]) -> list[ResidualDrift]:
        """For each estimator."""
        found = []
        for name in dict.fromkeys(r.estimator for r in residuals):
            mine = [r for r in residuals if r.estimator == name]
            residual, error, sessions = np.array([(r.residual, r.error, r.sessions) for r in mine]).T
            share = sessions / sessions.sum()
            rms, chance = (float(np.sqrt(share @ x**2)) for x in (residual, error))
            found.append(cls(name, float(share @ residual), rms, chance))
        return found
