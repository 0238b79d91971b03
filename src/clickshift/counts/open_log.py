"""Open a log of any size: a small one is read into memory, a large one is encoded on disk once and read from there.

The encoded form is cached in a hidden directory next to the log, `.clickshift`, under a digest of the files; it can be
deleted at any time.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from clickshift.core.files import cache_folder
from clickshift.core.progress import Progress, silent
from clickshift.data.encoded_log import LOG_FORMAT, EncodedLog, Log
from clickshift.data.sessions import Sessions
from clickshift.errors import ClickshiftError, DataError, FileError
from clickshift.io.encode.batches import batches_of
from clickshift.io.encode.duckdb import (
    DuckdbLimits,
    database_batches,
    is_duckdb_table,
    long_batches,
    parse_duckdb_table,
)
from clickshift.io.encode.writer import open_encoded, write_encoded_log
from clickshift.io.read_log import check_same, checked_columns, choose_columns, log_files, read_log
from clickshift.io.read_report import OnBadLine
from clickshift.io.tables.formats import column_names
from clickshift.io.tables.json_lines import Choose

MEMORY_LIMIT = 1 << 28
"""Total size of log files, in bytes, from which a log is encoded instead of read into memory."""
_ENCODING_VERSION = 1
"""Version of the encoding, raised when the same log would be encoded differently."""
_DIGEST_BYTES = 1 << 16
"""Number of bytes at the end of each file that enter the cache key."""
LogLike = str | Path | Sequence[str | Path] | Sessions | EncodedLog
"""Anything that `open_log` opens: a file, directory, glob pattern or a list of them, a table "FILE.duckdb::TABLE", a
directory with an encoded log, or a log that is open already."""


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
    """Open a log of any size.

    Parameters
    ----------
    log
        A file, a directory (also one partitioned by day), a glob pattern, a list of those, a directory with an encoded
        log, or a table of a DuckDB database ("clicks.duckdb::table"). `Sessions` and an `EncodedLog` are returned as
        they are.
    columns
        Names of the log's columns, by the names that `read_log` expects.
    on_bad_line
        "error", or "skip" to leave out bad sessions, and also files that cannot be read.
    in_memory
        Whether to read the log into memory as `Sessions`. By default, logs below 256 MB are.
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
        If an option is not known ("bad-option") or the log breaks a rule.
    FileError
        If a file cannot be read ("unreadable-file"), or `output` exists and is not an encoded log ("folder-exists").
    """
    if isinstance(log, Sessions | EncodedLog):
        return log
    path = log
    if isinstance(path, str | Path) and (Path(path) / LOG_FORMAT.header).exists():
        return open_encoded(Path(path))
    if is_duckdb_table(path):
        database, table = parse_duckdb_table(str(path))
        files = [database]
    else:
        files, table = log_files(path), None
        if in_memory or (in_memory is None and output is None and sum(map(_file_size, files)) < MEMORY_LIMIT):
            return read_log(path, columns=columns, on_bad_line=on_bad_line)
    columns = checked_columns(columns or {})
    if on_bad_line not in {"error", "skip"}:
        raise DataError(
            f'on_bad_line must be "error" or "skip": got {on_bad_line!r}.',
            code="bad-option",
            name="on_bad_line",
            value=on_bad_line,
        )
    key = _cache_key(files, table, dict(columns), on_bad_line)
    folder = _default_folder(files) / key if output is None else Path(output)
    if output is not None and folder.exists() and not (folder / LOG_FORMAT.header).exists():
        raise FileError(
            folder, "exists already and is not an encoded log. Choose another directory.", code="folder-exists"
        )
    if output is None and folder.exists():
        try:
            return open_encoded(folder)
        except ClickshiftError:  # of another version or damaged: encode the log again
            pass
    choose = _ColumnChooser(columns)
    if table is not None:
        batches = partial(database_batches, files[0], table, choose, spill or DuckdbLimits())
    elif _is_long_layout(files, columns):
        batches = partial(long_batches, files, choose, spill or DuckdbLimits())
    else:
        batches = partial(batches_of, files, choose)
    description = f"{files[0]}" if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"
    facts = {"files": len(files), "first_file": str(files[0]), "key": key}
    return write_encoded_log(
        batches, folder, skip_bad=on_bad_line == "skip", source=description, facts=facts, progress=progress
    )


class _ColumnChooser:
    """Choice of the columns to read from each file, which must be the same in all files."""

    def __init__(self, columns: Mapping[str, str]) -> None:
        self._columns, self._first = columns, dict[str, Any]()

    def __call__(self, path: Path) -> Choose:
        return partial(self._choose, path)

    def _choose(self, path: Path, names: Sequence[str]) -> Mapping[str, str]:
        """Return the columns to read from a file, or raise if they differ from those of the first file."""
        chosen = choose_columns(path, self._columns, names)
        self._first = self._first or {"path": path, "names": list(chosen)}
        check_same(path, list(chosen), self._first["path"], self._first["names"])
        return chosen


def _is_long_layout(files: Sequence[Path], columns: Mapping[str, str]) -> bool:
    """Return whether the log has one row per result, judging by the first file that can be read."""
    for file in files:
        try:
            names = column_names(file)
        except Exception:  # the encoder reports what is wrong with this file
            continue
        return "docs" not in choose_columns(file, columns, names)
    return False


def _file_size(file: Path) -> int:
    """Return the size of a file in bytes; 0 if it cannot be read."""
    try:
        return file.stat().st_size
    except OSError:
        return 0  # the reader reports what is wrong


def _cache_key(files: Sequence[Path], table: str | None, columns: dict[str, str], on_bad_line: str) -> str:
    """Return a digest of the names, sizes, modification times and last bytes of all files, and of the options.

    Parquet files describe their content at the end. Reading all of a log of a hundred gigabytes only to learn whether
    it was encoded before would take longer than it saves.
    """
    digest = hashlib.blake2b(
        repr((_ENCODING_VERSION, table, sorted(columns.items()), on_bad_line)).encode(), digest_size=16
    )
    for file in files:
        try:
            status = file.stat()
            with file.open("rb") as stream:
                stream.seek(max(status.st_size - _DIGEST_BYTES, 0))
                digest.update(
                    repr((file.name, status.st_size, status.st_mtime_ns)).encode() + stream.read(_DIGEST_BYTES)
                )
        except OSError as error:
            raise FileError(
                file,
                f"cannot be read ({error.strerror}). Check the path and its permissions.",
                code="unreadable-file",
            ) from None
    return digest.hexdigest()


def _default_folder(files: Sequence[Path]) -> Path:
    """Return the hidden directory next to the files, or the cache directory if that cannot be written."""
    home = Path(os.path.commonpath([file.resolve().parent for file in files]))
    return home / ".clickshift" if os.access(home, os.W_OK) else cache_folder() / "logs"
