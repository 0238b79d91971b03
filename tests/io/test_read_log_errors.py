"""Every way in which a table can be broken has its message, and no other error escapes."""

from __future__ import annotations

import contextlib
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import DataError, FileError
from clickshift.io.read_log import check_output, read_log, write_log
from clickshift.io.tables.formats import LOG_ENDINGS
from tests.codes import raises_code, warns_code
from tests.io.tables.cases import ENDINGS, EXPECTED, LONG, WIDE, every_format, raw, save, sessions_of

BAD_WIDE = [
    ({"clicks": [[1, 0], [0], [1]]}, "unequal-lengths", {"docs": 2, "clicks": 1, "row": 2}),
    ({"docs": [[1, 2], None, [1]]}, "empty-list", {"column": "docs", "value": "nothing", "row": 2}),
    ({"clicks": [[1, 0], None, [1]]}, "empty-list", {"column": "clicks", "value": "nothing", "row": 2}),
    ({"docs": [[1, 2], [], [1]]}, "empty-list", {"column": "docs", "value": "[]", "row": 2}),
    ({"docs": [[1, 2], [None, None], [1]]}, "empty-list", {"column": "docs", "value": "[None, None]", "row": 2}),
    ({"clicks": [[1, 0], [0, 2], [1]]}, "not-zero-or-one", {"column": "clicks", "value": "[0, 2]", "row": 2}),
    ({"clicks": [[1, 0], [0, None], [1]]}, "not-zero-or-one", {"column": "clicks", "value": "[0, None]", "row": 2}),
    (
        {"clicks": [[1.0, 0.0], [0.5, 0.0], [1.0]]},
        "not-zero-or-one",
        {"column": "clicks", "value": "[0.5, 0.0]", "row": 2},
    ),
    ({"docs": [[1, 2], [2, 2], [1]]}, "duplicate-document", {"document": "2", "ranks": (1, 2), "row": 2}),
    ({"query": ["a", None, "b"]}, "missing-value", {"column": "query", "value": "nothing", "row": 2}),
    ({"user": ["a", None, "b"]}, "missing-value", {"column": "user", "value": "nothing", "row": 2}),
    ({"time": [1, None, 2]}, "missing-value", {"column": "time", "value": "nothing", "row": 2}),
    ({"count": [1, 0, 2]}, "bad-count", {"column": "count", "value": "0", "row": 2}),
    ({"count": [1.0, 1.5, 2.0]}, "bad-count", {"column": "count", "value": "1.5", "row": 2}),
    ({"propensity": [1.0, 0.0, 0.5]}, "not-a-probability", {"column": "propensity", "value": "0.0", "row": 2}),
    ({"propensity": [1.0, 1.5, 0.5]}, "not-a-probability", {"column": "propensity", "value": "1.5", "row": 2}),
    ({"propensity": [1.0, None, 0.5]}, "missing-value", {"column": "propensity", "value": "nothing", "row": 2}),
    ({"log_propensity": [-1.0, 0.1, 0.0]}, "not-a-probability", {"column": "log_propensity", "value": "0.1", "row": 2}),
]


@every_format
@pytest.mark.parametrize(("change", "code", "facts"), BAD_WIDE)
def test_bad_wide_rows(
    tmp_path: Path, ending: str, change: dict[str, list[Any]], code: str, facts: dict[str, Any]
) -> None:
    if ending == ".csv" and "value" in facts:
        facts = facts | {"value": facts["value"].replace("None", "null")}  # lists are quoted as the file has them
    path = save(tmp_path / f"log{ending}", WIDE | change)
    with raises_code(code, FileError, path=path, count=1, **facts) as caught:
        read_log(path)
    assert 'on_bad_line="skip"' in str(caught.value)
    with warns_code("skipped-sessions", count=1, total=3, unreadable_lines=0, rule=code, first=facts):
        log = read_log(path, on_bad_line="skip")
    assert raw(log)["docs"] == [[1, 2], [1]]
    assert raw(log)["clicks"] == [[True, False], [True]]
    assert log.vocabulary.n_pairs == 3, "what was dropped leaves no trace"


