"""Lists and clicks without a common id, as web analytics log them.

A click belongs to the latest list of its session that holds its item.
"""

from __future__ import annotations

from clickshift.io.events._database import CLICK, IMPRESSION, SEPARATOR, SIGNAL, EventDatabase
from clickshift.io.events.options import EventOptions

VIEW_TABLE = (
    "CREATE TABLE views (place BIGINT, session VARCHAR, name VARCHAR, term VARCHAR, page VARCHAR, doc VARCHAR, "
    'ordinal BIGINT, offset_ BIGINT, time TIMESTAMP, "user" VARCHAR, device VARCHAR)'
)
"""Items of viewed lists: name of the list, search term, and what tells pages apart (NULL: every event is one)."""
ACT_TABLE = "CREATE TABLE acts (place BIGINT, session VARCHAR, name VARCHAR, doc VARCHAR, time TIMESTAMP, kind TINYINT)"
"""Items that were clicked or bought, with the name of the list if it is known."""
_EXAMPLE = "concat_ws(', ', 'session ' || session, 'list ' || name, 'item ' || doc, time)"


def join_views(database: EventDatabase, options: EventOptions) -> None:
    """Make the table `events` of the tables `views` and `acts`; both are dropped.

    Views of one page, list and term are one list. Where items have no index, their order of arrival is the rank,
    counted from where the indexes of other lists begin.
    """
    database.left_out("views", "doc IS NULL", "items of lists without an id", "no-object", example=_EXAMPLE)
    database.left_out("acts", "doc IS NULL", "clicked or bought items without an id", "no-object", example=_EXAMPLE)
    nameless = "doc IS NOT NULL AND coalesce(term, name) IS NULL"
    what = "items of lists without a search term and without a name"
    database.left_out("views", nameless, what, "no-query", example=_EXAMPLE)
    database.execute(f"DELETE FROM views WHERE doc IS NULL OR {nameless}; DELETE FROM acts WHERE doc IS NULL")
    page = "coalesce(page, CAST(place AS VARCHAR))"
    key = f"concat_ws({SEPARATOR}, session, coalesce(name, ''), coalesce(term, ''), {page})"
    least = database.row("SELECT min(ordinal) FROM views WHERE ordinal >= 0")[0]
    base = options.rank_base if options.rank_base is not None else 1 if least is None else min(int(least), 1)
    database.execute(
        f"""CREATE TABLE seen AS SELECT * EXCLUDE (first), coalesce(ordinal, {base} + sum(CAST(first AS BIGINT))
            OVER (PARTITION BY list ORDER BY time, place, offset_) - CAST(first AS BIGINT)) AS rank
        FROM (SELECT *, row_number() OVER (PARTITION BY list, doc ORDER BY time, place, offset_) = 1 AS first
            FROM (SELECT *, {key} AS list FROM views))"""
    )
    what = "items of lists without an index that is a number: their rank is their place in the list"
    database.repaired("seen", "ordinal IS NULL", what, "rank-by-order", example=_EXAMPLE)
    by_item = "(SELECT session, doc, time, min(place) AS place FROM seen GROUP BY ALL)"
    by_name = "(SELECT session, name, doc, time, min(place) AS place FROM seen WHERE name IS NOT NULL GROUP BY ALL)"
    database.execute(
        f"""CREATE TABLE found AS
        SELECT a.*, coalesce(v.place, i.place) AS view FROM acts a
        ASOF LEFT JOIN {by_name} v
            ON a.session = v.session AND a.name = v.name AND a.doc = v.doc AND a.time >= v.time
        ASOF LEFT JOIN {by_item} i ON a.session = i.session AND a.doc = i.doc AND a.time >= i.time"""
    )
    what = "clicks on items that no earlier list of the session shows"
    database.left_out("found", f"view IS NULL AND kind = {CLICK}", what, "click-without-impression", example=_EXAMPLE)
    what = "conversions of items that no earlier list of the session shows"
    lost = f"view IS NULL AND kind >= {SIGNAL}"
    database.left_out("found", lost, what, "conversion-without-impression", example=_EXAMPLE)
    database.execute(
        f"""CREATE TABLE events AS
        SELECT place * 4096 + least(offset_, 4095) AS place, '' AS source, list, coalesce(term, name) AS query, doc,
            CAST(rank AS BIGINT) AS ordinal, time, "user", CAST({IMPRESSION} AS TINYINT) AS kind,
            device AS "segment device" FROM seen
        UNION ALL
        SELECT f.place * 4096, '', s.list, s.query, f.doc, NULL, f.time, NULL, f.kind, NULL FROM found f
        JOIN (SELECT place, doc, any_value(list) AS list, any_value(coalesce(term, name)) AS query FROM seen
              GROUP BY place, doc) s ON s.place = f.view AND s.doc = f.doc"""
    )
    database.execute("DROP TABLE views; DROP TABLE acts; DROP TABLE seen; DROP TABLE found")
