"""Files in the published schemas of their systems, with all columns and the traps that real exports have."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import clickshift as cs
from clickshift.errors import FileError
from tests.codes import raises_code, warns_code
from tests.io.events.test_generic import counts

Rows = list[dict[str, Any]]


def found(imported: Any, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row.get(name) for name in ("query", "docs", "clicks", *names)) for row in imported.log.to_pylist()]


def as_lines(rows: Rows, path: Path) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def as_parquet(rows: Rows, path: Path) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


# Google Analytics 4


def ga4_event(
    name: str, second: int, items: Rows, *, term: str = "", page: str = "https://shop/s?q=shoe", user: str = "u.1"
) -> dict[str, Any]:
    values: dict[str, Any] = {"ga_session_id": 7, "page_location": page} | ({"search_term": term} if term else {})
    kinds = {str: "string_value", int: "int_value"}
    empty = dict.fromkeys(("string_value", "int_value", "float_value", "double_value"))
    return {
        "event_date": "20231114",
        "event_timestamp": 1_700_000_000_000_000 + second * 1_000_000,
        "event_name": name,
        "event_params": [{"key": key, "value": {**empty, kinds[type(one)]: one}} for key, one in values.items()],
        "user_pseudo_id": user,
        "user_id": None,
        "device": {"category": "mobile"},
        "platform": "WEB",
        "batch_event_index": 1,
        "batch_page_id": 123,
        "items": items,
    }


def ga4_item(item: str, index: str | None, name: str = "Search results") -> dict[str, Any]:
    return {"item_id": item, "item_name": "n", "item_list_id": "(not set)", "item_list_name": name} | {
        "item_list_index": index,
        "price": 1.5,
        "quantity": None,
    }


GA4 = [
    ga4_event("view_search_results", 0, [], term="shoe"),
    ga4_event("view_item_list", 1, [ga4_item("a", "0"), ga4_item("b", "1")]),  # two events of one page and list
    ga4_event("view_item_list", 2, [ga4_item("c", "2"), ga4_item("d", "3")]),
    ga4_event("select_item", 5, [ga4_item("c", None)]),
    ga4_event("select_item", 6, [ga4_item("z", None)]),
    ga4_event("purchase", 20, [ga4_item("c", None, "(not set)")]),
    ga4_event("view_item_list", 30, [ga4_item("b", "(not set)"), ga4_item("a", None)], term="boot", page="/boot"),
    ga4_event("select_item", 31, [ga4_item("a", None)], page="/boot"),
    ga4_event("view_item_list", 40, [ga4_item("a", "0", "(not set)")], user="u.2", page="/"),
    ga4_event("page_view", 41, [], user="u.2"),
]


def with_elements(rows: Rows) -> Rows:
    """Repeated records as BigQuery writes them to Parquet without list inference."""
    return [
        row | {name: {"list": [{"element": one} for one in row[name]]} for name in ("items", "event_params")}
        for row in rows
    ]


def with_text_integers(rows: Rows) -> Rows:
    """Integers as BigQuery writes them to JSON."""
    changed = json.loads(json.dumps(rows))
    for row in changed:
        row["event_timestamp"] = str(row["event_timestamp"])
        for one in row["event_params"]:
            one["value"] = {key: str(value) for key, value in one["value"].items() if value is not None}
    return changed


@pytest.mark.parametrize(
    "write",
    [
        lambda folder: as_parquet(GA4, folder / "events.parquet"),
        lambda folder: as_parquet(with_elements(GA4), folder / "events.parquet"),
        lambda folder: as_lines(with_text_integers(GA4), folder / "events.json"),
    ],
    ids=["parquet", "elements", "json"],
)
def test_ga4(write: Callable[[Path], Path], tmp_path: Path) -> None:
    imported = cs.read_events(write(tmp_path))
    assert imported.format == "ga4"
    assert found(imported, "purchase", "device") == [
        ("shoe", ["a", "b", "c", "d"], [0, 0, 1, 0], [0, 0, 1, 0], "mobile"),
        ("boot", ["b", "a"], [0, 1], [0, 0], "mobile"),  # without an index: in order, from the first rank of the others
    ]
    assert counts(imported) == {"click-without-impression": 1, "no-query": 1, "rank-by-order": 2}
    assert imported.to_dict()["first_ranks"] == {"": 0}


# Snowplow

ACTION = "unstruct_event_com_snowplowanalytics_snowplow_ecommerce_snowplow_ecommerce_action_1"
PRODUCTS = "contexts_com_snowplowanalytics_snowplow_ecommerce_product_1"


def snowplow_event(kind: str, second: int, products: dict[str, int | None], name: str | None = "search") -> Any:
    entities = [{"id": one, "category": "c", "price": 1.0, "position": at} for one, at in products.items()]
    return {
        "event_id": str(second),
        "derived_tstamp": f"2024-01-01 10:00:{second:02d}.000",
        "domain_userid": "d",
        "domain_sessionid": "s",
        "page_view_id": f"page of {name}",
        "page_urlquery": "q=shoe",
        ACTION: {"type": kind, "name": name},
        PRODUCTS: entities,
    }


SNOWPLOW = [
    snowplow_event("list_view", 1, {"a": 0, "b": 1, "c": 2}),
    snowplow_event("list_click", 4, {"b": 1}),
    snowplow_event("list_view", 6, {"c": None, "a": None}, "for you"),
    snowplow_event("list_click", 8, {"a": None}, None),
    snowplow_event("product_view", 9, {"b": None}, None),
    snowplow_event("transaction", 10, {"b": None}, None),
    snowplow_event("list_click", 11, {"z": 1}),
]


def as_texts(rows: Rows, path: Path) -> Path:
    """A CSV file with columns in upper case, and JSON as text."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([name.upper() for name in rows[0]])
        for row in rows:
            writer.writerow([json.dumps(one) if isinstance(one, dict | list) else one for one in row.values()])
    return path


