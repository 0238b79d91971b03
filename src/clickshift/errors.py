"""Every exception and warning of clickshift.

A message says what must hold, what was found, where, and what to do. The command line prints it alone, without a
traceback. Each error and warning also carries a stable `code`, e.g. "duplicate-document", and the `facts` that the
message mentions, e.g. ``{"row": 3}``: programs and tests check those, never the wording.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any


class _Coded(Exception):
    """An error or warning with a code and facts."""

    def __init__(self, message: str, *, code: str = "", **facts: Any) -> None:
        super().__init__(message)
        self.code = code
        self.facts = facts

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Rebuild it with its code and facts, e.g. when it arrives from another process."""
        return _rebuilt, (type(self), self.args, self.__dict__)


class ClickshiftError(_Coded, ValueError):
    """An input that cannot be used; the message says what to change.

    Parameters
    ----------
    message
        What must hold, what was found, where, and what to do.
    code
        Stable name of the rule that was broken, in kebab case.
    **facts
        Values that the message mentions, by name.
    """


class DataError(ClickshiftError):
    """Sessions, rankings or a corpus that break a rule; the message names the rule and the first row that breaks it."""


class FileError(ClickshiftError):
    """A file that cannot be read: missing, truncated, of another format, or with a bad line.

    Parameters
    ----------
    path
        The file; the message begins with it.
    problem
        What must hold, what was found, and what to do.
    line
        Line number from 1, where it is known.
    place
        Another place in the file, e.g. "row 3".
    code
        Stable name of the rule that was broken, in kebab case.
    **facts
        Values that the message mentions, by name.
    """

    def __init__(
        self, path: str | Path, problem: str, *, line: int | None = None, place: str = "", code: str = "", **facts: Any
    ) -> None:
        where = ", ".join(filter(None, [f"{path}", place, "" if line is None else f"line {line}"]))
        super().__init__(f"{where}: {problem}", code=code, **facts)
        self.path = Path(path)
        self.line = line
        self.problem = problem


class VocabularyError(ClickshiftError):
    """Row numbers of one vocabulary that were used with another one and could not be translated."""


class SpecError(ClickshiftError):
    """A text such as "PlackettLuce(Oracle, temperature=0.1)", or an option, that names nothing that exists."""


class CapabilityError(ClickshiftError):
    """A model was asked for something that it cannot do, e.g. TopPop for click probabilities."""


class RunError(ClickshiftError):
    """A run of many tasks that could not continue, or whose tasks failed in part; finished tasks are kept."""


class ClickshiftWarning(_Coded, UserWarning):
    """Input that was skipped, guessed or is doubtful; the message says what and how much.

    Parameters
    ----------
    message
        What was found, how often, and what to do.
    code
        Stable name of the finding, in kebab case.
    **facts
        Values that the message mentions, by name.
    """


def _rebuilt(kind: type[Exception], arguments: tuple[Any, ...], state: dict[str, Any]) -> Exception:
    error = kind.__new__(kind, *arguments)
    error.args = arguments
    error.__dict__.update(state)
    return error
