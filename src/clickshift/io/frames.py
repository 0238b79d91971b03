"""Data frames as tables: pandas, Polars, Arrow, DuckDB relations, and whatever narwhals or Arrow's interface can read.

A frame becomes a pyarrow table without Python objects for its values: integers stay integers, text and categories stay
Arrow columns. The layouts, rules and errors are those of files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from clickshift.core.text import printable
from clickshift.errors import DataError, FileError
from clickshift.io.table_writer import ArrowTable
from clickshift.io.tables.formats import Choose, TableFile, name_columns, read_table

PLACE = Path("the data frame")
"""What stands for the file in errors about a data frame."""


def read_frame(frame: Any, choose: Choose) -> TableFile:
    """Read the chosen columns of a data frame.

    Parameters
    ----------
    frame
        A pandas, Polars or Arrow table, a DuckDB relation, another frame that narwhals supports (also lazy ones, which
        are computed), or an object with the Arrow PyCapsule interface.
    choose
        Function that selects and names the columns; it may raise if it misses one.

    Returns
    -------
    TableFile
        The columns under our names.

    Raises
    ------
    DataError
        "not-a-log" for an object that is no table, "unreadable-table" for one that its engine cannot compute.
    FileError
        "mixed-ids" for a column whose values have several types, and the errors of `choose`.

    Examples
    --------
    >>> import polars as pl
    >>> frame = pl.DataFrame({"query": ["cats"], "other": [1]})
    >>> read_frame(frame, lambda names: {"query": "query"}).table.column_names
    ['query']
    """
    import pyarrow as pa

    if isinstance(frame, pa.RecordBatch | pa.RecordBatchReader):
        frame = pa.table(frame) if isinstance(frame, pa.RecordBatch) else frame.read_all()
    if isinstance(frame, pa.Table):
        return TableFile(PLACE, name_columns(frame, choose(frame.column_names)))
    if type(frame).__module__.split(".")[0] == "pandas" and hasattr(frame, "columns"):
        chosen = choose([str(name) for name in frame.columns])
        theirs = {str(name): name for name in frame.columns}
        table = pa.table({name: _pandas_column(name, frame[theirs[name]]) for name in chosen.values()})
        return TableFile(PLACE, name_columns(table, chosen))
    import narwhals as nw

    lazy_or_eager = nw.from_native(frame, pass_through=True)
    if isinstance(lazy_or_eager, nw.DataFrame | nw.LazyFrame):
        chosen = choose(lazy_or_eager.collect_schema().names())
        return TableFile(
            PLACE, name_columns(_arrow(lazy_or_eager.select(list(dict.fromkeys(chosen.values())))), chosen)
        )
    if hasattr(frame, "__arrow_c_stream__"):
        with suppress(pa.ArrowInvalid):  # of a single column, e.g. a Polars series
            return read_frame(pa.RecordBatchReader.from_stream(frame), choose)
    raise DataError(
        "a log must be a path, a data frame (pandas, Polars, Arrow, DuckDB, Spark, Ibis), Sessions or an EncodedLog: "
        f"got {type(frame).__name__}. Pass a table with the columns query, docs and clicks (one row per list) or "
        "session, query, rank, doc and click (one row per result).",
        code="not-a-log",
        type=type(frame).__name__,
    )


def read_source(source: str | Path | Any, choose: Callable[[Path, Sequence[str]], Mapping[str, str]]) -> TableFile:
    """Read the chosen columns of a table file, or of a data frame.

    Parameters
    ----------
    source
        A file, or anything that `read_frame` takes.
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
    try:
        return read_frame(source, partial(choose, PLACE))
    except DataError as error:
        if error.code != "not-a-log":
            raise
    raise DataError(
        f"a table must be a file or a data frame (pandas, Polars, Arrow, DuckDB): got {type(source).__name__}.",
        code="not-a-table",
        type=type(source).__name__,
    )


def _arrow(frame: Any) -> ArrowTable:
    """Return a narwhals frame as a pyarrow table; a lazy one is computed."""
    import narwhals as nw

    if not isinstance(frame, nw.LazyFrame):
        return frame.to_arrow()
    try:
        return frame.collect("pyarrow").to_arrow()
    except Exception as error:  # of the engine: each has its own
        reason = printable(next(iter(str(error).strip().splitlines()), type(error).__name__))
        raise DataError(
            f"the table could not be computed and fetched ({reason}). Fix its query; if it is too large for the memory "
            "of this machine, write it to Parquet files and pass their folder.",
            code="unreadable-table",
            reason=reason,
        ) from error


def _pandas_column(name: str, column: Any) -> Any:
    """Convert a pandas column; NaN is a missing value. FileError for one whose values have several types."""
    import pyarrow as pa

    try:
        return pa.array(column, from_pandas=True)
    except (pa.ArrowException, ValueError, OverflowError) as error:
        head = column.head(10_000).explode()  # the items, where the values are lists
        types = " and ".join(sorted({type(value).__name__ for value in head}))
        raise FileError(
            PLACE,
            f"column {name} must hold values of one type: got {types} ({' '.join(str(error).split())}). Convert it "
            f'first, e.g. frame["{name}"].astype(str).',
            code="mixed-ids",
            column=name,
            types=types,
        ) from None
