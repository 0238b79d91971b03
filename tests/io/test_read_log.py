"""Logs in tables: both layouts in all formats survive a round trip, and every way to be broken has its message."""

from __future__ import annotations

import csv
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

import clickshift as cs
from clickshift.data.vocabulary import UNSEEN, Vocabulary
from clickshift.errors import DataError, FileError
from clickshift.io.read_log import read_log, write_log
from clickshift.io.tables import _writer as writer
from clickshift.io.tables import formats
from tests.codes import raises_code
from tests.io.tables.cases import (
    ENDINGS,
    EXPECTED,
    LONG,
    WIDE,
    assert_same,
    every_format,
    logs,
    raw,
    save,
    sessions_of,
)


@pytest.mark.parametrize("layout", ["wide", "long"])
@pytest.mark.parametrize("ending", [".parquet", ".csv", ".jsonl"])
@settings(max_examples=30)
@given(parts=logs())
def test_round_trip(parts: dict[str, Any], ending: str, layout: Any) -> None:
    log = sessions_of(**parts)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"log{ending}"
        write_log(log, path, layout=layout)
        assert_same(read_log(path), log)
        assert [file.name for file in Path(folder).iterdir()] == [path.name]


@every_format
@pytest.mark.parametrize("columns", [WIDE, LONG], ids=["wide", "long"])
def test_reads_what_others_write(tmp_path: Path, ending: str, columns: dict[str, list[Any]]) -> None:
    extra = {"region": ["north"] * len(columns["query"])}
    assert_same(read_log(save(tmp_path / f"log{ending}", columns | extra)), EXPECTED)


@every_format
def test_long_rows_come_in_any_order(tmp_path: Path, ending: str) -> None:
    log = read_log(
        save(tmp_path / f"log{ending}", {key: [values[i] for i in (3, 4, 1, 0, 2)] for key, values in LONG.items()})
    )
    assert raw(log)["docs"] == [[2, 3], [1], [1, 2]], "sessions in order of appearance, results in order of rank"
    assert raw(log)["clicks"] == [[False, False], [True], [True, False]]
    assert raw(log)["query"] == ["a", "b", "a"]


@every_format
def test_columns_are_mapped(tmp_path: Path, ending: str) -> None:
    path = save(tmp_path / f"log{ending}", {"text": WIDE["query"], "list": WIDE["docs"], "clicks": WIDE["clicks"]})
    assert_same(read_log(path, columns={"query": "text", "docs": "list"}), EXPECTED)
    with raises_code("missing-column", FileError, columns=["query", "docs"], known=["text", "list", "clicks"]):
        read_log(path)
    with raises_code("unknown-column", FileError, column="terms", known=["text", "list", "clicks"]):
        read_log(path, columns={"query": "terms"})
    with raises_code("unknown-column", DataError, column="results"):
        read_log(path, columns={"results": "docs"})


def test_a_segment_or_signal_that_is_no_column_is_an_error_with_those_that_may_be(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("query,rank,doc,click,session,device\nq,1,a,1,1,phone\n")
    asked = (
        lambda: read_log(path, segments=["country"]),
        lambda: read_log(path, signals=["country"]),
        lambda: cs.fit("PBM", path, by="country"),
        lambda: cs.propensities(path, by="country"),
    )
    for ask in asked:
        with raises_code("unknown-column", FileError, column="country") as caught:
            ask()
        assert "the table has device." in str(caught.value)


@every_format
def test_what_may_be_there_is_read(tmp_path: Path, ending: str) -> None:
    about = {"day": [3, 1, 2], "user": ["u", "v", "u"], "propensity": [1, 0.5, 0.25], "count": [1, 2, 3]}
    log = read_log(save(tmp_path / f"log{ending}", WIDE | about))
    assert log.time.tolist() == [3, 1, 2]
    assert log.time.dtype.kind == "i"
    assert log.user.tolist() == ["u", "v", "u"]
    assert log.count.tolist() == [1, 2, 3]
    np.testing.assert_allclose(np.exp(log.rankings.log_prob), [1, 0.5, 0.25])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (["2024-01-02", "2024-01-03", "2023-12-31"], "D"),
        (["2024-01-02 10:00:00", "2024-01-03T00:00:00", "2023-12-31"], "s"),
        (["2024-01-02 10:00:00.125", "2024-01-03 00:00:00.5", "2023-12-31"], "ms"),
    ],
)
@pytest.mark.parametrize("ending", [".csv", ".jsonl"])
def test_times_in_text(tmp_path: Path, ending: str, text: list[str], expected: str) -> None:
    log = read_log(save(tmp_path / f"log{ending}", WIDE | {"time": text}))
    assert log.time.dtype == np.dtype(f"datetime64[{expected}]")
    assert log.time.tolist() == np.array(text, f"datetime64[{expected}]").tolist()


