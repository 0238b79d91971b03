"""How long off-policy evaluation takes: against Open Bandit Pipeline (obp), on ten million sessions, and resampled.

    python benchmarks/ope.py                    # against obp, up to 100,000 slates: 20 to 45 minutes, nearly all obp's
    python benchmarks/ope.py --scale            # ten million sessions: about 10 minutes, nearly all simulation
    python benchmarks/ope.py --resampled        # the default bootstrap where nearly every list is shown once
    python benchmarks/ope.py --quick            # a smoke test; also with --scale or --resampled

Lists of ten, drawn by Plackett-Luce and clicked by DBN users. Every part runs in a fresh process, from sessions in
memory; compilation and a first small evaluation are left out.

Against obp: the logging policy and the target are known Plackett-Luce policies. Ours groups the log, computes all
propensities and evaluates List, IP and RIPS with a bootstrap in one call. The package is given the propensities, row by
row, and asked for the value and the interval of each of its three slate estimators, with as many resamples as ours; its
own default is ten times as many. Its intervals look through all rows for every slate, so that time grows with the
square of the log.

Ten million sessions: five estimators times fifteen clipping constants, logging policy by list frequencies, for a target
with one list per query; where lists repeat, and where most are shown once.

Parts write to one file and leave each other's part of it alone. The peer's environment is made from
requirements-obp.txt where it is missing, or is that of --peer-python.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from clax_peer import Peak
from machine import Machine, alone, peer_python, ratio

import clickshift as cs
from clickshift.ope import PAPER_ESTIMATORS, Bootstrap, Estimator, GroupedLog, evaluate_target
from clickshift.ope.bound_estimator import BoundEstimator
from clickshift.ope.estimators import checked_clip
from clickshift.ope.target_policy import TargetProbabilities
from clickshift.policies.plackett_luce import PlackettLuceRankings

HERE = Path(__file__).resolve().parent
RANKS, LABELS = 10, np.array([0.52, 0.32, 0.13, 0.02, 0.01])
SLATES, SESSIONS, RESAMPLED = (2_000, 8_000, 30_000, 100_000), 10_000_000, 1_000_000
PEER_QUERIES, PEER_CANDIDATES, QUERIES, CANDIDATES = 1_000, 20, 10_000, 50
NAMES = ("List", "IP", "RIPS")
CLIP = (1, 2, 3, 5, 9, 10, 20, 30, 40, 50, 100, 200, 500, 1000, math.inf)
TEMPERATURES = {"lists repeat": 0.035, "most lists once": 0.13}
GOAL, GOAL_SECONDS, EQUAL = 50.0, 20.0, 1e-9
Row = dict[str, Any]


def corpus(queries: int, candidates: int) -> cs.Corpus:
    words = cs.Vocabulary.of(np.repeat(np.arange(queries), candidates), np.arange(queries * candidates))[0]
    return cs.Corpus(words, np.random.default_rng(0).choice(len(LABELS), words.n_pairs, p=LABELS))


def policies() -> tuple[PlackettLuceRankings, PlackettLuceRankings]:
    """A logging policy, and a target that prefers the same documents a little more."""
    here = corpus(PEER_QUERIES, PEER_CANDIDATES)
    score = 0.5 * here.label + np.random.default_rng(1).normal(size=len(here.label))
    other = score + 0.2 * np.random.default_rng(2).normal(size=len(score))
    return PlackettLuceRankings(here.vocabulary, score), PlackettLuceRankings(here.vocabulary, other, 0.95)


def slates(sessions: int) -> cs.Sessions:
    """Of the known logging policy."""
    rng, here = np.random.default_rng(3), corpus(PEER_QUERIES, PEER_CANDIDATES)
    query = rng.integers(PEER_QUERIES, size=sessions).astype(np.int32)
    lists = policies()[0].sample(query, ranks=RANKS, rng=rng)
    lists = cs.Rankings(lists.vocabulary, lists.query, lists.pair)
    return cs.Sessions(lists, cs.users.DBN().on(here).sample(lists, rng=rng).click)


def log_of(sessions: int, temperature: float) -> cs.Sessions:
    ranker = cs.PlackettLuce(cs.NoisyOracle(), temperature=temperature, scores="log")
    log = cs.simulate(
        corpus(QUERIES, CANDIDATES), ranker, cs.users.DBN(), sessions, queries=cs.PowerLaw(1.12), ranks=RANKS, rng=0
    )
    r = log.rankings  # without propensities, as most logs are
    return cs.Sessions(cs.Rankings(r.vocabulary, r.query, r.pair), log.click)


def one_list_each() -> cs.Rankings:
    """Of every query, one of the lists that a noisy ranker would show."""
    here = corpus(QUERIES, CANDIDATES)
    score = np.log(here.label + 0.3) + 0.3 * np.random.default_rng(1).normal(size=len(here.label))
    ranker = PlackettLuceRankings(here.vocabulary, score, 0.5)
    return ranker.sample(np.arange(QUERIES, dtype=np.int32), ranks=RANKS, rng=3)


class Clock:
    """Wall and CPU seconds of each step."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.cpu_seconds: dict[str, float] = {}

    def __call__(self, name: str, work: Callable[[], Any]) -> Any:
        wall, cpu = time.perf_counter(), time.process_time()
        done = work()
        self.seconds[name] = time.perf_counter() - wall
        self.cpu_seconds[name] = time.process_time() - cpu
        return done

    def total(self) -> Row:
        steps = {"steps": self.seconds, "cpu_steps": self.cpu_seconds}
        return {"seconds": sum(self.seconds.values()), "cpu_seconds": sum(self.cpu_seconds.values()), **steps}


