"""Data frames are read like files: the same sessions, the same rules, the same errors."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import clickshift as cs
from clickshift.counts.open_log import open_log
from clickshift.data.encoded_log import EncodedLog
from clickshift.data.sessions import Sessions
from clickshift.errors import DataError, FileError, SpecError
from clickshift.io.read_log import read_log, write_log
from clickshift.learners import learner_for
from tests.codes import raises_code, warns_code
from tests.io.tables.cases import EXPECTED, LONG, WIDE, assert_same, save


class Capsule:
    """A table that has nothing but the Arrow PyCapsule interface."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def relation(table: pa.Table) -> Any:
    """The table as a DuckDB relation that keeps the order of its rows."""
    return duckdb.from_arrow(table)


FRAMES: dict[str, Callable[[pa.Table], Any]] = {
    "arrow": lambda table: table,
    "arrow chunks": lambda table: pa.concat_tables([table[:1], table[1:]]),
    "record batch": lambda table: table.combine_chunks().to_batches()[0],
    "record batch reader": lambda table: table.to_reader(),
    "pandas": lambda table: table.to_pandas(),
    "pandas with Arrow types": lambda table: table.to_pandas(types_mapper=pd.ArrowDtype),
    "pandas with an index": lambda table: table.to_pandas().set_index(np.arange(len(table)) + 7),
    "polars": pl.DataFrame,
    "polars lazy": lambda table: pl.DataFrame(table).lazy(),
    "duckdb": relation,
    "capsule": Capsule,
}


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("layout", ["wide", "long"])
def test_every_frame_is_the_same_log(kind: str, layout: str) -> None:
    table = pa.table(WIDE if layout == "wide" else LONG)
    assert_same(read_log(FRAMES[kind](table)), EXPECTED)
    assert_same(open_log(FRAMES[kind](table)), EXPECTED)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def simulated() -> Sessions:
    corpus = cs.builtin_corpus(queries=20)
    return cs.simulate(corpus, cs.PlackettLuce(cs.Oracle()), cs.users.DBN(), 3000, rng=1)


@pytest.mark.parametrize("layout", ["wide", "long"])
def test_a_fit_is_the_same_from_everything(simulated: Sessions, layout: Any, tmp_path: Path) -> None:
    table = simulated.to_arrow(layout)
    for ending in (".parquet", ".csv", ".jsonl"):
        write_log(simulated, tmp_path / f"log{ending}", layout=layout)
    encoded = open_log(tmp_path / "log.parquet", in_memory=False)
    assert isinstance(encoded, EncodedLog)
    sources = {
        "parquet": tmp_path / "log.parquet",
        "csv": tmp_path / "log.csv",
        "jsonl": tmp_path / "log.jsonl",
        "encoded": encoded,
        "folder": encoded.folder,
        "sessions": simulated,
        **{kind: FRAMES[kind](table) for kind in ("arrow", "pandas", "polars", "duckdb")},
    }
    for model, parameter in (("DBN", "attractiveness"), ("PBM", "examination")):
        fitted = {name: cs.fit(model, source) for name, source in sources.items()}
        expected = fitted["parquet"]
        for name, one in fitted.items():
            assert one.vocabulary.same_as(expected.vocabulary), name
            np.testing.assert_allclose(
                getattr(one, parameter), getattr(expected, parameter), rtol=1e-6, atol=1e-9, err_msg=name
            )


@pytest.mark.parametrize("layout", ["wide", "long"])
def test_sessions_and_back(layout: Any) -> None:
    about = {"time": np.array(["2024-01-01", "2024-01-02", "2024-01-02"], "M8[D]"), "count": np.array([1, 2, 1])}
    log = Sessions(EXPECTED.rankings, EXPECTED.click, user=np.array([7, 8, 7]), **about)
    for frame in (log.to_arrow(layout), log.to_pandas(layout), pl.DataFrame(log.to_arrow(layout))):
        found = read_log(frame)
        assert_same(found, log)
        assert found.user.tolist() == [7, 8, 7]
        assert found.time.astype("M8[D]").tolist() == about["time"].tolist()


NAMES = [
    {"session": "session_id", "rank": "position", "doc": "product_id", "click": "clicked"},
    {"session": "SearchID".lower().replace("id", "_id"), "query": "Query_ID", "rank": "Pos", "doc": "ASIN"},
    {"session": "sid", "query": "keyword", "doc": "url", "click": "is_click"},
]


