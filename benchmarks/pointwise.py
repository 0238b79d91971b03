"""How long figure 1 of the IPS paper takes on its synthetic set: five models, seven sizes, ten seeds.

    python benchmarks/pointwise.py              # 350 rankers, 280 of them trained; goal: 10 minutes on two cores
    python benchmarks/pointwise.py --quick      # a smoke test: two sizes, two seeds, 1,000 documents
    python benchmarks/pointwise.py --corpus one-hot-twice --output benchmarks/results/pointwise_twice.json

Every cell is computed anew, in processes that are kept to one core each, imports and compilation included. Seconds of a
cell are of one process; the wall time is that of all together. Memory is the most that one of them held.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import tempfile
import time
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import numpy as np

from clickshift.experiments.click_vs_ips.data import PointwiseData, pointwise_data, values_by_seed
from clickshift.experiments.click_vs_ips.protocol import Pointwise
from clickshift.experiments.runner import FinishedTask, RunFolder, process_pool, run_tasks

HERE = Path(__file__).resolve().parent
GOAL = 600


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--corpus", choices=("one-hot", "one-hot-twice"), default="one-hot")
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--output", type=Path, default=HERE / "results" / "pointwise.json")
    options = parser.parse_args()
    protocol = Pointwise(pointwise_data(options.corpus))
    if options.quick:
        protocol = replace(protocol, data=PointwiseData(documents=1000), sessions=(100, 10_000), seeds=2)
    cells, news = protocol.tasks(), list[FinishedTask]()
    load, start = os.getloadavg()[0], time.perf_counter()
    with tempfile.TemporaryDirectory() as work:
        folder = RunFolder(Path(work))
        with process_pool(options.workers) as pool:
            workers = pool._max_workers  # type: ignore[attr-defined]
            run_tasks(cells, folder, pool, progress=news.append)
        wall = time.perf_counter() - start
        rows = folder.rows(cells)
    trained = [row for row in rows if row["kind"] == "trained"]
    models = list(dict.fromkeys(row["model"] for row in trained))
    result = {
        "rankers": len(trained),
        "wall_seconds": round(wall, 1),
        "goal_seconds": GOAL,
        "workers": workers,
        "cell_seconds": {one.task.name: round(one.seconds, 1) for one in news},
        "failed": [one.error for one in news if one.error],
        "megabytes_of_a_process": round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024),
        "load_before": round(load, 2),
        "nDCG@10": {
            model: {
                f"{sessions:,}": round(
                    float(np.mean([*values_by_seed(trained, "nDCG@10", model=model, sessions=sessions).values()])), 4
                )
                for sessions in protocol.sessions
            }
            for model in models
        },
        "machine": {"processor": platform.machine(), "cores": os.cpu_count(), "python": platform.python_version()},
        "versions": {name: version(name) for name in ("clickshift", "numpy", "jax", "optax")},
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
