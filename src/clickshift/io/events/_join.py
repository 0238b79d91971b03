"""The join that all formats share: a table of events becomes one row per list, with its documents and clicks.

events -> pairs   one row per (list, document): the rank of its first or last impression, and its clicks
       -> places  one row per (list, rank): of several documents at a rank, the one with the earliest impression
       -> lists   one row per list: gaps between ranks are closed, or the list is cut at the first one, or left out
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from clickshift.io.events._database import CLICK, CONVERSION, IMPRESSION, EventDatabase
from clickshift.io.events.options import EventOptions

PAIR_EXAMPLE = "concat_ws(', ', 'query ' || query, 'document ' || doc, strftime(time, '%Y-%m-%d %H:%M:%S'))"
"""An example of an event, or of a pair, in SQL."""
_LIST_EXAMPLE = (
    "concat_ws(', ', 'query ' || query, 'documents ' || array_to_string(docs[1:3], ', '), "
    "strftime(time, '%Y-%m-%d %H:%M:%S'))"
)
_LATE = 1 << 62  # of events without a time


@dataclass(frozen=True)
class Joined:
    """Numbers of a join.

    Parameters
    ----------
    events
        Number of events by kind: impressions, clicks and conversions.
    lists, results, clicked
        Numbers of lists, of results with a rank and of clicked ones, before gaps are treated.
    written_lists, written_results, written_clicks
        The same after it.
    converted
        Number of results with a conversion.
    bases
        The rank that is the first one, by source.
    has_time, has_user
        Whether every list has a time, and a user.
    """

    events: dict[str, int]
    lists: int
    results: int
    clicked: int
    written_lists: int
    written_results: int
    written_clicks: int
    converted: int
    bases: dict[str, int]
    has_time: bool
    has_user: bool


def join_events(database: EventDatabase, options: EventOptions) -> Joined:
    """Make the table `lists` of the table `events`; what is left out is reported.

    Parameters
    ----------
    database
        Database with the table `events`.
    options
        Options of the join.

    Returns
    -------
    Joined
        Numbers of what was joined.
    """
    kinds: dict[int, int] = dict(database.rows("SELECT kind, count(*) FROM events GROUP BY kind"))
    _drop_outside_window(database, options)
    _make_pairs(database, options)
    bases = _shift_ranks(database, options)
    _make_places(database)
    lists, results, clicked, converted = database.row(
        "SELECT count(DISTINCT list), count(*), count(*) FILTER (clicks > 0), count(*) FILTER (conversions > 0) "
        "FROM places"
    )
    _make_lists(database)
    _treat_gaps(database, options.gaps)
    written = database.row(
        "SELECT count(*), coalesce(sum(len(docs)), 0), coalesce(sum(list_sum(clicks)), 0), count(time), "
        'count("user") FROM lists'
    )
    return Joined(
        {
            "impressions": kinds.get(IMPRESSION, 0),
            "clicks": kinds.get(CLICK, 0),
            "conversions": kinds.get(CONVERSION, 0),
        },
        lists,
        results,
        clicked,
        int(written[0]),
        int(written[1]),
        int(written[2]),
        converted,
        bases,
        bool(written[0]) and written[3] == written[0],
        bool(written[0]) and written[4] == written[0],
    )


def _drop_outside_window(database: EventDatabase, options: EventOptions) -> None:
    """Drop the clicks that come before every impression of their document in the list, or too long after it."""
    if options.window_seconds is None:
        return
    seconds = options.window_seconds
    database.execute(
        f"""CREATE TABLE waits AS
        SELECT c.place, c.query, c.doc, c.time, date_diff('millisecond', i.time, c.time) / 1000.0 AS waited,
               i.list IS NOT NULL AS shown
        FROM (FROM events WHERE kind <> {IMPRESSION} AND time IS NOT NULL) c
        ASOF LEFT JOIN (FROM events WHERE kind = {IMPRESSION} AND time IS NOT NULL) i
        ON c.list = i.list AND c.doc = i.doc AND c.time >= i.time"""
    )
    example = PAIR_EXAMPLE
    later = f"clicks or conversions more than {seconds:g} seconds after their impression"
    database.left_out("waits", f"shown AND waited > {seconds}", later, "late-click", example=example)
    database.execute(f"DELETE FROM events WHERE place IN (SELECT place FROM waits WHERE shown AND waited > {seconds})")
    database.execute(
        f"""CREATE TABLE early AS SELECT * FROM waits WHERE NOT shown AND place IN (
                      SELECT c.place FROM events c JOIN events i ON c.list = i.list AND c.doc = i.doc
                      WHERE c.kind <> {IMPRESSION} AND i.kind = {IMPRESSION} AND i.time > c.time)"""
    )
    earlier = "clicks or conversions before every impression of their document"
    database.left_out("early", "true", earlier, "click-before-impression", example=example)
    database.execute("DELETE FROM events WHERE place IN (SELECT place FROM early)")
    database.execute("DROP TABLE waits; DROP TABLE early")


def _make_pairs(database: EventDatabase, options: EventOptions) -> None:
    """Make the table `pairs`: one row per list and document."""
    shown, clicked = f"kind = {IMPRESSION}", f"kind = {CLICK}"
    chosen = "arg_min" if options.impression == "first" else "arg_max"
    time = "min" if options.impression == "first" else "max"
    database.execute(
        f"""CREATE TABLE pairs AS
        SELECT list, doc, any_value(query) AS query, any_value(source) AS source, min("user") AS "user",
               {chosen}(ordinal, moment) FILTER ({shown} AND ordinal IS NOT NULL) AS shown_ordinal,
               arg_min(ordinal, moment) FILTER ({clicked} AND ordinal IS NOT NULL) AS clicked_ordinal,
               {time}(moment) FILTER ({shown}) AS shown_at, min(moment) AS first_at,
               coalesce({time}(time) FILTER ({shown}), min(time)) AS time,
               count(*) FILTER ({shown}) AS impressions, count(*) FILTER ({clicked}) AS clicks,
               count(*) FILTER (kind = {CONVERSION}) AS conversions,
               min(time) FILTER ({clicked}) AS clicked_time, min(time) FILTER ({shown}) AS first_shown_time
        FROM (SELECT *, CAST(coalesce(epoch_us(time), {_LATE}) AS HUGEINT) * 1099511627776 + place AS moment
              FROM events)
        GROUP BY list, doc"""
    )
    example = PAIR_EXAMPLE
    database.left_out(
        "pairs",
        "impressions = 0 AND clicks > 0 AND clicked_ordinal IS NULL",
        "clicks on documents that no impression shows",
        "click-without-impression",
        example=example,
        count="sum(clicks)",
    )
    database.left_out(
        "pairs",
        "impressions = 0 AND clicks = 0",
        "conversions of documents without an impression and without a click",
        "conversion-without-impression",
        example=example,
        count="sum(conversions)",
    )
    database.left_out(
        "pairs",
        "impressions > 0 AND shown_ordinal IS NULL AND clicked_ordinal IS NULL",
        "impressions without a rank",
        "no-rank",
        example=example,
        count="sum(impressions)",
    )
    database.execute(
        "DELETE FROM pairs WHERE coalesce(shown_ordinal, clicked_ordinal) IS NULL OR impressions + clicks = 0"
    )
    database.repaired(
        "pairs",
        "impressions = 0",
        "clicked documents without an impression: shown at the rank of their click",
        "shown-by-click",
        example=example,
    )
    database.repaired(
        "pairs",
        "impressions > 1",
        f"repeated impressions of a document in a list: the {options.impression} one counts",
        "repeated-impression",
        example=example,
        count="sum(impressions - 1)",
    )
    database.repaired(
        "pairs",
        "clicks > 1",
        "repeated clicks on a document in a list: they count once",
        "repeated-click",
        example=example,
        count="sum(clicks - 1)",
    )
    if options.window_seconds is None:
        database.repaired(
            "pairs",
            "clicked_time < first_shown_time",
            "documents that were clicked before their first impression: the click counts",
            "click-before-impression",
            example=example,
        )


def _shift_ranks(database: EventDatabase, options: EventOptions) -> dict[str, int]:
    """Make ranks begin at 1 in every source; return the first rank by source."""
    ordinal = "coalesce(shown_ordinal, clicked_ordinal)"
    found = dict(database.rows(f"SELECT source, min({ordinal}) FILTER ({ordinal} >= 0) FROM pairs GROUP BY source"))
    if options.rank_base is None:
        bases = {source: 1 if smallest is None else min(int(smallest), 1) for source, smallest in found.items()}
    else:
        bases = dict.fromkeys(found, options.rank_base)
    import pyarrow as pa

    columns = pa.table(
        {"source": pa.array(list(bases), pa.string()), "base": pa.array(list(bases.values()), pa.int64())}
    )
    database.connection.register("found_bases", columns)
    database.execute("CREATE TABLE bases AS FROM found_bases")
    database.execute(
        f"""CREATE VIEW ranked AS SELECT list, doc, query, "user", shown_at, first_at, time, clicks, conversions,
        {ordinal} - base + 1 AS rank FROM pairs JOIN bases ON pairs.source IS NOT DISTINCT FROM bases.source"""
    )
    below = "results above the first rank (negative ranks, e.g. of filters)"
    database.left_out("ranked", "rank < 1", below, "rank-below-base", example=PAIR_EXAMPLE)
    return {source or "": base for source, base in sorted(bases.items(), key=str)}


def _make_places(database: EventDatabase) -> None:
    """Make the table `places`: one document per list and rank, the one with the earliest impression."""
    # an impression comes before a click without one; never chosen by click
    moment = f"coalesce(shown_at, first_at + CAST({_LATE} AS HUGEINT) * 2199023255552)"
    database.execute(
        f"""CREATE TABLE places AS SELECT list, rank, arg_min(doc, moment) AS doc, any_value(query) AS query,
        min("user") AS "user", min(time) AS time, arg_min(clicks, moment) AS clicks,
        arg_min(conversions, moment) AS conversions, min(first_at) AS first_at, count(*) AS candidates,
        count(*) FILTER (clicks > 0) AS clicked
        FROM (SELECT *, {moment} AS moment FROM ranked WHERE rank >= 1) GROUP BY list, rank"""
    )
    taken = "results at a rank that another result of the list takes, whose impression was earlier"
    example = "concat('query ', query, ', rank ', rank, ', kept ', doc)"
    database.left_out("places", "candidates > 1", taken, "rank-taken", example=example, count="sum(candidates - 1)")
    lost = "clicked ones among these results"
    count = "sum(clicked - CAST(clicks > 0 AS BIGINT))"
    database.left_out(
        "places", "clicked > CAST(clicks > 0 AS BIGINT)", lost, "rank-taken-click", example=example, count=count
    )
    database.execute("DROP VIEW ranked; DROP TABLE pairs")


def _make_lists(database: EventDatabase) -> None:
    """Make the table `lists`: documents and clicks in order of rank, and how many ranks there are before a gap."""
    database.execute(
        """CREATE TABLE lists AS SELECT list, any_value(query) AS query, min("user") AS "user", min(time) AS time,
        min(first_at) AS first_at, list(doc ORDER BY rank) AS docs,
        list(CAST(clicks > 0 AS TINYINT) ORDER BY rank) AS clicks, list(rank ORDER BY rank) AS ranks
        FROM places GROUP BY list"""
    )
    database.execute(
        """CREATE TABLE gapped AS SELECT list, count(*) FILTER (rank = place) AS kept FROM (
        SELECT list, unnest(ranks) AS rank, generate_subscripts(ranks, 1) AS place FROM lists
        WHERE ranks[-1] > len(ranks)) GROUP BY list"""
    )


def _treat_gaps(database: EventDatabase, gaps: str) -> None:
    """Close the gaps of lists, cut the lists at the first one, or leave them out; report what that costs."""
    joined = "(SELECT *, list_sum(clicks) AS clicked FROM lists JOIN gapped USING (list))"
    facts: dict[str, Any] = {"example": _LIST_EXAMPLE}
    if gaps == "close":
        what = "lists with a gap between their ranks: results below it move up"
        database.repaired(joined, "true", what, "gap-closed", **facts)
    elif gaps == "drop":
        database.left_out(joined, "true", "lists with a gap between their ranks", "gap", **facts)
        lost = "clicks in lists with a gap"
        database.left_out(joined, "clicked > 0", lost, "gap-click", count="sum(clicked)", **facts)
        database.execute("DELETE FROM lists WHERE list IN (SELECT list FROM gapped)")
    else:
        database.left_out(joined, "kept = 0", "lists without a result at rank 1", "no-first-rank", **facts)
        what = "lists with a gap between their ranks: they end above the first one"
        database.repaired(joined, "kept > 0", what, "gap-truncated", **facts)
        beyond = "results below the first gap of their list"
        database.left_out(joined, "true", beyond, "beyond-gap", count="sum(len(docs) - kept)", **facts)
        lost = "clicks below the first gap of their list"
        after = "coalesce(list_sum(clicks[kept + 1:]), 0)"
        database.left_out(joined, f"{after} > 0", lost, "beyond-gap-click", count=f"sum({after})", **facts)
        database.execute(
            """UPDATE lists SET docs = docs[1:kept], clicks = clicks[1:kept] FROM gapped
            WHERE lists.list = gapped.list"""
        )
        database.execute("DELETE FROM lists WHERE len(docs) = 0")
