"""One table file, Parquet, CSV or JSON lines, as pyarrow columns under our names; failures become FileErrors."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from clickshift.core.files import open_bytes
from clickshift.errors import DataError, FileError
from clickshift.io.table_writer import ArrowTable
from clickshift.io.tables.json_lines import Choose, ColumnError, UnreadableLine, read_json_lines

LOG_ENDINGS = (".parquet", ".csv", ".csv.gz", ".tsv", ".tsv.gz", ".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz")
"""Endings of the files that a log can be read from and written to."""

_ID_COLUMNS = ("session", "query", "doc", "user")
_BLOCK = 1 << 24
_HEAD = 1 << 20
_INTEGER = r"^(0|-?[1-9][0-9]{0,18})$"  # the canonical form of an integer, so that 007 stays text


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
        parsed, and "bad-column" for a column that cannot be used.
    """
    file_ending = ending(path)
    if file_ending is None:
        raise FileError(
            path,
            f"the ending of a log file must be one of {', '.join(LOG_ENDINGS)}. Rename the file. Public logs (Yandex, "
            "TREC, Open Bandit) have readers in clickshift.io.datasets; `clickshift log convert` converts them.",
            code="unknown-format",
            known=list(LOG_ENDINGS),
        )
    try:
        if file_ending == ".parquet":
            return _read_parquet(path, choose)
        with open_bytes(path) as file:
            data = b"".join(iter(partial(file.read, _BLOCK), b""))  # in large pieces: read() alone asks for small ones
        if not re.search(rb"\S", data):
            raise _empty_file(path)
        if file_ending.startswith((".jsonl", ".ndjson")):
            return TableFile(path, *read_json_lines(data, choose))
        return _read_csv(path, data, "\t" if file_ending.startswith(".tsv") else ",", choose)
    except ColumnError as error:
        raise FileError(path, f"column {error.name} {error.problem}.", code="bad-column", column=error.name) from None


def read_source(source: str | Path | Any, choose: Callable[[Path, Sequence[str]], Mapping[str, str]]) -> TableFile:
    """Read the chosen columns of a table file, or of a data frame.

    Parameters
    ----------
    source
        A file, or an object with the Arrow PyCapsule interface: a pandas, Polars or Arrow table.
    choose
        Function from the name and the columns of the table that selects and names the columns.

    Returns
    -------
    TableFile
        The columns under our names.

    Raises
    ------
    DataError
        "not-a-table" for another object.
    """
    if isinstance(source, str | Path):
        return read_table(Path(source), partial(choose, Path(source)))
    if not hasattr(source, "__arrow_c_stream__"):
        raise DataError(
            "a table must be a file, or a pandas, Polars or Arrow table: got "
            f"{type(source).__module__}.{type(source).__qualname__}.",
            code="not-a-table",
            type=type(source).__qualname__,
        )
    import pyarrow as pa

    table, name = pa.table(source), Path(f"{type(source).__module__.split('.')[0]} table")
    chosen = choose(name, table.column_names)
    return TableFile(name, table.select(list(chosen.values())).rename_columns(list(chosen)))


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
        except ValueError:
            return []
    return [_unquote(name) for name in _first_two_records(head, b"\t" if file_ending.startswith(".tsv") else b",")[0]]


@contextmanager
def parquet_errors(path: Path) -> Iterator[None]:
    """Turn the errors of reading Parquet into a FileError that names the file.

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
            path, f"cannot be read as Parquet ({reason}). {advice}", code="damaged-file", format="Parquet"
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
        table = pa.concat_tables(table.select(list(chosen.values())) for table in tables).rename_columns(list(chosen))
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
                include_columns=list(chosen.values()),
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
    table = table.rename_columns(list(chosen))
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