@pytest.mark.parametrize("names", NAMES)
def test_common_names_are_recognised(names: dict[str, str], tmp_path: Path) -> None:
    renamed = {names.get(name, name): values for name, values in LONG.items()}
    assert_same(read_log(pd.DataFrame(renamed)), EXPECTED)
    assert_same(read_log(save(tmp_path / "log.csv", renamed)), EXPECTED)
    encoded = open_log(save(tmp_path / "log.parquet", renamed), in_memory=False)
    assert isinstance(encoded, EncodedLog)
    assert encoded.facts["columns"] == {name: names.get(name, name) for name in LONG}


def test_our_names_come_first() -> None:
    log = read_log(pd.DataFrame(LONG | {"position": [9] * 5, "Doc_Id": ["?"] * 5}))
    assert_same(log, EXPECTED)
    frame = pd.DataFrame(LONG).rename(columns={"doc": "product_id"}).assign(item_id=[3, 4, 3, 4, 3])
    with raises_code("ambiguous-column", FileError, column="doc", known=["product_id", "item_id"]):
        read_log(frame)
    assert_same(read_log(frame, columns={"doc": "product_id"}), EXPECTED)
    wide = pa.table(WIDE | {"day": [1, 2, 3], "timestamp": ["x", "y", "z"]})
    assert read_log(wide).time.tolist() == [1, 2, 3]
    broken = pa.table(WIDE | {"timestamp": ["x", "y", "z"]})
    with raises_code("missing-value", FileError, column="time", row=1) as caught:
        read_log(broken)
    assert "column timestamp" in str(caught.value)
    assert read_log(broken, columns={"time": ""}).time is None


MOMENT = datetime(2024, 3, 1, 12, 30, tzinfo=UTC)
TIMES: dict[str, list[Any]] = {
    "seconds": [int(MOMENT.timestamp())] * 3,
    "fractional seconds": [MOMENT.timestamp()] * 3,
    "milliseconds": [int(MOMENT.timestamp()) * 10**3] * 3,
    "microseconds": [int(MOMENT.timestamp()) * 10**6] * 3,
    "nanoseconds": [int(MOMENT.timestamp()) * 10**9] * 3,
    "datetimes": [MOMENT.replace(tzinfo=None)] * 3,
    "datetimes with zones": [MOMENT] * 3,
    "texts": ["2024-03-01T12:30:00Z", "2024-03-01 12:30:00", "2024-03-01T14:30:00+02:00"],
    "texts of numbers": [str(int(MOMENT.timestamp()))] * 3,
}


@pytest.mark.parametrize("kind", TIMES)
def test_times_are_times(kind: str, tmp_path: Path) -> None:
    log = pd.DataFrame(WIDE | {"time": TIMES[kind]})
    wanted = np.array([MOMENT.replace(tzinfo=None)] * 3, "M8[s]")
    assert (read_log(log).time.astype("M8[s]") == wanted).all()
    encoded = open_log(save(tmp_path / "log.parquet", WIDE | {"time": TIMES[kind]}), in_memory=False)
    assert isinstance(encoded, EncodedLog)
    assert (encoded.sessions().time.astype("M8[s]") == wanted).all()


def test_mixed_zones_and_dates() -> None:
    zones = [MOMENT, MOMENT.astimezone(timezone(timedelta(hours=5))), MOMENT.astimezone(timezone(timedelta(hours=-3)))]
    assert (read_log(pd.DataFrame(WIDE | {"time": zones})).time == np.datetime64("2024-03-01T12:30")).all()
    days = [date(2024, 3, 1), date(2024, 3, 2), date(2024, 3, 3)]
    assert read_log(pd.DataFrame(WIDE | {"time": days})).time.tolist() == days


@pytest.mark.parametrize("values", [[1, 2, 3], [0.5, 1.0, 2.0], [19_700, 19_701, 19_702], [5, 6, 1_700_000_000]])
def test_other_numbers_are_day_numbers(values: list[float]) -> None:
    assert read_log(pd.DataFrame(WIDE | {"time": values})).time.tolist() == values


def frame_of(**changes: Any) -> pd.DataFrame:
    return pd.DataFrame(LONG | changes)


