"""Tables as files: Parquet, CSV or JSON lines by the ending of the name, complete or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clickshift.core.files import write_atomically
from clickshift.errors import FileError

ArrowTable = Any  # pyarrow.Table: pyarrow is imported where it is used
ENDINGS = (".parquet", ".csv", ".jsonl")
"""Endings of the files that `write_table` can write."""


def table_ending(path: str | Path, endings: tuple[str, ...] = ENDINGS, *, what: str = "table") -> str:
    """Check that `write_table` can write to a path; call it before the work whose result is to be written.

    Parameters
    ----------
    path
        The file to be written.
    endings
        The endings that are allowed.
    what
        What is written, for messages.

    Returns
    -------
    str
        The ending of the path, in lower case.

    Raises
    ------
    FileError
        "unknown-format" for another ending, "is-a-folder".

    Examples
    --------
    >>> table_ending("scores.CSV")
    '.csv'
    """
    path = Path(path)
    suffix = next((ending for ending in endings if path.name.lower().endswith(ending)), None)
    if suffix is None:
        raise FileError(
            path,
            f"the ending of a {what} must be one of {', '.join(endings)}. Choose one of them.",
            code="unknown-format",
            known=list(endings),
        )
    if path.is_dir():
        raise FileError(
            path, f"is a folder; a {what} must be written to a file. Pass a file in it.", code="is-a-folder"
        )
    return suffix


def write_table(table: ArrowTable, path: str | Path, *, notes: Mapping[str, Any] | None = None) -> None:
    """Write a pyarrow table.

    Parameters
    ----------
    table
        The table. NaN is written as null; lists are written as JSON in CSV.
    path
        The file; its ending, one of `ENDINGS`, chooses the format.
    notes
        Description of the table, a JSON object. Parquet keeps it under the metadata key "clickshift"; the other formats
        have no metadata.

    Raises
    ------
    FileError
        "unknown-format" for another ending, "is-a-folder".
    """
    suffix = table_ending(path)
    table = _nan_to_null(table)
    with write_atomically(path) as temporary:
        if suffix == ".parquet":
            import pyarrow.parquet as pq

            metadata = {"clickshift": json.dumps(notes)} if notes else None
            pq.write_table(table.replace_schema_metadata(metadata), temporary)
        elif suffix == ".csv":
            import pyarrow.csv

            pyarrow.csv.write_csv(_lists_to_json(table), temporary)
        else:
            lines = (json.dumps(row, ensure_ascii=False) for row in table.to_pylist())
            temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def read_notes(path: str | Path) -> dict[str, Any]:
    """Return the description that `write_table` put into a Parquet file; empty if there is none.

    Parameters
    ----------
    path
        A Parquet file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_schema(path).metadata or {}
        notes = json.loads(metadata.get(b"clickshift", b"{}"))
    except (OSError, ValueError, pa.ArrowException):
        return {}
    return notes if isinstance(notes, dict) else {}


def _nan_to_null(table: ArrowTable) -> ArrowTable:
    """Replace NaN by null in all columns."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for i, column in enumerate(table.columns):
        if pa.types.is_floating(column.type):
            table = table.set_column(i, table.field(i), pc.if_else(pc.is_nan(column), None, column))
    return table


def _lists_to_json(table: ArrowTable) -> ArrowTable:
    """Replace columns of lists by columns of JSON text."""
    import pyarrow as pa

    for i, column in enumerate(table.columns):
        if pa.types.is_list(column.type):
            texts = [json.dumps(items, ensure_ascii=False) for items in column.to_pylist()]
            table = table.set_column(i, table.column_names[i], pa.array(texts, pa.string()))
    return table
