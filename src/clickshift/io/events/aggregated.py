"""Tables of counts: query, document, rank, impressions and clicks, such as Search Console's or a report's.

They have no sessions: they are counts by rank, enough for click-through rates and position-based models. Search Console
gives mean positions: they are rounded to whole ranks, row by row, with a warning.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

from clickshift.errors import ClickshiftWarning, FileError
from clickshift.io.encode.duckdb import sql_name
from clickshift.io.events import generic
from clickshift.io.events._database import EventDatabase, Loaded
from clickshift.io.events._problems import check_rejected, located
from clickshift.io.events._sources import Source, check_types
from clickshift.io.events.generic import is_integer, snake_case
from clickshift.io.events.options import EventOptions

NAMES = {
    "query": ("query", "q", "search_query", "query_text", "search_term", "keyword", "top_queries"),
    "doc": ("doc", "doc_id", "document", "document_id", "page", "url", "product_id", "item_id", "landing_page"),
    "rank": ("rank", "position", "pos", "average_position", "avg_position"),
    "sum_position": ("sum_position",),
    "impressions": ("impressions", "impression_count", "views", "shown"),
    "clicks": ("clicks", "click_count"),
    "time": ("data_date", "date", "day"),
}
"""Our columns of tables of counts, and their common names, the most telling one first."""
_NEEDED = ("query", "doc", "impressions", "clicks")


def recognise(names: Sequence[str], columns: Mapping[str, str]) -> dict[str, str]:
    """Return the table's names of our columns."""
    by_snake = {snake_case(name): name for name in reversed(names)}
    found = {ours: next((by_snake[name] for name in common if name in by_snake), "") for ours, common in NAMES.items()}
    return {ours: theirs for ours, theirs in (found | dict(columns)).items() if theirs}


def is_aggregated(source: Source) -> bool:
    """Return whether a table has impressions and clicks, and its values of them are numbers, or it has no sessions."""
    found = recognise(source.names, {})
    if not {"impressions", "clicks", "query"} <= {*found}:
        return False
    if "doc" in found and not {"session", "list", "event"} & {*generic.recognise(source.names, {})}:
        return True
    values = [one.get(found[name]) for one in source.sample[:20] for name in ("impressions", "clicks")]
    return all(isinstance(value, int | float) or str(value).replace(".", "", 1).isdigit() for value in values)


def load_aggregated(database: EventDatabase, sources: Sequence[Source], options: EventOptions) -> Loaded:
    """Make the table `cells`: query, doc, rank (from 1), impressions and clicks.

    Raises
    ------
    FileError
        "missing-column", "bad-counts" for counts that are not numbers, or more clicks than impressions, and "bad-rank",
        unless such rows are skipped.
    """
    database.execute(
        "CREATE TABLE raw (file INTEGER, row BIGINT, query VARCHAR, doc VARCHAR, position DOUBLE, impressions DOUBLE, "
        "clicks DOUBLE, time TIMESTAMP, got VARCHAR)"
    )
    for number, source in enumerate(sources):
        found = _columns(source, options)
        if "sum_position" in found:  # zero-based
            position = f"try_cast({sql_name(found['sum_position'])} AS DOUBLE) / nullif(shows, 0) + 1"
        else:
            position = f"try_cast({sql_name(found['rank'])} AS DOUBLE) + {1 - (options.rank_base or 1)}"
            if options.rank_base == 0:
                position = f"try_cast({sql_name(found['rank'])} AS DOUBLE) + 1"
        time = f"time_of(CAST({sql_name(found['time'])} AS VARCHAR))" if "time" in found else "NULL"
        texts = [f"nullif(CAST({sql_name(found[name])} AS VARCHAR), '')" for name in ("query", "doc")]
        numbers = [f"try_cast({sql_name(found[name])} AS DOUBLE)" for name in ("impressions", "clicks")]
        got = ", ' and ', ".join(f"CAST({sql_name(found[name])} AS VARCHAR)" for name in ("impressions", "clicks"))
        database.execute(
            f"""INSERT INTO raw SELECT {number}, row_number() OVER (), {texts[0]}, {texts[1]}, {position}, shows,
            {numbers[1]}, {time}, concat({got}) FROM (SELECT *, {numbers[0]} AS shows
            FROM {source.columns(database, list(dict.fromkeys(found.values())))})"""
        )
    check_rejected(database, sources)
    _report(database, sources)
    tables = [(source, recognise(source.names, options.columns)) for source in sources]
    typed = [name for name in ("query", "doc") if all(is_integer(source, found[name]) for source, found in tables)]
    canonical = "regexp_full_match({}, '0|-?[1-9][0-9]{{0,17}}')"
    integers = [
        name for name in typed if not database.number(f"SELECT count(*) FROM cells WHERE NOT {canonical.format(name)}")
    ]
    return Loaded({}, tuple(integers))


