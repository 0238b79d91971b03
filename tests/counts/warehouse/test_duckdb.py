"""Counts in DuckDB against counts by hand and in memory."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from clickshift.counts.cascade import Cascade
from clickshift.counts.cells import By, Cells
from clickshift.counts.warehouse import _duckdb as duckdb_counts
from clickshift.counts.warehouse import _sql as sql
from clickshift.counts.warehouse import is_warehouse_table
from clickshift.data.sessions import Sessions
from clickshift.errors import DataError
from clickshift.learners.base import learner_for
from clickshift.learners.fit import data_for, fit
from tests.codes import raises_code
from tests.counts.warehouse.logs import (
    BROKEN,
    BROKEN_RESULTS,
    Rows,
    assert_same_cells,
    assert_same_views,
    broken_results,
    broken_rows,
    by_hand,
    each_kind_of_ids,
    each_layout,
    in_layout,
    in_memory,
    make_rows,
    spelled_out,
    with_holes,
    with_views,
)


@pytest.fixture
def connection() -> Iterator[Any]:
    with duckdb.connect() as connection:
        yield connection


def relation(connection: Any, rows: Rows) -> Any:
    connection.register("given", pa.Table.from_pylist(rows))
    connection.execute("CREATE OR REPLACE TABLE log AS FROM given")
    connection.unregister("given")
    return connection.table("log")


@each_kind_of_ids
@each_layout
@pytest.mark.parametrize("by", ["rank", "last_click", "prefix"])
def test_counts(connection: Any, ids: str, layout: str, by: By, tmp_path: Path) -> None:
    rows = make_rows(ids)
    found = duckdb_counts.count_cells(relation(connection, in_layout(rows, layout)), by=by)
    assert spelled_out(found) == by_hand(rows, by)
    assert_same_cells(found, Cells.of(in_memory(rows, tmp_path), by))


@each_layout
@pytest.mark.parametrize("by", ["rank", "last_click", "prefix"])
def test_holes_are_counted_as_in_memory(connection: Any, layout: str, by: By, tmp_path: Path) -> None:
    rows = with_holes(make_rows("text"))
    table, log = relation(connection, in_layout(rows, layout)), in_memory(rows, tmp_path)
    assert log.rankings.has_holes
    found = duckdb_counts.count_cells(table, by=by)
    assert spelled_out(found) == by_hand(rows, by)
    assert_same_cells(found, Cells.of(log, by))


@each_layout
def test_cascades_of_lists_with_holes(connection: Any, layout: str, tmp_path: Path) -> None:
    rows = with_holes(make_rows("integers"))
    found = duckdb_counts.count_cascade(relation(connection, in_layout(rows, layout)))
    log = in_memory(rows, tmp_path)
    expected = Cascade.of(log)
    for name in ("impressions", "examined", "clicks", "followed", "open_last", "followed_at_rank", "first_examined"):
        assert np.array_equal(getattr(found, name), getattr(expected, name)), name
    assert found.passed == expected.passed
    models = [learner_for("EM('DBN', iterations=3)").fit(counts) for counts in (found, expected)]
    assert np.allclose(models[0].relevance(), models[1].relevance(), rtol=0, atol=1e-12)


@each_layout
def test_lists_in_sparks_dialect_are_the_same(connection: Any, layout: str) -> None:
    """Spark's queries with the names that DuckDB gives the same functions, where Spark is not installed."""
    given = relation(connection, in_layout(with_views(with_holes(make_rows("text"))), layout))
    found = []
    for dialect in (sql.DUCKDB, sql.SPARK):
        types = dict(zip(given.columns, map(str, given.types), strict=True))
        lists = sql.lists_query("log", sql.SqlLayout.of(types, sql.DUCKDB), dialect)
        summary = sql.summary_query(f"({lists})", dialect, views=True)
        for spark, ours in _SPARK_NAMES.items():
            lists, summary = (re.sub(spark, ours, query) for query in (lists, summary))
        columns = "query, docs, clicks, places, views, times, problem"
        found.append(
            (
                connection.sql(f"SELECT {columns} FROM ({lists}) ORDER BY ALL").fetchall(),
                connection.sql(summary).fetchall(),
            )
        )
    assert found[0] == found[1]
    assert found[0][1][0][2:4] == (0, sum(places[-1] > len(places) for _, _, _, places, *_ in found[0][0]))


_SPARK_NAMES = {
    r"`(\w+)`": r'"\1"',
    r"\bSTRING\b": "VARCHAR",
    r"ARRAY<(\w+)>": r"\1[]",
    r"\bsize\(": "len(",
    r"\btry_element_at\(": "list_extract(",
    r"(?<!_)\bfilter\(": "list_filter(",
    r"(?<!_)\btransform\(": "list_transform(",
    r"\bx -> ": "lambda x: ",
    r"\barray_max\(": "list_max(",
    r"\barray_distinct\(": "list_distinct(",
    r"\bsequence\(": "generate_series(",
    r"\bslice\(": "list_slice(",
    r"sort_array\(collect_list\(struct\(place, doc, click, viewed\)\)\)": (
        "list_sort(list(struct_pack(place := place, doc := doc, click := click, viewed := viewed)))"
    ),
}
"""DuckDB's names of Spark's functions and types."""


