"""Compare the classical click models with CLAX (clax-models), the gradient library, in one run on one machine.

    python benchmarks/clax.py                         # everything: about an hour on two cores
    python benchmarks/clax.py --quick                 # a smoke test: 50,000 sessions, two models
    python benchmarks/clax.py --skip-peer             # our side alone
    python benchmarks/clax.py --reuse                 # our side, against CLAX's runs of last time
    python benchmarks/clax.py --models PBM,UBM
    python benchmarks/clax.py --sessions 100000,1000000,10000000 --peer-repeats 3     # other sizes of the training log

The log: lists of 10 of 20 candidates for 1,000 queries under a power law, drawn by Plackett-Luce, clicked by DBN users.
Both sides get the same training, validation and test sessions, in memory, and run alone in a process of their own.

CLAX's time is that of its own trainer, validation included, until an epoch is within 1e-4 of its best validation
perplexity over all settings, in the setting that gets there first (the median of its repeats). Ours is the median of
`fit`, from sessions to model: counting, climbing, and the standard errors, which CLAX does not give; once with as many
steps as it takes to be within 1e-4 of CLAX's best ("close"), and once until it has converged to 0.1 nat of the whole
log. Compilation is left out. dCTR has the prior that is fitted by rank: CLAX's early stopping is a prior as well.

Perplexity is conditional, with probabilities clipped at 1e-8, what CLAX gives to a second click under CM. The two CMs
are not the same model: where nothing was clicked above, CLAX's predicts the marginal a_r (1 - a_1)...(1 - a_{r-1}), not
CM's conditional a_r. It falls with the rank, as clicks of users who tire do: its perplexity is lower for that, and it
is not that of a distribution. So CM is judged on the test log by CM's conditional with either side's parameters.

The peer's environment is made from requirements-clax.txt where it is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from clax_peer import CLIP, Peak
from machine import Machine, alone, peer_python, ratio

import clickshift as cs
from clickshift.learners.likelihood import MaximumLikelihood

HERE = Path(__file__).resolve().parent
QUERIES, CANDIDATES, LABELS = 1000, 20, np.array([0.52, 0.32, 0.13, 0.018, 0.007])
SETTINGS = "512:0.003,2048:0.003,8192:0.003,4096:0.01"
"""Batch size and AdamW's rate: .003 is what CLAX's introduction uses; 4096 with .01 is what its experiments use."""
GOALS = {"rCTR": 100, "dCTR": 100, "PBM": 80, "UBM": 60, "CM": 100, "DCM": 40, "CCM": 50, "SDBN": 50, "DBN": 50}
"""How many times faster than CLAX each model should be."""
OPTIONS = {"dCTR": cs.Counting("dCTR", smoothing="fitted")}
"""Learners that are not the default."""
STEPPED = ("PBM", "UBM", "DCM", "CCM", "SDBN", "DBN")
CLOSE = 1e-4
Row = dict[str, Any]


def corpus() -> cs.Corpus:
    words = cs.Vocabulary.of(np.repeat(np.arange(QUERIES), CANDIDATES), np.arange(QUERIES * CANDIDATES))[0]
    label = np.random.default_rng(0).choice(len(LABELS), words.n_pairs, p=LABELS / LABELS.sum())
    return cs.Corpus(words, label)


def write_logs(data: Path, sizes: dict[str, int]) -> float:
    """Draw the logs; the perplexity of the true model on the test log."""
    here, user = corpus(), cs.users.DBN()
    policy = cs.PlackettLuce(cs.NoisyOracle(), scores="log")
    data.mkdir(parents=True, exist_ok=True)
    for seed, (name, size) in enumerate(sizes.items()):
        log = cs.simulate(here, policy, user, size, queries=cs.PowerLaw(1.12), rng=seed)
        np.savez(data / f"{name}.npz", query=log.rankings.query, pair=log.rankings.pair, click=log.click)
    return float(cs.perplexity(user.on(here), read(data, "test"), clip=CLIP))


def read(data: Path, name: str, rows: int | None = None) -> cs.Sessions:
    with np.load(data / f"{name}.npz") as log:
        query, pair, click = (log[part][:rows] for part in ("query", "pair", "click"))
    return cs.Sessions(cs.Rankings(corpus().vocabulary, query, pair), click)


def fit(data: Path, model: str, log: str, rows: int, repeats: int) -> Row:
    """Our side. The first fit of the whole log tells the memory; the others tell the time."""
    sessions, learner = read(data, log, rows), OPTIONS.get(model, model)
    peak = Peak()
    cs.fit(learner, sessions[:1000])  # loads the compiled kernels
    peak.reset()
    cs.fit(learner, sessions)
    memory, seconds, cpu_seconds = peak.beyond(), [], []
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        fitted = cs.fit(learner, sessions)
        seconds.append(time.perf_counter() - wall)
        cpu_seconds.append(time.process_time() - cpu)
    row: Row = {"sessions": len(sessions), "seconds": statistics.median(seconds), "all_seconds": seconds}
    row |= {"cpu_seconds": statistics.median(cpu_seconds), "iterations": fitted.evidence.iterations, **memory}
    for part in ("validation", "test"):
        row[part] = float(cs.perplexity(fitted, read(data, part), clip=CLIP))
    return row


def fit_close(data: Path, model: str, rows: int, repeats: int, best: float) -> Row:
    """Our side with no more steps than it takes to be as close to CLAX's best validation perplexity as CLAX was."""
    sessions, validation = read(data, "train", rows), read(data, "validation")
    if model not in STEPPED:
        return {}
    for steps in range(1, 200):
        fitted = cs.fit(MaximumLikelihood(model, iterations=steps), sessions)
        reached = float(cs.perplexity(fitted, validation, clip=CLIP))
        if reached <= best + CLOSE:
            break
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        cs.fit(MaximumLikelihood(model, iterations=steps), sessions)
        seconds.append(time.perf_counter() - start)
    return {"steps": steps, "validation": reached, "seconds": statistics.median(seconds), "all_seconds": seconds}