@pytest.mark.parametrize("write", [as_lines, as_parquet, as_texts])
@pytest.mark.parametrize("query", ["", "page_urlquery"])
def test_snowplow(write: Callable[[Rows, Path], Path], query: str, tmp_path: Path) -> None:
    imported = cs.read_events(write(SNOWPLOW, tmp_path / "events"), columns={"query": query} if query else None)
    assert imported.format == "snowplow"
    assert found(imported, "transaction", "user") == [
        ("q=shoe" if query else "search", ["a", "b", "c"], [0, 1, 0], [0, 1, 0], "d"),
        ("q=shoe" if query else "for you", ["c", "a"], [0, 1], [0, 0], "d"),
    ]
    assert counts(imported) == {"click-without-impression": 1, "rank-by-order": 2}


# Metarank


def test_metarank(tmp_path: Path) -> None:
    field = {"name": "relevancy", "value": 2.0}
    events: Rows = [
        {"event": "item", "id": "1", "timestamp": "1599391467000", "item": "a", "fields": [field]},
        {"event": "user", "id": "2", "timestamp": "2020-09-06T11:24:27Z", "user": "u", "fields": []},
        {
            **{"event": "ranking", "id": "r1", "timestamp": "1599391467000", "user": "u", "session": "s"},
            "fields": [{"name": "tags", "value": ["x", 1]}, {"name": "query", "value": "cat"}],
            "items": [{"id": "c", "fields": [field], "label": 1}, {"id": "a"}, {"id": "b", "relevancy": 3}],
        },
        {"event": "interaction", "id": "3", "ranking": "r1", "timestamp": 1599391468000, "type": "click", "item": "a"},
        {
            "event": "interaction",
            "id": "4",
            "ranking": "r1",
            "timestamp": "1599391469",
            "type": "purchase",
            "item": "a",
        },
        {"event": "interaction", "id": "5", "ranking": None, "timestamp": "1599391469", "type": "click", "item": "a"},
        {"event": "interaction", "id": "6", "ranking": "r0", "timestamp": "1599391469", "type": "click", "item": "a"},
        {"event": "interaction", "id": "7", "ranking": "r1", "timestamp": "1599391469", "type": "like", "item": "a"},
        {
            "event": "ranking",
            "id": "r2",
            "timestamp": "2020-09-06T13:24:28+02:00",
            "items": [{"id": "a"}],
            "tenant": "t",
        },
    ]
    (tmp_path / "one").mkdir()
    with gzip.open(tmp_path / "one" / "a.jsonl.gz", "wt") as file:
        file.write("\n".join(map(json.dumps, events[:4])))
    (tmp_path / "one" / "b.json").write_text(json.dumps(events[4:], indent=1))
    for source in (tmp_path / "one", as_lines(events, tmp_path / "events.jsonl")):
        imported = cs.read_events(source)
        assert imported.format == "metarank"
        assert found(imported, "purchase") == [
            ("cat", ["c", "a", "b"], [0, 1, 0], [0, 1, 0]),
            ("recommendations", ["a"], [0], [0]),
        ]
        reasons = {"other-action": 1, "no-ranking": 1, "click-without-impression": 1, "no-query": 1}
        assert counts(imported) == reasons


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"items": [{"label": 1}, {"id": "b"}]}, "missing-value"),  # ranks below it would shift
        ({"items": [{"id": None}]}, "missing-value"),
        ({"items": []}, "missing-value"),
        ({"fields": [{"name": "query", "value": ["a", "b"]}]}, "bad-id"),
        ({"event": "rank"}, "bad-type"),
        ({"timestamp": "soon"}, "bad-time"),
    ],
)
def test_rankings_of_metarank_that_break_the_format(changes: dict[str, Any], code: str, tmp_path: Path) -> None:
    fields = [{"name": "flag"}, {"name": "query", "value": "q"}]  # a field without a value moves no other one
    one = {"event": "ranking", "id": "1", "timestamp": "1599391467", "fields": fields, "items": [{"id": "a"}]}
    file = as_lines([one, {**one, "id": "2"}, {**one, "id": "3", **changes}], tmp_path / "e.jsonl")
    with raises_code(code, FileError, line=3):
        cs.read_events(file)
    with warns_code("skipped-input"):
        imported = cs.read_events(file, on_bad_line="skip")
    assert found(imported) == [("q", ["a"], [0])] * 2
    assert counts(imported) == {code: 1}


