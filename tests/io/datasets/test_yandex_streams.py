"""Yandex logs that keep only what is asked for: on disk as in memory, and as a plain count of the pages says."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from clickshift.counts import open_log
from clickshift.counts.open_public_log import open_public_log
from clickshift.data.encoded_log import EncodedLog
from clickshift.data.sessions import Sessions
from clickshift.errors import FileError, SpecError
from clickshift.io.datasets import _yandex_parser as parser
from clickshift.io.datasets import _yandex_serps as serps
from clickshift.io.datasets.yandex import read_relevance
from tests.codes import raises_code, warns_code
from tests.io.datasets.test_yandex import kaggle_query, pages, wscd_query

PAGES = 400


def drawn_pages() -> list[tuple[int, int, list[int], list[int]]]:
    """Query, region, documents and clicked ones: some queries are frequent, some pages have no click."""
    rng = np.random.default_rng(5)
    drawn = []
    for _ in range(PAGES):
        query = int(12 * rng.random() ** 2)
        docs = (100 * query + rng.permutation(15)[:10]).tolist()
        drawn.append((query, int(rng.integers(2)), docs, [doc for doc in docs if rng.random() < 0.08]))
    return drawn


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("yandex")
    wscd, kaggle = [], []
    for number, (query, region, docs, clicked) in enumerate(drawn_pages()):
        wscd.append(wscd_query(number, query, region, docs) + "".join(f"{number}\t5\tC\t{doc}\n" for doc in clicked))
        kaggle.append(f"{number}\tM\t{number * 27 // PAGES}\t{number % 50}\n" + kaggle_query(number, 0, query, docs))
        kaggle.append("".join(f"{number}\t5\tC\t0\t{doc}\n" for doc in clicked))
    (path / "wscd.txt").write_text("".join(wscd))
    (path / "kaggle.txt").write_text("".join(kaggle))
    return path


def loaded(log: Sessions | EncodedLog) -> Sessions:
    return log if isinstance(log, Sessions) else log.sessions()


@pytest.mark.parametrize("merge_regions", [False, True])
@pytest.mark.parametrize("with_clicks", [False, True])
def test_a_log_on_disk_has_the_pages_that_are_asked_for(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, merge_regions: bool, with_clicks: bool
) -> None:
    monkeypatch.setattr(parser, "BLOCK", 2000)  # sessions cross the bounds of blocks
    monkeypatch.setattr(serps, "BATCH_ROWS", 64)
    names = [query if merge_regions else f"{query}_{region}" for query, region, _, _ in drawn_pages()]
    wanted = {3, 5, 7} if merge_regions else {"3_0", "5_1", "7_0"}
    expected = [
        (name, docs, [rank for rank, doc in enumerate(docs, 1) if doc in clicked], number)
        for number, (name, (_, _, docs, clicked)) in enumerate(zip(names, drawn_pages(), strict=True))
        if name in wanted and (clicked or not with_clicks)
    ]
    options = {"queries": wanted, "with_clicks": with_clicks, "merge_regions": merge_regions, "format": "yandex-wscd"}
    for output in (None, tmp_path / "encoded"):
        log = open_public_log([folder / "wscd.txt"], in_memory=output is None, output=output, **options)
        assert isinstance(log, Sessions if output is None else EncodedLog)
        found = loaded(log)
        assert found.time is not None
        assert [(*page, time) for page, time in zip(pages(found), found.time.tolist(), strict=True)] == expected
        assert found.vocabulary.n_queries == len({name for name, *_ in expected})


def test_the_most_frequent_queries_and_others_are_kept(folder: Path, tmp_path: Path) -> None:
    counted = Counter(query for query, *_ in drawn_pages())
    ranked = sorted(counted, key=lambda query: (-counted[query], query))
    for size in (1, 1 << 20):  # counted block by block, or all at once
        serps._LEAST_COUNTED, kept = size, serps._LEAST_COUNTED
        assert serps.most_frequent_queries([folder / "kaggle.txt"], 3, kaggle=True) == list(map(str, ranked[:3]))
        serps._LEAST_COUNTED = kept
    rare = ranked[-1]
    for output in (None, tmp_path / "encoded"):
        log = open_public_log(
            [folder / "kaggle.txt"], format="yandex-kaggle", most_frequent=3, queries=[rare], output=output
        )
        found = loaded(log)
        assert Counter(query for query, *_ in pages(found)) == {q: counted[q] for q in (*ranked[:3], rare)}
        days = [n * 27 // PAGES for n, (query, *_) in enumerate(drawn_pages()) if query in (*ranked[:3], rare)]
        assert found.time is not None
        assert found.time.tolist() == days


def test_times_go_on_in_the_next_file_and_a_large_log_is_encoded_once(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_log, "MEMORY_LIMIT", 0)
    lines = (folder / "wscd.txt").read_text().splitlines(keepends=True)
    cut = next(k for k, line in enumerate(lines) if line.startswith("200\t"))
    files = [tmp_path / "1.txt", tmp_path / "2.txt"]
    for file, part in zip(files, (lines[:cut], lines[cut:]), strict=True):
        file.write_text("".join(part))
    log = open_public_log(files, format="yandex-wscd")
    assert isinstance(log, EncodedLog)
    assert log.time is not None
    assert log.time.tolist() == list(range(PAGES))
    monkeypatch.setattr(serps, "kept_serps", None)  # it is not read again
    again = open_public_log(files, format="yandex-wscd")
    assert isinstance(again, EncodedLog)
    assert again.folder == log.folder


def test_labels_of_merged_regions(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("5\t1\t10\t1\n5\t2\t10\t0\n5\t2\t11\t1\n6\t1\t10\t0\n")
    with warns_code("skipped-input"):
        merged = read_relevance(tmp_path / "labels.txt", merge_regions=True)
    assert list(zip(merged.query.tolist(), merged.doc.tolist(), merged.label.tolist(), strict=True)) == [
        (5, 11, 1),
        (6, 10, 0),
    ]


def test_what_cannot_be_asked_for(folder: Path, tmp_path: Path) -> None:
    with raises_code("bad-option", SpecError, option="merge_regions"):
        open_public_log([folder / "kaggle.txt"], format="yandex-kaggle", merge_regions=True)
    with raises_code("bad-option", SpecError, option="format"):
        open_public_log([folder / "wscd.txt"], format="trec", most_frequent=3)
    with raises_code("empty-file", FileError):
        open_public_log([folder / "wscd.txt"], format="yandex-wscd", queries=["99_9"], output=tmp_path / "none")
    assert not (tmp_path / "none").exists()
