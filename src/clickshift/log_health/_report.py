"""LogHealth: what the checks of a log found, as a result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from clickshift.data.description import describe_log
from clickshift.display.document import Document, Section
from clickshift.display.figures import COLOURS, add_curve, dot_plot, rank_step
from clickshift.display.result import Result
from clickshift.display.tables import Rows
from clickshift.log_health.checks import CHECKS
from clickshift.log_health.finding import SEVERITIES, Finding, Severity

_COLOURS = {"severe": COLOURS[1], "warning": COLOURS[3], "notice": COLOURS[6]}
_VERDICTS: dict[Severity, str] = {
    "none": "healthy",
    "notice": "healthy",
    "warning": "caution",
    "severe": "severe",
}


@dataclass(frozen=True, repr=False, eq=False)
class LogHealth(Result):
    """What the checks of a log found: findings with rate, examples, severity, remedy and effect.

    Parameters
    ----------
    findings
        The findings, the most severe ones first.
    passed
        Names of the checks that found nothing.
    not_run
        What each check that was not run needs, by its name.
    sessions, queries
        Numbers of sessions and queries.
    ctr_by_rank
        Click-through rate of each rank.
    source
        Where the log came from.
    level
        Level of the intervals.

    Notes
    -----
    Keys of `to_dict`, which `clickshift doctor --json` prints:

    - conclusion: the answer, as text.
    - verdict: the largest severity: none, notice, warning or severe.
    - sessions, queries: numbers.
    - findings: one dict per finding: check (a stable name), severity, text, rate with low and high, affected and unit
      (sessions, results, clicks or events), p_value (None for what is certain), remedy, examples; effect, where it is
      known: the curve with and without the affected sessions (or events: left_out) relative to rank 1, and the rank and
      size of its largest change; otherwise no_effect: why it is not known.
    - passed: names of the checks that found nothing.
    - not_run: what the other checks need, by name.
    - level: level of the intervals.

    Examples
    --------
    >>> import clickshift as cs
    >>> log = cs.simulate(cs.builtin_corpus(5), cs.Uniform(), cs.users.PBM(), 2000, rng=0)
    >>> health = cs.check_log(log)
    >>> health.verdict, "clicks-everything" in health.passed, health.not_run["power-users"]
    ('none', True, 'needs the column user')
    """

    findings: tuple[Finding, ...]
    passed: tuple[str, ...]
    not_run: Mapping[str, str]
    sessions: float
    queries: int
    ctr_by_rank: np.ndarray = field(repr=False)
    source: str = ""
    level: float = 0.95

    @property
    def verdict(self) -> Severity:
        """The largest severity of the findings."""
        return max((finding.severity for finding in self.findings), key=SEVERITIES.index, default="none")

    def at_least(self, severity: Severity) -> tuple[Finding, ...]:
        """Return the findings of this severity or a larger one."""
        limit = SEVERITIES.index(severity)
        return tuple(finding for finding in self.findings if SEVERITIES.index(finding.severity) >= limit)

    @property
    def conclusion(self) -> str:
        """The number of problems by severity, and the names of the largest ones."""
        ran = len(self.findings) + len(self.passed)
        numbers = {s: sum(finding.severity == s for finding in self.findings) for s in SEVERITIES}
        titles = [_lowered(finding.title) for finding in self.at_least("warning")]
        others = f"; {_counted(numbers['notice'], 'notice')}" if numbers["notice"] else ""
        if titles:
            named = ((numbers["severe"], "severe problem"), (numbers["warning"], "warning"))
            parts = [_counted(number, name) for number, name in named if number]
            text = f"The log has {' and '.join(parts)}: {', '.join(titles)}{others}."
        else:
            text = f"{_counted(ran, 'check')} found no problem in the log{others}."
        needed = f" {_counted(len(self.not_run), 'check')} could not be run." if self.not_run else ""
        return text + needed

    def rows(self) -> Rows:
        """Return one row per check: its result, rate and interval, or what it needs."""
        found = [
            {
                "check": finding.check,
                "severity": finding.severity,
                "rate": finding.rate,
                "low": finding.low,
                "high": finding.high,
                "affected": finding.affected,
                "unit": finding.unit,
                "text": finding.text,
                "remedy": finding.remedy,
            }
            for finding in self.findings
        ]
        nothing: dict[str, Any] = {
            "severity": "none", "rate": None, "low": None, "high": None, "affected": None, "unit": None, "text": "",
            "remedy": "",
        }  # fmt: skip
        passed = [{"check": name, **nothing} for name in self.passed]
        not_run = [
            {"check": name, **nothing, "severity": "not run", "text": needs} for name, needs in self.not_run.items()
        ]
        return [*found, *passed, *not_run]

    def facts(self) -> Mapping[str, Any]:
        """Return the facts that the notes of the class list."""
        return {
            "conclusion": self.conclusion,
            "verdict": self.verdict,
            "sessions": self.sessions,
            "queries": self.queries,
            "findings": [finding.to_dict() for finding in self.findings],
            "passed": list(self.passed),
            "not_run": dict(self.not_run),
            "level": self.level,
        }

    def _document(self) -> Document:
        """Show the rates, then what was found with what to do, then examples and effects, then the other checks."""
        headline = None
        sections: list[Section] = []
        if self.findings:
            headline = Section(
                "Findings",
                table=[
                    {"": finding.title, "severity": finding.severity, "rate": _percent(finding)}
                    for finding in self.findings
                ],
                figure=self._figure,
                caption="Rate: share of the affected sessions (or of what the finding names), with its "
                f"{self.level:.0%} interval.",
            )
        sections += [self._details(finding) for finding in self.findings]
        if self.passed:
            table = [{"": CHECKS[name].title} for name in self.passed]
            sections.append(Section("Checks that found nothing", table=table, folded=True, page_only=True))
        if self.not_run:
            by_reason: dict[str, list[str]] = {}
            for name, needs in self.not_run.items():
                by_reason.setdefault(needs, []).append(_lowered(CHECKS[name].title))
            table = [
                {"needed": needs.removeprefix("needs "), "checks": ", ".join(names)}
                for needs, names in by_reason.items()
            ]
            sections.append(Section("Checks that were not run", table=table, folded=True))
        return Document(
            "Log health",
            self.conclusion,
            sections,
            verdict=_VERDICTS[self.verdict],
            data=describe_log(self.sessions, self.queries, source=self.source),
            headline=headline,
        )

    def _figure(self) -> Any:
        """Plot the rates."""
        rows = [
            {
                "label": finding.title,
                "severity": finding.severity,
                "value": 100 * finding.rate,
                "low": 100 * finding.low,
                "high": 100 * finding.high,
            }
            for finding in self.findings
        ]
        figure = dot_plot(rows, axis="affected share, in %", group="severity", colours=_COLOURS)
        figure.update_xaxes(rangemode="tozero")
        return figure

    def _details(self, finding: Finding) -> Section:
        """Show what was found, what to do, what it does to the answer, and examples."""
        paragraphs = [finding.text]
        if finding.effect is not None:
            paragraphs.append(str(finding.effect))
        elif finding.no_effect:
            paragraphs.append(f"Examination with and without this defect is not compared: {finding.no_effect}.")
        paragraphs.append(f"What to do: {finding.remedy}")
        parts = [
            Section(
                "Examples", table=list(finding.examples), name=f"{finding.check} examples", page_only=True, folded=True
            )
        ]
        if finding.effect is not None:
            curves = Section(
                f"With and without {finding.effect.name}",
                figure=lambda: _curves(finding),
                name=f"{finding.check} effect",
                page_only=True,
            )
            parts.insert(0, curves)
        return Section(
            f"{finding.title}: {finding.severity}",
            text="\n\n".join(paragraphs),
            parts=[part for part in parts if part.table or part.figure is not None],
            name=finding.check,
        )


def _curves(finding: Finding) -> Any:
    """Plot examination with and without the affected sessions."""
    import plotly.graph_objects as go

    figure, effect = go.Figure(), finding.effect
    assert effect is not None
    known = np.flatnonzero((effect.everything > 0) & (effect.without > 0))
    for curve, name, colour, symbol in (
        (effect.everything, "all sessions" if effect.name == "these sessions" else "with them", COLOURS[0], "circle"),
        (effect.without, "without them", COLOURS[1], "diamond"),
    ):
        none = [None] * len(known)
        add_curve(
            figure, (known + 1).tolist(), curve[known].tolist(), none, none, name=name, colour=colour, symbol=symbol
        )
    figure.update_layout(
        template="plotly_white",
        xaxis={"title": "rank", "dtick": rank_step(len(effect.everything))},
        yaxis={"title": f"{effect.curve} relative to rank 1", "rangemode": "tozero"},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"},
        margin={"l": 60, "r": 20, "t": 40, "b": 50},
        height=320,
    )
    return figure


def _percent(finding: Finding) -> str:
    """Return a rate with its interval in percent."""
    return f"{finding.rate:.1%} [{finding.low:.1%}, {finding.high:.1%}]"


def _counted(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _lowered(title: str) -> str:
    """Return a title within a sentence."""
    return title[:1].lower() + title[1:]
