"""Logs and judgments on disk: a protocol knows them by their content, and finds them by their paths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from clickshift.core.files import content_key
from clickshift.core.spec import resolve
from clickshift.data.sessions import Sessions
from clickshift.errors import SpecError
from clickshift.io.datasets.filters import annotated_only
from clickshift.io.datasets.registry import FORMATS, JUDGMENTS, read_raw, read_raw_judgments
from clickshift.io.qrels import Judgments
from clickshift.io.read_log import log_files, read_log

TABLE = "table"
"""The format of logs in our own layout: what `read_log` takes."""


@dataclass(frozen=True)
class LogFile:
    """A log on disk: its name in the tables, and what tells it from others."""

    name: str
    content: str
    """A digest of its files."""
    format: str = TABLE
    """`TABLE`, or a public format, such as trec."""
    files: tuple[str, ...] = field(default=(), repr=False, compare=False)
    """Where it is."""

    @classmethod
    def at(cls, path: str, *, format: str = TABLE, name: str | None = None) -> LogFile:
        """The log of a file, a folder or a pattern; its name is that of the file, without its ending."""
        if format != TABLE:
            resolve(format, FORMATS)
        files = log_files(path)
        return cls(name or Path(path).name.split(".")[0] or path, content_key(files), format, tuple(map(str, files)))

    def read(self, judged: Judgments | None = None) -> Sessions:
        """Its sessions; with `judged`, those of queries that are judged."""
        if self.format != TABLE:
            parts = [read_raw(file, format=self.format, judged=judged) for file in self.files]
            return parts[0] if len(parts) == 1 else Sessions.concat(parts)
        log = read_log(self.files)
        return log if judged is None else annotated_only(log, judged)


@dataclass(frozen=True)
class JudgmentFile:
    """What people found relevant: TREC qrels, or the labels that come with a public log."""

    content: str
    format: str = "qrels"
    file: str = field(default="", repr=False, compare=False)

    @classmethod
    def at(cls, path: str | Path, *, format: str = "qrels") -> JudgmentFile:
        if format not in JUDGMENTS:
            raise SpecError(f"judgments must be in one of the formats {', '.join(JUDGMENTS)}: got {format!r}.")
        return cls(content_key([path]), format, str(path))

    def read(self) -> Judgments:
        return read_raw_judgments(self.file, format=self.format)


def named_logs(paths: Sequence[str], *, format: str = TABLE) -> list[LogFile]:
    """Logs by the names of their files, or by their paths where two files have the same name."""
    logs = [LogFile.at(path, format=format) for path in paths]
    names = [log.name for log in logs]
    return [
        log if names.count(log.name) == 1 else LogFile.at(path, format=format, name=path)
        for log, path in zip(logs, paths, strict=True)
    ]
