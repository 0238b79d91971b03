"""OpenSearch User Behavior Insights (UBI, spec 1.3.0): the indexes `ubi_queries` and `ubi_events`.

They come as bulk files (an action line before each document), dumps of hits, one document per line (also after a tag),
JSON arrays, CSV (flat: object_id, position), Parquet, or data frames. One file may hold both indexes, several
applications, and times of both kinds.

A list is what one query text of one `query_id` of an application shows: type-ahead searches log several texts under one
id. An event without a text gets that of the latest query of its id that is not later. Ordinals of each application
begin at the smallest one. At one rank the document with the earliest impression stays. `search_config` of an object,
the configuration that ranked it, is the segment `arm` of a list if all of its objects have the same one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clickshift.data._columns import ARM, VIEWED
from clickshift.io.encode.duckdb import sql_text, sql_texts
from clickshift.io.events._database import IMPRESSION, SEPARATOR, SIGNAL, EventDatabase, Loaded, Reason, kind_of
from clickshift.io.events._problems import check_rejected, report_problems
from clickshift.io.events._sources import Source, is_nested
from clickshift.io.events.options import EventOptions, signal_names

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
    "arm": "$.event_attributes.object.search_config",
    "flat_arm": "$.search_config",
    "hits": "$.query_response_hit_ids",
    "attributes": "$.event_attributes",
    **{f"to_{action}": f"$.{action}" for action in _ACTIONS},
}
_IDS = ("query_id", "user_query", "doc", "flat_doc")
_KEY = f"concat_ws({SEPARATOR}, coalesce(application, ''), query_id, query)"
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


def load_ubi(database: EventDatabase, sources: Sequence[Source], options: EventOptions) -> Loaded:
    """Make the table `events` of UBI documents; see `_database.EVENT_COLUMNS`.

    Raises
    ------
    FileError
        "bad-json", "bad-id", "bad-time" or "bad-rank" for events that break the format, unless they are skipped.
    """
    database.execute(
        "CREATE TABLE raw (file INTEGER, application VARCHAR, action VARCHAR, kind TINYINT, query_id VARCHAR, "
        "query VARCHAR, person VARCHAR, time TIMESTAMP, doc VARCHAR, ordinal BIGINT, arm VARCHAR, hits VARCHAR, "
        "problem VARCHAR, got VARCHAR)"
    )
    text = "user_query"
    for name in options.normalise:
        text = f"lower({text})" if name == "lower" else f"trim({text})"
    impressions, signals = options.impression_types or ("impression",), options.conversions
    names = signal_names(signals)
    kind = kind_of("action", impressions, options.clicks, signals)
    if options.shown == "hits":  # impressions say what was seen of the hits
        kind = f"coalesce({kind_of('action', (), options.clicks, signals)}, {kind_of('action', impressions, (), ())}"
        kind += f" + {SIGNAL + len(signals)})"
        names = (*names, VIEWED)
    for number, source in enumerate(sources):
        database.execute(_extraction(source.documents(database), number, text, kind))
    check_rejected(database, sources)
    rules = {
        "bad-json": ("a line must be a JSON object", "bad-json"),
        "bad-time": ("timestamp must be a time (ISO 8601, or milliseconds since 1970)", "bad-time"),
        "bad-rank": ("position.ordinal must be an integer", "bad-rank"),
        "bad-id": ("object_id, query_id and user_query must be text or numbers, not lists or objects", "bad-id"),
        "not-an-event": ("a document must be an event (action_name) or a query (query_id)", "not-an-event"),
    }
    ordinals = (_PATHS["ordinal"], _PATHS["flat_ordinal"])
    report_problems(database, sources, rules, shown_values={"bad-time": (_PATHS["moment"],), "bad-rank": ordinals})
    wanted = "" if options.application is None else f"AND application IN {_tuple(options.application)}"
    _check_application(database, options)
    database.execute(
        f"""CREATE TABLE queries AS SELECT rowid AS place, application, query_id, query, time, person, hits
        FROM raw WHERE action IS NULL AND query_id IS NOT NULL {wanted}"""
    )
    database.execute(f"CREATE VIEW acts AS SELECT rowid AS place, * FROM raw WHERE action IS NOT NULL {wanted}")
    others = database.rows(
        "SELECT action, count(*) FROM acts WHERE kind IS NULL GROUP BY action ORDER BY count(*) DESC, action"
    )
    if others:
        examples = [f"{action} ({count:,})" for action, count in others]
        n_others = sum(count for _, count in others)
        database.report.left_out(n_others, "events of other actions", "other-action", examples=examples)
    reasons = [
        Reason("no-query-id", "events without a query_id", "kind IS NOT NULL AND query_id IS NULL"),
        Reason(
            "no-object",
            "events without an object_id",
            "kind IS NOT NULL AND query_id IS NOT NULL AND doc IS NULL",
        ),
    ]
    database.report_reasons("acts", reasons, [], example=_EXAMPLE)
    has_arm = database.number(f"SELECT count(arm) FROM raw WHERE kind = {IMPRESSION}") > 0
    _name_queries(database, has_arm=has_arm)
    if options.shown == "hits":
        _show_hits(database, has_arm=has_arm)
    return Loaded(signals=names, segments=(ARM,) if has_arm else ())


def _extraction(documents: str, number: int, text: str, kind: str) -> str:
    """Return the statement that inserts the documents of a source into `raw`."""
    paths = ", ".join(sql_text(path) for path in _PATHS.values())
    fields = ", ".join(f"v[{k}] AS {name}" for k, name in enumerate(_PATHS, 1))
    nested = " OR ".join(is_nested(f"v[{k}]", path) for k, (name, path) in enumerate(_PATHS.items(), 1) if name in _IDS)
    actions = " AND ".join(f"to_{action} IS NULL" for action in _ACTIONS)
    return f"""
        INSERT INTO raw
        SELECT file, application, nullif(action, '') AS action, {kind} AS kind, nullif(query_id, ''),
               nullif({text}, ''), person, time, doc, ordinal, arm, hits, problem,
               CASE WHEN problem IS NOT NULL THEN CAST(raw_doc AS VARCHAR) END AS got
        FROM (
            SELECT *, CASE WHEN raw_doc IS NULL THEN 'bad-json' WHEN time IS NULL AND moment IS NOT NULL THEN 'bad-time'
                   WHEN ordinal IS NULL AND ordinal_text IS NOT NULL THEN 'bad-rank'
                   WHEN nested AND (action IS NULL OR {kind} IS NOT NULL) THEN 'bad-id'
                   WHEN action IS NULL AND query_id IS NULL THEN 'not-an-event' END AS problem
            FROM (
                SELECT {number} AS file, raw_doc, application, action, query_id, user_query,
                       coalesce(person, client) AS person, moment, time_of(moment) AS time,
                       nullif(coalesce(doc, flat_doc), '') AS doc, hits, nested,
                       nullif(coalesce(arm, flat_arm), '') AS arm,
                       coalesce(ordinal, CASE WHEN attributes IS NULL THEN nullif(flat_ordinal, '') END)
                           AS ordinal_text,
                       integer_of(ordinal_text) AS ordinal
                FROM (SELECT doc AS raw_doc, {fields}, {nested} AS nested FROM (
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


def _name_queries(database: EventDatabase, *, has_arm: bool) -> None:
    """Make the view `events`: an event without a query text has that of the latest query of its id."""
    used = "kind IS NOT NULL AND query_id IS NOT NULL AND doc IS NOT NULL"
    database.execute(
        f"""CREATE TABLE named AS SELECT e.* REPLACE (q.query AS query)
        FROM (FROM acts WHERE query IS NULL AND {used}) e
        ASOF LEFT JOIN (FROM queries WHERE query IS NOT NULL AND time IS NOT NULL) q
        ON e.query_id = q.query_id AND e.time >= q.time"""
    )
    what = "events without a query text, which no earlier query of their query_id has either"
    database.left_out("named", "query IS NULL", what, "no-query", example=_EXAMPLE)
    columns = f"""place, application AS source, {_KEY} AS list, query, doc, ordinal, time, person AS "user", kind"""
    columns += ', arm AS "segment arm"' * has_arm
    database.execute(
        f"""CREATE VIEW events AS SELECT {columns} FROM acts WHERE query IS NOT NULL AND {used}
        UNION ALL SELECT {columns} FROM named WHERE query IS NOT NULL"""
    )


def _show_hits(database: EventDatabase, *, has_arm: bool) -> None:
    """Add the documents that the engine returned as impressions, in its order; ordinals of events are not used."""
    database.execute("CREATE TABLE hits AS FROM events; DROP VIEW events; ALTER TABLE hits RENAME TO events")
    database.execute("UPDATE events SET ordinal = NULL")
    columns = f"place, application, {_KEY}, query, doc, ordinal, time, person, {IMPRESSION}{', NULL' * has_arm}"
    database.execute(
        f"""INSERT INTO events SELECT {columns} FROM (
        SELECT *, unnest(ids) AS doc, generate_subscripts(ids, 1) AS ordinal FROM (
        SELECT *, try_cast(hits AS VARCHAR[]) AS ids FROM queries WHERE query IS NOT NULL AND hits IS NOT NULL))
        WHERE doc IS NOT NULL"""
    )


def _tuple(names: Sequence[str]) -> str:
    """Return texts as a tuple in SQL."""
    return f"({sql_texts(names)[1:-1]})"
