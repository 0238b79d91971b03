"""Counting in the data warehouse: in DuckDB, on Spark, or in any warehouse that Ibis supports.

Only the count tables leave the warehouse; learners fit models on them.
"""

from __future__ import annotations

from typing import Any

from clickshift.counts.cascade import Cascade
from clickshift.counts.cells import By, Cells
from clickshift.errors import DataError, SpecError

__all__ = ["can_be_counted", "count_cascade", "count_cells", "is_warehouse_table"]

_ENGINES = {"duckdb": "DuckDB", "_duckdb": "DuckDB", "pyspark": "Spark", "ibis": "Ibis"}


def is_warehouse_table(log: Any) -> bool:
    """Return whether a log is a DuckDB relation, a Spark data frame or an Ibis table.

    Parameters
    ----------
    log
        Any object; no engine is imported.

    Returns
    -------
    bool
        True for a table that is counted in the warehouse.
    """
    return _engine(log) is not None


def can_be_counted(table: Any, *, whole_lists: bool) -> bool:
    """Return whether the warehouse can count a table; others are read.

    Parameters
    ----------
    table
        A table of a warehouse, with our names of its columns.
    whole_lists
        Whether the statistics need whole lists, as those of cascade models do.

    Returns
    -------
    bool
        False for an Ibis table with one row per list, or if whole lists are needed of one: it has no lists.
    """
    return _engine(table) != "Ibis" or not (whole_lists or "docs" in table.columns)


def count_cells(table: Any, *, by: By = "rank") -> Cells:
    """Count impressions and clicks by pair and situation in the warehouse.

    Parameters
    ----------
    table
        A DuckDB relation, a Spark data frame or an Ibis table with one row per list (columns query, docs, clicks) or
        one row per result (columns session, query, rank, doc, click); an optional column count has the number of equal
        sessions, and viewed whether each result was viewed. An Ibis table must have one row per result. A missing item
        of docs, and a rank without a row, is a hole in its list.
    by
        Situation: "rank", "last_click" or "prefix".

    Returns
    -------
    Cells
        The count tables, equal to `Cells.of` of the log; with views, if the table has them.

    Raises
    ------
    DataError
        If it is no such table ("not-a-table"), a column is missing ("missing-column") or of the wrong type
        ("wrong-column-type"), lists break a rule ("bad-sessions"), or the log is empty ("empty-log").

    Examples
    --------
    >>> import duckdb
    >>> log = duckdb.sql("SELECT 'cats' AS query, [7, 12] AS docs, [1, 0] AS clicks")
    >>> cells = count_cells(log)
    >>> cells.clicks.tolist()
    [1.0, 0.0]
    """
    engine = _engine(table)
    if engine == "DuckDB":
        from clickshift.counts.warehouse import _duckdb

        return _duckdb.count_cells(table, by=by)
    if engine == "Spark":
        from clickshift.counts.warehouse import _spark

        return _spark.count_cells(table, by=by)
    if engine == "Ibis":
        from clickshift.counts.warehouse import _ibis

        return _ibis.count_cells(table, by=by)
    raise _not_a_table(table)


def count_cascade(table: Any) -> Cascade:
    """Count the statistics of cascade models in the warehouse.

    Parameters
    ----------
    table
        A DuckDB relation or a Spark data frame, as for `count_cells`.

    Returns
    -------
    Cascade
        The count tables, equal to `Cascade.of` of the log.

    Raises
    ------
    DataError
        As for `count_cells`.
    SpecError
        If it is an Ibis table, which has no lists ("needs-lists").
    """
    engine = _engine(table)
    if engine == "DuckDB":
        from clickshift.counts.warehouse import _duckdb

        return _duckdb.count_cascade(table)
    if engine == "Spark":
        from clickshift.counts.warehouse import _spark

        return _spark.count_cascade(table)
    if engine == "Ibis":
        raise SpecError(
            "cascade models need whole lists, which an Ibis table does not provide. "
            "Fit PBM, UBM or a counting model, or write the table to Parquet.",
            code="needs-lists",
        )
    raise _not_a_table(table)


def _engine(log: Any) -> str | None:
    """Return the engine of a table by the name of its class, so that no engine is imported for the test."""
    return next(
        (_ENGINES[root] for cls in type(log).__mro__ if (root := cls.__module__.split(".")[0]) in _ENGINES), None
    )


def _not_a_table(table: Any) -> DataError:
    """Return the error for an object that is no table of an engine."""
    return DataError(
        f"a log must be a DuckDB relation, a Spark data frame or an Ibis table: got {type(table).__name__}.",
        code="not-a-table",
        type=type(table).__name__,
    )
