"""Daily residuals: every day's reward as estimated from all other days, minus the reward that the day earned.

Estimators see only queries and lists. Where users, documents or the season change, residuals drift, and estimates of a
target policy may be off by as much.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
from jaxtyping import Int

from clickshift.ope.bound_estimator import BoundEstimator
from clickshift.ope.estimators import Estimator
from clickshift.ope.grouped_log import GroupedLog, Tally
from clickshift.ope.target_policy import TargetProbabilities
from clickshift.ope.weights import IPWeights, ItemWeights, ListWeights, PBMWeights, RCTRWeights


class LeaveOneOut(NamedTuple):
    """One day, all other days, and the policy of that day as list frequencies."""

    today: Tally
    others: Tally
    probabilities: TargetProbabilities


@final
@dataclass(frozen=True)
class DayResidual:
    """The residual of one estimator on one day, over the queries that other days have, too.

    Parameters
    ----------
    estimator
        Name of the estimator.
    day
        Name of the day.
    sessions
        Number of sessions on that day.
    earned
        Reward per session on that day.
    estimated
        The same, estimated from the other days. Lists of the day that the other days lack count as earning nothing.
    error
        Standard error of `earned`.
    """

    estimator: str
    day: str
    sessions: int
    earned: float
    estimated: float
    error: float

    @property
    def residual(self) -> float:
        """Estimated minus earned reward per session."""
        return self.estimated - self.earned


def leave_one_out(log: GroupedLog, day: Int[np.ndarray, " row"], n_days: int) -> Iterator[LeaveOneOut]:
    """Yield each day in turn; the tally of the other days is that of the whole log minus the day's.

    Parameters
    ----------
    log
        The grouped log.
    day
        Day of each row of the log, from 0.
    n_days
        Number of days.
    """
    for d in range(n_days):
        today = log.tally(day == d)
        yield LeaveOneOut(today, log.total - today, TargetProbabilities.frequencies(log, today))


def day_residuals(
    log: GroupedLog,
    day: Int[np.ndarray, " row"],
    names: Sequence[str],
    estimators: Sequence[Estimator],
    *,
    clip: float,
) -> list[DayResidual]:
    """Estimate the reward of every day from all other days, and compare it with the reward that the day earned.

    Parameters
    ----------
    log
        The grouped log.
    day, names
        Day of each row and names of the days, as `days_of` returns them.
    estimators
        Estimators; only plain List, IP, PBM, Item and RCTR are used: others need more of the day's policy than counts.
    clip
        Clipping constant.

    Returns
    -------
    list of DayResidual
        One residual per day and estimator; days without queries that other days have, too, are left out.
    """
    plain = [
        e
        for e in estimators
        if isinstance(e.weights, ListWeights | IPWeights | PBMWeights | ItemWeights | RCTRWeights) and e.model is None
    ]
    limits = np.array([clip])
    square = np.bincount(day, log.count * log.reward.earned(log.click) ** 2, len(names))
    count = np.bincount(day, log.count, len(names))
    residuals = []
    for d, (today, others, probabilities) in enumerate(leave_one_out(log, day, len(names))):
        sessions_today, sessions_others = (part.sessions[:, 0] for part in (today, others))
        both = (sessions_today > 0) & (sessions_others > 0)
        sessions = float(sessions_today[both].sum())
        if not sessions:
            continue
        earned = float(log.per_query(today.earned)[both, 0].sum() / sessions)
        variance = max(square[d] / count[d] - earned**2, 0.0)
        for estimator in plain:
            value = np.nan_to_num(BoundEstimator.of(estimator, log, probabilities).per_query(others, limits)[both, 0])
            estimated = float(sessions_today[both] @ value / sessions)
            error = float(np.sqrt(variance / sessions))
            residuals.append(DayResidual(estimator.name, names[d], int(sessions), earned, estimated, error))
    return residuals


@final
@dataclass(frozen=True)
class ResidualDrift:
    """Summary of the daily residuals of one estimator, weighted by sessions.

    Parameters
    ----------
    estimator
        Name of the estimator.
    mean
        Mean residual.
    rms
        Root mean square of the residuals.
    sampling_rms
        Root mean square that sampling error of the daily rewards alone would give.
    """

    estimator: str
    mean: float
    rms: float
    sampling_rms: float

    @classmethod
    def of(cls, residuals: Sequence[DayResidual]) -> list[ResidualDrift]:
        """Summarise the residuals of each estimator."""
        drifts = []
        for name in dict.fromkeys(r.estimator for r in residuals):
            own = [r for r in residuals if r.estimator == name]
            residual, error, sessions = np.array([(r.residual, r.error, r.sessions) for r in own]).T
            share = sessions / sessions.sum()
            rms, sampling_rms = (float(np.sqrt(share @ x**2)) for x in (residual, error))
            drifts.append(cls(name, float(share @ residual), rms, sampling_rms))
        return drifts