def train_peer(python: Path, data: Path, model: str, setting: str) -> Row:
    """CLAX's side: see clax_peer.py."""
    batch, rate = setting.split(":")
    output = data / "peer.json"
    options = ["--batch", batch, "--rate", rate, "--pairs", str(QUERIES * CANDIDATES)]
    command = [python, "-P", HERE / "clax_peer.py", data, model, output, *options]
    done = subprocess.run(command, env={**os.environ, "JAX_PLATFORMS": "cpu"}, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"CLAX failed on {model} with {setting}:\n{done.stderr[-3000:]}")
    row: Row = json.loads(output.read_text())
    return row


def choose(runs: Sequence[Row]) -> Row:
    """The setting that first comes close to the best validation perplexity of all, and when.

    `seconds_to_own_best` is less strict with CLAX: the first time that any setting comes close to its own best.
    """
    best = min(epoch["validation"] for run in runs for epoch in run["epochs"])
    arrivals = [arrival for run in runs if (arrival := _arrival(run, best))]
    winner = min(arrivals, key=lambda run: run["seconds"])
    repeats = [run["seconds"] for run in arrivals if _setting(run) == _setting(winner)]
    own = [_arrival(run, min(epoch["validation"] for epoch in run["epochs"]))["seconds"] for run in runs]
    median = {"seconds": statistics.median(repeats), "all_seconds": repeats}
    return {**winner, **median, "best_validation": best, "seconds_to_own_best": min(own)}


def _setting(run: Row) -> tuple[int, float]:
    return run["batch"], run["learning_rate"]


def _arrival(run: Row, best: float) -> Row:
    """A run as it stood after its first epoch that is close to the best; empty if none is."""
    for number, epoch in enumerate(run["epochs"], start=1):
        if epoch["validation"] <= best + CLOSE:
            kept = {name: value for name, value in run.items() if name not in {"epochs", "versions"}}
            return {**kept, **epoch, "validation": run["validation"], "epochs_needed": number}
    return {}


def compare(ours: Row, peer: Row | None, model: str) -> Row:
    if peer is None:
        return {}
    close, theirs = ours["close"].get("all_seconds", ours["all_seconds"]), peer["all_seconds"]
    return {
        **ratio(theirs, close),
        "ratio_converged": peer["seconds"] / ours["seconds"],
        "ratio_to_own_best": peer["seconds_to_own_best"] / ours["seconds"],
        "ratio_without_validation": peer["training_seconds"] / ours["seconds"],
        "ratio_of_cpu": peer["cpu_seconds"] / ours["cpu_seconds"],
        "goal": GOALS[model],
        "reached_best_validation": ours["validation"] <= peer["best_validation"] + CLOSE,
        "no_worse_on_test": ours["test"] <= peer.get("test_as_cm", peer["test"]),
    }


def show(results: Row) -> None:
    print(f"\n{'':5} {'CLAX':>31} {'ours, converged':>17} {'close':>9} {'ratio':>6} {'goal':>5}", end="")
    print(f" {'test perplexity':>17} {'memory, MB':>13}")
    print(f"{'':5} {'setting':>12} {'epochs':>6} {'s':>6} {'CPU s':>5} {'s':>6} {'CPU s':>5} {'it':>4} {'':22}", end="")
    print(f" {'CLAX':>8} {'ours':>8} {'CLAX':>6} {'ours':>6}")
    for model, row in results["models"].items():
        ours, peer = row["ours"], row.get("peer")
        mine = f"{ours['seconds']:6.3f} {ours['cpu_seconds']:5.2f} {ours['iterations']:4}"
        if peer is None:
            print(f"{model:5} {'':31} {mine} {'':12} {'':8} {ours['test']:8.5f} {'':6} {ours['beyond_log_mb']:6.0f}")
            continue
        setting = f"{peer['batch']}:{peer['learning_rate']}"
        theirs = f"{setting:>12} {peer['epochs_needed']:6} {peer['seconds']:6.1f} {peer['cpu_seconds']:5.1f}"
        notes = [] if row["reached_best_validation"] else ["validation worse than CLAX's best + 1e-4"]
        notes += [] if row["no_worse_on_test"] else ["test worse than CLAX's"]
        close = f"{ours['close']['seconds']:6.3f} {ours['close']['steps']:2}"
        print(f"{model:5} {theirs} {mine} {close} {row['ratio']:6.1f} {row['goal']:5}", end=" ")
        print(
            f"{peer['test']:8.5f} {ours['test']:8.5f} {peer['beyond_log_mb']:6.0f} {ours['beyond_log_mb']:6.0f}", *notes
        )
    print(f"true model's test perplexity: {results['oracle']:.5f}")
    for model, rows in results["growth"].items():
        costs = (f"{row['sessions']:>12,}: {row['seconds']:7.3f} s {row['beyond_log_mb']:5.0f} MB" for row in rows)
        print(f"{model:5} {'  '.join(costs)}")


