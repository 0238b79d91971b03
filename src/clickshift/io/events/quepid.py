"""Quepid snapshots: the ranking of a search engine for the queries of a case, as a target policy."""

from __future__ import annotations

from collections.abc import Sequence

from clickshift.errors import FileError
from clickshift.io.encode.duckdb import sql_name
from clickshift.io.events._database import EventDatabase, Loaded
from clickshift.io.events._problems import check_rejected, report_problems
from clickshift.io.events._sources import Source
from clickshift.io.events.options import EventOptions

_COLUMNS = {"snapshot": "Snapshot Name", "query": "Query Text", "doc": "Doc ID", "rank": "Doc Position"}
COLUMNS = frozenset(_COLUMNS.values())


def is_quepid(names: Sequence[str]) -> bool:
    """Return whether columns are those of a snapshot."""
    return {*names} >= COLUMNS


def load_quepid(database: EventDatabase, sources: Sequence[Source], options: EventOptions) -> Loaded:
    """Make the table `lists` of a snapshot: one list per query, with weight 1.

    Raises
    ------
    FileError
        "several-snapshots" if the file holds more than one; "bad-rank" for a position that is not a number, unless such
        rows are skipped.
    """
    names = ", ".join(f"nullif(CAST({sql_name(theirs)} AS VARCHAR), '') AS {ours}" for ours, theirs in _COLUMNS.items())
    scans = " UNION ALL ".join(
        f"SELECT {number} AS file, {names} FROM {source.columns(database, list(_COLUMNS.values()))}"
        for number, source in enumerate(sources)
    )
    database.execute(
        f"""CREATE TABLE raw AS SELECT *, integer_of(rank) AS ordinal, rank AS got,
        CASE WHEN rank IS NOT NULL AND ordinal IS NULL THEN 'bad-rank' END AS problem FROM ({scans})"""
    )
    check_rejected(database, sources)
    report_problems(database, sources, {"bad-rank": ("Doc Position must be an integer", "bad-rank")}, all_rows=True)
    snapshots = [name for (name,) in database.rows("SELECT DISTINCT snapshot FROM raw ORDER BY ALL")]
    if len(snapshots) > 1:
        raise FileError(
            sources[0].path,
            f"a target must be one snapshot: this has {', '.join(map(str, snapshots))}. Export them one by one.",
            code="several-snapshots",
            known=snapshots,
        )
    example = "concat_ws(', ', 'query ' || query, 'document ' || doc, 'position ' || rank)"
    broken = "query IS NULL OR doc IS NULL OR ordinal IS NULL"
    database.left_out("raw", broken, "rows without a query, a document or a position", "missing-value", example=example)
    database.execute(f"DELETE FROM raw WHERE {broken}")
    database.execute(
        "CREATE TABLE places AS SELECT query, doc, min(ordinal) AS ordinal, count(*) AS n FROM raw GROUP BY query, doc"
    )
    what = "documents that a list shows twice: the higher one counts"
    database.left_out(
        "places",
        "n > 1",
        what,
        "duplicate-document",
        example="concat('query ', query, ', document ', doc)",
        count="sum(n - 1)",
    )
    database.execute(
        "CREATE TABLE lists AS SELECT query, list(doc ORDER BY ordinal, doc) AS docs FROM places GROUP BY query"
    )
    return Loaded()
