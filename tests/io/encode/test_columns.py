"""Encoded logs carry holes, views, signals, segments and propensities by position: each row is what was written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import clickshift as cs
from clickshift.counts.cascade import Cascade
from clickshift.counts.cells import Cells
from clickshift.counts.open_log import open_log
from clickshift.data.encoded_log import EncodedLog
from clickshift.data.sessions import Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import DataError, FileError
from clickshift.io.encode.writer import copy_encoded
from clickshift.io.tables.extra_columns import columns_with
from tests.codes import raises_code
from tests.full_logs import SEGMENTS, SIGNALS, content, full_log

COLUMNS = columns_with(None, SIGNALS, SEGMENTS)


@pytest.fixture(scope="module")
def log() -> Sessions:
    return full_log()


@pytest.fixture(scope="module")
def parquet(log: Sessions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log in row groups of 60 sessions, so that it is encoded in four blocks."""
    path = tmp_path_factory.mktemp("log") / "log.parquet"
    pq.write_table(log.to_arrow(), path, row_group_size=60, store_schema=False)
    return path


@pytest.fixture(scope="module")
def encoded(parquet: Path) -> EncodedLog:
    return encode(parquet)


def encode(path: str | Path, **options: object) -> EncodedLog:
    found = open_log(path, **{"columns": COLUMNS, "in_memory": False} | options)  # type: ignore[arg-type]
    assert isinstance(found, EncodedLog)
    return found


def test_an_encoded_log_has_everything_that_was_written(log: Sessions, encoded: EncodedLog) -> None:
    assert len(encoded.blocks) == 4
    assert content(encoded) == content(log)


@pytest.mark.parametrize(
    "form", ["wide.csv", "wide.jsonl", "long.csv", "long.parquet", "folder", "table", "long table"]
)
def test_every_way_into_an_encoded_log_keeps_everything(log: Sessions, form: str, tmp_path: Path) -> None:
    layout = "long" if "long" in form else "wide"
    source: str | Path = tmp_path / "log.parquet"
    if "table" in form:
        import duckdb

        rows = log.to_arrow(layout)
        with duckdb.connect(tmp_path / "log.duckdb") as connection:
            connection.sql("CREATE TABLE clicks AS SELECT * FROM rows")
        assert len(rows)
        source = f"{tmp_path / 'log.duckdb'}::clicks"
    elif form == "folder":
        source = tmp_path
        for k, start in enumerate(range(0, 200, 100)):
            cs.write_log(log[start : start + 100], tmp_path / f"{k}.parquet")
    else:
        source = tmp_path / form
        cs.write_log(log, source, layout=layout)
    assert content(encode(source)) == content(log)


def test_opening_again_checking_and_copying_keep_everything(log: Sessions, encoded: EncodedLog, tmp_path: Path) -> None:
    copy = copy_encoded(encoded, tmp_path / "copy")
    assert content(cs.open_log(copy.folder)) == content(log)  # type: ignore[arg-type]


def test_parts_and_other_vocabularies_of_an_encoded_log_keep_everything(log: Sessions, encoded: EncodedLog) -> None:
    rows = np.arange(len(log)) % 3 == 1
    assert content(encoded[rows]) == content(log[rows])
    assert log.time is not None
    parts, wanted = encoded.split_by_time(0.3), np.argsort(log.time, kind="stable")
    sizes = [len(part) for part in parts]
    assert sizes == [60, 140]
    assert sorted(content(parts[0])) == sorted(content(log[wanted[:60]]))
    half = encoded.in_vocabulary(Vocabulary.of(["query 1", "query 1", "query 2"], [3, 4, 5])[0])
    assert [part.rankings.shown.sum() for part in half.chunks()] == [
        part.rankings.shown.sum() for part in encoded.chunks()
    ]
    in_memory = log.in_vocabulary(half.vocabulary)
    np.testing.assert_array_equal(half.sessions().rankings.query, in_memory.rankings.query)
    np.testing.assert_array_equal(half.sessions().rankings.pair, in_memory.rankings.pair)


def test_a_written_encoded_log_is_read_back_with_everything(log: Sessions, encoded: EncodedLog, tmp_path: Path) -> None:
    for name, layout in (("a.parquet", "wide"), ("b.csv", "long")):
        cs.write_log(encoded, tmp_path / name, layout=layout)  # type: ignore[arg-type]
        read = cs.read_log(tmp_path / name, signals=SIGNALS, segments=SEGMENTS)
        assert content(read) == content(log)


@pytest.mark.parametrize(("first", "second"), [([7, -3], [7, 1 << 62]), ([7, 8], ["7", "b"]), (["b", "é"], ["b", "7"])])
def test_users_keep_their_ids(first: list[object], second: list[object], tmp_path: Path) -> None:
    """Integers stay integers, and become text if another file has texts; the same user is the same in all files."""
    lists = {"query": ["q"] * 2, "docs": [[1, 2]] * 2, "clicks": [[0, 1]] * 2}
    for k, users in enumerate((first, second)):
        pq.write_table(pa.table(lists | {"user": users}), tmp_path / f"{k}.parquet")
    found = encode(tmp_path, columns=None)
    expected = first + second if all(isinstance(one, int) for one in first + second) else list(map(str, first + second))
    users = found.sessions().user
    assert users is not None
    assert users.tolist() == expected
    assert cs.log_summary(found).to_dict()["users"] == 3
    number = np.concatenate([part.user for part in found.chunks() if part.user is not None])
    assert (number[0] == number[2]) == (expected[0] == expected[2])


