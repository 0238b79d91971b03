"""OpenSearch User Behavior Insights (UBI, spec 1.3.0): the indexes `ubi_queries` and `ubi_events`.

They come as bulk files (an action line before each document), dumps of hits, one document per line (also after a tag),
JSON arrays, CSV (flat: object_id, position), Parquet, or data frames. One file may hold both indexes, several
applications, and times of both kinds.

A list is what one query text of one `query_id` of an application shows: type-ahead searches log several texts under one
id. An event without a text gets that of the latest query of its id that is not later. Ordinals of each application
begin at the smallest one. At one rank the document with the earliest impression stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clickshift.io.encode.duckdb import sql_text, sql_texts
from clickshift.io.events._database import CLICK, CONVERSION, IMPRESSION, SEPARATOR, EventDatabase
from clickshift.io.events._sources import Source, check_rejected, report_problems
from clickshift.io.events.options import EventOptions

_ACTIONS = ("index", "create", "update", "delete")  # of bulk files
_PATHS = {
    "application": "$.application",
    "action": "$.action_name",
    "query_id": "$.query_id",
    "user_query": "$.user_query",
    "client": "$.client_id",
    "person": "$.user_id",
    "moment": "$.timestamp",
    "doc": "$.event_attributes.object.object_id",
    "flat_doc": "$.object_id",
    "ordinal": "$.event_attributes.position.ordinal",
    "flat_ordinal": "$.position",
    "hits": "$.query_response_hit_ids",
    "attributes": "$.event_attributes",
    **{f"to_{action}": f"$.{action}" for action in _ACTIONS},
}
_EXAMPLE = (
    "concat_ws(', ', action, 'query_id ' || query_id, 'object ' || doc, "
    "concat('at ', strftime(time, '%Y-%m-%d %H:%M:%S')))"
)


def is_ubi(names: Sequence[str], sample: Sequence[dict[str, Any]]) -> bool:
    """Return whether columns and the first documents are those of UBI."""
    bulk = any(
        isinstance(one.get(action), dict) and "_index" in one[action] for one in sample[:2] for action in _ACTIONS
    )
    has = {*names}
    return (
        bulk
        or {"action_name", "query_id"} <= has
        or {"query_id", "user_query", "query_response_id"} <= has
        or (
            {"query_id", "user_query"} <= has
            and bool({"client_id", "query_attributes", "query_response_hit_ids"} & has)
            and not {"event", "event_type"} & has
        )
    )


def load_ubi(database: EventDatabase, sources: Sequence[Source], options: EventOptions) -> None:
    """Make the table `events` of UBI documents; see `_database.EVENT_COLUMNS`.

    Raises
    ------
    FileError
        "bad-json", "bad-time" or "bad-rank" for events that break the format, unless they are skipped.
    """
    database.execute(
        "CREATE TABLE raw (file INTEGER, application VARCHAR, action VARCHAR, query_id VARCHAR, user_query VARCHAR, "
        "person VARCHAR, time TIMESTAMP, doc VARCHAR, ordinal BIGINT, hits VARCHAR, problem VARCHAR, got VARCHAR)"
    )
    for number, source in enumerate(sources):
        database.execute(_extraction(source.documents(database), number))
    check_rejected(database, sources)
    rules = {
        "bad-json": ("a line must be a JSON object", "bad-json"),
        "bad-time": ("timestamp must be a time (ISO 8601, or milliseconds since 1970)", "bad-time"),
        "bad-rank": ("position.ordinal must be an integer", "bad-rank"),
        "not-an-event": ("a document must be an event (action_name) or a query (query_id)", "not-an-event"),
    }
    report_problems(database, sources, rules)
    wanted = "" if options.application is None else f"AND application IN {_tuple(options.application)}"
    _check_application(database, options)
    text = "user_query"
    for name in options.normalise:
        text = f"lower({text})" if name == "lower" else f"trim({text})"
    database.execute(
        f"""CREATE TABLE queries AS SELECT rowid AS place, application, query_id, nullif({text}, '') AS query, time,
        person, hits FROM raw WHERE action IS NULL AND query_id IS NOT NULL {wanted}"""
    )
    kinds = {
        IMPRESSION: options.impression_types or ("impression",),
        CLICK: options.clicks,
        CONVERSION: options.conversions,
    }
    cases = " ".join(f"WHEN action IN {_tuple(names)} THEN {kind}" for kind, names in kinds.items())
    database.execute(
        f"""CREATE VIEW acts AS SELECT *, rowid AS place, nullif({text}, '') AS query,
        CAST(CASE {cases} END AS TINYINT) AS kind
        FROM raw WHERE action IS NOT NULL {wanted}"""
    )
    others = [
        f"{action} ({count:,})"
        for action, count in database.rows(
            "SELECT action, count(*) FROM acts WHERE kind IS NULL GROUP BY action ORDER BY count(*) DESC, action"
        )
    ]
    n_others = database.number("SELECT count(*) FROM acts WHERE kind IS NULL")
    if n_others:
        database.report.left_out(n_others, "events of other actions", "other-action", examples=others)
    used = f"kind IS NOT NULL{f' AND kind <> {IMPRESSION}' if options.shown == 'hits' else ''}"
    database.left_out(
        "acts", f"{used} AND query_id IS NULL", "events without a query_id", "no-query-id", example=_EXAMPLE
    )
    without = f"{used} AND query_id IS NOT NULL AND doc IS NULL"
    database.left_out("acts", without, "events without an object_id", "no-object", example=_EXAMPLE)
    _name_queries(database, f"{used} AND query_id IS NOT NULL AND doc IS NOT NULL")
    if options.shown == "hits":
        _show_hits(database)
    database.execute("DROP VIEW acts; DROP TABLE raw; DROP TABLE queries")


def _extraction(documents: str, number: int) -> str:
    """Return the statement that inserts the documents of a source into `raw`."""
    paths = ", ".join(sql_text(path) for path in _PATHS.values())
    fields = ", ".join(f"v[{k}] AS {name}" for k, name in enumerate(_PATHS, 1))
    actions = " AND ".join(f"to_{action} IS NULL" for action in _ACTIONS)
    return f"""
        INSERT INTO raw
        SELECT file, application, nullif(action, ''), nullif(query_id, ''), user_query, person, time, doc, ordinal,
               hits, problem, CASE WHEN problem IS NOT NULL THEN CAST(raw_doc AS VARCHAR) END AS got
        FROM (
            SELECT *, CASE WHEN raw_doc IS NULL THEN 'bad-json' WHEN time IS NULL AND moment IS NOT NULL THEN 'bad-time'
                   WHEN ordinal IS NULL AND ordinal_text IS NOT NULL THEN 'bad-rank'
                   WHEN action IS NULL AND query_id IS NULL THEN 'not-an-event' END AS problem
            FROM (
                SELECT {number} AS file, raw_doc, application, action, query_id, user_query,
                       coalesce(person, client) AS person, moment, time_of(moment) AS time,
                       nullif(coalesce(doc, flat_doc), '') AS doc, hits,
                       coalesce(ordinal, CASE WHEN attributes IS NULL THEN nullif(flat_ordinal, '') END)
                           AS ordinal_text,
                       integer_of(ordinal_text) AS ordinal
                FROM (SELECT doc AS raw_doc, {fields} FROM (
                    SELECT doc, json_extract_string(doc, [{paths}]) AS v FROM {documents}))
                WHERE raw_doc IS NULL OR ({actions})
            ))"""


def _check_application(database: EventDatabase, options: EventOptions) -> None:
    """Check that the applications that were asked for are in the events."""
    from clickshift.errors import SpecError

    known = [
        name for (name,) in database.rows("SELECT DISTINCT application FROM raw WHERE action IS NOT NULL ORDER BY 1")
    ]
    for name in options.application or ():
        if name not in known:
            raise SpecError(
                f"application must be one of the events': got {name!r}; they have {', '.join(filter(None, known))}.",
                code="bad-option",
                option="application",
                value=name,
            )


def _name_queries(database: EventDatabase, used: str) -> None:
    """Make the table `events`: an event without a query text has that of the latest query of its id."""
    database.execute(
        f"""CREATE TABLE named AS SELECT e.* REPLACE (q.query AS query)
        FROM (FROM acts WHERE query IS NULL AND {used}) e
        ASOF LEFT JOIN (FROM queries WHERE query IS NOT NULL AND time IS NOT NULL) q
        ON e.query_id = q.query_id AND e.time >= q.time"""
    )
    what = "events without a query text, which no earlier query of their query_id has either"
    database.left_out("named", "query IS NULL", what, "no-query", example=_EXAMPLE)
    key = f"concat_ws({SEPARATOR}, coalesce(application, ''), query_id, query)"
    columns = f"""place, application AS source, {key} AS list, query, doc, ordinal, time, person AS "user", kind"""
    database.execute(
        f"""CREATE TABLE events AS SELECT {columns} FROM acts WHERE query IS NOT NULL AND {used}
        UNION ALL SELECT {columns} FROM named WHERE query IS NOT NULL"""
    )
    database.execute("DROP TABLE named")


def _show_hits(database: EventDatabase) -> None:
    """Add the documents that the engine returned as impressions, in its order; ordinals of events are not used."""
    database.execute("UPDATE events SET ordinal = NULL")
    key = f"concat_ws({SEPARATOR}, coalesce(application, ''), query_id, query)"
    database.execute(
        f"""INSERT INTO events SELECT place, application, {key}, query, doc, ordinal, time, person, {IMPRESSION} FROM (
        SELECT *, unnest(ids) AS doc, generate_subscripts(ids, 1) AS ordinal FROM (
        SELECT *, try_cast(hits AS VARCHAR[]) AS ids FROM queries WHERE query IS NOT NULL AND hits IS NOT NULL))
        WHERE doc IS NOT NULL"""
    )


def _tuple(names: Sequence[str]) -> str:
    """Return texts as a tuple in SQL."""
    return f"({sql_texts(names)[1:-1]})"
