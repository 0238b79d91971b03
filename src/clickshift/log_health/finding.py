"""What a check of a log finds: its evidence, and the finding with severity, examples and effect."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, final

import numpy as np

from clickshift.core.intervals import normal_quantile, wilson_interval

if TYPE_CHECKING:
    from clickshift.counts.cells import Cells
    from clickshift.log_health._columns import LogColumns

Severity = Literal["none", "notice", "warning", "severe"]
"""How much a finding matters: not at all, good to know, check before use, or results will be wrong."""
SEVERITIES: tuple[Severity, ...] = ("none", "notice", "warning", "severe")


class NeedsError(Exception):
    """A check cannot be run on this log; the message says what it needs."""


@dataclass(frozen=True)
class CheckOptions:
    """Options of the checks.

    Parameters
    ----------
    level
        Level of the confidence intervals.
    arm_shares
        Share of the traffic that each arm was given; by default equal shares, if they are nearly equal.
    events
        Counts of the import that made the log, by reason; None without an import.
    window
        Whether the import is known to have compared the times of clicks with a window.
    """

    level: float = 0.95
    arm_shares: Mapping[str, float] | None = None
    events: Any = None
    window: bool = False


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a check measures on a log, before its test is compared with those of the other checks.

    Parameters
    ----------
    text
        What was found, in one sentence.
    affected
        Number of affected units (sessions, unless `unit` says otherwise); an estimate for some checks.
    total
        Number of all units.
    variance
        Variance of `affected` from what cannot be seen of single sessions; 0 if they are counted.
    rows
        Mask of the rows that are affected, or suspected; None where they are not in the log.
    examples
        Row numbers of examples; by default, the first affected rows.
    p_value
        P-value of the test, or None for what is certain.
    shown
        Examples that are no rows of the log.
    unit
        What is counted.
    severity
        Severity, where the rate does not decide it.
    compared
        Makes the counts with and without the defect, where they are not those of all rows and of the others.
    name
        What the counts are without, in words.
    no_effect
        Why there are neither rows nor counts to compare.
    """

    text: str
    affected: float
    total: float
    variance: float = 0.0
    rows: np.ndarray | None = None
    examples: np.ndarray | None = None
    p_value: float | None = None
    shown: Sequence[Mapping[str, Any]] = ()
    unit: str = "sessions"
    severity: Severity | None = None
    compared: Callable[[], tuple[Cells, Cells]] | None = None
    name: str = "these sessions"
    no_effect: str = "it does not concern single sessions"

    @property
    def rate(self) -> float:
        """Share of the affected units."""
        return float(min(max(self.affected / self.total, 0.0), 1.0)) if self.total else 0.0

    def interval(self, level: float) -> tuple[float, float]:
        """Return the confidence interval of the rate: Wilson's, or a normal one where the number is an estimate."""
        if not self.total:
            return 0.0, 1.0
        if not self.variance:
            low, high = wilson_interval(np.array([min(self.affected, self.total)]), np.array([self.total]), level)
            return min(float(low[0]), self.rate), max(float(high[0]), self.rate)
        rate = self.rate
        half = normal_quantile((1 + level) / 2) * np.sqrt(self.variance + self.total * rate * (1 - rate)) / self.total
        return max(rate - float(half), 0.0), min(rate + float(half), 1.0)


NOTHING = Evidence("", 0.0, 0.0, p_value=1.0)
"""Evidence of a check that had nothing to compare."""


@dataclass(frozen=True)
class Check:
    """A check of a log.

    Parameters
    ----------
    name
        Stable name, in kebab case.
    title
        Its subject, in words.
    find
        Function that measures it; raises `NeedsError` where the log lacks a column.
    remedy
        What to do about a finding.
    notice, warning, severe
        Smallest rates at which a finding is a notice, a warning, and severe.
    """

    name: str
    title: str
    find: Callable[[LogColumns, CheckOptions], Evidence]
    remedy: str
    notice: float
    warning: float
    severe: float

    def severity(self, found: Evidence) -> Severity:
        """Return the severity of what was found."""
        if found.severity is not None:
            return found.severity
        return SEVERITIES[sum(found.rate >= limit for limit in (self.notice, self.warning, self.severe))]


@final
@dataclass(frozen=True, eq=False)
class Effect:
    """What a finding does to the answer: examination by rank with and without the affected sessions, or events.

    Parameters
    ----------
    curve
        What the curves are: "examination" (PBM by maximum likelihood) or "click-through rate".
    everything
        The curve of the whole log, or with the events that the import left out, relative to its first rank.
    without
        The curve without the affected sessions.
    name
        What is left out, in words.
    """

    curve: str
    everything: np.ndarray
    without: np.ndarray
    name: str = "these sessions"

    @property
    def rank(self) -> int:
        """The rank, from 1, at which the curves differ most; ranks without clicks are left out."""
        change = np.abs(np.log(np.where(self._known, self.without, 1) / np.where(self._known, self.everything, 1)))
        return int(np.argmax(change)) + 1

    @property
    def _known(self) -> np.ndarray:
        known: np.ndarray = (self.everything > 0) & (self.without > 0)
        return known

    @property
    def change(self) -> float:
        """Relative change at that rank if the affected sessions are left out."""
        before, after = (float(curve[self.rank - 1]) for curve in (self.everything, self.without))
        return after / before - 1 if before > 0 else 0.0

    def __str__(self) -> str:
        before, after = (float(curve[self.rank - 1]) for curve in (self.everything, self.without))
        return (
            f"Without {self.name}, {self.curve} at rank {self.rank} relative to rank 1 is {after:.2f} instead of "
            f"{before:.2f} ({self.change:+.0%})."
        )


@final
@dataclass(frozen=True, eq=False)
class Finding:
    """What a check found in a log.

    Parameters
    ----------
    check
        Stable name of the check.
    title
        Subject of the check, in words.
    severity
        "none", "notice", "warning" or "severe".
    text
        What was found, in one sentence.
    rate, low, high
        Share of the affected sessions (or results, or clicks: see `unit`), with its confidence interval.
    affected
        Their number.
    unit
        What is counted: "sessions", "results" or "clicks".
    p_value
        P-value of the test; None for what is certain.
    remedy
        What to do.
    examples
        Up to five examples.
    effect
        Examination by rank with and without the affected sessions, or events; None where that cannot be computed.
    no_effect
        Why it cannot be computed; empty if it was, or was not asked for.
    """

    check: str
    title: str
    severity: Severity
    text: str
    rate: float
    low: float
    high: float
    affected: float
    unit: str
    p_value: float | None
    remedy: str
    examples: Sequence[Mapping[str, Any]] = field(default=(), repr=False)
    effect: Effect | None = field(default=None, repr=False)
    no_effect: str = field(default="", repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as plain values."""
        facts = {
            name: getattr(self, name)
            for name in ("check", "severity", "text", "rate", "low", "high", "affected", "unit", "p_value", "remedy")
        }
        facts["examples"] = [dict(example) for example in self.examples]
        if self.effect is not None:
            facts["effect"] = {
                "curve": self.effect.curve,
                "with": self.effect.everything,
                "without": self.effect.without,
                "rank": self.effect.rank,
                "change": self.effect.change,
                "left_out": self.effect.name,
            }
        elif self.no_effect:
            facts["no_effect"] = self.no_effect
        return facts
