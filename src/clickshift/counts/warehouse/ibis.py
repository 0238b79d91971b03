"""Counting in any warehouse that Ibis compiles for: a table in the long layout, one row per result.

Plain SQL alone: joins and aggregates, no lists, no hashes and no window functions. Pairs are grouped by their ids.
"""

from __future__ import annotations

from typing import Any

from clickshift.counts.cells import By, Cells
from clickshift.counts.warehouse.results import cells_of, check_list_lengths
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import DataError
from clickshift.io.read_log import LONG

IbisTable = Any  # an ibis.Table


def count_cells(log: IbisTable, *, by: By = "rank") -> Cells:
    """Count a log by pair and situation."""
    rows = _rows(log)
    (found,) = _look(rows).to_pyarrow().to_pylist()
    n_ranks = check_list_lengths(
        found["lists"], found["ranks"], found["bad"] or 0, f"a session breaks a rule: {found['first']}", by
    )
    table = _cells(rows, by).to_pyarrow()
    vocabulary, _, pair = Vocabulary.of(table["query"], table["doc"])
    return cells_of(table, vocabulary, pair, n_ranks, by)


def _rows(log: IbisTable) -> IbisTable:
    import ibis

    types = dict(log.schema().items())
    if missing := [name for name in LONG if name not in types]:
        raise DataError(
            f"an Ibis table must have one row per result, with the columns {', '.join(LONG)}: {', '.join(missing)} not "
            f"found; the table has {', '.join(types)}. Unnest lists and rename columns first."
        )
    for name in ("query", "doc"):
        signed = types[name].is_integer() and str(types[name]).lstrip("!") != "uint64"
        if not (signed or types[name].is_string()):
            raise DataError(f"{name} must be ids, text or integers below 2^63: got {types[name]}. Cast them first.")
    if not types["rank"].is_integer():
        raise DataError(f"column rank must hold integers: got {types['rank']}. Cast it first.")
    return log.select(
        "session",
        "query",
        "doc",
        place=log["rank"].cast("int64"),
        click=log["click"].cast("float64"),
        times=log["count"].cast("float64") if "count" in types else ibis.literal(1.0),
    )


def _look(rows: IbisTable) -> IbisTable:
    """One row: sessions, the longest list, how many sessions break a rule, and the first of them."""
    import ibis

    whole = rows.click.isin([0.0, 1.0]) & (rows.times >= 1) & (rows.times == rows.times.floor())
    good = whole & rows.query.notnull() & rows.doc.notnull() & rows.place.notnull()
    sessions = rows.group_by("session").aggregate(
        size=rows.count(),
        good=good.fill_null(False).cast("int64").sum(),
        queries=rows["query"].nunique(),
        docs=rows.doc.nunique(),
        counts=rows.times.nunique(),
        places=rows.place.nunique(),
        first=rows.place.min(),
        last=rows.place.max(),
    )
    s = sessions
    alright = (s.good == s.size) & (s.queries == 1) & (s.docs == s.size) & (s.counts == 1)
    alright &= (s.places == s.size) & (s["first"] == 1) & (s["last"] == s.size) & s.session.notnull()
    bad = sessions.mutate(bad=ibis.ifelse(alright.fill_null(False), 0, 1))
    name = ibis.ifelse(bad.bad == 1, bad.session.cast("string").fill_null("one without an id"), ibis.null("string"))
    return bad.aggregate(lists=bad.count(), ranks=bad["size"].max(), bad=bad.bad.sum(), first=name.min())


def _cells(rows: IbisTable, by: By) -> IbisTable:
    """Each result meets the clicks above it, of which the last one, or a bit for each, is kept."""
    import ibis

    if by == "rank":
        results = rows.mutate(above=ibis.literal(0))
    else:
        clicks = rows.filter(rows.click == 1).select(owner="session", clicked="place")
        met = rows.left_join(clicks, [rows.session == clicks.owner, clicks.clicked < rows.place])
        bit = (ibis.literal(2.0) ** (met.clicked - 1)).cast("int64")
        above = met.clicked.max() if by == "last_click" else bit.sum()
        keys = ("session", "query", "doc", "place", "click", "times")
        results = met.group_by(*keys).aggregate(above=above.fill_null(0).cast("int64"))
    return results.group_by("query", "doc", "place", "above").aggregate(
        impressions=results.times.sum(), clicks=(results.times * results.click).sum()
    )
