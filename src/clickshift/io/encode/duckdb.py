"""Logs read through DuckDB: tables of a database, and files with one row per result, grouped into sessions.

DuckDB keeps to a memory limit and writes the rest to temporary files. The rows of a session are collected by an
aggregate; a window function takes ten times as long.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from clickshift.core.parallel import n_threads
from clickshift.errors import DataError, FileError, SpecError
from clickshift.io.encode.batches import BATCH_ROWS, DamagedFile, ReadBatch
from clickshift.io.read_log import check_same
from clickshift.io.read_report import UnreadableLine
from clickshift.io.tables.extra_columns import is_of_results, plain_name
from clickshift.io.tables.formats import Choose, TableFile, log_columns, partition_day
from clickshift.io.tables.layouts import MAX_RANK

_SEPARATOR = "::"
_LISTS = {"doc": "docs", "click": "clicks"}
_DAYS, _FILE = "clickshift_days", "clickshift_file"
"""Names of the table of partitions' days, and of its column of files."""
_MEMORY = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?([kmgt]i?b|%)", re.IGNORECASE)
_RESULT_COLUMNS = ("session", "query", "rank", "doc", "click")


@dataclass(frozen=True)
class DuckdbLimits:
    """Memory limit of DuckDB, and the directory of its temporary files.

    Parameters
    ----------
    memory
        Memory limit: a number above 0 with the unit KB, MB, GB or TB, e.g. "4GB", or a share of the memory, e.g. "50%".
    folder
        Directory for temporary files; by default DuckDB chooses one.

    Raises
    ------
    SpecError
        "bad-option" for another memory limit.
    """

    memory: str = "4GB"
    folder: str | Path | None = None

    def __post_init__(self) -> None:
        match = _MEMORY.fullmatch(str(self.memory).strip())
        if match is None or float(match[1]) == 0 or (match[2] == "%" and float(match[1]) > 100):
            raise SpecError(
                f'a memory limit must be a size above 0, such as "4GB", "500MB" or "50%": got {self.memory!r}.',
                code="bad-option",
                option="memory",
                value=self.memory,
            )


def parse_duckdb_table(text: str) -> tuple[Path, str]:
    """Split "FILE.duckdb::TABLE" into the file of the database and the name of the table.

    Raises
    ------
    SpecError
        "bad-table-name" for a text of another form.
    FileError
        "file-not-found" if there is no such file.
    """
    database, _, table = text.partition(_SEPARATOR)
    if not database or not table:
        raise SpecError(
            f'a table must be named as "FILE.duckdb{_SEPARATOR}TABLE": got {text!r}.', code="bad-table-name", value=text
        )
    if not Path(database).is_file():
        raise FileError(database, "there is no such database. Check the path.", code="file-not-found")
    return Path(database), table


def database_batches(
    database: Path, table: str, choose: Callable[[Path], Choose], limits: DuckdbLimits, *, skip: bool = False
) -> Iterator[ReadBatch | DamagedFile]:
    """Yield functions that read a table or view of a DuckDB database, in either layout, batch by batch.

    Parameters
    ----------
    database
        File of the database.
    table
        Name of the table or view.
    choose
        Function from a file to the function that selects and names its columns.
    limits
        Memory limit and directory for temporary files.
    skip
        Whether sessions that break a rule are dropped and counted instead of raising an error.

    Raises
    ------
    FileError
        "unknown-table" if the database has no such table, "unreadable-log" if DuckDB fails.
    """
    with _relation(database, table, limits) as relation:
        yield from _relation_batches(relation, database, choose, skip)


def read_duckdb_table(text: str, choose: Callable[[Path], Choose]) -> TableFile:
    """Read the chosen columns of a table or view of a DuckDB database into memory.

    Parameters
    ----------
    text
        The table, as "FILE.duckdb::TABLE".
    choose
        Function from a file to the function that selects and names its columns.

    Returns
    -------
    TableFile
        The columns under our names.

    Raises
    ------
    SpecError
        "bad-table-name" for a text of another form.
    FileError
        "file-not-found", "unknown-table" if the database has no such table, "unreadable-log" if DuckDB fails.
    """
    database, table = parse_duckdb_table(text)
    with _relation(database, table, DuckdbLimits()) as relation:
        chosen = choose(database)(relation.columns)
        return TableFile(database, _renamed(relation, chosen).to_arrow_table().replace_schema_metadata(dict(chosen)))


@contextmanager
def _relation(database: Path, table: str, limits: DuckdbLimits) -> Iterator[Any]:
    """Open a table or view of a database; FileError if there is none of this name."""
    import duckdb

    with _connection(limits, database) as connection:
        try:
            relation = connection.table(table)
        except (duckdb.CatalogException, duckdb.BinderException, duckdb.ParserException):
            tables = [row[0] for row in connection.sql("SHOW TABLES").fetchall()]
            raise FileError(
                database,
                f"there is no table {table}: it has {', '.join(tables) or 'none'}.",
                code="unknown-table",
                value=table,
                known=tables,
            ) from None
        yield relation