@pytest.mark.parametrize(
    ("rows", "changes"),
    [(GA4, {"items": "a"}), (GA4, {"event_params": 5}), (SNOWPLOW, {PRODUCTS: "[{"}), (SNOWPLOW, {ACTION: "{"})],
)
def test_records_that_are_none_are_named(rows: Rows, changes: dict[str, Any], tmp_path: Path) -> None:
    shown = next(row for row in rows if "view" in json.dumps(row) and row.get("items", True))
    with raises_code("bad-record", FileError, line=2):
        cs.read_events(as_lines([shown, {**shown, **changes}], tmp_path / "e.jsonl"))
    if rows is SNOWPLOW:  # an action without products is none that breaks the format
        kept = cs.read_events(as_lines([shown, {**shown, PRODUCTS: None}], tmp_path / "e.jsonl"))
        assert counts(kept) == {}


# Research data sets


def baidu_result(position: int, url: str, click: int, displayed: str) -> str:
    columns = ["-"] * 32
    columns[:6] = [str(position), url, "t\x01t", "a", "-", str(click)]
    columns[10] = displayed
    return "\t".join(columns)


def test_baidu_ultr(tmp_path: Path) -> None:
    lines = ["1001\t34\x0178\t-", baidu_result(1, "u1", 0, "3"), baidu_result(2, "u2", 1, "5.5")]
    lines += [baidu_result(4, "u3", 0, "0"), "1002\t9\x013\t55", baidu_result(1, "u9", 0, "0"), "1003\t34\x0178"]
    lines += [baidu_result(2, "u2", 0, "1")]
    with gzip.open(tmp_path / "part-00000.gz", "wt") as file:
        file.write("\n".join(lines))
    imported = cs.read_events(tmp_path / "part-00000.gz")
    assert imported.format == "baidu-ultr"
    assert found(imported, "viewed") == [
        ("34 78", ["u1", "u2", None, "u3"], [0, 1, 0, 0], [1, 1, None, 0]),
        ("9 3", ["u9"], [0], [None]),  # nothing displayed: not tracked
        ("34 78", [None, "u2"], [0, 0], [None, 1]),
    ]


