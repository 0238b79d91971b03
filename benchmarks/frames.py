"""Time and memory to open a data frame of a million rows, against reading the same rows from Parquet.

    python benchmarks/frames.py --rows 1000000

Every source is opened in a process of its own, after a first one of a few rows (imports and compilation). Memory is the
growth of the largest resident size while the log is opened; the frame itself is not counted.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCES = ("parquet", "arrow", "pandas", "polars", "duckdb")


def open_source(source: str, file: str, rows: int) -> dict[str, object]:
    """Open one source, and return its seconds and its memory in MB."""
    import resource
    import time

    import duckdb
    import pandas as pd
    import polars as pl
    import pyarrow.parquet as pq

    import clickshift as cs

    load = {
        "parquet": lambda: file,
        "arrow": lambda: pq.read_table(file),
        "pandas": lambda: pd.read_parquet(file, dtype_backend="pyarrow"),
        "polars": lambda: pl.read_parquet(file),
        "duckdb": lambda: duckdb.read_parquet(file),
    }
    small = pq.read_table(file)[:100]
    cs.read_log(small)
    cs.read_log(pl.DataFrame(small))
    log = load[source]()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        sessions = cs.read_log(log)
        seconds.append(time.perf_counter() - start)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    result = {"source": source, "rows": rows, "sessions": len(sessions)}
    return result | {"seconds": round(min(seconds), 3), "megabytes": round(grown)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--source", choices=SOURCES)
    parser.add_argument("--file", default="")
    arguments = parser.parse_args()
    if arguments.source:
        print(json.dumps(open_source(arguments.source, arguments.file, arguments.rows)))
        return
    import clickshift as cs

    corpus = cs.builtin_corpus(queries=1000)
    log = cs.simulate(corpus, cs.Uniform(), cs.users.PBM(), arguments.rows // 10, rng=0)
    with tempfile.TemporaryDirectory() as folder:
        for layout in ("long", "wide"):
            file = Path(folder) / f"{layout}.parquet"
            cs.write_log(log, file, layout=layout)
            for source in SOURCES:
                command = [
                    sys.executable,
                    __file__,
                    "--source",
                    source,
                    "--file",
                    str(file),
                    "--rows",
                    f"{arguments.rows}",
                ]
                line = subprocess.run(command, capture_output=True, text=True, check=True).stdout
                print(json.dumps({"layout": layout} | json.loads(line)), flush=True)


if __name__ == "__main__":
    main()
