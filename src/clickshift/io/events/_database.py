"""The DuckDB database in which events are joined: in memory or spilled, with functions for times, flags and ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from clickshift.core.interrupts import temporary_folder
from clickshift.io.encode.duckdb import DuckdbLimits, duckdb_errors, duckdb_settings, sql_text, sql_texts
from clickshift.io.read_report import ReadReport

IMPRESSION, CLICK, SIGNAL = 0, 1, 2
"""Kinds of events in the table of events; further signals of results, such as conversions, count from `SIGNAL`."""
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
"""Columns of the table or view `events`, which every family of formats makes; and one per segment."""
SEPARATOR = "chr(31)"
"""What separates the parts of the key of a list, in SQL."""

_FORMATS = (
    "%a, %d %b %Y %H:%M:%S GMT",
    "%a %b %d %H:%M:%S %Y",
    "%d/%b/%Y:%H:%M:%S",
    "%m/%d/%Y %I:%M:%S %p",
    "%m/%d/%Y %I:%M %p",
    "%m/%d/%Y, %I:%M:%S %p",
    "%d.%m.%Y %H:%M:%S",
    "%d.%m.%Y %H:%M",
    "%d.%m.%Y",
    "%d %b %Y %H:%M:%S",
    "%d-%b-%Y %H:%M:%S",
    "%b %d, %Y %I:%M:%S %p",
    "%b %d, %Y, %I:%M:%S %p",
    "%Y-%m-%d %I:%M:%S %p",
    "%Y-%m-%d %H:%M:%S,%g",
    "%Y%m%dT%H%M%S",
    "%Y%m%dT%H%M%SZ",
)
_ZONED_FORMATS = (  # apart: DuckDB carries the zone of a row over to later ones that match a format without zone
    "%a, %d %b %Y %H:%M:%S %z",
    "%a %b %d %Y %H:%M:%S GMT%z",
    "%d/%b/%Y:%H:%M:%S %z",
    "%Y-%m-%d %H:%M:%S %z",
    "%Y-%m-%d %H:%M:%S.%f %z",
)
_LOW, _HIGH = 631_152_000, 4_102_444_800  # the years 1990 to 2100, in seconds since 1970
_MACROS = (
    # numbers: seconds, milli-, micro- or nanoseconds since 1970 by their size, or YYYYMMDD with or without HHMMSS
    f"""CREATE MACRO epoch_number(d) AS CASE
        WHEN d >= {_LOW} AND d < {_HIGH} THEN make_timestamp(CAST(round(d * 1e6) AS BIGINT))
        WHEN d >= {_LOW}e3 AND d < {_HIGH}e3 THEN make_timestamp(CAST(round(d * 1e3) AS BIGINT))
        WHEN d >= {_LOW}e6 AND d < {_HIGH}e6 THEN make_timestamp(CAST(round(d) AS BIGINT))
        WHEN d >= {_LOW}e9 AND d < {_HIGH}e9 THEN make_timestamp(CAST(round(d / 1e3) AS BIGINT))
        WHEN d >= 19900101 AND d < 21000101 THEN try_strptime(CAST(CAST(d AS BIGINT) AS VARCHAR), '%Y%m%d')
        WHEN d >= 19900101e6 AND d < 21000101e6 THEN try_strptime(CAST(CAST(d AS BIGINT) AS VARCHAR), '%Y%m%d%H%M%S')
        END""",
    # what has a date with a year of four digits
    """CREATE MACRO dated(t) AS CASE WHEN t BETWEEN TIMESTAMP '0001-01-01' AND TIMESTAMP '9999-12-31 23:59:59.999999'
        THEN t END""",
    # a year of two digits would be one of the first century
    """CREATE MACRO full_year(t) AS CASE WHEN t >= TIMESTAMP '1000-01-01' THEN t END""",
    f"""CREATE MACRO written_time(x) AS full_year(coalesce(
        try_strptime(x, [{", ".join(map(sql_text, _FORMATS))}]),
        CAST(try_strptime(regexp_replace(x, ' [(][^)]*[)]$', ''), [{", ".join(map(sql_text, _ZONED_FORMATS))}])
            AS TIMESTAMP)))""",
    """CREATE MACRO time_of(x) AS dated(CASE
        WHEN try_cast(x AS DOUBLE) IS NOT NULL THEN CAST(epoch_number(try_cast(x AS DOUBLE)) AS TIMESTAMP)
        WHEN left(x, 1) BETWEEN '0' AND '9' THEN coalesce(CAST(try_cast(x AS TIMESTAMPTZ) AS TIMESTAMP),
            written_time(x))
        WHEN regexp_matches(x, '[0-9]') THEN written_time(x) END)""",
    """CREATE MACRO flag_of(x) AS CASE
        WHEN lower(trim(x)) IN ('1', 'true', 't', 'yes', 'y', 'on', '1.0', 'clicked') THEN 1
        WHEN lower(trim(x)) IN ('0', 'false', 'f', 'no', 'n', 'off', '0.0', '') THEN 0 END""",
    """CREATE MACRO integer_of(x) AS CASE WHEN abs(try_cast(x AS DOUBLE)) < 1e9
        AND try_cast(x AS DOUBLE) = floor(try_cast(x AS DOUBLE)) THEN CAST(try_cast(x AS DOUBLE) AS BIGINT) END""",
)


@dataclass(frozen=True)
class Loaded:
    """What a format says about the events that it loaded.

    Parameters
    ----------
    columns
        The table's names of our columns, by file.
    integers
        Columns of ids that are integers in all sources, if all of their values are.
    signals
        Names of further signals of results, in the order of their kinds.
    segments
        Names of the segments that the table of events has.
    """

    columns: dict[str, dict[str, str]] = field(default_factory=dict)
    integers: tuple[str, ...] = ()
    signals: tuple[str, ...] = ()
    segments: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reason:
    """Why rows of a table are left out or repaired.

    Parameters
    ----------
    code
        Stable name.
    what
        What the rows are, and what becomes of them.
    where
        Condition in SQL.
    number
        How many items a row stands for, in SQL.
    """

    code: str
    what: str
    where: str
    number: str = "1"


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
    keep_results
        Whether the results that reasons affect are kept: for a log in memory.
    """

    connection: Any
    folder: Path
    report: ReadReport
    keep_results: bool = False

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

    def report_reasons(
        self, table: str, left_out: Sequence[Reason], repaired: Sequence[Reason], example: str, joined: str = ""
    ) -> list[Reason]:
        """Count the rows of a table by reason in one pass, and report them with examples; return the reasons found.

        Parameters
        ----------
        table
            The table.
        left_out, repaired
            Reasons for which rows are left out, and kept in another form.
        example
            An example in SQL.
        joined
            The same table with the columns that examples need, if it has not all of them.
        """
        reasons, occurring = [*left_out, *repaired], list[Reason]()
        if not reasons:
            return occurring
        numbers = ", ".join(f"sum({one.number}) FILTER ({one.where})" for one in reasons)
        for k, (reason, found) in enumerate(zip(reasons, self.row(f"SELECT {numbers} FROM {table}"), strict=True)):
            if found:
                add = self.report.left_out if k < len(left_out) else self.report.repaired
                examples = self.examples(joined or table, reason.where, example)
                add(int(found), reason.what, reason.code, examples=examples)
                occurring.append(reason)
        return occurring

    def examples(self, table: str, where: str, example: str) -> list[str]:
        """Return up to three examples, which `example` formats in SQL."""
        return [str(text) for (text,) in self.rows(f"SELECT {example} FROM {table} WHERE {where} ORDER BY ALL LIMIT 3")]


