"""Logs in tables: both layouts in all formats survive a round trip, and every way to be broken has its message."""

from __future__ import annotations

import contextlib
import csv
import gzip
import json
import tempfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clickshift.errors import ClickshiftWarning, DataError, FileError
from clickshift.readers import tabular_json, tabular_write
from clickshift.readers.tabular import check_output, read_log, write_log
from clickshift.sessions import Rankings, Sessions
from clickshift.vocabulary import UNSEEN, Vocabulary

ENDINGS = [".parquet", ".csv", ".csv.gz", ".tsv", ".jsonl", ".jsonl.gz", ".ndjson"]


def sessions_of(
    queries: Sequence[Any], docs: Sequence[Sequence[Any]], clicks: Sequence[Sequence[int]], **options: Any
) -> Sessions:
    """Sessions by hand, not by the reader."""
    options = {name: value for name, value in options.items() if value is not None}
    log_prob = options.pop("log_prob", None)
    flat_queries = [query for query, row in zip(queries, docs, strict=True) for _ in row]
    vocabulary, _, pair = Vocabulary.of(flat_queries, [doc for row in docs for doc in row])
    shown = np.arange(max(map(len, docs))) < np.array([len(row) for row in docs])[:, None]
    pairs, click = np.full(shown.shape, UNSEEN, np.int32), np.zeros(shown.shape, bool)
    pairs[shown] = pair
    click[shown] = [one for row in clicks for one in row]
    query = vocabulary.query_numbers(list(queries))
    return Sessions(Rankings(vocabulary, query, pairs, shown, log_prob), click, **options)


def raw(sessions: Sessions) -> dict[str, list[Any]]:
    """Everything that a log says, in raw ids."""
    rankings, words = sessions.rankings, sessions.vocabulary
    docs = words.doc_ids[words.pair_doc[rankings.pair]]
    rows = range(len(sessions))
    return {
        "query": words.query_ids[rankings.query].tolist(),
        "docs": [docs[row][rankings.shown[row]].tolist() for row in rows],
        "clicks": [sessions.click[row][rankings.shown[row]].tolist() for row in rows],
        "count": sessions.count.tolist(),
        "user": [] if sessions.user is None else sessions.user.tolist(),
    }


def assert_same(found: Sessions, expected: Sessions) -> None:
    assert raw(found) == raw(expected)
    assert found.vocabulary.fingerprint == expected.vocabulary.fingerprint
    for one, other in ((found.time, expected.time), (found.rankings.log_prob, expected.rankings.log_prob)):
        assert (one is None) == (other is None)
    if expected.time is not None:
        assert (found.time.dtype.kind == "M") == (expected.time.dtype.kind == "M")
        np.testing.assert_array_equal(found.time, expected.time)
    if expected.rankings.log_prob is not None:
        np.testing.assert_allclose(found.rankings.log_prob, expected.rankings.log_prob, rtol=1e-12, atol=1e-12)


text_ids = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6) | st.sampled_from(
    [
        "",
        "7",
        "007",
        '"',
        "'",
        "a\nb",
        "\r\n",
        "\r",
        ",",
        "\t",
        "[1]",
        " ",
        "null",
        "NA",
        "nan",
        "true",
        "🐈",
        "2020-01-01",
    ]
)
number_ids = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 30)


