"""Notes: what a reader left out of a file, told once and in numbers.

A log is never read silently in part. What breaks the format stops the reading, or is skipped where the caller asked for
it; what the format allows but a list of results cannot hold (a click on a document that is not shown) is left out. All
of it ends in one `ClickshiftWarning`.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NoReturn, final

import numpy as np
from jaxtyping import Bool, Int

from clickshift.errors import ClickshiftWarning, FileError

OnBadLine = Literal["error", "skip"]
"""What to do with a line that breaks the format: stop with a `FileError`, or skip it and report the number."""

_LONGEST = 80


@final
class ReadReport:
    """The tally of one file."""

    def __init__(self, path: str | Path, on_bad_line: OnBadLine = "error") -> None:
        self.path = path
        self._skip = on_bad_line == "skip"
        self._bad = 0
        self._first_bad = ""
        self._left_out: Counter[str] = Counter()

    def bad_line(self, line: int, rule: str, got: str | bytes) -> None:
        """A line that breaks the format: an error, or one more to report."""
        if isinstance(got, bytes):
            got = got.decode("utf-8", "backslashreplace")
        got = got if len(got) <= _LONGEST else got[:_LONGEST] + "..."
        problem = f"{rule}: got {got!r}"
        if not self._skip:
            advice = 'Mend the line, or read with on_bad_line="skip".'
            raise FileError(self.path, f"{problem}. {advice}", line=line)
        self._first_bad = self._first_bad or f"line {line}: {problem}"
        self._bad += 1

    def left_out(self, number: int, what: str) -> None:
        """So many things that are not in the result; `what` completes "left out 3 ..."."""
        self._left_out[what] += number

    def nothing(self, what: str) -> NoReturn:
        """The file holds none of what was asked for."""
        found = "; ".join(self._lines())
        raise FileError(self.path, f"there must be at least one {what}: got none{f' ({found})' if found else ''}.")

    def report(self) -> None:
        """One warning for everything that was left out, or none."""
        if lines := self._lines():
            warnings.warn(f"{self.path}: {'; '.join(lines)}.", ClickshiftWarning, stacklevel=3)

    def _lines(self) -> list[str]:
        lines = [f"left out {number:,} {what}" for what, number in self._left_out.items() if number]
        if self._bad:
            lines.append(f"skipped {self._bad:,} bad line(s), the first at {self._first_bad}")
        return lines


_ADVICE = 'Mend or remove it, or read with on_bad_line="skip".'


class BadSessions:
    """Which sessions are bad, and what is wrong with the first of them."""

    def __init__(
        self,
        n_sessions: int,
        *,
        owner: Int[np.ndarray, " row"] | None = None,
        name: Callable[[int], tuple[Path, str]],
        skip: bool,
    ) -> None:
        """`owner` is the session of every row, if they are not one to one; `name` tells a session's file and name."""
        self.bad: Bool[np.ndarray, " session"] = np.zeros(n_sessions, bool)
        self._owner = owner
        self._name = name
        self._skip = skip
        self.first = ""
        """What is wrong with the first bad session."""

    def mark(self, bad: Bool[np.ndarray, " session"], describe: Callable[[int], str]) -> None:
        """These sessions are bad; `describe(session)` says what must hold and what came."""
        if not bad.any():
            return
        first = int(np.argmax(bad))
        path, name = self._name(first)
        problem = f"{name}: {describe(first)}"
        if not self._skip:
            many = f" ({int(bad.sum()):,} such sessions)" if bad.sum() > 1 else ""
            raise FileError(path, f"{problem}{many}. {_ADVICE}")
        self.first = self.first or f"{path}, {problem}"
        self.bad |= bad

    def mark_rows(self, bad: Bool[np.ndarray, " row"], describe: Callable[[int], str]) -> None:
        """The sessions of these rows are bad; `describe(row)`."""
        if self._owner is None:
            return self.mark(bad, describe)
        if bad.any():
            rows = np.flatnonzero(bad)
            owners = self._owner[rows]
            sessions = np.zeros(len(self.bad), bool)
            sessions[owners] = True
            self.mark(sessions, lambda session: describe(int(rows[np.argmax(owners == session)])))

    def report(self, path: str, *, unreadable: list[str]) -> None:
        """One warning for everything that was left out, or none; an error where nothing is left."""
        dropped, total = int(self.bad.sum()), len(self.bad)
        told = [f"skipped {dropped:,} of {total:,} sessions, the first: {self.first}"] if dropped else []
        if unreadable:
            told.append(f"skipped {len(unreadable):,} unreadable line(s), the first: {unreadable[0]}")
        if dropped == total:
            raise FileError(path, f"no session is left to read: {'; '.join(told)}.")
        if told:
            warnings.warn(f"{path}: {'; '.join(told)}.", ClickshiftWarning, stacklevel=3)
