"""Tables as files: Parquet, CSV or JSON lines by the ending of the name, complete or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clickshift.core.files import write_atomically
from clickshift.display.tables import Row, Rows
from clickshift.errors import FileError

ArrowTable = Any  # pyarrow.Table: pyarrow is imported where it is used
ENDINGS = (".parquet", ".csv", ".jsonl")


def table_ending(path: str | Path, endings: tuple[str, ...] = ENDINGS) -> str:
    """The ending of a path that `write_table` can write to: ask before the work whose result is to be written."""
    path = Path(path)
    kind = path.suffix.lower()
    if kind not in endings:
        raise FileError(path, f"the ending of a table must be one of {', '.join(endings)}. Choose one of them.")
    if path.is_dir():
        raise FileError(path, "is a folder, where a table is to be written. Name a file in it.")
    return kind


def write_table(table: ArrowTable, path: str | Path, *, notes: Mapping[str, Any] | None = None) -> None:
    """Write a pyarrow table. NaN is written as nothing; lists are JSON in CSV.

    `notes` say what the table is: Parquet keeps them as its metadata "clickshift"; other formats have no room for them.
    """
    kind = table_ending(path)
    table = _without_nan(table)
    with write_atomically(path) as temporary:
        if kind == ".parquet":
            import pyarrow.parquet as pq

            known = {"clickshift": json.dumps(notes)} if notes else None
            pq.write_table(table.replace_schema_metadata(known), temporary)
        elif kind == ".csv":
            import pyarrow.csv

            pyarrow.csv.write_csv(_with_text_lists(table), temporary)
        else:
            lines = (json.dumps(row, ensure_ascii=False) for row in table.to_pylist())
            temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _without_nan(table: ArrowTable) -> ArrowTable:
    import pyarrow as pa
    import pyarrow.compute as pc

    for i, column in enumerate(table.columns):
        if pa.types.is_floating(column.type):
            table = table.set_column(i, table.field(i), pc.if_else(pc.is_nan(column), None, column))
    return table


def _with_text_lists(table: ArrowTable) -> ArrowTable:
    import pyarrow as pa

    for i, column in enumerate(table.columns):
        if pa.types.is_list(column.type):
            texts = [json.dumps(items, ensure_ascii=False) for items in column.to_pylist()]
            table = table.set_column(i, table.column_names[i], pa.array(texts, pa.string()))
    return table


def write_rows(rows: Sequence[Row], path: str | Path) -> None:
    """Rows may lack keys that others have: missing is null."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = list(dict.fromkeys(name for row in rows for name in row))
    with write_atomically(path) as temporary:
        pq.write_table(pa.table({name: [row.get(name) for row in rows] for name in names}), temporary)


def read_rows(path: str | Path) -> Rows:
    """What `write_rows` wrote, without the nulls."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise FileError(path, f"is not a file of rows ({error}). Delete it and run again.") from None
    return [{name: value for name, value in row.items() if value is not None} for row in table.to_pylist()]