@st.composite
def logs(draw: st.DrawFn) -> dict[str, Any]:
    """What `sessions_of` takes: checks of its arguments' types draw random numbers, which a strategy must not."""
    query_ids, doc_ids, user_ids = (draw(st.sampled_from([text_ids, number_ids])) for _ in range(3))
    n = draw(st.integers(1, 5))
    docs = [draw(st.lists(doc_ids, min_size=1, max_size=4, unique=True)) for _ in range(n)]

    def some(values: st.SearchStrategy[Any]) -> np.ndarray | None:
        return np.array([draw(values) for _ in range(n)]) if draw(st.booleans()) else None

    instant = st.datetimes(min_value=datetime(1900, 1, 1), max_value=datetime(2200, 1, 1))
    time = draw(
        st.sampled_from(
            [
                some(st.integers(-(2**63), 2**63 - 1)),
                some(st.floats(allow_nan=False, allow_infinity=False)),
                some(instant.map(lambda when: np.datetime64(when, "us"))),
                some(instant.map(lambda when: np.datetime64(when, "D"))),
                some(instant.map(lambda when: np.datetime64(when, "s"))),
            ]
        )
    )
    return dict(
        queries=[draw(query_ids) for _ in range(n)],
        docs=docs,
        clicks=[[draw(st.integers(0, 1)) for _ in row] for row in docs],
        count=some(st.integers(1, 10**12)),
        time=time,
        user=some(user_ids),
        log_prob=some(st.floats(-2000, 0) | st.floats(-20, 0)),
    )


@pytest.mark.parametrize("layout", ["wide", "long"])
@pytest.mark.parametrize("ending", [".parquet", ".csv", ".tsv", ".jsonl"])
@given(parts=logs())
def test_round_trip(parts: dict[str, Any], ending: str, layout: Any) -> None:
    log = sessions_of(**parts)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"log{ending}"
        write_log(log, path, layout=layout)
        assert_same(read_log(path), log)
        assert [file.name for file in Path(folder).iterdir()] == [path.name]


def save(path: Path, columns: dict[str, list[Any]]) -> Path:
    """A table written without our writer: None is null in Parquet and JSON, and nothing between the commas in CSV."""
    if path.suffix == ".parquet":
        pq.write_table(pa.table(columns), path)
    elif path.suffix == ".jsonl":
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            for row in zip(*columns.values(), strict=True):
                writer.writerow([json.dumps(value) if isinstance(value, list) else value for value in row])
    return path


WIDE = {"query": ["a", "a", "b"], "docs": [[1, 2], [2, 3], [1]], "clicks": [[1, 0], [0, 0], [1]]}
LONG = {
    "session": ["x", "x", "y", "y", "z"],
    "query": ["a", "a", "a", "a", "b"],
    "rank": [1, 2, 1, 2, 1],
    "doc": [1, 2, 2, 3, 1],
    "click": [1, 0, 0, 0, 1],
}
EXPECTED = sessions_of(*WIDE.values())
every_format = pytest.mark.parametrize("ending", [".parquet", ".csv", ".jsonl"])


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
    path = save(tmp_path / f"log{ending}", {"q": WIDE["query"], "results": WIDE["docs"], "clicks": WIDE["clicks"]})
    assert_same(read_log(path, columns={"query": "q", "docs": "results"}), EXPECTED)
    with pytest.raises(
        FileError, match=r'query, docs not found; the file has q, results, clicks.*columns=.*"docs": "..."'
    ):
        read_log(path)
    with pytest.raises(FileError, match="there is no column terms, which columns gives for query"):
        read_log(path, columns={"query": "terms"})
    with pytest.raises(DataError, match="results is not one of ours"):
        read_log(path, columns={"results": "docs"})


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
        pa.list_(pa.float64()),
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
    monkeypatch.setattr(tabular_write, "_ROW_GROUP", 2)
    monkeypatch.setattr(tabular_write, "_TEXT_BLOCK", 2)
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
    with pytest.raises(FileError, match=f"2{ending}: files of one log must have the same columns: count is only here"):
        read_log(tmp_path)
    save(second, rest | {"clicks": [[0, 0], [2]]})
    with pytest.raises(FileError, match=f"2{ending}: row 2: clicks must be 0 or 1 each: got .2"):
        read_log(tmp_path)


