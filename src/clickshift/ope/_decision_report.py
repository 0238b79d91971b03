"""The result of a decision: ship, keep, test or unclear, with the gain, its risks, and what would change it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal, final

from clickshift.day_drift.document_drift import DocumentDrift
from clickshift.display.document import Document, Section
from clickshift.display.figures import COLOURS, dot_plot
from clickshift.display.result import Result
from clickshift.display.tables import Rows
from clickshift.display.values import percents, with_interval
from clickshift.ope._answer_report import gain_text
from clickshift.ope.answer import Answer

Verdict = Literal["ship", "keep", "test", "unclear"]
VERDICTS: tuple[Verdict, ...] = ("ship", "test", "unclear", "keep")
"""Decisions; of several candidates, the one whose decision comes first here leads the page."""

_TITLE = "Should the new ranker be shipped?"
_HOW = """Ship: the lower end of the gain is above zero, even if everything that the log does not show earns as little
as it can. Keep the current ranker: the upper end is below zero. Unclear: the log cannot tell, because the gain is not
identified, the log has a severe defect, or documents drift over its days. Test: otherwise; run an A/B test.

The gain is the reward per session of the candidate minus that of the log, on the same sessions. Its interval includes
sampling error, the error of estimated click models, the choice among click models that fit the log, and everything that
lost mass (what the candidate shows and the log does not) could earn. With several candidates, intervals hold for all of
them together (Bonferroni).

