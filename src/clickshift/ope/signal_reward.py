"""Rewards from signals: values of results in place of clicks, with unknown values and heavy tails treated as stated.

Unknown values: a session with a clicked result of unknown value is left out; elsewhere, an unknown value is 0. Heavy
tails: the reward of a session is at most a high quantile of the rewards of sessions that earned anything (winsorised),
because a few large orders would decide every estimate. The values of a session that is cut are scaled down alike.

Afterwards values are divided by the largest one, which the weights of ranks are multiplied by instead: then a value is
a share between 0 and 1, like a click, and the bounds of all estimators hold.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, final

import numpy as np

from clickshift.data._columns import as_signal
from clickshift.data.sessions import Sessions
from clickshift.errors import DataError, SpecError
from clickshift.ope.rewards import OUTCOME, Reward


@final
@dataclass(frozen=True)
class SignalTreatment:
    """What was done to the values of a signal before rewards were estimated.

    Parameters
    ----------
    quantile
        Quantile of positive session rewards at which rewards are winsorised.
    limit
        Largest reward of a session; infinite where nothing can be cut, because signals are 0 or 1.
    cut_sessions
        Number of sessions whose reward was cut.
    cut_share
        Share of the log's reward that was cut.
    unknown_sessions
        Sessions that are left out, because the value of a clicked result is unknown.
    without_click
        Results with a value that were not clicked; they count.
    without_click_share
        Their share of the log's reward.
    """

    quantile: float
    limit: float
    cut_sessions: int
    cut_share: float
    unknown_sessions: int
    without_click: int
    without_click_share: float

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers by name."""
        return asdict(self)

    def notes(self) -> list[str]:
        """Return sentences on what was done."""
        notes = []
        if self.cut_sessions:
            notes.append(
                f"The rewards of {self.cut_sessions:,} sessions are cut to {self.limit:.4g}, the {self.quantile:.4g} "
                f"quantile of sessions that earned anything: that is {self.cut_share:.2%} of the log's reward."
            )
        if self.unknown_sessions:
            notes.append(f"{self.unknown_sessions:,} sessions with a click of unknown value are left out.")
        if self.without_click:
            notes.append(
                f"{self.without_click:,} results have a value without a click, which counts "
                f"({self.without_click_share:.1%} of the log's reward)."
            )
        return notes


def check_quantile(quantile: float) -> None:
    """Raise unless rewards can be winsorised at a quantile: "bad-option"."""
    if not 0.5 <= quantile <= 1:
        raise SpecError(
            f"winsorise must be a quantile from 0.5 to 1 (nothing is cut): got {quantile}.",
            code="bad-option",
            option="winsorise",
            value=quantile,
        )


def with_values(sessions: Sessions, reward: Reward) -> Sessions:
    """Return sessions with the values of their results as the only signal; as they are for a reward of clicks.

    Parameters
    ----------
    sessions
        Sessions with the signals of the reward.
    reward
        The reward.
    """
    if reward.signal is None:
        return sessions
    values = reward.signal.of(sessions) + reward.signal.click * sessions.click
    values[np.isnan(values) & ~sessions.click] = 0.0
    values[~sessions.rankings.shown] = 0.0
    return _with_outcome(sessions, values)


def with_outcomes(
    sessions: Sessions, reward: Reward, *, quantile: float
) -> tuple[Sessions, Reward, SignalTreatment | None]:
    """Leave out sessions with unknown values, winsorise the others, and make shares of the largest value.

    Parameters
    ----------
    sessions
        What `with_values` returned.
    reward
        The reward; of clicks, nothing is changed.
    quantile
        Quantile of positive session rewards at which rewards are winsorised; 1 cuts nothing.

    Returns
    -------
    tuple
        The sessions, the reward with its unit, and what was done.

    Raises
    ------
    DataError
        If nothing earned anything ("all-zero-reward"), or all sessions are left out ("no-sessions").
    """
    if reward.signal is None:
        return sessions, reward, None
    values = np.array(sessions.signals[OUTCOME], np.float64)
    ranks = len(reward.theta(sessions.n_ranks))
    known = np.flatnonzero(~np.isnan(values).any(axis=1))
    everyone, sessions, values = sessions.total, sessions[known], values[known]
    unknown = everyone - sessions.total
    if not len(sessions):
        raise DataError(
            f"at least one session must have known values of {reward.signal}: all have a click of unknown value.",
            code="no-sessions",
        )
    count, total = sessions.count.astype(np.float64), values[:, :ranks].sum(axis=1)
    everything = float(count @ total)
    if not everything > 0:
        raise DataError(
            f"the reward {reward} must be above 0 in some session: it is 0 in all {sessions.total:,} of them. Check "
            "the column.",
            code="all-zero-reward",
            sessions=sessions.total,
        )
    stray = (~sessions.click & (values > 0))[:, :ranks]
    without_click = count @ stray.sum(axis=1)
    without_value = count @ np.where(stray, values[:, :ranks], 0.0).sum(axis=1)
    zero_or_one = reward.signal.click + sum(weight for _, weight in reward.signal.weights)  # largest value of those
    limit = np.inf if values.max() <= zero_or_one else _quantile(total, count, quantile)
    cut = total > limit
    values[cut] *= (limit / total[cut])[:, None]
    unit = float(values.max())
    treatment = SignalTreatment(
        quantile,
        limit,
        int(count[cut].sum()),
        float(count[cut] @ (total[cut] - limit)) / everything,
        unknown,
        int(without_click),
        float(without_value) / everything,
    )
    return _with_outcome(sessions, values / unit), replace(reward, unit=unit), treatment


def _with_outcome(sessions: Sessions, values: np.ndarray) -> Sessions:
    """Return sessions with these values as their only signal."""
    signals = {OUTCOME: as_signal(values, sessions.rankings.shown)}
    return Sessions.checked(sessions.rankings, sessions.click, sessions.count, sessions.time, sessions.user, signals)


def _quantile(total: np.ndarray, count: np.ndarray, quantile: float) -> float:
    """Return the smallest reward that at least a share of the sessions with a reward do not exceed."""
    earned = total > 0
    order = np.argsort(total[earned], kind="stable")
    ordered, below = total[earned][order], np.cumsum(count[earned][order])
    return float(ordered[min(np.searchsorted(below, quantile * below[-1] * (1 - 1e-12)), len(ordered) - 1)])
