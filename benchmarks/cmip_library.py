"""Compare our CMIP with its authors' package (cmip-metric) where the truth is known, in one run on one machine.

    python benchmarks/cmip_library.py                 # values, errors and seconds of one evaluation: about 10 minutes
    python benchmarks/cmip_library.py --ablation      # the published estimator by classifier and neighbours, KSG by k
    python benchmarks/cmip_library.py --quick         # a smoke test: 2,000 rows, two draws; also with --ablation

The data are those of the package's README: queries of 25 documents, labels uniform on 0 to 4, logging = label + N(0, 1)
and estimate = label + a (logging - label) + N(0, 1), so that given the label the mutual information is ln(1 + a^2) / 2.
Every estimator gets the same draws, and every draw is evaluated once. Seconds are medians over draws, of an evaluation
in a warm process: imports, compilation and a first small evaluation are left out.

The package is run as it comes, with LightGBM on all cores, and with one thread; ratios are to the quicker of the two.

The ablation has as many draws for each cell and says how far the mean is from the truth, with the standard error of
that mean, and how much single values vary. The neighbours of the resampling are tried with labels uniform on [0, 4], on
grades they change nothing; beside them are the same labels rounded to grades, of which estimate and logging score know
more than the grade says. The logistic regression of degree 2 is told the form of the truth here; trees are not.

Both parts write to one file and leave the other's part of it alone. The peer's environment is made from
requirements-cmip.txt where it is missing, or is that of --peer-python.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from machine import Machine, alone, peer_python, ratio

from clickshift.core.rng import generator
from clickshift.debiasedness.classifier_cmi import BoostedTrees, Classifier, Logistic
from clickshift.debiasedness.metrics import CMIP, DependenceEstimator, MeanDependence
from clickshift.debiasedness.nearest_neighbour_cmi import KSG
from clickshift.debiasedness.scored_pairs import ScoredPairs

HERE = Path(__file__).resolve().parent
DOCUMENTS, GRADES = 25, 5
ROWS, ABLATION_ROWS = (10_000, 50_000), (2_000, 10_000, 50_000)
TRUTHS, ABLATION_TRUTHS = (0.0, 0.3466), (0.0, 0.05, 0.3466)
GOAL = 10.0
"""How many times faster than the package one evaluation of the default metric should be, at a smaller error."""
OURS: dict[str, DependenceEstimator] = {
    "classifier, paper": Classifier(),
    "classifier, package": Classifier.as_library(),
    "ksg": KSG(),
}
PEERS = {"package": None, "package, 1 thread": 1}
BY_CLASSIFIER: dict[str, DependenceEstimator] = {
    "trees (published)": Classifier(),
    "15 leaves": Classifier(by=BoostedTrees(leaves=15)),
    "7 leaves": Classifier(by=BoostedTrees(leaves=7)),
    "30 trees": Classifier(by=BoostedTrees(trees=30)),
    "30 trees of 7 leaves": Classifier(by=BoostedTrees(trees=30, leaves=7)),
    "logistic, degree 2": Classifier(by=Logistic(2)),
    "logistic, degree 3": Classifier(by=Logistic(3)),
}
BY_RESAMPLING: dict[str, DependenceEstimator] = {
    **{f"k = {k}": Classifier(neighbours=k) for k in (1, 5, 20, 100)},
    "rounded to grades": Classifier(),
}
BY_KSG: dict[str, DependenceEstimator] = {f"k = {k}": KSG(k) for k in (3, 5, 10, 20)}
ABLATIONS = {"classifier": BY_CLASSIFIER, "resampling": BY_RESAMPLING, "ksg": BY_KSG}
Row = dict[str, Any]


def columns(rows: int, truth: float, draw: int, *, graded: bool = True) -> dict[str, np.ndarray]:
    """Estimate, logging score and label of so many rows."""
    rng = generator(0, "cmip", rows, str(truth), draw, "graded" if graded else "continuous")
    label = rng.integers(GRADES, size=rows).astype(np.float64) if graded else rng.uniform(0, GRADES - 1, rows)
    noise, other_noise = rng.normal(size=(2, rows))
    estimate = label + np.expm1(2 * truth) ** 0.5 * noise + other_noise
    return {"estimate": estimate, "logging": label + noise, "label": label}


def pairs(rows: int, truth: float, draw: int, *, graded: bool = True, rounded: bool = False) -> ScoredPairs:
    data = columns(rows, truth, draw, graded=graded)
    if rounded:
        data["label"] = data["label"].round()
    return ScoredPairs.of(np.arange(rows) // DOCUMENTS, **data)


def evaluate(estimator: DependenceEstimator, rows: int, truth: float, draws: int) -> Row:
    """Our side."""
    estimator(pairs(2000, truth, 0), generator(0, "warm"))
    values, seconds, cpu_seconds = [], [], []
    for draw in range(draws):
        data = pairs(rows, truth, draw)
        wall, cpu = time.perf_counter(), time.process_time()
        values.append(estimator(data, generator(draw, "estimator")))
        seconds.append(time.perf_counter() - wall)
        cpu_seconds.append(time.process_time() - cpu)
    return {"values": values, "all_seconds": seconds, "all_cpu_seconds": cpu_seconds}


def evaluate_fully(metric: CMIP | MeanDependence, rows: int, truth: float) -> Row:
    """What a user waits for: the value with its null and its interval."""
    metric(pairs(2000, truth, 0), rng=0)
    start = time.perf_counter()
    found = metric(pairs(rows, truth, 0), rng=0)
    seconds = time.perf_counter() - start
    facts = {"value": found.value, "low": found.low, "high": found.high, "p_value": found.p_value}
    return {"rows": rows, "truth": truth, "metric": type(metric).__name__, "seconds": seconds, **facts}


def evaluate_peer(python: Path, work: Path, rows: int, truth: float, draws: int, threads: int | None) -> Row:
    """The package's side: see cmip_peer.py."""
    data, output = work / "rows.npz", work / "peer.json"
    each = [columns(rows, truth, draw) for draw in range(draws)]
    shape = (draws, rows // DOCUMENTS, DOCUMENTS)
    np.savez(data, **{name: np.stack([draw[name] for draw in each]).reshape(shape) for name in each[0]})
    options = [] if threads is None else ["--threads", str(threads)]
    command = [python, "-P", HERE / "cmip_peer.py", data, "-o", output, *options]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"the package failed on {rows:,} rows:\n{done.stderr[-3000:]}")
    row: Row = json.loads(output.read_text())
    return row


