"""How long the policy-shift paper's figures take: every cell of the grid, in processes, with a breakdown by model.

    python benchmarks/policy_shift.py                    # figures 1 and 2, paper scale: 540 fits, all evaluations
    python benchmarks/policy_shift.py --reference        # the same, and write the rows that are shipped
    python benchmarks/policy_shift.py --scale quick

Finished cells are kept in the work folder, and the same command continues with the missing ones: tables 3 and 4 first,
then cheap models on all logs, then the others. The table says how many CPU seconds and megabytes each model's cells
took when they ran; `--fresh` forgets them first.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import shutil
import sys
import time
from collections import defaultdict
from pathlib import Path

from clickshift.experiments.experiment import start_run
from clickshift.experiments.papers import section_6_1
from clickshift.experiments.policy_shift.protocol import SCALES, PolicyShift
from clickshift.experiments.runner import REFERENCE_FILE, RunFolder, process_pool, run_tasks, write_reference_rows

HERE = Path(__file__).resolve().parent
LONG = ("DBN", "NCM", "CACM-minus", "ARM")
"""Models whose fits take longest."""
SHIPPED = HERE.parent / "src" / "clickshift" / "experiments" / "reference_rows" / REFERENCE_FILE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=list(SCALES), default="paper")
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--fresh", action="store_true", help="forget the finished cells of the work folder")
    parser.add_argument("--reference", action="store_true", help=f"write {SHIPPED.name} for the package")
    parser.add_argument("--work", type=Path, default=HERE.parent / "build" / "benchmark-policy-shift")
    parser.add_argument("--output", type=Path, default=HERE / "results" / "policy_shift.json")
    options = parser.parse_args()

    protocol = PolicyShift(**SCALES[options.scale])
    beside = section_6_1().tasks() if options.reference else []  # tables 3 and 4, shipped with the figures
    if options.fresh:
        shutil.rmtree(options.work, ignore_errors=True)
    folder = RunFolder(options.work)
    settings = start_run(protocol, folder)
    cells = protocol.tasks()
    missing = sum(not folder.has(cell) for cell in cells)
    awaited = missing + sum(not folder.has(cell) for cell in beside)
    start, done = time.perf_counter(), 0

    def hear(news: object) -> None:
        nonlocal done
        done += 1
        print(f"{done}/{awaited} {time.perf_counter() - start:.0f} s: {news.task.name}: ", end="", file=sys.stderr)  # type: ignore[attr-defined]
        print(news.error or f"{news.seconds:.1f} s", file=sys.stderr, flush=True)  # type: ignore[attr-defined]

    # fits of seconds first, then the long ones; a log is simulated once for each kind
    ordered = sorted(cells, key=lambda cell: cell.contender.name in LONG)
    with process_pool(options.workers) as pool:
        workers = pool._max_workers  # type: ignore[attr-defined]
        run_tasks(beside, folder, pool, progress=hear)
        start_grid = time.perf_counter()
        run_tasks(ordered, folder, pool, progress=hear)
        wall = time.perf_counter() - start_grid

    parts: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for cell in cells:
        rows, seconds = folder.rows([cell]), parts[cell.contender.name]
        seconds["cells"] += rows[0]["task_cpu_seconds"]
        seconds["megabytes"] = max(seconds["megabytes"], rows[0].get("task_megabytes", 0.0))
        seconds["fit"] += max((row.get("fit_seconds", 0.0) for row in rows), default=0.0)
        seconds["derived policies"] += sum(row.get("seconds", 0.0) for row in rows if row["kind"] == "policy")
    total = sum(seconds["cells"] for seconds in parts.values())
    print("| model | cells | fits | derived policies | rest | MB |\n|---|---|---|---|---|---|")
    for name, seconds in parts.items():
        rest = seconds["cells"] - seconds["fit"] - seconds["derived policies"]
        columns = (seconds["cells"], seconds["fit"], seconds["derived policies"], rest, seconds["megabytes"])
        print(f"| {name} | {' | '.join(f'{value:.0f}' for value in columns)} |")
    print(f"{total:.0f} CPU seconds of work; {wall:.0f} s on {workers} processes for {missing} missing cells")
    result = {"scale": options.scale, "cells": len(cells), "missing": missing, "wall_seconds": wall, "workers": workers}
    result["peak_megabytes"] = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024  # of the largest process
    result |= {"work_seconds": total, "by_model": parts, "machine": platform.platform(), "settings": settings}
    if not missing:
        print("nothing was missing: the wall time is not kept")
    else:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(result, indent=1))
    if options.reference:
        write_reference_rows([*cells, *beside], folder, SHIPPED)
        print(f"{SHIPPED.name}: {SHIPPED.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
