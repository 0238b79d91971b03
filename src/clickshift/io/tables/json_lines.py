"""JSON objects, one per line, as a table: quickly where all lines are alike, line by line where one of them is not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from clickshift.io.table_writer import ArrowTable

Choose = Callable[[Sequence[str]], Mapping[str, str]]
"""From the names that a file has to {our name: the file's name}, for those that are wanted."""

_HEAD = 100  # lines that tell which columns there are, and of which type
_BLOCK = 1 << 24


class UnreadableLine(NamedTuple):
    """A line that is no row of the table, and why."""

    line: int
    problem: str


class ColumnError(ValueError):
    """A column holds something that no table can; the message completes "column 'x' ..."."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(problem)
        self.name = name
        self.problem = problem


def read_json_lines(data: bytes, choose: Choose) -> tuple[ArrowTable, list[UnreadableLine]]:
    """The chosen columns under our names, and the lines that are not in the table. Blank lines are no lines."""
    table = _read_uniform(data, choose)
    return (table, []) if table is not None else _read_each(data, choose)


def _read_uniform(data: bytes, choose: Choose) -> ArrowTable | None:
    """The table, by pyarrow's parser, which is ten times faster; None where it stumbles or may have misunderstood.

    It is told the types, for it would take text that looks like a date for a date.
    """
    import pyarrow as pa
    import pyarrow.json as pj

    try:
        head = [json.loads(line) for _, line in islice(_lines(data), _HEAD)]
        if not all(isinstance(row, dict) for row in head):
            return None
        chosen = choose(_names(head))
        types = {theirs: _type_of([row.get(theirs) for row in head]) for theirs in chosen.values()}
        if any(kind is None for kind in types.values()):
            return None
        options = pj.ParseOptions(explicit_schema=pa.schema(list(types.items())), unexpected_field_behavior="infer")
        table = pj.read_json(pa.BufferReader(data), pj.ReadOptions(block_size=_BLOCK), options)
        # "{...}{...}" is two rows to it; and a column may appear below the head
        if table.num_rows != data.count(b"\n") + (not data.endswith(b"\n")) or choose(table.column_names) != chosen:
            return None
    except (ValueError, RecursionError, pa.ArrowException):
        return None
    return table.select(list(chosen.values())).rename_columns(list(chosen))


def _read_each(data: bytes, choose: Choose) -> tuple[ArrowTable, list[UnreadableLine]]:
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
                unreadable.append(UnreadableLine(number, f"a line must be a JSON object {{...}}: got {line.decode()[:80]}"))
    chosen = choose(_names(row for _, row in rows))
    for name, theirs in chosen.items():
        rows, others = _of_one_kind(rows, name, theirs)
        unreadable += others
    columns = {name: _array(name, [row.get(theirs) for _, row in rows]) for name, theirs in chosen.items()}
    return pa.table(columns), sorted(unreadable)


def _of_one_kind(
    rows: list[tuple[int, dict[str, Any]]], name: str, theirs: str
) -> tuple[list[tuple[int, dict[str, Any]]], list[UnreadableLine]]:
    """Rows whose value is of the first row's kind, and the others."""
    expected, alike, others = None, [], []
    for number, row in rows:
        kind = _kind(row.get(theirs))
        expected = expected or kind
        if kind is None or kind == expected:
            alike.append((number, row))
        else:
            problem = f"{name} must be {expected}, as in the lines above: got {json.dumps(row[theirs])[:80]}"
            others.append(UnreadableLine(number, problem))
    return alike, others


def _kind(value: Any) -> str | None:
    """What a value is, in words; None where it can be anything."""
    if value is None or value == []:
        return None
    if isinstance(value, list):
        kinds = {kind for kind in map(_kind, value) if kind}
        return f"a list of {' and '.join(sorted(kinds))}" if kinds else None
    return "text" if isinstance(value, str) else "an object" if isinstance(value, dict) else "a number"


def _array(name: str, values: list[Any]) -> Any:
    import pyarrow as pa

    try:
        return pa.array(values)
    except (pa.ArrowException, ValueError, OverflowError) as error:  # numbers beyond 64 bits, half of a surrogate pair
        raise ColumnError(name, f"cannot be used: {error}") from None


def _type_of(values: Iterable[Any]) -> Any:
    """The pyarrow type of the first value that has one; a float among integers makes floats of all of them."""
    import pyarrow as pa

    known = [value for value in values if value is not None and value != []]
    if not known or isinstance(known[0], dict):
        return None
    if isinstance(known[0], list):
        inner = _type_of(item for value in known if isinstance(value, list) for item in value)
        return inner and pa.list_(inner)
    if isinstance(known[0], int) and any(isinstance(value, float) for value in known):
        return pa.float64()
    types = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}
    return types[type(known[0])]


def _names(rows: Iterable[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def _lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Lines that are not blank, with their numbers from 1."""
    start, number = 0, 0
    while start < len(data):
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        number += 1
        if line := data[start:end].strip():
            yield number, line
        start = end + 1
