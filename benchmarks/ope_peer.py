"""Evaluate a target with Open Bandit Pipeline's slate estimators, and say what they found and how long it took.

    python ope_peer.py DATA.npz -o OUT.json --resamples 1000

Runs in an environment of its own (requirements-obp.txt), which has no clickshift. DATA.npz holds one row per slate and
position: slate_id, position, reward, and the propensities of both policies under the names that the package gives them.
A first evaluation of the first 100 slates is not timed. Each estimator is asked for its value and for its interval.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
import warnings
from importlib.metadata import version
from pathlib import Path

import numpy as np
from obp.ope import SlateIndependentIPS, SlateRewardInteractionIPS, SlateStandardIPS

KINDS = {"List": SlateStandardIPS, "IP": SlateIndependentIPS, "RIPS": SlateRewardInteractionIPS}
WHICH = {"List": "", "IP": "_item_position", "RIPS": "_cascade"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument(
        "--resamples", type=int, required=True, help="of the bootstrap; 10,000 by the package's default"
    )
    args = parser.parse_args()

    warnings.simplefilter("ignore")  # deprecations in its use of pandas
    with np.load(args.data) as data:
        columns = {name: data[name] for name in data.files}
    ranks = int(columns["position"].max()) + 1
    few = {name: column[: 100 * ranks] for name, column in columns.items()}
    for name in KINDS:
        evaluate(name, ranks, few, 100)
    found = {name: evaluate(name, ranks, columns, args.resamples) for name in KINDS}
    names = ("obp", "numpy", "pandas", "scikit-learn")
    versions = {name: version(name) for name in names} | {"python": platform.python_version()}
    args.output.write_text(json.dumps({"estimators": found, "versions": versions}))


def evaluate(name: str, ranks: int, columns: dict[str, np.ndarray], resamples: int) -> dict[str, float]:
    estimator = KINDS[name](len_list=ranks)
    given = ("slate_id", "position", "reward", f"pscore{WHICH[name]}", f"evaluation_policy_pscore{WHICH[name]}")
    asked = {column: columns[column] for column in given}
    times = [(time.perf_counter(), time.process_time())]
    value = estimator.estimate_policy_value(**asked)
    times.append((time.perf_counter(), time.process_time()))
    interval = estimator.estimate_interval(**asked, n_bootstrap_samples=resamples, random_state=0)
    times.append((time.perf_counter(), time.process_time()))
    low, high = (interval[f"95.0% CI ({end})"] for end in ("lower", "upper"))
    seconds, cpu_seconds = (times[2][k] - times[0][k] for k in range(2))
    return {
        "value": float(value),
        "low": float(low),
        "high": float(high),
        "value_seconds": times[1][0] - times[0][0],
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
    }


if __name__ == "__main__":
    main()
