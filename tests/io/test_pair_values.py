"""Tables of one number per query and document."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clickshift import Vocabulary
from clickshift.errors import FileError
from clickshift.io.pair_values import read_pair_values
from tests.codes import raises_code, warns_of_conflicting_labels


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_numbers_find_their_pairs(tmp_path: Path) -> None:
    found = read_pair_values(written(tmp_path / "s.csv", "query,doc,score,other\ncats,7,0.5,x\ndogs,7,-2,y\n"))
    words, _, _ = Vocabulary.of(["cats", "dogs", "dogs"], [7, 7, 8])
    assert found.values_for(words)[:2].tolist() == [0.5, -2.0]
    assert str(found.values_for(words)[2]) == "nan"


def test_other_columns_and_formats(tmp_path: Path) -> None:
    lines = '{"query": 1, "doc": 2, "label": 3}\n'
    assert read_pair_values(written(tmp_path / "s.jsonl", lines), "label").value.tolist() == [3.0]


def test_two_values_of_a_pair_are_none(tmp_path: Path) -> None:
    path = written(tmp_path / "s.csv", "query,doc,score\n1,2,3\n1,2,4\n1,3,1\n")
    with warns_of_conflicting_labels("1", "2", (3.0, 4.0), total=2):
        assert len(read_pair_values(path)) == 1


@pytest.mark.parametrize(
    ("text", "code", "facts"),
    [
        ("query,doc\n1,2\n", "missing-column", {"columns": ["score"], "known": ["query", "doc"]}),
        ("query,doc,score\n", "empty-file", {}),
        ("query,doc,score\n1,2,\n1,3,4\n", "missing-value", {"column": "score", "row": 1, "count": 1}),
        ("query,doc,score\n1,2,good\n1,3,4\n", "missing-value", {"column": "score", "row": 1, "count": 1}),
    ],
)
def test_bad_tables(tmp_path: Path, text: str, code: str, facts: dict[str, Any]) -> None:
    with raises_code(code, FileError, **facts):
        read_pair_values(written(tmp_path / "s.csv", text))
