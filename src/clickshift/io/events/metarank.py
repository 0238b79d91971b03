"""Metarank events (0.7): rankings, interactions and metadata, as JSON lines or a JSON array.

A ranking is a list: its id joins the interactions, its items are in order of rank, and its query is one of its fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clickshift.io.encode.duckdb import sql_text
from clickshift.io.events._database import IMPRESSION, EventDatabase, Loaded, kind_of
from clickshift.io.events._problems import report_problems
from clickshift.io.events._sources import Source
from clickshift.io.events.options import EventOptions, signal_names

_LISTS = {"ranking", "interaction"}
_PATHS = ("event", "id", "ranking", "timestamp", "user", "session", "type", "item")
NO_QUERY = "recommendations"
"""Query of rankings that have none."""
_EXAMPLE = "concat_ws(', ', type, 'ranking ' || list, 'item ' || doc, time)"


def is_metarank(names: Sequence[str], sample: Sequence[dict[str, Any]]) -> bool:
    """Return whether keys and the first documents are those of Metarank."""
    kinds = {one.get("event") for one in sample if isinstance(one.get("event"), str)}
    return bool(kinds & _LISTS) and {"event", "id", "timestamp"} <= {*names} and bool({"items", "ranking"} & {*names})


def load_metarank(database: EventDatabase, sources: Sequence[Source], options: EventOptions) -> Loaded:
    """Make the table `events` of Metarank's rankings and interactions.

    Raises
    ------
    FileError
        "bad-json", "bad-time", "bad-id", "bad-type", "missing-value" for events that break the format, unless they
        are skipped.
    """
    query = options.columns.get("query", "query")
    paths = ", ".join(f"'$.{name}'" for name in _PATHS)
    fields = ", ".join(f'v[{k}] AS "{name}"' for k, name in enumerate(_PATHS, 1))
    database.execute(
        "CREATE TABLE raw (file INTEGER, event VARCHAR, list VARCHAR, query VARCHAR, items VARCHAR[], time TIMESTAMP, "
        '"user" VARCHAR, type VARCHAR, doc VARCHAR, problem VARCHAR, got VARCHAR)'
    )
    for number, source in enumerate(sources):
        database.execute(
            f"""INSERT INTO raw SELECT * EXCLUDE (raw_doc),
            CASE WHEN problem IS NOT NULL THEN CAST(raw_doc AS VARCHAR) END FROM (
            SELECT {number} AS file, event, CASE event WHEN 'ranking' THEN id ELSE ranking END AS list,
                json_extract_string(field, '$.value') AS query, [item->>'$.id' FOR item IN listed] AS items,
                time_of("timestamp") AS time,
                coalesce("user", session) AS "user", type, item AS doc,
                CASE WHEN raw_doc IS NULL THEN 'bad-json' WHEN event IN ('item', 'user') THEN NULL
                WHEN event IS NULL OR event NOT IN ('ranking', 'interaction') THEN 'event'
                WHEN time IS NULL THEN 'bad-time' WHEN event = 'ranking' AND (id IS NULL OR len(listed) = 0
                    OR list_count([nullif(item->>'$.id', '') FOR item IN listed]) < len(listed)) THEN 'items'
                WHEN event = 'ranking' AND json_type(field, '$.value') IN ('ARRAY', 'OBJECT') THEN 'query'
                WHEN event = 'interaction' AND item IS NULL THEN 'item' END AS problem, raw_doc
            FROM (SELECT doc AS raw_doc, {fields}, json_extract(doc, '$.items[*]') AS listed,
                [f FOR f IN json_extract(doc, '$.fields[*]') IF f->>'$.name' = {sql_text(query)}][1] AS field
                FROM (SELECT doc, json_extract_string(doc, [{paths}]) AS v FROM {source.documents(database)})))"""
        )
    rules = {
        "bad-json": ("a line must be a JSON object", "bad-json"),
        "event": ("event must be ranking, interaction, item or user", "bad-type"),
        "bad-time": ("timestamp must be a time", "bad-time"),
        "items": ("a ranking must have an id, and items with ids", "missing-value"),
        "query": (f"the field {query} of a ranking must be text or a number, not a list or an object", "bad-id"),
        "item": ("an interaction must have an item", "missing-value"),
    }
    report_problems(database, sources, rules, shown_values={"bad-time": ("$.timestamp",), "event": ("$.event",)})
    kind = kind_of("type", (), options.clicks, options.conversions)
    database.execute(
        f"""CREATE TABLE acts AS SELECT rowid AS place, *, {kind} AS kind
        FROM raw WHERE event = 'interaction'"""
    )
    database.left_out("acts", "kind IS NULL", "interactions of other types", "other-action", example=_EXAMPLE)
    what = "interactions without the id of a ranking"
    database.left_out("acts", "kind IS NOT NULL AND list IS NULL", what, "no-ranking", example=_EXAMPLE)
    what = f"rankings without a field {query}: their query is {NO_QUERY}"
    database.repaired("raw", "event = 'ranking' AND query IS NULL", what, "no-query", example="'ranking ' || list")
    database.execute(
        f"""CREATE TABLE events AS
        SELECT place, '' AS source, list, query, doc, ordinal, time, "user", CAST({IMPRESSION} AS TINYINT) AS kind
        FROM (
            SELECT rowid AS place, list, coalesce(query, {sql_text(NO_QUERY)}) AS query, unnest(items) AS doc,
            CAST(generate_subscripts(items, 1) AS BIGINT) AS ordinal, time, "user" FROM raw WHERE event = 'ranking')
        UNION ALL
        SELECT place, '', list, NULL, doc, NULL, time, NULL, kind FROM acts
        WHERE kind IS NOT NULL AND list IS NOT NULL"""
    )
    database.execute("DROP TABLE raw; DROP TABLE acts")
    return Loaded(signals=signal_names(options.conversions))