def summary(run: Row, rows: int, truth: float, name: str) -> Row:
    values = np.array(run["values"])
    return {
        "estimator": name,
        "rows": rows,
        "truth": truth,
        "seconds": statistics.median(run["all_seconds"]),
        "cpu_seconds": statistics.median(run["all_cpu_seconds"]),
        "value": float(values.mean()),
        "error": float(values.mean() - truth),
        "rmse": float(((values - truth) ** 2).mean() ** 0.5),
        **run,
    }


def compare(cells: list[Row]) -> list[Row]:
    """KSG against the package in each cell."""
    found = []
    for rows, truth in dict.fromkeys((cell["rows"], cell["truth"]) for cell in cells):
        of = {cell["estimator"]: cell for cell in cells if (cell["rows"], cell["truth"]) == (rows, truth)}
        peers = [of[name] for name in PEERS if name in of]
        if not peers:
            continue
        quicker = min(peers, key=lambda peer: peer["seconds"])
        more_exact = of["ksg"]["rmse"] < min(peer["rmse"] for peer in peers)
        ratios = ratio(quicker["all_seconds"], of["ksg"]["all_seconds"])
        found.append({"rows": rows, "truth": truth, **ratios, "goal": GOAL, "more_exact": more_exact})
    return found


def evaluation(args: argparse.Namespace, sizes: tuple[int, ...], machine: Machine, versions: Row) -> Row:
    python = (
        None if args.skip_peer else args.peer_python or peer_python("cmip", args.work / "environment", complete=False)
    )
    cells: list[Row] = []
    for rows in sizes:
        for truth in TRUTHS:
            for name, threads in PEERS.items() if python is not None else ():
                run = machine.measure(
                    lambda r=rows, t=truth, n=threads: evaluate_peer(python, args.work, r, t, args.draws, n)
                )
                versions["peer"] = run.pop("versions")
                cells.append(summary(run, rows, truth, name))
            for name, estimator in OURS.items():
                run = machine.measure(lambda r=rows, t=truth, e=estimator: alone(evaluate, e, r, t, args.draws))
                cells.append(summary(run, rows, truth, name))
            print(f"{rows:,} rows, truth {truth}: done", file=sys.stderr)
    whole = [
        machine.measure(lambda m=metric: alone(evaluate_fully, m, sizes[-1], TRUTHS[-1]))
        for metric in (CMIP(), MeanDependence())
    ]
    return {"cells": cells, "against": compare(cells), "whole": whole}


def ablation_cell(kind: str, name: str, rows: int, truth: float, draws: int) -> Row:
    """Bias and spread of one estimator; seconds are rough, for nothing is waited for."""
    estimator, by_neighbours = ABLATIONS[kind][name], kind == "resampling"
    rounded = by_neighbours and estimator == Classifier()
    start, values = time.perf_counter(), []
    for draw in range(draws):
        data = pairs(rows, truth, draw, graded=not by_neighbours, rounded=rounded)
        values.append(estimator(data, generator(draw, "estimator")))
    seconds = (time.perf_counter() - start) / draws
    bias, sd = statistics.fmean(values) - truth, statistics.stdev(values)
    facts = {"bias": bias, "standard_error": sd / draws**0.5, "sd": sd, "draws": draws, "seconds": seconds}
    return {"kind": kind, "estimator": name, "rows": rows, "truth": truth, **facts}


