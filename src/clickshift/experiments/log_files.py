"""Logs and judgments on disk: a protocol identifies them by their content and finds them by their paths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clickshift.core.files import content_key
from clickshift.core.spec import resolve
from clickshift.counts.open_log import open_log
from clickshift.data.encoded_log import Log
from clickshift.data.sessions import Sessions
from clickshift.errors import SpecError
from clickshift.experiments.runner import digest
from clickshift.io.datasets.filters import annotated_only
from clickshift.io.datasets.registry import FORMATS, JUDGMENTS, read_raw, read_raw_judgments
from clickshift.io.qrels import Judgments
from clickshift.io.read_log import log_files
from clickshift.io.read_report import OnBadLine

TABLE = "table"
"""The format of logs in clickshift's own layout, which `read_log` reads."""


@dataclass(frozen=True)
class LogFile:
    """A log on disk.

    Name, content and format are part of every task's digest; the paths are not, so that a log may be moved.

    Parameters
    ----------
    name
        Name in the tables.
    content
        Digest of the files.
    format
        "table" (clickshift's own layout), or a public format such as "trec".
    files
        Paths of the files.
    columns
        Names of the log's columns, by the names that `open_log` expects; part of `content`.
    on_bad_line
        "error", or "skip" to leave out bad sessions; part of `content`.
    """

    name: str
    content: str
    format: str = TABLE
    files: tuple[str, ...] = field(default=(), repr=False, compare=False)
    columns: tuple[tuple[str, str], ...] = field(default=(), repr=False, compare=False)
    on_bad_line: OnBadLine = field(default="error", repr=False, compare=False)

    @classmethod
    def at(
        cls,
        path: str,
        *,
        format: str = TABLE,
        name: str | None = None,
        columns: Mapping[str, str] | None = None,
        on_bad_line: OnBadLine = "error",
    ) -> LogFile:
        """Describe the log at a path.

        Parameters
        ----------
        path
            File, folder or glob pattern.
        format
            "table" (clickshift's own layout), or a public format such as "trec".
        name
            Name in the tables; by default the file name without its extension.
        columns, on_bad_line
            As in `open_log`, for clickshift's own layout.

        Returns
        -------
        LogFile
            The log, with the digest of its content.

        Raises
        ------
        SpecError
            If the format is unknown ("unknown-name").
        FileError
            If there is no such file.
        """
        if format != TABLE:
            resolve(format, FORMATS)
        files, chosen = log_files(path), tuple(sorted((columns or {}).items()))
        content = content_key(files)
        if chosen or on_bad_line != "error":  # read in another way, the same files are another log
            content = digest((content, chosen, on_bad_line))
        name = name or Path(path).name.split(".")[0] or path
        return cls(name, content, format, tuple(map(str, files)), chosen, on_bad_line)

    def read(self, judged: Judgments | None = None) -> Log:
        """Open the log, whatever its size; with `judged`, only the sessions of judged queries."""
        if self.format != TABLE:
            parts = [read_raw(file, format=self.format, judged=judged) for file in self.files]
            return parts[0] if len(parts) == 1 else Sessions.concat(parts)
        log = open_log(list(self.files), columns=dict(self.columns), on_bad_line=self.on_bad_line)
        return log if judged is None else annotated_only(log, judged)  # type: ignore[type-var]


@dataclass(frozen=True)
class JudgmentFile:
    """Relevance judgments on disk: TREC qrels, or the labels that come with a public log.

    Parameters
    ----------
    content
        Digest of the file.
    format
        "qrels", or the format of a public log that has labels.
    file
        Path of the file; not part of a task's digest.
    """

    content: str
    format: str = "qrels"
    file: str = field(default="", repr=False, compare=False)

    @classmethod
    def at(cls, path: str | Path, *, format: str = "qrels") -> JudgmentFile:
        """Describe the judgments at a path.

        Parameters
        ----------
        path
            The file.
        format
            "qrels", or the format of a public log that has labels.

        Returns
        -------
        JudgmentFile
            The judgments, with the digest of their content.

        Raises
        ------
        SpecError
            If the format is unknown ("unknown-format").
        """
        if format not in JUDGMENTS:
            raise SpecError(
                f"judgments must be in one of the formats {', '.join(JUDGMENTS)}: got {format!r}.",
                code="unknown-format",
                format=format,
                known=list(JUDGMENTS),
            )
        return cls(content_key([path]), format, str(path))

    def read(self) -> Judgments:
        """Read the judgments."""
        return read_raw_judgments(self.file, format=self.format)


def named_logs(paths: Sequence[str], **options: Any) -> list[LogFile]:
    """Describe several logs, named by their files, or by their paths where two files have the same name.

    Parameters
    ----------
    paths
        Files, folders or glob patterns.
    **options
        Options of `LogFile.at`: the format, columns and treatment of bad lines of all logs.

    Returns
    -------
    list of LogFile
        The logs, in the order of the paths.
    """
    logs = [LogFile.at(path, **options) for path in paths]
    names = [log.name for log in logs]
    return [
        log if names.count(log.name) == 1 else LogFile.at(path, **options, name=path)
        for log, path in zip(logs, paths, strict=True)
    ]