def test_sessions_may_span_files_but_not_collide(tmp_path: Path) -> None:
    first = save(tmp_path / "1.csv", {key: values[:1] for key, values in LONG.items()})
    save(tmp_path / "2.csv", {key: values[1:] for key, values in LONG.items()})
    assert_same(read_log(tmp_path), EXPECTED)
    save(first, {key: values[:2] for key, values in LONG.items()})
    with pytest.raises(FileError, match=r"session x: ranks must be .* begin anew in every file"):
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


BAD_WIDE = [
    ({"clicks": [[1, 0], [0], [1]]}, "row 2: docs and clicks must be equally long: got 2 and 1"),
    ({"docs": [[1, 2], None, [1]]}, "row 2: docs must be a list with one item or more .*: got nothing"),
    ({"clicks": [[1, 0], None, [1]]}, "row 2: clicks must be a list .*: got nothing"),
    ({"docs": [[1, 2], [], [1]]}, r"row 2: docs must be a list .*: got \[\]"),
    ({"docs": [[1, 2], [2, None], [1]]}, "row 2: docs must not have missing items: got .2, "),
    ({"clicks": [[1, 0], [0, 2], [1]]}, "row 2: clicks must be 0 or 1 each: got .0, 2"),
    ({"clicks": [[1, 0], [0, None], [1]]}, "row 2: clicks must be 0 or 1 each: got .0, "),
    ({"clicks": [[1.0, 0.0], [0.5, 0.0], [1.0]]}, "row 2: clicks must be 0 or 1 each: got .0.5"),
    ({"docs": [[1, 2], [2, 2], [1]]}, "row 2: a document must stand once in a list: got 2 at rank 1 and at rank 2"),
    ({"query": ["a", None, "b"]}, "row 2: query must have a value of its kind: got nothing"),
    ({"user": ["a", None, "b"]}, "row 2: user must have a value of its kind: got nothing"),
    ({"time": [1, None, 2]}, "row 2: time must have a value of its kind: got nothing"),
    ({"count": [1, 0, 2]}, "row 2: count must be 1, 2, 3, ...: got 0"),
    ({"count": [1.0, 1.5, 2.0]}, "row 2: count must be 1, 2, 3, ...: got 1.5"),
    ({"propensity": [1.0, 0.0, 0.5]}, "row 2: propensity must be above 0 and at most 1: got 0.0"),
    ({"propensity": [1.0, 1.5, 0.5]}, "row 2: propensity must be above 0 and at most 1: got 1.5"),
    ({"propensity": [1.0, None, 0.5]}, "row 2: propensity must have a value of its kind: got nothing"),
    ({"log_propensity": [-1.0, 0.1, 0.0]}, "row 2: log_propensity must be a finite number of at most 0: got 0.1"),
]


@every_format
@pytest.mark.parametrize(("change", "message"), BAD_WIDE)
def test_bad_wide_rows(tmp_path: Path, ending: str, change: dict[str, list[Any]], message: str) -> None:
    path = save(tmp_path / f"log{ending}", WIDE | change)
    with pytest.raises(FileError, match=f"^{path}: {message}") as caught:
        read_log(path)
    assert 'on_bad_line="skip"' in str(caught.value)
    with pytest.warns(ClickshiftWarning, match=f"skipped 1 of 3 sessions, the first: .*{message}"):
        log = read_log(path, on_bad_line="skip")
    assert raw(log)["docs"] == [[1, 2], [1]]
    assert raw(log)["clicks"] == [[True, False], [True]]
    assert log.vocabulary.n_pairs == 3, "what was dropped leaves no trace"


