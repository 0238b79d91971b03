"""A log with holes, views, signals, a segment, arms and propensities by position is read back as it was written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from clickshift.data.sessions import Sessions
from clickshift.errors import DataError, FileError
from clickshift.io.read_log import read_log, write_log
from tests.codes import raises_code
from tests.full_logs import SEGMENTS, SIGNALS, content, full_log
from tests.io.tables.cases import WIDE, save

EXTRAS: dict[str, Any] = {"signals": SIGNALS, "segments": SEGMENTS}
ENDINGS = [".parquet", ".csv", ".tsv.gz", ".jsonl"]


@pytest.fixture(scope="module")
def log() -> Sessions:
    return full_log()


@pytest.mark.parametrize("layout", ["wide", "long"])
@pytest.mark.parametrize("ending", ENDINGS)
def test_files(tmp_path: Path, log: Sessions, ending: str, layout: Any) -> None:
    write_log(log, tmp_path / f"log{ending}", layout=layout)
    assert content(read_log(tmp_path / f"log{ending}", **EXTRAS)) == content(log)


@pytest.mark.parametrize("layout", ["wide", "long"])
@pytest.mark.parametrize("library", ["arrow", "pandas", "polars"])
def test_frames(log: Sessions, library: str, layout: Any) -> None:
    frame: Any = log.to_pandas(layout) if library == "pandas" else log.to_arrow(layout)
    frame = pl.from_arrow(frame) if library == "polars" else frame
    assert content(read_log(frame, **EXTRAS)) == content(log)


def test_rows_of_the_long_layout_come_in_any_order(log: Sessions) -> None:
    frame = log.to_pandas("long").sample(frac=1, random_state=3)
    first = frame["session"].drop_duplicates().to_numpy() - 1
    assert content(read_log(frame, **EXTRAS)) == content(log[first])


def test_signals_and_segments_are_read_only_if_they_are_named(log: Sessions) -> None:
    plain = read_log(log.to_arrow())
    assert list(plain.signals) == ["viewed"]
    assert list(plain.segments) == ["arm"]
    bare = read_log(log.to_arrow(), columns={"viewed": "", "arm": "", "propensity_at_rank": ""})
    assert not bare.signals
    assert not bare.segments
    assert bare.rankings.propensity is None


def test_columns_may_have_other_names() -> None:
    frame = _renamed(full_log(20).to_arrow("long"))
    columns = {"signal:cart": "added", "viewed": "seen", "segment:device": "ua"}
    assert content(read_log(frame, columns=columns, signals=["revenue"])) == content(full_log(20))


def _renamed(table: pa.Table) -> pa.Table:
    names = {"cart": "added", "viewed": "seen", "device": "ua", "propensity_at_rank": "pscore"}
    return table.rename_columns([names.get(name, name) for name in table.column_names])


def test_signals_that_are_zero_or_one_are_bits() -> None:
    log = read_log(pa.table(WIDE | {"viewed": [[1, 1], [0, 1], [1]]}))
    assert log.viewed is not None
    assert log.viewed.dtype == bool
    assert log.viewed.tolist() == [[True, True], [False, True], [True, False]]


def test_a_hole_is_a_missing_document_or_a_missing_rank() -> None:
    wide = pa.table({"query": ["a"], "docs": [[None, 5, None, 7, None]], "clicks": [[0, 1, None, 0, 0]]})
    long = pa.table({"session": [1, 1], "query": ["a"] * 2, "rank": [4, 2], "doc": [7, 5], "click": [0, 1]})
    for log in (read_log(wide), read_log(long)):
        assert log.rankings.shown[:, :4].tolist() == [[False, True, False, True]]
        assert log.click[:, :4].tolist() == [[False, True, False, False]]
        assert log.rankings.length.tolist() == [4]
        assert log.n_ranks == 4


BAD: list[tuple[dict[str, Any], str, dict[str, Any]]] = [
    ({"docs": [[1, 2], [None, None], [1]]}, "empty-list", {"column": "docs", "row": 2}),
    ({"docs": [[1, 2], [2, None], [1]], "clicks": [[1, 0], [0, 1], [1]]}, "click-without-document", {"row": 2}),
    ({"viewed": [[1, 0], [1, 2], [1]]}, "not-zero-or-one", {"column": "viewed", "value": "[1, 2]", "row": 2}),
    ({"viewed": [[1, 0], [1], [1]]}, "unequal-lengths", {"docs": 2, "viewed": 1, "row": 2}),
    ({"docs": [[1, 2], [2, None], [1]], "viewed": [[1, 0], [1, 1], [1]]}, "signal-without-document", {"row": 2}),
    ({"signal:pay": [[1, 0], [1, -2.5], [1]]}, "bad-signal", {"column": "signal:pay", "row": 2}),
    ({"signal:pay": [["1", "0"], ["1", "x"], ["1"]]}, "not-a-number", {"column": "signal:pay", "row": 2}),
    ({"propensity_at_rank": [[1, 0.5], [1, 0], [1]]}, "not-a-probability", {"row": 2}),
    ({"propensity_at_rank": [[1, 0.5], [1, 1.5], [1]]}, "not-a-probability", {"row": 2}),
    ({"propensity_at_rank": [[1, 0.5], [1, None], [1]]}, "not-a-probability", {"row": 2}),
]


@pytest.mark.parametrize(("change", "code", "facts"), BAD)
def test_bad_values_are_named_or_dropped(change: dict[str, Any], code: str, facts: dict[str, Any]) -> None:
    table = pa.table({name.removeprefix("signal:"): values for name, values in (WIDE | change).items()})
    signals = ["pay"] if "signal:pay" in change else []
    with raises_code(code, FileError, count=1, **facts):
        read_log(table, signals=signals)
    with pytest.warns(match="skipped 1 of 3 sessions"):
        assert len(read_log(table, signals=signals, on_bad_line="skip")) == 2


LONG_BAD: list[tuple[dict[str, Any], str]] = [
    ({"rank": [1, 1]}, "bad-ranks"),
    ({"rank": [0, 1]}, "bad-ranks"),
    ({"rank": [-1, 1]}, "bad-ranks"),
    ({"rank": [1, 100_001]}, "bad-ranks"),
    ({"doc": [5, 5]}, "duplicate-document"),
    ({"rank": [1, 9], "doc": [5, 5]}, "duplicate-document"),
    ({"viewed": [0, 2]}, "not-zero-or-one"),
    ({"pay": [0, -1]}, "bad-signal"),
    ({"pay": ["0", "x"]}, "not-a-number"),
    ({"pscore": [0, 1]}, "not-a-probability"),
    ({"arm": ["a", "b"]}, "inconsistent-session"),
    ({"arm": ["a", None]}, "inconsistent-session"),
]


@pytest.mark.parametrize(("change", "code"), LONG_BAD)
def test_bad_results_are_named_or_dropped(change: dict[str, Any], code: str) -> None:
    good = {"session": [1, 1], "query": ["a"] * 2, "rank": [2, 1], "doc": [7, 5], "click": [0, 1]}
    other = {"session": [2], "query": ["a"], "rank": [1], "doc": [7], "click": [0]}
    rows = {name: values + other.get(name, values[:1]) for name, values in (good | change).items()}
    if change == {"pscore": [0, 1]}:
        rows["pscore"] = [0, 1, 1]
    signals = ["pay"] if "pay" in change else []
    with raises_code(code, FileError, count=1, session="1"):
        read_log(pa.table(rows), signals=signals)
    with pytest.warns(match="skipped 1 of 2 sessions"):
        assert len(read_log(pa.table(rows), signals=signals, on_bad_line="skip")) == 1


def test_names_and_numbers_of_columns_are_checked() -> None:
    table = pa.table(WIDE)
    with raises_code("bad-column-name", DataError, value="docs"):
        read_log(table, signals=["docs"])
    with raises_code("bad-option", DataError, option="signals"):
        read_log(table, signals="cart")
    with raises_code("unknown-column", FileError, column="cart"):
        read_log(table, signals=["cart"])
    with raises_code("bad-column-name", DataError, value="x"):
        read_log(table.append_column("x", pa.array([1, 2, 3])), signals=["x"], segments=["x"])
    many = {"query": np.arange(1001), "docs": [[1]] * 1001, "clicks": [[0]] * 1001, "ua": np.arange(1001)}
    with raises_code("too-many-segments", FileError, column="segment:ua"):
        read_log(pa.table(many), segments=["ua"])


def test_few_long_lists_are_refused_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clickshift.data.sessions._MAX_PADDED_BYTES", 1000)
    docs = [[1]] * 100 + [list(range(50))]
    table = {"query": ["a"] * 101, "docs": docs, "clicks": [[0] * len(one) for one in docs]}
    with raises_code("lists-too-long", DataError, sessions=101, ranks=50, results=150):
        read_log(pa.table(table))


def test_missing_values_stay_unknown(tmp_path: Path) -> None:
    path = save(tmp_path / "log.csv", WIDE | {"pay": [[1.5, None], [None, 0], [2]], "ua": ["x", None, "y"]})
    log = read_log(path, signals=["pay"], segments=["ua"])
    assert np.array_equal(log.signals["pay"], [[1.5, np.nan], [np.nan, 0], [2, 0]], equal_nan=True)
    assert log.segments["ua"].code.tolist() == [0, -1, 1]


def test_texts_for_missing_numbers_are_unknown(tmp_path: Path) -> None:
    """Polars writes NaN, R writes NA, and databases write null; a required number must not be missing."""
    path = tmp_path / "log.csv"
    rows = ["1,a,1,x,1,2.5,1", "1,a,2,y,0,NaN,nan", "2,a,1,y,0,NA,0", "2,a,2,x,1,null,NA"]
    path.write_text("\n".join(["session,query,rank,doc,click,pay,viewed", *rows]))
    log = read_log(path, signals=["pay"])
    assert np.array_equal(log.signals["pay"], [[2.5, np.nan], [np.nan, np.nan]], equal_nan=True)
    assert np.array_equal(log.signals["viewed"], [[1, np.nan], [0, np.nan]], equal_nan=True)
    path.write_text("\n".join(["session,query,rank,doc,click", "1,a,1,x,NA"]))
    with raises_code("not-zero-or-one", FileError, session="1"):
        read_log(path)
    path.write_text("\n".join(["session,query,rank,doc,click,pay", "1,a,1,x,1,N/A?"]))
    with raises_code("not-a-number", FileError, session="1"):
        read_log(path, signals=["pay"])
