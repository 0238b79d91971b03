"""The join that all formats share: a table of events becomes one row per list, with its documents and clicks.

events -> keys   one row per list: its number, query, source, user and time; and its results, if the list is simple
       -> pairs  one row per (list, document) of the others: the rank of its first or last impression, and its clicks
       -> lists  one row per list: of several documents at a rank, the one with the earliest impression; a rank without
                 a result is a hole, or the list is cut at it, or closed, or left out

A list is simple if nothing in it is to be chosen, repaired or reported: impressions of different documents at different
ranks, and one click at most on each of them, after the impressions. Most lists are, and take one pass over the events.
Reasons are counted in one pass over a table; the affected results are kept in the table `affected`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from clickshift.data._columns import VIEWED
from clickshift.data.segments import MAX_SEGMENTS
from clickshift.errors import SpecError
from clickshift.io.encode.duckdb import sql_name, sql_text
from clickshift.io.events._affected_results import AFFECTED, report_results
from clickshift.io.events._database import CLICK, IMPRESSION, SIGNAL, EventDatabase, Loaded, Reason
from clickshift.io.events.options import EventOptions
from clickshift.io.tables.layouts import MAX_RANK

PAIR_EXAMPLE = "concat_ws(', ', 'query ' || query, 'document ' || doc, strftime(time, '%Y-%m-%d %H:%M:%S'))"
"""An example of an event, or of a pair, in SQL."""
_LIST_EXAMPLE = (
    "concat_ws(', ', 'query ' || query, 'documents ' || array_to_string(docs[1:3], ', '), "
    "strftime(time, '%Y-%m-%d %H:%M:%S'))"
)
UNSEEN_CLICKS = "clicks on documents that no impression shows"
UNSEEN_CONVERSIONS = "conversions of documents without an impression and without a click"
"""What is left out where nothing says at which rank a document was shown."""
_KEYS = "CREATE VIEW keys AS SELECT CAST(rowid AS INTEGER) AS list, * FROM numbers"
_LARGEST = 1 << 62  # of moments that fit in an integer
_MASKED = 64  # ranks whose bits fit in an integer


def _places_add_up(values: str) -> str:
    """Return whether the values of a list differ, in SQL, for short lists: the first place of each is its own."""
    return (
        f"list_sum([list_position({values}, value) FOR value IN {values}]) = len({values}) * (len({values}) + 1) // 2"
    )


_SIMPLE = f"""len(own_docs) + coalesce(len(own_clicked), 0) = events AND own_first >= {{first}} AND own_last < {{last}}
    AND CASE WHEN own_first >= 0 AND own_last < {_MASKED} AND events <= {_MASKED} THEN
        bit_count(list_bit_or([CAST(1 AS UBIGINT) << rank FOR rank IN own_ranks])) = len(own_docs)
        AND {_places_add_up("own_docs")} AND (own_clicked IS NULL OR ({_places_add_up("own_clicked")}
            AND list_bool_and([list_contains(own_docs, doc) FOR doc IN own_clicked])))
    ELSE len(list_distinct(own_ranks)) = len(own_docs) AND len(list_distinct(own_docs)) = len(own_docs)
        AND (own_clicked IS NULL OR (len(list_distinct(own_clicked)) = len(own_clicked)
            AND list_has_all(own_docs, own_clicked))) END
    AND NOT coalesce(first_clicked < last_shown, false)"""
"""Whether a list is simple, in SQL; short lists, which most are, need no hash table of their values."""


@dataclass(frozen=True)
class Joined:
    """Numbers of a join.

    Parameters
    ----------
    events
        Number of events by kind: impressions, clicks and conversions.
    lists, results, clicked, converted
        Numbers of lists, of results with a rank, of clicked ones and of those with a conversion, before gaps are
        treated.
    written_lists, written_results, written_clicks
        The same after it.
    bases
        The rank that is the first one, by source.
    has_time, has_user
        Whether every list has a time, and a user.
    signals, segments
        Names of the signals that occur, and of the segments.
    """

    events: dict[str, int]
    lists: int
    results: int
    clicked: int
    converted: int
    written_lists: int
    written_results: int
    written_clicks: int
    bases: dict[str, int]
    has_time: bool
    has_user: bool
    signals: tuple[str, ...]
    segments: tuple[str, ...]


def join_events(database: EventDatabase, options: EventOptions, loaded: Loaded) -> Joined:
    """Make the tables `lists` and `keys` of the table `events`; what is left out is reported.

    Parameters
    ----------
    database
        Database with the table `events`.
    options
        Options of the join.
    loaded
        What the format says of the events.

    Returns
    -------
    Joined
        Numbers of what was joined.
    """
    kinds: dict[int, int] = dict(database.rows("SELECT kind, count(*) FROM events GROUP BY kind"))
    signals = {name: kind for kind, name in enumerate(loaded.signals, SIGNAL) if kinds.get(kind)}
    database.execute(AFFECTED)
    segments = _number_lists(database, loaded.segments, options)
    _drop_outside_window(database, options)
    _make_pairs(database, options, signals)
    bases = _rank_pairs(database, options, tuple(signals))
    _make_lists(database, tuple(signals), options.gaps)
    lists, results, clicked, converted = database.row(
        "SELECT count(*), coalesce(sum(size), 0), coalesce(sum(clicked), 0), coalesce(sum(converted), 0) FROM lists"
    )
    _treat_gaps(database, options.gaps, tuple(signals))
    database.execute("CREATE VIEW written AS SELECT * FROM lists JOIN keys USING (list)")
    written = database.row(
        'SELECT count(*), coalesce(sum(size), 0), coalesce(sum(clicked), 0), count(time), count("user") FROM written'
    )
    converting = [kind for name, kind in signals.items() if name != VIEWED]
    return Joined(
        {
            "impressions": kinds.get(IMPRESSION, 0),
            "clicks": kinds.get(CLICK, 0),
            "conversions": sum(kinds[kind] for kind in converting),
        },
        lists,
        int(results),
        int(clicked),
        int(converted),
        int(written[0]),
        int(written[1]),
        int(written[2]),
        bases,
        bool(written[0]) and written[3] == written[0],
        bool(written[0]) and written[4] == written[0],
        tuple(signals),
        segments,
    )


def _number_lists(database: EventDatabase, segments: tuple[str, ...], options: EventOptions) -> tuple[str, ...]:
    """Make `keys`, and the view `numbered` of the events of lists that are not simple; return segments."""
    of_segments = "".join(
        f", CASE WHEN min({name}) = max({name}) THEN min({name}) END AS {name}, "
        f"coalesce(min({name}) <> max({name}), false) AS {sql_name(f'several {segment}')}"
        for segment, name in ((segment, segment_column(segment)) for segment in segments)
    )
    shown, simple = f"FILTER (kind = {IMPRESSION})", _SIMPLE.format(first=options.rank_base or 0, last=MAX_RANK)
    database.execute(
        f"""CREATE TABLE numbers AS SELECT
            * EXCLUDE (events, last_shown, first_clicked) RENAME (list AS key), list_min(own_ranks) AS own_first,
            list_max(own_ranks) AS own_last,
            coalesce({simple if options.window_seconds is None else "false"}, false) AS simple
        FROM (SELECT list, any_value(query) AS query, coalesce(max(source), '') AS source, min("user") AS "user",
            coalesce(min(time) {shown}, min(time)) AS time, min(place) AS place{of_segments}, count(*) AS events,
            list(ordinal) {shown} AS own_ranks, list(doc) {shown} AS own_docs,
            list(doc) FILTER (kind = {CLICK}) AS own_clicked, max(time) {shown} AS last_shown,
            min(time) FILTER (kind = {CLICK}) AS first_clicked
        FROM events GROUP BY list)"""
    )
    database.execute(_KEYS)
    for name in segments:
        labels = database.number(f"SELECT count(DISTINCT {segment_column(name)}) FROM keys")
        if labels > MAX_SEGMENTS:
            what = f"labels of {name}, of which there must be at most {MAX_SEGMENTS:,}: it is left out"
            database.report.left_out(labels, what, "too-many-labels")
            segments = tuple(other for other in segments if other != name)
    example = "concat_ws(', ', 'query ' || query, strftime(time, '%Y-%m-%d %H:%M:%S'))"
    mixed = [
        Reason("several-labels", f"lists whose events differ in {name}: it is unknown", sql_name(f"several {name}"))
        for name in segments
    ]
    database.report_reasons("keys", [], mixed, example=example)
    moment = _moment(database, options)
    database.execute(
        f"""CREATE VIEW numbered AS SELECT keys.list, doc, kind, events.time, events.place,
        CASE WHEN kind <= {CLICK} THEN ordinal END AS ordinal, {moment} AS moment
        FROM events JOIN (FROM keys WHERE NOT simple) keys ON events.list = keys.key"""
    )
    return segments


def _moment(database: EventDatabase, options: EventOptions) -> str:
    """Return a number that orders the events of a document in a list, in SQL.

    Impressions come before clicks, and those before conversions; each in the order of their times, those without a time
    last, and of their places; for the last impression, later ones first.
    """
    first, last, exact, places = database.row(
        "SELECT epoch_us(min(time)), epoch_us(max(time)), bool_or(epoch_us(time) % 1000 <> 0), max(place) + 1 "
        "FROM events"
    )
    start, unit, places = int(first or 0), 1 if exact else 1000, int(places or 1)
    times = (int(last or 0) - start) // unit + 1  # and one for events without a time
    moments = (times + 1) * places
    kind = "BIGINT" if 3 * moments < _LARGEST else "HUGEINT"
    moment = f"coalesce((epoch_us(events.time) - {start}) // {unit}, {times}) * CAST({places} AS {kind}) + events.place"
    shown = moment if options.impression == "first" else f"-({moment})"
    return (
        f"CASE kind WHEN {IMPRESSION} THEN {shown} ELSE {moment} + CASE kind WHEN {CLICK} THEN 1 ELSE 2 END "
        f"* CAST({moments} AS {kind}) END"
    )


def signal_column(name: str) -> str:
    """Return the name of the column of a signal in tables of pairs and lists, in SQL."""
    return sql_name(f"signal {name}")


def segment_column(name: str) -> str:
    """Return the name of the column of a segment in the table of events, in SQL."""
    return sql_name(f"segment {name}")


def _drop_outside_window(database: EventDatabase, options: EventOptions) -> None:
    """Drop the clicks that come before every impression of their document in the list, or too long after it."""
    if options.window_seconds is None:
        return
    seconds = options.window_seconds
    events, timed = database.row("SELECT count(*), count(time) FROM numbered")
    if events and not timed:
        raise SpecError(
            'window needs the times of events: there are none. Leave it out, or pass columns={"time": "..."}.',
            code="missing-column",
            option="window",
            column="time",
        )
    what = "clicks and conversions without a time: they count, since the window cannot be checked"
    untimed = Reason("no-time", what, f"time IS NULL AND kind <> {IMPRESSION}")
    joined = _with_query("numbered")
    database.report_reasons("numbered", [], [untimed], example=PAIR_EXAMPLE, joined=joined)
    database.execute("CREATE TABLE timed AS FROM numbered; DROP VIEW numbered")
    database.execute(
        f"""CREATE TABLE waits AS
        SELECT c.*, date_diff('millisecond', i.time, c.time) / 1000.0 AS waited, i.list IS NOT NULL AS shown
        FROM (FROM timed WHERE kind <> {IMPRESSION} AND time IS NOT NULL) c
        ASOF LEFT JOIN (FROM timed WHERE kind = {IMPRESSION} AND time IS NOT NULL) i
        ON c.list = i.list AND c.doc = i.doc AND c.time >= i.time"""
    )
    database.execute(
        f"""CREATE TABLE outside AS SELECT *, shown AS late FROM waits WHERE shown AND waited > {seconds}
        UNION ALL SELECT *, false FROM waits c WHERE NOT shown AND EXISTS (SELECT 1 FROM timed i
            WHERE i.kind = {IMPRESSION} AND i.list = c.list AND i.doc = c.doc AND i.time > c.time)"""
    )
    late, early = f"more than {seconds:g} seconds after their impression", "before every impression of their document"
    reasons = [
        Reason("late-click", f"clicks {late}", f"late AND kind = {CLICK}"),
        Reason("late-conversion", f"conversions or views {late}", f"late AND kind > {CLICK}"),
        Reason("click-before-impression", f"clicks {early}", f"NOT late AND kind = {CLICK}"),
        Reason("conversion-before-impression", f"conversions or views {early}", f"NOT late AND kind > {CLICK}"),
    ]
    report_results(database, "outside", reasons, [], example=PAIR_EXAMPLE, joined=_with_query("outside"))
    database.execute(
        """CREATE VIEW numbered AS FROM timed ANTI JOIN outside
        ON timed.place = outside.place AND timed.doc = outside.doc AND timed.kind = outside.kind"""
    )


def _with_query(table: str) -> str:
    """Return a table with the query of each list, for examples."""
    return f"(SELECT t.*, keys.query FROM {table} t JOIN keys USING (list))"


def _make_pairs(database: EventDatabase, options: EventOptions, signals: Mapping[str, int]) -> None:
    """Make the table `pairs`: one row per list and document, of lists that are not simple."""
    of_signals = "".join(f", bool_or(kind = {kind}) AS {signal_column(name)}" for name, kind in signals.items())
    others = f"CAST(count(*) FILTER (kind >= {SIGNAL}) AS INTEGER)" if signals else "0"
    database.execute(
        f"""CREATE TABLE pairs AS
        SELECT list, doc, CAST(arg_min(ordinal, moment) FILTER (ordinal IS NOT NULL) AS INTEGER) AS ordinal,
            min(moment) AS moment, CAST(count(*) FILTER (kind = {IMPRESSION}) AS INTEGER) AS impressions,
            CAST(count(*) FILTER (kind = {CLICK}) AS INTEGER) AS clicks, {others} AS others,
            min(time) FILTER (kind = {IMPRESSION}) AS time,
            min(time) FILTER (kind = {CLICK}) AS clicked_time{of_signals}
        FROM numbered GROUP BY list, doc"""
    )
    kept = "ordinal IS NOT NULL AND impressions + clicks > 0"
    viewed = signal_column(VIEWED) if VIEWED in signals else "false"
    left_out = [
        Reason(
            "click-without-impression",
            UNSEEN_CLICKS,
            "impressions = 0 AND clicks > 0 AND ordinal IS NULL",
            "clicks",
        ),
        Reason(
            "conversion-without-impression",
            UNSEEN_CONVERSIONS,
            f"impressions = 0 AND clicks = 0 AND NOT {viewed}",
            "others",
        ),
        Reason(
            "view-without-result",
            "events of documents that were seen and that no list has",
            f"impressions = 0 AND clicks = 0 AND {viewed}",
            "others",
        ),
        Reason("no-rank", "impressions without a rank", "impressions > 0 AND ordinal IS NULL", "impressions"),
    ]
    repaired = [
        Reason(
            "shown-by-click",
            "clicked documents without an impression: shown at the rank of their click",
            f"{kept} AND impressions = 0",
        ),
        Reason(
            "repeated-impression",
            f"repeated impressions of a document in a list: the {options.impression} one counts",
            f"{kept} AND impressions > 1",
            "impressions - 1",
        ),
        Reason(
            "repeated-click",
            "repeated clicks on a document in a list: they count once",
            f"{kept} AND clicks > 1",
            "clicks - 1",
        ),
    ]
    if options.window_seconds is None:
        what = "documents that were clicked before their first impression: the click counts"
        repaired.append(Reason("click-before-impression", what, f"{kept} AND clicked_time < time"))
    report_results(database, "pairs", left_out, repaired, example=PAIR_EXAMPLE, joined=_with_query("pairs"))


def _rank_pairs(database: EventDatabase, options: EventOptions, signals: tuple[str, ...]) -> dict[str, int]:
    """Make the views `ranked` of pairs and `simple` of simple lists; return the first rank by source."""
    found = dict(
        database.rows(
            """SELECT source, min(least) FROM (
            SELECT source, min(own_first) FILTER (simple) AS least FROM keys GROUP BY 1
            UNION ALL SELECT source, min(ordinal) FROM (SELECT pairs.*, source FROM pairs JOIN keys USING (list))
                WHERE ordinal >= 0 AND impressions + clicks > 0 GROUP BY 1) GROUP BY 1 ORDER BY 1"""
        )
    )
    if options.rank_base is None:
        bases = {source: 1 if least is None else min(int(least), 1) for source, least in found.items()}
    else:
        bases = dict.fromkeys(found, options.rank_base)
    cases = " ".join(f"WHEN {sql_text(source)} THEN {base}" for source, base in bases.items())
    same = len({*bases.values()}) <= 1
    base = str(next(iter(bases.values()), 1)) if same else f"CASE source {cases} END"
    table = "pairs" if same else "(SELECT pairs.*, source FROM pairs JOIN keys USING (list))"
    of_signals = "".join(f", {signal_column(name)}" for name in signals)
    database.execute(
        f"""CREATE VIEW ranked AS SELECT list, doc, ordinal - {base} + 1 AS rank, abs(moment) AS moment,
        clicks > 0 AS click, time{of_signals} FROM {table} WHERE ordinal IS NOT NULL AND impressions + clicks > 0"""
    )
    none = "".join(f", [CAST(0 AS TINYINT) FOR doc IN own_docs] AS {signal_column(name)}" for name in signals)
    database.execute(
        f"""CREATE VIEW simple AS SELECT list, CAST(own_last - {base} + 1 AS INTEGER) AS extent,
        CAST(len(own_docs) AS INTEGER) AS size, CAST(coalesce(len(own_clicked), 0) AS INTEGER) AS clicked,
        0 AS converted,
        own_ranks AS ranks, {base} AS base, own_docs AS docs, CASE WHEN own_clicked IS NULL
            THEN [CAST(0 AS TINYINT) FOR doc IN own_docs]
            ELSE [CAST(list_contains(own_clicked, doc) AS TINYINT) FOR doc IN own_docs] END AS clicks{none}
        FROM keys WHERE simple"""
    )
    left_out = [
        Reason("rank-below-base", "results above the first rank (negative ranks, e.g. of filters)", "rank < 1"),
        Reason("rank-too-high", f"results below rank {MAX_RANK:,}", f"rank > {MAX_RANK}"),
    ]
    report_results(database, "ranked", left_out, [], example=PAIR_EXAMPLE, joined=_with_query("ranked"))
    return {source: bases[source] for source in sorted(bases)}


def _make_lists(database: EventDatabase, signals: tuple[str, ...], gaps: str) -> None:
    """Make the table `lists`: documents and clicks in order of rank, one document per rank."""
    values = {"docs": "doc", "clicks": "CAST(click AS TINYINT)"}
    values |= {name: f"CAST({name} AS TINYINT)" for name in map(signal_column, signals)}
    converted = " OR ".join(signal_column(name) for name in signals if name != VIEWED) or "false"
    sums = (
        "CAST(max(rank) AS INTEGER) AS extent, CAST(count(*) AS INTEGER) AS size, "
        f"CAST(count(*) FILTER (click) AS INTEGER) AS clicked, CAST(count(*) FILTER ({converted}) AS INTEGER) "
        f"AS converted, list(rank) AS ranks, {', '.join(f'list({value}) AS {name}' for name, value in values.items())}"
    )
    possible = f"rank BETWEEN 1 AND {MAX_RANK}"
    bits = f"bit_or(CASE WHEN rank BETWEEN 1 AND {_MASKED} THEN CAST(1 AS UBIGINT) << (rank - 1) END) AS bits"
    database.execute(
        f"""CREATE TABLE grouped AS SELECT * EXCLUDE (bits), CASE WHEN extent <= {_MASKED} THEN bit_count(bits) < size
            ELSE len(list_distinct(ranks)) < size END AS crowded
        FROM (SELECT list, {sums}, {bits} FROM ranked WHERE {possible} GROUP BY list)"""
    )
    made = "FROM grouped WHERE NOT crowded"
    if database.number("SELECT count(*) FROM grouped WHERE crowded"):
        names = ["doc", "click", *map(signal_column, signals)]
        _choose_one_per_rank(database, names, possible)
        unpacked = ", ".join(f"item.{name} AS {name}" for name in names)
        made = f"""FROM ({made} UNION ALL BY NAME
            SELECT list, {sums}, false AS crowded FROM (SELECT list, rank, {unpacked} FROM places) GROUP BY list)"""
    made = f"FROM (FROM simple UNION ALL BY NAME SELECT * EXCLUDE (crowded), 1 AS base {made})"
    at = "[coalesce(list_position(ranks, r + base - 1), 0) FOR r IN range(1, extent + 1)]"
    dense = "extent = size" if gaps == "keep" else "true"
    lists = {name: f"list_select({name}, places)" for name in values}
    if VIEWED in signals:  # a list of which nothing was seen was not tracked
        name = signal_column(VIEWED)
        lists[name] = (
            f"CASE WHEN list_contains({name}, 1) THEN {lists[name]} ELSE [CAST(NULL AS TINYINT) FOR r IN places] END"
        )
    if gaps == "keep":
        filled = f"[coalesce(click, 0) FOR click IN {lists['clicks']}]"
        lists["clicks"] = f"CASE WHEN {dense} THEN {lists['clicks']} ELSE {filled} END"
    else:
        lists["ranks"] = "list_sort([rank - base + 1 FOR rank IN ranks])"
    database.execute(
        f"""CREATE TABLE lists AS SELECT list, extent, size, clicked, converted,
            {", ".join(f"{value} AS {name}" for name, value in lists.items())}
        FROM (SELECT *, CASE WHEN {dense} THEN list_grade_up(ranks) ELSE {at} END AS places {made})"""
    )
    database.execute("DROP TABLE grouped; DROP TABLE IF EXISTS places; DROP VIEW simple")
    database.execute("DROP VIEW keys")
    for name in ("own_docs", "own_ranks", "own_clicked"):
        database.execute(f"ALTER TABLE numbers DROP COLUMN {name}")
    database.execute(_KEYS)


def _choose_one_per_rank(database: EventDatabase, names: list[str], possible: str) -> None:
    """Make the table `places` of crowded lists: at each rank the document with the earliest impression.

    It is never chosen by click.
    """
    packed = "{" + ", ".join(f"{name}: {name}" for name in names) + "}"
    database.execute(
        f"""CREATE TABLE places AS SELECT list, rank, arg_min({packed}, moment) AS item, count(*) AS candidates,
            count(*) FILTER (click) AS clicked
        FROM ranked SEMI JOIN (FROM grouped WHERE crowded) USING (list) WHERE {possible} GROUP BY list, rank"""
    )
    lost = "clicked - CAST(item.click AS BIGINT)"
    reasons = [
        Reason(
            "rank-taken",
            "results at a rank that another result of the list takes, whose impression was earlier",
            "candidates > 1",
            "candidates - 1",
        ),
        Reason("rank-taken-click", "clicked ones among these results", f"{lost} > 0", lost),
    ]
    example = "concat('query ', query, ', rank ', rank, ', kept ', item.doc)"
    report_results(database, "places", reasons, [], example=example, joined=_with_query("places"), doc="item.doc")


def _treat_gaps(database: EventDatabase, gaps: str, signals: tuple[str, ...]) -> None:
    """Report the holes of lists; or close the gaps, cut the lists at the first one, or leave them out."""
    joined = "(SELECT * FROM lists JOIN keys USING (list) WHERE extent > size)"
    if gaps == "keep":
        what = "lists with a rank at which nothing was recorded: it is a hole"
        database.report_reasons("lists", [], [Reason("hole", what, "extent > size")], _LIST_EXAMPLE, joined)
    elif gaps == "close":
        what = "lists with a gap between their ranks: results below it move up"
        database.report_reasons("lists", [], [Reason("gap-closed", what, "extent > size")], _LIST_EXAMPLE, joined)
    elif gaps == "drop":
        reasons = [
            Reason("gap", "lists with a gap between their ranks", "extent > size"),
            Reason("gap-click", "clicks in lists with a gap", "extent > size AND clicked > 0", "clicked"),
        ]
        database.report_reasons("lists", reasons, [], _LIST_EXAMPLE, joined)
        database.execute("DELETE FROM lists WHERE extent > size")
    else:
        _truncate(database, signals)


def _truncate(database: EventDatabase, signals: tuple[str, ...]) -> None:
    """Cut lists at their first gap."""
    database.execute(
        """CREATE TABLE gapped AS SELECT list, CAST(count(*) FILTER (rank = place) AS INTEGER) AS kept FROM (
        SELECT list, unnest(ranks) AS rank, generate_subscripts(ranks, 1) AS place FROM lists
        WHERE extent > size) GROUP BY list"""
    )
    database.execute(
        """CREATE VIEW cut AS SELECT lists.*, kept, coalesce(list_sum(clicks[kept + 1:]), 0) AS beyond, query, time
        FROM lists JOIN gapped USING (list) JOIN keys USING (list)"""
    )
    left_out = [
        Reason("no-first-rank", "lists without a result at rank 1", "kept = 0"),
        Reason("beyond-gap", "results below the first gap of their list", "true", "size - kept"),
        Reason("beyond-gap-click", "clicks below the first gap of their list", "beyond > 0", "beyond"),
    ]
    what = "lists with a gap between their ranks: they end above the first one"
    database.report_reasons("cut", left_out, [Reason("gap-truncated", what, "kept > 0")], example=_LIST_EXAMPLE)
    shorter = "".join(f", {name} = {name}[1:kept]" for name in map(signal_column, signals))
    database.execute(
        f"""UPDATE lists SET docs = docs[1:kept], clicks = clicks[1:kept], size = kept,
        clicked = coalesce(list_sum(clicks[1:kept]), 0){shorter} FROM gapped WHERE lists.list = gapped.list"""
    )
    database.execute("DELETE FROM lists WHERE size = 0")
