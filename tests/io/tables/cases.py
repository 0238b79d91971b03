"""Logs by hand and by chance, for the tests of tables."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st

from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import UNSEEN, Vocabulary

ENDINGS = [".parquet", ".csv", ".csv.gz", ".tsv", ".jsonl", ".jsonl.gz", ".ndjson"]


def sessions_of(
    queries: Sequence[Any], docs: Sequence[Sequence[Any]], clicks: Sequence[Sequence[int]], **options: Any
) -> Sessions:
    """Sessions by hand, not by the reader."""
    options = {name: value for name, value in options.items() if value is not None}
    log_prob = options.pop("log_prob", None)
    flat_queries = [query for query, row in zip(queries, docs, strict=True) for _ in row]
    vocabulary, _, pair = Vocabulary.of(flat_queries, [doc for row in docs for doc in row])
    shown = np.arange(max(map(len, docs))) < np.array([len(row) for row in docs])[:, None]
    pairs, click = np.full(shown.shape, UNSEEN, np.int32), np.zeros(shown.shape, bool)
    pairs[shown] = pair
    click[shown] = [one for row in clicks for one in row]
    query = vocabulary.query_numbers(list(queries))
    return Sessions(Rankings(vocabulary, query, pairs, shown, log_prob), click, **options)


def raw(sessions: Sessions) -> dict[str, list[Any]]:
    """Everything that a log says, in raw ids."""
    rankings, words = sessions.rankings, sessions.vocabulary
    docs = words.doc_ids[words.pair_doc[rankings.pair]]
    rows = range(len(sessions))
    return {
        "query": words.query_ids[rankings.query].tolist(),
        "docs": [docs[row][rankings.shown[row]].tolist() for row in rows],
        "clicks": [sessions.click[row][rankings.shown[row]].tolist() for row in rows],
        "count": sessions.count.tolist(),
        "user": [] if sessions.user is None else sessions.user.tolist(),
    }


def assert_same(found: Sessions, expected: Sessions) -> None:
    assert raw(found) == raw(expected)
    assert found.vocabulary.fingerprint == expected.vocabulary.fingerprint
    for one, other in ((found.time, expected.time), (found.rankings.log_prob, expected.rankings.log_prob)):
        assert (one is None) == (other is None)
    if expected.time is not None:
        assert (found.time.dtype.kind == "M") == (expected.time.dtype.kind == "M")
        np.testing.assert_array_equal(found.time, expected.time)
    if expected.rankings.log_prob is not None:
        np.testing.assert_allclose(found.rankings.log_prob, expected.rankings.log_prob, rtol=1e-12, atol=1e-12)


text_ids = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6) | st.sampled_from(
    [
        "",
        "7",
        "007",
        '"',
        "'",
        "a\nb",
        "\r\n",
        "\r",
        ",",
        "\t",
        "[1]",
        " ",
        "null",
        "NA",
        "nan",
        "true",
        "🐈",
        "2020-01-01",
    ]
)
number_ids = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 30)


@st.composite
def logs(draw: st.DrawFn) -> dict[str, Any]:
    """What `sessions_of` takes: checks of its arguments' types draw random numbers, which a strategy must not."""
    query_ids, doc_ids, user_ids = (draw(st.sampled_from([text_ids, number_ids])) for _ in range(3))
    n = draw(st.integers(1, 5))
    docs = [draw(st.lists(doc_ids, min_size=1, max_size=4, unique=True)) for _ in range(n)]

    def some(values: st.SearchStrategy[Any]) -> np.ndarray | None:
        return np.array([draw(values) for _ in range(n)]) if draw(st.booleans()) else None

    instant = st.datetimes(min_value=datetime(1900, 1, 1), max_value=datetime(2200, 1, 1))
    time = draw(
        st.sampled_from(
            [
                some(st.integers(-(2**63), 2**63 - 1)),
                some(st.floats(allow_nan=False, allow_infinity=False)),
                some(instant.map(lambda when: np.datetime64(when, "us"))),
                some(instant.map(lambda when: np.datetime64(when, "D"))),
                some(instant.map(lambda when: np.datetime64(when, "s"))),
            ]
        )
    )
    return dict(
        queries=[draw(query_ids) for _ in range(n)],
        docs=docs,
        clicks=[[draw(st.integers(0, 1)) for _ in row] for row in docs],
        count=some(st.integers(1, 10**12)),
        time=time,
        user=some(user_ids),
        log_prob=some(st.floats(-2000, 0) | st.floats(-20, 0)),
    )


def save(path: Path, columns: dict[str, list[Any]]) -> Path:
    """A table written without our writer: None is null in Parquet and JSON, and nothing between the commas in CSV."""
    if path.suffix == ".parquet":
        pq.write_table(pa.table(columns), path)
    elif path.suffix == ".jsonl":
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            for row in zip(*columns.values(), strict=True):
                writer.writerow([json.dumps(value) if isinstance(value, list) else value for value in row])
    return path


WIDE = {"query": ["a", "a", "b"], "docs": [[1, 2], [2, 3], [1]], "clicks": [[1, 0], [0, 0], [1]]}
LONG = {
    "session": ["x", "x", "y", "y", "z"],
    "query": ["a", "a", "a", "a", "b"],
    "rank": [1, 2, 1, 2, 1],
    "doc": [1, 2, 2, 3, 1],
    "click": [1, 0, 0, 0, 1],
}
EXPECTED = sessions_of(*WIDE.values())
every_format = pytest.mark.parametrize("ending", [".parquet", ".csv", ".jsonl"])