def test_a_session_without_a_user_is_skipped(tmp_path: Path) -> None:
    table = {"query": ["q"] * 3, "docs": [[1, 2]] * 3, "clicks": [[0, 1]] * 3, "user": ["a", None, "b"]}
    pq.write_table(pa.table(table), tmp_path / "log.parquet")
    with raises_code("missing-value", FileError):
        encode(tmp_path / "log.parquet", columns=None)
    with pytest.warns(match="skipped 1 of 3 sessions"):
        found = encode(tmp_path / "log.parquet", columns=None, on_bad_line="skip")
    assert found.sessions().user is not None
    assert found.sessions().user.tolist() == ["a", "b"]  # type: ignore[union-attr]


def test_counts_of_an_encoded_log_are_those_of_the_log_in_memory(log: Sessions, encoded: EncodedLog) -> None:
    for by in ("rank", "last_click", "prefix"):
        found, wanted = Cells.of(encoded, by), Cells.of(log, by)  # type: ignore[arg-type]
        for name in ("pair", "situation", "impressions", "clicks"):
            np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))
    found, wanted = Cascade.of(encoded), Cascade.of(log)
    for name in ("impressions", "examined", "clicks", "followed", "open_last", "first_clicks", "first_examined"):
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))
    assert found.passed == wanted.passed


def test_a_signal_has_one_type_though_its_blocks_are_stored_in_three_forms(tmp_path: Path) -> None:
    dwell = [[0, 1], [1, None], [2.5, 1]]
    columns = {"query": ["q"] * 3, "docs": [["a", "b"]] * 3, "clicks": [[0, 1]] * 3, "dwell": dwell}
    columns |= {"cart": [[0, 1], [1, 1], [0, 0]]}
    pq.write_table(pa.table(columns), path := tmp_path / "log.parquet", row_group_size=1)
    log = open_log(path, columns=columns_with(None, ["dwell", "cart"]), in_memory=False)
    assert isinstance(log, EncodedLog)
    assert log.files.results.forms == ("bb", "tb", "fb")
    parts = list(log.chunks())
    assert {part.signals["dwell"].dtype for part in parts} == {np.dtype(np.float64)}
    assert {part.signals["cart"].dtype for part in parts} == {np.dtype(bool)}
    found = np.concatenate([part.signals["dwell"] for part in parts])
    np.testing.assert_array_equal(found, [[0, 1], [1, np.nan], [2.5, 1]])


def test_a_log_without_further_columns_is_stored_as_before(tmp_path: Path) -> None:
    rows = {"query": ["q"] * 3, "docs": [["a", "b"], ["b"], ["a"]], "clicks": [[0, 1], [1], [0]]}
    pq.write_table(pa.table(rows), tmp_path / "log.parquet")
    log = open_log(tmp_path / "log.parquet", in_memory=False)
    assert isinstance(log, EncodedLog)
    assert sorted(file.name.partition("-")[0] for file in log.folder.iterdir()) == ["click", "log", "log.json", "pair"]
    header = (log.folder / "log.json").read_text()
    assert '"format": 3' in header  # an older program reads it
    assert {"holes", "results", "segments"}.isdisjoint(header.replace('"', " ").split())


@pytest.mark.parametrize("name", ["result", "segment"])
def test_every_damaged_byte_of_a_column_is_noticed(name: str, encoded: EncodedLog, tmp_path: Path) -> None:
    copy = copy_encoded(encoded, tmp_path / "copy")
    path = copy.folder / copy.files.names[name]
    sound = path.read_bytes()
    for at in range(0, len(sound), 1 + len(sound) // 9):
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 64]) + sound[at + 1 :])
        with raises_code("damaged-file", FileError):
            list(open_log(copy.folder).chunks())
    path.write_bytes(sound[:-1])
    with raises_code("damaged-file", FileError):
        open_log(copy.folder)


def test_a_segment_with_too_many_labels_is_refused_over_all_batches(tmp_path: Path) -> None:
    n = 1002
    rows = {"query": ["q"] * n, "docs": [["a"]] * n, "clicks": [[0]] * n, "device": [f"d{k}" for k in range(n)]}
    pq.write_table(pa.table(rows), tmp_path / "log.parquet", row_group_size=500)
    with raises_code("too-many-segments", DataError, name="device"):
        open_log(tmp_path / "log.parquet", columns={"segment:device": "device"}, in_memory=False)


def test_rows_of_a_session_that_disagree_in_a_segment_are_named(tmp_path: Path) -> None:
    rows = {"session": [1, 1], "query": ["q"] * 2, "rank": [1, 3], "doc": ["a", "b"], "click": [0, 1]}
    pq.write_table(pa.table(rows | {"arm": ["a", "b"]}), tmp_path / "log.parquet")
    with raises_code("inconsistent-session", FileError, column="arm"):
        open_log(tmp_path / "log.parquet", in_memory=False)
