"""Sessions out of DuckDB: tables of a database, and logs with a row per result, whose rows it brings together.

DuckDB keeps to a memory limit and puts what does not fit into a folder. Rows of a session are joined by an aggregate; a
window function takes ten times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from clickshift.core.parallel import n_threads
from clickshift.errors import FileError, SpecError
from clickshift.io.encode.batches import BATCH_ROWS, DamagedFile, ReadBatch
from clickshift.io.tables.formats import TableFile
from clickshift.io.tables.json_lines import Choose

_MARK = "::"
_LISTS = ("docs", "clicks")


@dataclass(frozen=True)
class DuckdbLimits:
    """How much memory DuckDB may take, and the folder for the rest: one beside the encoded log by default."""

    memory: str = "4GB"
    folder: str | Path | None = None


def is_duckdb_table(path: Any) -> bool:
    """Whether a text names a table of a database, as "clicks.duckdb::sessions" does."""
    return isinstance(path, str) and _MARK in path


def parse_duckdb_table(text: str) -> tuple[Path, str]:
    database, _, table = text.partition(_MARK)
    if not database or not table:
        raise SpecError(f'a table must be named as "FILE.duckdb{_MARK}TABLE": got {text!r}.')
    if not Path(database).is_file():
        raise FileError(database, "there is no such database. Check the path.")
    return Path(database), table


def database_batches(
    database: Path, table: str, choosing: Callable[[Path], Choose], spill: DuckdbLimits
) -> Iterator[ReadBatch | DamagedFile]:
    """A table or view of a DuckDB database, in either layout."""
    import duckdb

    with _connected(spill, database) as connection:
        try:
            relation = connection.table(table)
        except (duckdb.CatalogException, duckdb.BinderException, duckdb.ParserException):
            known = ", ".join(row[0] for row in connection.sql("SHOW TABLES").fetchall()) or "none"
            raise FileError(database, f"there is no table {table}: it has {known}.") from None
        yield from _of_relation(relation, database, choosing)


def long_batches(
    files: Sequence[Path], choosing: Callable[[Path], Choose], spill: DuckdbLimits
) -> Iterator[ReadBatch | DamagedFile]:
    """Files with a row per result."""
    names = [str(file) for file in files]
    with _connected(spill, None) as connection:
        if all(file.suffix.lower() == ".parquet" for file in files):
            relation = connection.read_parquet(names, union_by_name=True)
        elif any(".json" in file.name.lower() or ".ndjson" in file.name.lower() for file in files):
            relation = connection.read_json(names)
        else:
            relation = connection.read_csv(names)
        yield from _of_relation(relation, files[0], choosing)


@contextmanager
def _connected(spill: DuckdbLimits, database: Path | None) -> Iterator[Any]:
    """A connection that keeps to a limit; what DuckDB says is wrong becomes one FileError."""
    import duckdb

    settings: dict[str, Any] = {"memory_limit": spill.memory, "threads": n_threads()}
    if spill.folder is not None:
        settings["temp_directory"] = str(spill.folder)
    where = ":memory:" if database is None else str(database)
    try:
        with duckdb.connect(where, read_only=database is not None, config=settings) as connection:
            yield connection
    except duckdb.Error as error:
        raise _told(database or "DuckDB", error) from None


def _told(where: str | Path, error: Exception) -> FileError:
    reason = " ".join(str(error).split())
    advice = "Give it more memory or another spill folder, or mend what it names."
    return FileError(where, f"DuckDB could not read the log ({reason}). {advice}")


def _of_relation(relation: Any, path: Path, choosing: Callable[[Path], Choose]) -> Iterator[ReadBatch]:
    """Batches are fetched one by one, in this thread; what is made of them is not."""
    chosen = choosing(path)(relation.columns)
    long = "docs" not in chosen
    wanted = ", ".join(f"{_quoted(theirs)} AS {ours}" for ours, theirs in chosen.items())
    found = relation.project(wanted)
    if long:
        found = found.aggregate(
            ", ".join(
                [
                    "session",
                    "min(query) AS query",
                    "min(query) = max(query) AND count(query) = count(*) AS one_query",
                    "list({'rank': rank, 'doc': doc, 'click': click}) AS results",
                    *(f"min({name}) AS {name}" for name in chosen if name not in _ROW),
                ]
            ),
            "session",
        )
    first = 0
    for batch in found.to_arrow_reader(BATCH_ROWS):
        import pyarrow as pa

        part = TableFile(path, pa.table(batch), first_row=first)
        first += len(part.table)
        yield partial(_joined, part) if long else partial(list, [part])


_ROW = ("session", "query", "rank", "doc", "click")


def _joined(part: TableFile) -> list[TableFile]:
    """Results of each session, brought into the order of their ranks: the wide layout."""
    import pyarrow as pa

    table = part.table
    lists = table["results"].combine_chunks() if table["results"].num_chunks != 1 else table["results"].chunk(0)
    start = lists.offsets.to_numpy().astype(np.int64)
    items = lists.flatten()
    rank, doc, click = (items.field(name) for name in ("rank", "doc", "click"))
    start -= start[0]
    length = np.diff(start)
    owner = np.repeat(np.arange(len(length)), length)
    place = rank.fill_null(0).cast(pa.int64()).to_numpy() - 1
    good = (place >= 0) & (place < length[owner])
    order = np.full(len(owner), -1)
    order[start[owner[good]] + place[good]] = np.flatnonzero(good)
    bad = np.zeros(len(length), bool)
    bad[owner[order < 0]] = True
    bad |= ~table["one_query"].combine_chunks().fill_null(False).to_numpy(zero_copy_only=False)
    if bad.any():
        session = table["session"][int(np.argmax(bad))].as_py()
        raise FileError(
            part.path,
            f"session {session}: a session must have one query and the ranks 1, 2, 3, ... once each "
            f"({int(bad.sum())} such sessions here). Mend or remove them.",
        )
    offsets, taken = pa.array(start, pa.int64()), pa.array(order)
    columns = {name: table[name] for name in table.column_names if name not in {"results", "one_query", "session"}}
    for name, values in zip(_LISTS, (doc, click), strict=True):
        columns[name] = pa.LargeListArray.from_arrays(offsets, values.take(taken))
    return [TableFile(part.path, pa.table(columns), first_row=part.first_row)]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