def test_times_of_a_zone_become_utc(tmp_path: Path) -> None:
    zoned = pa.array([0, 1, 2], pa.timestamp("s", "Europe/Berlin"))
    pq.write_table(pa.table({**WIDE, "time": zoned}), tmp_path / "log.parquet")
    assert read_log(tmp_path / "log.parquet").time.astype("datetime64[s]").astype(int).tolist() == [0, 1, 2]
    log = read_log(save(tmp_path / "log.csv", WIDE | {"time": ["1970-01-01T01:00:00+01:00"] * 3}))
    assert log.time.astype(int).tolist() == [0, 0, 0]


def test_csv_lists_between_blanks(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("query,docs,clicks\na,1 2,1 0\na,2  3,0 0\nb,1,1\n")
    assert_same(read_log(path), EXPECTED)
    path.write_text("query,docs,clicks\na,x 1,True False\n")
    assert raw(read_log(path))["docs"] == [["x", "1"]]
    assert raw(read_log(path))["clicks"] == [[True, False]]


def test_csv_keeps_what_looks_like_a_number(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text('query,docs,clicks\n007,"[1]",1\n7,"[1]",1\n')
    assert raw(read_log(path))["query"] == ["007", "7"], "leading zeros are part of an id"
    path.write_text('query,docs,clicks\n8,"[1]",1\n7,"[1]",1\n')
    assert raw(read_log(path))["query"] == [8, 7]
    path.write_text('query,docs,clicks\n"8","[1]",1\n"7","[1]",1\n')
    assert raw(read_log(path))["query"] == ["8", "7"], "what is quoted is text"


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.int32()),
        pa.large_list(pa.uint64()),
        pa.list_(pa.string()),
        pa.list_(pa.large_string()),
        pa.list_(pa.binary()),
        pa.list_(pa.dictionary(pa.int8(), pa.string())),
        pa.list_(pa.decimal128(20, 0)),
    ],
    ids=str,
)
def test_types_of_other_writers(tmp_path: Path, kind: pa.DataType) -> None:
    docs = pa.array([[1, 2], [2, 3], [1]])
    text = pa.types.is_string(kind.value_type) or not pa.types.is_primitive(kind.value_type)
    text = text and not pa.types.is_decimal(kind.value_type)
    docs = docs.cast(pa.list_(pa.string())).cast(kind) if text and not pa.types.is_dictionary(kind.value_type) else docs
    if pa.types.is_dictionary(kind.value_type):
        docs = pa.ListArray.from_arrays(
            docs.offsets, docs.values.cast(pa.string()).dictionary_encode().cast(kind.value_type)
        )
    docs = docs if text else docs.cast(kind)
    clicks = pa.array([[True, False], [False, False], [True]])
    pq.write_table(pa.table({"query": WIDE["query"], "docs": docs, "clicks": clicks}), tmp_path / "log.parquet")
    one, two, three = ("1", "2", "3") if text else (1, 2, 3)
    found = raw(read_log(tmp_path / "log.parquet"))
    assert found["docs"] == [[one, two], [two, three], [one]]
    assert found["clicks"] == raw(EXPECTED)["clicks"]


def test_hashes_beyond_63_bits_are_text(tmp_path: Path) -> None:
    pq.write_table(pa.table(WIDE | {"query": pa.array([2**64 - 1, 5, 5], pa.uint64())}), tmp_path / "log.parquet")
    assert raw(read_log(tmp_path / "log.parquet"))["query"] == [str(2**64 - 1), "5", "5"]


