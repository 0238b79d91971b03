"""Counting on a Spark cluster: a data frame of any size, of which counts alone come to the driver, as Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from clickshift.counts.cascade import Cascade
from clickshift.counts.cells import By, Cells
from clickshift.counts.warehouse import sql
from clickshift.counts.warehouse.results import cells_of, check_list_lengths, number_pairs
from clickshift.counts.warehouse.spark_tails import cascade_of

DataFrame = Any  # a pyspark.sql.DataFrame
Ask = Callable[[str], DataFrame]


def count_cells(log: DataFrame, *, by: By = "rank") -> Cells:
    """Count a log by pair and situation."""
    with _lists(log) as ask:
        n_ranks = _look(ask, by)
        vocabulary, numbers = number_pairs(ask(sql.pairs("{lists}", sql.SPARK)).toArrow())
        table = ask(sql.cells("{lists}", by, sql.SPARK)).toArrow()
    return cells_of(table, vocabulary, numbers.of(table["pair"].to_numpy()), n_ranks, by)


def count_cascade(log: DataFrame) -> Cascade:
    """The counts of cascade models. Lists are numbered and stay on the cluster; each E-step is a job there.

    Its workers need clickshift, too: they sort and sum.
    """
    with _lists(log) as ask:
        n_ranks = _look(ask)
        vocabulary, numbers = number_pairs(ask(sql.pairs("{lists}", sql.SPARK)).toArrow())
        # lists of a query side by side, so that few partitions have the same pairs; those of a frequent one in turns
        hashed = sql.hashed_lists("{lists}", sql.SPARK, "xxhash64(query) AS home", "xxhash64(docs, clicks) AS turn")
        lists = ask(hashed).repartitionByRange("home", "turn").sortWithinPartitions("home").drop("home", "turn")
        return cascade_of(lists, vocabulary, numbers, n_ranks)


@contextmanager
def _lists(log: DataFrame) -> Iterator[Ask]:
    """Ask about the lists of a log. Those of a long log are put together once."""
    spark, layout = log.sparkSession, sql.SqlLayout.of(dict(log.dtypes), sql.SPARK)
    lists = spark.sql(sql.lists("{log}", layout, sql.SPARK), log=log)
    if layout.wide:
        yield partial(spark.sql, lists=lists)
        return
    lists.persist()
    try:
        yield partial(spark.sql, lists=lists)
    finally:
        lists.unpersist()


def _look(ask: Ask, by: By | None = None) -> int:
    (found,) = ask(sql.summarise("{lists}", sql.SPARK)).toArrow().to_pylist()
    return check_list_lengths(found["lists"], found["ranks"], found["bad"], found["first"], by)