def ablation(sizes: tuple[int, ...], draws: int, write: Callable[[list[Row]], None]) -> list[Row]:
    cells: list[Row] = []
    for kind, estimators in ABLATIONS.items():
        for name in estimators:
            cells += [ablation_cell(kind, name, rows, truth, draws) for rows in sizes for truth in ABLATION_TRUTHS]
            write(cells)
            print(f"{kind}: {name}", file=sys.stderr)
    return cells


def show_evaluation(results: Row) -> None:
    """Tables in Markdown."""
    names = ["rows", "truth", "estimator", "value", "error", "rmse", "seconds", "CPU seconds"]
    print(f"\n| {' | '.join(names)} |\n|{' --- |' * len(names)}")
    for cell in results["cells"]:
        numbers = [f"{cell[name]:.4f}" for name in ("value", "error", "rmse")]
        numbers += [f"{cell[name]:.3f}" for name in ("seconds", "cpu_seconds")]
        print(f"| {cell['rows']:,} | {cell['truth']} | {cell['estimator']} | {' | '.join(numbers)} |")
    for row in results["against"]:
        verdict = "smaller error" if row["more_exact"] else "NOT a smaller error"
        print(
            f"\n{row['rows']:,} rows, truth {row['truth']}: KSG is {row['ratio']:.1f} times faster than the package "
            f"(goal {row['goal']:g}), {verdict}."
        )
    for row in results["whole"]:
        print(f"\n{row['metric']} with its null and its interval, {row['rows']:,} rows: {row['seconds']:.1f} s.")
    busy = [cell["other_work_cores"] for cell in (*results["cells"], *results["whole"])]
    print(f"\nCores busy with other work: {statistics.fmean(busy):.2f} on average, {max(busy):.2f} at most.")


def show_ablation(cells: list[Row]) -> None:
    """Bias +- its standard error, and the standard deviation of a value."""
    at = list(dict.fromkeys((cell["rows"], cell["truth"]) for cell in cells))
    heads = [f"{rows:,} rows, truth {truth}" for rows, truth in at]
    print(f"\n| by | estimator | {' | '.join(heads)} |\n|{' --- |' * (2 + len(at))}")
    for kind, name in dict.fromkeys((cell["kind"], cell["estimator"]) for cell in cells):
        of = {(c["rows"], c["truth"]): c for c in cells if (c["kind"], c["estimator"]) == (kind, name)}
        texts = [f"{of[c]['bias']:+.4f} ± {of[c]['standard_error']:.4f} (sd {of[c]['sd']:.4f})" for c in at]
        print(f"| {kind} | {name} | {' | '.join(texts)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ablation", action="store_true", help="bias and spread by settings, instead of times")
    parser.add_argument("--quick", action="store_true", help="2,000 rows and two draws")
    parser.add_argument("--rows", default=None, help="comma-separated numbers of rows, multiples of 25")
    parser.add_argument("--draws", type=int, default=None, help="of data per cell; 5 by default, 10 for the ablation")
    parser.add_argument("--skip-peer", action="store_true", help="do not run the package")
    parser.add_argument("--load", type=float, default=1.0, help="wait until the load is below this...")
    parser.add_argument("--patience", type=float, default=180.0, help="...for at most so many seconds")
    parser.add_argument("--peer-python", type=Path, default=None, help="interpreter of an environment with the package")
    parser.add_argument("--work", type=Path, default=HERE.parent / "build" / "benchmark-cmip", help="folder for data")
    parser.add_argument(
        "--output", type=Path, default=None, help="results/cmip.json by default, cmip-quick.json if --quick"
    )
    args = parser.parse_args()

    args.draws = args.draws or (2 if args.quick else 10 if args.ablation else 5)
    if args.draws < 2:
        parser.error("a spread needs at least 2 draws")
    whole = ABLATION_ROWS if args.ablation else ROWS
    sizes = tuple(int(n) for n in args.rows.split(",")) if args.rows else (2000,) if args.quick else whole
    if any(n % DOCUMENTS for n in sizes):
        parser.error(f"rows must be multiples of {DOCUMENTS}")
    output = args.output or HERE / "results" / ("cmip-quick.json" if args.quick else "cmip.json")
    output.parent.mkdir(parents=True, exist_ok=True)
    args.work.mkdir(parents=True, exist_ok=True)

    machine = Machine(args.load, args.patience)
    results: Row = json.loads(output.read_text()) if output.exists() else {}
    about: Row = {"machine": machine.about(), "documents": DOCUMENTS, "draws": args.draws}
    ours = {name: version(name) for name in ("clickshift", "lightgbm", "numba", "numpy", "scipy")}
    about["versions"] = {"ours": {**ours, "python": platform.python_version()}}

    def write(part: str, found: Row) -> None:
        results[part] = {**about, **found}
        output.write_text(json.dumps(results, indent=1))

    if args.ablation:
        cells = ablation(sizes, args.draws, lambda cells: write("ablation", {"cells": cells}))
        show_ablation(cells)
    else:
        write("evaluation", evaluation(args, sizes, machine, about["versions"]))
        show_evaluation(results["evaluation"])


if __name__ == "__main__":
    main()