@pytest.mark.parametrize("layout", ["wide", "long"])
def test_several_row_groups(tmp_path: Path, layout: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    log = sessions_of(["a", "b", "c"], [["x", "y"], ["y", "z"], ["w"]], [[1, 0], [0, 1], [0]], time=np.array([3, 1, 2]))
    monkeypatch.setattr(writer, "_ROW_GROUP", 2)
    monkeypatch.setattr(writer, "_TEXT_BLOCK", 2)
    for ending in ENDINGS:
        write_log(log, tmp_path / f"log{ending}", layout=layout)
        assert_same(read_log(tmp_path / f"log{ending}"), log)
    assert pq.ParquetFile(tmp_path / "log.parquet").num_row_groups == 3
    assert pq.read_table(tmp_path / "log.parquet").num_rows in {3, 5}, "other readers can open it"


@every_format
def test_many_files_are_one_log(tmp_path: Path, ending: str) -> None:
    one = {key: values[:1] for key, values in WIDE.items()}
    rest = {key: values[1:] for key, values in WIDE.items()}
    second = save(tmp_path / f"2{ending}", rest)
    first = save(tmp_path / f"1{ending}", one)
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / f".hidden{ending}").touch()
    (tmp_path / "notes.txt").touch()
    for path in (tmp_path, str(tmp_path / "*[0-9]") + ending, [second, first], [str(first), str(second)]):
        assert_same(read_log(path), EXPECTED)
    save(second, rest | {"query": [7, 8]})
    assert raw(read_log(tmp_path))["query"] == ["a", "7", "8"], "integers here, text there: all of them are text"
    save(second, rest | {"count": [1, 2]})
    with raises_code("inconsistent-columns", FileError, path=second, columns=["count"]):
        read_log(tmp_path)
    save(second, rest | {"clicks": [[0, 0], [2]]})
    with raises_code("not-zero-or-one", FileError, path=second, column="clicks", value="[2]", row=2, count=1):
        read_log(tmp_path)


def test_sessions_may_span_files_but_not_collide(tmp_path: Path) -> None:
    first = save(tmp_path / "1.csv", {key: values[:1] for key, values in LONG.items()})
    save(tmp_path / "2.csv", {key: values[1:] for key, values in LONG.items()})
    assert_same(read_log(tmp_path), EXPECTED)
    save(first, {key: values[:2] for key, values in LONG.items()})
    with raises_code("bad-ranks", FileError, value="1, 2, 2", session="x", count=1):
        read_log(tmp_path)


def test_empty_parts_are_no_matter(tmp_path: Path) -> None:
    save(tmp_path / "2.parquet", WIDE)
    pq.write_table(pa.table(WIDE).slice(0, 0), tmp_path / "1.parquet")
    assert_same(read_log(tmp_path), EXPECTED)


def test_in_another_vocabulary(tmp_path: Path) -> None:
    path = save(tmp_path / "log.csv", WIDE)
    words, _, _ = Vocabulary.of(["b", "a"], [1, 3])
    log = read_log(path, vocabulary=words)
    assert log.vocabulary is words
    assert log.rankings.query.tolist() == [0, 0, 1]
    assert log.rankings.pair.tolist() == [[UNSEEN, UNSEEN], [UNSEEN, 0], [1, UNSEEN]]
    assert log.rankings.length.tolist() == [2, 2, 1]


@settings(max_examples=30)
@given(parts=logs())
def test_json_line_by_line_is_the_same(parts: dict[str, Any]) -> None:
    log = sessions_of(**parts)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(formats, "_read_uniform", lambda data, choose: None)
        write_log(log, Path(folder) / "log.jsonl")
        assert_same(read_log(Path(folder) / "log.jsonl"), log)


def test_nul_characters_where_they_can_be(tmp_path: Path) -> None:
    log = sessions_of(["a\0"], [["\0", "b\0c"]], [[0, 1]])
    for ending in (".parquet", ".jsonl"):
        write_log(log, tmp_path / f"log{ending}")
        assert_same(read_log(tmp_path / f"log{ending}"), log)


def test_the_same_log_is_the_same_file(tmp_path: Path) -> None:
    for ending in ENDINGS:
        for name in ("a", "b"):
            write_log(EXPECTED, tmp_path / f"{name}{ending}")
        assert (tmp_path / f"a{ending}").read_bytes() == (tmp_path / f"b{ending}").read_bytes()


def test_text_looks_as_documented(tmp_path: Path) -> None:
    log = sessions_of(['say "hi"', "b"], [[1, 2], [1]], [[1, 0], [1]], count=np.array([2, 1]))
    write_log(log, tmp_path / "log.jsonl")
    assert json.loads((tmp_path / "log.jsonl").read_text().splitlines()[0]) == {
        "query": 'say "hi"',
        "count": 2,
        "docs": [1, 2],
        "clicks": [1, 0],
    }
    write_log(log, tmp_path / "log.csv", layout="long")
    with (tmp_path / "log.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["session"] for row in rows] == ["1", "1", "2"]
    assert rows[1] == {"session": "1", "query": 'say "hi"', "count": "2", "rank": "2", "doc": "2", "click": "0"}
