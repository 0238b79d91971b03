"""Days of partitioned folders: one rule in memory, encoded and through DuckDB; databases that reach for other files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

from clickshift.counts.open_log import open_log
from clickshift.data.encoded_log import EncodedLog
from clickshift.data.sessions import Sessions
from clickshift.errors import ClickshiftError, FileError, SpecError
from clickshift.io.encode.duckdb import DuckdbLimits
from clickshift.io.read_log import read_log
from tests.codes import raises_code

WIDE = pa.table({"query": ["q"] * 2, "docs": [["a", "b"]] * 2, "clicks": [[1, 0]] * 2})
LONG = {"query": ["q"] * 4, "rank": [1, 2] * 2, "doc": ["a", "b"] * 2, "click": [1, 0] * 2}


def write_partitions(folder: Path, days: Sequence[str], layout: str) -> Path:
    for k, day in enumerate(days):
        place = folder / f"day={day}" if day else folder
        place.mkdir(parents=True, exist_ok=True)
        session = [f"{k}-0", f"{k}-0", f"{k}-1", f"{k}-1"]
        if layout == "wide":
            pq.write_table(WIDE, place / f"{k}.parquet")
        elif layout == "long":
            pq.write_table(pa.table({"session": session, **LONG}), place / f"{k}.parquet")
        else:
            pc.write_csv(pa.table({"session": session, **LONG}), place / f"{k}.csv")
    return folder


def outcome(log: Path, *, in_memory: bool) -> object:
    """The days of the sessions, sorted, or the code of the error."""
    try:
        found: Sessions | EncodedLog = read_log(log) if in_memory else open_log(log, in_memory=False)
    except ClickshiftError as error:
        return error.code
    sessions = found.sessions() if isinstance(found, EncodedLog) else found
    if sessions.time is None:
        return None
    return sorted(np.repeat(sessions.time.astype(str), sessions.count).tolist())


@pytest.mark.parametrize("layout", ["wide", "long", "csv"])
@pytest.mark.parametrize(
    ("days", "expected"),
    [
        (["2024-01-01", "2024-01-02", "2024-01-03"], list),
        (["20240101", "2024-01-02"], list),
        (["1", "2", "10"], list),
        (["2024-01-01", "2024-01-02x", "2024-01-03"], "inconsistent-columns"),
        (["2024-01-02x", "2024-01-01"], "inconsistent-columns"),
        (["2024-01-01", ""], "inconsistent-columns"),
        (["2024-01-01", "9" * 30], "inconsistent-columns"),
        (["monday", "tuesday"], type(None)),
        (["2024-01-01", "17"], "bad-column"),
    ],
)
def test_both_ways_of_reading_agree_on_the_days_of_partitions(
    days: list[str], expected: object, layout: str, tmp_path: Path
) -> None:
    log = write_partitions(tmp_path / "log", days, layout)
    in_memory, encoded = outcome(log, in_memory=True), outcome(log, in_memory=False)
    if isinstance(expected, type):
        assert isinstance(in_memory, expected)
        assert in_memory is None or len(in_memory) == 2 * len(days)
        assert _instants(in_memory) == _instants(encoded)
    else:
        assert in_memory == encoded == expected


def _instants(days: object) -> object:
    """Days as numbers or dates: an encoded log stores microseconds."""
    if not isinstance(days, list):
        return days
    return [day if day.replace(".", "").isdigit() else str(np.datetime64(day, "D")) for day in days]


def test_names_of_files_are_texts_in_sql(tmp_path: Path) -> None:
    log = write_partitions(tmp_path / "it's; DROP TABLE x --", ["2024-01-01"], "long")
    assert isinstance(outcome(log, in_memory=False), list)


@pytest.mark.parametrize("memory", ["-5GB", "0GB", "nan", "inf", "4", "", "1e3GB", "5PB", "101%", "4GB; DROP TABLE x"])
def test_a_memory_limit_is_a_size(memory: str) -> None:
    with raises_code("bad-option", SpecError, option="memory"):
        DuckdbLimits(memory)


def test_a_view_of_a_database_reads_no_other_file(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    secret = write_partitions(tmp_path / "secret", [""], "long") / "0.parquet"
    with duckdb.connect(tmp_path / "log.duckdb") as connection:
        connection.sql(f"CREATE VIEW stolen AS SELECT * FROM read_parquet('{secret}')")
        connection.sql(f"CREATE TABLE own AS SELECT * FROM read_parquet('{secret}')")
        connection.sql("CREATE VIEW shown AS SELECT * FROM own")
    limits = DuckdbLimits("200MB", tmp_path / "spill")
    for table in ("own", "shown"):
        log = open_log(f"{tmp_path}/log.duckdb::{table}", in_memory=False, spill=limits, output=tmp_path / table)
        assert len(log) == 2
    with raises_code("unreadable-log", FileError):
        open_log(f"{tmp_path}/log.duckdb::stolen", in_memory=False, output=tmp_path / "stolen")
