"""Logs and judgments on disk: a protocol identifies them by their content and finds them by their paths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from clickshift.core.files import content_key
from clickshift.core.progress import Progress, silent
from clickshift.core.spec import resolve
from clickshift.counts.open_log import LogLike, open_log
from clickshift.counts.open_public_log import open_public_log
from clickshift.data.encoded_files import LOG_FORMAT
from clickshift.data.encoded_log import Log
from clickshift.data.sessions import Sessions
from clickshift.errors import SpecError
from clickshift.experiments.runner import digest
from clickshift.io.datasets.filters import annotated_only, drop_without_clicks
from clickshift.io.datasets.registry import FORMATS, JUDGMENTS, read_raw_judgments, regions_option
from clickshift.io.qrels import Judgments
from clickshift.io.read_log import log_files, write_log
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
            File, folder, glob pattern, table "FILE.duckdb::TABLE", or folder of an encoded log.
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
        chosen = tuple(sorted((columns or {}).items()))
        content, files = _content(path)
        if chosen or on_bad_line != "error":  # read in another way, the same files are another log
            content = digest((content, chosen, on_bad_line))
        name = name or Path(path).name.split(".")[0] or path
        return cls(name, content, format, files, chosen, on_bad_line)

    def read(
        self,
        judged: Judgments | None = None,
        *,
        with_clicks: bool = False,
        merge_regions: bool = False,
        progress: Progress = silent,
    ) -> Log:
        """Open the log, whatever its size.

        Parameters
        ----------
        judged
            Judgments: only sessions of judged queries are kept.
        with_clicks
            Keep only sessions with a click.
        merge_regions
            Name queries of the WSCD 2012 log by QueryID alone.
        progress
            Called with texts while a large log is encoded.
        """
        if self.format != TABLE:
            return open_public_log(
                self.files,
                format=self.format,
                queries=judged,
                with_clicks=with_clicks,
                merge_regions=merge_regions,
                on_bad_line=self.on_bad_line,
                progress=progress,
            )
        regions_option(self.format, merge_regions)
        source = self.files[0] if len(self.files) == 1 else list(self.files)
        log: Any = open_log(source, columns=dict(self.columns), on_bad_line=self.on_bad_line, progress=progress)
        log = log if judged is None else annotated_only(log, judged)
        return drop_without_clicks(log) if with_clicks else log  # type: ignore[no-any-return]


def _content(path: str) -> tuple[str, tuple[str, ...]]:
    """Return the digest of a log's content, and the paths from which it is opened."""
    database, _, table = path.partition("::")
    if table:
        return digest((content_key([database]), table)), (path,)
    if (header := Path(path) / LOG_FORMAT.header).exists():
        return content_key([header]), (path,)
    files = log_files(path)
    return content_key(files), tuple(map(str, files))


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

    def read(self, *, merge_regions: bool = False) -> Judgments:
        """Read the judgments; with `merge_regions`, queries of the WSCD 2012 log are named by QueryID alone."""
        return read_raw_judgments(self.file, format=self.format, merge_regions=merge_regions)


def named_logs(
    logs: Sequence[LogLike], folder: Path = Path(), *, names: Sequence[str | None] = (), **options: Any
) -> list[LogFile]:
    """Describe several logs, named by their files, or by their paths where two files have the same name.

    Parameters
    ----------
    logs
        The logs. One in memory, such as a data frame, is written to `folder`, so that worker processes can read it.
    folder
        Folder for logs in memory.
    names
        Name of each log, where it has one.
    **options
        Options of `LogFile.at`: the format, columns and treatment of bad lines of all logs.

    Returns
    -------
    list of LogFile
        The logs, in the order given.
    """
    given = names or [None] * len(logs)
    files = [_log_file(log, folder, name, options) for name, log in zip(given, logs, strict=True)]
    taken = [file.name for file in files]
    return [
        replace(file, name=str(log)) if name is None and taken.count(file.name) > 1 else file
        for file, name, log in zip(files, given, logs, strict=True)
    ]


def _log_file(log: LogLike, folder: Path, name: str | None, options: Mapping[str, Any]) -> LogFile:
    """Describe a log on disk; write one that is in memory to the folder first."""
    if isinstance(log, str | Path):
        return LogFile.at(str(log), name=name, **options)
    opened = open_log(log, columns=options.get("columns"), on_bad_line=options.get("on_bad_line", "error"))
    sessions = opened if isinstance(opened, Sessions) else opened.sessions()
    name = name or f"log {len(list(folder.glob('*.parquet'))) + 1}"
    folder.mkdir(parents=True, exist_ok=True)
    write_log(sessions, folder / f"{name}.parquet")
    return LogFile.at(str(folder / f"{name}.parquet"), name=name)
