"""Counting in SQL: the same steps in two dialects, DuckDB's and Spark's, which give equal counts.

    log (wide or long)  ->  lists, one row each  ->  rule violations; distinct pairs; cells

A list has the documents that are shown, and their ranks (places): a missing document of a wide log, and a rank without
a row of a long one, is a hole. Where the log says which results were viewed, a list has that, too (views).

A pair is a 64-bit hash of its ids (Spark's `hash` has 32 bits, too few for a hundred thousand pairs). A hash collision
is unlikely, but always detected: the distinct (hash, query, document) rows would show it.

Column names in the queries: owner is the session, place the rank from 1, and times the count of a row.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from clickshift.counts.cells import By
from clickshift.errors import DataError
from clickshift.io.read_log import LONG, WIDE
from clickshift.io.tables.layouts import MAX_RANK

VIEWED = "viewed"
"""Column of the results that were viewed."""

IdType = Literal["integer", "text"]
"""Type of raw ids."""


@dataclass(frozen=True)
class Dialect:
    """SQL templates and type names of an engine, where DuckDB and Spark differ. In expressions on lists, x is the item.

    Parameters
    ----------
    quote
        Quoted name of a column.
    text
        Text type.
    list_type
        Type of a list.
    length
        Length of a list.
    item
        Item number i of a list, from 1.
    filter
        Items of a list that meet a condition.
    transform
        Expression of every item of a list.
    maximum
        Largest item of a list.
    total
        Sum of the items of a list.
    distinct
        Distinct items of a list.
    up_to
        List of the numbers from 1 to n.
    hash
        64-bit hash of two values.
    collect
        Rows of a group as a list of structs, by rank, with or without whether they were viewed (`viewed_field`).
    explode
        Query for one row per result of every list, with or without whether it was viewed (`viewed_item`).
    viewed_field, viewed_item
        Whether a result was viewed, as a field of a struct, and as a column of `explode`.
    text_types, integer_types, number_types
        Regular expressions of the engine's names of types.
    list_types
        Regular expression of the names of list types, with the item type as a group.
    """

    quote: str
    text: str
    list_type: str
    length: str
    item: str
    filter: str
    transform: str
    maximum: str
    total: str
    distinct: str
    up_to: str
    hash: str
    collect: str
    explode: str
    viewed_field: str
    viewed_item: str
    text_types: str
    integer_types: str
    number_types: str
    list_types: str


DUCKDB = Dialect(
    quote='"{}"',
    text="VARCHAR",
    list_type="{}[]",
    length="len({})",
    item="{}[{}]",
    filter="[x FOR x IN {} IF {}]",
    transform="[{1} FOR x IN {0}]",
    maximum="list_max({})",
    total="list_sum({})",
    distinct="list_distinct({})",
    up_to="range(1, {} + 1)",
    hash="hash({}, {})",
    collect="list_sort(list(struct_pack(place := place, doc := doc, click := click{})))",
    explode="""
        SELECT query, clicked, times, unnest(docs) AS doc, unnest(clicks) AS click, unnest(places) AS place{item}
        FROM ({lists})""",
    viewed_field=", viewed := viewed",
    viewed_item=", unnest(views) AS viewed",
    text_types=r"VARCHAR|UUID|ENUM\(.*\)",
    integer_types="TINYINT|SMALLINT|INTEGER|BIGINT|UTINYINT|USMALLINT|UINTEGER",
    number_types=r"BOOLEAN|UBIGINT|HUGEINT|UHUGEINT|FLOAT|DOUBLE|DECIMAL\(.*\)",
    list_types=r"(.*)\[\d*\]",
)

SPARK = Dialect(
    quote="`{}`",
    text="STRING",
    list_type="ARRAY<{}>",
    length="size({})",
    item="try_element_at({}, {})",
    filter="filter({}, x -> {})",
    transform="transform({}, x -> {})",
    maximum="array_max({})",
    total="aggregate({}, 0D, (sum, x) -> sum + x)",
    distinct="array_distinct({})",
    up_to="slice(sequence(1, greatest({0}, 0) + 1), 1, greatest({0}, 0))",  # sequence(1, 0) would descend
    hash="xxhash64({}, {})",
    collect="sort_array(collect_list(struct(place, doc, click{})))",
    explode="""
        SELECT query, clicked, times, result.docs AS doc, result.clicks AS click, result.places AS place{item}
        FROM (SELECT query, clicked, times, explode(arrays_zip(docs, clicks, places{zipped})) AS result
            FROM ({lists}))""",
    viewed_field=", viewed",
    viewed_item=", result.views AS viewed",
    text_types=r"string.*|varchar\(\d+\)|char\(\d+\)",
    integer_types="tinyint|smallint|int|bigint",
    number_types=r"boolean|float|double|decimal\(.*\)",
    list_types="array<(.*)>",
)


@dataclass(frozen=True)
class SqlLayout:
    """Layout of a log: one row per list (wide) or one row per result (long), and the types of the ids.

    Parameters
    ----------
    wide
        Whether the log has one row per list.
    query, doc
        Type of the query ids and of the document ids.
    counted
        Whether a column `count` has the number of equal sessions that a row represents.
    has_views
        Whether a column `viewed` says which results were viewed.
    """

    wide: bool
    query: IdType
    doc: IdType
    counted: bool
    has_views: bool = False

    @classmethod
    def of(cls, types: Mapping[str, str], dialect: Dialect) -> SqlLayout:
        """Find the layout from the names and types of a table's columns, or raise."""
        layout = min(WIDE, LONG, key=lambda names: sum(name not in types for name in names))
        if missing := [name for name in layout if name not in types]:
            raise DataError(
                f"a log must have the columns {', '.join(WIDE)} (one row per list) or {', '.join(LONG)} "
                f"(one row per result): {', '.join(missing)} not found; the table has {', '.join(types) or 'none'}. "
                "Select them under these names first.",
                code="missing-column",
                missing=missing,
                columns=list(types),
            )
        listed = [name for name in ("docs", "clicks", VIEWED) if layout is WIDE and name in types]
        item_types = {name: _item_type(name, types[name], dialect) for name in listed}
        value_types = {name: type_ for name, type_ in types.items() if name in {*layout, "count", VIEWED}} | item_types
        numeric = f"{dialect.integer_types}|{dialect.number_types}"
        for name in ("clicks", "rank", "click", "count", VIEWED):
            if name in value_types and not re.fullmatch(numeric, value_types[name]):
                raise DataError(
                    f"column {name} must hold numbers: got {types[name]}. Cast it first.",
                    code="wrong-column-type",
                    column=name,
                    type=types[name],
                )
        doc_name = "docs" if layout is WIDE else "doc"
        query, doc = (_id_type(name, value_types[name], dialect) for name in ("query", doc_name))
        return cls(layout is WIDE, query, doc, "count" in types, VIEWED in types)