def _renamed(relation: Any, chosen: Mapping[str, str]) -> Any:
    """Select the chosen columns of a relation under our names."""
    return relation.project(", ".join(f"{sql_name(theirs)} AS {sql_name(ours)}" for ours, theirs in chosen.items()))


def long_batches(
    files: Sequence[Path], choose: Callable[[Path], Choose], limits: DuckdbLimits, *, skip: bool = False
) -> Iterator[ReadBatch | DamagedFile]:
    """Yield functions that read files with one row per result, grouped into sessions, batch by batch.

    Parameters
    ----------
    files
        Files of one format.
    choose
        Function from a file to the function that selects and names its columns.
    limits
        Memory limit and directory for temporary files.
    skip
        Whether sessions that break a rule are dropped and counted instead of raising an error.

    Raises
    ------
    FileError
        "unreadable-log" if DuckDB fails, "inconsistent-columns" if only some of the files are in the folder of a day.
    """
    # partitions are read by our own rule: DuckDB would name and type their columns otherwise
    options = "hive_partitioning = false"
    if all(file.suffix.lower() == ".parquet" for file in files):
        function, options = "read_parquet", f"union_by_name = true, {options}"
    elif any(".json" in file.name.lower() or ".ndjson" in file.name.lower() for file in files):
        function = "read_json"
    else:
        function = "read_csv"
    with _connection(limits, None) as connection:
        relation = connection.sql(f"SELECT * FROM {function}({sql_texts(files)}, {options})")
        names = list(choose(files[0])(relation.columns))
        for file in files:
            check_same(file, log_columns(file, names), files[0], log_columns(files[0], names))
        if partition_day(files[0], names) is not None:
            import pyarrow as pa

            days = [partition_day(file, names) for file in files]
            connection.register(_DAYS, pa.table({_FILE: [str(file) for file in files], "day": _one_type(days)}))
            options += f", filename = '{_FILE}'"
            relation = connection.sql(
                f"SELECT * EXCLUDE ({_FILE}) FROM {function}({sql_texts(files)}, {options}) "
                f"JOIN {_DAYS} USING ({_FILE})"
            )
        yield from _relation_batches(relation, files[0], choose, skip)


def sql_texts(files: Sequence[object]) -> str:
    """Return texts, such as the names of files, as a list in SQL."""
    return "[" + ", ".join(map(sql_text, files)) + "]"


def sql_text(text: object) -> str:
    """Quote a text for SQL."""
    return "'" + str(text).replace("'", "''") + "'"


def _one_type(days: Sequence[Any]) -> Sequence[Any]:
    """Check that all days are numbers, or all dates."""
    if len({type(day) for day in days}) > 1:
        raise DataError(
            "the time must have one type in all files: got numbers in some and dates in others.",
            code="bad-column",
            column="time",
        )
    return days


@contextmanager
def _connection(limits: DuckdbLimits, database: Path | None) -> Iterator[Any]:
    """Open a DuckDB connection with a memory limit; its errors become one FileError.

    A database may come from another hand: its views must not read other files, load extensions or change settings.
    """
    import duckdb

    source = ":memory:" if database is None else str(database)
    with (
        duckdb_errors(database or "DuckDB"),
        duckdb.connect(source, read_only=database is not None, config=duckdb_settings(limits)) as connection,
    ):
        if database is not None:
            connection.execute("SET enable_external_access = false; SET lock_configuration = true")
        yield connection


def duckdb_settings(limits: DuckdbLimits) -> dict[str, Any]:
    """Return the settings of a DuckDB connection that keeps to the limits."""
    folder = {} if limits.folder is None else {"temp_directory": str(limits.folder)}
    return {"memory_limit": limits.memory.strip(), "threads": n_threads(), **folder}


_DAMAGES = {
    r"Malformed JSON in file .*, at byte \d+ in record/value (\d+): ([^.]*)": (
        "value {0} of the file is not JSON ({1}). Was the file written to the end? Fix it, or write it again."
    ),
    "CSV Parser state machine reached an invalid state": (
        "all lines must end alike: some end in a line feed alone, others in two characters. Convert them, e.g. with "
        "dos2unix."
    ),
}
"""What errors of DuckDB say of a file, by what they have in common."""


@contextmanager
def duckdb_errors(
    source: str | Path,
    advice: str = "Pass spill=DuckdbLimits(memory=..., folder=...) with more memory or another folder, or fix the log.",
) -> Iterator[None]:
    """Turn the errors of DuckDB in the block into one FileError ("damaged-file", or "unreadable-log").

    Parameters
    ----------
    source
        What is read.
    advice
        What to do.
    """
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        reason = " ".join(str(error).split())
        for pattern, problem in _DAMAGES.items():
            if found := re.search(pattern, reason):
                raise FileError(source, problem.format(*found.groups()), code="damaged-file", reason=reason) from None
        raise FileError(
            source, f"DuckDB could not read the log ({reason}). {advice}", code="unreadable-log", reason=reason
        ) from None


