"""JSON lines as a table: pyarrow's parser where all lines are alike, line by line where one of them is not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from clickshift.io.table_writer import ArrowTable

Choose = Callable[[Sequence[str]], Mapping[str, str]]
"""Function from the column names of a file to {our name: the file's name}, for the columns that are wanted."""

_HEAD = 100  # lines from which columns and their types are inferred
_BLOCK = 1 << 24


class UnreadableLine(NamedTuple):
    """A line that is not a row of the table: its number from 1, and the reason."""

    line: int
    problem: str


class ColumnError(ValueError):
    """A column with values that cannot be used.

    Parameters
    ----------
    name
        Name of the column.
    problem
        What is wrong; completes "column x ...".
    """

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(problem)
        self.name = name
        self.problem = problem


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

    try:
        head = [json.loads(line) for _, line in islice(_lines(data), _HEAD)]
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
    except (ValueError, RecursionError, pa.ArrowException):
        return None
    return table.select(list(chosen.values())).rename_columns(list(chosen))


def _read_line_by_line(data: bytes, choose: Choose) -> tuple[ArrowTable, list[UnreadableLine]]:
    """Read the table with the json module, and collect the lines that are not usable rows."""
    import pyarrow as pa

    rows: list[tuple[int, dict[str, Any]]] = []
    unreadable: list[UnreadableLine] = []
    for number, line in _lines(data):
        try:
            row = json.loads(line)
        except RecursionError:
            unreadable.append(UnreadableLine(number, "the JSON is nested too deeply"))
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
    return pa.table(columns), sorted(unreadable)


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