The turning point is the least change of an assumption that brings the decisive end of the interval to zero. The
sessions of an A/B test, both rankers together, detect the estimated gain at level .05 with power .8."""
_COLOURS = {"ship": COLOURS[2], "keep": COLOURS[1], "test": COLOURS[0], "unclear": COLOURS[3]}


@final
@dataclass(frozen=True)
class Check:
    """A check of the log or of a candidate.

    Parameters
    ----------
    name
        What was checked.
    status
        "ok", "caution" (read the sentence), or "severe" (no decision).
    found
        What was found, in a sentence.
    """

    name: str
    status: Literal["ok", "caution", "severe"]
    found: str


@final
@dataclass(frozen=True)
class TurningPoint:
    """The change of one assumption that brings the decisive end of the gain's interval to zero.

    Parameters
    ----------
    assumption
        "examination": power of the estimated examination curve, which is 1. "users": share of the users who browse as
        another click model. "lost documents": share of the most that unlogged documents could earn.
    value
        The value at which the end is zero.
    words
        The same, in a sentence.
    """

    assumption: str
    value: float
    words: str


@final
@dataclass(frozen=True)
class CandidateDecision:
    """The decision about one candidate.

    Parameters
    ----------
    candidate
        Name of the candidate.
    decision
        "ship", "keep", "test" or "unclear".
    cause
        What decides: "gain", "loss", "interval" (zero is inside), "not identified", "drift" or "defect".
    answer
        The off-policy answer: reward and difference to the log, with intervals and verdict.
    reasons
        Sentences, the most important one first.
    risk
        The largest part of the interval, in words; empty where nothing is identified.
    turning_points
        Changes of assumptions that would bring the decisive end to zero, the least first.
    test_sessions
        Sessions of an A/B test, both rankers together, that detects the estimated gain; NaN if there is none.
    """

    candidate: str
    decision: Verdict
    cause: str
    answer: Answer
    reasons: tuple[str, ...]
    risk: str
    turning_points: tuple[TurningPoint, ...]
    test_sessions: float

    def facts(self) -> dict[str, Any]:
        """Return the numbers of the candidate, by name."""
        a = self.answer
        gain = {"gain": a.difference, "gain_low": a.difference_low, "gain_high": a.difference_high}
        percent = {f"{name}_percent": 100 * x / a.today if a.today else math.nan for name, x in gain.items()}
        return {
            "candidate": self.candidate,
            "decision": self.decision,
            "cause": self.cause,
            **gain,
            **percent,
            "today": a.today,
            "verdict": a.verdict,
            "estimator": a.estimator,
            "risk": self.risk,
            "test_sessions": self.test_sessions,
        }


@final
@dataclass(frozen=True, repr=False)
class Decision(Result):
    """Whether to ship a candidate ranker, or the best of several.

    Parameters
    ----------
    candidates
        The decision about each candidate, the leading one first: ship before test before unclear before keep, then by
        gain.
    checks
        Checks of the log and of its days.
    drift
        Trend of the clicks on documents over days; None for a log without days.
    settings
        Arguments of the decision.

    Notes
    -----
    `to_dict` holds:

    - conclusion: the decision in words.
    - decision: "ship", "keep", "test" or "unclear", for the leading candidate.
    - candidate: its name.
    - gain, gain_low, gain_high: reward per session of the candidate minus that of the log; the ends include lost mass
      at its worst and at its best. None where not identified. The same in percent of the log's reward:
      gain_percent, gain_low_percent, gain_high_percent.
    - reasons: sentences, the most important one first.
    - risk: the largest part of the interval, in words.
    - turning_points: assumption, value and words.
    - test_sessions: sessions of an A/B test, both rankers together, at level .05 and power .8.
    - checks: name, status ("ok", "caution" or "severe") and found.
    - drift: statistic, degrees, p_value and change; None without days.
    - rows: one per candidate, with the facts above, cause, verdict, estimator and today.
    """

    candidates: tuple[CandidateDecision, ...]
    checks: tuple[Check, ...]
    drift: DocumentDrift | None
    settings: Mapping[str, Any]

    @property
    def best(self) -> CandidateDecision:
        """The leading candidate."""
        return self.candidates[0]

    @property
    def decision(self) -> Verdict:
        """Decision about the leading candidate."""
        return self.best.decision

    @property
    def conclusion(self) -> str:
        """The decision with the gain and its interval, then the main reason; paragraphs of one sentence or two."""
        best, a = self.best, self.best.answer
        head = {
            "ship": f"Ship {best.candidate}",
            "keep": "Keep the current ranker",
            "test": f"Test {best.candidate} live before a decision",
            "unclear": f"Unclear: this log cannot tell whether {best.candidate} is better",
        }[best.decision]
        if best.decision == "keep" and len(self.candidates) > 1:
            head = f"{head}: every candidate loses. The best, {best.candidate}"
        reward, ends = str(self.settings["reward"]), (a.difference, a.difference_low, a.difference_high)
        gain = gain_text(a.today, *ends, level=self.settings["level"], reward=reward)
        gain = "." if math.isnan(a.difference) else f": {gain}."
        rest = [best.reasons[0]] if self._gives_reason else []
        if best.decision == "test" and math.isfinite(best.test_sessions):
            rest.append(f"An A/B test needs about {best.test_sessions:,.0f} sessions.")
        return "\n\n".join([f"{head}{gain}", *([" ".join(rest)] if rest else [])])

    @property
    def _gives_reason(self) -> bool:
        """Whether the conclusion gives the first reason."""
        return self.decision in {"unclear", "test"} and bool(self.best.reasons)

    def rows(self) -> Rows:
        """Return one row per candidate."""
        return [c.facts() for c in self.candidates]

    def facts(self) -> Mapping[str, Any]:
        """Return the facts that the notes of the class list."""
        best = self.best
        own = best.facts()
        names = ("decision", "candidate", "gain", "gain_low", "gain_high")
        percent = ("gain_percent", "gain_low_percent", "gain_high_percent")
        return {
            "conclusion": self.conclusion,
            **{name: own[name] for name in (*names, *percent)},
            "reasons": best.reasons,
            "risk": best.risk,
            "turning_points": [asdict(point) for point in best.turning_points],
            "test_sessions": best.test_sessions,
            "checks": [asdict(check) for check in self.checks],
            "drift": None if self.drift is None else asdict(self.drift),
            "rows": self.rows(),
        }

    def _document(self) -> Document:
        best = self.best
        reward, log = self.settings["reward"], self.settings["log"]
        level = f"{self.settings['level']:.0%} interval"
        together = "" if len(self.candidates) == 1 else ", for all candidates together"
        title = f"Gain in {reward} per session over {log} ({level}{together})"
        headline = Section(
            title,
            table=_candidate_table(self.candidates),
            figure=partial(_gain_figure, self.candidates, str(reward)),
            caption=f"Gain over today's ranker, with its {level}{together}.",
            name="candidates",
        )
        others = best.reasons[1:] if self._gives_reason else best.reasons
        reasons = [Section("Reasons", "\n\n".join(others))] if others else []
        sections = [
            *reasons,
            Section("What the decision depends on", table=_risk_table(best), name="risks"),
            Section("Checks of the log", table=_check_table(self.checks), name="checks"),
            Section("How to read this", _HOW, page_only=True, folded=True),
        ]
        sessions = f"{self.settings['sessions']:,} sessions of {log}" if "sessions" in self.settings else log
        data = f"Data: {sessions}. Reward: {reward} per session; today's ranker earns {best.answer.today:.4g}."
        return Document(_TITLE, self.conclusion, sections, self.settings, best.decision, data, headline)


def _candidate_table(candidates: Sequence[CandidateDecision]) -> Rows:
    """Make the table of all candidates."""
    return [
        {
            "candidate": c.candidate,
            "decision": c.decision,
            "gain": with_interval(c.answer.difference, c.answer.difference_low, c.answer.difference_high, signed=True),
            "relative": _percent_text(c),
            "verdict": c.answer.verdict,
            "estimator": c.answer.estimator or "–",
            "A/B sessions": "–" if math.isnan(c.test_sessions) else f"{c.test_sessions:,.0f}",
        }
        for c in candidates
    ]


def _percent_text(candidate: CandidateDecision) -> str:
    """Format the gain in percent with its interval."""
    relative = candidate.answer.relative
    if math.isnan(relative[0]):
        return "–"
    gain, low, high = percents(*relative)
    return f"{gain} [{low}, {high}]"


def _risk_table(candidate: CandidateDecision) -> Rows:
    """Make the table of the parts of the interval and of the turning points."""
    parts = [
        {"what": f"interval, part of {name}", "value": f"±{value:.4f}"}
        for name, value in candidate.answer.parts.items()
        if math.isfinite(value)
    ]
    points = [{"what": f"turning point, {p.assumption}", "value": p.words} for p in candidate.turning_points]
    risk = [{"what": "largest risk", "value": candidate.risk}] if candidate.risk else []
    return [*risk, *parts, *points] or [{"what": "largest risk", "value": "nothing is identified"}]


def _check_table(checks: Sequence[Check]) -> Rows:
    """Make the table of checks, those that need attention first."""
    order = ("severe", "caution", "ok")
    return [
        {"check": check.name, "status": check.status, "found": check.found}
        for check in sorted(checks, key=lambda check: order.index(check.status))
    ]


def _gain_figure(candidates: Sequence[CandidateDecision], reward: str) -> Any:
    """Plot the gain of every candidate with its interval, and zero."""
    rows = [
        {
            "label": c.candidate,
            "group": c.decision,
            "value": c.answer.difference,
            "low": c.answer.difference_low,
            "high": c.answer.difference_high,
        }
        for c in candidates
        if math.isfinite(c.answer.difference)
    ]
    return dot_plot(
        rows,
        axis=f"gain in {reward} per session",
        group="group",
        reference=0.0,
        reference_name="today's ranker",
        colours=_COLOURS,
    )
