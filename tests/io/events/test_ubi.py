"""OpenSearch UBI events become lists with their clicks, whatever file they come in and whatever its defects."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import clickshift as cs
from clickshift.errors import FileError, SpecError
from tests.codes import raises_code, warns_code
from tests.golden import golden
from tests.suite import Samples

GOLDEN = golden("opensearch_ubi")
APPLICATIONS = [name for name in GOLDEN if name != "sample"]


def query(query_id: str, text: str | None, time: Any, hits: list[Any] | None = None) -> dict[str, Any]:
    return {
        "application": "shop",
        "query_id": query_id,
        "client_id": "c1",
        "user_query": text,
        "timestamp": time,
        "query_response_hit_ids": hits,
    }


def event(action: str, query_id: str | None, doc: Any, ordinal: Any, time: Any, **others: Any) -> dict[str, Any]:
    attributes = {"object": {"object_id": doc, "object_id_field": "asin"}, "position": {"ordinal": ordinal}}
    return {
        "application": "shop",
        "action_name": action,
        "query_id": query_id,
        "client_id": "c1",
        "timestamp": time,
        "user_query": None,
        "event_attributes": attributes,
        **others,
    }


# the defects of real files: see the comments
DOCUMENTS = [
    query("q1", "printe", "2025-01-24T07:31:30.699+0000", ["x"]),  # type-ahead: two texts of one id
    event("impression", "q1", "a", 1, "2025-01-24T07:31:31Z"),
    query("q1", "printer", "2025-01-24T07:31:32.000+0000", ["a", "b", 7]),
    event("impression", "q1", "b", 1, "2025-01-24T07:31:33Z"),
    event("impression", "q1", 7, 2, 1737703894000),  # milliseconds, and an integer id
    event("impression", "q1", "7", 2, 1737703895000),  # the same document again
    event("impression", "q1", "c", 2, "2025-01-24T07:31:36Z"),  # rank taken, although it is clicked
    event("click", "q1", "c", 2, "2025-01-24T07:31:37Z"),
    event("click", "q1", "7", 2, "2025-01-24T07:31:38Z"),
    event("click", "q1", "7", 2, "2025-01-24T07:31:39Z"),  # repeated
    event("click", "q1", "d", 3, "2025-01-24T07:31:40Z"),  # no impression: shown at the rank of its click
    event("click", "q1", "e", None, "2025-01-24T07:31:41Z"),  # no impression and no rank
    event("impression", "q1", "g", 5, "2025-01-24T07:31:42Z"),  # a gap at rank 4
    event("click", "q1", "g", 5, "2025-01-24T07:31:43Z"),
    event("impression", "q2", "a", 1, "2025-01-24T08:00:00Z"),  # no query row, no text
    event("impression", None, "a", 1, "2025-01-24T08:00:00Z"),
    event("brand_filter", "q1", "brand", -1, "2025-01-24T07:31:43Z"),
    event("impression", "q1", "filter", -1, "2025-01-24T07:31:43Z"),
    event("add_to_cart", "q1", "b", 1, "2025-01-24T07:32:00Z"),
    {
        "application": "shop",
        "action_name": "click",
        "query_id": "q1",
        "timestamp": 1737703900000,
        "event_attributes": None,
    },
    event("impression", "q3", "a", 0, "2025-01-25T00:00:00Z", application="other", user_query="pen é"),  # from 0
    event("impression", "q3", "b", 1, "2025-01-25T00:00:01Z", application="other", user_query="pen é"),
    event("click", "q3", "b", 1, "2025-01-25T00:00:02Z", application="other", user_query="pen é"),
]
LISTS = [
    ("printe", ["a"], [0]),
    ("printer", ["b", "7", "d", None, "g"], [0, 1, 1, 0, 1]),
    ("pen é", ["a", "b"], [0, 1]),
]
REASONS = {
    "rank-taken": 1,
    "rank-taken-click": 1,
    "repeated-impression": 1,
    "repeated-click": 1,
    "shown-by-click": 1,
    "click-without-impression": 1,
    "hole": 1,
    "no-query": 1,
    "no-query-id": 1,
    "no-object": 1,
    "other-action": 1,
    "rank-below-base": 1,
}


def bulk(documents: list[dict[str, Any]]) -> str:
    """A bulk file: an action line before each document."""
    index = ["ubi_events" if "action_name" in one else "ubi_queries" for one in documents]
    return "".join(
        json.dumps({"index": {"_index": name, "_id": str(k)}}) + "\n" + json.dumps(one) + "\n"
        for k, (name, one) in enumerate(zip(index, documents, strict=True))
    )


def hits(documents: list[dict[str, Any]], indent: int | None) -> str:
    found = [{"_index": "ubi", "_id": str(k), "_source": one} for k, one in enumerate(documents)]
    return json.dumps({"took": 3, "hits": {"total": {"value": 9}, "hits": found}}, indent=indent)


WRITERS = {
    "bulk.ndjson": bulk,
    "bulk.ndjson.gz": lambda documents: gzip.compress(bulk(documents).encode()),
    "marked.json": lambda documents: b"\xef\xbb\xbf" + bulk(documents).encode(),
    "lines.jsonl": lambda documents: "\n\n".join(map(json.dumps, documents)),
    "dump.jsonl": lambda documents: "\n".join(json.dumps({"_index": "u", "_source": one}) for one in documents),
    "hits.json": lambda documents: hits(documents, None),
    "hits_pretty.json": lambda documents: hits(documents, 2),
    "array.json": lambda documents: json.dumps(documents, indent=1),
    "tagged.tsv": lambda documents: "\n".join(f"ubi_events\t{json.dumps(one)}" for one in documents),
}


def lists_of(imported: Any) -> list[tuple[str, list[str], list[int]]]:
    return [(row["query"], row["docs"], row["clicks"]) for row in imported.log.to_pylist()]


def counts(imported: Any) -> dict[str, int]:
    return {row["reason"]: row["count"] for row in imported.rows()}


@pytest.mark.parametrize("name", WRITERS)
def test_every_kind_of_file_gives_the_same_lists_and_reasons(name: str, tmp_path: Path) -> None:
    content = WRITERS[name](DOCUMENTS)
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    imported = cs.read_events(file)
    assert imported.format == "ubi"
    assert lists_of(imported) == LISTS
    assert counts(imported) == REASONS
    assert imported.to_dict()["first_ranks"] == {"other": 0, "shop": 1}


def flat(one: dict[str, Any]) -> dict[str, Any]:
    attributes = one.get("event_attributes") or {}
    return {
        **{name: one.get(name) for name in ("application", "action_name", "query_id", "client_id", "user_query")},
        "timestamp": str(one["timestamp"]),
        "object_id": None if "object" not in attributes else str(attributes["object"]["object_id"]),
        "position": None if "object" not in attributes else attributes["position"]["ordinal"],
    }


def test_the_flat_tables_of_the_data_generator_give_the_same_lists(tmp_path: Path) -> None:
    rows = [flat(one) for one in DOCUMENTS]
    events = [row for row in rows if row["action_name"]]
    queries = [row for row in rows if not row["action_name"]]
    pd.DataFrame(events).astype({"position": "Int64"}).to_csv(tmp_path / "ubi_events.csv", index=False)
    pd.DataFrame(queries).drop(columns=["object_id", "position"]).to_csv(tmp_path / "ubi_queries.csv", index=False)
    assert lists_of(cs.read_events(tmp_path)) == LISTS
    pq.write_table(pa.Table.from_pylist(events), tmp_path / "e.parquet")
    pq.write_table(pa.Table.from_pylist(queries), tmp_path / "q.parquet")
    assert lists_of(cs.read_events([tmp_path / "e.parquet", tmp_path / "q.parquet"])) == LISTS


def test_nested_parquet_and_frames_are_read_as_the_documents_are(tmp_path: Path) -> None:
    texts = [
        one
        | {"timestamp": str(one["timestamp"])}
        | ({} if "event_attributes" not in one else {"event_attributes": texts_of(one)})
        for one in DOCUMENTS
    ]
    table = pa.Table.from_pylist(texts, schema=SCHEMA)
    pq.write_table(table, tmp_path / "ubi.parquet")
    assert lists_of(cs.read_events(tmp_path / "ubi.parquet")) == LISTS
    assert lists_of(cs.read_events(table)) == LISTS


def texts_of(one: dict[str, Any]) -> Any:
    """Attributes with ids as text, as a column needs."""
    attributes = one["event_attributes"]
    if attributes is None:
        return None
    return {"object": {"object_id": str(attributes["object"]["object_id"])}, "position": attributes["position"]}


SCHEMA = pa.schema(
    {
        "application": pa.string(),
        "action_name": pa.string(),
        "query_id": pa.string(),
        "client_id": pa.string(),
        "user_query": pa.string(),
        "timestamp": pa.string(),
        "event_attributes": pa.struct(
            {"object": pa.struct({"object_id": pa.string()}), "position": pa.struct({"ordinal": pa.int64()})}
        ),
    }
)


@pytest.mark.parametrize("application", APPLICATIONS)
def test_the_sample_gives_the_golden_counts(application: str, shared_data: Samples) -> None:
    expected = GOLDEN[application]
    imported = cs.read_events(shared_data / GOLDEN["sample"], application=[application])
    facts, reasons = imported.to_dict(), counts(imported)
    assert {name: facts[name] for name in ("lists", "results", "clicked", "clicks")} == {
        name: expected[name] for name in ("lists", "results", "clicked", "clicks")
    }
    assert facts["results"] + reasons.get("rank-taken", 0) == expected["pairs"]
    assert facts["clicked"] + reasons.get("rank-taken-click", 0) == expected["clicked_pairs"]
    assert facts["first_ranks"] == {application: expected["first_rank"]}
    assert imported.sessions.vocabulary.n_queries == expected["queries_before_gaps"]
    sessions = imported.sessions
    assert (sessions.total, int(sessions.rankings.shown.sum()), int(sessions.click.sum())) == (
        expected["lists"],
        expected["results"],
        expected["clicked"],
    ), "nothing is lost to gaps between ranks"


def test_gaps_are_closed_cut_or_their_lists_dropped_if_asked(tmp_path: Path) -> None:
    file = tmp_path / "ubi.ndjson"
    file.write_text(bulk(DOCUMENTS))
    closed = cs.read_events(file, gaps="close")
    assert lists_of(closed)[1] == ("printer", ["b", "7", "d", "g"], [0, 1, 1, 1])
    cut = cs.read_events(file, gaps="truncate")
    assert lists_of(cut)[1] == ("printer", ["b", "7", "d"], [0, 1, 1])
    assert cut.log.to_pylist()[1]["add_to_cart"] == [1, 0, 0]
    assert counts(cut)["beyond-gap"] == counts(cut)["beyond-gap-click"] == counts(cut)["gap-truncated"] == 1
    dropped = cs.read_events(file, gaps="drop")
    assert [text for text, _, _ in lists_of(dropped)] == ["printe", "pen é"]
    assert counts(dropped)["gap-click"] == 3


def test_hits_are_what_the_engine_returned(tmp_path: Path) -> None:
    file = tmp_path / "ubi.ndjson"
    file.write_text(bulk(DOCUMENTS))
    imported = cs.read_events(file, shown="hits", application=["shop"])
    assert lists_of(imported) == [("printe", ["x"], [0]), ("printer", ["a", "b", "7"], [0, 0, 1])]
    assert imported.log["viewed"].to_pylist() == [[None], [0, 1, 1]], "of the first list, nothing is known"


def test_types_of_clicks_and_conversions_are_options(tmp_path: Path) -> None:
    file = tmp_path / "ubi.ndjson"
    file.write_text(bulk(DOCUMENTS))
    imported = cs.read_events(file, click_types=["add_to_cart"], conversion_types=["click"])
    assert lists_of(imported)[1] == ("printer", ["b", "7", None, None, "g"], [1, 0, 0, 0, 0])
    assert imported.to_dict()["converted"] == 3  # 7 and g of printer, b of pen
    assert imported.log.to_pylist()[1]["click_event"] == [0, 1, None, None, 1]


def test_query_texts_are_normalised_if_asked(tmp_path: Path) -> None:
    file = tmp_path / "ubi.ndjson"
    text = [event("impression", "q", "a", 1, 1737703895000, user_query="  Red Dress")]
    file.write_text(bulk(text))
    assert lists_of(cs.read_events(file))[0][0] == "  Red Dress"
    assert lists_of(cs.read_events(file, normalise=["lower", "strip"]))[0][0] == "red dress"


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        ('{"action_name": "click", ', "bad-json"),
        (json.dumps(event("impression", "q1", "a", 1, "yesterday")), "bad-time"),
        (json.dumps(event("impression", "q1", "a", "first", 1737703895000)), "bad-rank"),
        (json.dumps(event("impression", "q1", ["a", "b"], 1, 1737703895000)), "bad-id"),
        (json.dumps({"query_id": "q1", "user_query": {"text": "shoes"}}), "bad-id"),
        ('{"some": "thing"}', "not-an-event"),
    ],
)
def test_a_document_that_breaks_the_format_is_named_by_its_line_or_counted(bad: str, code: str, tmp_path: Path) -> None:
    good = bulk(DOCUMENTS)
    file, log = tmp_path / "ubi.ndjson", tmp_path / "log.parquet"
    file.write_text(good + bad + "\n")
    with raises_code(code, FileError) as raised:
        cs.read_events(file, output=log)
    assert raised.value.line == 2 * len(DOCUMENTS) + 1
    assert not list(tmp_path.glob("log*")), "nothing half-written"
    with warns_code("skipped-input"):
        imported = cs.read_events(file, on_bad_line="skip")
    assert lists_of(imported) == LISTS
    assert counts(imported) == REASONS | {code: 1}


def test_texts_that_look_like_lists_and_ids_of_other_events_are_read(tmp_path: Path) -> None:
    file = tmp_path / "ubi.ndjson"
    other = event("filter", "q1", ["a", "b"], None, 1737703895000)
    shown = event("impression", "q1", "[7]", 1, 1737703895000, user_query="{}")
    file.write_text(f"{json.dumps(other)}\n{json.dumps(shown)}\n")
    imported = cs.read_events(file)
    assert lists_of(imported)[0][:2] == ("{}", ["[7]"])
    assert counts(imported) == {"other-action": 1}


def test_an_application_that_is_not_there_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "ubi.ndjson"
    file.write_text(bulk(DOCUMENTS))
    with raises_code("bad-option", SpecError):
        cs.read_events(file, application=["blog"])


def test_reasons_have_at_most_three_examples(tmp_path: Path) -> None:
    file = tmp_path / "ubi.ndjson"
    others = [event("impression", None, f"d{k}", 1, 1737703895000) for k in range(9)]
    file.write_text(bulk([*DOCUMENTS, *others]))
    (row,) = [row for row in cs.read_events(file).rows() if row["reason"] == "no-query-id"]
    assert row["count"] == 10
    assert row["examples"].count("object") == 3