def _relation_batches(relation: Any, path: Path, choose: Callable[[Path], Choose], skip: bool) -> Iterator[ReadBatch]:
    """Yield functions that process batches; the batches are fetched one by one, in this thread."""
    chosen = choose(path)(relation.columns)
    long = "docs" not in chosen
    selected = _renamed(relation, chosen)
    if long:
        of_results = [name for name in chosen if is_of_results(name)]
        of_sessions = [name for name in chosen if name not in {*_RESULT_COLUMNS, *of_results}]
        selected = _group_by_session(selected, of_sessions, of_results)
    first_row = 0
    for batch in selected.to_arrow_reader(BATCH_ROWS):
        import pyarrow as pa

        part = TableFile(path, pa.table(batch), first_row=first_row)
        first_row += len(part.table)
        yield partial(_to_wide, part, skip=skip) if long else partial(list, [part])


def _group_by_session(results: Any, attributes: Sequence[str], of_results: Sequence[str]) -> Any:
    """Collect the results of each session, in order of the sessions' first rows, and name a column that differs.

    A rank that is no whole number becomes NULL. An attribute may be missing in all rows of a session, or in none.
    """
    number = "TRY_CAST(rank AS BIGINT)"
    rank = f"CASE WHEN TRY_CAST(rank AS DOUBLE) = {number} THEN {number} END"
    same = {"query": "min(query) = max(query) AND count(query) = count(*)"} | {
        name: "count({0}) = 0 OR (min({0}) = max({0}) AND count({0}) = count(*))".format(sql_name(name))
        for name in attributes
    }
    differs = " ".join(f"WHEN NOT coalesce({equal}, false) THEN {sql_text(name)}" for name, equal in same.items())
    values = "".join(f", {sql_text(name)}: {sql_name(name)}" for name in of_results)
    grouped = results.project("*, row_number() OVER () AS place").aggregate(
        ", ".join(
            [
                "session",
                f"CASE {differs} END AS differs",
                f"list({{'rank': {rank}, 'doc': doc, 'click': click{values}}}) AS results",
                *(f"min({sql_name(name)}) AS {sql_name(name)}" for name in same),
                "min(place) AS place",
            ]
        ),
        "session",
    )
    return grouped.order("place").project("* EXCLUDE (place)")


def _to_wide(part: TableFile, *, skip: bool) -> list[TableFile]:
    """Order the results of each session by rank: the wide layout; bad sessions are an error, or dropped and counted.

    If a list has a hole, the table has a column of ranks.
    """
    import pyarrow as pa

    table = part.table
    lists = table["results"].combine_chunks() if table["results"].num_chunks != 1 else table["results"].chunk(0)
    start = lists.offsets.to_numpy().astype(np.int64)
    items = lists.flatten()
    fields = {items.type.field(k).name: items.field(k) for k in range(items.type.num_fields)}
    number = fields.pop("rank").fill_null(0).to_numpy()
    start -= start[0]
    length = np.diff(start)
    owner = np.repeat(np.arange(len(length)), length)
    valid = (number >= 1) & (number <= length[owner])
    order = np.full(len(owner), -1)
    order[start[owner[valid]] + number[valid] - 1] = np.flatnonzero(valid)
    has_holes = bool((order < 0).any())
    bad = np.zeros(len(length), bool)
    if has_holes:
        order = np.lexsort((number, owner))
        twice = np.r_[False, (owner[order][1:] == owner[order][:-1]) & (number[order][1:] == number[order][:-1])]
        bad[owner[order[twice]]] = True
        bad[owner[(number < 1) | (number > MAX_RANK)]] = True
    bad |= table["differs"].is_valid().to_numpy()
    if bad.any():
        first, count = int(np.argmax(bad)), int(bad.sum())
        session, column = table["session"][first].as_py(), table["differs"][first].as_py()
        rule = (
            f"{plain_name(column)} must be the same in all rows of a session"
            if column
            else f"ranks must be from 1 to {MAX_RANK:,}, each once"
        )
        if not skip:
            raise FileError(
                part.path,
                f'{rule} ({count:,} bad sessions in this batch). Fix or remove them, or pass on_bad_line="skip".',
                place=f"session {session}",
                code="inconsistent-session" if column else "bad-ranks",
                session=session,
                count=count,
                **({"column": column} if column else {}),
            )
        unreadable = [UnreadableLine(0, f"session {session}: {rule}")] * count
        kept = replace(part, table=table.filter(pa.array(~bad)))
        return [replace(wide, unreadable=unreadable) for wide in _to_wide(kept, skip=True)]
    offsets, indices = pa.array(start, pa.int64()), pa.array(order)
    columns = {name: table[name] for name in table.column_names if name not in {"results", "differs", "session"}}
    in_lists = {_LISTS.get(name, name): values for name, values in fields.items()}
    in_lists |= {"rank": pa.array(number)} if has_holes else {}
    for name, values in in_lists.items():
        columns[name] = pa.LargeListArray.from_arrays(offsets, values.take(indices))
    return [TableFile(part.path, pa.table(columns), first_row=part.first_row)]


def sql_name(name: str) -> str:
    """Quote a name of a column for SQL."""
    return '"' + name.replace('"', '""') + '"'
