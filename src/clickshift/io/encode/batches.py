"""A log in batches of rows: the row groups of Parquet files, and whole text files cut into pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from clickshift.errors import FileError
from clickshift.io.tables.formats import (
    Choose,
    TableFile,
    ending,
    name_columns,
    parquet_errors,
    read_table,
    with_partition_day,
)

BATCH_ROWS = 1 << 16
"""Rows of a batch: few enough that the memory of a batch is reused instead of being allocated again."""
ReadBatch = Callable[[], list[TableFile]]
"""Function that reads some rows of a log, as tables of at most `BATCH_ROWS` rows."""


@dataclass(frozen=True)
class DamagedFile:
    """A file that cannot be read.

    Parameters
    ----------
    path
        The file.
    problem
        Why it cannot be read, and what to do.
    code
        Code of the error.
    facts
        Facts of the error.
    """

    path: Path
    problem: str
    code: str = ""
    facts: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, path: Path, error: FileError) -> DamagedFile:
        """Keep the problem, code and facts of an error."""
        return cls(path, error.problem, error.code, error.facts)

    def error(self) -> FileError:
        """Return the error to raise where damaged files are not skipped."""
        return FileError(self.path, self.problem, code=self.code, **self.facts)


def batches_of(files: Sequence[Path], choose: Callable[[Path], Choose]) -> Iterator[ReadBatch | DamagedFile]:
    """Yield functions that read the rows of all files, batch by batch and in order, and the files that cannot be read.

    Only the metadata at the end of a Parquet file is read here; rows are read when a function is called.

    Parameters
    ----------
    files
        The files of a log.
    choose
        Function from a file to the function that selects and names its columns.
    """
    for file in files:
        try:
            if ending(file) == ".parquet":
                yield from _parquet_batches(file, choose(file))
            else:
                yield partial(_read_text, file, choose(file))
        except FileError as error:
            yield DamagedFile.of(file, error)


def _parquet_batches(path: Path, choose: Choose) -> Iterator[ReadBatch]:
    """Yield a function for every row group of a Parquet file that has rows."""
    import pyarrow.parquet as pq

    with parquet_errors(path), pq.ParquetFile(path) as parquet:
        metadata = parquet.metadata
        chosen = dict(choose(parquet.schema_arrow.names))
    first_row = 0
    for group in range(metadata.num_row_groups):
        n_rows = metadata.row_group(group).num_rows
        if n_rows:
            yield partial(_read_group, path, metadata, group, chosen, first_row)
        first_row += n_rows


def _read_group(path: Path, metadata: Any, group: int, chosen: dict[str, str], first_row: int) -> list[TableFile]:
    """Read a row group of a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    parts = []
    with parquet_errors(path), pq.ParquetFile(path, metadata=metadata, page_checksum_verification=True) as parquet:
        for batch in parquet.iter_batches(BATCH_ROWS, [group], list(chosen.values()), use_threads=False):
            table = name_columns(pa.table(batch), chosen)
            parts.append(with_partition_day(TableFile(path, table, first_row=first_row)))
            first_row += len(table)
    return parts


def _read_text(path: Path, choose: Choose) -> list[TableFile]:
    """Read a text file, cut into tables of `BATCH_ROWS` rows; unreadable lines belong to the first one."""
    part = read_table(path, choose)
    return [
        TableFile(path, part.table[start : start + BATCH_ROWS], part.unreadable if start == 0 else [], start)
        for start in range(0, max(len(part.table), 1), BATCH_ROWS)
    ]