@pytest.mark.parametrize("ending", ["parquet", "feather"])
@pytest.mark.parametrize("by_list", [False, True])
def test_baidu_uva(ending: str, by_list: bool, tmp_path: Path) -> None:
    table = pd.DataFrame({"query_id": ["1", "1", "2"], "query_md5": ["m", "m", "n"], "url_md5": ["a", "b", "a"]})
    table = table.assign(click=[0, 1, 0], position=[1, 3, 2], displayed_time=[1.5, 0, 0], bm25=[0.1, 0.2, 0.3])
    if by_list:
        table = table.groupby(["query_id", "query_md5"], as_index=False).agg(list)
    getattr(table, f"to_{ending}")(tmp_path / "part-1")
    imported = cs.read_events(tmp_path / "part-1")
    assert imported.format == "baidu-uva"
    assert found(imported, "viewed") == [
        ("m", ["a", None, "b"], [0, 0, 1], [1, None, 0]),
        ("n", [None, "a"], [0, 0], [None, None]),
    ]


def test_expedia(tmp_path: Path) -> None:
    table = pd.DataFrame(
        {"srch_id": [1, 1, 2, 2], "date_time": ["2013-04-04 08:32:15"] * 2 + ["2013-04-05 01:00:00"] * 2}
    )
    table = table.assign(site_id=12, visitor_location_country_id=187, prop_country_id=219, prop_id=[8, 9, 5, 6])
    table = table.assign(position=[2, 1, 1, 6], price_usd=9.5, srch_destination_id=[7, 7, 15, 15], comp1_rate="NULL")
    table = table.assign(random_bool=[1, 1, 0, 0], click_bool=[0, 1, 1, 0], gross_bookings_usd="NULL")
    table.assign(booking_bool=[0, 0, 1, 0]).to_csv(tmp_path / "train.csv", index=False)
    imported = cs.read_events(tmp_path / "train.csv")
    assert imported.format == "expedia"
    assert found(imported, "booking_bool", "random_bool") == [
        (7, [9, 8], [1, 0], [0, 0], "1"),
        (15, [5, None, None, None, None, 6], [1, 0, 0, 0, 0, 0], [1, None, None, None, None, 0], "0"),
    ]


def test_search_console(tmp_path: Path) -> None:
    names = (
        "data_date,site_url,url,query,is_anonymized_query,country,search_type,device,impressions,clicks,sum_position"
    )
    rows = [
        "2024-01-01,s,https://x/a,shoe,false,nld,WEB,MOBILE,10,3,0",
        "2024-01-01,s,/b,shoe,false,nld,WEB,TABLET,10,1,15",
    ]
    rows += ["2024-01-01,s,/b,,true,nld,WEB,MOBILE,5,0,15", "2024-01-02,s,/b,shoe,false,deu,WEB,DESKTOP,4,1,4"]
    (tmp_path / "url_impression.csv").write_text("\n".join([names, *rows]))
    with warns_code("mean-ranks"):
        imported = cs.read_events(tmp_path / "url_impression.csv")
    assert imported.format == "aggregated"
    cells = imported.counts.cells
    assert (cells.impressions.tolist(), cells.clicks.tolist()) == (
        [4, 10, 10],
        [1, 1, 3],
    )  # of /b at rank 2 and, on average, 2.5
    assert counts(imported) == {"no-query": 1, "mean-rank": 1}
