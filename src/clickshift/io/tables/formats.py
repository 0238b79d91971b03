"""One file of a table, Parquet, CSV or JSON lines, as pyarrow columns under our names; its failures as FileErrors."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from clickshift.core.files import open_bytes
from clickshift.errors import FileError
from clickshift.io.table_writer import ArrowTable
from clickshift.io.tables.json_lines import Choose, ColumnError, UnreadableLine, read_json_lines

_ID_COLUMNS = ("session", "query", "doc", "user")
LOG_ENDINGS = (".parquet", ".csv", ".csv.gz", ".tsv", ".tsv.gz", ".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz")

_BLOCK = 1 << 24
_HEAD = 1 << 20
_INTEGER = r"^(0|-?[1-9][0-9]{0,18})$"  # the one way to write it, so that 007 stays text


@dataclass(frozen=True)
class TableFile:
    """One file of a log."""

    path: Path
    table: ArrowTable
    unreadable: list[UnreadableLine] = field(default_factory=list)
    first_row: int = 0
    """How many rows of the file stand before it."""


def ending(path: Path) -> str | None:
    """Which of `LOG_ENDINGS` the file's name has."""
    return next((known for known in LOG_ENDINGS if path.name.lower().endswith(known)), None)


def read_table(path: Path, choose: Choose) -> TableFile:
    """The chosen columns of one file. `choose` may raise where it misses a column."""
    kind = ending(path)
    if kind is None:
        raise FileError(
            path,
            f"the ending of a log file must be one of {', '.join(LOG_ENDINGS)}. Rename it; public logs (Yandex, TREC, "
            "Open "
            "Bandit) are converted by `clickshift log convert`.",
        )
    try:
        if kind == ".parquet":
            return _parquet(path, choose)
        with open_bytes(path) as file:
            data = b"".join(iter(partial(file.read, _BLOCK), b""))  # in large pieces: read() alone asks for small ones
        if not re.search(rb"\S", data):
            raise FileError(path, "is empty. Was it written to the end?")
        if kind.startswith((".jsonl", ".ndjson")):
            return TableFile(path, *read_json_lines(data, choose))
        return _csv(path, data, "\t" if kind.startswith(".tsv") else ",", choose)
    except ColumnError as error:
        raise FileError(path, f"column {error.name} {error.problem}.") from None


def column_names(path: Path) -> list[str]:
    """Which columns a file has, from as little of it as tells."""
    kind = ending(path) or ""
    if kind == ".parquet":
        import pyarrow.parquet as pq

        names: list[str] = pq.read_schema(path).names
        return names
    with open_bytes(path) as file:
        head = file.read(_HEAD)
    if kind.startswith((".jsonl", ".ndjson")):
        try:
            return list(json.loads(head.split(b"\n")[0]))
        except ValueError:
            return []
    return [_unquoted(name) for name in _first_records(head, b"\t" if kind.startswith(".tsv") else b",")[0]]


@contextmanager
def parquet_errors(path: Path) -> Iterator[None]:
    """Turn what reading Parquet can raise into a FileError that names the file."""
    import pyarrow as pa

    try:
        yield
    except FileNotFoundError:
        raise FileError(path, "there is no such file. Check the path.") from None
    except FileError:  # also an error of values, as one of text is
        raise
    except (pa.ArrowException, OSError, UnicodeError) as error:
        reason = " ".join(str(error).split())
        advice = "Is it another format under this name, or was the copy cut short? Copy or write it again."
        raise FileError(path, f"cannot be read as Parquet ({reason}). {advice}") from None


def _parquet(path: Path, choose: Choose) -> TableFile:
    """Ids as a dictionary and places in it, as Parquet stores them: text is looked at once per id, not per result."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with parquet_errors(path):
        with path.open("rb") as file:
            if not file.read(1):
                raise FileError(path, "is empty. Was it written to the end?")
        with pq.ParquetFile(path) as parquet:
            metadata, empty = parquet.metadata, parquet.schema_arrow.empty_table()
            chosen = choose(empty.column_names)
            leaves = [parquet.schema.column(i) for i in range(len(parquet.schema))]
        wanted = [chosen[name] for name in (*_ID_COLUMNS, "docs") if name in chosen]
        texts = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
        ids = [leaf for leaf in texts for name in wanted if leaf == name or leaf.startswith(f"{name}.")]

        def read(group: int) -> ArrowTable:
            # one by one: pyarrow cannot join lists of dictionary-encoded items of several groups
            with pq.ParquetFile(
                path, metadata=metadata, read_dictionary=ids, page_checksum_verification=True
            ) as parquet:
                return parquet.read_row_group(group, columns=list(chosen.values()))

        with ThreadPoolExecutor(pa.cpu_count()) as pool:
            tables = list(pool.map(read, range(metadata.num_row_groups))) or [empty]
        table = pa.concat_tables(table.select(list(chosen.values())) for table in tables).rename_columns(list(chosen))
    for name in chosen:
        try:
            table[name].validate(full=True)  # a damaged file may decode to places outside a dictionary
        except pa.ArrowException as error:
            raise ColumnError(name, f"is damaged, or holds text that is not UTF-8: {error}") from None
    return TableFile(path, table)


def _csv(path: Path, data: bytes, delimiter: str, choose: Choose) -> TableFile:
    """All columns as text: pyarrow would guess types from the first rows, and stop at the first that has another."""
    import pyarrow as pa
    import pyarrow.csv as pc

    header, first = _first_records(data[:_HEAD], delimiter.encode())
    names = [_unquoted(name) for name in header]
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
        if unreadable:  # their numbers are known without threads only
            table = read(threads=False)
    except pa.ArrowException as error:
        raise FileError(path, f"cannot be read as CSV ({error}). Is a quotation mark left open?") from None
    table = table.rename_columns(list(chosen))
    for name in set(_ID_COLUMNS) & set(chosen):
        place = names.index(chosen[name])
        quoted = place < len(first) and first[place].startswith(b'"')
        if not quoted:
            table = table.set_column(table.column_names.index(name), name, integers_or_text(table[name]))
    return TableFile(path, table, unreadable)


def integers_or_text(column: Any) -> Any:
    """A column of text as integers, where it has nothing else."""
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


def _first_records(head: bytes, delimiter: bytes) -> tuple[list[bytes], list[bytes]]:
    """The fields of the first two records as they stand, quotation marks and all: what is quoted is text.

    A reader of CSV drops the marks, and with them the difference between "7" and 7.
    """
    pattern = re.compile(rb'("(?:[^"]|"")*"|[^' + delimiter + rb"\r\n]*)(" + delimiter + rb"|\r\n|\n|\r|$)")
    records: list[list[bytes]] = [[]]
    place = len(head) - len(head.lstrip(b"\r\n"))
    while place < len(head) and (found := pattern.match(head, place)):
        records[-1].append(found[1])
        place = found.end()
        if found[2] != delimiter:
            if len(records) == 2:
                break
            records.append([])
    return records[0], records[1] if len(records) > 1 else []


def _unquoted(field: bytes) -> str:
    text = field.decode("utf-8", "replace")
    return text[1:-1].replace('""', '"') if text.startswith('"') and text.endswith('"') and len(text) > 1 else text
