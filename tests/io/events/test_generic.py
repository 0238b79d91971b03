"""Tables of events of any origin: how impressions and clicks are joined, and what is said about bad ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import clickshift as cs
from clickshift.errors import DataError, FileError, SpecError
from tests.codes import raises_code, warns_code

Row = tuple[str, str, str, int | None, Any]


def frame(*rows: Row, query: str = "q") -> pd.DataFrame:
    """Events: type, session, document, rank, time."""
    table = pd.DataFrame(rows, columns=["event", "session", "doc", "rank", "time"]).assign(query=query)
    return table.astype({"rank": "Int64"})


def lists_of(imported: Any) -> list[tuple[list[Any], list[int]]]:
    return [(row["docs"], row["clicks"]) for row in imported.log.to_pylist()]


def counts(imported: Any) -> dict[str, int]:
    return {row["reason"]: row["count"] for row in imported.rows()}


TWO = [("impression", "s", "a", 1, 1_700_000_000), ("impression", "s", "b", 2, 1_700_000_000)]


def test_every_kind_of_table_is_read_alike(tmp_path: Path) -> None:
    table = frame(*TWO, ("click", "s", "b", None, 1_700_000_005))
    table.to_csv(tmp_path / "e.csv", index=False)
    table.to_csv(tmp_path / "e.tsv", sep="\t", index=False)
    table.to_csv(tmp_path / "semicolon.csv", sep=";", index=False, encoding="utf-8-sig")
    table.rename(columns=str.upper).to_csv(tmp_path / "e.csv.gz", index=False)
    table.to_parquet(tmp_path / "e.parquet")
    table.to_json(tmp_path / "e.jsonl", orient="records", lines=True)
    table.to_json(tmp_path / "e.json", orient="records")
    with duckdb.connect() as connection:
        connection.register("t", table)
        sources = [
            *tmp_path.iterdir(),
            table,
            pl.from_pandas(table),
            pa.Table.from_pandas(table),
            connection.table("t"),
        ]
        for source in sources:
            assert lists_of(cs.read_events(source)) == [(["a", "b"], [0, 1])], source


def test_times_of_all_forms_are_read_in_one_column() -> None:
    moments = [
        *("2023-11-14T22:13:20Z", "2023-11-14T22:13:20", "2023-11-14 22:13:20.000", "2023-11-14T23:13:20+01:00"),
        *("2023-11-14T22:13:20+0000", "1700000000", "1700000000000", "1700000000000000", "1700000000.0"),
        *("1700000000000000000", "14/Nov/2023:22:13:20 +0000", "Tue, 14 Nov 2023 22:13:20 GMT"),
        *("11/14/2023 10:13:20 PM", "2023-11-14 22:13:20 UTC", "14.11.2023 22:13:20", "2023/11/14 22:13:20"),
        *("2023-11-14 22:13:20,000", "2023-11-14 23:13:20 +0100", "2023-11-14 10:13:20 PM", "20231114221320"),
        *("20231114T221320Z", "14 Nov 2023 22:13:20", "14-Nov-2023 22:13:20", "Nov 14, 2023, 10:13:20 PM"),
        *("11/14/2023, 10:13:20 PM", "Tue Nov 14 2023 23:13:20 GMT+0100 (Central European Standard Time)"),
    ]
    table = frame(*(("impression", f"s{k}", "a", 1, moment) for k, moment in enumerate(moments)))
    times = cs.read_events(table).log["time"].to_pylist()
    assert {str(time) for time in times} == {"2023-11-14 22:13:20"}
    assert len(times) == len(moments)


@pytest.mark.parametrize(
    "moment", ["soon", "today", "infinity", "epoch", "12", "99999999999999999999", "2023-13-40", "14.11.23"]
)
def test_what_is_no_time_is_refused(moment: str) -> None:
    with raises_code("bad-time", FileError, count=1):
        cs.read_events(frame(("impression", "s", "a", 1, moment)))


def test_ids_may_be_integers_texts_or_both() -> None:
    table = pd.DataFrame({"session": [1, "1", 2], "query": ["é", "é", 7], "doc": [1, "x", "1"], "rank": [1, 2, 1]})
    clicks = pd.DataFrame({"session": ["1"], "doc": ["x"]})
    assert lists_of(cs.read_events(table, clicks=clicks)) == [(["1", "x"], [0, 1]), (["1"], [0])]
    integers = pd.DataFrame({"session": ["a", "a"], "query": [5, 5], "doc": [7, 8], "rank": [1, 2]})
    assert lists_of(cs.read_events(integers, clicks=pd.DataFrame({"session": ["a"], "doc": [7]}))) == [([7, 8], [1, 0])]
    with raises_code("float-ids", FileError, column="doc"):
        cs.read_events(integers.assign(doc=[7.0, 8.0]), clicks=clicks)


@pytest.mark.parametrize("word", [True, "yes", "TRUE", "t", 1, "1.0", "on"])
def test_flags_are_words_or_numbers(word: Any) -> None:
    table = pd.DataFrame(
        {"session": [1, 1], "query": "q", "doc": ["a", "b"], "rank": [0, 1], "clicked": [str(word), "no"]}
    )
    assert lists_of(cs.read_events(table)) == [(["a", "b"], [1, 0])]


def test_a_click_counts_within_the_window_after_any_impression_of_it() -> None:
    table = frame(
        *TWO,
        ("impression", "s", "a", 3, 1_700_003_600),
        ("click", "s", "a", None, 1_700_003_610),  # 10 seconds after the second impression
        ("click", "s", "b", None, 1_700_003_610),  # an hour after its only one
    )
    assert lists_of(cs.read_events(table)) == [(["a", "b"], [1, 1])]
    imported = cs.read_events(table, window="30min")
    assert lists_of(imported) == [(["a", "b"], [1, 0])]
    assert counts(imported) == {"late-click": 1, "repeated-impression": 1}
    early = frame(*TWO, ("click", "s", "a", None, 1_699_999_999))
    assert lists_of(cs.read_events(early)) == [(["a", "b"], [1, 0])]
    assert counts(cs.read_events(early)) == {"click-before-impression": 1}
    assert lists_of(cs.read_events(early, window=60)) == [(["a", "b"], [0, 0])]
    assert counts(cs.read_events(early, window=60)) == {"click-before-impression": 1}
    untimed = frame(*TWO, ("click", "s", "a", None, None))
    assert counts(cs.read_events(untimed, window=60)) == {"no-time": 1}
    with raises_code("missing-column", SpecError, column="time"):
        cs.read_events(untimed.drop(columns="time"), window=60)
    bought = frame(*TWO, ("purchase", "s", "a", None, 1_699_999_999), ("purchase", "s", "b", None, 1_700_003_610))
    imported = cs.read_events(bought, window="30min")  # conversions are no clicks
    assert counts(imported) == {"late-conversion": 1, "conversion-before-impression": 1}
    assert imported.sessions.signals["purchase"].sum() == 0


def test_the_first_or_the_last_impression_gives_the_rank() -> None:
    table = frame(*TWO, ("impression", "s", "a", 3, 1_700_000_100))
    assert lists_of(cs.read_events(table)) == [(["a", "b"], [0, 0])]
    assert lists_of(cs.read_events(table, impression="last")) == [([None, "b", "a"], [0, 0, 0])]
    assert lists_of(cs.read_events(table, impression="last", gaps="close")) == [(["b", "a"], [0, 0])]


def test_a_click_without_a_query_belongs_to_the_latest_list_that_shows_its_document() -> None:
    first = frame(*TWO, query="shoes")
    second = frame(("impression", "s", "b", 1, 1_700_000_050), query="boots")
    clicks = pd.DataFrame({"session": ["s", "s"], "doc": ["b", "b"], "time": [1_700_000_060, 1_700_000_010]})
    imported = cs.read_events(pd.concat([first, second]), clicks=clicks)
    assert [(row["query"], row["clicks"]) for row in imported.log.to_pylist()] == [("shoes", [0, 1]), ("boots", [1])]
    only_late = cs.read_events(pd.concat([first, second]), clicks=clicks.iloc[:1])
    assert [(row["query"], row["clicks"]) for row in only_late.log.to_pylist()] == [("shoes", [0, 0]), ("boots", [1])]


def test_ranks_begin_where_each_source_begins_and_pages_continue() -> None:
    zero = frame(("impression", "s1", "a", 0, 1_700_000_000), ("impression", "s1", "b", 1, 1_700_000_000))
    one = frame(("impression", "s2", "a", 1, 1_700_000_000), ("impression", "s2", "b", 2, 1_700_000_000))
    both = pd.concat([zero.assign(application="web"), one.assign(application="app")])
    imported = cs.read_events(both)
    assert lists_of(imported) == [(["a", "b"], [0, 0])] * 2
    assert imported.to_dict()["first_ranks"] == {"app": 1, "web": 0}
    assert cs.read_events(one, rank_base=0, gaps="close").to_dict()["first_ranks"] == {"": 0}
    pages = pd.concat([one, one.assign(page=2, doc=["c", "d"])]).fillna({"page": 1})
    with raises_code("missing-page-size", SpecError):
        cs.read_events(pages)
    assert lists_of(cs.read_events(pages, page_size=2)) == [(["a", "b", "c", "d"], [0] * 4)]


def test_impressions_may_be_lists() -> None:
    shown = pd.DataFrame({"list_id": [1, 2], "query": ["q", "q"], "docs": [["a", "b"], ["b"]]})
    clicks = pd.DataFrame({"LIST_ID": [1, 1, 3], "item": ["b", "z", "a"]})
    imported = cs.read_events(shown, clicks=clicks)
    assert lists_of(imported) == [(["a", "b"], [0, 1]), (["b"], [0])]
    assert counts(imported) == {"click-without-impression": 2}


def test_columns_are_named_where_they_are_not_recognised(tmp_path: Path) -> None:
    rows = [{"e": "impression", "s": 1, "w": "q", "obj": {"id": "a"}, "n": 1}]
    (tmp_path / "e.jsonl").write_text("\n".join(map(json.dumps, rows)))
    names = {"event": "e", "session": "s", "query": "w", "doc": "obj.id", "rank": "n"}
    assert lists_of(cs.read_events(tmp_path / "e.jsonl", format="events", columns=names)) == [(["a"], [0])]
    with raises_code("unknown-column", DataError):
        cs.read_events(tmp_path / "e.jsonl", format="events", columns={"ranking": "n"})
    with raises_code("unknown-column", FileError, column="nothing"):
        cs.read_events(tmp_path / "e.jsonl", format="events", columns={"doc": "nothing"})
    with raises_code("missing-column", FileError, columns=["session", "query"]):
        cs.read_events(frame(*TWO).drop(columns=["session", "query"]))


@pytest.mark.parametrize(
    ("line", "code", "at"),
    [
        ("impression,s,c", "unreadable-line", 4),
        ("impression,,c,3,2024-01-01,q", "missing-value", 4),
        ("impression,s,,3,2024-01-01,q", "missing-value", 4),
        ("impression,s,c,3,2024-01-01,", "missing-value", 4),
        ("impression,s,c,third,2024-01-01,q", "bad-rank", 4),
        ("impression,s,c,3,then,q", "bad-time", 4),
    ],
)
def test_a_bad_row_is_named_by_its_line_or_counted(line: str, code: str, at: int, tmp_path: Path) -> None:
    file, log = tmp_path / "events.csv", tmp_path / "log.csv"
    frame(*TWO).to_csv(file, index=False)
    with file.open("a") as stream:
        stream.write(line + "\n")
    with raises_code(code, FileError, line=at):
        cs.read_events(file, output=log)
    assert not log.exists()
    with warns_code("skipped-input"):
        imported = cs.read_events(file, on_bad_line="skip", output=log)
    assert counts(imported) == {code: 1}
    assert cs.read_log(log).total == 1


@pytest.mark.parametrize("name", ["session", "query", "doc"])
def test_ids_of_json_are_no_lists_and_texts_may_look_like_them(name: str, tmp_path: Path) -> None:
    file, row = (
        tmp_path / "events.jsonl",
        {"session": "s", "query": "{}", "doc": "[7]", "rank": 1, "event": "impression"},
    )
    file.write_text(json.dumps(row) + "\n")
    assert lists_of(cs.read_events(file)) == [(["[7]"], [0])]
    file.write_text(f"{json.dumps(row)}\n{json.dumps({**row, name: ['a']})}\n")
    with raises_code("bad-id", FileError, line=2):
        cs.read_events(file)
    with warns_code("skipped-input"):
        assert counts(cs.read_events(file, on_bad_line="skip")) == {"bad-id": 1}


def test_a_line_after_one_that_is_no_row_is_still_named_rightly(tmp_path: Path) -> None:
    file = tmp_path / "events.csv"
    file.write_text("session,query,doc,rank,click\n1,q,a\n1,q,a,1,0\n1,q,b,2,perhaps\n")
    with warns_code("skipped-input"):
        imported = cs.read_events(file, on_bad_line="skip")
    (row,) = [row for row in imported.rows() if row["reason"] == "not-zero-or-one"]
    assert "line 4" in row["examples"]


@pytest.mark.parametrize(
    ("rows", "found"),
    [("", "no events"), ("1,q,a,1,click\n", "clicks (1)"), ("1,q,a,1,seen\n" * 2, "events of other types: seen (2)")],
)
def test_tables_without_impressions_say_what_they_have(rows: str, found: str, tmp_path: Path) -> None:
    (tmp_path / "events.csv").write_text("session,query,doc,rank,event\n" + rows)
    with raises_code("no-impressions", FileError) as caught:
        cs.read_events(tmp_path / "events.csv")
    assert f"there are {found}. Pass" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "described"),
    [
        ("session,query,doc,doc,rank,event\n1,q,a,b,1,click\n", "has doc more than once"),
        ('{"query": "q", "docs": ["a"], "clicks": [0]}\n', "a log already"),
    ],
)
def test_a_repeated_name_and_a_log_are_recognised(text: str, described: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text(text)
    with pytest.raises(FileError, match=described):
        cs.read_events(tmp_path / "file")


def test_what_is_not_recognised_is_said_with_what_it_looks_like(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with raises_code("unknown-format", FileError) as raised:
        cs.read_events(tmp_path / "x.csv")
    assert "a, b" in str(raised.value)
    (tmp_path / "empty.csv").write_text("\n")
    with raises_code("empty-file"):
        cs.read_events(tmp_path / "empty.csv")
    with raises_code("file-not-found"):
        cs.read_events(tmp_path / "nothing.csv")
    with raises_code("not-text"):
        (tmp_path / "x.zip").write_bytes(b"PK\x03\x04....")
        cs.read_events(tmp_path / "x.zip")
    with raises_code("mixed-formats"):
        (tmp_path / "y.csv").write_text("srch_id,prop_id,position,click_bool,srch_destination_id\n1,2,1,0,3\n")
        frame(*TWO).to_csv(tmp_path / "z.csv", index=False)
        cs.read_events([tmp_path / "y.csv", tmp_path / "z.csv"])
    with raises_code("no-impressions", FileError, known=["hover"]):
        cs.read_events(frame(("hover", "s", "a", 1, 1_700_000_000)))
    with raises_code("empty-log"):
        cs.read_events(frame(("impression", "s", "a", 5, 1_700_000_000)), gaps="truncate")
    with raises_code("empty-log"):
        cs.read_events(frame(("impression", "s", "a", 100_002, 1_700_000_000)))


@pytest.mark.parametrize(
    "option",
    [
        {"gaps": "fill"},
        {"impression": "middle"},
        {"rank_base": 2},
        {"window": "often"},
        {"window": 0},
        {"page_size": 0},
        {"normalise": ["upper"]},
        {"click_types": "click"},
        {"click_types": ["buy"], "conversion_types": ["buy"]},
        {"shown": "hits"},
        {"format": "ubi", "page_size": 10},
        {"memory": "much"},
    ],
)
def test_options_that_are_none_are_refused(option: dict[str, Any]) -> None:
    with raises_code("bad-option"):
        cs.read_events(frame(*TWO), **option)


def test_an_unknown_format_is_refused() -> None:
    with raises_code("unknown-format", SpecError):
        cs.read_events(frame(*TWO), format="clickstream")


def test_results_that_are_no_sessions_say_so(tmp_path: Path) -> None:
    table = pd.DataFrame({"query": ["q"], "doc": ["a"], "position": [1.0], "impressions": [3], "clicks": [1]})
    imported = cs.read_events(table)
    assert imported.counts.cells.impressions.tolist() == [3]
    with raises_code("no-sessions"):
        imported.sessions  # noqa: B018
    with raises_code("no-target"):
        imported.target  # noqa: B018
    with warns_code("mean-ranks", share=0.75):
        mixed = cs.read_events(pd.concat([table.assign(position=1.6), table.assign(impressions=1, doc="b")]))
    assert mixed.counts.cells.situation.tolist() == [1, 0]
    for wrong in (table.assign(clicks=4), table.assign(impressions=-1)):
        with raises_code("bad-counts"):
            cs.read_events(wrong)
    with raises_code("bad-rank"):
        cs.read_events(table.assign(position=0))


def test_search_console_sums_zero_based_positions(tmp_path: Path) -> None:
    file = tmp_path / "searchdata_url_impression.csv"
    file.write_text(
        "data_date,site_url,url,query,is_anonymized_query,country,search_type,device,impressions,clicks,sum_position\n"
        "2026-01-01,s,/a,shoes,false,deu,WEB,MOBILE,10,3,10\n"
        "2026-01-02,s,/a,shoes,false,deu,WEB,MOBILE,5,1,0\n"
        "2026-01-02,s,/a,,true,deu,WEB,MOBILE,7,1,0\n"
    )
    imported = cs.read_events(file)
    cells = imported.counts.cells
    assert (cells.situation.tolist(), cells.impressions.tolist(), cells.clicks.tolist()) == ([0, 1], [5, 10], [1, 3])
    assert counts(imported) == {"no-query": 1}
    assert str(imported.counts.first)[:10] == "2026-01-01"


def test_a_snapshot_is_a_target(tmp_path: Path) -> None:
    file = tmp_path / "snapshot.csv"
    header = "Snapshot Name,Snapshot Time,Case ID,Query Text,Doc ID,Doc Position\n"
    file.write_text(header + 'new,2026-01-01,7,"red, dress",b,2\nnew,2026-01-01,7,"red, dress",a,1\n')
    imported = cs.read_events(file, output=tmp_path / "target.parquet")
    assert imported.target.lists.vocabulary.query_ids.tolist() == ["red, dress"]
    assert pl.read_parquet(tmp_path / "target.parquet")["docs"].to_list() == [["a", "b"]]
    file.write_text(header + "new,2026-01-01,7,a,b,1\nnew,2026-01-01,7,none,,\nnew,2026-01-01,7,a,c,last\n")
    with raises_code("bad-rank", FileError, line=4, count=1):
        cs.read_events(file)
    with warns_code("skipped-input"):
        skipped = cs.read_events(file, on_bad_line="skip")
    assert counts(skipped) == {"bad-rank": 1, "missing-value": 1}  # of a query without results
    with file.open("a") as stream:
        stream.write("old,2025-01-01,7,x,b,1\n")
    file.write_text(file.read_text().replace("last", "2"))
    with raises_code("several-snapshots", FileError, known=["new", "old"]):
        cs.read_events(file)


def test_baidu_lists_have_gaps_and_their_query_is_a_text(tmp_path: Path) -> None:
    file = tmp_path / "part-00000"
    result = "\t".join(["{rank}", "{doc}", "t\x01t", "a", "-", "{click}", *["0"] * 26])
    lines = ["1\tred\x01dress\t", *(result.format(rank=k, doc=f"d{k}", click=int(k == 4)) for k in (1, 2, 4))]
    file.write_text("\n".join(lines))
    imported = cs.read_events(file)
    assert imported.log.to_pylist() == [
        {
            **{"query": "red dress", "docs": ["d1", "d2", None, "d4"], "clicks": [0, 0, 0, 1]},
        }
    ]
    assert counts(imported) == {"hole": 1}
    file.write_text("\n".join([*lines, result.format(rank="x", doc="d", click=0)]))
    with raises_code("bad-line", FileError, line=5):
        cs.read_events(file)


@pytest.mark.parametrize(
    ("columns", "code", "row"),
    [
        ({"query_id": [1.0, 2.0, 3.0]}, "float-ids", None),
        ({"query_doc_ids": [[1.0], [2.0], [3.0]]}, "float-ids", None),
        ({"query_id": [1, None, 3]}, "missing-value", 2),
        ({"query_doc_ids": [[1], [2], [None]]}, "missing-value", 3),
        ({"clicks": [[0], [1], [2]]}, "not-zero-or-one", 3),
        ({"clicks": [[0], [None], [1]]}, "not-zero-or-one", 2),
        ({"clicks": [[0], [1, 0], [1]]}, "unequal-lengths", 2),
    ],
)
def test_rows_of_clax_that_break_a_rule_are_named(columns: dict[str, Any], code: str, row: int | None) -> None:
    good: dict[str, Any] = {"query_id": [1, 2, 3], "query_doc_ids": [[1], [2], [3]], "clicks": [[0], [1], [1]]}
    rows = pa.table({name: pa.array(columns.get(name, values)) for name, values in good.items()})
    with raises_code(code, FileError) as caught:
        cs.read_events(rows)
    if row is None:  # floats are a matter of all rows
        return
    assert f", row {row}: " in str(caught.value)
    with warns_code("skipped-input"):
        kept = cs.read_events(rows, on_bad_line="skip").log["query"].to_pylist()
    assert kept == [one for one in (1, 2, 3) if one != row]


def test_no_import_writes_ids_that_no_reader_takes(tmp_path: Path) -> None:
    counts = {"rank": ["1", "1"], "impressions": ["3", "4"], "clicks": ["1", "1"]}
    events = {"rank": ["1", "1"], "session": ["a", "b"], "click": ["0", "1"]}
    snapshot = {"Snapshot Name": ["s", "s"], "Snapshot Time": ["t", "t"], "Case ID": ["1", "1"]}
    for others, query, doc in (
        (counts, "query", "doc"),
        (events, "query", "doc"),
        (snapshot | {"Doc Position": ["1", "1"]}, "Query Text", "Doc ID"),
    ):
        texts = {query: ["1.0", "2.0"], doc: ["a", "b"]}
        for ids in (texts, dict(zip(texts, reversed(texts.values()), strict=True))):
            pd.DataFrame(others | ids).to_csv(tmp_path / "events.csv", index=False)
            with raises_code("float-ids", FileError):
                cs.read_events(tmp_path / "events.csv", output=tmp_path / "out.parquet")
        pd.DataFrame(others | texts | {query: ["1.0", "version 2"]}).to_csv(tmp_path / "events.csv", index=False)
        cs.read_events(tmp_path / "events.csv")  # not all of them are floats
    assert not (tmp_path / "out.parquet").exists()


@pytest.mark.parametrize("moment", [2**62, -(2**62), 2**63 - 1])
def test_moments_that_no_calendar_has_are_no_times(moment: int) -> None:
    times = pa.array([1_700_000_000_000_000, moment], pa.int64()).cast(pa.timestamp("us"))
    events = {"session": ["a", "a"], "query": ["q", "q"], "doc": ["a", "b"], "rank": [1, 2], "click": [1, 0]}
    table = pa.table(events | {"time": times})
    with warns_code("skipped-input"):
        assert lists_of(cs.read_events(table, on_bad_line="skip")) == [(["a"], [1])]
    with raises_code("bad-time", FileError, count=1):
        cs.read_events(table)


def test_a_damaged_feather_file_is_no_crash(tmp_path: Path) -> None:
    import pyarrow.feather as feather

    rows = {
        "query_md5": ["q"] * 9,
        "url_md5": [f"document{k}" for k in range(9)],
        "position": range(9),
        "click": [0] * 9,
    }
    feather.write_feather(
        pa.table({name: pa.array(rows[name]) for name in rows}), tmp_path / "part.feather", "uncompressed"
    )
    whole = (tmp_path / "part.feather").read_bytes()
    offset = (18).to_bytes(4, "little") + (27).to_bytes(4, "little")  # where documents 2 and 3 begin
    assert whole.count(offset) == 1
    (tmp_path / "part.feather").write_bytes(whole.replace(offset, (-9).to_bytes(4, "little", signed=True) + offset[4:]))
    with raises_code("damaged-file", FileError, format="Feather"):
        cs.read_events(tmp_path / "part.feather")


def tiangong(*parts: str) -> str:
    """A file of one session with one interaction of these lines."""
    return "\n".join(
        ["<tiangong>", '<session num="8">', '<interaction num="1">', *parts, "</interaction>", "</session>"]
    )


RESULTS = [f'<result rank="{rank}"><docid>{doc}</docid></result>' for rank, doc in ((1, 70), (3, 71), (14, 72))]


def test_tiangong_keeps_ranks_and_leaves_out_junk(tmp_path: Path) -> None:
    file = tmp_path / "tiangong.xml"
    clicks = (
        "<clicked><click><rank>3</rank></click><click><rank>5</rank></click><click><rank>14</rank></click></clicked>"
    )
    file.write_text(tiangong("<query_id>9</query_id>", *RESULTS, clicks))
    imported = cs.read_events(file)
    assert imported.format == "tiangong"
    assert imported.log.to_pylist() == [{"query": 9, "docs": [70, None, 71], "clicks": [0, 0, 1], "user": "0.8"}]
    assert counts(imported) == {"rank-beyond-page": 2, "click-without-impression": 1, "hole": 1}


@pytest.mark.parametrize(
    "parts",
    [
        RESULTS,  # no query
        ["<query_id>9</query_id>", *RESULTS, "<result><docid>3</docid></result>"],
        ["<query_id>9</query_id>", *RESULTS, '<result rank="2"></result>'],
        ["<query_id>9</query_id>", *RESULTS, "<rank>first</rank>"],
    ],
)
def test_elements_of_tiangong_that_are_incomplete_are_named(parts: list[str], tmp_path: Path) -> None:
    file = tmp_path / "tiangong.xml"
    good = tiangong("<query_id>1</query_id>", *RESULTS)
    file.write_text(good + "\n" + tiangong(*parts))
    with raises_code("bad-line", FileError):
        cs.read_events(file)
    with warns_code("skipped-input"):
        imported = cs.read_events(file, on_bad_line="skip")
    assert counts(imported)["bad-line"] >= 1


@pytest.mark.parametrize("last", ["</session>", "</interaction>", "</result>", "<docid>71", '<result rank="3"', "<int"])
def test_a_file_of_tiangong_that_was_cut_short_is_named(last: str, tmp_path: Path) -> None:
    whole = "\n".join(tiangong(f"<query_id>{query}</query_id>", *RESULTS).replace("8", str(query)) for query in (1, 2))
    file = tmp_path / "tiangong.xml"
    file.write_text(whole[: whole.rindex(last) + len(last) - 1])
    with raises_code("damaged-file", FileError, line=8 + len(RESULTS), value='<session num="2">'):
        cs.read_events(file)
    with warns_code("skipped-input"):
        imported = cs.read_events(file, on_bad_line="skip")
    assert counts(imported)["damaged-file"] == 1
    queries = [1, 2] if last == "</session>" else [1]
    assert imported.log["query"].to_pylist() == queries


def test_entities_of_xml_are_not_expanded(tmp_path: Path) -> None:
    entities = "".join(f'<!ENTITY e{k} "{"&e" + str(k - 1) + ";" if k else "lol"}">' * 10 for k in range(9))
    file = tmp_path / "bomb.xml"
    file.write_text(f"<!DOCTYPE x [{entities}]>\n" + tiangong("<query_id>&e8;</query_id>", *RESULTS))
    assert cs.read_events(file).log["query"].to_pylist() == ["&e8;"]


@pytest.mark.parametrize(
    "lists", ["[3, 4]\t[1, 1]\t[0, 1, 1]", "[3, null]\t[1, 1]\t[0, 1]", "['3', '']\t[]\t[0, 1]", "[3, [4]]\t[]\t[0, 1]"]
)
def test_lines_of_graphcm_that_are_none_are_named(lists: str, tmp_path: Path) -> None:
    file = tmp_path / "train_per_query_quid.txt"
    file.write_text(f"1\t2\t[3, 4]\t[1, 1]\t[0, 1]\n1\t2\t{lists}\n")
    with raises_code("bad-line", FileError, line=2):
        cs.read_events(file)
    with warns_code("skipped-input"):
        assert lists_of(cs.read_events(file, on_bad_line="skip")) == [([3, 4], [0, 1])]


def test_the_trec_sample_has_the_lists_of_its_own_reader(standins: Path) -> None:
    from clickshift.io.datasets.trec import read_trec

    file = standins / "trec_session2014" / "train_per_query_quid.txt.gz"
    lists = cs.read_events(file).sessions
    whole = lists[np.flatnonzero(lists.rankings.length == 10)]  # shorter ones repeat a document
    with warns_code("skipped-input"):
        expected = read_trec(file)
    assert lists.total > whole.total == expected.total
    assert whole.click.sum() == expected.click.sum()


def test_metarank_rankings_without_a_query_have_one_name(tmp_path: Path) -> None:
    events = [
        {"event": "user", "id": "u", "timestamp": "1", "user": "u", "fields": []},
        {"event": "ranking", "id": "r", "timestamp": 1_700_000_000_000, "items": [{"id": "a"}, {"id": "b"}]},
        {"event": "ranking", "id": "r2", "timestamp": "2023-11-14T22:13:20Z", "items": [{"id": "a"}],
         "fields": [{"name": "place", "value": "home"}]},
        {"event": "interaction", "id": "i", "timestamp": "1700000000000", "type": "click", "item": "a"},
        {"event": "interaction", "id": "i", "timestamp": "1700000000000", "type": "like", "item": "b", "ranking": "r"},
    ]  # fmt: skip
    file = tmp_path / "metarank.jsonl"
    file.write_text("\n".join(map(json.dumps, events)))
    imported = cs.read_events(file)
    assert {row["query"] for row in imported.log.to_pylist()} == {"recommendations"}
    assert counts(imported) == {"no-query": 2, "no-ranking": 1, "other-action": 1}
    assert lists_of(cs.read_events(file, click_types=["like"])) == [(["a", "b"], [0, 1]), (["a"], [0])]
    named = cs.read_events(file, columns={"query": "place"})
    assert {row["query"] for row in named.log.to_pylist()} == {"recommendations", "home"}


def test_ga4_lists_without_an_index_are_in_order_and_unset_values_are_none(tmp_path: Path) -> None:
    def event(name: str, second: int, items: list[dict[str, str]], **values: str) -> dict[str, Any]:
        given = [{"key": key, "value": {"string_value": value}} for key, value in values.items()]
        session = {"key": "ga_session_id", "value": {"int_value": 5}}
        moment = 1_700_000_000_000_000 + second * 1_000_000
        return {
            "event_name": name,
            "event_timestamp": moment,
            "user_pseudo_id": "u",
            "event_params": [session, *given],
            "items": items,
        }

    unset = {"item_list_index": "(not set)", "item_list_id": "", "item_list_name": "Deals"}
    events = [
        event("page_view", 0, []),
        event("view_item_list", 1, [{"item_id": "a", **unset}, {"item_id": "b", **unset}]),
        event("view_item_list", 2, [{"item_id": "c", "item_list_name": "(not set)"}]),
        event("select_item", 3, [{"item_id": "b"}]),
        event("select_item", 3, [{"item_id": "z"}]),
        event("purchase", 9, [{"item_id": "b", "item_list_name": "(not set)"}]),
    ]
    file = tmp_path / "events.jsonl"
    file.write_text("\n".join(map(json.dumps, events)))
    imported = cs.read_events(file)
    assert [(row["query"], row["docs"], row["clicks"]) for row in imported.log.to_pylist()] == [
        ("Deals", ["a", "b"], [0, 1])
    ]
    assert counts(imported) == {"click-without-impression": 1, "no-query": 1, "rank-by-order": 2}
    assert imported.to_dict()["converted"] == 1
