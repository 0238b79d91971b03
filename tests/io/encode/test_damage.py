"""Encoded logs that were damaged or crafted: one clear error before a kernel sees a number that is out of range."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

import clickshift as cs
from clickshift.counts.cells import Cells
from clickshift.data.encoded_log import EncodedLog
from clickshift.errors import DataError, FileError
from tests.codes import raises_code
from tests.folders import craft, data_file

ROWS, RANKS = 60, 4


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An encoded log of 60 sessions in two blocks, of 4 and of 3 ranks, with every column."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    docs = [(10 * (k % 3) + rng.permutation(6)[: RANKS - (k >= 30)]).tolist() for k in range(ROWS)]
    table = {
        "query": [k % 3 for k in range(ROWS)],
        "docs": docs,
        "clicks": [[int(rng.random() < 0.4) for _ in one] for one in docs],
        "count": rng.integers(1, 5, ROWS),
        "time": rng.uniform(0, 10, ROWS),
        "propensity": rng.uniform(0.1, 1, ROWS),
    }
    pq.write_table(pa.table(table), tmp_path / "log.parquet", row_group_size=30)
    cs.encode_log(tmp_path / "log.parquet", tmp_path / "encoded")
    return tmp_path / "encoded"


def edit(folder: Path, name: str, dtype: str, change: Callable[[np.ndarray], Any], *, checksums: bool) -> None:
    """Change the numbers of a file, and its checksums if they are to be right."""
    path = data_file(folder, name)
    numbers = np.frombuffer(path.read_bytes(), dtype).copy()
    change(numbers)
    path.write_bytes(numbers.tobytes())
    if checksums:
        header = json.loads((folder / "log.json").read_text())
        ends = np.cumsum([block[1] * (4 * block[2] if name == "pair" else 1) for block in header["blocks"]])
        parts = np.split(numbers.view("u1"), ends[:-1]) if name in {"pair", "click"} else [numbers.view("u1")]
        header["checksums"][name] = [xxhash.xxh3_64_intdigest(part.tobytes()) for part in parts]
        (folder / "log.json").write_text(json.dumps(header))


def put(at: Any, value: Any) -> Callable[[np.ndarray], None]:
    def change(numbers: np.ndarray) -> None:
        numbers[at] = value

    return change


READERS: dict[str, Callable[[EncodedLog], object]] = {
    "cells": Cells.of,
    "lists": lambda log: list(log.lists()),
    "sessions": lambda log: log.sessions(),
    "another vocabulary": lambda log: log.in_vocabulary(cs.Vocabulary.of([1], [10])[0]).sessions(),
}
COLUMN_READERS = [name for name in READERS if name != "lists"]
CRAFTED: dict[str, tuple[str, str, Callable[[np.ndarray], None], int]] = {
    "a pair far out of range": ("pair", "<i4", put(5, 1 << 30), 2),
    "the number after the last pair": ("pair", "<i4", put(-1, 18), 60),
    "a negative pair": ("pair", "<i4", put(0, -7), 1),
    "an empty list": ("pair", "<i4", put(slice(4, 8), -1), 2),
    "a gap": ("pair", "<i4", put(5, -1), 2),
    "a document of another query": ("pair", "<i4", put(1, 17), 1),
    "no time": ("time", "<f8", put(3, np.nan), 1),
    "a count of none": ("count", "<i8", put(3, 0), 1),
    "a negative count": ("count", "<i8", put(3, -5), 1),
    "counts beyond 2^62": ("count", "<i8", put(slice(None), 1 << 60), 1),
    "no probability": ("log_prob", "<f8", put(0, 0.5), 1),
}


@pytest.mark.parametrize(
    ("crafted", "reader"),
    [
        (crafted, reader)
        for crafted in CRAFTED
        for reader in READERS
        if reader != "lists" or CRAFTED[crafted][0] == "pair"
    ],
)
def test_numbers_that_no_log_has_are_one_error(crafted: str, reader: str, folder: Path) -> None:
    name, dtype, change, row = CRAFTED[crafted]
    edit(folder, name, dtype, change, checksums=True)
    log = cs.open_log(folder)
    assert isinstance(log, EncodedLog)
    with raises_code("damaged-file", FileError, path=data_file(folder, name), row=row):
        READERS[reader](log)


def test_a_click_below_the_end_of_a_list_is_one_error(folder: Path) -> None:
    edit(folder, "pair", "<i4", put(3, -1), checksums=True)
    edit(folder, "click", "u1", put(0, 0b0001_0000), checksums=True)
    with raises_code("damaged-file", FileError, row=1):
        Cells.of(cs.open_log(folder))


@pytest.mark.parametrize("name", ["pair", "click", "count", "time", "log_prob"])
def test_every_damaged_byte_is_noticed(name: str, folder: Path) -> None:
    path = data_file(folder, name)
    whole = path.read_bytes()
    for at in range(0, len(whole), max(len(whole) // 25, 1)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with raises_code("damaged-file", FileError, path=path):
            cs.open_log(folder).sessions()
    path.write_bytes(whole)
    assert len(cs.open_log(folder).sessions()) == ROWS


@pytest.mark.parametrize(
    ("older", "checksum"), [({"format": 2}, zlib.crc32), ({"checksum": "xxh64"}, xxhash.xxh64_intdigest)]
)
def test_a_log_with_older_checksums_is_still_read_and_checked(
    older: dict[str, Any], checksum: Callable[[bytes], int], folder: Path
) -> None:
    header = json.loads((folder / "log.json").read_text())
    assert (header["format"], header.pop("checksum")) == (3, "xxh3_64")
    for name in header["checksums"]:
        size = {"pair": 4 * header["blocks"][0][1] * RANKS, "click": header["blocks"][0][1]}.get(name, 1 << 20)
        content = data_file(folder, name).read_bytes()
        header["checksums"][name] = [checksum(part) for part in (content[:size], content[size:]) if part]
    (folder / "log.json").write_text(json.dumps(header | older))
    assert len(cs.open_log(folder).sessions()) == ROWS
    for name, dtype in (("pair", "<i4"), ("log_prob", "<f8")):
        whole = data_file(folder, name).read_bytes()
        edit(folder, name, dtype, lambda numbers: np.copyto(numbers[-2:], numbers[-2:][::-1].copy()), checksums=False)
        with raises_code("damaged-file", FileError, path=data_file(folder, name)):
            cs.open_log(folder).sessions()
        data_file(folder, name).write_bytes(whole)


def test_a_log_without_checksums_is_still_read(folder: Path) -> None:
    header = json.loads((folder / "log.json").read_text())
    del header["checksums"]
    (folder / "log.json").write_text(json.dumps(header))
    assert len(cs.open_log(folder).sessions()) == ROWS
    edit(folder, "pair", "<i4", put(5, 1 << 30), checksums=False)
    with raises_code("damaged-file", FileError, row=2):
        cs.open_log(folder).sessions()


HEADERS: dict[str, dict[str, Any]] = {
    "objects instead of numbers": {"kinds": {"time": "O", "count": "<i8", "log_prob": "<f8"}},
    "an unknown column": {"kinds": {"../../secret": "<i8"}},
    "no blocks": {"blocks": []},
    "a block of no rows": {"blocks": [[0, 0, 4, 0, 0]]},
    "a block of negative size": {"blocks": [[0, -30, -4, 0, 0], [30, 30, 3, 120, 30]]},
    "blocks that overlap": {"blocks": [[0, 30, 4, 0, 0], [30, 30, 3, 0, 30]]},
    "blocks beyond the files": {"blocks": [[0, 30, 4, 0, 0], [30, 31, 3, 120, 30]]},
    "positions that are no integers": {"blocks": [[0, 30, 4.0, 0, 0], [30, 30, 3, 120, 30]]},
    "infinite positions": {"blocks": [[0, float("inf"), 4, 0, 0]]},
    "an unknown checksum": {"checksum": "md5"},
    "a list of checksums": {"checksum": ["xxh3_64"]},
    "too few checksums": {"checksums": {"pair": [1], "click": [1]}},
    "no list": {"blocks": 5},
    "nothing": {"vocabulary": {}},
}


@pytest.mark.parametrize("crafted", HEADERS)
def test_a_header_that_no_log_has_is_one_error(crafted: str, folder: Path) -> None:
    craft(folder, "log.json", {}, **HEADERS[crafted])
    with raises_code("damaged-file", FileError, path=folder):
        cs.open_log(folder)


VOCABULARIES: dict[str, dict[str, Any]] = {
    "a query out of range": {"pair_query": np.repeat([0, 1, 99], 6)},
    "a negative query": {"pair_query": np.repeat([-1, 0, 1], 6)},
    "a document out of range": {"pair_doc": np.arange(1, 19)},
    "pairs in another order": {"pair_query": np.repeat([0, 2, 1], 6)},
    "pairs twice": {"pair_doc": np.zeros(18, np.int64)},
    "too few": {"pair_doc": np.arange(17)},
    "fractions": {"pair_query": np.repeat([0.0, 1.0, 2.0], 6)},
    "a table": {"pair_query": np.zeros((3, 6), np.int64)},
    "ids twice": {"query_ids": np.zeros(3, np.int64)},
    "ids that are fractions": {"query_ids": np.arange(3.0)},
}


@pytest.mark.parametrize("crafted", VOCABULARIES)
def test_a_vocabulary_that_no_log_has_is_one_error(crafted: str, folder: Path) -> None:
    craft(folder, "log.json", {f"vocabulary.{name}": array for name, array in VOCABULARIES[crafted].items()})
    with raises_code("damaged-file", FileError, path=folder):
        cs.open_log(folder)


def test_a_block_is_checked_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    counted = {"xxh3_64": lambda data: calls.append(1) or xxhash.xxh3_64_intdigest(data)}
    monkeypatch.setattr("clickshift.data.encoded_files.CHECKSUMS", counted)
    log = cs.open_log(folder)
    assert isinstance(log, EncodedLog)
    for _ in range(3):
        log.sessions()
        log[np.arange(ROWS) < 40].sessions()
    assert len(calls) == 2 * 2 + 3


def test_a_log_that_is_encoded_again_is_replaced_at_once(folder: Path) -> None:
    before = cs.open_log(folder)
    names = {path.name for path in folder.iterdir()}
    half = cs.read_log(folder.parent / "log.parquet")[:30]
    cs.encode_log(half, folder)
    assert len(cs.open_log(folder).sessions()) == 30
    assert len(list(folder.iterdir())) == len(names)
    with raises_code("file-not-found", FileError):
        list(before.chunks())


def test_an_encoded_log_is_copied_where_it_is_asked_for(folder: Path, tmp_path: Path) -> None:
    copy = cs.encode_log(folder, tmp_path / "copy").log
    assert copy.folder == tmp_path / "copy"
    assert (tmp_path / "copy" / "log.json").read_bytes() == (folder / "log.json").read_bytes()
    np.testing.assert_array_equal(cs.open_log(copy.folder).sessions().click, cs.open_log(folder).sessions().click)
    assert cs.encode_log(folder, folder).log.folder == folder
    (tmp_path / "other").mkdir()
    with raises_code("folder-exists", FileError):
        cs.encode_log(folder, tmp_path / "other")
    part = cs.open_log(folder)[np.arange(ROWS) < 9]
    with raises_code("part-of-a-log", DataError):
        cs.encode_log(part, tmp_path / "part")
    edit(folder, "pair", "<i4", put(0, 1), checksums=False)
    with raises_code("damaged-file", FileError):
        cs.encode_log(folder, tmp_path / "damaged")
    assert not (tmp_path / "damaged").exists()


def rewrite(path: Path, change: Callable[[bytearray], None]) -> None:
    """Change a file, and set its time of modification back."""
    status, data = path.stat(), bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("keeps_changes", [True, False])
def test_the_cache_notices_a_change_of_the_same_size_and_time(
    keeps_changes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also on disks that do not keep the time of change, if it affects one of the blocks that are compared."""
    path = tmp_path / "log.jsonl"
    path.write_text("".join(f'{{"query": {k % 3}, "docs": [1, 2], "clicks": [0, 1]}}\n' for k in range(5000)))
    before = cs.open_log(path, in_memory=False)
    assert cs.open_log(path, in_memory=False).folder == before.folder
    if not keeps_changes:
        monkeypatch.setattr("clickshift.counts.open_log._changed_at", lambda status: 0)
        before = cs.open_log(path, in_memory=False)
    rewrite(path, lambda data: data.__setitem__(slice(*(k + data.find(b"[0, 1]") for k in (0, 6))), b"[1, 1]"))
    after = cs.open_log(path, in_memory=False)
    assert after.folder != before.folder
    assert after.sessions().click.sum() == 5001


