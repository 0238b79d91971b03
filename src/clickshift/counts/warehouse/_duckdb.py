"""Counting in DuckDB: a relation or table of any size, of which only the counts are transferred to Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import uuid4

from clickshift.counts.cascade import Cascade
from clickshift.counts.cells import By, Cells
from clickshift.counts.warehouse import _sql
from clickshift.counts.warehouse._results import ArrowTable, Extent, cells_of, extent_of, number_pairs, sessions_of

Relation = Any
"""A duckdb.DuckDBPyRelation."""
_RunQuery = Callable[[str], ArrowTable]
"""Function that runs a query on the table `lists`."""


def count_cells(log: Relation | str, *, connection: Any = None, by: By = "rank") -> Cells:
    """Count by pair and situation; the log is a relation, or the name of a table of a connection (by default, DuckDB's
    default connection)."""
    with _open_lists(log, connection) as (run, views):
        extent = _extent(run, by, views=views)
        vocabulary, numbers = number_pairs(run(_sql.pairs_query("lists", _sql.DUCKDB)))
        table = run(_sql.cells_query("lists", by, _sql.DUCKDB, views=views))
    return cells_of(table, vocabulary, numbers.of(table["pair"].to_numpy()), extent, by)


def count_cascade(log: Relation | str, *, connection: Any = None) -> Cascade:
    """Count the statistics of cascade models; lists are transferred as numbers, about 60 bytes for a list of ten."""
    import pyarrow.compute as pc

    with _open_lists(log, connection) as (run, views):
        extent = _extent(run, views=views)
        vocabulary, numbers = number_pairs(run(_sql.pairs_query("lists", _sql.DUCKDB)))
        table = run(_sql.hashed_lists_query("lists", _sql.DUCKDB, *["places"] * extent.has_holes))
    pair = numbers.of(pc.list_flatten(table["pairs"]).to_numpy())
    return replace(Cascade.of(sessions_of(table, vocabulary, pair, extent.ranks)), sessions=extent.sessions)


@contextmanager
def _open_lists(log: Relation | str, connection: Any) -> Iterator[tuple[_RunQuery, bool]]:
    """Yield a function that runs queries on the lists of a log; a long log is grouped once, in a temporary table."""
    import duckdb

    relation: Any = log
    if isinstance(log, str):
        relation = (duckdb.default_connection() if connection is None else connection).table(log)
    layout = _sql.SqlLayout.of(dict(zip(relation.columns, map(str, relation.types), strict=True)), _sql.DUCKDB)
    name = f"clickshift_{uuid4().hex}"  # a name that no table of the user has
    lists = _sql.lists_query(name, layout, _sql.DUCKDB)
    if layout.wide:
        yield partial(_run, relation, name, lists), layout.has_views
        return
    relation.query(name, f"CREATE TEMPORARY TABLE {name}_lists AS {lists}")
    try:
        yield partial(_run, relation, name, f"FROM {name}_lists"), layout.has_views
    finally:
        relation.query(name, f"DROP TABLE {name}_lists")


def _run(relation: Relation, name: str, lists: str, query: str) -> ArrowTable:
    """Run a query on a relation, to which `name` refers, and its `lists`."""
    return relation.query(name, f"WITH lists AS ({lists}) {query}").to_arrow_table()


def _extent(run: _RunQuery, by: By | None = None, *, views: bool) -> Extent:
    """Return the size of a log, or raise if a list breaks a rule."""
    return extent_of(run(_sql.summary_query("lists", _sql.DUCKDB, views=views)).to_pylist()[0], by)
