"""Evaluate the CMIP authors' package on draws of data, and say what it found and how long it took.

    python cmip_peer.py DATA.npz -o OUT.json --threads 1

Runs in an environment of its own (requirements-cmip.txt), which has no clickshift. DATA.npz holds estimate, logging and
label, each of [draws, queries, documents]. Without --threads LightGBM takes all cores, as the package does by default;
with 1 it does not wait for its own threads, which on some machines is much quicker. A first evaluation of the first
2,000 rows is not timed.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
from cmip_metric import CMIP
from cmip_metric.divergence import ClassifierKLDivergence
from lightgbm import LGBMClassifier


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=None, help="of LightGBM; all cores by default")
    args = parser.parse_args()

    classifier = LGBMClassifier() if args.threads is None else LGBMClassifier(n_jobs=args.threads)
    metric = CMIP(kl_divergence=ClassifierKLDivergence(classifier=classifier))
    with np.load(args.data) as data:
        draws = list(zip(data["estimate"], data["logging"], data["label"], strict=True))
    queries, documents = draws[0][0].shape
    few = min(queries, 2000 // documents)
    metric(*(column[:few] for column in draws[0]), np.full(few, documents))
    values, seconds, cpu_seconds = [], [], []
    for draw, columns in enumerate(draws):
        np.random.seed(draw)  # noqa: NPY002  the package draws from the global generator
        wall, cpu = time.perf_counter(), time.process_time()
        values.append(metric(*columns, np.full(queries, documents)))
        seconds.append(time.perf_counter() - wall)
        cpu_seconds.append(time.process_time() - cpu)
    names = ("cmip-metric", "lightgbm", "scikit-learn", "numpy")
    versions = {name: version(name) for name in names} | {"python": platform.python_version()}
    found = {"values": values, "all_seconds": seconds, "all_cpu_seconds": cpu_seconds, "versions": versions}
    args.output.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
