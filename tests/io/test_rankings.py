"""Lists without clicks are read from every format; what is wrong with one is said with its place."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clickshift.data.sessions import Rankings
from clickshift.errors import ClickshiftWarning, FileError
from clickshift.io.rankings import read_rankings

QUERIES = ["cats", "dogs", "cats"]
DOCS = [["a", "b", "<c>"], ["a"], ["b", "a"]]


def write(folder: Path, kind: str, queries: list, docs: list) -> Path:
    path = folder / f"lists.{kind}"
    if kind == "parquet":
        pq.write_table(pa.table({"query": queries, "docs": docs, "score": [1.0] * len(queries)}), path)
    elif kind == "csv":
        rows = [
            f'{json.dumps(q)},"{json.dumps(d).replace(chr(34), chr(34) * 2)}"'
            for q, d in zip(queries, docs, strict=True)
        ]
        path.write_text("\n".join(["query,docs", *rows]) + "\n")
    else:
        rows = [json.dumps({"query": q, "docs": d}) for q, d in zip(queries, docs, strict=True)]
        path.write_text("\n".join(rows) + "\n")
    return path


def ids(lists: Rankings) -> list[tuple[object, list[object]]]:
    words = lists.vocabulary
    return [
        (words.query_ids[q], words.doc_ids[words.pair_doc[pair[shown]]].tolist())
        for q, pair, shown in zip(lists.query, lists.pair, lists.shown, strict=True)
    ]


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
def test_lists_come_as_they_stand(kind: str, tmp_path: Path) -> None:
    found = read_rankings(write(tmp_path, kind, QUERIES, DOCS))
    assert ids(found) == list(zip(QUERIES, DOCS, strict=True))
    assert found.vocabulary.n_pairs == 4


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
def test_integer_ids_stay_integers(kind: str, tmp_path: Path) -> None:
    found = read_rankings(write(tmp_path, kind, [7, 3], [[10, 9], [10]]))
    assert ids(found) == [(7, [10, 9]), (3, [10])]
    assert found.vocabulary.doc_ids.dtype.kind == "i"


def test_clicks_are_neither_needed_nor_read(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text('{"query": 1, "docs": [5, 6], "clicks": "nonsense"}\n')
    assert ids(read_rankings(tmp_path / "log.jsonl")) == [(1, [5, 6])]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"query": 1, "docs": []}', "row 2: docs must be a list with one item or more"),
        ('{"query": 1, "docs": null}', "row 2: docs must be a list with one item or more"),
        ('{"query": 1, "docs": [4, null]}', "row 2: docs must not have missing items"),
        (
            '{"query": 1, "docs": [4, 5, 4]}',
            "row 2: a document must stand once in a list: got 4 at rank 1 and at rank 3",
        ),
        ('{"query": null, "docs": [4]}', "row 2: query must be an integer or text"),
        ("{not json", "line 2"),
    ],
)
def test_a_bad_list_is_named_or_skipped(line: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "lists.jsonl"
    path.write_text('{"query": 1, "docs": [1, 2]}\n' + line + "\n")
    with pytest.raises(FileError, match=message):
        read_rankings(path)
    with pytest.warns(ClickshiftWarning, match="skipped 1 "):
        assert ids(read_rankings(path, on_bad_line="skip")) == [(1, [1, 2])]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("lists.csv", "query,results\n1,2\n", "query and docs .*: docs not found; the file has query, results"),
        ("lists.csv", "query,docs,docs\n1,2,3\n", "docs stands twice"),
        ("lists.csv", "query,docs\n", "has no rows"),
        ("lists.csv", "", "is empty"),
        ("lists.parquet", "query,docs\n", "cannot be read as Parquet"),
        ("lists.txt", "query,docs\n", "the ending of a log file must be one of"),
    ],
)
def test_a_bad_file_is_one_error(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(FileError, match=message):
        read_rankings(tmp_path / name)


def test_lists_of_different_lengths_are_padded(tmp_path: Path) -> None:
    found = read_rankings(write(tmp_path, "parquet", QUERIES, DOCS))
    assert found.shown.tolist() == [[True, True, True], [True, False, False], [True, True, False]]
    assert (found.pair[~found.shown] == -1).all()
    assert np.isin(found.pair[found.shown], np.arange(4)).all()