def lists_query(log: str, layout: SqlLayout, dialect: Dialect) -> str:
    """Return the query for one row per list: owner, query, docs, clicks, places, times, and problem, if any.

    If the log says which results were viewed, a list has `views`, too: 1, 0 or NULL for each document.
    The results of a long log are collected by one aggregate per session: a window function would sort the whole log.
    """
    query, count = (dialect.quote.format(name) for name in ("query", "count"))
    query_type, doc_type = ("BIGINT" if kind == "integer" else dialect.text for kind in (layout.query, layout.doc))
    times = f"CAST({count} AS DOUBLE)" if layout.counted else "CAST(1 AS DOUBLE)"
    if layout.wide:
        columns = f"CAST({query} AS {query_type}) AS query, {times} AS times"
        return _wide_lists_query(log, dialect, columns, doc_type, views=layout.has_views)
    session, rank, doc, click = (dialect.quote.format(name) for name in ("session", "rank", "doc", "click"))
    places = dialect.transform.format("results", "CAST(x['place'] AS BIGINT)")
    no_rank = dialect.filter.format(
        "results", f"x['place'] < 1 OR x['place'] > {MAX_RANK} OR x['place'] <> floor(x['place'])"
    )
    distinct = dialect.length.format(dialect.distinct.format(dialect.transform.format("results", "x['place']")))
    views = viewed = field = ""
    if layout.has_views:
        views_of_results = dialect.transform.format("results", "x['viewed']")
        views, field = f"{views_of_results} AS views, ", dialect.viewed_field
        viewed = f", CAST({dialect.quote.format(VIEWED)} AS DOUBLE) AS viewed"
    return f"""
        SELECT owner, query, {dialect.transform.format("results", "x['doc']")} AS docs,
            {dialect.transform.format("results", "x['click']")} AS clicks, {places} AS places, times, {views}
            CASE WHEN problem IS NULL
                AND ({dialect.length.format(no_rank)} > 0 OR {distinct} < {dialect.length.format("results")})
                THEN 'ranks must be from 1 to {MAX_RANK:,}, each once' ELSE problem END AS problem
        FROM (
            SELECT CAST(owner AS {dialect.text}) AS owner, min(query) AS query, min(times) AS times,
                {dialect.collect.format(field)} AS results,
                CASE WHEN owner IS NULL THEN 'session must not be missing'
                    WHEN count(query) < count(*) THEN 'query must not be missing'
                    WHEN min(query) <> max(query) THEN 'query must be the same in all rows of a session'
                    WHEN count(place) < count(*) THEN 'rank must not be missing'
                    WHEN count(times) < count(*) OR min(times) <> max(times)
                    THEN 'count must be the same in all rows of a session' END AS problem
            FROM (
                SELECT {session} AS owner, CAST({query} AS {query_type}) AS query, CAST({doc} AS {doc_type}) AS doc,
                    CAST({rank} AS DOUBLE) AS place, CAST({click} AS DOUBLE) AS click, {times} AS times{viewed}
                FROM {log})
            GROUP BY owner)"""


