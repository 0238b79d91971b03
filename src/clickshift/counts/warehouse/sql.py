"""Counting in SQL: the same few steps in two dialects, DuckDB's and Spark's, which give equal counts.

    log (wide or long)  ->  lists, one row each  ->  what breaks a rule; distinct pairs; cells

A pair is a 64-bit hash of its ids (Spark's `hash` has 32 bits, too few for a hundred thousand pairs). That two pairs
have one hash is unlikely and never assumed away: the distinct (hash, query, document) rows would show it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from clickshift.counts.cells import By
from clickshift.errors import DataError
from clickshift.io.read_log import LONG, WIDE

IdType = Literal["integer", "text"]


@dataclass(frozen=True)
class Dialect:
    """How an engine writes what the two do not write alike. In expressions on lists, x is the item."""

    quote: str
    text: str
    list_type: str
    length: str
    item: str
    """Item number i of a list, from 1."""
    kept: str
    """The items for which something holds."""
    each: str
    """Something of every item."""
    largest: str
    total: str
    distinct: str
    up_to: str
    """The numbers from 1 to n."""
    hash: str
    collected: str
    """The rows of a group as a list of structs, by rank."""
    results: str
    """One row per result of every list."""
    text_types: str
    """What the engine calls its types: of text..."""
    integer_types: str
    number_types: str
    list_types: str
    """...and of lists, with their items' type in brackets."""