def kind_of(column: str, impressions: Sequence[str], clicks: Sequence[str], signals: Sequence[str]) -> str:
    """Return the kind of an event by its type in SQL; NULL for other types."""
    kinds = {IMPRESSION: impressions, CLICK: clicks} | {k: [name] for k, name in enumerate(signals, SIGNAL)}
    cases = " ".join(
        f"WHEN {column} IN ({sql_texts(names)[1:-1]}) THEN {kind}" for kind, names in kinds.items() if names
    )
    return f"CAST(CASE {cases} END AS TINYINT)"


@contextmanager
def event_database(limits: DuckdbLimits, report: ReadReport, *, keep_results: bool = False) -> Iterator[EventDatabase]:
    """Open a temporary database, which is removed at the end of the block."""
    import duckdb

    advice = "Pass memory=... with more memory or spill=... with another folder, or fix the events."
    parent = None if limits.folder is None else Path(limits.folder)
    with temporary_folder(parent=parent) as folder, duckdb_errors(report.path, advice):
        settings = duckdb_settings(replace(limits, folder=folder / "spill"))
        with duckdb.connect(":memory:", config=settings) as connection:  # beyond the limit, tables are on the disk
            connection.execute("SET TimeZone = 'UTC'; SET enable_progress_bar = false")
            # as a join, `IN` with many values would not keep the order of the events in their files
            connection.execute("SET disabled_optimizers = 'in_clause'")
            for macro in _MACROS:
                connection.execute(macro)
            yield EventDatabase(connection, folder, report, keep_results)
