"""Lists without clicks are read from every format; what is wrong with one is said with its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clickshift.data.sessions import Rankings
from clickshift.errors import FileError
from clickshift.io.rankings import read_rankings
from clickshift.io.tables.formats import LOG_ENDINGS
from tests.codes import raises_code, warns_code

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


def test_a_missing_document_is_a_hole(tmp_path: Path) -> None:
    (tmp_path / "lists.jsonl").write_text('{"query": 1, "docs": [null, 6, null, 5, null]}\n')
    lists = read_rankings(tmp_path / "lists.jsonl")
    assert lists.shown.tolist() == [[False, True, False, True]], "nothing is known below the last document"
    assert lists.vocabulary.doc_ids[lists.vocabulary.pair_doc[lists.pair[lists.shown]]].tolist() == [6, 5]


@pytest.mark.parametrize(
    ("line", "code", "facts"),
    [
        ('{"query": 1, "docs": []}', "empty-list", {"column": "docs", "value": "[]", "row": 2, "count": 1}),
        ('{"query": 1, "docs": null}', "empty-list", {"column": "docs", "value": "nothing", "row": 2, "count": 1}),
        ('{"query": 1, "docs": [null]}', "empty-list", {"column": "docs", "value": "[None]", "row": 2, "count": 1}),
        (
            '{"query": 1, "docs": [4, 5, 4]}',
            "duplicate-document",
            {"document": "4", "ranks": (1, 3), "row": 2, "count": 1},
        ),
        (
            '{"query": null, "docs": [4]}',
            "missing-value",
            {"column": "query", "value": "nothing", "row": 2, "count": 1},
        ),
        ("{not json", "unreadable-line", {"count": 1, "line": 2}),
    ],
)
def test_a_bad_list_is_named_or_skipped(line: str, code: str, facts: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "lists.jsonl"
    path.write_text('{"query": 1, "docs": [1, 2]}\n' + line + "\n")
    with raises_code(code, FileError, **facts):
        read_rankings(path)
    skipped = {"unreadable_lines": 1} if code == "unreadable-line" else {"count": 1, "total": 2, "rule": code}
    with warns_code("skipped-sessions", **skipped):
        assert ids(read_rankings(path, on_bad_line="skip")) == [(1, [1, 2])]


@pytest.mark.parametrize(
    ("name", "text", "code", "facts"),
    [
        ("lists.csv", "query,shown\n1,2\n", "missing-column", {"columns": ["docs"], "known": ["query", "shown"]}),
        ("lists.csv", "query,docs,docs\n1,2,3\n", "duplicate-column", {"column": "docs"}),
        ("lists.csv", "query,docs\n", "empty-file", {}),
        ("lists.csv", "", "empty-file", {}),
        ("lists.parquet", "query,docs\n", "damaged-file", {"format": "Parquet"}),
        ("lists.txt", "query,docs\n", "unknown-format", {"known": list(LOG_ENDINGS)}),
    ],
)
def test_a_bad_file_is_one_error(name: str, text: str, code: str, facts: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with raises_code(code, FileError, **facts):
        read_rankings(tmp_path / name)


def test_lists_of_different_lengths_are_padded(tmp_path: Path) -> None:
    found = read_rankings(write(tmp_path, "parquet", QUERIES, DOCS))
    assert found.shown.tolist() == [[True, True, True], [True, False, False], [True, True, False]]
    assert (found.pair[~found.shown] == -1).all()
    assert np.isin(found.pair[found.shown], np.arange(4)).all()
