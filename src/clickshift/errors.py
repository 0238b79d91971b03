"""Every exception and warning of clickshift.

A message says what must hold, what came, and what to do. The command line prints it alone, without a traceback.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any


class ClickshiftError(ValueError):
    """Something the user gave cannot be used; the message says what to change."""


class DataError(ClickshiftError):
    """Sessions, rankings or a corpus break a rule that the message names, with the row that breaks it."""


class FileError(ClickshiftError):
    """A file cannot be read: missing, truncated, of another format, or with a bad line.

    The message begins with the file and, where it is known, the line.
    """

    def __init__(self, path: str | Path, problem: str, *, line: int | None = None) -> None:
        where = f"{path}" if line is None else f"{path}, line {line}"
        super().__init__(f"{where}: {problem}")
        self.path = Path(path)
        self.line = line
        self.problem = problem

    def __reduce__(self) -> tuple[Any, ...]:
        """What it was made of: an error of another process must arrive as what it is."""
        return _file_error, (self.path, self.problem, self.line)


def _file_error(path: Path, problem: str, line: int | None) -> FileError:
    return FileError(path, problem, line=line)


class VocabularyError(ClickshiftError):
    """Row numbers of one vocabulary were used with another one, and could not be translated."""


class SpecError(ClickshiftError):
    """A text such as "PlackettLuce(Oracle, temperature=0.1)" does not name something that exists."""


class CapabilityError(ClickshiftError):
    """A model was asked for something that it cannot do, e.g. TopPop for click probabilities."""


class RunError(ClickshiftError):
    """A run of many tasks could not go on, or some of its tasks failed; what is finished is kept."""


class ClickshiftWarning(UserWarning):
    """Something was skipped, guessed or is doubtful; the message says what and how much."""