BAD_LONG = [
    ({"query": ["a", "a", "a", "c", "b"]}, "inconsistent-session", {"column": "query", "value": "c", "session": "y"}),
    ({"rank": [1, 2, 0, 1, 1]}, "bad-ranks", {"value": "0, 1", "session": "y"}),
    ({"rank": [1, 2, 2, 2, 1]}, "bad-ranks", {"value": "2, 2", "session": "y"}),
    ({"rank": [1, 2, 1, 1, 1]}, "bad-ranks", {"value": "1, 1", "session": "y"}),
    ({"rank": [1.0, 2.0, 1.0, 1.5, 1.0]}, "not-an-integer", {"column": "rank", "value": "1.5", "session": "y"}),
    ({"doc": [1, 2, 2, 2, 1]}, "duplicate-document", {"document": "2", "ranks": (1, 2), "session": "y"}),
    ({"click": [1, 0, 0, 2, 1]}, "not-zero-or-one", {"column": "click", "value": "2", "session": "y"}),
    ({"click": [1, 0, 0, None, 1]}, "not-zero-or-one", {"column": "click", "value": "nothing", "session": "y"}),
    ({"rank": [1, 2, 1, None, 1]}, "not-an-integer", {"column": "rank", "value": "nothing", "session": "y"}),
    ({"doc": [1, 2, 2, None, 1]}, "missing-value", {"column": "doc", "value": "nothing", "session": "y"}),
    ({"query": ["a", "a", "a", None, "b"]}, "missing-value", {"column": "query", "value": "nothing", "session": "y"}),
    ({"session": ["x", "x", None, None, "z"]}, "missing-value", {"column": "session", "value": "nothing", "row": 3}),
    ({"time": [1, 1, 2, 3, 4]}, "inconsistent-session", {"column": "time", "value": "3", "session": "y"}),
    ({"user": ["u", "u", "u", "v", "w"]}, "inconsistent-session", {"column": "user", "value": "v", "session": "y"}),
    (
        {"propensity": [0.5, 0.5, 0.5, 0.25, 1.0]},
        "inconsistent-session",
        {"column": "propensity", "value": "0.25", "session": "y"},
    ),
    ({"count": [1, 1, 2, 1, 1]}, "inconsistent-session", {"column": "count", "value": "1", "session": "y"}),
]


@every_format
@pytest.mark.parametrize(("change", "code", "facts"), BAD_LONG)
def test_bad_long_sessions(
    tmp_path: Path, ending: str, change: dict[str, list[Any]], code: str, facts: dict[str, Any]
) -> None:
    path = save(tmp_path / f"log{ending}", LONG | change)
    with raises_code(code, FileError, path=path, count=1, **facts):
        read_log(path)
    with warns_code("skipped-sessions", count=1, total=3, unreadable_lines=0, rule=code, first=facts):
        log = read_log(path, on_bad_line="skip")
    assert raw(log)["docs"] == [[1, 2], [1]]
    assert raw(log)["query"] == ["a", "b"]


def test_how_many_are_bad_is_told(tmp_path: Path) -> None:
    path = save(tmp_path / "log.parquet", WIDE | {"clicks": [[1, 0], [0], [1, 1]]})
    with raises_code("unequal-lengths", FileError, docs=2, clicks=1, row=2, count=2):
        read_log(path)
    save(path, WIDE | {"clicks": [[1], [0], [1, 1]]})
    with raises_code("empty-log", FileError, count=3, total=3, unreadable_lines=0, rule="unequal-lengths"):
        read_log(path, on_bad_line="skip")


@every_format
def test_texts_where_numbers_must_be(tmp_path: Path, ending: str) -> None:
    path = save(tmp_path / f"log{ending}", LONG | {"rank": ["1", "2", "1", "two", "1"]})
    with raises_code("not-an-integer", FileError, column="rank", value="two", session="y", count=1):
        read_log(path)
    path = save(path, WIDE | {"time": ["2024-01-01", "yesterday", "2024-01-02"]})
    with raises_code("missing-value", FileError, column="time", value="yesterday", row=2, count=1):
        read_log(path)


