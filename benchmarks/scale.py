"""How time and memory grow with the log: from wide Parquet with text ids to fitted models, 1 to 100 million sessions.

    python benchmarks/scale.py                        # 1, 10 and 100 million: about 40 minutes
    python benchmarks/scale.py --sessions 1000000     # a smoke test
    python benchmarks/scale.py --models PBM,UBM

Logs are those of scale_log.py; they are written where they are missing. Every part runs in a fresh process: only
reading the same columns with DuckDB, which is the limit; encoding, from files to memory-mapped numbers; and each model
from the encoded log, opening it included. A first fit of a small log, which loads what is compiled, is left out. Files
have been read once before, so that the disk does not count.

Memory is the highest sum of what a process holds for itself (RssAnon), and with the pages of files that are mapped
(VmHWM), which the system may take back at any time.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import sys
import threading
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from machine import Machine, alone
from scale_log import write_log

import clickshift as cs
from clickshift.counts.open_log import open_log
from clickshift.data.encoded_log import EncodedLog

HERE = Path(__file__).resolve().parent
SIZES = (1_000_000, 10_000_000, 100_000_000)
MODELS = ("dCTR", "PBM", "UBM", "DCM", "SDBN", "DBN")
GOAL_SECONDS, GOAL_GB = 120.0, 8.0
Row = dict[str, Any]


class Watched:
    """Wall clock, CPU time and memory of a block."""

    def __enter__(self) -> Watched:
        Path("/proc/self/clear_refs").write_text("5")
        self.anonymous, self._over = 0.0, threading.Event()
        self._watch = threading.Thread(target=self._look, daemon=True)
        self._watch.start()
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds, self.cpu_seconds = time.perf_counter() - self._wall, time.process_time() - self._cpu
        self._over.set()
        self._watch.join()
        self.highest = _status("VmHWM")

    def _look(self) -> None:
        while not self._over.wait(0.05):
            self.anonymous = max(self.anonymous, _status("RssAnon"))

    def row(self, sessions: int) -> Row:
        found = {"seconds": self.seconds, "cpu_seconds": self.cpu_seconds, "own_mb": self.anonymous}
        return {**found, "with_files_mb": self.highest, "sessions_per_second": sessions / self.seconds}


def _status(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def only_read(folder: Path) -> Row:
    """The same columns with DuckDB, every value of them looked at."""
    import duckdb

    files = f"read_parquet('{folder}/**/*.parquet')"
    question = f"SELECT sum(strlen(query)), sum(strlen(docs[10])), sum(list_sum(clicks)), count(*) FROM {files}"
    with duckdb.connect() as connection, Watched() as watched:
        sessions = connection.sql(question).fetchall()[0][-1]
    return watched.row(sessions)


def encode(folder: Path, small: Path) -> Row:
    warm_up(small, "PBM")
    for old in list(folder.rglob(".clickshift")):
        shutil.rmtree(old)
    with Watched() as watched:
        log = open_log(folder, in_memory=False)
    assert isinstance(log, EncodedLog)
    size = sum(file.stat().st_size for file in log.folder.iterdir())
    facts = {"pairs": log.vocabulary.n_pairs, "queries": log.vocabulary.n_queries, "bytes": size}
    return {**watched.row(log.total), **facts, "bytes_per_session": size / log.total}


def fit(folder: Path, small: Path, model: str) -> Row:
    warm_up(small, model)
    with Watched() as watched:
        log = open_log(folder, in_memory=False)
        fitted = cs.fit(model, log)
    evidence = fitted.evidence
    found = {} if evidence is None else {"iterations": evidence.iterations, "converged": evidence.converged}
    return {**watched.row(log.total), **found}


def warm_up(small: Path, model: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cs.fit(model, open_log(small, in_memory=False))


def measured(work: Callable[[], Row], machine: Machine, told: str) -> Row:
    row = machine.measure(work)
    print(f"{told}: {row['seconds']:.1f} s, {row['own_mb']:.0f} MB", file=sys.stderr)
    return row


def show(rows: list[Row], models: list[str]) -> None:
    print(f"\n| sessions | pairs | only reading | encoding | {' | '.join(models)} | most memory, own | with files |")
    print(f"|{' --- |' * (6 + len(models))}")
    for row in rows:
        parts = [row["read"], row["encode"], *(row["models"][model] for model in models)]
        memory = [max(part[name] for part in parts[1:]) / 1024 for name in ("own_mb", "with_files_mb")]
        seconds = " | ".join(f"{part['seconds']:.1f}" for part in parts)
        size = f"{row['sessions']:,} | {row['encode']['pairs']:,}"
        print(f"| {size} | {seconds} | {memory[0]:.1f} GB | {memory[1]:.1f} GB |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", default=",".join(map(str, SIZES)), help="comma-separated sizes")
    parser.add_argument("--models", default=",".join(MODELS), help="comma-separated")
    parser.add_argument("--work", type=Path, default=HERE.parent / "build" / "benchmark-scale", help="folder for logs")
    parser.add_argument("--load", type=float, default=1.0, help="wait until the load is below this...")
    parser.add_argument("--patience", type=float, default=180.0, help="...for at most so many seconds")
    parser.add_argument("--output", type=Path, default=HERE / "results" / "scale.json")
    args = parser.parse_args()

    machine, models = Machine(args.load, args.patience), args.models.split(",")
    small = args.work / "small"
    if not small.exists():
        write_log(small, 20_000)
    known = json.loads(args.output.read_text())["rows"] if args.output.exists() else []
    rows = {row["sessions"]: row for row in known}
    for sessions in (int(size) for size in args.sessions.split(",")):
        folder = args.work / str(sessions)
        if not folder.exists():
            print(f"writing {sessions:,} sessions", file=sys.stderr)
            write_log(folder, sessions)
        row = rows.setdefault(sessions, {"sessions": sessions, "models": {}})
        alone(only_read, folder)
        row["read"] = measured(lambda f=folder: alone(only_read, f), machine, f"{sessions:,}, only reading")
        row["encode"] = measured(lambda f=folder: alone(encode, f, small), machine, f"{sessions:,}, encoding")
        for model in models:
            row["models"][model] = measured(
                lambda f=folder, m=model: alone(fit, f, small, m), machine, f"{sessions:,}, {model}"
            )
            found = {"goal_seconds": GOAL_SECONDS, "goal_gb": GOAL_GB, "machine": machine.about()}
            found["versions"] = {name: version(name) for name in ("clickshift", "duckdb", "numba", "numpy", "pyarrow")}
            found["versions"]["python"] = platform.python_version()
            args.output.write_text(json.dumps({**found, "rows": [rows[k] for k in sorted(rows)]}, indent=1) + "\n")
    show([rows[k] for k in sorted(rows)], models)
    print(f"\nwritten to {args.output}")


if __name__ == "__main__":
    main()
