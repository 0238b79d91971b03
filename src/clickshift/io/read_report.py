"""Reports of skipped input: what a reader left out of a file, in one warning with counts.

A log is never read in part without a word. Input that breaks the format is an error, or is skipped and counted if the
caller asked for that. Input that the format allows but a list of results cannot represent (a click on a document that
the list does not show) is left out and counted. All of it ends in one `ClickshiftWarning`.

`ReadReport` counts everything that was skipped: lines, items, sessions, files. `BadSessions` marks the sessions of a
table that break a rule.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn, final

import numpy as np
from jaxtyping import Bool, Int

from clickshift.errors import ClickshiftWarning, DataError, FileError

OnBadLine = Literal["error", "skip"]
"""What to do with a line that breaks the format: raise a `FileError`, or skip it and report the count."""

MAX_EXAMPLES = 3
"""Number of examples that are kept of each reason."""
_MAX_SHOWN_CHARACTERS = 80
_MAX_EXAMPLE_CHARACTERS = 200


class UnreadableLine(NamedTuple):
    """A line that is not a row of the table: its number from 1, and the reason."""

    line: int
    problem: str


class BadEvent(NamedTuple):
    """An event that breaks the format: its file, its line from 1 where it is known, what it holds, or another place."""

    path: Path
    line: int | None
    got: str
    place: str = ""


def _cut(text: str) -> str:
    """Shorten a long text for a message."""
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else text[:_MAX_SHOWN_CHARACTERS] + "..."


def unreadable_lines_error(
    path: Path, lines: Sequence[UnreadableLine], advice: str = 'Fix or remove it, or pass on_bad_line="skip".'
) -> FileError:
    """Return the error of a file with lines that are not rows of its table (code "unreadable-line")."""
    (line, problem), count = lines[0], len(lines)
    message = f"{problem} ({count:,} such lines). {advice}"
    return FileError(path, message, line=line, code="unreadable-line", count=count)


@final
class ReadReport:
    """Counts of everything that was skipped while a log or a file was read.

    Parameters
    ----------
    path
        The file, or another name of the input; messages begin with it.
    on_bad_line
        Whether the first bad line is an error or all of them are skipped and counted.

    Raises
    ------
    DataError
        "bad-option" for another `on_bad_line`.

    Examples
    --------
    >>> report = ReadReport("qrels.txt", on_bad_line="skip")
    >>> report.bad_line(3, "a line must have four fields", "a b")
    >>> import warnings
    >>> with warnings.catch_warnings(record=True, action="always") as caught:
    ...     report.report()
    >>> print(caught[0].message)
    qrels.txt: skipped 1 bad line(s), the first at line 3: a line must have four fields: got 'a b'.
    """

    def __init__(self, path: str | Path, on_bad_line: str = "error") -> None:
        if on_bad_line not in {"error", "skip"}:
            raise DataError(
                f'on_bad_line must be "error" or "skip": got {on_bad_line!r}.',
                code="bad-option",
                option="on_bad_line",
                value=on_bad_line,
            )
        self.path = path
        self.skip = on_bad_line == "skip"
        self._n_bad = 0
        self._first_bad = ""
        self._first_bad_line: int | None = None
        self._left_out: Counter[tuple[str, str]] = Counter()
        self._repaired: Counter[tuple[str, str]] = Counter()
        self._left_out_bad: Counter[tuple[str, str]] = Counter()
        self._examples: dict[str, list[str]] = {}
        self._details: dict[str, Any] = {}
        self._lines: list[str] = []
        self._files: dict[str, str] = {}
        self._sessions: dict[str, Any] = {"count": 0, "total": 0, "rule": "", "first": {}}
        self._first_session = ""

    def new(self) -> ReadReport:
        """Return an empty report of the same input: for a reader that starts again."""
        return ReadReport(self.path, "skip" if self.skip else "error")

    def bad_line(self, line: int, rule: str, got: str | bytes) -> None:
        """Raise an error for a line that breaks the format, or count it if bad lines are skipped.

        Parameters
        ----------
        line
            Line number, from 1.
        rule
            What every line must be.
        got
            Content of the line; long lines are cut in the message.

        Raises
        ------
        FileError
            With code "bad-line", unless bad lines are skipped.
        """
        if isinstance(got, bytes):
            got = got.decode("utf-8", "backslashreplace")
        got = _cut(got)
        problem = f"{rule}: got {got!r}"
        if not self.skip:
            advice = 'Fix the line, or pass on_bad_line="skip".'
            raise FileError(self.path, f"{problem}. {advice}", line=line, code="bad-line", value=got)
        if self._first_bad_line is None:
            self._first_bad_line = line
        self._first_bad = self._first_bad or f"line {line}: {problem}"
        self._n_bad += 1

    def left_out(self, count: int, what: str, code: str, *, examples: Sequence[str] = (), **facts: Any) -> None:
        """Count items that are not in the result; `what` completes "left out 3 ...", `code` names the reason."""
        self._details.update(facts)
        self._left_out[what, code] += count
        self._add_examples(code, examples)

    def repaired(self, count: int, what: str, code: str, *, examples: Sequence[str] = ()) -> None:
        """Count items that are in the result in another form; `what` says what became of them."""
        self._repaired[what, code] += count
        self._add_examples(code, examples)

    def bad_events(self, count: int, rule: str, code: str, examples: Sequence[BadEvent], advice: str = "") -> None:
        """Raise an error for events that break the format, or count them if bad lines are skipped.

        Parameters
        ----------
        count
            Number of such events.
        rule
            What every event must be.
        code
            Stable name of the rule.
        examples
            The first of them.
        advice
            What to do beside fixing the event.

        Raises
        ------
        FileError
            With the code, unless bad lines are skipped.
        """
        if not count:
            return
        shown = [(example, f"{rule}: got {_cut(example.got)!r}") for example in examples[:MAX_EXAMPLES]]
        first, problem = shown[0] if shown else (BadEvent(Path(self.path), None, ""), rule)
        if not self.skip:
            others = f" ({count:,} such events)" if count > 1 else ""
            message = f'{problem}{others}. Fix or remove it{advice}, or pass on_bad_line="skip".'
            raise FileError(
                first.path, message, line=first.line, place=first.place, code=code, count=count, value=_cut(first.got)
            )
        places = [one.place or ("" if one.line is None else f"line {one.line}") for one, _ in shown]
        located = [
            f"{one.path}{place and f', {place}'}: {text}" for (one, text), place in zip(shown, places, strict=True)
        ]
        self._first_bad_line = first.line if self._first_bad_line is None else self._first_bad_line
        self._first_bad = self._first_bad or (located[0] if located else problem)
        self._n_bad += count
        self._left_out_bad[f"events that break the format: {rule}", code] += count
        self._add_examples(code, located)

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per reason: its code, what became of the items, their number, what they are, and examples."""
        kinds = {"skipped": self._left_out_bad, "left out": self._left_out, "repaired": self._repaired}
        return [
            {
                "reason": code,
                "outcome": outcome,
                "count": count,
                "what": what,
                "examples": "; ".join(self._examples.get(code, ())),
            }
            for outcome, counter in kinds.items()
            for (what, code), count in counter.items()
            if count
        ]

    def _add_examples(self, code: str, examples: Sequence[str]) -> None:
        """Keep the first examples of a reason."""
        kept = self._examples.setdefault(code, [])
        kept += [example[:_MAX_EXAMPLE_CHARACTERS] for example in examples][: MAX_EXAMPLES - len(kept)]

    def unreadable_lines(self, path: Path, lines: Sequence[UnreadableLine]) -> None:
        """Count lines that are not rows of a table."""
        self._lines += [f"{path}, line {line}: {problem}" for line, problem in lines]

    def skipped_sessions(
        self, count: int, total: int, first: str, *, rule: str = "", facts: Mapping[str, Any] | None = None
    ) -> None:
        """Count sessions that break a rule.

        Parameters
        ----------
        count, total
            Number of skipped sessions, and of all sessions.
        first
            Location and problem of the first one.
        rule, facts
            Code of the rule that it breaks, and the facts.
        """
        if count and not self._sessions["count"]:
            self._sessions |= {"rule": rule, "first": dict(facts or {})}
            self._first_session = first
        self._sessions["count"] += count
        self._sessions["total"] += total

    def damaged_file(self, path: Path, problem: str) -> None:
        """Count a file, or a part of it, that cannot be read."""
        self._files.setdefault(str(path), problem)

    @property
    def n_sessions(self) -> int:
        """Number of skipped sessions."""
        n: int = self._sessions["count"]
        return n

    @property
    def files(self) -> list[str]:
        """Files that could not be read in full."""
        return list(self._files)

    def fail_empty(self, what: str, code: str = "empty-file") -> NoReturn:
        """Raise the error of an input that holds none of what was asked for."""
        reasons = "; ".join(self._sentences())
        raise FileError(
            self.path,
            f"there must be at least one {what}: got none{f' ({reasons})' if reasons else ''}.",
            code=code,
            **self._facts(),
        )

    def report(self) -> None:
        """Issue one warning about everything that was skipped, if anything was.

        Its code is "skipped-sessions" for sessions and unreadable lines or files of a log, else "skipped-input".
        """
        if sentences := self._sentences():
            facts = {**self._facts(), "line": self._first_bad_line}
            code = "skipped-sessions" if self.n_sessions or self._lines or self._files else "skipped-input"
            warning = ClickshiftWarning(f"{self.path}: {'; '.join(sentences)}.", code=code, **facts)
            warnings.warn(warning, stacklevel=3)

    def warn_bad(self) -> None:
        """Issue one warning about skipped events, if any were; for a reader whose result says what was left out."""
        if self._n_bad:
            sentence = f"skipped {self._n_bad:,} bad event(s), the first at {self._first_bad}"
            facts = {**self._facts(), "line": self._first_bad_line}
            warning = ClickshiftWarning(f"{self.path}: {sentence}.", code="skipped-input", **facts)
            warnings.warn(warning, stacklevel=3)

    def _sentences(self) -> list[str]:
        """Return one sentence for every kind of skipped input."""
        sentences = [f"left out {count:,} {what}" for (what, _), count in self._left_out.items() if count]
        if self._n_bad:
            sentences.append(f"skipped {self._n_bad:,} bad line(s), the first at {self._first_bad}")
        if self.n_sessions:
            share = f"{self.n_sessions:,} of {self._sessions['total']:,}"
            sentences.append(f"skipped {share} sessions, the first: {self._first_session}")
        if self._lines:
            sentences.append(f"skipped {len(self._lines):,} unreadable line(s), the first: {self._lines[0]}")
        if self._files:
            path, problem = next(iter(self._files.items()))
            sentences.append(
                f"skipped the unreadable parts of {len(self._files):,} file(s), the first: {path}: {problem}"
            )
        return sentences

    def _facts(self) -> dict[str, Any]:
        """Return the numbers of everything that was skipped; of left-out items by the code of the reason."""
        left_out = {code: count for (_, code), count in self._left_out.items() if count}
        files = {"unreadable_lines": len(self._lines), "files": len(self._files), "paths": self.files}
        return {"bad_lines": self._n_bad, "left_out": left_out, **self._sessions, **files, **self._details}


