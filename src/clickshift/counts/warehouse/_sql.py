"""Counting in SQL: the same steps in two dialects, DuckDB's and Spark's, which give equal counts.

    log (wide or long)  ->  lists, one row each  ->  rule violations; distinct pairs; cells

A list has the documents that are shown, and their ranks (places): a missing document of a wide log, and a rank without
a row of a long one, is a hole.

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
        Rows of a group as a list of structs, by rank.
    explode
        Query for one row per result of every list.
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
    collect="list_sort(list(struct_pack(place := place, doc := doc, click := click)))",
    explode="""
        SELECT query, clicked, times, unnest(docs) AS doc, unnest(clicks) AS click, unnest(places) AS place
        FROM ({})""",
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
    collect="sort_array(collect_list(struct(place, doc, click)))",
    explode="""
        SELECT query, clicked, times, result.docs AS doc, result.clicks AS click, result.places AS place
        FROM (SELECT query, clicked, times, explode(arrays_zip(docs, clicks, places)) AS result FROM ({}))""",
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
        item_types = {name: _item_type(name, types[name], dialect) for name in ("docs", "clicks") if layout is WIDE}
        value_types = {name: type_ for name, type_ in types.items() if name in {*layout, "count"}} | item_types
        numeric = f"{dialect.integer_types}|{dialect.number_types}"
        for name in ("clicks", "rank", "click", "count"):
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

    def check_no_views(self) -> None:
        """Raise if the log says which results were viewed ("views-not-counted"): views are counted in memory only."""
        if self.has_views:
            raise views_not_counted()


def views_not_counted() -> DataError:
    """Return the error for a table that says which results were viewed ("views-not-counted")."""
    return DataError(
        f"a table that is counted in a warehouse must have no column {VIEWED}: views are counted in memory only, and "
        "PBM and UBM would not use them. Select the other columns, or read the log with read_log.",
        code="views-not-counted",
        column=VIEWED,
    )


def lists_query(log: str, layout: SqlLayout, dialect: Dialect) -> str:
    """Return the query for one row per list: owner, query, docs, clicks, places, times, and problem, if any.

    The results of a long log are collected by one aggregate per session: a window function would sort the whole log.
    """
    query, count = (dialect.quote.format(name) for name in ("query", "count"))
    query_type, doc_type = ("BIGINT" if kind == "integer" else dialect.text for kind in (layout.query, layout.doc))
    times = f"CAST({count} AS DOUBLE)" if layout.counted else "CAST(1 AS DOUBLE)"
    if layout.wide:
        return _wide_lists_query(log, dialect, f"CAST({query} AS {query_type}) AS query, {times} AS times", doc_type)
    session, rank, doc, click = (dialect.quote.format(name) for name in ("session", "rank", "doc", "click"))
    places = dialect.transform.format("results", "CAST(x['place'] AS BIGINT)")
    no_rank = dialect.filter.format(
        "results", f"x['place'] < 1 OR x['place'] > {MAX_RANK} OR x['place'] <> floor(x['place'])"
    )
    distinct = dialect.length.format(dialect.distinct.format(dialect.transform.format("results", "x['place']")))
    return f"""
        SELECT owner, query, {dialect.transform.format("results", "x['doc']")} AS docs,
            {dialect.transform.format("results", "x['click']")} AS clicks, {places} AS places, times,
            CASE WHEN problem IS NULL
                AND ({dialect.length.format(no_rank)} > 0 OR {distinct} < {dialect.length.format("results")})
                THEN 'ranks must be from 1 to {MAX_RANK:,}, each once' ELSE problem END AS problem
        FROM (
            SELECT CAST(owner AS {dialect.text}) AS owner, min(query) AS query, min(times) AS times,
                {dialect.collect} AS results,
                CASE WHEN owner IS NULL THEN 'session must not be missing'
                    WHEN count(query) < count(*) THEN 'query must not be missing'
                    WHEN min(query) <> max(query) THEN 'query must be the same in all rows of a session'
                    WHEN count(place) < count(*) THEN 'rank must not be missing'
                    WHEN count(times) < count(*) OR min(times) <> max(times)
                    THEN 'count must be the same in all rows of a session' END AS problem
            FROM (
                SELECT {session} AS owner, CAST({query} AS {query_type}) AS query, CAST({doc} AS {doc_type}) AS doc,
                    CAST({rank} AS DOUBLE) AS place, CAST({click} AS DOUBLE) AS click, {times} AS times
                FROM {log})
            GROUP BY owner)"""


def _wide_lists_query(log: str, dialect: Dialect, columns: str, doc_type: str) -> str:
    """Return the query for the lists of a wide log, without the holes; lists without holes are taken as they are."""
    docs, clicks = (dialect.quote.format(name) for name in ("docs", "clicks"))
    size, n_clicks = dialect.length.format("docs"), dialect.length.format("clicks")
    shown = dialect.filter.format(dialect.up_to.format(size), f"{dialect.item.format('docs', 'x')} IS NOT NULL")
    n_shown = dialect.length.format("places")
    is_hole = f"{dialect.item.format('docs', 'x')} IS NULL AND coalesce({dialect.item.format('clicks', 'x')}, 0) <> 0"
    on_holes = dialect.length.format(dialect.filter.format(dialect.up_to.format(size), is_hole))
    no_hole = f"{n_shown} = {size}"
    clicks_of_places = dialect.transform.format("places", dialect.item.format("clicks", "x"))
    return f"""
        SELECT owner, query,
            CASE WHEN {no_hole} THEN docs ELSE {dialect.filter.format("docs", "x IS NOT NULL")} END AS docs,
            CASE WHEN {no_hole} OR {size} <> {n_clicks} THEN clicks ELSE {clicks_of_places} END AS clicks,
            places, times,
            CASE WHEN query IS NULL THEN 'query must not be missing'
                WHEN docs IS NULL OR clicks IS NULL OR {size} = 0 OR {size} <> {n_clicks}
                    THEN 'docs and clicks must be lists of one or more items and of equal length'
                WHEN {no_hole} THEN NULL
                WHEN {n_shown} = 0 THEN 'a list must have a document'
                WHEN {on_holes} > 0 THEN 'a click must be on a document' END AS problem
        FROM (
            SELECT *, {shown} AS places
            FROM (
                SELECT CAST(NULL AS {dialect.text}) AS owner, {columns},
                    CAST({docs} AS {dialect.list_type.format(doc_type)}) AS docs,
                    CAST({clicks} AS {dialect.list_type.format("DOUBLE")}) AS clicks
                FROM {log}))"""


def summary_query(lists: str, dialect: Dialect) -> str:
    """Return the query for one row: lists, ranks, lists with a hole or that break a rule, the first, and sessions.

    A list stands for as many sessions as its count.
    """
    size, clicks = dialect.length.format("docs"), dialect.length.format("clicks")
    missing = dialect.length.format(dialect.filter.format("docs", "x IS NULL"))
    no_bit = dialect.length.format(dialect.filter.format("clicks", "x IS NULL OR x NOT IN (0, 1)"))
    got = ", ', ', ".join(
        f"'{name} ', coalesce(CAST({column} AS {dialect.text}), 'missing')"
        for name, column in (("query", "query"), ("docs", "docs"), ("clicks", "clicks"), ("count", "times"))
    )
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


def cells_query(lists: str, by: By, dialect: Dialect) -> str:
    """Return the query for impressions and clicks by pair, rank (place) and clicks above.

    `above` is the rank of the last click above, from 1, or the sum of 2^(rank - 1) over all clicks above; 0 for none.
    """
    clicks = dialect.filter.format("clicked", "x < place")
    above = {
        "rank": "0",
        "last_click": dialect.maximum.format(clicks),
        "prefix": dialect.total.format(dialect.transform.format(clicks, "pow(2, x - 1)")),
    }[by]
    return f"""
        SELECT pair, place, above, sum(times) AS impressions, sum(times * click) AS clicks
        FROM (
            SELECT {dialect.hash.format("query", "doc")} AS pair, CAST(place AS BIGINT) AS place,
                CAST(coalesce({above}, 0) AS BIGINT) AS above, times, click
            FROM ({_results_query(lists, dialect)}))
        GROUP BY pair, place, above"""


def hashed_lists_query(lists: str, dialect: Dialect, *columns: str) -> str:
    """Return the query for lists of pair hashes with their clicks, counts (times) and further columns, as places."""
    pairs = dialect.transform.format("docs", dialect.hash.format("query", "x"))
    clicks = dialect.transform.format("clicks", "x = 1")
    return f"SELECT {', '.join((f'{pairs} AS pairs', f'{clicks} AS clicks', 'times', *columns))} FROM {lists}"


def _results_query(lists: str, dialect: Dialect) -> str:
    """Return the query for one row per result of every list."""
    numbers = dialect.up_to.format(dialect.length.format("clicks"))
    clicked = dialect.filter.format(numbers, f"{dialect.item.format('clicks', 'x')} = 1")
    clicked = dialect.transform.format(clicked, dialect.item.format("places", "x"))
    return dialect.explode.format(f"SELECT *, {clicked} AS clicked FROM {lists}")


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