DUCKDB = Dialect(
    quote='"{}"',
    text="VARCHAR",
    list_type="{}[]",
    length="len({})",
    item="{}[{}]",
    kept="[x FOR x IN {} IF {}]",
    each="[{1} FOR x IN {0}]",
    largest="list_max({})",
    total="list_sum({})",
    distinct="list_distinct({})",
    up_to="range(1, {} + 1)",
    hash="hash({}, {})",
    collected="list_sort(list(struct_pack(place := place, doc := doc, click := click)))",
    results="""
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
    item="element_at({}, {})",
    kept="filter({}, x -> {})",
    each="transform({}, x -> {})",
    largest="array_max({})",
    total="aggregate({}, 0D, (sum, x) -> sum + x)",
    distinct="array_distinct({})",
    up_to="sequence(1, {})",
    hash="xxhash64({}, {})",
    collected="sort_array(collect_list(struct(place, doc, click)))",
    results="""
        SELECT query, clicked, times, result.docs AS doc, result.clicks AS click, result.places AS place
        FROM (SELECT query, clicked, times, explode(arrays_zip(docs, clicks, places)) AS result FROM ({}))""",
    text_types=r"string.*|varchar\(\d+\)|char\(\d+\)",
    integer_types="tinyint|smallint|int|bigint",
    number_types=r"boolean|float|double|decimal\(.*\)",
    list_types="array<(.*)>",
)


@dataclass(frozen=True)
class SqlLayout:
    """One row per list or one row per result, and of which kind the ids are."""

    wide: bool
    query: IdType
    doc: IdType
    counted: bool
    """Whether a column `count` says how many equal sessions a row stands for."""

    @classmethod
    def of(cls, types: Mapping[str, str], dialect: Dialect) -> SqlLayout:
        """From the names and types of a table's columns."""
        layout = min(WIDE, LONG, key=lambda names: sum(name not in types for name in names))
        if missing := [name for name in layout if name not in types]:
            raise DataError(
                f"a log must have the columns {', '.join(WIDE)} (one row per list) or {', '.join(LONG)} "
                f"(one row per result): {', '.join(missing)} not found; the table has {', '.join(types) or 'none'}. "
                "Select them under these names first."
            )
        single = {name: _item_type(name, types[name], dialect) for name in ("docs", "clicks") if layout is WIDE}
        found = {name: kind for name, kind in types.items() if name in {*layout, "count"}} | single
        for name in ("clicks", "rank", "click", "count"):
            if name in found and not re.fullmatch(f"{dialect.integer_types}|{dialect.number_types}", found[name]):
                raise DataError(f"column {name} must hold numbers: got {types[name]}. Cast it first.")
        query, doc = (_kind(name, found[name], dialect) for name in ("query", "docs" if layout is WIDE else "doc"))
        return cls(layout is WIDE, query, doc, "count" in types)


def lists(log: str, layout: SqlLayout, dialect: Dialect) -> str:
    """One row per list: its session (owner), query, docs, clicks and count (times), and a problem if there is one.

    The results of a long log come together by one aggregate per session: a window function would sort the whole log.
    """
    session, query, docs, clicks, rank, doc, click, count = (
        dialect.quote.format(name) for name in ("session", "query", "docs", "clicks", "rank", "doc", "click", "count")
    )
    query_type, doc_type = ("BIGINT" if kind == "integer" else dialect.text for kind in (layout.query, layout.doc))
    times = f"CAST({count} AS DOUBLE)" if layout.counted else "CAST(1 AS DOUBLE)"
    if layout.wide:
        return f"""
        SELECT CAST(NULL AS {dialect.text}) AS owner, CAST({query} AS {query_type}) AS query,
            CAST({docs} AS {dialect.list_type.format(doc_type)}) AS docs,
            CAST({clicks} AS {dialect.list_type.format("DOUBLE")}) AS clicks,
            {times} AS times, CAST(NULL AS {dialect.text}) AS problem
        FROM {log}"""
    return f"""
        SELECT owner, query, {dialect.each.format("results", "x['doc']")} AS docs,
            {dialect.each.format("results", "x['click']")} AS clicks, times,
            CASE WHEN problem IS NULL AND {dialect.each.format("results", "x['place']")} <> ranks
                THEN 'ranks must be 1, 2, 3, ... once each' ELSE problem END AS problem
        FROM (
            SELECT CAST(owner AS {dialect.text}) AS owner, min(query) AS query, min(times) AS times,
                {dialect.collected} AS results,
                {dialect.each.format(dialect.up_to.format("count(*)"), "CAST(x AS DOUBLE)")} AS ranks,
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


def summarise(lists: str, dialect: Dialect) -> str:
    """One row: how many lists there are, the length of the longest, and how many break a rule, with the first."""
    size, clicks = dialect.length.format("docs"), dialect.length.format("clicks")
    missing = dialect.length.format(dialect.kept.format("docs", "x IS NULL"))
    no_bit = dialect.length.format(dialect.kept.format("clicks", "x IS NULL OR x NOT IN (0, 1)"))
    got = ", ', ', ".join(
        f"'{name} ', coalesce(CAST({column} AS {dialect.text}), 'missing')"
        for name, column in (("query", "query"), ("docs", "docs"), ("clicks", "clicks"), ("count", "times"))
    )
    return f"""
        SELECT count(*) AS lists, CAST(max(size) AS BIGINT) AS ranks, count(broken) AS bad,
            min(CASE WHEN broken IS NOT NULL THEN concat(broken, ': got ',
                CASE WHEN owner IS NULL THEN '' ELSE concat('session ', owner, ', ') END, {got}) END) AS first
        FROM (
            SELECT *, {size} AS size, CASE
                WHEN problem IS NOT NULL THEN problem
                WHEN query IS NULL THEN 'query must not be missing'
                WHEN docs IS NULL OR clicks IS NULL OR {size} = 0 OR {size} <> {clicks}
                    THEN 'docs and clicks must be lists of one item or more, equally long'
                WHEN {missing} > 0 THEN 'doc must not be missing'
                WHEN {no_bit} > 0 THEN 'a click must be 0 or 1'
                WHEN {dialect.length.format(dialect.distinct.format("docs"))} < {size}
                    THEN 'a document must stand once in a list'
                WHEN times IS NULL OR times < 1 OR times <> floor(times) THEN 'count must be 1, 2, 3, ...'
                END AS broken
            FROM {lists})"""


def pairs(lists: str, dialect: Dialect) -> str:
    """The distinct pairs, by hash and by ids."""
    return f"""
        SELECT DISTINCT {dialect.hash.format("query", "doc")} AS pair, query, doc
        FROM ({_results(lists, dialect)})"""


def cells(lists: str, by: By, dialect: Dialect) -> str:
    """How often each pair was shown and clicked at each rank, given what was clicked above.

    `above` is the rank of the last click above, from 1, or the sum of 2^(rank - 1) over all of them; 0 for none.
    """
    clicks = dialect.kept.format("clicked", "x < place")
    above = {
        "rank": "0",
        "last_click": dialect.largest.format(clicks),
        "prefix": dialect.total.format(dialect.each.format(clicks, "pow(2, x - 1)")),
    }[by]
    return f"""
        SELECT pair, place, above, sum(times) AS impressions, sum(times * click) AS clicks
        FROM (
            SELECT {dialect.hash.format("query", "doc")} AS pair, CAST(place AS BIGINT) AS place,
                CAST(coalesce({above}, 0) AS BIGINT) AS above, times, click
            FROM ({_results(lists, dialect)}))
        GROUP BY pair, place, above"""


def hashed_lists(lists: str, dialect: Dialect, *columns: str) -> str:
    """Lists of pairs by hash, with their clicks and counts and perhaps more, for those who number them."""
    pairs = dialect.each.format("docs", dialect.hash.format("query", "x"))
    clicks = dialect.each.format("clicks", "x = 1")
    return f"SELECT {', '.join((f'{pairs} AS pairs', f'{clicks} AS clicks', 'times', *columns))} FROM {lists}"


def _results(lists: str, dialect: Dialect) -> str:
    places = dialect.up_to.format(dialect.length.format("docs"))
    clicked = dialect.kept.format(places, f"{dialect.item.format('clicks', 'x')} = 1")
    return dialect.results.format(f"SELECT *, {places} AS places, {clicked} AS clicked FROM {lists}")


def _item_type(name: str, found: str, dialect: Dialect) -> str:
    items = re.fullmatch(dialect.list_types, found)
    if items is None:
        raise DataError(f"column {name} must hold lists: got {found}. Split it first, or give one row per result.")
    return items[1]


def _kind(name: str, found: str, dialect: Dialect) -> IdType:
    if re.fullmatch(dialect.text_types, found):
        return "text"
    if re.fullmatch(dialect.integer_types, found):
        return "integer"
    raise DataError(f"{name} must be ids, text or integers below 2^63: got {found}. Cast them first.")