def test_csv_lists_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text('query,docs,clicks\na,"[""x""]",1\na,"[\'x\', \'y\']","[1, 0]"\n')
    with raises_code("empty-list", FileError, column="docs", value="['x', 'y']", row=2, count=1):
        read_log(path)


def test_unreadable_lines(tmp_path: Path) -> None:
    ragged = tmp_path / "log.csv"
    ragged.write_text("query,docs,clicks\na,1 2,1 0\na,1 2\nb,1,1\nb,1,1,0\n")
    with raises_code("unreadable-line", FileError, path=ragged, count=2, line=3) as caught:
        read_log(ragged)
    assert "(a,1 2)" in str(caught.value)
    with warns_code("skipped-sessions", count=0, total=2, unreadable_lines=2, rule=""):
        assert raw(read_log(ragged, on_bad_line="skip"))["docs"] == [[1, 2], [1]]
    broken = tmp_path / "log.jsonl"
    good = '{"query": "a", "docs": [1, 2], "clicks": [1, 0]}\n'
    for bad, named in [
        ('{"query": "a", "docs": [1, 2], "clicks": [1, 0}', "',' delimiter"),
        ("[1, 2]", "[1, 2]"),
        (good.strip() * 2, "Extra data"),
        ("[" * 100_000, "nested"),
        ('{"query": 7, "docs": [1, 2], "clicks": [1, 0]}', "got 7"),
        ('{"query": "a", "docs": [1, "x"], "clicks": [1, 0]}', 'got [1, "x"]'),
    ]:
        broken.write_text(good + "\n" + bad + "\n" + good)
        with raises_code("unreadable-line", FileError, path=broken, count=1, line=3) as caught:
            read_log(broken)
        assert named in str(caught.value)
        with warns_code("skipped-sessions", count=0, total=2, unreadable_lines=1, rule=""):
            assert len(read_log(broken, on_bad_line="skip")) == 2
    ragged.write_text("query,docs,clicks\na,1\nb,2\n")
    with raises_code("empty-log", FileError, unreadable_lines=2):
        read_log(ragged, on_bad_line="skip")
    long = tmp_path / "long.csv"
    long.write_text("session,query,rank,doc,click\n1,a,1,x,0\n1,a,2\n")
    with raises_code("unreadable-line", FileError, path=long, count=1, line=3):
        read_log(long, on_bad_line="skip")  # or a list would end too early, and nobody knew


def test_json_columns_that_appear_late(tmp_path: Path) -> None:
    row = {"query": "a", "docs": [1], "clicks": [0]}
    lines = [json.dumps(row)] * 150 + [json.dumps(row | {"user": "u"})]
    (tmp_path / "log.jsonl").write_text("\n".join(lines))
    with raises_code("missing-value", FileError, column="user", value="nothing", row=1, count=150):
        read_log(tmp_path / "log.jsonl")