def test_old_entries_of_the_cache_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, other = tmp_path / "log.jsonl", tmp_path / "other.jsonl"
    for path in (log, other):
        path.write_text('{"query": 1, "docs": [1], "clicks": [0]}\n')
    entries = [cs.open_log(path, in_memory=False).folder for path in (log, other)]
    log.write_text('{"query": 2, "docs": [1], "clicks": [0]}\n')
    newer = cs.open_log(log, in_memory=False).folder
    assert all(entry.exists() for entry in (*entries, newer)), "somebody may be reading it"
    for entry in (*entries, newer):
        os.utime(entry, (1e9, 1e9))
    log.write_text('{"query": 3, "docs": [1], "clicks": [0]}\n')
    newest = cs.open_log(log, in_memory=False).folder
    assert [entry.exists() for entry in (*entries, newer, newest)] == [False, True, False, True]
    monkeypatch.setattr("clickshift.counts.open_log._KEPT_ENTRIES", 1)
    os.utime(newest, (1e9, 1e9))
    other.write_text('{"query": 4, "docs": [1], "clicks": [0]}\n')
    kept = cs.open_log(other, in_memory=False).folder
    assert [path for path in newest.parent.iterdir() if path.is_dir()] == [kept]


@pytest.mark.parametrize("number", [-1, 3])
def test_a_user_that_the_table_of_ids_does_not_hold_is_damage(number: int, tmp_path: Path) -> None:
    """The checksum is right: ids are looked up only where they are needed, and never out of range."""
    import pandas as pd

    docs = {"query": ["q"] * 4, "docs": [[1, 2]] * 4, "clicks": [[0, 1]] * 4, "user": ["a", "b", "c", "a"]}
    cs.encode_log(pd.DataFrame(docs), tmp_path / "encoded")
    edit(tmp_path / "encoded", "user", "<i8", put(2, number), checksums=True)
    log = cs.open_log(tmp_path / "encoded")
    assert isinstance(log, EncodedLog)
    Cells.of(log)
    with raises_code("damaged-file", FileError):
        log.sessions()