class SessionLocation(NamedTuple):
    """Where a session stands: its file, its label in messages ("row 3", "session y"), and the same as facts."""

    path: Path
    label: str
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class Violation:
    """A rule that a session breaks.

    Parameters
    ----------
    code
        Stable name of the rule, in kebab case.
    problem
        What must hold and what was found.
    facts
        Values that `problem` mentions, by name.
    """

    code: str
    problem: str
    facts: Mapping[str, Any] = field(default_factory=dict)


class BadSessions:
    """Mask of the sessions that break a rule, with a description of the first one.

    The first bad session is an error, or all of them are dropped and counted.

    Parameters
    ----------
    n_sessions
        Number of sessions.
    owner
        Session number of every row, where rows and sessions are not one to one.
    locate
        Function from a session number to its file and label.
    skip
        Whether bad sessions are dropped and counted instead of raising an error.
    """

    def __init__(
        self,
        n_sessions: int,
        *,
        owner: Int[np.ndarray, " row"] | None = None,
        locate: Callable[[int], SessionLocation],
        skip: bool,
    ) -> None:
        self.bad: Bool[np.ndarray, " session"] = np.zeros(n_sessions, bool)
        self.first = ""
        """Location and problem of the first bad session."""
        self.first_code = ""
        """Code of the rule that the first bad session breaks."""
        self.first_facts: dict[str, Any] = {}
        """Facts of the first bad session."""
        self._owner = owner
        self._locate = locate
        self._skip = skip

    def mark(self, bad: Bool[np.ndarray, " session_or_row"], describe: Callable[[int], Violation]) -> None:
        """Mark sessions as bad, or raise the error of the first one.

        Parameters
        ----------
        bad
            Mask of the sessions that break the rule, or of their rows.
        describe
            Function from the number of a session, or of its first bad row, to the rule that it breaks.

        Raises
        ------
        FileError
            With the code of the violation, unless bad sessions are skipped.
        """
        if not bad.any():
            return
        sessions, item = bad, int(np.argmax(bad))
        first = item
        if self._owner is not None and len(bad) == len(self._owner):
            owners = self._owner[bad]
            sessions = np.bincount(owners, minlength=len(self.bad)) > 0
            first = int(owners.min())
            item = int(np.flatnonzero(bad)[np.argmax(owners == first)])
        count, location, violation = int(sessions.sum()), self._locate(first), describe(item)
        if not self._skip:
            others = f" ({count:,} such sessions)" if count > 1 else ""
            message = f'{violation.problem}{others}. Fix or remove it, or pass on_bad_line="skip".'
            facts = {**violation.facts, **location.facts, "count": count}
            raise FileError(location.path, message, place=location.label, code=violation.code, **facts)
        if not self.first:
            self.first = f"{location.path}, {location.label}: {violation.problem}"
            self.first_code = violation.code
            self.first_facts = {**violation.facts, **location.facts}
        self.bad |= sessions

    def report_to(self, report: ReadReport) -> None:
        """Add the marked sessions to a report."""
        count = int(self.bad.sum())
        report.skipped_sessions(count, len(self.bad), self.first, rule=self.first_code, facts=self.first_facts)