def test_broken_files(tmp_path: Path) -> None:
    def refused(name: str, content: bytes, code: str, **facts: Any) -> None:
        (tmp_path / name).write_bytes(content)
        with raises_code(code, FileError, path=tmp_path / name, **facts):
            read_log(tmp_path / name)

    for ending in ENDINGS:
        with raises_code("file-not-found", FileError, path=tmp_path / f"missing{ending}"):
            read_log(tmp_path / f"missing{ending}")
        refused(f"empty{ending}", gzip.compress(b"") if ending.endswith("gz") else b"", "empty-file")
    save(tmp_path / "log.parquet", WIDE)
    whole = (tmp_path / "log.parquet").read_bytes()
    refused("cut.parquet", whole[:-20], "damaged-file", format="Parquet")
    refused("text.parquet", b"query,docs,clicks\n" * 9, "damaged-file", format="Parquet")
    refused("log.csv", whole, "not-text", line=1)
    refused(
        "cut.csv.gz",
        gzip.compress(b"query,docs,clicks\na,1,0\n" * 999)[:-9],
        "damaged-file",
        format="gzip",
        truncated=True,
    )
    refused("header.csv", b"query,docs,clicks\n", "empty-log", unreadable_lines=0)
    refused("header.tsv", b"query\tdocs\tclicks\n", "empty-log", unreadable_lines=0)
    refused(
        "twice.csv",
        b"query,docs,clicks,docs\na,1,0,1\n",
        "duplicate-column",
        column="docs",
        known=["query", "docs", "clicks", "docs"],
    )
    refused("semicolon.csv", b"query;docs;clicks\na;1;0\n", "missing-column", known=["query;docs;clicks"])
    refused("log.xlsx", b"PK", "unknown-format", known=list(LOG_ENDINGS))
    refused("log.duckdb", b"DUCK", "unknown-format", known=list(LOG_ENDINGS))
    with raises_code("unknown-format", FileError) as caught:
        read_log(f"{tmp_path}/log.duckdb::clicks")
    assert "`open_log`" in str(caught.value)
    refused("quote.csv", b'query,docs,clicks\na,"1,0\n', "unreadable-line", count=1, line=2)
    pq.write_table(pa.table(WIDE).slice(0, 0), tmp_path / "none.parquet")
    with raises_code("empty-log", FileError, path=tmp_path / "none.parquet", unreadable_lines=0):
        read_log(tmp_path / "none.parquet")
    pq.write_table(pa.table(WIDE | {"docs": [1, 2, 3]}), tmp_path / "flat.parquet")
    with raises_code("bad-column", FileError, path=tmp_path / "flat.parquet", column="docs") as caught:
        read_log(tmp_path / "flat.parquet")
    assert "int64" in str(caught.value)
    pq.write_table(pa.table(WIDE | {"query": [True, False, True]}), tmp_path / "bool.parquet")
    with raises_code("bad-column", FileError, path=tmp_path / "bool.parquet", column="query") as caught:
        read_log(tmp_path / "bool.parquet")
    assert "bool" in caught.value.problem
    query = pa.array([b"\xff", b"a", b"b"]).view(pa.string())
    pq.write_table(pa.table(WIDE | {"query": query}), tmp_path / "latin.parquet")
    with raises_code("bad-column", FileError, path=tmp_path / "latin.parquet", column="query") as caught:
        read_log(tmp_path / "latin.parquet")
    assert "UTF-8" in str(caught.value)
    (tmp_path / "folder").mkdir()
    with raises_code("no-files", FileError, path=tmp_path / "folder", known=list(LOG_ENDINGS)):
        read_log(tmp_path / "folder")
    with raises_code("no-files", FileError, path=tmp_path / "folder" / "*.csv"):
        read_log(tmp_path / "folder" / "*.csv")
    with raises_code("no-files", DataError):
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
    with raises_code("unknown-format", FileError, known=list(LOG_ENDINGS)):
        write_log(EXPECTED, tmp_path / "log.txt")
    with raises_code("bad-option", DataError, option="layout", value="tall"):
        check_output(tmp_path / "log.csv", "tall")
    (tmp_path / "folder.csv").mkdir()
    with raises_code("is-a-folder", FileError):
        check_output(tmp_path / "folder.csv")
    words, _, _ = Vocabulary.of(["a"], [1])
    with raises_code("unseen-id", DataError, row=1, count=3):
        write_log(EXPECTED.in_vocabulary(words), tmp_path / "log.csv")
    with raises_code("bad-column", DataError, column="query"):
        write_log(sessions_of(["a\0"], [[1]], [[0]]), tmp_path / "log.csv")
    with raises_code("bad-column", DataError, column="time", value="float64"):
        write_log(sessions_of(["a"], [[1]], [[0]], time=np.array([np.inf])), tmp_path / "log.csv")
    with raises_code("bad-column", DataError, column="user", value="float64"):
        write_log(sessions_of(["a"], [[1]], [[0]], user=np.array([0.5])), tmp_path / "log.csv")
    assert [file.name for file in tmp_path.iterdir()] == ["folder.csv"], "nothing is left behind"
