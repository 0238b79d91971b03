"""Limits of readers: a line, a nesting or a number of columns that no log has is one error in every reader."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import clickshift as cs
from clickshift.counts.open_log import open_log
from clickshift.errors import ClickshiftError, FileError
from clickshift.io.datasets.letor import read_corpus
from clickshift.io.datasets.trec import read_trec, read_trec_relevance
from clickshift.io.datasets.yandex import read_kaggle, read_relevance, read_sample, read_wscd
from clickshift.io.pair_values import read_pair_values
from clickshift.io.qrels import read_qrels
from clickshift.io.rankings import read_rankings
from clickshift.io.target_files import read_target
from clickshift.propensity.files import read_propensities
from tests.codes import raises_code

ROW = {"query": "q", "docs": ["a", "b"], "clicks": [1, 0]}
READERS: list[tuple[Callable[..., Any], str]] = [
    *((cs.read_log, ending) for ending in (".jsonl.gz", ".csv.gz", ".tsv.gz", ".ndjson.gz")),
    *((read_target, ending) for ending in (".jsonl.gz", ".csv.gz")),
    *((read_pair_values, ending) for ending in (".jsonl.gz", ".csv.gz")),
    (read_rankings, ".jsonl.gz"),
    *((reader, ".txt.gz") for reader in (read_qrels, read_trec, read_trec_relevance, read_corpus)),
    *((reader, ".gz") for reader in (read_kaggle, read_relevance, read_sample, read_wscd)),
    (read_propensities, ".json"),
]


@pytest.fixture(scope="module")
def bomb(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Seventeen kilobytes that unpack to one line of seventeen megabytes."""
    return gzip.compress(b"[" * (17 << 20))


@pytest.mark.parametrize(("reader", "ending"), READERS)
def test_a_line_without_end_is_refused_by_every_reader(
    reader: Callable[..., Any], ending: str, bomb: bytes, tmp_path: Path
) -> None:
    path = tmp_path / f"file{ending}"
    path.write_bytes(bomb)
    with raises_code("line-too-long", FileError, limit=1 << 24):
        reader(path)


@pytest.mark.parametrize("head", [0, 300])
@pytest.mark.parametrize("depth", [101, 900, 200_000])
@pytest.mark.parametrize("column", ["docs", "extra"])
def test_deep_json_is_a_bad_line(column: str, depth: int, head: int, tmp_path: Path) -> None:
    """Also below the lines from which columns are inferred, where pyarrow's parser would end the process."""
    rows = [json.dumps(ROW)] * (head + 1)
    for opening, closing in ("[]", ('{"a": ', "}")):
        deep = opening * depth + "1" + closing * depth
        bad = json.dumps(ROW | {column: 0}).replace(f'"{column}": 0', f'"{column}": {deep}')
        (tmp_path / "log.jsonl").write_text("\n".join([*rows, bad]))
        with raises_code("unreadable-line", FileError, line=head + 2):
            cs.read_log(tmp_path / "log.jsonl")
        assert isinstance(_error(lambda: open_log(tmp_path / "log.jsonl", in_memory=False)), ClickshiftError)


def test_nested_texts_are_texts(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(json.dumps(ROW | {"query": "[" * 500 + '\\"{'}))
    assert cs.read_log(tmp_path / "log.jsonl").vocabulary.query_ids.tolist() == ["[" * 500 + '\\"{']


def test_a_table_has_a_limit_of_columns(tmp_path: Path) -> None:
    names = [f"column {k}" for k in range(10_001)]
    (tmp_path / "log.csv").write_text(",".join(names) + "\n" + ",".join("1" for _ in names))
    (tmp_path / "log.jsonl").write_text(json.dumps(ROW | dict.fromkeys(names, 1)))
    for file in ("log.csv", "log.jsonl"):
        with raises_code("too-many-columns", FileError, limit=10_000):
            cs.read_log(tmp_path / file)


def test_a_message_lists_few_columns(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(",".join(f"column {k}" for k in range(5000)) + "\n")
    with raises_code("missing-column", FileError) as caught:
        cs.read_log(tmp_path / "log.csv")
    assert len(str(caught.value)) < 2000


def _error(work: Callable[[], object]) -> Exception | None:
    try:
        work()
    except Exception as error:
        return error
    return None
