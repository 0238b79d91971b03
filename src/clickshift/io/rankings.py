"""Rankings without clicks: the lists that a ranker would show, or those of a log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from clickshift.data._columns import ARM
from clickshift.data.sessions import Rankings
from clickshift.io.read_log import choose_columns, numbered_lists, raw_sessions, read_tables
from clickshift.io.read_report import OnBadLine
from clickshift.io.tables.extra_columns import columns_with
from clickshift.io.tables.formats import Choose, TableFile


def read_rankings(
    source: str | Path | Sequence[str | Path] | Any,
    *,
    columns: Mapping[str, str] | None = None,
    segments: Sequence[str] = (),
    on_bad_line: OnBadLine = "error",
) -> Rankings:
    """Read ranked lists from tables.

    Parameters
    ----------
    source
        A file (Parquet, CSV or JSON lines), a folder, a pattern ("lists/*.parquet"), a list of files, a table of a
        DuckDB database ("lists.duckdb::table") or a data frame. It has the columns `query` and `docs` (one row per
        list), or `session`, `query`, `rank` and `doc` (one row per result); other columns are ignored, so a log is
        read without its clicks.
    columns
        The table's names of these columns, where they differ, and of segments, as ``{"segment:device": "ua"}``. Common
        names are recognised, as in a log.
    segments
        Names of segments of the lists, such as the device, which are read if the table has their columns.
    on_bad_line
        "error" raises at the first list that breaks a rule; "skip" drops such lists and reports their number in one
        `ClickshiftWarning` (code "skipped-sessions").

    Returns
    -------
    Rankings
        The lists, in a vocabulary of their own: `Rankings.in_vocabulary` translates them, and models do so themselves.

    Notes
    -----
    A missing document is a hole: at its rank, the list shows nothing.

    Raises
    ------
    FileError
        "missing-column", "duplicate-column", "unreadable-line", "empty-file", and those of a log's files and lists
        ("no-files", "unknown-column", "empty-list", "missing-value", "duplicate-document", "bad-ranks", ...).

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "lists.jsonl"
    ...     _ = file.write_text('{"query": "cats", "docs": ["b", "a"]}')
    ...     rankings = read_rankings(file)
    >>> rankings.vocabulary.doc_ids[rankings.vocabulary.pair_doc[rankings.pair[0]]].tolist()
    ['b', 'a']
    """

    given = dict(columns or {})
    if ARM not in segments:
        given.setdefault(ARM, "")

    def choose(path: str | Path, names: Sequence[str]) -> dict[str, str]:
        wanted = columns_with(given, segments=[name for name in segments if name in names])
        return choose_columns(path, wanted, names, clicks=False)

    return rankings_of(_read_parts(source, lambda path: partial(choose, path)), on_bad_line=on_bad_line)


def _read_parts(source: Any, choose: Callable[[str | Path], Choose]) -> list[TableFile]:
    """Read files, a data frame, or a table of a DuckDB database."""
    if not isinstance(source, str) or "::" not in source:
        return read_tables(source, choose)
    from clickshift.io.encode.duckdb import read_duckdb_table

    return [read_duckdb_table(source, choose)]


def rankings_of(parts: Sequence[TableFile], *, on_bad_line: OnBadLine = "error") -> Rankings:
    """Return the lists of tables in one layout; see `read_rankings`."""
    return numbered_lists(raw_sessions(parts, on_bad_line, missing=("list", "empty-file")))
