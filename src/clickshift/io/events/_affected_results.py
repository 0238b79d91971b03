"""Which results of the log the reasons of an import affect: what a defect of the events does to counts of the log."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from clickshift.io.encode.duckdb import sql_text
from clickshift.io.events._database import EventDatabase, Reason

LOG_ORDER = "time, place, list"
"""Order of the lists of a log, in SQL."""
AFFECTED = "CREATE TABLE affected (list INTEGER, doc VARCHAR, reason VARCHAR, number INTEGER)"
"""Statement that makes the table of results that reasons affect."""


def report_results(
    database: EventDatabase,
    table: str,
    left_out: Sequence[Reason],
    repaired: Sequence[Reason],
    *,
    example: str,
    joined: str,
    doc: str = "doc",
) -> None:
    """Report the rows of a table of results, or of events of results, by reason; keep which results they affect."""
    reasons = database.report_reasons(table, left_out, repaired, example, joined)
    for reason in reasons if database.keep_results else ():
        database.execute(
            f"INSERT INTO affected SELECT list, {doc}, {sql_text(reason.code)}, {reason.number} FROM {table} "
            f"WHERE {reason.where}"
        )


def affected_results(database: EventDatabase) -> dict[str, Int[np.ndarray, "3 result"]]:
    """Return the results that reasons affect, by reason: row of the log, rank from 0, and number of events.

    The rank is -1 if the list was written without the document. Lists that were not written are left out.
    """
    if not database.number("SELECT count(*) FROM affected"):
        return {}
    database.execute(
        f"""CREATE TABLE affected_rows AS
        SELECT reason, row, coalesce(list_position(docs, doc), 0) - 1 AS rank, sum(number) AS number
        FROM affected JOIN (SELECT list, row_number() OVER (ORDER BY {LOG_ORDER}) - 1 AS row FROM written) USING (list)
        JOIN lists USING (list) GROUP BY ALL"""
    )
    results = {}
    for (reason,) in database.rows("SELECT DISTINCT reason FROM affected_rows ORDER BY reason"):
        columns = database.connection.execute(
            f"SELECT row, rank, number FROM affected_rows WHERE reason = {sql_text(reason)} ORDER BY row, rank"
        ).fetchnumpy()
        results[reason] = np.stack([columns[name].astype(np.int64) for name in ("row", "rank", "number")])
    return results
