"""Compare the training of rankers with eager PyTorch (pointwise_peer.py), ten seeds each, in one run on one machine.

    python benchmarks/pointwise_torch.py                  # everything: half an hour on two cores
    python benchmarks/pointwise_torch.py --quick          # a smoke test: one set, one loss, two seeds, few rounds

The published network and losses, PBM and IPS with the true bias, on LETOR's MQ2008 (fold 1; left out where its files
are not there) and on the built-in corpus: a production ranker of 20 queries, 10 million sessions, lists cut as
published. Both sides get the same counts of clicks, stop by the same rule, and run in processes of their own, on two
cores.

First a check: with the same first weights, the same batches and no dropout, held-out losses after every round and the
scores at the end must agree.

Ours trains ten seeds in one call, `fit_runs`. Its time is from the call to its end: preparation, tracing, and loading
compiled programs from the cache, which an earlier process has filled; only imports are left out. What an empty cache
costs is told apart. The peer trains its seeds one after the other, as the authors' code does; the mean of those
measured counts ten times. Runs stop after different numbers of rounds, by chance. So the ratio that counts is that of
seconds per round, and the ratio of whole runs stands beside it.

The peer's environment is made from requirements-torch.txt where it is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from clax import Machine, alone
from neural import peak_mb, peer_python

import clickshift as cs
from clickshift.policies.lambdamart import LambdaMART
from clickshift.statistics import Cells
from clickshift.ultr import ClickRanker, Run, fit_runs
from clickshift.ultr.collisions import Parts
from clickshift.ultr.examples import shuffled
from clickshift.ultr.labels import sessions_by_query
from clickshift.ultr.preparation import start_weights
from clickshift.ultr.rankers import log_scaled
from clickshift.ultr.simulation import Engine, truncated
from clickshift.users import PBM

HERE = Path(__file__).resolve().parent
SEEDS, THREADS, SESSIONS, GOAL = 10, 2, 10_000_000, 5.0
LOSSES = ("ips", "pbm")
MEASURED = {"mq2008": 10, "builtin": 3}
"""Seeds of the peer that are measured."""
BUILTIN = (450, 150, 50)
"""Queries of its three parts."""
CHECKED_ROUNDS, CLOSE = 3, 1e-3
"""Scores may differ by this, relative to their spread: both sides compute in single precision, and Adam divides by the
size of small slopes."""
Row = dict[str, Any]


def world(name: str, data: Path) -> tuple[Parts, Cells, Cells, np.ndarray]:
    """The parts of a set, training and held-out clicks, and examination by rank."""
    if name == "mq2008":
        files = [[data / f"S{k}.txt.gz" for k in part] for part in ((1, 2, 3), (4,), (5,))]
        parts = Parts(*(cs.read_corpus(part, max_label=2) for part in files))
    else:
        whole, ends = cs.builtin_corpus(sum(BUILTIN), seed=0), np.cumsum((0, *BUILTIN))
        parts = Parts(*(whole.with_queries(np.arange(a, b)) for a, b in pairwise(ends)))
    parts = truncated(parts, seed=0)
    engine, user = Engine.of(parts, LambdaMART(rescale=False), seed=0), PBM()
    return parts, *engine.clicks(user, SESSIONS, seed=0), user.exposure(engine.n_ranks)


def write_data(file: Path, parts: Parts, clicks: tuple[Cells, Cells], examination: np.ndarray) -> Row:
    """For the peer: documents of queries that have sessions, query by query."""
    arrays: dict[str, np.ndarray] = {}
    for part, corpus, cells in (("train", parts.train, clicks[0]), ("held_out", parts.held_out, clicks[1])):
        if len(cells.pair) != corpus.n_pairs:
            raise SystemExit("the peer needs all documents to be shown.")
        arrays |= {
            f"{part}_features": log_scaled(corpus.features),
            f"{part}_click_rate": (cells.clicks / cells.impressions).astype(np.float32),
            f"{part}_examination": examination[cells.rank()].astype(np.float32),
            f"{part}_length": corpus.n_candidates,
        }
        assert (sessions_by_query(cells) > 0).all()
    file.parent.mkdir(parents=True, exist_ok=True)
    np.savez(file, **arrays)
    length = parts.train.n_candidates
    sizes = {
        "queries": parts.train.n_queries,
        "documents": parts.train.n_pairs,
        "features": parts.train.features.shape[1],
    }
    sizes |= {"mean_list": float(length.mean()), "longest_list": int(length.max())}
    return sizes | {"held_out_documents": parts.held_out.n_pairs}


def learner(loss: str, **options: Any) -> ClickRanker:
    """As published: each query counts once."""
    return ClickRanker(loss, by_traffic=False, **options)


def here(cache: Path) -> None:
    """A process of its own: its cache, its device, its cores."""
    os.environ |= {"CLICKSHIFT_CACHE": str(cache), "JAX_PLATFORMS": "cpu"}
    os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)  # it would go before ours
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
    import clickshift.ultr.program  # noqa: F401  imports JAX, which is not timed


def train(name: str, data: Path, cache: Path, loss: str, seeds: int, rounds: int) -> Row:
    """Our side."""
    here(cache)
    parts, clicks, held_out, examination = world(name, data)
    runs = [
        Run(learner(loss, seed=seed, rounds=rounds), parts.train, clicks, (parts.held_out, held_out), examination)
        for seed in range(seeds)
    ]
    before, wall, cpu = peak_mb(), time.perf_counter(), time.process_time()
    rankers = fit_runs(runs)
    row: Row = {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}
    row |= {"rounds": [ranker.rounds for ranker in rankers], "best": [ranker.held_out_loss for ranker in rankers]}
    return row | {"peak_mb": peak_mb(), "peak_mb_before": before}


def followed(name: str, data: Path, cache: Path, loss: str, file: Path) -> Row:
    """What the peer is to follow, in a file, and what it does to us."""
    here(cache)
    parts, clicks, held_out, examination = world(name, data)
    plain = learner(loss, dropout=(0.0, 0.0, 0.0), rounds=CHECKED_ROUNDS)
    weights = start_weights(plain, parts.train.features.shape[1], len(examination))
    layers = range(len(weights) // 2)
    known = {f"weight_{k}": weights[f"{k}"] for k in layers} | {f"bias_{k}": weights[f"{k}.bias"] for k in layers}
    batches = shuffled(
        parts.train.n_candidates, plain.batch, plain.rounds, cs.seeds.generator(plain.seed, "ClickRanker", "order")
    )
    np.savez(file, batches=batches, **known)
    judge = parts.held_out, held_out
    rankers = [
        learner(loss, dropout=(0.0, 0.0, 0.0), rounds=rounds).fit(
            parts.train, clicks, examination=examination, held_out=judge
        )
        for rounds in range(1, CHECKED_ROUNDS + 1)
    ]
    return {"held_out": [r.held_out_loss for r in rankers], "scores": rankers[-1].scores(parts.held_out).tolist()}


def peer(python: Path, file: Path, loss: str, *options: object) -> Row:
    output = file.with_name("peer.json")
    command = [python, "-P", HERE / "pointwise_peer.py", file, "--loss", loss, "--threads", THREADS, "-o", output]
    done = subprocess.run([str(part) for part in (*command, *options)], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"PyTorch failed:\n{done.stderr[-3000:]}")
    return json.loads(output.read_text())


def check(name: str, args: argparse.Namespace, file: Path, loss: str) -> Row:
    """Both sides from the same weights through the same batches."""
    steps = file.with_name("check.npz")
    ours = alone(followed, name, args.data, args.folder / "cache", loss, steps)
    theirs = peer(args.python, file, loss, "--check", steps)
    a, b = np.array(ours["scores"]), np.array(theirs["scores"])
    row = {
        "held_out_ours": ours["held_out"],
        "held_out_peer": np.minimum.accumulate(theirs["held_out"]).tolist(),  # ours tells its best
        "largest_difference_of_scores": float(np.abs(a - b).max()),
        "spread_of_scores": float(b.std()),
    }
    row["same"] = row["largest_difference_of_scores"] < CLOSE * row["spread_of_scores"]
    return row


def compare(name: str, args: argparse.Namespace, file: Path, loss: str, machine: Machine) -> Row:
    cache = args.folder / "cache"
    shutil.rmtree(cache, ignore_errors=True)
    cold = machine.measure(lambda: alone(train, name, args.data, cache, loss, 1, 1))
    warm = machine.measure(lambda: alone(train, name, args.data, cache, loss, 1, 1))
    ours = machine.measure(lambda: alone(train, name, args.data, cache, loss, args.seeds, args.rounds))
    theirs = [
        machine.measure(lambda seed=seed: peer(args.python, file, loss, "--seed", seed, "--epochs", args.rounds))
        for seed in range(min(MEASURED[name], args.seeds))
    ]
    per_round = ours["seconds"] / sum(ours["rounds"])
    peer_round = sum(row["seconds"] for row in theirs) / sum(len(row["epochs"]) for row in theirs)
    whole = statistics.fmean(row["seconds"] for row in theirs) * args.seeds
    cpu = sum(row["cpu_seconds"] for row in theirs) / sum(len(row["epochs"]) for row in theirs)
    return {
        "ours": ours,
        "peer": theirs,
        "compile_seconds": cold["seconds"] - warm["seconds"],
        "seconds_per_round": per_round,
        "peer_seconds_per_round": peer_round,
        "ratio": peer_round / per_round,
        "ratio_whole_runs": whole / ours["seconds"],
        "ratio_of_cpu": cpu / (ours["cpu_seconds"] / sum(ours["rounds"])),
        "goal": GOAL,
        "best_ours": statistics.fmean(ours["best"]),
        "best_peer": statistics.fmean(row["best"] for row in theirs),
    }


def show(results: Row) -> None:
    names = [
        "set",
        "loss",
        "ms per round",
        "peer",
        "ratio",
        "goal",
        "of whole runs",
        "of CPU time",
        "best held-out loss",
    ]
    names += ["peer", "check"]
    print(f"\n| {' | '.join(names)} |\n|{' --- |' * len(names)}")
    for name, of_set in results["sets"].items():
        for loss, row in of_set["losses"].items():
            cells = [
                name,
                loss,
                f"{1000 * row['seconds_per_round']:.0f}",
                f"{1000 * row['peer_seconds_per_round']:.0f}",
            ]
            cells += [f"{row['ratio']:.1f}", f"{row['goal']:g}", f"{row['ratio_whole_runs']:.1f}"]
            cells += [f"{row['ratio_of_cpu']:.1f}", f"{row['best_ours']:.4f}", f"{row['best_peer']:.4f}"]
            print(f"| {' | '.join([*cells, 'same' if row['check']['same'] else 'DIFFERENT'])} |")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", type=Path, default=HERE.parents[1] / "shared" / "data" / "mq2008")
    options.add_argument("--folder", type=Path, default=HERE.parent / "build" / "pointwise_torch", help="scratch")
    options.add_argument("--peer", type=Path, help="the peer's environment; by default in the scratch folder")
    options.add_argument("--seeds", type=int, default=SEEDS)
    options.add_argument("--rounds", type=int, default=200)
    options.add_argument("--sets", nargs="+", choices=tuple(MEASURED), default=list(MEASURED))
    options.add_argument("--losses", nargs="+", choices=LOSSES, default=list(LOSSES))
    options.add_argument("--quick", action="store_true")
    options.add_argument("--load", type=float, default=0.5, help="wait until the machine is this idle")
    options.add_argument("--patience", type=float, default=600.0, help="but no longer than these seconds")
    options.add_argument("-o", "--output", type=Path, default=HERE / "results" / "pointwise_torch.json")
    args = options.parse_args()
    args.python = peer_python(args.peer or args.folder / "torch")
    if args.quick:
        args.sets, args.losses, args.seeds, args.rounds = args.sets[:1], args.losses[:1], 2, 3
    machine = Machine(args.load, args.patience)
    results: Row = {"machine": machine.about(), "python": platform.python_version(), "seeds": args.seeds, "sets": {}}
    results["versions"] = {name: version(name) for name in ("jax", "numpy", "optax")}
    for name in args.sets:
        if name == "mq2008" and not args.data.is_dir():
            print(f"no MQ2008 in {args.data}: left out", file=sys.stderr)
            continue
        file = args.folder / f"{name}.npz"
        parts, *clicks, examination = world(name, args.data)
        row = results["sets"][name] = write_data(file, parts, (clicks[0], clicks[1]), examination)
        row["losses"] = {}
        for loss in args.losses:
            row["losses"][loss] = {
                "check": check(name, args, file, loss),
                **compare(name, args, file, loss, machine),
            }
            args.output.parent.mkdir(parents=True, exist_ok=True)
            args.output.write_text(json.dumps(results, indent=1) + "\n")
    show(results)


if __name__ == "__main__":
    main()