def _wide_lists_query(log: str, dialect: Dialect, columns: str, doc_type: str, *, views: bool) -> str:
    """Return the query for the lists of a wide log, without the holes; lists without holes are taken as they are."""
    docs, clicks = (dialect.quote.format(name) for name in ("docs", "clicks"))
    size, n_clicks = dialect.length.format("docs"), dialect.length.format("clicks")
    shown = dialect.filter.format(dialect.up_to.format(size), f"{dialect.item.format('docs', 'x')} IS NOT NULL")
    n_shown = dialect.length.format("places")
    is_hole = f"{dialect.item.format('docs', 'x')} IS NULL AND coalesce({dialect.item.format('clicks', 'x')}, 0) <> 0"
    on_holes = dialect.length.format(dialect.filter.format(dialect.up_to.format(size), is_hole))
    no_hole = f"{n_shown} = {size}"
    clicks_of_places = dialect.transform.format("places", dialect.item.format("clicks", "x"))
    viewed = given = problems = ""
    if views:
        viewed = f"{dialect.transform.format('places', dialect.item.format('views', 'x'))} AS views,"
        given = f", CAST({dialect.quote.format(VIEWED)} AS {dialect.list_type.format('DOUBLE')}) AS views"
        unseen = f"{dialect.item.format('docs', 'x')} IS NULL AND coalesce({dialect.item.format('views', 'x')}, 0) <> 0"
        seen_holes = dialect.length.format(dialect.filter.format(dialect.up_to.format(size), unseen))
        problems = f"""WHEN views IS NULL OR {dialect.length.format("views")} <> {size}
                    THEN 'docs and viewed must be of equal length'
                WHEN {seen_holes} > 0 THEN 'viewed must be 0 or missing where there is no document'"""
    return f"""
        SELECT owner, query,
            CASE WHEN {no_hole} THEN docs ELSE {dialect.filter.format("docs", "x IS NOT NULL")} END AS docs,
            CASE WHEN {no_hole} OR {size} <> {n_clicks} THEN clicks ELSE {clicks_of_places} END AS clicks,
            places, times, {viewed}
            CASE WHEN query IS NULL THEN 'query must not be missing'
                WHEN docs IS NULL OR clicks IS NULL OR {size} = 0 OR {size} <> {n_clicks}
                    THEN 'docs and clicks must be lists of one or more items and of equal length'
                {problems}
                WHEN {no_hole} THEN NULL
                WHEN {n_shown} = 0 THEN 'a list must have a document'
                WHEN {on_holes} > 0 THEN 'a click must be on a document' END AS problem
        FROM (
            SELECT *, {shown} AS places
            FROM (
                SELECT CAST(NULL AS {dialect.text}) AS owner, {columns},
                    CAST({docs} AS {dialect.list_type.format(doc_type)}) AS docs,
                    CAST({clicks} AS {dialect.list_type.format("DOUBLE")}) AS clicks{given}
                FROM {log}))"""


def summary_query(lists: str, dialect: Dialect, *, views: bool = False) -> str:
    """Return the query for one row: lists, ranks, lists with a hole or that break a rule, the first, and sessions.

    A list stands for as many sessions as its count. With `views`, these must be 0, 1 or missing.
    """
    size, clicks = dialect.length.format("docs"), dialect.length.format("clicks")
    missing = dialect.length.format(dialect.filter.format("docs", "x IS NULL"))
    no_bit = dialect.length.format(dialect.filter.format("clicks", "x IS NULL OR x NOT IN (0, 1)"))
    shown = [("query", "query"), ("docs", "docs"), ("clicks", "clicks"), ("count", "times")]
    shown += [(VIEWED, "views")] * views
    got = ", ', ', ".join(f"'{name} ', coalesce(CAST({column} AS {dialect.text}), 'missing')" for name, column in shown)
    no_view = ""
    if views:
        wrong = dialect.length.format(dialect.filter.format("views", "x IS NOT NULL AND x NOT IN (0, 1)"))
        no_view = f"WHEN {wrong} > 0 THEN 'viewed must be 0 or 1, or missing'"
    return f"""
        SELECT count(*) AS lists, CAST(max(extent) AS BIGINT) AS ranks, count(broken) AS bad,
            CAST(sum(CASE WHEN extent > size THEN 1 ELSE 0 END) AS BIGINT) AS holes,
            min(CASE WHEN broken IS NOT NULL THEN concat(broken, ': got ',
                CASE WHEN owner IS NULL THEN '' ELSE concat('session ', owner, ', ') END, {got}) END) AS first,
            sum(times) AS sessions
        FROM (
            SELECT *, {size} AS size, {dialect.maximum.format("places")} AS extent, CASE
                WHEN problem IS NOT NULL THEN problem
                WHEN {missing} > 0 THEN 'doc must not be missing'
                WHEN {no_bit} > 0 THEN 'a click must be 0 or 1'
                {no_view}
                WHEN {clicks} <> {size} THEN 'docs and clicks must be of equal length'
                WHEN {dialect.length.format(dialect.distinct.format("docs"))} < {size}
                    THEN 'a document must appear once in a list'
                WHEN times IS NULL OR times < 1 OR times <> floor(times) THEN 'count must be 1, 2, 3, ...'
                END AS broken
            FROM {lists})"""


