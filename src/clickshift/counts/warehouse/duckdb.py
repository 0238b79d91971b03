"""Counting in DuckDB: a relation or a table of any size, whose counts alone come to Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from clickshift.counts.cascade import Cascade
from clickshift.counts.cells import By, Cells
from clickshift.counts.warehouse import sql
from clickshift.counts.warehouse.results import ArrowTable, cells_of, check_list_lengths, number_pairs, sessions_of

Relation = Any  # a duckdb.DuckDBPyRelation


def count_cells(log: Relation | str, *, connection: Any = None, by: By = "rank") -> Cells:
    """Count a log by pair and situation: a relation, or the name of a table of a connection (the default one's)."""
    with _lists(log, connection) as ask:
        n_ranks = _look(ask, by)
        vocabulary, numbers = number_pairs(ask(sql.pairs("lists", sql.DUCKDB)))
        table = ask(sql.cells("lists", by, sql.DUCKDB))
    return cells_of(table, vocabulary, numbers.of(table["pair"].to_numpy()), n_ranks, by)


def count_cascade(log: Relation | str, *, connection: Any = None) -> Cascade:
    """The counts of cascade models. Lists come to Python, numbered: about 60 bytes for a list of ten."""
    import pyarrow.compute as pc

    with _lists(log, connection) as ask:
        n_ranks = _look(ask)
        vocabulary, numbers = number_pairs(ask(sql.pairs("lists", sql.DUCKDB)))
        table = ask(sql.hashed_lists("lists", sql.DUCKDB))
    pair = numbers.of(pc.list_flatten(table["pairs"]).to_numpy())
    return Cascade.of(sessions_of(table, vocabulary, pair, n_ranks))


@contextmanager
def _lists(log: Relation | str, connection: Any) -> Iterator[Callable[[str], ArrowTable]]:
    """Ask about the lists of a log. Those of a long log are put together once, in a temporary table."""
    import duckdb

    relation: Any = log
    if isinstance(log, str):
        relation = (duckdb.default_connection() if connection is None else connection).table(log)
    layout = sql.SqlLayout.of(dict(zip(relation.columns, map(str, relation.types), strict=True)), sql.DUCKDB)
    name = f"clickshift_{uuid4().hex}"  # a name that no table of the user's has
    text = sql.lists(name, layout, sql.DUCKDB)
    if layout.wide:
        yield lambda question: relation.query(name, f"WITH lists AS ({text}) {question}").to_arrow_table()
        return
    relation.query(name, f"CREATE TEMPORARY TABLE {name}_lists AS {text}")
    try:
        yield lambda question: relation.query(name, f"WITH lists AS (FROM {name}_lists) {question}").to_arrow_table()
    finally:
        relation.query(name, f"DROP TABLE {name}_lists")


def _look(ask: Callable[[str], ArrowTable], by: By | None = None) -> int:
    found = ask(sql.summarise("lists", sql.DUCKDB)).to_pylist()[0]
    return check_list_lengths(found["lists"], found["ranks"], found["bad"], found["first"], by)
