"""A log some rows at a time: the row groups of Parquet files, whole files of text, or what DuckDB answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

from clickshift.errors import FileError
from clickshift.io.tables.formats import TableFile, ending, parquet_errors, read_table
from clickshift.io.tables.json_lines import Choose

BATCH_ROWS = 1 << 16
"""Read at once: few enough that their memory is used again instead of being asked for anew."""
ReadBatch = Callable[[], list[TableFile]]
_DAY = re.compile(r"(day|date|dt|ds)=(.+)")


@dataclass(frozen=True)
class DamagedFile:
    """A file that cannot be read, and why."""

    path: Path
    problem: str


def batches_of(files: Sequence[Path], choose: Callable[[Path], Choose]) -> Iterator[ReadBatch | DamagedFile]:
    """What reads the rows of all files, in their order, some rows at a time; the files that cannot be read are told.

    `choose(file)` says which columns are wanted. Looking at a file's end is all that is done before it is asked for.
    """
    for file in files:
        try:
            if ending(file) == ".parquet":
                yield from _of_parquet(file, choose(file))
            else:
                yield partial(_of_text, file, choose(file))
        except FileError as error:
            yield DamagedFile(file, error.problem)


def _partition_day(path: Path) -> Any:
    """The day that a partitioned folder names, `day=2026-01-31` or `date=...`, as a date or a number; or None."""
    for name in reversed(path.parent.parts):
        if found := _DAY.fullmatch(name):
            text = found[2]
            try:
                return int(text) if text.isdigit() and len(text) != 8 else date.fromisoformat(text)
            except ValueError:
                return None
    return None


def _of_parquet(path: Path, choose: Choose) -> Iterator[ReadBatch]:
    import pyarrow.parquet as pq

    with parquet_errors(path), pq.ParquetFile(path) as parquet:
        metadata = parquet.metadata
        chosen = dict(choose(parquet.schema_arrow.names))
    first = 0
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group).num_rows
        if rows:
            yield partial(_read_group, path, metadata, group, chosen, first)
        first += rows


def _read_group(path: Path, metadata: Any, group: int, chosen: dict[str, str], first: int) -> list[TableFile]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    parts = []
    with parquet_errors(path), pq.ParquetFile(path, metadata=metadata, page_checksum_verification=True) as parquet:
        for batch in parquet.iter_batches(BATCH_ROWS, [group], list(chosen.values()), use_threads=False):
            table = pa.table(batch).select(list(chosen.values())).rename_columns(list(chosen))
            parts.append(with_partition_day(TableFile(path, table, first_row=first)))
            first += len(table)
    return parts


def _of_text(path: Path, choose: Choose) -> list[TableFile]:
    part = with_partition_day(read_table(path, choose))
    return [
        TableFile(path, part.table[start : start + BATCH_ROWS], part.unreadable if start == 0 else [], start)
        for start in range(0, max(len(part.table), 1), BATCH_ROWS)
    ]


def with_partition_day(part: TableFile) -> TableFile:
    """A file without times has the day that its folder tells."""
    import pyarrow as pa

    day = _partition_day(part.path)
    if day is None or {"time", "day"} & set(part.table.column_names):
        return part
    return replace(part, table=part.table.append_column("day", pa.repeat(pa.scalar(day), len(part.table))))