BAD: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "a missing column": (frame_of().drop(columns="click"), "missing-column", {"columns": ["click"]}),
    "no row": (frame_of()[:0], "empty-log", {}),
    "a column twice": (
        pd.concat([frame_of(), frame_of()[["doc"]]], axis=1),
        "duplicate-column",
        {"column": "doc"},
    ),
    "float ids": (frame_of(doc=[1.0, 2.0, 2.0, 3.0, np.nan]), "float-ids", {"column": "doc"}),
    "float ids as text": (frame_of(doc=["1.0", "2.0", "2.0", "3.0", "1.0"]), "float-ids", {"column": "doc"}),
    "mixed ids": (frame_of(doc=[1, "2", 2, 3, 1]), "mixed-ids", {"column": "doc", "types": "int and str"}),
    "lists of mixed ids": (
        pd.DataFrame(WIDE | {"docs": [[1, "a"], [2, 3], [1]]}),
        "mixed-ids",
        {"column": "docs", "types": "int and str"},
    ),
    "a type that is no id": (frame_of(query=[True, True, True, True, False]), "bad-column", {"column": "query"}),
    "no lists": (pd.DataFrame(WIDE | {"docs": [1, 2, 3]}), "bad-column", {"column": "docs"}),
    "a bad click": (frame_of(click=[1, 0, 0, 2, 1]), "not-zero-or-one", {"column": "click", "session": "y"}),
    "a bad rank": (frame_of(rank=[0, 1, 0, 1, 0]), "bad-ranks", {"count": 3}),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_frame_has_one_clear_error(what: str) -> None:
    frame, code, facts = BAD[what]
    with raises_code(code, FileError, path=Path("the data frame"), **facts):
        read_log(frame)
    with raises_code(code, FileError):
        cs.fit("dCTR", frame)


def test_the_place_is_the_row_of_the_frame() -> None:
    frame = pl.DataFrame(WIDE | {"clicks": [[1, 0], [0], [1]]})
    with raises_code("unequal-lengths", FileError, row=2) as caught:
        read_log(frame)
    assert str(caught.value).startswith("the data frame, row 2: ")
    with warns_code("skipped-sessions", count=1, total=3):
        assert len(open_log(frame, on_bad_line="skip")) == 2


@pytest.mark.parametrize("thing", [3, None, {"query": [1]}, [1, 2], np.zeros(3), pd.Series([1]), pl.Series([1])])
def test_what_is_no_table(thing: Any) -> None:
    with raises_code("not-a-log", DataError, type=type(thing).__name__):
        open_log(thing)


@pytest.mark.parametrize(
    ("address", "library"), [("s3://bucket/log.parquet", "s3fs"), ("https://host/l.csv", "fsspec")]
)
def test_an_address_is_not_a_file(address: str, library: str) -> None:
    with raises_code("not-local", FileError, scheme=address.split(":", maxsplit=1)[0]) as caught:
        open_log(address)
    assert library in str(caught.value)


def test_a_relation_is_counted_where_it_is(simulated: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    table = relation(simulated.to_arrow()).select("query AS q, docs AS results, clicks")
    monkeypatch.setattr("clickshift.io.frames.read_frame", lambda *arguments: pytest.fail("the log was copied"))
    model = cs.fit("PBM", table)
    np.testing.assert_allclose(model.examination, cs.fit("PBM", simulated).examination, rtol=1e-6)


def test_counts_have_no_sessions(simulated: Sessions, tmp_path: Path) -> None:
    counts = cs.DayCounts.of(simulated)
    counts.save(tmp_path / "day")
    with raises_code("needs-sessions", SpecError):
        open_log(tmp_path / "day")
    one, two = cs.fit("DBN", tmp_path / "day"), cs.fit("DBN", [counts])
    assert np.array_equal(one.attractiveness, two.attractiveness)
    with raises_code("not-daily-counts", SpecError):
        cs.fit("DBN", [tmp_path / "day", "log.parquet"])
    with raises_code("bad-option", SpecError):
        cs.fit("DBN", simulated, seeds=2)


def test_bad_sessions_of_a_large_long_log_are_skipped(tmp_path: Path) -> None:
    path = save(tmp_path / "log.parquet", LONG | {"rank": [1, 2, 1, 1, 1]})
    with raises_code("bad-ranks", FileError, session="y", count=1):
        open_log(path, in_memory=False)
    with warns_code("skipped-sessions", count=1, total=3, files=0):
        encoded = open_log(path, in_memory=False, on_bad_line="skip")
    assert isinstance(encoded, EncodedLog)
    assert encoded.total == 2


def test_what_learners_require() -> None:
    requires = {name: getattr(learner_for(name), "requires", "sessions") for name in ("dCTR", "UBM", "DBN", "NCM")}
    assert requires == {"dCTR": "cells", "UBM": "cells", "DBN": "cascade", "NCM": "sessions"}
