"""Public data sets of lists with clicks: Baidu-ULTR, CLAX, TianGong/GraphCM text, Expedia.

Their rows are results with a click; impressions and clicks need no join. Ranks may have gaps.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from clickshift.data._columns import VIEWED
from clickshift.io.events._database import CLICK, IMPRESSION, SIGNAL, EventDatabase, Loaded
from clickshift.io.events._problems import check_rejected, report_problems
from clickshift.io.events._sources import Source, check_types, is_list
from clickshift.io.events.generic import load_generic
from clickshift.io.events.options import EventOptions

EXPEDIA = {
    "list": "srch_id",
    "query": "srch_destination_id",
    "doc": "prop_id",
    "rank": "position",
    "click": "click_bool",
    "signal:booking_bool": "booking_bool",
    "segment:random_bool": "random_bool",
    "time": "date_time",
}
"""Columns of the Expedia data of ICDM 2013; hotels at the positions of opaque offers are missing."""
BAIDU_UVA = {"list": "query_id", "query": "query_md5", "doc": "url_md5", "rank": "position", "click": "click"}
BAIDU_UVA["viewed"] = "displayed_time"
"""Columns of Baidu-ULTR as the University of Amsterdam publishes it."""
_OPTIONAL = ("time", "viewed", "signal:booking_bool", "segment:random_bool")
EXPEDIA_COLUMNS, BAIDU_UVA_COLUMNS = (
    frozenset(theirs for ours, theirs in columns.items() if ours not in _OPTIONAL) for columns in (EXPEDIA, BAIDU_UVA)
)
CLAX_COLUMNS = frozenset(("query_doc_ids", "clicks"))
_NO_OTHERS = dict.fromkeys(("session", "docs", "event", "user", "page", "source", "conversion", "arm", "device"), "")
_GRAPHCM_LINE = re.compile(r"[^\t]+\t[^\t]+\t\[[^\t]*\]\t\[[^\t]*\]\t\[[^\t]*\](\t\[.*\])?\s*")
ONE_QUERY = "all"
"""Query of data sets that have none."""


def is_expedia(source: Source) -> bool:
    """Return whether columns are those of Expedia."""
    return {"srch_id", "prop_id", "position", "click_bool"} <= {*source.names}


def is_baidu_uva(source: Source) -> bool:
    """Return whether columns are those of Baidu-ULTR-UvA."""
    return {"query_md5", "url_md5", "position", "click"} <= {*source.names}


def is_clax(source: Source) -> bool:
    """Return whether columns are those of the CLAX data sets."""
    return {*source.names} >= CLAX_COLUMNS


def is_graphcm(source: Source) -> bool:
    """Return whether the lines of a file are those of GraphCM and other neural click models."""
    return bool(source.lines) and "\t[" in source.lines[0] and bool(_GRAPHCM_LINE.fullmatch(source.lines[0]))


def is_baidu_ultr(source: Source) -> bool:
    """Return whether the lines of a file are those of the raw Baidu-ULTR data set."""
    tabs = [line.count("\t") for line in source.lines[:2]]
    return len(tabs) == 2 and tabs[0] <= 2 and tabs[1] >= 25


def load_expedia(database: EventDatabase, sources: Sequence[Source], options: EventOptions) -> Loaded:
    """Make the table `events` of Expedia's searches."""
    return _load_table(database, sources, options, EXPEDIA)


def load_baidu_uva(database: EventDatabase, sources: Sequence[Source], options: EventOptions) -> Loaded:
    """Make the table `events` of Baidu-ULTR-UvA: a row per result, or per list with lists of documents."""
    return _load_table(database, [_of_results(source) for source in sources], options, BAIDU_UVA)


def _of_results(source: Source) -> Source:
    """Return a table whose rows are lists as one whose rows are results."""
    lists = {name: source.types[name] for name in BAIDU_UVA.values() if is_list(source.types.get(name))}
    types = source.types | {name: kind.value_type for name, kind in lists.items()}
    return replace(source, types=types, unnested=frozenset(lists))


def _load_table(
    database: EventDatabase, sources: Sequence[Source], options: EventOptions, columns: dict[str, str]
) -> Loaded:
    """Load a table of results whose columns are known; optional ones are left out where they are missing."""
    present = {
        ours: theirs
        for ours, theirs in columns.items()
        if ours not in _OPTIONAL or all(theirs in source.names for source in sources)
    }
    absent = dict.fromkeys((name for name in ("time", "viewed") if name not in present), "")
    return load_generic(database, sources, (), replace(options, columns=_NO_OTHERS | absent | present))


