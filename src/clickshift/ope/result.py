"""The result of an off-policy evaluation: the value, its uncertainty, and whether the log has enough overlap."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, final

Verdict = Literal["usable", "weak overlap", "not identified"]
"""Whether the overlap of the log with the target policy is enough for the estimate."""

_USABLE_SHARE = 0.8
"""Share of the target policy that must be covered, neither clipped nor never logged, for a usable estimate."""
_IDENTIFIED_SHARE = 0.5
"""Share of the target policy that must be covered for the estimate to mean anything."""
_USABLE_SAMPLE_SIZE = 100
"""Effective sample size, in sessions, that a usable estimate needs."""
_NEGLIGIBLE = 0.0005
"""Lost mass that the explanation does not mention."""


@final
@dataclass(frozen=True)
class Estimate:
    """One off-policy estimate with its interval, diagnostics and verdict.

    Masses are shares of the reward that the target policy would earn if everything that it shows were clicked.

    Parameters
    ----------
    estimator
        Name of the estimator.
    reward
        Name of the reward.
    clip
        Clipping constant: the largest importance weight.
    value
        Reward per session; NaN where nothing that the target policy shows was logged.
    error
        Standard error.
    low, high
        Confidence interval of the (clipped) estimator's expectation: it does not account for lost mass.
    interval
        Level and method of the interval.
    coverage
        Share of the target policy that was logged. Under a known logging policy, its mean importance weight, which is 1
        in expectation where the logging policy supports the target policy.
    never_logged
        Lost mass: share of the target policy that was never logged.
    clipped
        Lost mass: share that was logged, but with a weight above the clipping constant.
    effective
        Effective sample size, in sessions.
    largest_weight
        Largest importance weight before clipping.
    floor, ceiling
        Partial identification: the value if lost mass earns nothing, and if all of it is clicked.
    floor_low, ceiling_high
        The same range, widened by sampling error: each end by a one-sided interval with half of the error probability.
    sessions
        Number of sessions used.
    sessions_skipped
        Number of sessions of queries that the target policy, or a known logging policy, does not rank.
    queries
        Number of queries used.
    queries_skipped
        Number of queries that the target policy, or a known logging policy, does not rank.
    queries_without_overlap
        Number of used queries for which nothing that the target policy shows was logged.
    assumption
        What must hold of clicks, as the end of a sentence that begins with "if".
    notes
        Remarks, as sentences.
    """

    estimator: str
    reward: str
    clip: float
    value: float
    error: float
    low: float
    high: float
    interval: str
    coverage: float
    never_logged: float
    clipped: float
    effective: float
    largest_weight: float
    floor: float
    ceiling: float
    floor_low: float
    ceiling_high: float
    sessions: int
    sessions_skipped: int
    queries: int
    queries_skipped: int
    queries_without_overlap: int
    assumption: str
    notes: tuple[str, ...] = ()

    @property
    def lost(self) -> float:
        """Share of the target policy that was never logged or is clipped."""
        return self.never_logged + self.clipped

    @property
    def verdict(self) -> Verdict:
        """Whether the overlap of the log with the target policy is enough."""
        if math.isnan(self.value) or 1 - self.lost < _IDENTIFIED_SHARE:
            return "not identified"
        weak = 1 - self.lost < _USABLE_SHARE or self.effective < _USABLE_SAMPLE_SIZE
        return "weak overlap" if weak else "usable"

    @property
    def explanation(self) -> str:
        """Sentence that explains the verdict."""
        if not self.sessions:
            return "The target ranks no query of the log: there is no estimate."
        if math.isnan(self.value):
            return "Nothing that the target shows was ever logged: its reward is not identified from this log."
        parts = []
        if self.never_logged >= _NEGLIGIBLE:
            parts.append(f"{self.never_logged:.1%} of what the target shows was never logged")
        if self.clipped >= _NEGLIGIBLE:
            parts.append(f"clipping at {self.clip:g} removes {self.clipped:.1%} of it")
        lost = " and ".join(parts)
        lost = f"{lost[:1].upper()}{lost[1:]}"
        if self.verdict == "not identified":
            return f"{lost}: the value may be anything from {self.floor:.4g} to {self.ceiling:.4g}."
        effective = f"{self.effective:,.0f} of {self.sessions:,} sessions"
        if self.verdict == "weak overlap":
            reason = lost if self.lost > 1 - _USABLE_SHARE else f"Effective sample size is {effective}"
            return f"{reason}: treat this estimate as indicative only, and check the range of possible values."
        condition = f", if {self.assumption}" if self.assumption else ""
        covered = f"The log covers {100 * (1 - self.lost):.3g}% of what the target shows"
        return f"{covered}, and the effective sample size is {effective}: the estimate is usable{condition}."

    def __str__(self) -> str:
        return f"{self.estimator} {self.value:.4g} [{self.low:.4g}, {self.high:.4g}] {self.verdict}: {self.explanation}"
