"""Estimate: what a target would earn, how sure that is, and whether this log can tell."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, final

Verdict = Literal["usable", "weak overlap", "not identified"]

_ENOUGH = 0.8
"""Share of the target that the log must tell of, neither clipped nor never logged, for a value to be usable."""
_HALF = 0.5
_EFFECTIVE = 100
_SOME = 0.0005
"""Lost mass that is worth a word."""


@final
@dataclass(frozen=True)
class Estimate:
    """A value is never alone. Masses are shares of what the target would earn if all that it shows were clicked."""

    estimator: str
    reward: str
    clip: float
    """The largest weight that was allowed."""
    value: float
    """Reward per session; NaN where nothing of the target was logged."""
    error: float
    """Standard error."""
    low: float
    high: float
    """Interval of what the estimator estimates, clipped as it is: lost mass is not in it."""
    interval: str
    """How the interval was found, and its level."""
    coverage: float
    """Share of the target that was logged; under a known logging policy, its mean weight, which is 1 on average where
    that policy can show all that the target shows."""
    never_logged: float
    """Lost mass: the rest of the target."""
    clipped: float
    """Lost mass: logged, but with a weight above the clipping constant."""
    effective: float
    """Effective sample size, in sessions."""
    largest_weight: float
    """Before clipping."""
    floor: float
    ceiling: float
    """Partial identification: lost mass may earn nothing, or all be clicked."""
    floor_low: float
    ceiling_high: float
    """The same, widened by sampling error: each end by an interval with half of the doubt."""
    sessions: int
    sessions_skipped: int
    """Of queries that the target, or a known logging policy, does not rank."""
    queries: int
    queries_skipped: int
    queries_without_overlap: int
    """Used, but nothing that the target shows was logged there."""
    assumption: str
    """What must hold of clicks."""
    notes: tuple[str, ...] = ()

    @property
    def lost(self) -> float:
        return self.never_logged + self.clipped

    @property
    def verdict(self) -> Verdict:
        if math.isnan(self.value) or 1 - self.lost < _HALF:
            return "not identified"
        return "weak overlap" if 1 - self.lost < _ENOUGH or self.effective < _EFFECTIVE else "usable"

    @property
    def explanation(self) -> str:
        """The sentence that explains the verdict."""
        if not self.sessions:
            return "The target ranks no query of the log: nothing can be said."
        if math.isnan(self.value):
            return "Nothing that the target shows was ever logged: this log cannot tell what it earns."
        parts = [f"{self.never_logged:.1%} of what the target shows was never logged"] * (self.never_logged >= _SOME)
        parts += [f"clipping at {self.clip:g} takes away {self.clipped:.1%} of it"] * (self.clipped >= _SOME)
        lost = " and ".join(parts)
        lost = f"{lost[:1].upper()}{lost[1:]}"
        if self.verdict == "not identified":
            return f"{lost}: the value may be anything from {self.floor:.4g} to {self.ceiling:.4g}."
        effective = f"{self.effective:,.0f} of {self.sessions:,} sessions"
        if self.verdict == "weak overlap":
            why = lost if self.lost > 1 - _ENOUGH else f"The weights leave the worth of {effective}"
            return f"{why}: take the value as a hint, and look at the range it may lie in."
        condition = f", if {self.assumption}" if self.assumption else ""
        told = f"{100 * (1 - self.lost):.3g}% of what the target shows is told by the log"
        return f"{told}, with the worth of {effective}{condition}."

    def __str__(self) -> str:
        return f"{self.estimator} {self.value:.4g} [{self.low:.4g}, {self.high:.4g}] {self.verdict}: {self.explanation}"