def against_peer(sessions: int, resamples: int) -> Row:
    """Our side: from sessions to values and intervals, propensities included."""
    logging, target = policies()

    def work(log: cs.Sessions) -> Row:
        found = evaluate_target(GroupedLog.of(log), target, NAMES, logging=logging, interval=Bootstrap(resamples))
        estimates = [one.estimates[0] for one in found]
        return {e.estimator: {"value": e.value, "low": e.low, "high": e.high} for e in estimates}

    log = slates(sessions)
    work(log[:1000])
    peak, clock = Peak(), Clock()
    peak.reset()
    return {"estimators": clock("all", lambda: work(log)), **clock.total(), **peak.beyond()}


def write_slates(path: Path, sessions: int) -> None:
    """For the package: one row per slate and position, with the propensities of whole slates, beginnings and places."""
    log, rows = slates(sessions), sessions * RANKS
    r, columns = log.rankings, {"slate_id": np.repeat(np.arange(sessions), RANKS), "reward": log.click.ravel()}
    columns["position"] = np.tile(np.arange(RANKS), sessions)
    for prefix, policy in zip(("", "evaluation_policy_"), policies(), strict=True):
        beginnings = [policy.log_prob(cs.Rankings(r.vocabulary, r.query, r.pair[:, : k + 1])) for k in range(RANKS)]
        placed = policy.placement(ranks=RANKS)[r.pair, np.arange(RANKS)]
        columns[f"{prefix}pscore"] = np.repeat(np.exp(beginnings[-1]), RANKS)
        columns[f"{prefix}pscore_cascade"] = np.exp(np.stack(beginnings, axis=1)).ravel()
        columns[f"{prefix}pscore_item_position"] = placed.ravel()
    assert all(len(column) == rows for column in columns.values())
    np.savez(
        path, **{name: column.astype(np.int64) if column.dtype == bool else column for name, column in columns.items()}
    )


def evaluate_peer(python: Path, work: Path, sessions: int, resamples: int) -> Row:
    """The package's side: see ope_peer.py."""
    data, output = work / "slates.npz", work / "peer.json"
    write_slates(data, sessions)
    command = [python, "-P", HERE / "ope_peer.py", data, "-o", output, "--resamples", resamples]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"the package failed on {sessions:,} slates:\n{done.stderr[-3000:]}")
    row: Row = json.loads(output.read_text())
    row["seconds"] = sum(one["seconds"] for one in row["estimators"].values())
    row["cpu_seconds"] = sum(one["cpu_seconds"] for one in row["estimators"].values())
    return row


