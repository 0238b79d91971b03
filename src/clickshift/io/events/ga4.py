"""Google Analytics 4, as exported to BigQuery and from there to Parquet or JSON: one row per event.

`view_item_list` events are lists, `select_item` events are clicks. Nothing joins them: see `_keyless`. Repeated records
of Parquet are lists, or records `list.element`, as BigQuery writes them without list inference.
"""

from __future__ import annotations

from collections.abc import Sequence

from clickshift.io.encode.duckdb import sql_text, sql_texts
from clickshift.io.events._database import CLICK, SIGNAL, EventDatabase, Loaded
from clickshift.io.events._keyless import ACT_TABLE, VIEW_TABLE, join_views
from clickshift.io.events._problems import check_rejected, report_problems
from clickshift.io.events._sources import Source
from clickshift.io.events.options import EventOptions, signal_names

_UNSET = "('(not set)', '', '(not available)', 'not available in demo dataset')"
_PATHS = ("event_name", "event_timestamp", "user_pseudo_id", "user_id", "batch_page_id", "device.category")
_PARAMETERS = ("ga_session_id", "search_term", "page_location", "item_list_id", "item_list_name")


def is_ga4(names: Sequence[str]) -> bool:
    """Return whether columns are those of the export."""
    return {"event_name", "event_timestamp", "event_params"} <= {*names}


def load_ga4(database: EventDatabase, sources: Sequence[Source], options: EventOptions) -> Loaded:
    """Make the table `events` of the lists and clicks of an export.

    Raises
    ------
    FileError
        "bad-json", "bad-time", "missing-value" or "bad-record" for events that break the format, unless they are
        skipped.
    """
    database.execute(
        "CREATE TABLE raw (file INTEGER, event VARCHAR, session VARCHAR, person VARCHAR, time TIMESTAMP, page VARCHAR, "
        "term VARCHAR, name VARCHAR, device VARCHAR, items JSON[], problem VARCHAR, got VARCHAR)"
    )
    views = options.impression_types or ("view_item_list",)
    clicks = options.click_types or ("select_item",)
    conversions = options.conversion_types or ("purchase", "add_to_cart")
    searches = ("view_search_results",)
    wanted = sql_texts([*views, *clicks, *conversions, *searches])[1:-1]
    paths = ", ".join(f"'$.{name}'" for name in _PATHS)
    fields = ", ".join(f"v[{k}] AS {name.partition('.')[0]}" for k, name in enumerate(_PATHS, 1))
    keys = "coalesce(json_extract_string(doc, '$.event_params.list[*].element.key'), [])"
    keys = f"(CASE WHEN len({keys}) > 0 THEN {keys} ELSE json_extract_string(doc, '$.event_params[*].key') END)"
    parameters = ", ".join(f"nullif(parameter({sql_text(name)}, keys, params), '') AS {name}" for name in _PARAMETERS)
    database.execute(
        """CREATE MACRO parameter(name, keys, params) AS coalesce(
        json_extract_string(params[list_position(keys, name)], '$.string_value'),
        json_extract_string(params[list_position(keys, name)], '$.int_value'),
        json_extract_string(params[list_position(keys, name)], '$.double_value'))"""
    )
    for number, source in enumerate(sources):
        database.execute(
            f"""INSERT INTO raw SELECT {number}, event_name, concat_ws('.', user_pseudo_id, ga_session_id),
            coalesce(user_id, user_pseudo_id), time_of(event_timestamp) AS time,
            nullif(concat_ws(' ', page_location, batch_page_id), ''), CASE WHEN search_term NOT IN {_UNSET}
                THEN search_term END, CASE WHEN coalesce(item_list_id, item_list_name) NOT IN {_UNSET}
                THEN coalesce(item_list_id, item_list_name) END, nullif(device, ''), items,
            CASE WHEN raw_doc IS NULL THEN 'bad-json' WHEN event_name IN ({wanted}) AND time IS NULL THEN 'bad-time'
            WHEN event_name IN ({wanted}) AND coalesce(user_pseudo_id, user_id) IS NULL THEN 'user'
            WHEN event_name IN ({wanted}) AND (json_type(raw_doc, '$.items') NOT IN ('ARRAY', 'OBJECT', 'NULL')
                OR json_type(raw_doc, '$.event_params') NOT IN ('ARRAY', 'OBJECT', 'NULL')) THEN 'records'
            END AS problem,
            CASE WHEN problem IS NOT NULL THEN CAST(raw_doc AS VARCHAR) END
            FROM (SELECT *, {parameters} FROM (
                SELECT doc AS raw_doc, {fields}, {_array("items")} AS items, {keys} AS keys,
                {_array("event_params", "value")} AS params
                FROM (SELECT doc, json_extract_string(doc, [{paths}]) AS v FROM {source.documents(database)})))
            WHERE raw_doc IS NULL OR event_name IN ({wanted})"""
        )
    check_rejected(database, sources)
    rules = {
        "bad-json": ("a line must be a JSON object", "bad-json"),
        "bad-time": ("event_timestamp must be microseconds since 1970", "bad-time"),
        "records": ("items and event_params must be repeated records", "bad-record"),
        "user": ("an event must have user_pseudo_id or user_id", "missing-value"),
    }
    report_problems(database, sources, rules, shown_values={"bad-time": ("$.event_timestamp",)})
    _fill(database, views, {CLICK: clicks} | {kind: [name] for kind, name in enumerate(conversions, SIGNAL)})
    join_views(database, options)
    return Loaded(signals=signal_names(conversions), segments=("device",))


def _array(name: str, inner: str = "") -> str:
    """Return a repeated record in SQL, in both ways in which Parquet files have it."""
    tail = f".{inner}" if inner else ""
    wrapped = f"json_extract(doc, '$.{name}.list[*].element{tail}')"
    return f"(CASE WHEN len({wrapped}) > 0 THEN {wrapped} ELSE json_extract(doc, '$.{name}[*]{tail}') END)"


def _fill(database: EventDatabase, views: Sequence[str], kinds: dict[int, Sequence[str]]) -> None:
    """Fill the tables of views and acts; a list without a search term has the latest one of its session."""

    def value(name: str) -> str:
        text = f"json_extract_string(item, '$.{name}')"
        return f"CASE WHEN {text} NOT IN {_UNSET} THEN {text} END"

    listed = f"coalesce({value('item_list_id')}, {value('item_list_name')}, name)"
    database.execute(f"{VIEW_TABLE}; {ACT_TABLE}")
    database.execute(
        f"""INSERT INTO views SELECT v.place, v.session, v.name, coalesce(v.term, s.term), page, doc, ordinal, position,
        v.time, person, device FROM (
            SELECT place, session, {listed} AS name, term, page, {value("item_id")} AS doc,
            try_cast({value("item_list_index")} AS BIGINT) AS ordinal, position, time, person, device
            FROM (SELECT rowid AS place, *, unnest(items) AS item, generate_subscripts(items, 1) AS position FROM raw
                WHERE event IN ({sql_texts(views)[1:-1]}))) v
        ASOF LEFT JOIN (SELECT session, time, min(term) AS term FROM raw WHERE event = 'view_search_results'
            AND term IS NOT NULL GROUP BY ALL) s ON v.session = s.session AND v.time >= s.time"""
    )
    for kind, names in kinds.items():
        database.execute(
            f"""INSERT INTO acts SELECT place, session, {listed}, {value("item_id")}, time, {kind} FROM (
            SELECT rowid AS place, *, unnest(items) AS item FROM raw WHERE event IN ({sql_texts(names)[1:-1]}))"""
        )
    database.execute("DROP TABLE raw")
