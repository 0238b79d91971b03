"""Counts of Ibis tables, compiled for DuckDB, against counts by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from clickshift.counts.cells import By, Cells
from clickshift.counts.open_log import open_log
from clickshift.counts.warehouse import _ibis as ibis_counts
from clickshift.counts.warehouse import count_cascade, is_warehouse_table
from clickshift.errors import DataError, SpecError
from clickshift.learners.base import learner_for
from clickshift.learners.fit import fit
from clickshift.models.base import ClickModel
from clickshift.ope import evaluate_policy
from tests.codes import raises_code
from tests.counts.warehouse.logs import (
    BROKEN_RESULTS,
    Rows,
    assert_same_views,
    broken_results,
    by_hand,
    each_kind_of_ids,
    in_layout,
    in_long,
    in_memory,
    make_rows,
    spelled_out,
    with_holes,
    with_views,
)

pytest.importorskip(
    "ibis.backends.duckdb", reason="Ibis is tested where it is installed: pip install 'clickshift[ibis]'"
)

# Ibis's own, of a newer DuckDB
pytestmark = pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning")


def table(rows: Rows) -> Any:
    import ibis

    connection = duckdb.connect()
    connection.register("given", pa.Table.from_pylist(rows))
    connection.execute("CREATE TABLE log AS FROM given")
    return ibis.duckdb.from_connection(connection).table("log")


@each_kind_of_ids
@pytest.mark.parametrize("by", ["rank", "last_click", "prefix"])
def test_counts(ids: str, by: By) -> None:
    rows = make_rows(ids)
    assert spelled_out(ibis_counts.count_cells(table(in_long(rows)), by=by)) == by_hand(rows, by)


def test_counts_without_counts() -> None:
    rows = [{name: row[name] for name in ("query", "docs", "clicks")} for row in make_rows("text")]
    assert spelled_out(ibis_counts.count_cells(table(in_long(rows)))) == by_hand(rows, "rank")


@pytest.mark.parametrize("layout", ["wide", "long"])
def test_functions_that_need_sessions_fetch_the_table(layout: str, tmp_path: Path) -> None:
    rows = make_rows("text")
    expected, log = in_memory(rows, tmp_path), table(in_layout(rows, layout))
    found = open_log(log)
    assert sorted(map(str, found.to_arrow().to_pylist())) == sorted(map(str, expected.to_arrow().to_pylist()))
    target = expected.rankings[:1]
    one, other = (
        evaluate_policy(x, target, estimators=["IP"], clip=[10.0]).rows()[0]["value"] for x in (log, expected)
    )
    assert one == pytest.approx(other, rel=1e-12)


def test_a_table_that_cannot_be_computed_is_one_error() -> None:
    log = table(in_long(make_rows("text")))
    with raises_code("unreadable-table", DataError):
        open_log(log.mutate(click=log.doc.cast("int64")))


def test_fitted() -> None:
    log, learner = table(in_long(make_rows("text"))), learner_for("UBM")
    assert is_warehouse_table(log)
    model = fit(learner, log)
    assert np.isfinite(model.relevance()).all()
    with raises_code("needs-lists", SpecError):
        count_cascade(log)


@pytest.mark.parametrize(("name", "layout"), [("DBN", "long"), ("PBM", "wide")])
def test_a_table_that_ibis_cannot_count_is_read(name: str, layout: str) -> None:
    rows = make_rows("text")
    model = fit(name, table(in_long(rows) if layout == "long" else rows))
    wanted = fit(name, pa.Table.from_pylist(rows))
    assert isinstance(model, ClickModel)
    assert isinstance(wanted, ClickModel)
    assert model.vocabulary.fingerprint == wanted.vocabulary.fingerprint
    np.testing.assert_allclose(model.relevance(), wanted.relevance(), rtol=1e-9)


@pytest.mark.parametrize("what", BROKEN_RESULTS)
def test_results_that_break_a_rule(what: str) -> None:
    change, _ = BROKEN_RESULTS[what]
    rows = broken_results(change)
    named = "one without an id" if change.get("session", "") is None else "s1"
    with raises_code("bad-sessions", DataError) as error:
        ibis_counts.count_cells(table(rows))
    assert named in error.value.facts["first"]


def test_a_document_twice() -> None:
    rows = in_long([{"query": "q", "docs": ["x", "x"], "clicks": [0, 0]}])
    with raises_code("bad-sessions", DataError, count=1, total=1) as error:
        ibis_counts.count_cells(table(rows))
    assert "s0" in error.value.facts["first"]


def test_the_wide_layout_is_refused() -> None:
    with raises_code("missing-column", DataError):
        ibis_counts.count_cells(table(make_rows("text")))


def test_holes_are_counted_as_by_hand() -> None:
    rows = with_holes(make_rows("text"))
    assert spelled_out(ibis_counts.count_cells(table(in_long(rows)), by="last_click")) == by_hand(rows, "last_click")


@pytest.mark.parametrize("by", ["rank", "last_click", "prefix"])
def test_views_are_counted_as_in_memory(by: By, tmp_path: Path) -> None:
    rows = with_views(with_holes(make_rows("text")))
    found = ibis_counts.count_cells(table(in_long(rows)), by=by)
    assert_same_views(found, Cells.of(in_memory(rows, tmp_path), by, views=True))


def test_a_view_is_0_or_1() -> None:
    rows = [row | {"viewed": 2} for row in in_long(make_rows("text"))]
    with raises_code("bad-sessions", DataError):
        ibis_counts.count_cells(table(rows))


def test_a_model_knows_its_sessions_where_lists_begin_with_holes() -> None:
    rows = with_holes(make_rows("text"))
    assert ibis_counts.count_cells(table(in_long(rows))).sessions == sum(row["count"] for row in rows)