@each_layout
@pytest.mark.parametrize("by", ["rank", "last_click", "prefix"])
def test_views_are_counted_as_in_memory(connection: Any, layout: str, by: By, tmp_path: Path) -> None:
    rows = with_views(with_holes(make_rows("text")))
    table, log = relation(connection, in_layout(rows, layout)), in_memory(rows, tmp_path)
    assert_same_views(duckdb_counts.count_cells(table, by=by), Cells.of(log, by, views=True))
    assert_same_cells(duckdb_counts.count_cells(table, by=by), Cells.of(log, by))
    assert duckdb_counts.count_cascade(table).clicks.sum() == log.count @ log.click.sum(axis=1)


def test_views_of_a_table_are_observed_examination(connection: Any, tmp_path: Path) -> None:
    rows = with_views(make_rows("text"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("PBM", "UBM"):
            found, expected = fit(name, relation(connection, rows)), fit(name, in_memory(rows, tmp_path))
            assert np.allclose(found.examination, expected.examination)  # type: ignore[attr-defined]
            assert found.examination.max() < 1  # type: ignore[attr-defined]
        ignored = fit("PBM", relation(connection, rows), columns={"viewed": ""})
        assert ignored.examination[0] == 1, "by convention"  # type: ignore[attr-defined]


BROKEN_VIEWS: dict[str, tuple[dict[str, Any], str]] = {
    "neither": ({"viewed": [2.0, 0.0]}, "viewed must be 0 or 1, or missing"),
    "too many": ({"viewed": [1.0, 0.0, 1.0]}, "docs and viewed must be of equal length"),
    "a hole": ({"docs": ["d'0", None], "clicks": [1, 0], "viewed": [1.0, 1.0]}, "where there is no document"),
}


@pytest.mark.parametrize("change", BROKEN_VIEWS)
def test_views_that_break_a_rule(connection: Any, change: str) -> None:
    rows = [row | {"viewed": [1.0, None]} for row in broken_rows({})]
    rows[1] |= BROKEN_VIEWS[change][0]
    with raises_code("bad-sessions", DataError, count=1) as caught:
        duckdb_counts.count_cells(relation(connection, rows))
    assert BROKEN_VIEWS[change][1] in str(caught.value)
    with raises_code("wrong-column-type", DataError, column="viewed"):
        duckdb_counts.count_cells(relation(connection, [row | {"viewed": ["yes", "no"]} for row in rows]))


@each_layout
def test_counts_without_counts_of_a_table_by_name(connection: Any, layout: str) -> None:
    rows = [{name: row[name] for name in ("query", "docs", "clicks")} for row in make_rows("text")]
    relation(connection, in_layout(rows, layout))
    assert spelled_out(duckdb_counts.count_cells("log", connection=connection)) == by_hand(rows, "rank")
    assert connection.sql("SHOW ALL TABLES").select("name").fetchall() == [("log",)], "something was left behind"


@each_layout
def test_other_tables_are_not_mistaken_for_the_log(connection: Any, layout: str) -> None:
    rows = [row for row in make_rows("integers") if len(row["docs"]) > 1]
    given = relation(connection, in_layout(rows, layout))
    connection.execute("CREATE TABLE lists AS SELECT 1 AS nothing")
    part = given.filter("query < 2")
    expected = [row for row in rows if row["query"] < 2]
    assert 0 < len(expected) < len(rows)
    assert spelled_out(duckdb_counts.count_cells(part, by="last_click")) == by_hand(expected, "last_click")


@each_kind_of_ids
@each_layout
def test_cascade(connection: Any, ids: str, layout: str, tmp_path: Path) -> None:
    rows = make_rows(ids)
    found = duckdb_counts.count_cascade(relation(connection, in_layout(rows, layout)))
    expected = Cascade.of(in_memory(rows, tmp_path))
    assert found.vocabulary.same_as(expected.vocabulary)
    for name in ("impressions", "examined", "clicks", "followed", "open_last", "followed_at_rank", "first_examined"):
        assert np.array_equal(getattr(found, name), getattr(expected, name)), name


@pytest.mark.parametrize("model", ["dCTR", "RankTopObs", "PBM", "UBM", "DBN", "CM"])
def test_fitted_as_in_memory(connection: Any, model: str, tmp_path: Path) -> None:
    rows, learner = make_rows("integers"), learner_for(model)
    table = relation(connection, rows)
    assert is_warehouse_table(table)
    found, expected = fit(learner, table), learner.fit(in_memory(rows, tmp_path))
    assert np.allclose(found.relevance(), expected.relevance(), rtol=0, atol=1e-9)


def test_other_types(connection: Any) -> None:
    """Truth values, small numbers, lists of fixed length, an enumeration, columns that do not matter."""
    connection.execute("CREATE TYPE word AS ENUM ('x', 'y')")
    log = connection.sql(
        "SELECT 'x'::word AS query, [3, 4]::UTINYINT[2] AS docs, [true, false] AS clicks, 2.0::FLOAT AS count, 1 AS day"
    )
    found = duckdb_counts.count_cells(log, by="last_click")
    assert found.vocabulary.query_ids.tolist() == ["x"]
    assert found.vocabulary.doc_ids.tolist() == [3, 4]
    assert (found.situation.tolist(), found.impressions.tolist(), found.clicks.tolist()) == ([0, 2], [2, 2], [2, 0])


def test_lists_longer_than_a_number_has_bits(connection: Any) -> None:
    rows: Rows = [{"query": 1, "docs": list(range(100)), "clicks": [int(r in {3, 70, 90}) for r in range(100)]}]
    assert spelled_out(duckdb_counts.count_cells(relation(connection, rows), by="last_click")) == by_hand(
        rows, "last_click"
    )
    with raises_code("lists-too-long", DataError, value=100, limit=30):
        duckdb_counts.count_cells(relation(connection, rows), by="prefix")


@pytest.mark.parametrize("what", BROKEN)
def test_rows_that_break_a_rule(connection: Any, what: str) -> None:
    change, rule = BROKEN[what]
    with raises_code("bad-sessions", DataError, count=2, total=4) as error:
        duckdb_counts.count_cells(relation(connection, broken_rows(change)))
    assert rule in error.value.facts["first"]


@pytest.mark.parametrize("what", BROKEN_RESULTS)
def test_results_that_break_a_rule(connection: Any, what: str) -> None:
    change, rule = BROKEN_RESULTS[what]
    with raises_code("bad-sessions", DataError) as error:
        duckdb_counts.count_cells(relation(connection, broken_results(change)))
    assert rule in error.value.facts["first"]
    assert connection.sql("SHOW ALL TABLES").select("name").fetchall() == [("log",)]


def test_a_session_is_named(connection: Any) -> None:
    with raises_code("bad-sessions", DataError, count=1, total=3) as error:
        duckdb_counts.count_cells(relation(connection, broken_results({"rank": 0})))
    assert re.search("session s1, query q, docs .*, clicks .*", error.value.facts["first"])


def test_equal_hashes_are_seen(connection: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql, "DUCKDB", replace(sql.DUCKDB, hash="hash({}, {}) % 5"))
    rows = make_rows("text")
    pairs = {(row["query"], doc) for row in rows for doc in row["docs"]}
    with raises_code("hash-collision", DataError, count=len(pairs) - 5) as error:
        duckdb_counts.count_cells(relation(connection, rows))
    one, other = error.value.facts["pairs"]
    assert one != other
    assert {one, other} <= pairs


@pytest.mark.parametrize(
    ("columns", "code", "facts"),
    [
        ("1 AS query, [1] AS docs", "missing-column", {"missing": ["clicks"], "columns": ["query", "docs"]}),
        ("1 AS query, 2 AS doc, 1 AS rank, 0 AS click", "missing-column", {"missing": ["session"]}),
        ("1.5 AS query, [1] AS docs, [0] AS clicks", "wrong-column-type", {"column": "query"}),
        (
            "1 AS query, [1::UBIGINT] AS docs, [0] AS clicks",
            "wrong-column-type",
            {"column": "docs", "type": "UBIGINT"},
        ),
        ("1 AS query, '[1]' AS docs, [0] AS clicks", "wrong-column-type", {"column": "docs", "type": "VARCHAR"}),
        ("1 AS query, [1] AS docs, ['0'] AS clicks", "wrong-column-type", {"column": "clicks"}),
        ("1 AS query, [1] AS docs, [0] AS clicks, 'x' AS count", "wrong-column-type", {"column": "count"}),
    ],
)
def test_columns_that_do_not_fit(connection: Any, columns: str, code: str, facts: dict[str, Any]) -> None:
    with raises_code(code, DataError, **facts):
        duckdb_counts.count_cells(connection.sql(f"SELECT {columns}"))


def test_an_empty_log(connection: Any) -> None:
    with raises_code("empty-log", DataError):
        duckdb_counts.count_cells(connection.sql("SELECT 1 AS query, [1] AS docs, [0] AS clicks LIMIT 0"))


def test_learners_that_need_sessions(connection: Any) -> None:
    learner = learner_for("MixtureEM(('PBM', 'DBN'))")
    assert isinstance(data_for(learner, relation(connection, make_rows("text"))), Sessions)
    with raises_code("not-a-log", DataError, type="int"):
        data_for(learner_for("PBM"), 3)


@each_layout
def test_a_model_knows_its_sessions_where_lists_begin_with_holes(connection: Any, layout: str, tmp_path: Path) -> None:
    rows = with_holes(make_rows("text"))
    table, total = relation(connection, in_layout(rows, layout)), in_memory(rows, tmp_path).total
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("PBM", "DBN", "dCTR"):
            evidence = fit(name, table).evidence
            assert evidence is not None
            assert evidence.sessions == total, name
