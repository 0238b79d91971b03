"""Counting in any warehouse that Ibis compiles for: a table in the long layout, with one row per result.

This needs plain SQL only: joins and aggregates, but no lists, hashes or window functions. Pairs are grouped by their
ids.
"""

from __future__ import annotations

from typing import Any

from clickshift.counts.cells import By, Cells
from clickshift.counts.warehouse._results import cells_of, extent_of
from clickshift.counts.warehouse._sql import VIEWED
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import DataError
from clickshift.io.read_log import LONG
from clickshift.io.tables.layouts import MAX_RANK

IbisTable = Any
"""An ibis.Table."""


def count_cells(log: IbisTable, *, by: By = "rank") -> Cells:
    """Count by pair and situation."""
    rows = _result_rows(log)
    (summary,) = _summary(rows).to_pyarrow().to_pylist()
    first = f"a session breaks a rule: {summary['first']}"
    extent = extent_of(summary | {"first": first, "holes": False}, by)
    table = _count_cells(rows, by).to_pyarrow()
    vocabulary, _, pair = Vocabulary.of(table["query"], table["doc"])
    return cells_of(table, vocabulary, pair, extent, by)


def _result_rows(log: IbisTable) -> IbisTable:
    """Return the rows of a log with the types that counting needs, or raise for missing or wrong columns."""
    import ibis

    types = dict(log.schema().items())
    if missing := [name for name in LONG if name not in types]:
        raise DataError(
            f"an Ibis table must have one row per result, with the columns {', '.join(LONG)}: {', '.join(missing)} not "
            f"found; the table has {', '.join(types)}. Unnest lists and rename columns first.",
            code="missing-column",
            missing=missing,
            columns=list(types),
        )
    for name in ("query", "doc"):
        signed = types[name].is_integer() and str(types[name]).lstrip("!") != "uint64"
        if not (signed or types[name].is_string()):
            raise DataError(
                f"{name} must be ids, text or integers below 2^63: got {types[name]}. Cast them first.",
                code="wrong-column-type",
                column=name,
                type=str(types[name]),
            )
    if not types["rank"].is_integer():
        raise DataError(
            f"column rank must hold integers: got {types['rank']}. Cast it first.",
            code="wrong-column-type",
            column="rank",
            type=str(types["rank"]),
        )
    views = {"viewed": log[VIEWED].cast("float64")} if VIEWED in types else {}
    return log.select(
        "session",
        "query",
        "doc",
        **views,
        place=log["rank"].cast("int64"),
        click=log["click"].cast("float64"),
        times=log["count"].cast("float64") if "count" in types else ibis.literal(1.0),
    )


def _summary(rows: IbisTable) -> IbisTable:
    """Return one row: number of sessions, longest list, number of sessions that break a rule, and the first of them."""
    import ibis

    valid = rows.click.isin([0.0, 1.0]) & (rows.times >= 1) & (rows.times == rows.times.floor())
    valid = valid & rows.query.notnull() & rows.doc.notnull() & rows.place.notnull()
    if VIEWED in rows.columns:
        valid = valid & (rows.viewed.isnull() | rows.viewed.isin([0.0, 1.0]))
    sessions = rows.group_by("session").aggregate(
        size=rows.count(),
        valid=valid.fill_null(False).cast("int64").sum(),
        queries=rows["query"].nunique(),
        docs=rows.doc.nunique(),
        counts=rows.times.nunique(),
        times=rows.times.min(),
        places=rows.place.nunique(),
        first=rows.place.min(),
        last=rows.place.max(),
    )
    s = sessions
    consistent = (s["valid"] == s.size) & (s.queries == 1) & (s.docs == s.size) & (s.counts == 1)
    # a rank without a row is a hole
    consistent &= (s.places == s.size) & (s["first"] >= 1) & (s["last"] <= MAX_RANK) & s.session.notnull()
    bad = sessions.mutate(bad=ibis.ifelse(consistent.fill_null(False), 0, 1))
    name = ibis.ifelse(bad.bad == 1, bad.session.cast("string").fill_null("one without an id"), ibis.null("string"))
    totals = {"lists": bad.count(), "sessions": bad.times.sum(), "ranks": bad["last"].max(), "bad": bad.bad.sum()}
    return bad.aggregate(**totals, first=name.min())


def _count_cells(rows: IbisTable, by: By) -> IbisTable:
    """Count by pair and situation: each result is joined with the clicks above it, reduced to the last or to bits."""
    import ibis

    views = [VIEWED] * (VIEWED in rows.columns)
    if by == "rank":
        results = rows.mutate(above=ibis.literal(0))
    else:
        clicks = rows.filter(rows.click == 1).select(owner="session", clicked="place")
        joined = rows.left_join(clicks, [rows.session == clicks.owner, clicks.clicked < rows.place])
        bit = (ibis.literal(2.0) ** (joined.clicked - 1)).cast("int64")
        above = joined.clicked.max() if by == "last_click" else bit.sum()
        keys = ("session", "query", "doc", "place", "click", "times", *views)
        results = joined.group_by(*keys).aggregate(above=above.fill_null(0).cast("int64"))
    sums = {"impressions": results.times.sum(), "clicks": (results.times * results.click).sum()}
    if views:  # a click is viewed, whatever its view says
        known, clicked, viewed = results.viewed.notnull(), results.click == 1, results.viewed == 1
        where = {
            "known_clicks": clicked & known,
            "skips": ~clicked & viewed,
            "unviewed": ~clicked & known & ~viewed,
            "contradicted": clicked & known & ~viewed,
        }
        sums |= {name: ibis.ifelse(one.fill_null(False), results.times, 0.0).sum() for name, one in where.items()}
    return results.group_by("query", "doc", "place", "above").aggregate(**sums)