def middle(runs: Sequence[Row]) -> Row:
    """The run of median time, with the times of all."""
    return sorted(runs, key=lambda run: run["seconds"])[len(runs) // 2] | {
        "all_seconds": [run["seconds"] for run in runs]
    }


def compare(
    args: argparse.Namespace, sizes: Sequence[int], machine: Machine, versions: Row, write: Callable[[Row], None]
) -> Row:
    """Written size by size: the largest takes most of the time."""
    python = None if args.skip_peer else args.peer_python or peer_python("obp", args.work / "environment")
    rows: list[Row] = []
    for sessions in sizes:
        row: Row = {"slates": sessions, "resamples": args.resamples}
        ours = [machine.measure(lambda n=sessions: alone(against_peer, n, args.resamples)) for _ in range(args.repeats)]
        row["ours"] = middle(ours)
        if python is not None:
            peer = [
                machine.measure(lambda n=sessions: evaluate_peer(python, args.work, n, args.resamples))
                for _ in range(args.repeats)
            ]
            row["peer"] = middle(peer)
            versions["peer"] = row["peer"].pop("versions")
            values = [[side["estimators"][name]["value"] for name in NAMES] for side in (row["ours"], row["peer"])]
            row["largest_difference"] = float(np.abs(np.subtract(*values)).max())
            row["equal"] = row["largest_difference"] <= EQUAL
            row |= ratio(row["peer"]["all_seconds"], row["ours"]["all_seconds"])
            row["ratio_of_cpu"] = row["peer"]["cpu_seconds"] / row["ours"]["cpu_seconds"]
        rows.append(row)
        write({"goal": GOAL, "rows": rows})
        print(f"{sessions:,} slates: done", file=sys.stderr)
    return {"goal": GOAL, "rows": rows}


def at_scale(sessions: int, temperature: float) -> Row:
    """Five estimators at fifteen clipping constants, from sessions in memory."""
    target, limits = one_list_each(), checked_clip(CLIP)

    def work(log: cs.Sessions, clock: Clock) -> tuple[GroupedLog, Row]:
        logged = clock("group", lambda: GroupedLog.of(log))
        total = clock("count", lambda: logged.total)
        aim = clock("look at the target", lambda: TargetProbabilities.at(logged, target))
        values = {
            name: clock(
                name, lambda n=name: BoundEstimator.of(Estimator.named(n), logged, aim).path(total, limits)
            ).value
            for name in PAPER_ESTIMATORS
        }
        return logged, {name: value[-1, 0] for name, value in values.items()}

    log = log_of(sessions, temperature)
    work(log[:1000], Clock())
    peak, clock = Peak(), Clock()
    peak.reset()
    logged, values = work(log, clock)
    lists = {"sessions": sessions, "lists": len(logged.lists), "cells": len(logged.cell_pair)}
    return {**lists, **clock.total(), **peak.beyond(), "values": values}


def resampled(sessions: int, temperature: float, replicates: int) -> Row:
    """Five estimators with bootstrap intervals, for which list frequencies are found anew in each replicate."""
    target, interval = one_list_each(), Bootstrap(replicates)
    log = log_of(sessions, temperature)
    evaluate_target(GroupedLog.of(log[:1000]), target, interval=Bootstrap(20))
    peak, clock = Peak(), Clock()
    peak.reset()
    logged = clock("group", lambda: GroupedLog.of(log))
    found = clock("evaluate", lambda: evaluate_target(logged, target, interval=interval))
    errors = {one.estimates[0].estimator: one.estimates[0].error for one in found}
    lists = {"sessions": sessions, "lists": len(logged.lists), "replicates": replicates}
    return {**lists, **clock.total(), **peak.beyond(), "errors": errors}


