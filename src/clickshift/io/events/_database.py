"""The DuckDB database in which events are joined: a temporary file, with functions that read times, flags and ranks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from clickshift.core.interrupts import temporary_folder
from clickshift.io.encode.duckdb import DuckdbLimits, duckdb_errors, duckdb_settings
from clickshift.io.read_report import ReadReport

IMPRESSION, CLICK, CONVERSION = 0, 1, 2
"""Kinds of events in the table of events."""
EVENT_COLUMNS = {
    "place": "BIGINT",  # order of the events in their files
    "source": "VARCHAR",  # whose ranks begin at the same number
    "list": "VARCHAR",
    "query": "VARCHAR",
    "doc": "VARCHAR",
    "ordinal": "BIGINT",  # rank as it was logged
    "time": "TIMESTAMP",
    "user": "VARCHAR",
    "kind": "TINYINT",
}
"""Columns of the table `events`, which every family of formats fills."""
SEPARATOR = "chr(31)"
"""What separates the parts of the key of a list, in SQL."""

_FORMATS = (
    "%a, %d %b %Y %H:%M:%S GMT",
    "%a, %d %b %Y %H:%M:%S %z",
    "%a %b %d %H:%M:%S %Y",
    "%d/%b/%Y:%H:%M:%S %z",
    "%d/%b/%Y:%H:%M:%S",
    "%m/%d/%Y %I:%M:%S %p",
    "%m/%d/%Y %I:%M %p",
    "%d.%m.%Y %H:%M:%S",
    "%d.%m.%Y %H:%M",
    "%b %d, %Y %I:%M:%S %p",
    "%Y%m%dT%H%M%S",
)
_LOW, _HIGH = 631_152_000, 4_102_444_800  # the years 1990 to 2100, in seconds since 1970
_MACROS = (
    # numbers: seconds, milli-, micro- or nanoseconds since 1970 by their size, or YYYYMMDD
    f"""CREATE MACRO epoch_number(d) AS CASE
        WHEN d >= {_LOW} AND d < {_HIGH} THEN make_timestamp(CAST(round(d * 1e6) AS BIGINT))
        WHEN d >= {_LOW}e3 AND d < {_HIGH}e3 THEN make_timestamp(CAST(round(d * 1e3) AS BIGINT))
        WHEN d >= {_LOW}e6 AND d < {_HIGH}e6 THEN make_timestamp(CAST(round(d) AS BIGINT))
        WHEN d >= {_LOW}e9 AND d < {_HIGH}e9 THEN make_timestamp(CAST(round(d / 1e3) AS BIGINT))
        WHEN d >= 19900101 AND d < 21000101 THEN try_strptime(CAST(CAST(d AS BIGINT) AS VARCHAR), '%Y%m%d')
        END""",
    f"""CREATE MACRO time_of(x) AS CASE
        WHEN try_cast(x AS DOUBLE) IS NOT NULL THEN CAST(epoch_number(try_cast(x AS DOUBLE)) AS TIMESTAMP)
        WHEN left(x, 1) BETWEEN '0' AND '9' THEN coalesce(CAST(try_cast(x AS TIMESTAMPTZ) AS TIMESTAMP),
            CAST(try_strptime(x, [{", ".join(f"'{text}'" for text in _FORMATS)}]) AS TIMESTAMP))
        WHEN regexp_matches(x, '[0-9]') THEN
            CAST(try_strptime(x, [{", ".join(f"'{text}'" for text in _FORMATS)}]) AS TIMESTAMP)
        END""",
    """CREATE MACRO flag_of(x) AS CASE
        WHEN lower(trim(x)) IN ('1', 'true', 't', 'yes', 'y', 'on', '1.0', 'clicked') THEN 1
        WHEN lower(trim(x)) IN ('0', 'false', 'f', 'no', 'n', 'off', '0.0', '') THEN 0 END""",
    """CREATE MACRO integer_of(x) AS CASE WHEN abs(try_cast(x AS DOUBLE)) < 1e9
        AND try_cast(x AS DOUBLE) = floor(try_cast(x AS DOUBLE)) THEN CAST(try_cast(x AS DOUBLE) AS BIGINT) END""",
)


@dataclass(frozen=True)
class EventDatabase:
    """A connection to the temporary database, and where its files are.

    Parameters
    ----------
    connection
        DuckDB connection.
    folder
        Folder for temporary files.
    report
        Where left-out events are counted.
    """

    connection: Any
    folder: Path
    report: ReadReport

    def execute(self, sql: str) -> None:
        """Run a statement."""
        self.connection.execute(sql)

    def row(self, sql: str) -> tuple[Any, ...]:
        """Return the only row of a query."""
        (row,) = self.rows(sql)
        return row

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        rows: list[tuple[Any, ...]] = self.connection.execute(sql).fetchall()
        return rows

    def number(self, sql: str) -> int:
        """Return the only value of a query, an integer; 0 for NULL."""
        return int(self.row(sql)[0] or 0)

    def left_out(self, table: str, where: str, what: str, code: str, *, example: str, count: str = "count(*)") -> int:
        """Count the rows of a table that are left out for a reason, with examples; return their number."""
        found = self.number(f"SELECT {count} FROM {table} WHERE {where}")
        if found:
            self.report.left_out(found, what, code, examples=self.examples(table, where, example))
        return found

    def repaired(self, table: str, where: str, what: str, code: str, *, example: str, count: str = "count(*)") -> int:
        """Count the rows of a table that are kept in another form, with examples; return their number."""
        found = self.number(f"SELECT {count} FROM {table} WHERE {where}")
        if found:
            self.report.repaired(found, what, code, examples=self.examples(table, where, example))
        return found

    def examples(self, table: str, where: str, example: str) -> list[str]:
        """Return up to three examples, which `example` formats in SQL."""
        return [str(text) for (text,) in self.rows(f"SELECT {example} FROM {table} WHERE {where} ORDER BY ALL LIMIT 3")]


@contextmanager
def event_database(limits: DuckdbLimits, report: ReadReport) -> Iterator[EventDatabase]:
    """Open a temporary database, which is removed at the end of the block."""
    import duckdb

    advice = "Pass memory=... with more memory or spill=... with another folder, or fix the events."
    parent = None if limits.folder is None else Path(limits.folder)
    with temporary_folder(parent=parent) as folder, duckdb_errors(report.path, advice):
        settings = duckdb_settings(replace(limits, folder=folder / "spill"))
        with duckdb.connect(str(folder / "events.duckdb"), config=settings) as connection:
            connection.execute("SET TimeZone = 'UTC'; SET enable_progress_bar = false")
            for macro in _MACROS:
                connection.execute(macro)
            yield EventDatabase(connection, folder, report)
