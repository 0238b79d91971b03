"""Count where the logs live: in DuckDB, on Spark, or in a warehouse that Ibis knows. Learners take it from there."""

from __future__ import annotations

from typing import Any

from clickshift.counts.cascade import Cascade
from clickshift.counts.cells import By, Cells
from clickshift.errors import DataError, SpecError

_ENGINES = {"duckdb": "DuckDB", "_duckdb": "DuckDB", "pyspark": "Spark", "ibis": "Ibis"}


def is_warehouse_table(log: Any) -> bool:
    """Whether this is a DuckDB relation, a Spark data frame or an Ibis table."""
    return _engine(log) is not None


def count_cells(table: Any, *, by: By = "rank") -> Cells:
    """Count a DuckDB relation, a Spark data frame or an Ibis table by pair and situation."""
    engine = _engine(table)
    if engine == "DuckDB":
        from clickshift.counts.warehouse import duckdb

        return duckdb.count_cells(table, by=by)
    if engine == "Spark":
        from clickshift.counts.warehouse import spark

        return spark.count_cells(table, by=by)
    if engine == "Ibis":
        from clickshift.counts.warehouse import ibis

        return ibis.count_cells(table, by=by)
    raise _no_table(table)


def count_cascade(table: Any) -> Cascade:
    """The counts of cascade models, of a DuckDB relation or a Spark data frame."""
    engine = _engine(table)
    if engine == "DuckDB":
        from clickshift.counts.warehouse import duckdb

        return duckdb.count_cascade(table)
    if engine == "Spark":
        from clickshift.counts.warehouse import spark

        return spark.count_cascade(table)
    if engine == "Ibis":
        raise SpecError(
            "cascade models need whole lists, which an Ibis table of any warehouse cannot give. "
            "Fit PBM, UBM or a model by counting, or write the table to Parquet."
        )
    raise _no_table(table)


def _engine(log: Any) -> str | None:
    """By name, for none of them should be imported only to be asked."""
    return next(
        (_ENGINES[root] for cls in type(log).__mro__ if (root := cls.__module__.split(".")[0]) in _ENGINES), None
    )


def _no_table(table: Any) -> DataError:
    return DataError(
        f"a log must be a DuckDB relation, a Spark data frame or an Ibis table: got {type(table).__name__}."
    )
