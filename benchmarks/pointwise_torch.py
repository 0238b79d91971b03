"""Compare the training of rankers with eager PyTorch (pointwise_peer.py), ten seeds each, in one run on one machine.

    python benchmarks/pointwise_torch.py                  # everything: half an hour on two cores
    python benchmarks/pointwise_torch.py --quick          # a smoke test: one set, one loss, two seeds, few rounds

The published network and losses, PBM and IPS with the true bias, on LETOR's MQ2008 (fold 1; left out where its files
are not there) and on the built-in corpus: a production ranker of 20 queries, 10 million sessions, lists cut as
published. Both sides get the same counts of clicks, stop by the same rule, and run in processes of their own, on two
cores.

First a check: with the same first weights, the same batches and no dropout, held-out losses after every round and the
scores of the best one must agree.

Ours trains ten seeds in one call, `fit_runs`. Its time is from the call to its end: preparation, tracing, and loading
compiled programs from the cache, which an earlier process has filled; only imports are left out. What an empty cache
costs is told apart. The peer trains its seeds one after the other, as the authors' code does; the mean of those
measured counts ten times. Runs stop after different numbers of rounds, by chance. So the ratio that counts is that of
seconds per round, and the ratio of whole runs stands beside it. Its spread is over our repeats and the peer's seeds.

Beside it stands what no program could do better: the time that the matrix products of a round take by themselves, at
the rate at which numpy's library multiplies matrices of this shape on the same cores. Nothing is padded in that count.

Sets write to one file and leave each other's part of it alone. The peer's environment is made from
requirements-torch.txt where it is missing.
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
from machine import Machine, alone, peer_python, ratio
from neural import peak_mb

import clickshift as cs
from clickshift.core.rng import generator
from clickshift.counts.cells import Cells
from clickshift.data.corpus import CorpusSplit
from clickshift.policies.lambdamart import LambdaMART
from clickshift.ranking import ClickRanker, Run, fit_runs
from clickshift.ranking._examples import shuffled_batches  # noqa: PLC2701  the peer trains on the same batches
from clickshift.ranking._prepare import initial_weights  # noqa: PLC2701  and starts from the same weights
from clickshift.ranking.labels import sessions_by_query
from clickshift.ranking.ranker import signed_log
from clickshift.simulation.fixed_ranking import FixedRankingEngine, truncated
from clickshift.simulation.users import PBM

HERE = Path(__file__).resolve().parent
SEEDS, THREADS, SESSIONS, GOAL = 10, 2, 10_000_000, 5.0
HIDDEN, BATCH = ClickRanker().hidden, ClickRanker().batch
LOSSES = ("ips", "pbm")
MEASURED = {"mq2008": 10, "builtin": 3}
"""Seeds of the peer that are measured."""
BUILTIN = (450, 150, 50)
"""Queries of its three parts."""
CHECKED_ROUNDS, CLOSE = 3, 1e-3
"""Scores may differ by this, relative to their spread: both sides compute in single precision, and Adam divides by the
size of small slopes."""
Row = dict[str, Any]


def world(name: str, data: Path) -> tuple[CorpusSplit, Cells, Cells, np.ndarray]:
    """The parts of a set, training and held-out clicks, and examination by rank."""
    if name == "mq2008":
        files = [[data / f"S{k}.txt.gz" for k in part] for part in ((1, 2, 3), (4,), (5,))]
        parts = CorpusSplit(*(cs.read_corpus(part, max_label=2) for part in files))
    else:
        whole, ends = cs.builtin_corpus(sum(BUILTIN), seed=0), np.cumsum((0, *BUILTIN))
        parts = CorpusSplit(*(whole.with_queries(np.arange(a, b)) for a, b in pairwise(ends)))
    parts = truncated(parts, seed=0)
    engine, user = FixedRankingEngine.of(parts, LambdaMART(rescale=False), seed=0), PBM()
    return parts, *engine.clicks(user, SESSIONS, seed=0), user.exposure(engine.n_ranks)


def write_data(file: Path, parts: CorpusSplit, clicks: tuple[Cells, Cells], examination: np.ndarray) -> Row:
    """For the peer: documents of queries that have sessions, query by query."""
    arrays: dict[str, np.ndarray] = {}
    for part, corpus, cells in (("train", parts.train, clicks[0]), ("held_out", parts.held_out, clicks[1])):
        if len(cells.pair) != corpus.n_pairs:
            raise SystemExit("the peer needs all documents to be shown.")
        arrays |= {
            f"{part}_features": signed_log(corpus.features),
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
    import clickshift.ranking._step  # noqa: F401  imports JAX, which is not timed


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
    weights = initial_weights(plain, parts.train.features.shape[1], len(examination))
    layers = range(len(weights) // 2)
    known = {f"weight_{k}": weights[f"{k}"] for k in layers} | {f"bias_{k}": weights[f"{k}.bias"] for k in layers}
    batches = shuffled_batches(
        parts.train.n_candidates, plain.batch, plain.rounds, generator(plain.seed, "ClickRanker", "order")
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


def product_rate(rows: int) -> float:
    """Floating-point operations per second of numpy's matrix products on all cores, at the network's widest layer."""
    values, weights = (np.ones(shape, np.float32) for shape in ((rows, HIDDEN[0]), HIDDEN[:2]))
    values @ weights
    start = time.perf_counter()
    for _ in range(20):
        values @ weights
    return 20 * 2 * rows * HIDDEN[0] * HIDDEN[1] / (time.perf_counter() - start)


def least_seconds(sizes: Row) -> float:
    """What the matrix products of a round take: three per layer and training document, two of the first layer, which
    passes no slope on; one per layer and held-out document."""
    widths = (sizes["features"], *HIDDEN, 1)
    forward = 2 * sum(a * b for a, b in pairwise(widths))
    training = 3 * forward - 2 * widths[0] * widths[1]
    work = training * sizes["documents"] + forward * sizes["held_out_documents"]
    return work / product_rate(round(sizes["mean_list"] * BATCH))


def compare(name: str, args: argparse.Namespace, file: Path, loss: str, machine: Machine) -> Row:
    cache = args.folder / "cache"
    shutil.rmtree(cache, ignore_errors=True)
    cold = machine.measure(lambda: alone(train, name, args.data, cache, loss, 1, 1))
    warm = machine.measure(lambda: alone(train, name, args.data, cache, loss, 1, 1))
    ours = [
        machine.measure(lambda: alone(train, name, args.data, cache, loss, args.seeds, args.rounds))
        for _ in range(args.repeats)
    ]
    theirs = [
        machine.measure(lambda seed=seed: peer(args.python, file, loss, "--seed", seed, "--epochs", args.rounds))
        for seed in range(min(MEASURED[name], args.seeds))
    ]
    per_round = [row["seconds"] / sum(row["rounds"]) for row in ours]
    peer_round = [row["seconds"] / len(row["epochs"]) for row in theirs]
    whole = statistics.fmean(row["seconds"] for row in theirs) * args.seeds
    cpu = statistics.median(row["cpu_seconds"] / len(row["epochs"]) for row in theirs)
    our_cpu = statistics.median(row["cpu_seconds"] / sum(row["rounds"]) for row in ours)
    return {
        "ours": ours,
        "peer": theirs,
        "compile_seconds": cold["seconds"] - warm["seconds"],
        "seconds_per_round": statistics.median(per_round),
        "peer_seconds_per_round": statistics.median(peer_round),
        **ratio(peer_round, per_round),
        "ratio_whole_runs": whole / statistics.median(row["seconds"] for row in ours),
        "ratio_of_cpu": cpu / our_cpu,
        "goal": GOAL,
        "best_ours": statistics.fmean(ours[0]["best"]),
        "best_peer": statistics.fmean(row["best"] for row in theirs),
    }


def show(results: Row) -> None:
    names = ["set", "loss", "ms per round", "peer", "products alone", "ratio", "goal", "of whole runs", "of CPU time"]
    names += ["best held-out loss", "peer", "check"]
    print(f"\n| {' | '.join(names)} |\n|{' --- |' * len(names)}")
    for name, of_set in results["sets"].items():
        for loss, row in of_set["losses"].items():
            cells = [
                name,
                loss,
                f"{1000 * row['seconds_per_round']:.0f}",
                f"{1000 * row['peer_seconds_per_round']:.0f}",
                f"{1000 * of_set['least_seconds_per_round']:.0f}",
            ]
            low, high = row["ratio_range"]
            cells += [f"{row['ratio']:.1f} ({low:.1f} to {high:.1f})", f"{row['goal']:g}"]
            cells += [f"{row['ratio_whole_runs']:.1f}"]
            cells += [f"{row['ratio_of_cpu']:.1f}", f"{row['best_ours']:.4f}", f"{row['best_peer']:.4f}"]
            print(f"| {' | '.join([*cells, 'same' if row['check']['same'] else 'DIFFERENT'])} |")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", type=Path, default=HERE.parents[1] / "shared" / "data" / "mq2008")
    options.add_argument("--folder", type=Path, default=HERE.parent / "build" / "pointwise_torch", help="scratch")
    options.add_argument("--peer", type=Path, help="the peer's environment; by default in the scratch folder")
    options.add_argument("--seeds", type=int, default=SEEDS)
    options.add_argument("--rounds", type=int, default=200)
    options.add_argument("--repeats", type=int, default=3, help="of our side")
    options.add_argument("--sets", nargs="+", choices=tuple(MEASURED), default=list(MEASURED))
    options.add_argument("--losses", nargs="+", choices=LOSSES, default=list(LOSSES))
    options.add_argument("--quick", action="store_true")
    options.add_argument("--load", type=float, default=0.5, help="wait until the machine is this idle")
    options.add_argument("--patience", type=float, default=600.0, help="but no longer than these seconds")
    options.add_argument("-o", "--output", type=Path, help="results/pointwise_torch.json by default, -quick if --quick")
    args = options.parse_args()
    args.output = args.output or HERE / "results" / f"pointwise_torch{'-quick' * args.quick}.json"
    args.python = peer_python("torch", args.peer or args.folder / "torch", complete=False)
    if args.quick:
        args.sets, args.losses, args.seeds, args.rounds, args.repeats = args.sets[:1], args.losses[:1], 2, 3, 1
    machine = Machine(args.load, args.patience)
    known = json.loads(args.output.read_text())["sets"] if args.output.exists() else {}
    results: Row = {"machine": machine.about(), "python": platform.python_version(), "seeds": args.seeds, "sets": known}
    results["versions"] = {name: version(name) for name in ("jax", "numpy", "optax")}
    for name in args.sets:
        if name == "mq2008" and not args.data.is_dir():
            print(f"no MQ2008 in {args.data}: left out", file=sys.stderr)
            continue
        file = args.folder / f"{name}.npz"
        parts, *clicks, examination = world(name, args.data)
        row = results["sets"][name] = write_data(file, parts, (clicks[0], clicks[1]), examination)
        row |= {"least_seconds_per_round": alone(least_seconds, row), "losses": {}}
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
