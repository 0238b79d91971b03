"""Open a log of any kind and size: a small one is read into memory, a large one is encoded on disk once.

The encoded form is cached in a hidden directory next to the log, `.clickshift`, under a digest of the files; it can be
deleted at any time. Entries of a log that has changed, and all but the eight that were used last, are removed.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clickshift.core.files import cache_folder
from clickshift.core.progress import Progress, silent
from clickshift.data.encoded_files import LOG_FORMAT
from clickshift.data.encoded_log import EncodedLog, Log
from clickshift.data.sessions import Rankings, Sessions
from clickshift.errors import ClickshiftError, DataError, FileError, SpecError
from clickshift.io.rankings import read_rankings
from clickshift.io.read_log import check_same, choose_columns, log_files, read_log
from clickshift.io.read_report import OnBadLine, ReadReport
from clickshift.io.tables.formats import log_columns

if TYPE_CHECKING:
    from clickshift.counts.daily import DayCounts
    from clickshift.io.encode.batches import DamagedFile, ReadBatch
    from clickshift.io.encode.duckdb import DuckdbLimits
    from clickshift.io.tables.formats import Choose

MEMORY_LIMIT = 1 << 28
"""Total size of log files, in bytes, from which a log is encoded instead of read into memory."""
_ENCODING_VERSION = 4
"""Version of the encoding, raised when the same log would be encoded differently."""
_DIGEST_BYTES = 1 << 16
"""Number of bytes at the end of each file that enter the cache key."""
_SAMPLED_BLOCKS, _BLOCK_BYTES = 64, 1 << 12
"""Number of blocks of each file that enter the cache key, and their size in bytes."""
_KEPT_ENTRIES, _KEPT_SECONDS = 8, 3600.0
"""Number of encoded logs that a cache keeps, and the time for which none is removed."""
_ENCODED_HEADER, _COUNTS_HEADER = "log.json", "count.json"


LogLike = str | Path | Sequence[str | Path] | Sessions | EncodedLog | Any  # Any: data frames
"""Anything that `open_log` opens: a file, directory, glob pattern or a list of them, a table "FILE.duckdb::TABLE", a
data frame (pandas, Polars, Arrow, DuckDB, Spark, Ibis), a directory with an encoded log, `Sessions` or an `EncodedLog`.
Functions that need counts only, such as `fit`, also take daily counts: a directory, several, or `DayCounts`."""


def open_log(
    log: LogLike,
    *,
    columns: Mapping[str, str] | None = None,
    on_bad_line: OnBadLine = "error",
    in_memory: bool | None = None,
    output: str | Path | None = None,
    spill: DuckdbLimits | None = None,
    progress: Progress = silent,
) -> Log:
    """Open a log of any kind and size.

    Parameters
    ----------
    log
        A file, a directory (also one partitioned by day), a glob pattern, a list of those, a directory with an encoded
        log, a table of a DuckDB database ("clicks.duckdb::table"), or a data frame: pandas, Polars, Arrow, DuckDB,
        Spark, Ibis. `Sessions` and an `EncodedLog` are returned as they are.
    columns
        Names of the log's columns, by the names that `read_log` expects.
    on_bad_line
        "error", or "skip" to leave out bad sessions, and also files that cannot be read.
    in_memory
        Whether to read files into memory as `Sessions`. By default, files below 256 MB are, unless few long lists
        among many short ones would take far more memory than their results; data frames always.
    output
        Directory for the encoded log; by default a hidden one next to the log.
    spill
        Memory limit and temporary directory of DuckDB, which joins the rows of a session or reads a database.
    progress
        Called with a text such as "65,536 sessions encoded" while a large log is encoded.

    Returns
    -------
    Sessions or EncodedLog
        The log in memory, or encoded on disk.

    Raises
    ------
    DataError
        If an option is not known ("bad-option", "unknown-column"), the log breaks a rule, or it is neither a path nor a
        table ("not-a-log").
    FileError
        If a file cannot be read ("unreadable-file"), or `output` exists and is not an encoded log ("folder-exists").
    SpecError
        If these are daily counts, which have no sessions ("needs-sessions").

    Examples
    --------
    >>> import pandas as pd
    >>> open_log(pd.DataFrame({"q": ["cats", "cats"], "items": [[1, 2], [2, 1]], "clicks": [[1, 0], [0, 1]]})).total
    2
    """
    if isinstance(log, Sessions | EncodedLog):
        return log
    if not isinstance(log, str | Path | list | tuple):
        return read_log(log, columns=columns, on_bad_line=on_bad_line)
    if isinstance(log, str | Path):
        if (Path(log) / _ENCODED_HEADER).exists():
            from clickshift.io.encode.writer import open_encoded

            return open_encoded(Path(log))
        if (Path(log) / _COUNTS_HEADER).exists():
            raise SpecError(
                f"{log} has daily counts, and this needs the sessions. Pass the log itself.", code="needs-sessions"
            )
    table = isinstance(log, str) and "::" in log
    if not table and (in_memory or (in_memory is None and output is None)):
        files = log_files(log)
        if in_memory or sum(os.path.getsize(file) for file in files if os.access(file, os.R_OK)) < MEMORY_LIMIT:
            try:
                return read_log(files, columns=columns, on_bad_line=on_bad_line)
            except DataError as error:
                if in_memory or error.code != "lists-too-long":
                    raise
    return _open_encoded(log, columns or {}, on_bad_line, output, spill, progress)


def open_rankings(
    lists: LogLike | Rankings,
    *,
    columns: Mapping[str, str] | None = None,
    segments: Sequence[str] = (),
    on_bad_line: OnBadLine = "error",
) -> Rankings:
    """Open ranked lists in memory: those of a log, or lists without clicks.

    Parameters
    ----------
    lists
        Anything that `open_log` or `read_rankings` opens, or `Rankings`, which are returned as they are.
    columns, segments, on_bad_line
        As in `read_rankings`.

    Returns
    -------
    Rankings
        The lists; each row of a log is one, however many sessions it stands for.

    Raises
    ------
    DataError
        Those of `open_log` and `read_rankings`.
    SpecError
        If these are daily counts, which have no lists ("needs-sessions").
    """
    if isinstance(lists, Rankings):
        return lists
    headers = (
        [Path(lists) / name for name in (_ENCODED_HEADER, _COUNTS_HEADER)] if isinstance(lists, str | Path) else []
    )
    if isinstance(lists, Sessions | EncodedLog) or any(header.exists() for header in headers):
        log = open_log(lists)
        return (log if isinstance(log, Sessions) else log.sessions()).rankings
    return read_rankings(lists, columns=columns, segments=segments, on_bad_line=on_bad_line)


def open_log_or_counts(
    log: LogLike | DayCounts | Sequence[DayCounts],
    *,
    columns: Mapping[str, str] | None = None,
    on_bad_line: OnBadLine = "error",
    progress: Progress = silent,
) -> Log | DayCounts:
    """Open a log, or daily counts where they are enough; several daily counts are added.

    Parameters
    ----------
    log
        Anything that `open_log` opens, daily counts, or a list of daily counts.
    columns, on_bad_line, progress
        As in `open_log`.

    Returns
    -------
    Sessions, EncodedLog or DayCounts
        The log, or the sum of the counts.

    Raises
    ------
    SpecError
        If some of several logs are daily counts and others are not ("not-daily-counts").
    """
    from clickshift.counts.daily import DayCounts

    if isinstance(log, DayCounts):
        return log
    parts: list[Any] = list(log) if isinstance(log, list | tuple) else [log]
    folders = [Path(part) if isinstance(part, str | Path) else None for part in parts]
    counted = [
        isinstance(part, DayCounts) or (folder is not None and (folder / _COUNTS_HEADER).exists())
        for part, folder in zip(parts, folders, strict=True)
    ]
    encoded = len(parts) > 1 and any(folder is not None and (folder / _ENCODED_HEADER).exists() for folder in folders)
    if not any(counted) and not encoded:
        return open_log(log, columns=columns, on_bad_line=on_bad_line, progress=progress)
    if not all(counted):
        other = parts[counted.index(False)]
        raise SpecError(
            f"several logs must be daily counts, which `clickshift log count` writes: {other} is not. Name the files "
            "of one log by its folder or by a pattern in quotes.",
            code="not-daily-counts",
            value=str(other),
        )
    days = [part if isinstance(part, DayCounts) else DayCounts.load(part) for part in parts]
    return days[0] if len(days) == 1 else DayCounts.merged(days)


def _open_encoded(
    log: Any,
    columns: Mapping[str, str],
    on_bad_line: OnBadLine,
    output: str | Path | None,
    spill: DuckdbLimits | None,
    progress: Progress,
) -> EncodedLog:
    """Encode a log of files or of a database, or open it where it was encoded before."""
    from clickshift.io.encode.batches import batches_of
    from clickshift.io.encode.duckdb import DuckdbLimits, database_batches, long_batches, parse_duckdb_table

    database, table = parse_duckdb_table(log) if isinstance(log, str) and "::" in log else (None, None)
    files = log_files(log) if database is None else [database]
    report = ReadReport(f"{files[0]}" if len(files) == 1 else f"{files[0]} and {len(files) - 1} more", on_bad_line)
    key = cache_key(files, table, dict(columns), on_bad_line)
    facts = {"files": len(files), "first_file": str(files[0]), "key": key}
    choose = _ColumnChooser(columns, facts)

    def batches() -> Iterator[ReadBatch | DamagedFile]:
        if table is not None:
            return database_batches(files[0], table, choose, spill or DuckdbLimits(), skip=report.skip)
        if _is_long_layout(files, columns):
            return long_batches(files, choose, spill or DuckdbLimits(), skip=report.skip)
        return batches_of(files, choose)

    return encode_once(batches, files, key, report=report, facts=facts, output=output, progress=progress)


def encode_once(
    batches: Callable[[], Iterator[ReadBatch | DamagedFile]],
    files: Sequence[Path],
    key: str,
    *,
    report: ReadReport,
    facts: dict[str, Any],
    output: str | Path | None,
    progress: Progress,
) -> EncodedLog:
    """Encode a log, or open it where it was encoded before.

    Parameters
    ----------
    batches
        Function that starts reading the log from the beginning.
    files
        The files of the log.
    key
        Digest of the files and of how they are read: the name of the cache entry.
    report, facts, progress
        As in `write_encoded_log`.
    output
        Directory for the encoded log, which is then written in any case; by default an entry of the cache.

    Returns
    -------
    EncodedLog
        The encoded log.
    """
    from clickshift.io.encode.writer import open_encoded, refuse_other_folder, write_encoded_log

    folder = _default_folder(files) / key if output is None else Path(output)
    if output is not None:
        refuse_other_folder(folder)
    if output is None and folder.exists():
        try:
            opened = open_encoded(folder)
            with suppress(OSError):  # the cache may be read-only
                os.utime(folder)  # it was used
            return opened
        except ClickshiftError:  # of another version or damaged: encode the log again
            pass
    encoded = write_encoded_log(batches, folder, report=report, facts=facts, progress=progress)
    if output is None:
        _remove_old_entries(folder)
    return encoded


class _ColumnChooser:
    """Choice of the columns to read from each file, which must be the same in all files; noted in `facts`."""

    def __init__(self, columns: Mapping[str, str], facts: dict[str, Any]) -> None:
        self._columns, self._first, self._facts = columns, dict[str, Any](), facts

    def __call__(self, path: Path) -> Choose:
        return partial(self._choose, path)

    def _choose(self, path: Path, names: Sequence[str]) -> Mapping[str, str]:
        """Return the columns to read from a file, or raise if they differ from those of the first file."""
        chosen = choose_columns(path, self._columns, names)
        names_of_log = log_columns(path, chosen)
        self._first = self._first or {"path": path, "names": names_of_log}
        check_same(path, names_of_log, self._first["path"], self._first["names"])
        self._facts.setdefault("columns", chosen)
        return chosen


def _is_long_layout(files: Sequence[Path], columns: Mapping[str, str]) -> bool:
    """Return whether the log has one row per result, judging by the first file that can be read."""
    from clickshift.io.tables.formats import column_names

    for file in files:
        try:
            names = column_names(file)
        except Exception:  # the encoder reports what is wrong with this file
            continue
        return "docs" not in choose_columns(file, columns, names)
    return False


def cache_key(files: Sequence[Path], table: str | None, columns: dict[str, str], on_bad_line: str) -> str:
    """Return a digest of names, sizes, times and sampled blocks of all files, and of the options.

    A changed file has another time of change (ctime), which programs cannot set back. Where a disk does not keep it,
    blocks of 4 KB at 64 places and 64 KB at the end are compared, which takes about a millisecond per file. Reading all
    of a log of a hundred gigabytes only to learn whether it was encoded before would take longer than it saves.
    """
    digest = hashlib.blake2b(
        repr((_ENCODING_VERSION, table, sorted(columns.items()), on_bad_line)).encode(), digest_size=16
    )
    for file in files:
        try:
            status = file.stat()
            facts = file.name, status.st_size, status.st_mtime_ns, _changed_at(status)
            digest.update(repr(facts).encode())
            with file.open("rb") as stream:
                step = max(status.st_size // _SAMPLED_BLOCKS, _BLOCK_BYTES)
                for place in range(0, status.st_size, step):
                    stream.seek(place)
                    digest.update(stream.read(_BLOCK_BYTES))
                stream.seek(max(status.st_size - _DIGEST_BYTES, 0))  # Parquet files describe their content at the end
                digest.update(stream.read(_DIGEST_BYTES))
        except OSError as error:
            raise FileError(
                file,
                f"cannot be read ({error.strerror}). Check the path and its permissions.",
                code="unreadable-file",
            ) from None
    return digest.hexdigest()


def _changed_at(status: os.stat_result) -> int:
    """Return when a file or its description last changed, in nanoseconds."""
    return status.st_ctime_ns


def _remove_old_entries(newest: Path) -> None:
    """Remove entries of the cache next to `newest`: those of the same log, and the least recently used ones.

    An entry is used by nobody if it is older than an hour: readers keep the files that they have opened.
    """
    with suppress(OSError):
        entries = [path for path in newest.parent.iterdir() if _is_entry(path) and path != newest]
        entries.sort(key=lambda path: path.stat().st_mtime, reverse=True)
        log, latest = _identity(newest), time.time() - _KEPT_SECONDS
        for position, path in enumerate(entries):
            if path.stat().st_mtime < latest and (position >= _KEPT_ENTRIES - 1 or _identity(path) == log):
                shutil.rmtree(path, ignore_errors=True)


def _is_entry(path: Path) -> bool:
    """Return whether a directory of the cache is an encoded log: its name is a key."""
    return re.fullmatch("[0-9a-f]{32}", path.name) is not None and (path / LOG_FORMAT.header).is_file()


def _identity(folder: Path) -> list[Any] | None:
    """Return what tells logs in the cache apart, other than their content; None if the header cannot be read."""
    try:
        facts = LOG_FORMAT.read_header(folder)["facts"]
        return [facts[name] for name in ("first_file", "files", "columns")]
    except (ClickshiftError, LookupError, TypeError):
        return None


def _default_folder(files: Sequence[Path]) -> Path:
    """Return the hidden directory next to the files, or the cache directory if that cannot be written."""
    home = Path(os.path.commonpath([file.resolve().parent for file in files]))
    return home / ".clickshift" if os.access(home, os.W_OK) else cache_folder() / "logs"