BAD_LONG = [
    ({"query": ["a", "a", "a", "c", "b"]}, "session y: query must be the same in all rows of a session: got c"),
    ({"rank": [1, 2, 0, 1, 1]}, "session y: ranks must be 1, 2, 3, ... once each: got 0, 1"),
    ({"rank": [1, 2, 2, 3, 1]}, "session y: ranks must be 1, 2, 3, ... once each: got 2, 3"),
    ({"rank": [1, 2, 1, 3, 1]}, "session y: ranks must be 1, 2, 3, ... once each: got 1, 3"),
    ({"rank": [1, 2, 1, 1, 1]}, "session y: ranks must be 1, 2, 3, ... once each: got 1, 1"),
    ({"rank": [1.0, 2.0, 1.0, 1.5, 1.0]}, "session y: rank must be a whole number: got 1.5"),
    ({"doc": [1, 2, 2, 2, 1]}, "session y: a document must stand once in a list: got 2 at rank 1 and at rank 2"),
    ({"click": [1, 0, 0, 2, 1]}, "session y: click must be 0 or 1: got 2"),
    ({"click": [1, 0, 0, None, 1]}, "session y: click must be 0 or 1: got nothing"),
    ({"rank": [1, 2, 1, None, 1]}, "session y: rank must be a whole number: got nothing"),
    ({"doc": [1, 2, 2, None, 1]}, "session y: doc must have a value of its kind: got nothing"),
    ({"query": ["a", "a", "a", None, "b"]}, "session y: query must have a value of its kind: got nothing"),
    ({"session": ["x", "x", None, None, "z"]}, "session : session must have a value of its kind: got nothing"),
    ({"time": [1, 1, 2, 3, 4]}, "session y: time must be the same in all rows of a session: got 3"),
    ({"user": ["u", "u", "u", "v", "w"]}, "session y: user must be the same in all rows of a session: got v"),
    ({"propensity": [0.5, 0.5, 0.5, 0.25, 1.0]}, "session y: propensity must be the same in all rows .*: got 0.25"),
    ({"count": [1, 1, 2, 1, 1]}, "session y: count must be the same in all rows of a session: got 1"),
]


@every_format
@pytest.mark.parametrize(("change", "message"), BAD_LONG)
def test_bad_long_sessions(tmp_path: Path, ending: str, change: dict[str, list[Any]], message: str) -> None:
    path = save(tmp_path / f"log{ending}", LONG | change)
    with pytest.raises(FileError, match=f"^{path}: {message}"):
        read_log(path)
    with pytest.warns(ClickshiftWarning, match=f"skipped 1 of 3 sessions, the first: .*{message}"):
        log = read_log(path, on_bad_line="skip")
    assert raw(log)["docs"] == [[1, 2], [1]]
    assert raw(log)["query"] == ["a", "b"]


def test_how_many_are_bad_is_told(tmp_path: Path) -> None:
    path = save(tmp_path / "log.parquet", WIDE | {"clicks": [[1, 0], [0], [1, 1]]})
    with pytest.raises(FileError, match=r"row 2: .* \(2 such sessions\)"):
        read_log(path)
    save(path, WIDE | {"clicks": [[1], [0], [1, 1]]})
    with pytest.raises(FileError, match="no session is left to read: skipped 3 of 3 sessions"):
        read_log(path, on_bad_line="skip")


@every_format
def test_texts_where_numbers_must_be(tmp_path: Path, ending: str) -> None:
    path = save(tmp_path / f"log{ending}", LONG | {"rank": ["1", "2", "1", "two", "1"]})
    with pytest.raises(FileError, match="session y: rank must be a whole number: got two"):
        read_log(path)
    path = save(path, WIDE | {"time": ["2024-01-01", "yesterday", "2024-01-02"]})
    with pytest.raises(FileError, match="row 2: time must have a value of its kind: got yesterday"):
        read_log(path)


def test_csv_lists_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text('query,docs,clicks\na,"[""x""]",1\na,"[\'x\', \'y\']","[1, 0]"\n')
    with pytest.raises(FileError, match=r"row 2: docs must be a list .*as text.*: got \['x', 'y'\]"):
        read_log(path)


