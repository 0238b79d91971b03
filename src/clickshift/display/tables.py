"""Rows of tables: the types that functions return, tables that people read, and rows as Arrow tables and files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clickshift.core.files import write_atomically
from clickshift.errors import FileError

Row = Mapping[str, Any]
"""One row of a table: values by column name."""
Rows = list[dict[str, Any]]
"""Tidy rows, as functions return them."""


def facts_table(facts: Row) -> Rows:
    """Format facts as a table of two columns without headings; those that are None are left out.

    Parameters
    ----------
    facts
        Values by name.

    Returns
    -------
    list of dict
        One row per fact.

    Examples
    --------
    >>> facts_table({"unseen_share": 0.5, "time": None})
    [{'': 'unseen share', ' ': 0.5}]
    """
    return [{"": name.replace("_", " "), " ": value} for name, value in facts.items() if value is not None]


def arrow_table(rows: Sequence[Row]) -> Any:
    """Return tidy rows as a pyarrow table.

    Parameters
    ----------
    rows
        The rows; a key that a row lacks is null there.

    Returns
    -------
    pyarrow.Table
        The table, with a column for every key.

    Examples
    --------
    >>> arrow_table([{"rank": 1}, {"rank": 2, "click": True}]).to_pydict()
    {'rank': [1, 2], 'click': [None, True]}
    """
    import pyarrow as pa

    names = list(dict.fromkeys(name for row in rows for name in row))
    return pa.table({name: [row.get(name) for row in rows] for name in names})


_OWNER = b"clickshift_rows_of"
"""Key of the Parquet metadata that names the owner of rows."""


def write_rows(rows: Sequence[Row], path: str | Path, *, owner: str = "") -> None:
    """Write tidy rows as a Parquet file with checksums.

    Parameters
    ----------
    rows
        The rows; a key that a row lacks is null there.
    path
        The file.
    owner
        Name of what the rows belong to, which `read_rows` checks; empty for none.
    """
    import pyarrow.parquet as pq

    table = arrow_table(rows)
    if owner:
        table = table.replace_schema_metadata({_OWNER: owner.encode()})
    with write_atomically(path) as temporary:
        pq.write_table(table, temporary, write_page_checksum=True)


def read_rows(path: str | Path, *, owner: str = "") -> Rows:
    """Read tidy rows that `write_rows` wrote.

    Parameters
    ----------
    path
        The file.
    owner
        Name of what the rows must belong to; empty for anything. Files without an owner are accepted if their rows
        name a model, as those of earlier versions do.

    Returns
    -------
    list of dict
        The rows, without the keys that are null.

    Raises
    ------
    FileError
        "damaged-file" if the file is not a Parquet file of rows, or "foreign-rows" if its rows are not those of the
        owner.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(path, page_checksum_verification=True).read()
        rows = table.to_pylist()
    except (OSError, ValueError, OverflowError, pa.ArrowException) as error:  # dates out of range, text that is not
        raise FileError(
            path, f"is not a file of rows ({error}). Delete it and run again.", code="damaged-file"
        ) from None
    written = (table.schema.metadata or {}).get(_OWNER)
    known = "model" in table.column_names and len(table) > 0 if written is None else written == owner.encode()
    if owner and not known:
        raise FileError(path, "holds the rows of something else. Delete it and run again.", code="foreign-rows")
    return [{name: value for name, value in row.items() if value is not None} for row in rows]
