"""Time and memory from UBI events to an encoded log, and of the generic join against SQL written by hand.

    python benchmarks/events.py --events 1000000

Events are drawn by DuckDB: lists of ten results, a click in most of them, a time in milliseconds in every third event.
Every measurement is a process of its own; `task_cpu_seconds` leaves out its start. The hand-written SQL makes the same
log, which is checked: the first impression of a document in a list, one document per rank, ranks from 1, gaps as holes.
It checks no values and counts no reasons. `plain` joins and groups only.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TASKS = ("ubi", "generic", "hand", "plain")
_RESULTS = """SELECT s AS session, (hash(s) % 1000)::VARCHAR AS query,
    concat('doc-', hash(s, r) % 100000) AS doc, r AS rank,
    TIMESTAMP '2026-01-01' + to_seconds(s) AS time, hash(s, r, 1) % 100 < 40 // r AS clicked
    FROM range({lists}) a(s), range(1, 11) b(r)"""
_EVENTS = """events AS (SELECT session, query, doc, rank, time, 0 AS click FROM read_parquet('{impressions}')
        UNION ALL SELECT session, query, doc, rank, time, 1 FROM read_parquet('{clicks}'))"""
_HAND = f"""COPY (
    WITH {_EVENTS},
    pairs AS (SELECT session, query, doc, coalesce(arg_min(rank, time) FILTER (click = 0), arg_min(rank, time)) AS rank,
            coalesce(min(time) FILTER (click = 0), min(time)) AS time, max(click) AS click
        FROM events GROUP BY ALL),
    base AS (SELECT least(min(rank), 1) AS base FROM pairs),
    places AS (SELECT session, query, rank - base + 1 AS rank, arg_min(doc, time) AS doc, arg_min(click, time) AS click,
            min(time) AS time
        FROM pairs, base GROUP BY ALL),
    lists AS (SELECT session, query, max(rank) AS extent, list(rank) AS ranks, list(doc) AS docs, list(click) AS clicks,
            min(time) AS time
        FROM places GROUP BY ALL)
    SELECT query, [docs[list_position(ranks, r)] FOR r IN range(1, extent + 1)] AS docs,
        [coalesce(clicks[list_position(ranks, r)], 0) FOR r IN range(1, extent + 1)] AS clicks, time
    FROM lists ORDER BY time
    ) TO '{{log}}' (FORMAT parquet)"""
_PLAIN = """COPY (
    SELECT any_value(i.query) AS query, list(i.doc ORDER BY rank) AS docs,
        list((c.session IS NOT NULL)::TINYINT ORDER BY rank) AS clicks, min(i.time) AS time
    FROM read_parquet('{impressions}') i
    LEFT JOIN (SELECT DISTINCT session, query, doc FROM read_parquet('{clicks}')) c USING (session, query, doc)
    GROUP BY i.session, i.query ORDER BY min(i.time)
    ) TO '{log}' (FORMAT parquet)"""
_SAME = """SELECT count(*) FILTER (a.query = b.query AND a.docs IS NOT DISTINCT FROM b.docs AND a.clicks = b.clicks)
    FROM '{generic}' a JOIN '{hand}' b USING (time)"""


def make_events(folder: Path, events: int) -> None:
    """Write the same events as UBI documents, and as tables of impressions and clicks."""
    import duckdb

    with duckdb.connect() as connection:
        lists = max(events // 11, 1)
        connection.execute(f"CREATE TABLE r AS {_RESULTS.format(lists=lists)}")
        columns = "session, query, doc, rank, time"
        for name, where in {"impressions": "true", "clicks": "clicked"}.items():
            path = folder / f"{name}.parquet"
            connection.execute(f"COPY (SELECT {columns} FROM r WHERE {where}) TO '{path}' (FORMAT parquet)")
        moment = "CASE WHEN session % 3 = 0 THEN epoch_ms(t)::VARCHAR ELSE strftime(t, '%Y-%m-%dT%H:%M:%S.%gZ') END"
        connection.execute(
            f"""COPY (SELECT 'shop' AS application, action AS action_name, concat('query-', session) AS query_id,
            concat('client-', session) AS client_id, {moment} AS "timestamp", concat('text ', query) AS user_query,
            {{'object': {{'object_id': doc, 'object_id_field': 'sku'}}, 'position': {{'ordinal': rank}}}}
                AS event_attributes
            FROM (SELECT *, 'impression' AS action, time AS t FROM r
                  UNION ALL SELECT *, 'click', time + to_seconds(rank) FROM r WHERE clicked))
            TO '{folder / "events.ndjson"}' (FORMAT json)"""
        )


def run(task: str, folder: Path, memory: str) -> dict[str, object]:
    """Do one task, and return its seconds and the largest resident size of its process."""
    import duckdb
    import pyarrow as pa

    import clickshift as cs
    from clickshift.core.parallel import n_threads

    one = pa.table({"session": [1], "query": ["q"], "doc": ["a"], "rank": [1], "click": [1]})
    cs.encode_log(cs.read_events(one).sessions, folder / "warm")  # imports and compilation
    log, parts = folder / f"{task}.parquet", dict[str, float]()
    files = {name: folder / f"{name}.parquet" for name in ("impressions", "clicks")}
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    if task in {"hand", "plain"}:
        with duckdb.connect(
            str(folder / f"{task}.db"), config={"threads": n_threads(), "memory_limit": memory}
        ) as connection:
            connection.execute({"hand": _HAND, "plain": _PLAIN}[task].format(**files, log=log))
        lists = 0
    elif task == "ubi":
        imported = cs.read_events(folder / "events.ndjson", output=log, memory=memory)
        parts["import"] = time.perf_counter() - start
        lists = cs.encode_log(log, folder / "encoded").log.total
        assert lists == imported.to_dict()["lists"]
    else:
        imported = cs.read_events(files["impressions"], clicks=files["clicks"], output=log, memory=memory)
        lists = imported.to_dict()["lists_written"]
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "task": task,
        "seconds": round(seconds, 2),
        "cpu_seconds": round(peak.ru_utime + peak.ru_stime, 2),
        "task_cpu_seconds": round(peak.ru_utime + peak.ru_stime - before.ru_utime - before.ru_stime, 2),
        "megabytes": round(peak.ru_maxrss / 1024),
        "lists": lists,
        **{name: round(value, 2) for name, value in parts.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--memory", default="2GB", help="DuckDB memory limit.")
    parser.add_argument("--task", choices=TASKS)
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    if arguments.task:
        print(json.dumps(run(arguments.task, arguments.folder, arguments.memory)))
        return
    with tempfile.TemporaryDirectory() as folder:
        make_events(Path(folder), arguments.events)
        size = (Path(folder) / "events.ndjson").stat().st_size
        print(json.dumps({"events": arguments.events, "megabytes_of_events": round(size / 2**20)}))
        for task in TASKS:
            command = [sys.executable, __file__, "--task", task, "--folder", folder, "--memory", arguments.memory]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            print(done.stdout.strip().splitlines()[-1], flush=True)
        import duckdb

        logs = {task: Path(folder) / f"{task}.parquet" for task in ("generic", "hand")}
        same = duckdb.sql(_SAME.format(**logs)).fetchall()[0][0]
        total = {len(duckdb.sql(f"SELECT 1 FROM '{path}'")) for path in logs.values()}
        if total != {same}:
            raise SystemExit(f"the logs differ: {same} lists are equal, of {total}")


if __name__ == "__main__":
    main()
