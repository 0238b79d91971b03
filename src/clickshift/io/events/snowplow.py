"""Snowplow's ecommerce events, as warehouses hold them: an action column and a column of product entities.

`list_view` actions are lists, `list_click` actions are clicks. Nothing joins them: see `_keyless`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from clickshift.errors import FileError
from clickshift.io.encode.duckdb import sql_text, sql_texts
from clickshift.io.events._database import CLICK, SIGNAL, EventDatabase, Loaded
from clickshift.io.events._keyless import ACT_TABLE, VIEW_TABLE, join_views
from clickshift.io.events._problems import check_rejected, report_problems
from clickshift.io.events._sources import Source
from clickshift.io.events.options import EventOptions, signal_names

_ACTION = "unstruct_event_com_snowplowanalytics_snowplow_ecommerce_snowplow_ecommerce_action_1"
_PRODUCTS = "contexts_com_snowplowanalytics_snowplow_ecommerce_product_1"
_TIMES = ("derived_tstamp", "collector_tstamp", "dvce_created_tstamp")


def is_snowplow(names: Sequence[str]) -> bool:
    """Return whether columns are those of Snowplow's ecommerce events."""
    return any(name.lower().startswith(_ACTION) for name in names)


def load_snowplow(database: EventDatabase, sources: Sequence[Source], options: EventOptions) -> Loaded:
    """Make the table `events` of the lists and clicks.

    The query of a list is its name, or the column that ``columns={"query": ...}`` gives, e.g. page_urlquery.

    Raises
    ------
    FileError
        "missing-column", and "bad-json", "bad-time", "missing-value" or "bad-record" for events that break the
        format, unless they are skipped.
    """
    database.execute(
        "CREATE TABLE raw (file INTEGER, action VARCHAR, name VARCHAR, term VARCHAR, session VARCHAR, person VARCHAR, "
        "page VARCHAR, time TIMESTAMP, items JSON[], problem VARCHAR, got VARCHAR)"
    )
    views = options.impression_types or ("list_view",)
    clicks = options.click_types or ("list_click",)
    conversions = options.conversion_types or ("add_to_cart", "transaction")
    wanted = sql_texts([*views, *clicks, *conversions])[1:-1]
    for number, source in enumerate(sources):
        action, products = (_column(source, name) for name in (_ACTION, _PRODUCTS))
        own = {name.lower(): name for name in reversed(source.names)}  # Snowflake writes them in upper case

        def text(name: str, own: Mapping[str, str] = own) -> str:
            path = '$."' + own.get(name.lower(), name).replace('"', '\\"') + '"'
            return f"json_extract_string(doc, {sql_text(path)})"

        term = text(options.columns["query"]) if options.columns.get("query") else "NULL"
        times = ", ".join(map(text, _TIMES))
        database.execute(
            f"""INSERT INTO raw SELECT {number}, action, name, nullif(term, ''), session, person, page,
            time_of(moment) AS time, items, CASE WHEN raw_doc IS NULL THEN 'bad-json'
            WHEN action IN ({wanted}) AND time IS NULL THEN 'bad-time'
            WHEN action IN ({wanted}) AND session IS NULL THEN 'session'
            WHEN unread OR (action IN ({wanted}) AND items IS NULL AND listed) THEN 'records' END AS problem,
            CASE WHEN problem IS NOT NULL THEN CAST(raw_doc AS VARCHAR) END
            FROM (SELECT doc AS raw_doc, unread, {text(products)} <> '' AS listed,
                json_extract_string(act, '$.type') AS action,
                nullif(json_extract_string(act, '$.name'), '') AS name, {term} AS term,
                coalesce({text("domain_sessionid")}, {text("domain_userid")}) AS session,
                coalesce({text("user_id")}, {text("domain_userid")}) AS person,
                {text("page_view_id")} AS page, coalesce({times}) AS moment,
                json_extract({_parsed(products)}, '$[*]') AS items
                FROM (SELECT doc, {_parsed(action)} AS act, act IS NULL AND {text(action)} <> '' AS unread
                    FROM {source.documents(database)}))
            WHERE raw_doc IS NULL OR unread OR action IN ({wanted})"""
        )
    check_rejected(database, sources)
    rules = {
        "bad-json": ("a line must be a JSON object", "bad-json"),
        "bad-time": ("derived_tstamp must be a time", "bad-time"),
        "records": ("the action must be an object, and the products a list of them", "bad-record"),
        "session": ("an event must have domain_sessionid or domain_userid", "missing-value"),
    }
    report_problems(database, sources, rules, shown_values={"bad-time": [f"$.{name}" for name in _TIMES]})
    database.execute(f"{VIEW_TABLE}; {ACT_TABLE}")
    item = "json_extract_string(item, '$.id')"
    database.execute(
        f"""INSERT INTO views SELECT place, session, name, term, page, {item},
        try_cast(json_extract_string(item, '$.position') AS BIGINT), position, time, person, NULL
        FROM (SELECT rowid AS place, *, unnest(items) AS item, generate_subscripts(items, 1) AS position FROM raw
            WHERE action IN ({sql_texts(views)[1:-1]}))"""
    )
    kinds = {CLICK: clicks} | {kind: [name] for kind, name in enumerate(conversions, SIGNAL)}
    for kind, names in kinds.items():
        database.execute(
            f"""INSERT INTO acts SELECT place, session, name, {item}, time, {kind} FROM (
            SELECT rowid AS place, *, unnest(items) AS item FROM raw WHERE action IN ({sql_texts(names)[1:-1]}))"""
        )
    database.execute("DROP TABLE raw")
    join_views(database, options)
    return Loaded(signals=signal_names(conversions))


def _column(source: Source, beginning: str) -> str:
    """Return the name of a column, which ends in the version of its schema."""
    names = [name for name in source.names if name.lower().startswith(beginning)]
    if not names:
        raise FileError(
            source.path,
            f"Snowplow's ecommerce events must have a column {beginning}: it has {', '.join(source.names[:50])}.",
            code="missing-column",
            column=beginning,
            known=list(source.names),
        )
    return names[0]


def _parsed(column: str) -> str:
    """Return a column of JSON, which may be written as text, in SQL."""
    value = f"json_extract(doc, '$.\"{column}\"')"
    parsed = f"try_cast(json_extract_string({value}, '$') AS JSON)"
    return f"(CASE WHEN json_type({value}) = 'VARCHAR' THEN {parsed} ELSE {value} END)"
