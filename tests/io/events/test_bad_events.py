"""Events that are damaged, incomplete or of another format: one clear message, with file and line, and no output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import clickshift as cs
from clickshift.errors import FileError, SpecError
from tests.codes import raises_code, warns_code
from tests.io.events.test_generic import counts, lists_of

HEADER = "session,query,doc,rank,click\n"
ROW = {"session": ["s", "s"], "query": ["q", "q"], "doc": ["a", "b"], "rank": [1, 2], "click": [0, 1]}


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        ('s,"two\nlines",a,1,0\ns,q,b,x,0\n', "bad-rank", 4),
        ("\ns,q,a,1,0\n\n\ns,q,b,x,0\n", "bad-rank", 6),
        ("s,q,a\ns,q,a,1,0\n\ns,q,b,x,0\n", "bad-rank", 5),
        ('\ns,"q\nr",a,1,0\n\ns,q,b\ns,q,c,3,0\n', "unreadable-line", 6),
        ("s,q,b,2,0\ns,q,b\n", "unreadable-line", 3),  # a text that begins as a good line does
    ],
)
def test_lines_of_tables_are_those_of_the_file(text: str, code: str, line: int, tmp_path: Path) -> None:
    file = tmp_path / "e.csv"
    file.write_text(HEADER + text)
    if code == "bad-rank" and text.startswith("s,q,a\n"):
        with warns_code("skipped-input"):
            imported = cs.read_events(file, on_bad_line="skip")
        assert f"line {line}:" in {row["reason"]: row for row in imported.rows()}[code]["examples"]
    else:
        with raises_code(code, FileError, line=line, count=1):
            cs.read_events(file)


def test_a_row_with_a_click_is_one_event_that_breaks_the_format(tmp_path: Path) -> None:
    with raises_code("bad-rank", FileError, count=2):
        cs.read_events(pd.DataFrame(ROW).assign(rank=["x", "y"]))


@pytest.mark.parametrize("text", ["[1, 2]", "5", '"text"', "null"])
def test_values_of_json_that_are_no_objects_are_no_events(text: str, tmp_path: Path) -> None:
    row = json.dumps({name: values[0] for name, values in ROW.items()})
    (tmp_path / "e.jsonl").write_text(f"{row}\n{text}\n")
    with raises_code("bad-json", FileError, line=2):
        cs.read_events(tmp_path / "e.jsonl")
    (tmp_path / "e.json").write_text(f"[{row}, {text}]")
    with raises_code("bad-json", FileError, count=1):
        cs.read_events(tmp_path / "e.json")


def test_an_array_that_was_cut_short_says_so(tmp_path: Path) -> None:
    (tmp_path / "e.json").write_text(json.dumps(pd.DataFrame(ROW).to_dict("records"))[:-20])
    with raises_code("damaged-file", FileError):
        cs.read_events(tmp_path / "e.json", output=tmp_path / "log.csv")
    assert not (tmp_path / "log.csv").exists()


def test_line_ends_may_be_mixed_and_columns_without_a_name(tmp_path: Path) -> None:
    mixed = "s,q,a,1,0\r\n" + "s,q,b,2,1\n"
    (tmp_path / "mixed.csv").write_bytes((HEADER.replace("\n", "\r\n") + mixed).encode())
    (tmp_path / "last.csv").write_text(HEADER.replace("\n", ",\n") + mixed.replace("\r", "").replace("\n", ",\n"))
    pd.DataFrame(ROW).to_csv(tmp_path / "index.csv")
    for name in ("mixed", "last", "index"):
        assert lists_of(cs.read_events(tmp_path / f"{name}.csv")) == [(["a", "b"], [0, 1])], name
    late = HEADER + "s,q,a,1,0\n" * 200_000 + "s,q,a,1,0\r\n" + "s,q,a,1,0\n"
    (tmp_path / "late.csv").write_text(late, newline="")
    with raises_code("damaged-file", FileError):
        cs.read_events(tmp_path / "late.csv")


@pytest.mark.parametrize("name", ["session", "query", "doc", "rank", "click"])
@pytest.mark.parametrize("value", [["x"], {"id": "x"}])
def test_columns_of_frames_hold_single_values(name: str, value: Any) -> None:
    with raises_code("bad-id", FileError, column=name):
        cs.read_events(pa.table({**ROW, name: [value, value]}))


def test_documents_of_a_list_are_ids(tmp_path: Path) -> None:
    shown = pd.DataFrame({"session": ["s"], "query": ["q"], "docs": ["a, b"]})
    clicks = pd.DataFrame({"session": ["s"], "doc": ["b"]})
    assert lists_of(cs.read_events(shown, clicks=clicks)) == [(["a", "b"], [0, 1])]
    with raises_code("bad-id", FileError, column="docs"):
        cs.read_events(shown.assign(docs=[[{"id": "a"}]]), clicks=clicks)
    shown.assign(docs=[[{"id": "a"}]]).to_json(tmp_path / "e.jsonl", orient="records", lines=True)
    with raises_code("bad-id", FileError, line=1):
        cs.read_events(tmp_path / "e.jsonl", clicks=clicks)


def test_times_and_numbers_in_one_column_of_pandas_keep_their_units() -> None:
    mixed = pd.DataFrame(ROW).assign(time=[pd.Timestamp("2023-11-14 22:13:21").to_pydatetime(), 1_700_000_000])
    assert str(cs.read_events(mixed).log["time"][0]) == "2023-11-14 22:13:20"


def test_clicks_without_a_query_in_a_table_of_all_events(tmp_path: Path) -> None:
    rows = "event,session,query,doc,rank\nimpression,s,q,a,1\nimpression,s,q,b,2\nclick,s,,b,\npurchase,s,,b,\n"
    file = tmp_path / "e.csv"
    file.write_text(rows + "click,s,,z,\npurchase,s,,z,\n")
    imported = cs.read_events(file)
    assert lists_of(imported) == [(["a", "b"], [0, 1])]
    assert imported.log["purchase"].to_pylist() == [[0, 1]]
    assert counts(imported) == {"click-without-impression": 1, "conversion-without-impression": 1}
    file.write_text(rows + "impression,s,,c,3\n")
    with raises_code("missing-value", FileError, line=6):
        cs.read_events(file)


def test_a_query_of_blanks_is_none_if_it_is_stripped() -> None:
    with raises_code("missing-value", FileError, count=1):
        cs.read_events(pd.DataFrame(ROW).assign(query=["q", "  "]), normalise=["strip"])


def test_lines_of_documents_in_tables_are_named(tmp_path: Path) -> None:
    columns = "application,action_name,query_id,user_query,client_id,object_id,position,timestamp\n"
    good = "shop,impression,1,q,c,a,1,2024-01-01T00:00:00Z\n"
    (tmp_path / "ubi.csv").write_text(columns + good + '\nshop,impression,1,"q\nr",c,b,2,soon\n')
    with raises_code("bad-time", FileError, line=4, value="soon"):
        cs.read_events(tmp_path / "ubi.csv")
    with pytest.raises(FileError, match="row 2"):
        cs.read_events(pd.read_csv(tmp_path / "ubi.csv"))


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("ga4", "empty-log"),
        ("metarank", "bad-type"),
        ("snowplow", "missing-column"),
        ("expedia", "missing-column"),
        ("baidu-uva", "missing-column"),
        ("baidu-ultr", "unknown-format"),
        ("clax", "missing-column"),
        ("tiangong", "unknown-format"),
        ("graphcm", "unknown-format"),
        ("quepid", "missing-column"),
        ("aggregated", "missing-column"),
        ("ubi", "not-an-event"),
    ],
)
def test_a_wrong_format_says_what_the_content_looks_like(name: str, code: str) -> None:
    with raises_code(code, FileError) as caught:
        cs.read_events(pd.DataFrame(ROW), format=name)
    assert 'The content looks like tables of events: pass format="events".' in str(caught.value)


def test_a_wrong_guess_says_what_was_recognised() -> None:
    flat = pd.DataFrame({"action_name": ["impression"], "query_id": [1], "query": "q", "doc": ["a"], "rank": [1]})
    with raises_code("empty-log", FileError) as caught:
        cs.read_events(flat)
    assert "recognised as OpenSearch UBI" in str(caught.value)
    assert lists_of(cs.read_events(flat, format="events")) == [(["a"], [0])]


def test_a_table_of_counts_with_other_numbers_is_still_one(tmp_path: Path) -> None:
    (tmp_path / "counts.csv").write_text('query,doc,rank,impressions,clicks\nq,a,1,"1,000",3\n')
    with raises_code("bad-counts", FileError, line=2):
        cs.read_events(tmp_path / "counts.csv")


def test_frames_without_rows_or_with_a_name_twice_are_refused() -> None:
    frame = pd.DataFrame(ROW)
    with raises_code("no-impressions", FileError):
        cs.read_events(frame.iloc[:0])
    with raises_code("duplicate-column", FileError):
        cs.read_events(pd.concat([frame, frame[["click"]]], axis=1))
    no_clicks = pd.DataFrame({"session": [], "doc": []}, dtype=float)
    assert lists_of(cs.read_events(frame.drop(columns="click"), clicks=no_clicks)) == [(["a", "b"], [0, 0])]


@pytest.mark.parametrize("clicks", [False, True])
def test_an_import_never_replaces_its_events(clicks: bool, tmp_path: Path) -> None:
    events, others = tmp_path / "e.csv", tmp_path / "clicks.csv"
    pd.DataFrame(ROW).drop(columns="click" if clicks else []).to_csv(events, index=False)
    pd.DataFrame(ROW)[["session", "doc"]].to_csv(others, index=False)
    before = events.read_bytes(), others.read_bytes()
    with raises_code("same-file", SpecError):
        cs.read_events(events, clicks=others if clicks else None, output=others if clicks else events)
    assert (events.read_bytes(), others.read_bytes()) == before
