"""Tables are written as Parquet, CSV and JSON lines, and come back as they were."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from clickshift.errors import FileError
from clickshift.io.table_writer import write_table
from tests.codes import raises_code

TABLE = pa.table({"id": ['a"b', "<ü>"], "value": np.array([0.5, np.nan]), "docs": [[1, 2], ["3"][:0]]})


def test_every_format_holds_the_same(tmp_path: Path) -> None:
    rows = [{"id": 'a"b', "value": 0.5, "docs": [1, 2]}, {"id": "<ü>", "value": None, "docs": []}]
    for ending in ("parquet", "csv", "jsonl"):
        write_table(TABLE, tmp_path / f"t.{ending}", notes={"what": "a test"})
    assert pq.read_table(tmp_path / "t.parquet").to_pylist() == rows
    lines = (tmp_path / "t.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == rows
    texts = list(csv.DictReader((tmp_path / "t.csv").read_text(encoding="utf-8").splitlines()))
    assert texts == [{"id": 'a"b', "value": "0.5", "docs": "[1, 2]"}, {"id": "<ü>", "value": "", "docs": "[]"}]


def test_parquet_keeps_the_notes(tmp_path: Path) -> None:
    write_table(TABLE, tmp_path / "t.parquet", notes={"what": "a test"})
    assert json.loads(pq.read_schema(tmp_path / "t.parquet").metadata[b"clickshift"]) == {"what": "a test"}


def test_a_path_that_is_no_table_is_refused(tmp_path: Path) -> None:
    with raises_code("unknown-format", FileError, known=[".parquet", ".csv", ".jsonl"]):
        write_table(TABLE, tmp_path / "t.xlsx")
    (tmp_path / "t.csv").mkdir()
    with raises_code("is-a-folder", FileError):
        write_table(TABLE, tmp_path / "t.csv")
    (tmp_path / "file").write_text("")
    with raises_code("not-writable", FileError, reason="File exists"):
        write_table(TABLE, tmp_path / "file" / "t.csv")
