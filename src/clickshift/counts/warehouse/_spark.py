"""Counting on a Spark cluster: a data frame of any size, of which only the counts are transferred to the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from clickshift.counts.cascade import Cascade
from clickshift.counts.cells import By, Cells
from clickshift.counts.warehouse import _sql
from clickshift.counts.warehouse._results import Extent, cells_of, extent_of, number_pairs
from clickshift.counts.warehouse._spark_tails import cascade_of

DataFrame = Any
"""A pyspark.sql.DataFrame."""
_RunQuery = Callable[[str], DataFrame]
"""Function that runs a query on the table `{lists}`."""


def count_cells(log: DataFrame, *, by: By = "rank") -> Cells:
    """Count by pair and situation."""
    with _open_lists(log) as (run, views):
        extent = _extent(run, by, views=views)
        vocabulary, numbers = number_pairs(run(_sql.pairs_query("{lists}", _sql.SPARK)).toArrow())
        table = run(_sql.cells_query("{lists}", by, _sql.SPARK, views=views)).toArrow()
    return cells_of(table, vocabulary, numbers.of(table["pair"].to_numpy()), extent, by)


def count_cascade(log: DataFrame) -> Cascade:
    """Count the statistics of cascade models. Lists stay on the cluster, as numbers; each E-step is a Spark job.

    The workers need clickshift too: they sort the lists and sum.
    """
    with _open_lists(log) as (run, views):
        extent = _extent(run, views=views)
        vocabulary, numbers = number_pairs(run(_sql.pairs_query("{lists}", _sql.SPARK)).toArrow())
        # lists of a query are kept together, so that few partitions share pairs; a frequent query fills several
        hashed = _sql.hashed_lists_query(
            "{lists}",
            _sql.SPARK,
            *["places"] * extent.has_holes,
            "xxhash64(query) AS home",
            "xxhash64(docs, clicks) AS turn",
        )
        lists = run(hashed).repartitionByRange("home", "turn").sortWithinPartitions("home").drop("home", "turn")
        return replace(cascade_of(lists, vocabulary, numbers, extent.ranks), sessions=extent.sessions)


@contextmanager
def _open_lists(log: DataFrame) -> Iterator[tuple[_RunQuery, bool]]:
    """Yield a function that runs queries on the lists of a log; a long log is grouped once."""
    spark, layout = log.sparkSession, _sql.SqlLayout.of(dict(log.dtypes), _sql.SPARK)
    lists = spark.sql(_sql.lists_query("{log}", layout, _sql.SPARK), log=log)
    if layout.wide:
        yield partial(spark.sql, lists=lists), layout.has_views
        return
    lists.persist()
    try:
        yield partial(spark.sql, lists=lists), layout.has_views
    finally:
        lists.unpersist()


def _extent(run: _RunQuery, by: By | None = None, *, views: bool) -> Extent:
    """Return the size of a log, or raise if a list breaks a rule."""
    (summary,) = run(_sql.summary_query("{lists}", _sql.SPARK, views=views)).toArrow().to_pylist()
    return extent_of(summary, by)
