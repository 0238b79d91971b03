"""A small log of every kind: ids of text or numbers, one row per list or per result; and its counts by hand."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clickshift.counts.cells import By, Cells, rank_of
from clickshift.data.sessions import Sessions
from clickshift.io.read_log import read_log

Rows = list[dict[str, Any]]
Counts = Counter[tuple[Any, ...]]

LISTS, RANKS, QUERIES, DOCS = 600, 6, 12, 9


def make_rows(ids: str, *, seed: int = 7) -> Rows:
    """Lists of 1 to 6 results with few clicks, each of which stands for 1 to 3 sessions."""
    rng = np.random.default_rng(seed)
    rows: Rows = []
    for _ in range(LISTS):
        query, length = int(rng.integers(QUERIES)), int(rng.integers(1, RANKS + 1))
        docs = rng.permutation(DOCS)[:length].tolist()
        if ids == "text":  # beyond ASCII, and not in the order of numbers
            row: dict[str, Any] = {"query": f"süß {query}", "docs": [f"d'{doc * 37 % 100}" for doc in docs]}
        else:
            row = {"query": query - 3, "docs": [doc * (1 << 40) for doc in docs]}
        row["clicks"] = (rng.random(length) < 0.3).astype(int).tolist()
        rows.append(row | {"count": int(rng.integers(1, 4))})
    return rows


def with_holes(rows: Rows) -> Rows:
    """The same lists with holes in place of a quarter of their results; the last item of a list may be one, too."""
    rng, holed = np.random.default_rng(11), []
    for row in rows:
        kept = rng.random(len(row["docs"])) > 0.25
        kept[rng.integers(len(kept))] = True
        docs = [doc if there else None for doc, there in zip(row["docs"], kept, strict=True)]
        empty = rng.choice([0, None], len(kept))  # of a hole, the click is 0 or missing
        clicks = [click if there else no for click, there, no in zip(row["clicks"], kept, empty, strict=True)]
        holed.append(row | {"docs": docs, "clicks": clicks})
    return holed


def with_views(rows: Rows) -> Rows:
    """The same lists, with which results were viewed: unknown of a third of them, and of all of some lists."""
    rng, seen = np.random.default_rng(12), []
    for k, row in enumerate(rows):
        viewed = [None if rng.random() < 0.3 else float(rng.random() < 0.5) for _ in row["docs"]]
        known = [0.0 if doc is None and view else view for doc, view in zip(row["docs"], viewed, strict=True)]
        seen.append(row | {"viewed": [None] * len(known) if k % 7 == 3 else known})
    return seen


def in_long(rows: Rows) -> Rows:
    """One row per result, in no order."""
    results = [
        {"session": f"s{i}", "query": row["query"], "rank": rank, "doc": doc, "click": click}
        | ({"count": row["count"]} if "count" in row else {})
        | ({"viewed": row["viewed"][rank - 1]} if "viewed" in row else {})
        for i, row in enumerate(rows)
        for rank, (doc, click) in enumerate(zip(row["docs"], row["clicks"], strict=True), start=1)
        if doc is not None
    ]
    return [results[i] for i in np.random.default_rng(3).permutation(len(results))]


def in_layout(rows: Rows, layout: str) -> Rows:
    return in_long(rows) if layout == "long" else rows


def in_memory(rows: Rows, folder: Path) -> Sessions:
    """The same log as everybody else reads it."""
    path = folder / "log.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path)
    return read_log(path)


def by_hand(rows: Rows, by: By) -> tuple[Counts, Counts]:
    """Impressions and clicks by query, document, rank and what was clicked above."""
    impressions: Counts = Counter()
    clicks: Counts = Counter()
    for row in rows:
        above: tuple[int, ...] = ()
        for rank, (doc, click) in enumerate(zip(row["docs"], row["clicks"], strict=True)):
            if doc is None:
                continue
            seen = {"rank": (), "last_click": above[-1:], "prefix": above}[by]
            impressions[row["query"], doc, rank, seen] += row.get("count", 1)
            clicks[row["query"], doc, rank, seen] += click * row.get("count", 1)
            above += (rank,) * click
    return impressions, clicks


def spelled_out(cells: Cells) -> tuple[Counts, Counts]:
    """Cells in the same form."""
    words, rank = cells.vocabulary, rank_of(cells.by, cells.n_ranks)
    starts = {"rank": lambda r: r, "last_click": lambda r: r * (r + 1) // 2, "prefix": lambda r: 2**r - 1}
    impressions: Counts = Counter()
    clicks: Counts = Counter()
    for pair, situation, shown, clicked in zip(
        cells.pair.tolist(), cells.situation.tolist(), cells.impressions, cells.clicks, strict=True
    ):
        r = int(rank[situation])
        code = situation - starts[cells.by](r)
        seen = tuple(j for j in range(r) if code >> j & 1) if cells.by == "prefix" else (code - 1,) * (code > 0)
        key = (words.query_ids[words.pair_query[pair]], words.doc_ids[words.pair_doc[pair]], r, seen)
        impressions[key] += int(shown)
        clicks[key] += int(clicked)
    return impressions, clicks


def assert_same_views(one: Cells, other: Cells) -> None:
    """Of a log with views: they are counted alike, and some of each kind."""
    assert_same_cells(one, other)
    assert one.views is not None
    assert other.views is not None
    for counted, expected in zip(one.views, other.views, strict=True):
        assert np.array_equal(counted, expected)
        assert np.sum(expected) > 0


def assert_same_cells(one: Cells, other: Cells) -> None:
    assert one.vocabulary.same_as(other.vocabulary)
    assert (one.by, one.n_ranks) == (other.by, other.n_ranks)
    for name in ("pair", "situation", "impressions", "clicks"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "no query": ({"query": None}, "query must not be missing"),
    "a click on a hole": ({"docs": ["d'0", None]}, "a click must be on a document"),
    "holes only": ({"docs": [None, None], "clicks": [0, 0]}, "a list must have a document"),
    "no lists": ({"docs": None}, "equal length"),
    "empty": ({"docs": [], "clicks": []}, "one or more items"),
    "too many clicks": ({"clicks": [0, 1, 0]}, "equal length"),
    "two clicks": ({"clicks": [0, 2]}, "a click must be 0 or 1"),
    "no click": ({"clicks": [0, None]}, "a click must be 0 or 1"),
    "twice": ({"docs": ["d'0", "d'0"]}, "a document must appear once"),
    "never": ({"count": 0}, "count must be 1, 2, 3"),
    "unknown count": ({"count": None}, "count must be 1, 2, 3"),
}
"""What may be wrong with a row of a wide log, and what is said of it."""

BROKEN_RESULTS: dict[str, tuple[dict[str, Any], str]] = {
    "no session": ({"session": None}, "session must not be missing"),
    "no query": ({"query": None}, "query must not be missing"),
    "two queries": ({"query": "other"}, "query must be the same in all rows of a session"),
    "no document": ({"doc": None}, "doc must not be missing"),
    "from 0": ({"rank": 0}, "ranks must be from 1 to 100,000, each once"),
    "too low a rank": ({"rank": 100_001}, "ranks must be from 1 to 100,000, each once"),
    "a rank twice": ({"rank": 1}, "ranks must be from 1 to 100,000, each once"),
    "no rank": ({"rank": None}, "rank must not be missing"),
    "two clicks": ({"click": 2}, "a click must be 0 or 1"),
    "no click": ({"click": None}, "a click must be 0 or 1"),
    "two counts": ({"count": 7}, "count must be the same in all rows of a session"),
}
"""And with one of a long log: the second result of a list."""


def broken_rows(change: dict[str, Any]) -> Rows:
    """Two good lists and, twice, a bad one."""
    good = {"query": "q", "docs": ["d'1", "d'0"], "clicks": [0, 1], "count": 2}
    return [good, good | change, good, good | change]


def broken_results(change: dict[str, Any]) -> Rows:
    rows = in_long([{"query": "q", "docs": ["d'1", "d'0"], "clicks": [0, 1], "count": 2}] * 3)
    return [row | change if row["session"] == "s1" and row["rank"] == 2 else row for row in rows]


each_kind_of_ids = pytest.mark.parametrize("ids", ["text", "integers"])
each_layout = pytest.mark.parametrize("layout", ["wide", "long"])
