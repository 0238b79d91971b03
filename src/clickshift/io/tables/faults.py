"""Faults: sessions of a table that break a rule. The first one is an error, or all of them are dropped and counted."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int

from clickshift.errors import ClickshiftWarning, FileError

_ADVICE = 'Mend or remove it, or read with on_bad_line="skip".'


class Faults:
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