def load_clax(database: EventDatabase, sources: Sequence[Source], options: EventOptions) -> Loaded:
    """Make the table `events` of the CLAX data sets: a document is the number of a (query, document) pair.

    Raises
    ------
    FileError
        "float-ids" for ids of a type of floats; "unequal-lengths" for a row whose lists differ in length,
        "missing-value" for one without a query or a document, "not-zero-or-one" for other clicks, unless such rows are
        skipped.
    """
    database.execute(
        "CREATE TABLE raw (file INTEGER, query VARCHAR, docs VARCHAR[], clicks VARCHAR[], problem VARCHAR, got VARCHAR)"
    )
    for number, source in enumerate(sources):
        query = "CAST(query_id AS VARCHAR)" if "query_id" in source.names else f"'{ONE_QUERY}'"
        names = ["query_doc_ids", "clicks", *(["query_id"] if "query_id" in source.names else [])]
        check_types(source, {"docs": "query_doc_ids", "query": "query_id"}, ("docs", "query"))
        lists = [_list(source, name) for name in ("query_doc_ids", "clicks")]
        database.execute(
            f"""INSERT INTO raw SELECT {number}, {query}, {lists[0]} AS docs, {lists[1]} AS clicked,
            CASE WHEN len(docs) IS DISTINCT FROM len(clicked) OR len(docs) = 0 THEN 'lengths'
                WHEN list_count(docs) < len(docs) OR {query} IS NULL THEN 'missing'
                WHEN len([c FOR c IN clicked IF flag_of(c) IS NULL]) > 0 THEN 'clicks' END AS problem,
            CASE problem WHEN 'lengths' THEN concat(coalesce(len(docs), 0), ' and ', coalesce(len(clicked), 0))
                WHEN 'missing' THEN concat_ws(', ', 'query ' || {query}, 'documents ' || CAST(docs AS VARCHAR))
                WHEN 'clicks' THEN CAST(clicked AS VARCHAR) END
            FROM {source.columns(database, names)}"""
        )
    check_rejected(database, sources)
    rules = {
        "lengths": ("query_doc_ids and clicks must be equally long, and not empty", "unequal-lengths"),
        "missing": ("a row must have a query_id, if there is the column, and no missing document", "missing-value"),
        "clicks": ("clicks must be 0 or 1", "not-zero-or-one"),
    }
    report_problems(database, sources, rules, all_rows=True)
    _unnest_lists(database)
    return Loaded({}, ("query", "doc"))


def load_graphcm(database: EventDatabase, sources: Sequence[Source], options: EventOptions) -> Loaded:
    """Make the table `events` of the text of GraphCM, NCM, CACM and AICM: session, query, [docs], [types], [clicks].

    Raises
    ------
    FileError
        "bad-line" for a line of another form, unless such lines are skipped.
    """
    database.execute(
        'CREATE TABLE raw (file INTEGER, query VARCHAR, docs VARCHAR[], clicks VARCHAR[], "user" VARCHAR, '
        "problem VARCHAR, got VARCHAR)"
    )
    for number, source in enumerate(sources):
        docs, clicked = (f"try_cast(replace(f[{k}], '''', '\"') AS JSON), '$[*]'" for k in (3, 5))
        database.execute(
            f"""INSERT INTO raw SELECT {number}, query, docs, clicked, session, CASE WHEN n IN (5, 6)
            AND session IS NOT NULL AND query IS NOT NULL AND len(docs) > 0 AND len(docs) = len(clicked)
            AND len(list_intersect(list_distinct(clicked), ['0', '1'])) = len(list_distinct(clicked))
            AND NOT list_has_any(kinds, ['NULL', 'ARRAY', 'OBJECT']) AND NOT list_contains(docs, '')
            THEN NULL ELSE 'line' END AS problem,
            CASE WHEN problem IS NOT NULL THEN line END
            FROM (SELECT line, len(f) AS n, nullif(trim(f[1]), '') AS session, nullif(trim(f[2]), '') AS query,
                json_extract_string({docs}) AS docs, json_type({docs}) AS kinds,
                json_extract_string({clicked}) AS clicked
                FROM (SELECT line, string_split(line, chr(9)) AS f FROM {source.text(database)}
                    WHERE trim(line) <> ''))"""
        )
    rule = (
        "a line must be 'session query [documents] [types] [clicks]', with as many clicks, 0 or 1, as ids of documents"
    )
    report_problems(database, sources, {"line": (rule, "bad-line")})
    _unnest_lists(database)
    return Loaded({}, ("query", "doc"))


