"""How long the commands of the README take: the first run after installation, which compiles, and the second one.

    python benchmarks/startup.py [--sessions 100000] [--neural]

Each command runs cold, with an empty cache of compiled kernels, and then warm, each time in a process of its own. The
modules of the package are compiled to bytecode before, as an installation does. Goals: 2 s for a second run with
classical models (4 s for `compare`, which fits eleven of them), 15 s for a first one. The warm run is the quickest of
`--repeats`, and CPU time tells more than time on a busy machine. `--neural` adds the commands that train networks.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from machine import HERE, Machine

import clickshift

WARM_GOAL, COMPARE_GOAL, COLD_GOAL = 2.0, 4.0, 15.0
COMMANDS = (
    "--help",
    "simulate -o clicks.parquet --sessions {sessions}",
    "log info clicks.parquet",
    "doctor clicks.parquet",
    "log split clicks.parquet --train train.parquet --test test.parquet",
    "fit UBM clicks.parquet -o model/",
    "evaluate model/ clicks.parquet --json",
    "compare clicks.parquet",
    "explore clicks.parquet -o page.html",
    "judgments model/ -o judgments.qrels",
    "ope clicks.parquet --target rankings.parquet",
    "decide clicks.parquet --candidate rankings.parquet",
    "ope backtest clicks.parquet --parts 10",
    "propensities clicks.parquet -o examination.json",
    "reproduce --list",
)
"""Commands of the README that fit classical models, in an order in which each finds its input."""
NEURAL = ("fit NCM clicks.parquet -o ncm/", "evaluate ncm/ clicks.parquet", "audit model/ ncm/ clicks.parquet")


def target(folder: Path) -> None:
    """Write the target of `ope`: for each query, the documents of its first list in descending order of their ids."""
    import pyarrow.parquet as pq

    log = pq.read_table(folder / "clicks.parquet", columns=["query", "docs"]).to_pandas().drop_duplicates("query")
    log["docs"] = [sorted(docs, reverse=True) for docs in log["docs"]]
    log.to_parquet(folder / "rankings.parquet")


def run(command: str, folder: Path, kernels: Path) -> dict[str, Any]:
    """Run one command in a process of its own, and return its time, CPU time and whether it said that it compiles."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(kernels)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    program = [sys.executable, "-c", "from clickshift.cli import main; main()", *shlex.split(command)]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(program, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in {0, 1}:  # 1 is an answer of `doctor` and `decide`
        sys.exit(f"clickshift {command}: {done.stderr}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": seconds, "cpu_seconds": cpu, "says_that_it_compiles": "compiling kernels" in done.stderr}


def measure(command: str, folder: Path, repeats: int) -> dict[str, Any]:
    """Run one command several times, the first time with an empty cache of kernels."""
    with tempfile.TemporaryDirectory() as kernels:
        cold, *others = (run(command, folder, Path(kernels)) for _ in range(1 + repeats))
    warm = min(others, key=lambda timing: timing["seconds"])
    goal = COMPARE_GOAL if command.startswith("compare") else WARM_GOAL
    return {"command": command, "cold": cold, "warm": warm, "warm_goal": goal, "cold_goal": COLD_GOAL}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--neural", action="store_true")
    parser.add_argument("--repeats", type=int, default=3, help="warm runs, of which the quickest counts")
    parser.add_argument("--output", type=Path, default=HERE / "results" / "startup.json")
    parser.add_argument("--patience", type=float, default=60, help="seconds to wait for a quiet moment, at most")
    options = parser.parse_args()
    compileall.compile_dir(str(Path(clickshift.__file__).parent), quiet=1)
    machine, rows = Machine(0.5, options.patience), []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for template in (*COMMANDS, *(NEURAL if options.neural else ())):
            command = template.format(sessions=options.sessions)
            rows.append(machine.measure(partial(measure, command, folder, options.repeats)))
            if command.startswith("simulate"):
                target(folder)
            cold, warm = rows[-1]["cold"], rows[-1]["warm"]
            print(
                f"{command:50} cold {cold['seconds']:6.1f} s (CPU {cold['cpu_seconds']:.1f}), "
                f"warm {warm['seconds']:5.1f} s (CPU {warm['cpu_seconds']:.1f})",
                flush=True,
            )
    options.output.write_text(
        json.dumps({"machine": machine.about(), "sessions": options.sessions, "rows": rows}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