def test_unreadable_lines(tmp_path: Path) -> None:
    ragged = tmp_path / "log.csv"
    ragged.write_text("query,docs,clicks\na,1 2,1 0\na,1 2\nb,1,1\nb,1,1,0\n")
    with pytest.raises(FileError, match=r"log.csv, line 3: a row must have 3 values as the header: got 2 \(a,1 2\)"):
        read_log(ragged)
    with pytest.warns(ClickshiftWarning, match="skipped 2 unreadable lines, the first: .*log.csv, line 3"):
        assert raw(read_log(ragged, on_bad_line="skip"))["docs"] == [[1, 2], [1]]
    broken = tmp_path / "log.jsonl"
    good = '{"query": "a", "docs": [1, 2], "clicks": [1, 0]}\n'
    for bad, message in [
        ('{"query": "a", "docs": [1, 2], "clicks": [1, 0}', "a line must be one JSON object"),
        ("[1, 2]", r"a line must be a JSON object \{...\}: got \[1, 2\]"),
        (good.strip() * 2, "a line must be one JSON object: Extra data"),
        ("[" * 100_000, "the JSON is nested too deeply"),
        ('{"query": 7, "docs": [1, 2], "clicks": [1, 0]}', "query must be text, as in the lines above: got 7"),
        ('{"query": "a", "docs": [1, "x"], "clicks": [1, 0]}', r'docs must be a list of a number, .*: got \[1, "x"\]'),
    ]:
        broken.write_text(good + "\n" + bad + "\n" + good)
        with pytest.raises(FileError, match=f"log.jsonl, line 3: {message}"):
            read_log(broken)
        with pytest.warns(ClickshiftWarning, match=f"skipped 1 unreadable lines, the first: .*line 3: {message}"):
            assert len(read_log(broken, on_bad_line="skip")) == 2
    long = tmp_path / "long.csv"
    long.write_text("session,query,rank,doc,click\n1,a,1,x,0\n1,a,2\n")
    with pytest.raises(FileError, match=r"line 3: .*Mend the line, or remove its session"):
        read_log(long, on_bad_line="skip")  # or a list would end too early, and nobody knew


@given(parts=logs())
def test_json_line_by_line_is_the_same(parts: dict[str, Any]) -> None:
    log = sessions_of(**parts)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tabular_json, "_read_alike", lambda data, choose: None)
        write_log(log, Path(folder) / "log.jsonl")
        assert_same(read_log(Path(folder) / "log.jsonl"), log)


def test_json_columns_that_appear_late(tmp_path: Path) -> None:
    row = {"query": "a", "docs": [1], "clicks": [0]}
    lines = [json.dumps(row)] * 150 + [json.dumps(row | {"user": "u"})]
    (tmp_path / "log.jsonl").write_text("\n".join(lines))
    with pytest.raises(FileError, match=r"row 1: user must have a value of its kind.*150 such sessions"):
        read_log(tmp_path / "log.jsonl")


