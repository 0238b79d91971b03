"""Open a log, whatever its size: a small one is read into memory, a large one is encoded once and read from there.

The encoded form stands in a hidden folder beside the log, `.clickshift`, under a name that belongs to the content of
its files; it can be deleted at any time.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from clickshift.core.files import cache_folder
from clickshift.data.encoded_log import FOLDER, Log
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

LARGE = 1 << 28
"""Bytes of log files from which on a log is not read into memory."""
_VERSION = 1
"""Counted up when the same log would be encoded otherwise."""
_END = 1 << 16
Source = str | Path | Sequence[str | Path]


def open_log(
    path: Source,
    *,
    columns: Mapping[str, str] | None = None,
    on_bad_line: OnBadLine = "error",
    in_memory: bool | None = None,
    output: str | Path | None = None,
    spill: DuckdbLimits | None = None,
    progress: Callable[[int], None] = lambda rows: None,
) -> Log:
    """The log of a file, a folder (also one partitioned by day), a pattern, a list, or a table of a DuckDB database
    ("clicks.duckdb::table").

    `in_memory` chooses; by default, logs of less than 256 MB are read into memory as `Sessions`. Others become an
    `EncodedLog`, in the folder `output` or in a hidden one beside the log; `progress` hears how many sessions were
    encoded. A folder with an encoded log is a log too. `spill` says how much memory DuckDB may take where it joins the
    rows of a session, and where it puts the rest. `columns` and `on_bad_line` are those of `read_log`; with "skip",
    files that cannot be read are left out too.
    """
    if isinstance(path, str | Path) and (Path(path) / FOLDER.header).exists():
        return open_encoded(Path(path))
    if is_duckdb_table(path):
        database, table = parse_duckdb_table(str(path))
        files = [database]
    else:
        files, table = log_files(path), None
        if in_memory or (in_memory is None and output is None and sum(map(_size, files)) < LARGE):
            return read_log(path, columns=columns, on_bad_line=on_bad_line)
    columns = checked_columns(columns or {})
    if on_bad_line not in {"error", "skip"}:
        raise DataError(f'on_bad_line must be "error" or "skip": got {on_bad_line!r}.')
    key = _key(files, table, dict(columns), on_bad_line)
    place = _beside(files) / key if output is None else Path(output)
    if output is not None and place.exists() and not (place / FOLDER.header).exists():
        raise FileError(place, "is there already, and is no encoded log. Choose another folder.")
    if output is None and place.exists():
        try:
            return open_encoded(place)
        except ClickshiftError:  # of another version or damaged: it is made again
            pass
    choosing = _Choosing(columns)
    if table is not None:
        batches = partial(database_batches, files[0], table, choosing, spill or DuckdbLimits())
    elif _is_long(files, columns):
        batches = partial(long_batches, files, choosing, spill or DuckdbLimits())
    else:
        batches = partial(batches_of, files, choosing)
    told = f"{files[0]}" if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"
    facts = {"files": len(files), "first_file": str(files[0]), "key": key}
    return write_encoded_log(
        batches, place, skip_bad=on_bad_line == "skip", source=told, facts=facts, progress=progress
    )


class _Choosing:
    """Which columns are wanted of each file: the same of all of them."""

    def __init__(self, columns: Mapping[str, str]) -> None:
        self._columns, self._first = columns, dict[str, Any]()

    def __call__(self, path: Path) -> Choose:
        return partial(self._choose, path)

    def _choose(self, path: Path, names: Sequence[str]) -> Mapping[str, str]:
        chosen = choose_columns(path, self._columns, names)
        self._first = self._first or {"path": path, "names": list(chosen)}
        check_same(path, list(chosen), self._first["path"], self._first["names"])
        return chosen


def _is_long(files: Sequence[Path], columns: Mapping[str, str]) -> bool:
    """By the first file that can be read."""
    for file in files:
        try:
            names = column_names(file)
        except Exception:  # the encoding will say what is wrong with this file
            continue
        return "docs" not in choose_columns(file, columns, names)
    return False


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0  # the reader will say what is wrong


def _key(files: Sequence[Path], table: str | None, columns: dict[str, str], on_bad_line: str) -> str:
    """A digest of names, sizes, times and last bytes of all files, where Parquet says what is in them: to read all of a
    log of a hundred gigabytes, only to know whether it was read before, would take longer than it saves."""
    digest = hashlib.blake2b(repr((_VERSION, table, sorted(columns.items()), on_bad_line)).encode(), digest_size=16)
    for file in files:
        try:
            about = file.stat()
            with file.open("rb") as stream:
                stream.seek(max(about.st_size - _END, 0))
                digest.update(repr((file.name, about.st_size, about.st_mtime_ns)).encode() + stream.read(_END))
        except OSError as error:
            raise FileError(file, f"cannot be read ({error.strerror}). Check the path and its permissions.") from None
    return digest.hexdigest()


def _beside(files: Sequence[Path]) -> Path:
    """A hidden folder where the files are, or the cache folder where nothing can be written there."""
    home = Path(os.path.commonpath([file.resolve().parent for file in files]))
    return home / ".clickshift" if os.access(home, os.W_OK) else cache_folder() / "logs"
