"""What a ranker would show is read from each kind of table; what is wrong with one is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clickshift.data.sessions import Rankings
from clickshift.data.vocabulary import Vocabulary
from clickshift.data.weighted_lists import WeightedLists
from clickshift.errors import FileError
from clickshift.io.pair_values import PairValues
from clickshift.io.tables import formats
from clickshift.io.target_files import read_target, write_target
from tests.codes import raises_code, warns_of_conflicting_labels


def rows_of(path: Path) -> list[tuple[object, list[object], float]]:
    policy = read_target(path)
    assert isinstance(policy, WeightedLists)
    lists, words = policy.lists, policy.vocabulary
    return [
        (
            words.query_ids[q],
            words.doc_ids[words.pair_doc[pair[shown]]].tolist(),
            float(policy.weight[i]),
        )
        for i, (q, pair, shown) in enumerate(zip(lists.query, lists.pair, lists.shown, strict=True))
    ]


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
def test_lists_without_weights(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"target.{kind}"
    if kind == "parquet":
        pq.write_table(pa.table({"query": ["q", "r"], "docs": [["a", "b"], ["c"]]}), path)
    elif kind == "csv":
        path.write_text("query,docs\nq,a b\nr,c\n")
    else:
        path.write_text('{"query": "q", "docs": ["a", "b"]}\n{"query": "r", "docs": ["c"]}\n')
    assert rows_of(path) == [("q", ["a", "b"], 1.0), ("r", ["c"], 1.0)]


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
@pytest.mark.parametrize("text", [False, True])
def test_weighted_lists_are_read_as_they_were_written(kind: str, text: bool, tmp_path: Path) -> None:
    query, docs = [3, 3, 8], [[5, 9, 7], [9], [5, 7]]
    if text:
        query, docs = [f"q,{q}" for q in query], [[f'"{d}" ü' for d in row] for row in docs]
    owner = [q for q, row in zip(query, docs, strict=True) for _ in row]
    words, number, pair = Vocabulary.of(owner, [d for row in docs for d in row])
    places = np.array([[*pair[:3]], [pair[3], -1, -1], [*pair[4:], -1]])
    lists = Rankings(words, number[[0, 3, 4]], places)
    path, weight = tmp_path / f"target.{kind}", np.array([0.1, 0.9, 1.0])
    write_target(path, WeightedLists(lists, weight))
    assert rows_of(path) == list(zip(query, docs, weight.tolist(), strict=True))


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
def test_holes_of_a_target_are_written_and_read(kind: str, tmp_path: Path) -> None:
    words, number, pair = Vocabulary.of(["q", "q", "r"], [7, 8, 9])
    lists = Rankings(
        words, number[[0, 0, 2]], np.array([[-1, pair[0], -1, pair[1]], [pair[1], *[-1] * 3], [pair[2], *[-1] * 3]])
    )
    write_target(tmp_path / f"t.{kind}", WeightedLists(lists, np.array([0.25, 0.75, 1.0])))
    found = read_target(tmp_path / f"t.{kind}")
    assert isinstance(found, WeightedLists)
    assert found.lists.shown.tolist() == lists.shown.tolist()
    assert found.lists.in_vocabulary(words).pair.tolist() == lists.pair.tolist()


def test_frames_are_read_like_files() -> None:
    lists = pd.DataFrame({"query": ["q", "q"], "docs": [["a", "b"], ["b"]], "weight": [0.25, 0.75]})
    for frame in (lists, pl.from_pandas(lists), pa.Table.from_pandas(lists)):
        policy = read_target(frame)
        assert isinstance(policy, WeightedLists)
        assert policy.lists.length.tolist() == [2, 1]
        assert policy.weight.tolist() == [0.25, 0.75]
    with raises_code("weights-do-not-sum-to-one", FileError, query="q", value=0.25, count=1):
        read_target(lists[:1])


def test_a_file_is_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t.csv").write_text("query,docs,weight\nq,a b,1\n")
    opened: list[Path] = []
    read = formats.open_bytes
    monkeypatch.setattr(formats, "open_bytes", lambda path: opened.append(path) or read(path))
    read_target(tmp_path / "t.csv")
    assert len(opened) == 1


def test_scores(tmp_path: Path) -> None:
    path = tmp_path / "scores.csv"
    path.write_text("doc,score,query,note\n7,0.5,2,x\n4,-1,2,x\n7,3,1,x\n")
    found = read_target(path)
    assert isinstance(found, PairValues)
    words, score = found.vocabulary, found.value
    pairs = zip(words.query_ids[words.pair_query], words.doc_ids[words.pair_doc], score, strict=True)
    assert sorted(pairs) == [(1, 7, 3.0), (2, 4, -1.0), (2, 7, 0.5)]


def test_a_pair_with_two_scores_is_left_out_and_told(tmp_path: Path) -> None:
    path = tmp_path / "scores.csv"
    path.write_text("query,doc,score\n1,7,1\n1,7,2\n1,8,3\n")
    with warns_of_conflicting_labels("1", "7", (1.0, 2.0), total=2):
        found = read_target(path)
    assert isinstance(found, PairValues)
    assert found.vocabulary.doc_ids.tolist() == [8]
    assert found.value.tolist() == [3.0]


@pytest.mark.parametrize(
    ("name", "text", "code", "facts"),
    [
        ("t.csv", "query,doc\n1,2\n", "missing-column", {"known": ["query", "doc"]}),
        ("t.csv", "query,docs,weight\n1,5 6,\n", "missing-value", {"column": "weight", "row": 1, "count": 1}),
        ("t.csv", "query,docs,weight\n1,5 6,much\n", "missing-value", {"column": "weight", "row": 1, "count": 1}),
        (
            "t.csv",
            "query,docs,weight\n1,5 6 5,1\n",
            "duplicate-document",
            {"document": "5", "ranks": (1, 3), "row": 1, "count": 1},
        ),
        (
            "t.csv",
            "query,docs\n1,5 6 5\n",
            "duplicate-document",
            {"document": "5", "ranks": (1, 3), "row": 1, "count": 1},
        ),
        ("t.csv", "query,doc,score\n1,5,inf\n", "not-finite", {"query": "1", "document": "5", "value": np.inf}),
        ("t.csv", "query,doc,score\n1,5,\n", "missing-value", {"column": "score", "row": 1, "count": 1}),
        ("t.csv", "", "empty-file", {}),
        ("t.csv", "query,docs,weight\n", "empty-file", {}),
        ("t.jsonl", '{"query": 1, "docs": [2], "weight": 1}\n{oops\n', "unreadable-line", {"count": 1, "line": 2}),
        ("missing.parquet", None, "file-not-found", {}),
    ],
)
def test_slips(name: str, text: str | None, code: str, facts: dict[str, Any], tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with raises_code(code, FileError, **facts):
        read_target(tmp_path / name)


def test_a_table_of_rankings_may_hold_scores_too(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text(json.dumps({"query": 1, "docs": [2, 3], "doc": 9, "score": 1.0}) + "\n")
    assert rows_of(tmp_path / "t.jsonl") == [(1, [2, 3], 1.0)]


@pytest.mark.parametrize("kind", ["parquet", "csv", "frame"])
def test_two_columns_of_one_name_are_refused(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"target.{kind}"
    table = pa.table([pa.array([1]), pa.array([2]), pa.array([0.5]), pa.array([3])], ["query", "doc", "score", "doc"])
    if kind == "parquet":
        pq.write_table(table, path)
    elif kind == "csv":
        path.write_text("query,doc,score,doc\n1,2,0.5,3\n")
    with raises_code("duplicate-column", FileError, column="doc"):
        read_target(table if kind == "frame" else path)