def test_broken_files(tmp_path: Path) -> None:
    def refused(name: str, content: bytes, message: str) -> None:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(FileError, match=message):
            read_log(tmp_path / name)

    for ending in ENDINGS:
        with pytest.raises(FileError, match=f"missing{ending}: there is no such file"):
            read_log(tmp_path / f"missing{ending}")
        refused(f"empty{ending}", gzip.compress(b"") if ending.endswith("gz") else b"", "is empty")
    save(tmp_path / "log.parquet", WIDE)
    whole = (tmp_path / "log.parquet").read_bytes()
    refused("cut.parquet", whole[:-20], "cannot be read as Parquet")
    refused("text.parquet", b"query,docs,clicks\n" * 9, "cannot be read as Parquet")
    refused("log.csv", whole, "not a text file|must be UTF-8")
    refused("cut.csv.gz", gzip.compress(b"query,docs,clicks\na,1,0\n" * 999)[:-9], "ends too early")
    refused("header.csv", b"query,docs,clicks\n", "has no rows")
    refused("header.tsv", b"query\tdocs\tclicks\n", "has no rows")
    refused("twice.csv", b"query,docs,clicks,docs\na,1,0,1\n", "docs stands twice among query, docs, clicks, docs")
    refused("semicolon.csv", b"query;docs;clicks\na;1;0\n", "the file has query;docs;clicks")
    refused("log.xlsx", b"PK", "the ending of a log file must be one of .parquet, .csv")
    refused("quote.csv", b'query,docs,clicks\na,"1,0\n', "cannot be read as CSV|a row must have 3 values")
    pq.write_table(pa.table(WIDE).slice(0, 0), tmp_path / "none.parquet")
    with pytest.raises(FileError, match=r"none.parquet: has no rows"):
        read_log(tmp_path / "none.parquet")
    pq.write_table(pa.table(WIDE | {"docs": [1, 2, 3]}), tmp_path / "flat.parquet")
    with pytest.raises(FileError, match=r"flat.parquet: column docs must hold lists: got int64"):
        read_log(tmp_path / "flat.parquet")
    pq.write_table(pa.table(WIDE | {"query": [True, False, True]}), tmp_path / "bool.parquet")
    with pytest.raises(FileError, match=r"bool.parquet: column query must hold ids, integers or text: got bool"):
        read_log(tmp_path / "bool.parquet")
    query = pa.array([b"\xff", b"a", b"b"]).view(pa.string())
    pq.write_table(pa.table(WIDE | {"query": query}), tmp_path / "latin.parquet")
    with pytest.raises(FileError, match=r"latin.parquet: column query is damaged, or holds text that is not UTF-8"):
        read_log(tmp_path / "latin.parquet")
    (tmp_path / "folder").mkdir()
    with pytest.raises(FileError, match=r"folder: the folder has no log file"):
        read_log(tmp_path / "folder")
    with pytest.raises(FileError, match="no file has a name of this pattern"):
        read_log(tmp_path / "folder" / "*.csv")
    with pytest.raises(DataError, match="at least one file"):
        read_log([])


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".jsonl", ".jsonl.gz"])
def test_damage_is_found_or_harmless(tmp_path: Path, ending: str, rng: np.random.Generator) -> None:
    path = tmp_path / f"log{ending}"
    write_log(EXPECTED, path)
    whole = path.read_bytes()
    accepted = 0
    for _ in range(150):
        data = bytearray(whole)
        for place in rng.integers(0, len(data), rng.integers(1, 4)):
            data[place] = rng.integers(0, 256)
        path.write_bytes(bytes(data[: rng.integers(1, len(data) + 1)] if rng.random() < 0.3 else data))
        with contextlib.suppress(FileError):
            read_log(path)
            accepted += 1
    assert accepted < 100


def test_writing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="the ending of a log file"):
        write_log(EXPECTED, tmp_path / "log.txt")
    with pytest.raises(DataError, match='layout must be "wide" or "long"'):
        check_output(tmp_path / "log.csv", "tall")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(FileError, match="is a folder"):
        check_output(tmp_path / "folder.csv")
    words, _, _ = Vocabulary.of(["a"], [1])
    with pytest.raises(DataError, match="session 1: ids must be known to be written"):
        write_log(EXPECTED.in_vocabulary(words), tmp_path / "log.csv")
    with pytest.raises(DataError, match="query ids hold a NUL character"):
        write_log(sessions_of(["a\0"], [[1]], [[0]]), tmp_path / "log.csv")
    with pytest.raises(DataError, match="time must be finite"):
        write_log(sessions_of(["a"], [[1]], [[0]], time=np.array([np.inf])), tmp_path / "log.csv")
    with pytest.raises(DataError, match="users must be integers or text"):
        write_log(sessions_of(["a"], [[1]], [[0]], user=np.array([0.5])), tmp_path / "log.csv")
    assert [file.name for file in tmp_path.iterdir()] == ["folder.csv"], "nothing is left behind"


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