def load_baidu_ultr(database: EventDatabase, sources: Sequence[Source], options: EventOptions) -> Loaded:
    """Make the table `events` of the raw Baidu-ULTR data set: a line per list, followed by one per result.

    Texts are tokens separated by a control character, which becomes a blank.

    Raises
    ------
    FileError
        "bad-line" for a result of another form, or before the first list, unless such lines are skipped.
    """
    database.execute(
        "CREATE TABLE raw (file INTEGER, width BIGINT, query VARCHAR, doc VARCHAR, ordinal BIGINT, click INTEGER, "
        "viewed BOOLEAN, problem VARCHAR, got VARCHAR)"
    )
    for number, source in enumerate(sources):
        database.execute(
            f"""INSERT INTO raw SELECT {number}, width, CASE WHEN width <= 3 THEN trim(replace(f[2], chr(1), ' ')) END,
            f[2], integer_of(f[1]) AS ordinal, flag_of(f[6]) AS click,
            coalesce(try_cast(f[11] AS DOUBLE) > 0, false),
            CASE WHEN width <= 3 THEN CASE WHEN width < 2 OR trim(f[2]) = '' THEN 'list' END
            WHEN width < 6 OR ordinal IS NULL OR click IS NULL OR f[2] = '' THEN 'result' END AS problem,
            CASE WHEN problem IS NOT NULL THEN line END
            FROM (SELECT line, string_split(line, chr(9)) AS f, len(f) AS width FROM {source.text(database)}
                WHERE line <> '')"""
        )
    database.execute(
        """CREATE TABLE results AS SELECT r.place, r.file, r.doc, r.ordinal, r.click, r.viewed, h.place AS list, h.query
        FROM (SELECT rowid AS place, * FROM raw WHERE width > 3 AND problem IS NULL) r
        ASOF LEFT JOIN (SELECT rowid AS place, * FROM raw WHERE width <= 3) h
        ON r.file = h.file AND r.place >= h.place"""
    )
    rules = {
        "list": ("the first line of a list must be: qid, query, query_reformulation", "bad-line"),
        "result": ("a result must have a position, an url_md5 and a click of 0 or 1 among its columns", "bad-line"),
    }
    report_problems(database, sources, rules)
    example = "concat('document ', doc, ' at position ', ordinal)"
    what = "results without a readable list before them"
    database.left_out("results", "query IS NULL", what, "no-query", example=example)
    impressions = (
        "SELECT place, '' AS source, CAST(list AS VARCHAR) AS list, query, doc, ordinal, CAST(NULL AS TIMESTAMP) "
        'AS time, CAST(NULL AS VARCHAR) AS "user"'
    )
    database.execute(
        f"""CREATE TABLE events AS {impressions}, CAST({IMPRESSION} AS TINYINT) AS kind
        FROM results WHERE query IS NOT NULL UNION ALL {impressions}, {CLICK} FROM results
        WHERE query IS NOT NULL AND click = 1 UNION ALL {impressions}, {SIGNAL} FROM results
        WHERE query IS NOT NULL AND viewed"""
    )
    database.execute("DROP TABLE raw; DROP TABLE results")
    return Loaded(signals=(VIEWED,))


def _list(source: Source, name: str) -> str:
    """Return a column of lists in SQL."""
    return f"CAST({name} AS VARCHAR[])" if source.types else f"json_extract_string(try_cast({name} AS JSON), '$[*]')"


def _unnest_lists(database: EventDatabase) -> None:
    """Make the table `events` of the table `raw`, whose rows are lists; it is dropped."""
    has_user = database.number(
        "SELECT count(*) FROM duckdb_columns() WHERE table_name = 'raw' AND column_name = 'user'"
    )
    person = '"user"' if has_user else "CAST(NULL AS VARCHAR)"
    database.execute(
        f"""CREATE TABLE results AS SELECT row AS place, '' AS source, CAST(row AS VARCHAR) AS list, query,
        unnest(docs) AS doc, generate_subscripts(docs, 1) AS ordinal, CAST(NULL AS TIMESTAMP) AS time,
        {person} AS "user", flag_of(unnest(clicks)) AS click FROM (SELECT rowid AS row, * FROM raw)"""
    )
    database.execute(
        f"""CREATE TABLE events AS SELECT * REPLACE (CAST({IMPRESSION} AS TINYINT) AS click) FROM results
        UNION ALL SELECT * REPLACE ({CLICK} AS click) FROM results WHERE click = 1"""
    )
    database.execute("ALTER TABLE events RENAME click TO kind; DROP TABLE raw; DROP TABLE results")