def _columns(source: Source, options: EventOptions) -> dict[str, str]:
    """Return the table's names of our columns, or raise for a table that misses one."""
    found = recognise(source.names, options.columns)
    missing = [name for name in _NEEDED if found.get(name) not in source.names]
    missing += ["rank"] * (not {"rank", "sum_position"} & {*found})
    if missing:
        columns = ", ".join(f'"{name}": "..."' for name in missing)
        raise FileError(
            source.path,
            f"a table of counts must have the columns query, doc, rank, impressions and clicks: {', '.join(missing)} "
            f"not found; it has {', '.join(source.names[:50])}. If they have other names, pass columns={{{columns}}}.",
            code="missing-column",
            columns=missing,
            known=list(source.names),
        )
    check_types(source, found, ("query", "doc"))
    return found


def _report(database: EventDatabase, sources: Sequence[Source]) -> None:
    """Make the table `cells` of the rows that keep all rules, and report the others."""
    numbers = "impressions >= 0 AND clicks >= 0 AND clicks <= impressions AND isfinite(impressions)"
    bad = {
        f"NOT coalesce({numbers}, false)": ("clicks must be from 0 to the impressions", "bad-counts"),
        "impressions > 0 AND NOT coalesce(position >= 0.5 AND position < 1e6, false)": (
            "rank must be a number of 1 or more",
            "bad-rank",
        ),
    }
    for condition, (rule, code) in bad.items():
        for file, source in enumerate(sources):
            where = f"file = {file} AND {condition}"
            count = database.number(f"SELECT count(*) FROM raw WHERE {where}")
            rows = database.rows(
                f"SELECT row, CASE '{code}' WHEN 'bad-rank' THEN CAST(position AS VARCHAR) ELSE got END FROM raw "
                f"WHERE {where} ORDER BY row LIMIT 3"
            )
            examples = [located(database, source, int(row), str(value)) for row, value in rows]
            database.report.bad_events(count, rule, code, examples)
        database.execute(f"DELETE FROM raw WHERE {condition}")
    example = "concat_ws(', ', 'query ' || query, 'document ' || doc, concat(impressions, ' impressions'))"
    what = "rows without a query or a document, such as anonymised queries"
    database.left_out("raw", "query IS NULL OR doc IS NULL", what, "no-query", example=example)
    database.execute("DELETE FROM raw WHERE query IS NULL OR doc IS NULL OR impressions = 0")
    mean = "position <> round(position)"
    rounded, total = database.row(f"SELECT sum(impressions) FILTER ({mean}), sum(impressions) FROM raw")
    if rounded:
        what = "rows whose rank is a mean: it is rounded"
        database.repaired(
            "raw", mean, what, "mean-rank", example=f"concat({example}, ', mean rank ', round(position, 2))"
        )
        warnings.warn(
            ClickshiftWarning(
                f"{database.report.path}: {rounded / total:.0%} of the impressions are in rows whose rank is a mean; "
                "it is rounded, so examination by rank is blurred. Count by the rank of each impression where you can, "
                "or export by day, device and country.",
                code="mean-ranks",
                share=rounded / total,
            ),
            stacklevel=2,
        )
    database.execute(
        """CREATE TABLE cells AS SELECT query, doc, CAST(round(position) AS BIGINT) AS rank,
        sum(impressions) AS impressions, sum(clicks) AS clicks FROM raw GROUP BY ALL ORDER BY ALL"""
    )
