"""One table file, Parquet, CSV or JSON lines, as pyarrow columns under our names; failures become FileErrors."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from clickshift.core.files import open_bytes
from clickshift.data.days import day_of_folder
from clickshift.errors import FileError
from clickshift.io.read_report import UnreadableLine
from clickshift.io.table_writer import ArrowTable
from clickshift.io.tables._json_depth import MAX_DEPTH, too_deep

LOG_ENDINGS = (".parquet", ".csv", ".csv.gz", ".tsv", ".tsv.gz", ".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz")
"""Endings of the files that a log can be read from and written to."""

_log = logging.getLogger(__name__)
_ID_COLUMNS = ("session", "query", "doc", "user")
_BLOCK = 1 << 24
_HEAD = 1 << 20
_INTEGER = r"^(0|-?[1-9][0-9]{0,18})$"  # the canonical form of an integer, so that 007 stays text


Choose = Callable[[Sequence[str]], Mapping[str, str]]
"""Function from the column names of a file to {our name: the file's name}, for the columns that are wanted."""

_JSON_HEAD = 100  # lines from which columns and their types are inferred


class ColumnError(ValueError):
    """A column with values that cannot be used.

    Parameters
    ----------
    name
        Name of the column.
    problem
        What is wrong; completes "column x ...".
    code
        Code of the error that is raised for it.
    """

    def __init__(self, name: str, problem: str, *, code: str = "bad-column") -> None:
        super().__init__(problem)
        self.name = name
        self.problem = problem
        self.code = code


@dataclass(frozen=True)
class TableFile:
    """A table file, or consecutive rows of one.

    Parameters
    ----------
    path
        The file.
    table
        Its rows as a pyarrow table, under our column names.
    unreadable
        Lines that are not rows of the table.
    first_row
        Number of rows of the file before the first row of `table`.
    """

    path: Path
    table: ArrowTable
    unreadable: list[UnreadableLine] = field(default_factory=list)
    first_row: int = 0


def ending(path: Path) -> str | None:
    """Return the one of `LOG_ENDINGS` that a file's name has; None for other names.

    Examples
    --------
    >>> ending(Path("clicks.CSV.gz"))
    '.csv.gz'
    """
    return next((suffix for suffix in LOG_ENDINGS if path.name.lower().endswith(suffix)), None)


def read_table(path: Path, choose: Choose) -> TableFile:
    """Read the chosen columns of one table file.

    Parameters
    ----------
    path
        A file with one of `LOG_ENDINGS`.
    choose
        Function that selects and names the columns; it may raise if it misses one.

    Returns
    -------
    TableFile
        The columns under our names, and the lines that are not rows.

    Raises
    ------
    FileError
        "unknown-format" for another ending, "file-not-found", "empty-file", "damaged-file" for a file that cannot be
        parsed, "duplicate-column" for two columns of a chosen name, and "bad-column" for a column that cannot be used.
    """
    file_ending, choose = ending(path), unique_columns(path, choose)
    _log.debug("read %s", path)
    if file_ending is None:
        problem = (
            f"the ending of a log file must be one of {', '.join(LOG_ENDINGS)}. Rename the file. Public logs (Yandex, "
            "TREC, Open Bandit) have readers in clickshift.io.datasets; `clickshift log convert` converts them."
        )
        if path.name.partition("::")[0].lower().endswith((".duckdb", ".ddb", ".db")):
            problem = (
                "a database of DuckDB is not a file of one table. Name a table as FILE.duckdb::TABLE for `open_log` "
                "and commands on logs; pass other functions, such as `read_log`, a Parquet file of it."
            )
        raise FileError(
            path,
            problem,
            code="unknown-format",
            known=list(LOG_ENDINGS),
        )
    try:
        if file_ending == ".parquet":
            return with_partition_day(_read_parquet(path, choose))
        with open_bytes(path) as file:
            data = b"".join(iter(partial(file.read, _BLOCK), b""))  # in large pieces: read() alone asks for small ones
        if not re.search(rb"\S", data):
            raise _empty_file(path)
        if file_ending.startswith((".jsonl", ".ndjson")):
            return with_partition_day(TableFile(path, *read_json_lines(data, choose)))
        return with_partition_day(_read_csv(path, data, "\t" if file_ending.startswith(".tsv") else ",", choose))
    except ColumnError as error:
        raise FileError(path, f"column {error.name} {error.problem}.", code=error.code, column=error.name) from None


def unique_columns(path: Path, choose: Choose) -> Choose:
    """Return a function that chooses columns, and refuses a table that has two columns of a chosen name.

    Parameters
    ----------
    path
        The file, for error messages.
    choose
        Function that selects and names the columns.
    """

    def checked(names: Sequence[str]) -> Mapping[str, str]:
        chosen = choose(names)
        for name in chosen.values():
            if list(names).count(name) > 1:
                raise FileError(
                    path,
                    f"column names must be unique: {name} occurs twice. Rename one.",
                    code="duplicate-column",
                    column=name,
                )
        return chosen

    return checked


def name_columns(table: ArrowTable, chosen: Mapping[str, str]) -> ArrowTable:
    """Select the chosen columns of a pyarrow table and give them our names; its metadata keeps the file's names."""
    table = table.select(list(chosen.values())).rename_columns(list(chosen))
    return table.replace_schema_metadata(dict(chosen))


def partition_day(path: Path, names: Iterable[str]) -> Any:
    """Return the day that every way of reading gives to the rows of a file without a time of its own.

    Parameters
    ----------
    path
        The file.
    names
        Our names of the columns that are read from it.

    Returns
    -------
    date, int or None
        The day in the name of its partitioned folder (`day=2026-01-31`). None if it is in no such folder, or if it has
        a column `time` or `day`.
    """
    return None if {"time", "day"} & set(names) else day_of_folder(path)


def log_columns(path: Path, names: Iterable[str]) -> list[str]:
    """Return our names of the columns that a file contributes to a log, `day` of a partitioned folder included."""
    names = list(names)
    return names if partition_day(path, names) is None else [*names, "day"]


def with_partition_day(part: TableFile) -> TableFile:
    """Add the column `day` of a partitioned folder to the rows of a file; see `partition_day`."""
    day = partition_day(part.path, part.table.column_names)
    if day is None:
        return part
    import pyarrow as pa

    return replace(part, table=part.table.append_column("day", pa.repeat(pa.scalar(day), len(part.table))))


def _empty_file(path: Path) -> FileError:
    """Return the error of an empty file."""
    return FileError(path, "is empty. Was it written to the end?", code="empty-file")


def column_names(path: Path) -> list[str]:
    """Return the column names of a table file, from its first bytes or its Parquet schema alone."""
    file_ending = ending(path) or ""
    if file_ending == ".parquet":
        import pyarrow.parquet as pq

        names: list[str] = pq.read_schema(path).names
        return names
    with open_bytes(path) as file:
        head = file.read(_HEAD)
    if file_ending.startswith((".jsonl", ".ndjson")):
        try:
            return list(json.loads(head.split(b"\n")[0]))
        except (ValueError, RecursionError):
            return []
    return [_unquote(name) for name in _first_two_records(head, b"\t" if file_ending.startswith(".tsv") else b",")[0]]


@contextmanager
def parquet_errors(path: Path, format: str = "Parquet") -> Iterator[None]:
    """Turn the errors of reading Parquet, or another format of Arrow, into a FileError that names the file.

    Raises
    ------
    FileError
        "file-not-found" or "damaged-file".
    """
    import pyarrow as pa

    try:
        yield
    except FileNotFoundError:
        raise FileError(path, "there is no such file. Check the path.", code="file-not-found") from None
    except FileError:  # a ValueError, as UnicodeError is: it must not be caught below
        raise
    except (pa.ArrowException, OSError, UnicodeError) as error:
        reason = " ".join(str(error).split())
        advice = "Is it another format under this name, or was the copy cut short? Copy or write it again."
        raise FileError(
            path, f"cannot be read as {format} ({reason}). {advice}", code="damaged-file", format=format
        ) from None


def _read_parquet(path: Path, choose: Choose) -> TableFile:
    """Read a Parquet file with dictionary-encoded ids, as it stores them: text is decoded once per id, not per row."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with parquet_errors(path):
        with path.open("rb") as file:
            if not file.read(1):
                raise _empty_file(path)
        with pq.ParquetFile(path) as parquet:
            metadata, empty = parquet.metadata, parquet.schema_arrow.empty_table()
            chosen = choose(empty.column_names)
            leaves = [parquet.schema.column(i) for i in range(len(parquet.schema))]
        id_names = [chosen[name] for name in (*_ID_COLUMNS, "docs") if name in chosen]
        text_leaves = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
        id_leaves = [leaf for leaf in text_leaves for name in id_names if leaf == name or leaf.startswith(f"{name}.")]

        def read(group: int) -> ArrowTable:
            # one group at a time: pyarrow cannot concatenate lists of dictionary-encoded items of several groups
            with pq.ParquetFile(
                path, metadata=metadata, read_dictionary=id_leaves, page_checksum_verification=True
            ) as parquet:
                return parquet.read_row_group(group, columns=list(chosen.values()))

        with ThreadPoolExecutor(pa.cpu_count()) as pool:
            tables = list(pool.map(read, range(metadata.num_row_groups))) or [empty]
        table = name_columns(pa.concat_tables(tables), chosen)
    for name in chosen:
        try:
            table[name].validate(full=True)  # a damaged file may decode to indices outside its dictionary
        except pa.ArrowException as error:
            raise ColumnError(name, f"is damaged, or holds text that is not UTF-8: {error}") from None
    return TableFile(path, table)


def _read_csv(path: Path, data: bytes, delimiter: str, choose: Choose) -> TableFile:
    """Read CSV with all columns as text: pyarrow would infer types from the first rows and fail at other values."""
    import pyarrow as pa
    import pyarrow.csv as pc

    header, first_record = _first_two_records(data[:_HEAD], delimiter.encode())
    names = [_unquote(name) for name in header]
    chosen = choose(names)
    unreadable: list[UnreadableLine] = []

    def skip(row: Any) -> str:
        problem = f"a row must have {row.expected_columns} values as the header: got {row.actual_columns}"
        unreadable.append(UnreadableLine(row.number or 0, f"{problem} ({row.text[:80]})"))
        return "skip"

    def read(*, threads: bool) -> ArrowTable:
        unreadable.clear()
        return pc.read_csv(
            pa.BufferReader(data),
            read_options=pc.ReadOptions(block_size=_BLOCK, use_threads=threads),
            parse_options=pc.ParseOptions(delimiter=delimiter, newlines_in_values=True, invalid_row_handler=skip),
            convert_options=pc.ConvertOptions(
                include_columns=list(dict.fromkeys(chosen.values())),
                column_types=dict.fromkeys(names, pa.dictionary(pa.int32(), pa.string())),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )

    try:
        table = read(threads=True)
        if unreadable:  # pyarrow reports line numbers only without threads
            table = read(threads=False)
    except pa.ArrowException as error:
        raise FileError(
            path,
            f"cannot be read as CSV ({error}). Is a quotation mark left open?",
            code="damaged-file",
            format="CSV",
        ) from None
    table = name_columns(table, chosen)
    for name in set(_ID_COLUMNS) & set(chosen):
        index = names.index(chosen[name])
        quoted = index < len(first_record) and first_record[index].startswith(b'"')
        if not quoted:
            table = table.set_column(table.column_names.index(name), name, integers_or_text(table[name]))
    return TableFile(path, table, unreadable)


def integers_or_text(column: Any) -> Any:
    """Convert a pyarrow column of text to 64-bit integers if all of its values are integers; else leave it as text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    for chunk in column.chunks:
        if pc.any(pc.invert(pc.match_substring_regex(chunk.dictionary, _INTEGER))).as_py():
            return column
    try:
        chunks = [chunk.dictionary.cast(pa.int64()).take(chunk.indices) for chunk in column.chunks]
    except pa.ArrowInvalid:  # beyond 64 bits
        return column
    return pa.chunked_array(chunks, pa.int64())


def _first_two_records(head: bytes, delimiter: bytes) -> tuple[list[bytes], list[bytes]]:
    """Return the raw fields of the first two CSV records, with their quotation marks: a quoted field is text.

    A CSV reader drops the marks, and with them the difference between "7" and 7.
    """
    pattern = re.compile(rb'("(?:[^"]|"")*"|[^' + delimiter + rb"\r\n]*)(" + delimiter + rb"|\r\n|\n|\r|$)")
    records: list[list[bytes]] = [[]]
    position = len(head) - len(head.lstrip(b"\r\n"))
    while position < len(head) and (match := pattern.match(head, position)):
        records[-1].append(match[1])
        position = match.end()
        if match[2] != delimiter:
            if len(records) == 2:
                break
            records.append([])
    return records[0], records[1] if len(records) > 1 else []


def _unquote(raw: bytes) -> str:
    """Decode a raw CSV field, without its quotation marks."""
    text = raw.decode("utf-8", "replace")
    return text[1:-1].replace('""', '"') if text.startswith('"') and text.endswith('"') and len(text) > 1 else text


def read_json_lines(data: bytes, choose: Choose) -> tuple[ArrowTable, list[UnreadableLine]]:
    """Read JSON objects, one per line, as a table.

    Parameters
    ----------
    data
        Content of the file, UTF-8. Blank lines are ignored.
    choose
        Function that selects and names the columns.

    Returns
    -------
    table
        The chosen columns under our names.
    unreadable
        Lines that are not in the table.

    Raises
    ------
    ColumnError
        If pyarrow cannot represent the values of a column.
    """
    table = _read_uniform(data, choose)
    return (table, []) if table is not None else _read_line_by_line(data, choose)


def _read_uniform(data: bytes, choose: Choose) -> ArrowTable | None:
    """Read the table with pyarrow's parser; None if it fails or may have misread a line.

    It is ten times faster than reading line by line. Types are passed to it because it would otherwise convert text
    that looks like a date to a date.
    """
    import pyarrow as pa
    import pyarrow.json as pj

    if too_deep(data):
        return None
    try:
        head = [json.loads(line) for _, line in islice(_lines(data), _JSON_HEAD)]
        if not all(isinstance(row, dict) for row in head):
            return None
        chosen = choose(_names(head))
        types = {file_name: _infer_type([row.get(file_name) for row in head]) for file_name in chosen.values()}
        if any(arrow_type is None for arrow_type in types.values()):
            return None
        options = pj.ParseOptions(explicit_schema=pa.schema(list(types.items())), unexpected_field_behavior="infer")
        table = pj.read_json(pa.BufferReader(data), pj.ReadOptions(block_size=_BLOCK), options)
        # pyarrow reads "{...}{...}" as two rows; and a column may first appear below the head
        if table.num_rows != data.count(b"\n") + (not data.endswith(b"\n")) or choose(table.column_names) != chosen:
            return None
    except (ValueError, pa.ArrowException):
        return None
    return name_columns(table, chosen)


def _read_line_by_line(data: bytes, choose: Choose) -> tuple[ArrowTable, list[UnreadableLine]]:
    """Read the table with the json module, and collect the lines that are not usable rows."""
    import pyarrow as pa

    rows: list[tuple[int, dict[str, Any]]] = []
    unreadable: list[UnreadableLine] = []
    for number, line in _lines(data):
        if too_deep(line):
            unreadable.append(UnreadableLine(number, f"the JSON is nested more than {MAX_DEPTH} levels deep"))
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            unreadable.append(UnreadableLine(number, f"a line must be one JSON object: {error}"))
        else:
            if isinstance(row, dict):
                rows.append((number, row))
            else:
                problem = f"a line must be a JSON object {{...}}: got {line.decode()[:80]}"
                unreadable.append(UnreadableLine(number, problem))
    chosen = choose(_names(row for _, row in rows))
    for name, file_name in chosen.items():
        rows, mismatches = _split_by_kind(rows, name, file_name)
        unreadable += mismatches
    columns = {name: _array(name, [row.get(file_name) for _, row in rows]) for name, file_name in chosen.items()}
    return pa.table(columns, metadata=dict(chosen)), sorted(unreadable)


def _split_by_kind(
    rows: list[tuple[int, dict[str, Any]]], name: str, file_name: str
) -> tuple[list[tuple[int, dict[str, Any]]], list[UnreadableLine]]:
    """Split numbered rows into those whose value has the kind of the first row's value, and the others."""
    expected, matching, mismatches = None, [], []
    for number, row in rows:
        kind = _describe_kind(row.get(file_name))
        expected = expected or kind
        if kind is None or kind == expected:
            matching.append((number, row))
        else:
            problem = f"{name} must be {expected}, as in the lines above: got {json.dumps(row[file_name])[:80]}"
            mismatches.append(UnreadableLine(number, problem))
    return matching, mismatches


def _describe_kind(value: Any) -> str | None:
    """Describe the JSON type of a value for messages; None for null and the empty list, which fit any type."""
    if value is None or value == []:
        return None
    if isinstance(value, list):
        kinds = {kind for kind in map(_describe_kind, value) if kind}
        return f"a list of {' and '.join(sorted(kinds))}" if kinds else None
    return "text" if isinstance(value, str) else "an object" if isinstance(value, dict) else "a number"


def _array(name: str, values: list[Any]) -> Any:
    """Convert values to a pyarrow array; ColumnError for those that it cannot hold."""
    import pyarrow as pa

    try:
        return pa.array(values)
    except (pa.ArrowException, ValueError, OverflowError) as error:  # numbers beyond 64 bits, half of a surrogate pair
        raise ColumnError(name, f"cannot be used: {error}") from None


def _infer_type(values: Iterable[Any]) -> Any:
    """Infer the pyarrow type from the first value that has one; a float among integers makes the type float."""
    import pyarrow as pa

    typed = [value for value in values if value is not None and value != []]
    if not typed or isinstance(typed[0], dict):
        return None
    if isinstance(typed[0], list):
        inner = _infer_type(item for value in typed if isinstance(value, list) for item in value)
        return inner and pa.list_(inner)
    if isinstance(typed[0], int) and any(isinstance(value, float) for value in typed):
        return pa.float64()
    types = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}
    return types[type(typed[0])]


def _names(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Return the keys of all rows, each once, in order of appearance."""
    return list(dict.fromkeys(name for row in rows for name in row))


def _lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not blank, with their numbers from 1."""
    start, number = 0, 0
    while start < len(data):
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        number += 1
        if line := data[start:end].strip():
            yield number, line
        start = end + 1