def pairs_query(lists: str, dialect: Dialect) -> str:
    """Return the query for the distinct pairs, by hash and by ids."""
    return f"""
        SELECT DISTINCT {dialect.hash.format("query", "doc")} AS pair, query, doc
        FROM ({_results_query(lists, dialect)})"""


def cells_query(lists: str, by: By, dialect: Dialect, *, views: bool = False) -> str:
    """Return the query for impressions and clicks by pair, rank (place) and clicks above.

    `above` is the rank of the last click above, from 1, or the sum of 2^(rank - 1) over all clicks above; 0 for none.
    With `views`, the columns of `CellViews` follow: a click is viewed, whatever its view says.
    """
    clicks = dialect.filter.format("clicked", "x < place")
    above = {
        "rank": "0",
        "last_click": dialect.maximum.format(clicks),
        "prefix": dialect.total.format(dialect.transform.format(clicks, "pow(2, x - 1)")),
    }[by]
    where = {
        "known_clicks": "click = 1 AND viewed IS NOT NULL",
        "skips": "click = 0 AND viewed = 1",
        "unviewed": "click = 0 AND viewed = 0",
        "contradicted": "click = 1 AND viewed = 0",
    }
    sums = "".join(f", sum(CASE WHEN {one} THEN times ELSE 0 END) AS {name}" for name, one in where.items())
    return f"""
        SELECT pair, place, above, sum(times) AS impressions, sum(times * click) AS clicks{sums * views}
        FROM (
            SELECT {dialect.hash.format("query", "doc")} AS pair, CAST(place AS BIGINT) AS place,
                CAST(coalesce({above}, 0) AS BIGINT) AS above, times, click{", viewed" * views}
            FROM ({_results_query(lists, dialect, views=views)}))
        GROUP BY pair, place, above"""


def hashed_lists_query(lists: str, dialect: Dialect, *columns: str) -> str:
    """Return the query for lists of pair hashes with their clicks, counts (times) and further columns, as places."""
    pairs = dialect.transform.format("docs", dialect.hash.format("query", "x"))
    clicks = dialect.transform.format("clicks", "x = 1")
    return f"SELECT {', '.join((f'{pairs} AS pairs', f'{clicks} AS clicks', 'times', *columns))} FROM {lists}"


def _results_query(lists: str, dialect: Dialect, *, views: bool = False) -> str:
    """Return the query for one row per result of every list."""
    numbers = dialect.up_to.format(dialect.length.format("clicks"))
    clicked = dialect.filter.format(numbers, f"{dialect.item.format('clicks', 'x')} = 1")
    clicked = dialect.transform.format(clicked, dialect.item.format("places", "x"))
    return dialect.explode.format(
        item=dialect.viewed_item * views,
        zipped=", views" * views,
        lists=f"SELECT *, {clicked} AS clicked FROM {lists}",
    )


def _item_type(name: str, column_type: str, dialect: Dialect) -> str:
    """Return the type of the items of a list column, or raise if it has no lists."""
    match = re.fullmatch(dialect.list_types, column_type)
    if match is None:
        raise DataError(
            f"column {name} must hold lists: got {column_type}. Split it first, or pass one row per result.",
            code="wrong-column-type",
            column=name,
            type=column_type,
        )
    return match[1]


def _id_type(name: str, value_type: str, dialect: Dialect) -> IdType:
    """Return the type of ids, or raise if they are neither text nor integers below 2^63."""
    if re.fullmatch(dialect.text_types, value_type):
        return "text"
    if re.fullmatch(dialect.integer_types, value_type):
        return "integer"
    raise DataError(
        f"{name} must be ids, text or integers below 2^63: got {value_type}. Cast them first.",
        code="wrong-column-type",
        column=name,
        type=value_type,
    )
