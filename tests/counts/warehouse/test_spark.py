"""Counts and cascades on a real Spark, with two executors in processes of their own, against those in memory."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from clickshift.core.spec import label
from clickshift.counts.cascade import Cascade
from clickshift.counts.cells import By, Cells
from clickshift.counts.open_log import open_log
from clickshift.counts.tail_e_step import TailTransitions, TransitionDerivatives
from clickshift.counts.warehouse import _spark as spark
from clickshift.counts.warehouse import _sql as sql
from clickshift.counts.warehouse import is_warehouse_table
from clickshift.errors import DataError
from clickshift.learners.base import learner_for
from clickshift.learners.fit import fit
from clickshift.learners.likelihood import MaximumLikelihood
from clickshift.models.base import ClickModel
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
    in_layout,
    in_long,
    in_memory,
    make_rows,
    spelled_out,
    with_holes,
    with_views,
)

pytest.importorskip("pyspark", reason="Spark is tested where it is installed: pip install 'clickshift[spark]'")
pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(
        not (shutil.which("java") or os.environ.get("JAVA_HOME")),
        reason="Spark needs Java 17 or newer, which is not here",
    ),
]


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    from pyspark.sql import SparkSession

    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.adaptive.coalescePartitions.enabled": "false",  # a small log would have one partition
        # a Java that lives for a minute should not spend it on compiling
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
        builder = SparkSession.builder.master("local-cluster[2,1,1024]").appName("clickshift's tests")
        for name, value in settings.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        yield session
        session.stop()


@pytest.fixture(scope="module")
def counts(session: Any) -> Cascade:
    """Of the log with ids of text."""
    return spark.count_cascade(frame(session, make_rows("text")))


def frame(session: Any, rows: Rows) -> Any:
    return session.createDataFrame(pa.Table.from_pylist(rows))


@pytest.mark.parametrize(
    ("ids", "layout", "by"),
    [
        ("text", "wide", "rank"),
        ("text", "wide", "last_click"),
        ("integers", "wide", "prefix"),
        ("integers", "long", "rank"),
        ("text", "long", "last_click"),
        ("text", "long", "prefix"),
    ],
)
def test_counts(session: Any, ids: str, layout: str, by: By, tmp_path: Path) -> None:
    rows = make_rows(ids)
    found = spark.count_cells(frame(session, in_layout(rows, layout)), by=by)
    assert spelled_out(found) == by_hand(rows, by)
    assert_same_cells(found, Cells.of(in_memory(rows, tmp_path), by))


@pytest.mark.parametrize("layout", ["wide", "long"])
def test_holes_are_counted_as_in_memory(session: Any, layout: str, tmp_path: Path) -> None:
    rows = with_holes(make_rows("text"))
    given, log = frame(session, in_layout(rows, layout)), in_memory(rows, tmp_path)
    cells, cascade = spark.count_cells(given, by="last_click"), spark.count_cascade(given)
    assert_same_cells(cells, Cells.of(log, "last_click"))
    assert_same(cascade, Cascade.of(log))
    assert (cells.sessions, cascade.sessions) == (log.total, log.total), "some lists begin with a hole"


@pytest.mark.parametrize(("layout", "by"), [("wide", "last_click"), ("long", "rank")])
def test_views_are_counted_as_in_memory(session: Any, layout: str, by: By, tmp_path: Path) -> None:
    rows = with_views(with_holes(make_rows("text")))
    found = spark.count_cells(frame(session, in_layout(rows, layout)), by=by)
    assert_same_views(found, Cells.of(in_memory(rows, tmp_path), by, views=True))


def test_cascade(counts: Cascade, tmp_path: Path) -> None:
    assert_same(counts, Cascade.of(in_memory(make_rows("text"), tmp_path)))


def test_cascade_of_a_long_log(session: Any, tmp_path: Path) -> None:
    rows = make_rows("integers")
    assert_same(spark.count_cascade(frame(session, in_long(rows))), Cascade.of(in_memory(rows, tmp_path)))


@pytest.mark.parametrize("layout", ["wide", "long"])
def test_functions_that_need_sessions_fetch_the_table(session: Any, layout: str, tmp_path: Path) -> None:
    rows = make_rows("text")
    found, expected = open_log(frame(session, in_layout(rows, layout))), in_memory(rows, tmp_path)
    assert sorted(map(str, found.to_arrow().to_pylist())) == sorted(map(str, expected.to_arrow().to_pylist()))


def test_a_table_that_cannot_be_computed_is_one_error(session: Any) -> None:
    log = frame(session, in_long(make_rows("text")))
    with raises_code("unreadable-table", DataError):
        open_log(log.selectExpr("session", "query", "rank", "doc", "assert_true(false) is null as click"))


def assert_same(found: Cascade, expected: Cascade) -> None:
    assert found.vocabulary.same_as(expected.vocabulary)
    for name in ("impressions", "examined", "clicks", "followed", "open_last", "first_examined", "first_clicks"):
        assert np.array_equal(getattr(found, name), getattr(expected, name)), name
    for name in ("followed_at_rank", "open_last_at_rank", "passed"):
        assert np.array_equal(getattr(found, name), getattr(expected, name)), name
    assert_same_tails(found, expected)


def assert_same_tails(found: Cascade, expected: Cascade) -> None:
    """Whatever the parameters: all tails, and as if all documents were one."""
    rng, size = np.random.default_rng(1), found.vocabulary.n_pairs + 1
    for here, there, pairs in ((found.tails, expected.tails, size), (found.tails.pooled(), expected.tails.pooled(), 2)):
        walk = TailTransitions(
            rng.uniform(0.1, 0.9, pairs), 0.7, rng.uniform(0.1, 0.9, pairs), rng.uniform(0.1, 0.9, 6)
        )
        turns = TransitionDerivatives(np.array([1.0, 0.0]), rng.random((2, pairs)), rng.random((2, 6)))
        one, other = here.expect(walk, turns), there.expect(walk, turns)
        for name in set(vars(other)) - {"curvature"}:
            assert np.allclose(getattr(one, name), getattr(other, name), rtol=1e-12, atol=1e-12), name
        for left, right in zip(one.curvature, other.curvature, strict=True):
            assert np.allclose(left, right, rtol=1e-12, atol=1e-12)


def parameters_of(model: ClickModel) -> dict[str, np.ndarray]:
    assert model.evidence is not None
    tables = {name: value for name, value in vars(model).items() if isinstance(value, float | np.ndarray)}
    return tables | {f"error of {name}": value for name, value in model.evidence.logit_error.items()}


@pytest.mark.parametrize("model", ["dCTR", "PBM", "UBM", "CM", "EM('DBN', iterations=4)"])
def test_a_data_frame_is_fitted_as_in_memory(session: Any, model: str, tmp_path: Path) -> None:
    rows, learner = make_rows("text"), learner_for(model)
    table = frame(session, rows)
    assert is_warehouse_table(table)
    assert_same_parameters(fit(learner, table), learner.fit(in_memory(rows, tmp_path)))


@pytest.mark.parametrize(
    "learner",
    [
        MaximumLikelihood("SDBN", iterations=4),
        MaximumLikelihood("DCM", iterations=4),
        MaximumLikelihood("CCM", iterations=4),
        MaximumLikelihood("DBN", continuation=0.9, iterations=4),
        MaximumLikelihood("SDBN", method="shortcut"),
    ],
    ids=label,
)
def test_cascades_are_fitted_as_in_memory(counts: Cascade, learner: MaximumLikelihood, tmp_path: Path) -> None:
    assert_same_parameters(learner.fit(counts), learner.fit(in_memory(make_rows("text"), tmp_path)))


def assert_same_parameters(found: ClickModel, expected: ClickModel) -> None:
    one, other = parameters_of(found), parameters_of(expected)
    assert one.keys() == other.keys()
    for name in other:
        assert np.allclose(one[name], other[name], rtol=1e-9, atol=1e-9), name


def test_two_processes_take_part_and_what_they_kept_is_released(session: Any) -> None:
    tails = spark.count_cascade(frame(session, make_rows("text"))).tails
    kept = tails.pieces.table
    assert kept.rdd.getNumPartitions() > 1
    executors = session.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1  # the driver is among them
    assert executors == 2
    assert kept.is_cached
    del tails
    assert not kept.is_cached


@pytest.mark.parametrize("what", BROKEN)
def test_rows_that_break_a_rule(session: Any, what: str) -> None:
    change, rule = BROKEN[what]
    with raises_code("bad-sessions", DataError, count=2, total=4) as error:
        spark.count_cells(frame(session, broken_rows(change)))
    assert rule in error.value.facts["first"]


@pytest.mark.parametrize("what", BROKEN_RESULTS)
def test_results_that_break_a_rule(session: Any, what: str) -> None:
    change, rule = BROKEN_RESULTS[what]
    with raises_code("bad-sessions", DataError) as error:
        spark.count_cells(frame(session, broken_results(change)))
    assert rule in error.value.facts["first"]


def test_an_empty_log(session: Any) -> None:
    empty = session.createDataFrame([], "query string, docs array<string>, clicks array<int>")
    with raises_code("empty-log", DataError):
        spark.count_cells(empty)


def test_other_types(session: Any) -> None:
    log = session.sql("SELECT 1S AS query, array('x', 'y') AS docs, array(true, false) AS clicks, 2.0F AS count")
    found = spark.count_cells(log, by="last_click")
    assert found.vocabulary.query_ids.tolist() == [1]
    assert (found.situation.tolist(), found.impressions.tolist(), found.clicks.tolist()) == ([0, 2], [2, 2], [2, 0])
    with raises_code("wrong-column-type", DataError, column="query", type="double"):
        spark.count_cells(session.sql("SELECT 1.5D AS query, array('x') AS docs, array(0) AS clicks"))


MASK = (1 << 64) - 1
P1, P2, P3, P4, P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)


def rotated(x: int, bits: int) -> int:
    return (x << bits | x >> (64 - bits)) & MASK


def xxhash64(number: int, seed: int) -> int:
    """Of eight bytes, by its definition."""
    mixed = (seed + P5 + 8 & MASK) ^ rotated(number * P2 & MASK, 31) * P1 & MASK
    mixed = rotated(mixed, 27) * P1 + P4 & MASK
    mixed = (mixed ^ mixed >> 33) * P2 & MASK
    mixed = (mixed ^ mixed >> 29) * P3 & MASK
    return mixed ^ mixed >> 32


def signed(x: int) -> int:
    return x - (1 << 64) if x >> 63 else x


def test_two_pairs_with_one_hash_are_seen(session: Any) -> None:
    """Given queries 1 and 2, every document of the one has a twin of the other, whose hash is the same."""
    one, other = xxhash64(1, 42), xxhash64(2, 42)
    doc = 7
    difference = (one + P5 + 8 & MASK) ^ (other + P5 + 8 & MASK)
    product = rotated(doc * P2 & MASK, 31) * P1 & MASK ^ difference
    twin = rotated(product * pow(P1, -1, 1 << 64) & MASK, 33) * pow(P2, -1, 1 << 64) & MASK
    assert xxhash64(doc, one) == xxhash64(twin, other)
    rows: Rows = [
        {"query": 1, "docs": [doc, 5], "clicks": [0, 1]},
        {"query": 2, "docs": [signed(twin), 5], "clicks": [1, 0]},
    ]
    with raises_code("hash-collision", DataError, count=1) as error:
        spark.count_cells(frame(session, rows))
    assert set(error.value.facts["pairs"]) == {(1, doc), (2, signed(twin))}
    with raises_code("hash-collision", DataError):
        spark.count_cascade(frame(session, rows))


def test_a_hash_of_32_bits_would_not_do(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql, "SPARK", replace(sql.SPARK, hash="hash({}, {})"))
    with raises_code("hash-collision", DataError):
        spark.count_cells(
            session.range(200_000).selectExpr("id AS query", "array(id * 17) AS docs", "array(0) AS clicks")
        )
