"""Write a log as OpenSearch UBI events: a bulk file that `load_ubi` reads back as the same lists and clicks."""

from __future__ import annotations

import gzip
from contextlib import ExitStack
from pathlib import Path

from clickshift.core.files import write_atomically
from clickshift.data._arrow import arrow_tables
from clickshift.data.encoded_log import Log
from clickshift.errors import FileError

UBI_ENDINGS = (".ndjson", ".jsonl", ".ndjson.gz", ".jsonl.gz")
"""Endings of the files that `write_ubi` writes."""
_RESULTS = 1 << 18  # of a block of text
_EVENT = """json_object('application', 'clickshift', 'action_name', {action}, 'query_id', query_id, 'client_id', client,
    'timestamp', {time}, 'user_query', text, 'event_attributes', json_object('object', json_object('object_id', doc),
    'position', json_object('ordinal', rank)))"""


def check_ubi_output(path: str | Path) -> None:
    """Check that `write_ubi` can write to a path.

    Raises
    ------
    FileError
        "unknown-format" for another ending.
    """
    if not str(path).lower().endswith(UBI_ENDINGS):
        raise FileError(
            path,
            f"the ending of a file of UBI events must be one of {', '.join(UBI_ENDINGS)}. Choose one of them.",
            code="unknown-format",
            known=list(UBI_ENDINGS),
        )


def write_ubi(log: Log, path: str | Path) -> None:
    """Write a log as UBI queries and events: a query, an impression per result, and a click per clicked result.

    Ids are written as text. Sessions without a time are a minute apart, from 1 January 2026.

    Parameters
    ----------
    log
        The log; each row is written once.
    path
        The file: .ndjson or .jsonl, plain or .gz.

    Raises
    ------
    FileError
        "unknown-format" for another ending.
    """
    import duckdb

    check_ubi_output(path)
    with ExitStack() as stack:
        temporary = stack.enter_context(write_atomically(path))
        file = stack.enter_context(temporary.open("wb"))
        stream = gzip.GzipFile("", "wb", fileobj=file, mtime=0) if str(path).lower().endswith(".gz") else file
        connection = stack.enter_context(duckdb.connect())
        for table in arrow_tables(log, "long", _RESULTS):
            connection.register("results", table)
            for batch in connection.sql(_selection(table.column_names)).to_arrow_reader(_RESULTS):
                stream.write("".join(batch.column(0).to_pylist()).encode())
        if stream is not file:
            stream.close()


def _selection(names: list[str]) -> str:
    """Return the statement that selects the lines of a table of results, in order of time."""
    minutes = "TIMESTAMP '2026-01-01' + to_minutes(CAST(session AS BIGINT))"
    start = "CAST(time AS TIMESTAMP)" if "time" in names else minutes
    client = 'CAST("user" AS VARCHAR)' if "user" in names else "concat('client-', session)"

    def written(time: str) -> str:
        return f"strftime({time}, '%Y-%m-%dT%H:%M:%S.%gZ')"

    query = (
        "json_object('application', 'clickshift', 'query_id', query_id, 'client_id', client, "
        f"'timestamp', {written('t')}, 'user_query', text)"
    )
    impression = _EVENT.format(action="'impression'", time=written("t"))
    click = _EVENT.format(action="'click'", time=written("t + to_seconds(CAST(rank AS BIGINT))"))
    to_queries, to_events = (f'\'{{"index": {{"_index": "{name}"}}}}\'' for name in ("ubi_queries", "ubi_events"))
    return f"""
        WITH r AS (SELECT session, rank, click, CAST(doc AS VARCHAR) AS doc, CAST(query AS VARCHAR) AS text,
            concat('query-', session) AS query_id, {client} AS client, {start} AS t FROM results)
        SELECT concat(action, chr(10), doc, chr(10)) FROM (
            SELECT session, 0 AS step, rank, {to_queries} AS action, {query} AS doc FROM r WHERE rank = 1
            UNION ALL SELECT session, 1, rank, {to_events}, {impression} FROM r
            UNION ALL SELECT session, 2, rank, {to_events}, {click} FROM r WHERE click = 1)
        ORDER BY session, step, rank"""