def show_peer(results: Row) -> None:
    print("\n| slates | resamples | obp, s | ours, s | ratio | of CPU | largest difference of values |")
    print(f"|{' --- |' * 7}")
    for row in results["rows"]:
        if "peer" in row:
            seconds = f"{row['peer']['seconds']:.1f} | {row['ours']['seconds']:.2f}"
            low, high = row["ratio_range"]
            ratios = f"{row['ratio']:.0f} ({low:.0f} to {high:.0f}) | {row['ratio_of_cpu']:.0f}"
            print(
                f"| {row['slates']:,} | {row['resamples']:,} | {seconds} | {ratios} | {row['largest_difference']:.1e} |"
            )
        else:
            print(f"| {row['slates']:,} | {row['resamples']:,} | | {row['ours']['seconds']:.2f} | | | |")


def show_steps(rows: Sequence[Row]) -> None:
    steps = list(rows[0]["steps"])
    print(f"\n| log | sessions | lists | {' | '.join(steps)} | all, s | CPU s | MB beyond the log |")
    print(f"|{' --- |' * (6 + len(steps))}")
    for row in rows:
        seconds = " | ".join(f"{row['steps'][step]:.2f}" for step in steps)
        whole = f"{row['seconds']:.1f} | {row['cpu_seconds']:.1f} | {row['beyond_log_mb']:.0f}"
        print(f"| {row['log']} | {row['sessions']:,} | {row['lists']:,} | {seconds} | {whole} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    part = parser.add_mutually_exclusive_group()
    part.add_argument("--scale", action="store_true", help="ten million sessions, instead of the comparison")
    part.add_argument("--resampled", action="store_true", help="the default bootstrap, instead of the comparison")
    parser.add_argument("--quick", action="store_true", help="small logs")
    parser.add_argument("--slates", default=None, help="comma-separated numbers of slates")
    parser.add_argument("--sessions", type=int, default=None, help="of the other parts' logs")
    parser.add_argument("--resamples", type=int, default=None, help="1,000 by default, 500 with --resampled")
    parser.add_argument("--repeats", type=int, default=3, help="of both sides of the comparison")
    parser.add_argument("--skip-peer", action="store_true", help="do not run the package")
    parser.add_argument("--load", type=float, default=1.0, help="wait until the load is below this...")
    parser.add_argument("--patience", type=float, default=180.0, help="...for at most so many seconds")
    parser.add_argument("--peer-python", type=Path, default=None, help="interpreter of an environment with the package")
    parser.add_argument("--work", type=Path, default=HERE.parent / "build" / "benchmark-ope", help="folder for data")
    parser.add_argument(
        "--output", type=Path, default=None, help="results/ope.json by default, ope-quick.json if --quick"
    )
    args = parser.parse_args()

    output = args.output or HERE / "results" / ("ope-quick.json" if args.quick else "ope.json")
    output.parent.mkdir(parents=True, exist_ok=True)
    args.work.mkdir(parents=True, exist_ok=True)
    args.resamples = args.resamples or (20 if args.quick else 500 if args.resampled else 1_000)
    machine = Machine(args.load, args.patience)
    ours = {name: version(name) for name in ("clickshift", "numba", "numpy")} | {"python": platform.python_version()}
    versions: Row = {"ours": ours}

    def write(name: str, found: Row) -> None:
        results: Row = json.loads(output.read_text()) if output.exists() else {}
        results[name] = {"machine": machine.about(), "versions": versions, **found}
        output.write_text(json.dumps(results, indent=1) + "\n")

    if args.scale or args.resampled:
        whole = RESAMPLED if args.resampled else SESSIONS
        sessions, rows = args.sessions or (20_000 if args.quick else whole), list[Row]()
        for name, temperature in TEMPERATURES.items():
            if args.scale:
                row = machine.measure(lambda t=temperature: alone(at_scale, sessions, t))
            else:
                row = machine.measure(lambda t=temperature: alone(resampled, sessions, t, args.resamples))
            rows.append({"log": name, **row})
        goal = {"goal_seconds": GOAL_SECONDS} if args.scale else {}
        write("scale" if args.scale else "resampled", {**goal, "rows": rows})
        show_steps(rows)
    else:
        sizes = tuple(int(n) for n in args.slates.split(",")) if args.slates else (1_000,) if args.quick else SLATES
        show_peer(compare(args, sizes, machine, versions, lambda found: write("peer", found)))
    print(f"\nwritten to {output}")


if __name__ == "__main__":
    main()