def run(args: argparse.Namespace, sessions: int) -> None:
    """One size of the training log: measure, write and show."""
    names = (args.models or ("PBM,DBN" if args.quick else ",".join(GOALS))).split(",")
    settings = (args.settings or ("512:0.003" if args.quick else SETTINGS)).split(",")
    scale, usual = 20 if args.quick else 1, sessions == 1_000_000
    sizes = {"train": sessions // scale, "validation": 100_000 // scale, "test": 200_000 // scale}
    growth = (
        []
        if args.quick or args.skip_growth or not usual
        else [("train", 100_000), ("train", 1_000_000), ("large", 10_000_000)]
    )
    sizes |= {"large": 10_000_000} if growth else {}
    kind = "-quick" if args.quick else "" if usual else f"-{sessions}"
    output = args.results / f"clax{kind}.json"
    output.parent.mkdir(parents=True, exist_ok=True)

    known = json.loads(output.read_text()) if args.reuse else {}
    without = args.skip_peer or args.reuse
    python, machine = None if without else peer_python("clax", args.environment), Machine(args.load, args.patience)
    data = args.data / (kind.lstrip("-") or "full")
    results: Row = {
        "machine": machine.about(),
        "sessions": sizes,
        "clip": CLIP,
        "oracle": alone(write_logs, data, sizes),
    }
    results["versions"] = known.get("versions", {})
    results["versions"] |= {name: version(name) for name in ("clickshift", "numpy", "numba", "scipy")}
    results["versions"] |= {"python": platform.python_version()}
    results |= {"models": {}, "growth": known.get("growth", {}), "peer_reused": args.reuse}

    for model in names:
        runs = known["models"][model]["peer_runs"] if known else []
        if python is not None:
            again = [setting for setting in settings for _ in range(args.peer_repeats)]
            runs = [machine.measure(lambda s=s, m=model: train_peer(python, data, m, s)) for s in again]
        ours = machine.measure(lambda m=model: alone(fit, data, m, "train", sizes["train"], args.repeats))
        peer = choose(runs) if runs else None
        if peer:
            best = peer["best_validation"]
            close = alone(fit_close, data, model, sizes["train"], args.repeats, best)
            ours["close"] = close or {"seconds": ours["seconds"], "steps": 0, "validation": ours["validation"]}
        for run in runs:
            results["versions"] |= run.pop("versions", {})
        results["models"][model] = {
            "ours": ours,
            **({"peer": peer, "peer_runs": runs} if runs else {}),
            **compare(ours, peer, model),
        }
        print(
            f"{model}: ours {ours['seconds']:.3f} s",
            "" if peer is None else f"CLAX {peer['seconds']:.1f} s",
            file=sys.stderr,
        )
        output.write_text(json.dumps(results, indent=1))
    for model in names if growth else []:
        results["growth"][model] = [
            machine.measure(lambda m=model, log=log, rows=rows: alone(fit, data, m, log, rows, 3))
            for log, rows in growth
        ]
        output.write_text(json.dumps(results, indent=1))
    show(results)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="50,000 sessions, PBM and DBN, one setting, no growth")
    parser.add_argument("--models", default=None, help=f"comma-separated; all are {','.join(GOALS)}")
    parser.add_argument(
        "--settings", default=None, help=f"CLAX's batch sizes and learning rates; {SETTINGS} by default"
    )
    parser.add_argument("--skip-peer", action="store_true", help="do not run CLAX")
    parser.add_argument("--reuse", action="store_true", help="measure ours again, against CLAX's runs of last time")
    parser.add_argument("--skip-growth", action="store_true", help="do not measure how our cost grows with the log")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--peer-repeats", type=int, default=1, help="of every setting of CLAX")
    parser.add_argument("--sessions", default="1000000", help="of the training log; several sizes, comma-separated")
    parser.add_argument("--load", type=float, default=1.0, help="wait until the load is below this...")
    parser.add_argument("--patience", type=float, default=180.0, help="...for at most so many seconds")
    parser.add_argument("--environment", type=Path, default=HERE.parent / ".venv-clax")
    parser.add_argument("--data", type=Path, default=HERE.parent / "build" / "benchmark-clax")
    parser.add_argument("--results", type=Path, default=HERE / "results", help="clax.json, clax-N.json for N sessions")
    args = parser.parse_args()
    for sessions in args.sessions.split(","):
        run(args, int(sessions))


if __name__ == "__main__":
    main()
