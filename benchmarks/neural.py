"""Compare the neural click models with eager PyTorch (torch_peer.py), ten seeds each, in one run on one machine.

    python benchmarks/neural.py                       # everything: at most an hour and a half on two cores
    python benchmarks/neural.py --quick               # a smoke test: 8,000 sessions, PBM and ARM
    python benchmarks/neural.py --sessions 1000000    # a larger training log
    python benchmarks/neural.py --reuse --models PBM  # measure ours again, against the peer's runs of last time

The log: lists of 10 of 100 candidates for 1,000 queries under a power law, drawn by Plackett-Luce, clicked by DBN
users. Both sides get the same training, validation and test sessions and run in a process of their own, on two threads.
Losses are in nats per session.

Ours trains ten seeds in one call. Its time is from the call to a round's end: preparation of the log, tracing, and
loading compiled programs from the cache, which an earlier process has filled; only imports are left out. What an empty
cache costs is told apart, as the seconds to the first round of that earlier process.

The peer trains its ten seeds one after the other, as the authors' code does: some are measured, and each counts ten
times. A ratio is that time, up to the check with the peer's best validation loss, over our time until the mean over the
seeds of the best loss so far is as good to 1e-4 in perplexity; "never" if it does not get there. It is the median over
the peer's seeds and our repeats, with the least and the most beside it. A peer that ran out of time before it stopped
by itself is judged by what it had reached, and the ratio is marked ">=": it was still going on.

The papers' setting is batches of 32 with a rate of .001, with PyTorch's default Adam and with its fused one, which does
the same in one pass; the other settings have the fused one alone, but for DBN. "Best" is the setting for which the
ratio is smallest, of those whose loss is within 0.01 nats of the lowest of all settings: quick to a bad loss is not
best. One thread is tried because two such processes can run side by side; they would need at least half of the time
that is counted here.

The peer's environment is made from requirements-torch.txt where it is missing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from machine import Machine, alone, peer_python

import clickshift as cs
from clickshift.learners.gradient import Gradient

HERE = Path(__file__).resolve().parent
QUERIES, CANDIDATES, LABELS = 1000, 100, np.array([0.52, 0.32, 0.13, 0.018, 0.007])
SESSIONS, HELD_OUT, SEEDS, THREADS = 80_000, 10_000, 10, 2
GOALS = {name: {"papers": 20.0, "best": 5.0} for name in ("PBM", "UBM", "DBN", "ARM", "CACM_minus")}
GOALS |= {"NCM": {"papers": 8.0, "best": 1.3}}
"""How many times faster than the peer each model should be, in the papers' setting and in the peer's best."""
BY_EM = ("PBM", "UBM", "DBN")
CLOSE = 8e-4
"""Nats per session by which our mean may be above the loss of the peer's one seed: 1e-4 in perplexity. Seeds differ by
several times that."""
NEAR = 0.01
"""Nats by which a loss may be above the lowest of all settings for the setting to be the peer's best."""
ROUNDING = 5e-5
"""Progress tells losses with four decimals: they may be higher by this."""
EPOCHS = 200
"""More than any run takes: it stops by itself, or at its cap of seconds."""
DIVERGED = ("diverged", "all elements of input should be between 0 and 1")
"""What the peer says of losses, and PyTorch of probabilities, that are not numbers."""
Row = dict[str, Any]


class Setting(NamedTuple):
    """How the peer trains."""

    batch: int
    rate: float
    fused: bool
    threads: int = THREADS

    @classmethod
    def of(cls, run: Row) -> Setting:
        return cls(*(run[name] for name in cls._fields))

    def __str__(self) -> str:
        extra = [" fused"] * self.fused + [" 1 thread"] * (self.threads == 1)
        return f"{self.batch}:{self.rate:g}{''.join(extra)}"


PAPERS = {"plain": Setting(32, 0.001, False), "fused": Setting(32, 0.001, True)}
TUNED = tuple(Setting(batch, rate, True) for batch, rate in ((512, 0.003), (512, 0.01), (2048, 0.01)))
PLAIN = {"DBN": tuple(Setting(batch, 0.01, False) for batch in (512, 2048))}
"""The default Adam, as in the papers' code, where the fused one decides whether a goal is met."""
ONE_THREAD = {name: (Setting(512, 0.01, True, threads=1),) for name in ("PBM", "NCM")}


def corpus() -> cs.Corpus:
    words = cs.Vocabulary.of(np.repeat(np.arange(QUERIES), CANDIDATES), np.arange(QUERIES * CANDIDATES))[0]
    label = np.random.default_rng(0).choice(len(LABELS), words.n_pairs, p=LABELS / LABELS.sum())
    return cs.Corpus(words, label.astype(np.float32))


def write_logs(file: Path, sessions: int, held_out: int, by_em: Sequence[str]) -> Row:
    """Draw the logs. What can be said of them without the peer: a digest, and losses of the true model and of EM."""
    here, user = corpus(), cs.users.DBN()
    policy = cs.PlackettLuce(cs.NoisyOracle(), temperature=0.1, scores="log")
    total = sessions + 2 * held_out
    log = cs.simulate(here, policy, user, total, queries=cs.PowerLaw(seed=0), rng=1)
    train, rest = log.split(sessions / total, rng=2)
    validation, test = rest.split(0.5, rng=3)
    arrays, digest = dict[str, np.ndarray](), hashlib.blake2b(digest_size=16)
    for name, part in (("train", train), ("validation", validation), ("test", test)):
        if (part.count != 1).any():
            raise SystemExit("the peer needs one row per session.")
        columns = {"query": part.rankings.query, "pair": part.rankings.pair, "click": part.click}
        arrays |= {f"{name}_{column}": values for column, values in columns.items()}
    for values in arrays.values():
        digest.update(np.ascontiguousarray(values).tobytes())
    file.parent.mkdir(parents=True, exist_ok=True)
    np.savez(file, **arrays)
    sizes = {"train": len(train), "validation": len(validation), "test": len(test)}
    known = {"oracle": user.on(here)} | {name: cs.fit(name, train) for name in by_em}
    losses = {name: {"validation": nats(fit, validation), "test": nats(fit, test)} for name, fit in known.items()}
    return {"sessions": sizes, "data": digest.hexdigest(), "oracle": losses.pop("oracle"), "em": losses}


def read(file: Path, part: str) -> cs.Sessions:
    with np.load(file) as log:
        query, pair, click = (log[f"{part}_{name}"] for name in ("query", "pair", "click"))
    return cs.Sessions(cs.Rankings(corpus().vocabulary, query, pair), click)


def nats(model: cs.ClickModel, log: cs.Sessions) -> float:
    """Per session."""
    return float(-np.average(model.log_likelihood(log), weights=log.count))


def peak_mb() -> float:
    """The highest resident memory of this process so far, as the peer takes it."""
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def best_so_far(text: str) -> float | None:
    """What progress tells: the mean over the seeds of each one's lowest held-out loss."""
    found = re.search(r"best ([\d.]+)", text)
    return float(found[1]) if found else None


def train(file: Path, cache: Path, model: str, rounds: int | None) -> Row:
    """Our side. Its process is new, so that the cache, the device and the cores can still be chosen."""
    os.environ |= {"CLICKSHIFT_CACHE": str(cache), "JAX_PLATFORMS": "cpu"}
    os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)  # it would go before ours
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
    import clickshift.learners.gradient.trainer  # noqa: F401  imports JAX, which is not timed

    learner = Gradient(model) if rounds is None else Gradient(model, rounds=rounds)
    log, validation, test = (read(file, part) for part in ("train", "validation", "test"))
    heard, before = list[tuple[float, str]](), peak_mb()
    wall, cpu = time.perf_counter(), time.process_time()
    models = learner.fit_seeds(
        log, SEEDS, held_out=validation, progress=lambda text: heard.append((time.perf_counter() - wall, text))
    )
    row: Row = {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}
    row |= {"peak_mb": peak_mb(), "peak_mb_before_training": before, "seeds": SEEDS}
    told = ((seconds, best_so_far(text)) for seconds, text in heard)
    row["rounds"] = [{"seconds": seconds, "best": best} for seconds, best in told if best is not None]
    row["held_out_loss"] = [fitted.evidence.held_out_loss for fitted in models]
    row["converged"] = [bool(fitted.evidence.converged) for fitted in models]
    row |= {"validation": [nats(fitted, validation) for fitted in models]}
    row |= {"test": [nats(fitted, test) for fitted in models]}
    return row


def train_ours(file: Path, folder: Path, model: str, machine: Machine, rounds: int | None, repeats: int) -> Row:
    """One round with an empty cache, then everything with what that left in it, in new processes.

    Repeats learn the same: the one of median time is told, with the rounds of all.
    """
    cache = folder / "cache" / model
    shutil.rmtree(cache, ignore_errors=True)
    cold = machine.measure(lambda: alone(train, file, cache, model, 1))
    runs = [machine.measure(lambda: alone(train, file, cache, model, rounds)) for _ in range(repeats)]
    ours = sorted(runs, key=lambda run: run["seconds"])[repeats // 2]
    lowest = min(told["best"] for told in ours["rounds"])
    cold_seconds, warm_seconds = cold["rounds"][0]["seconds"], ours["rounds"][0]["seconds"]
    return {
        **ours,
        "all_rounds": [run["rounds"] for run in runs],
        "seconds_to_best": next(told["seconds"] for told in ours["rounds"] if told["best"] == lowest),
        "seconds_to_first_round": warm_seconds,
        "seconds_to_first_round_cold": cold_seconds,
        "compile_seconds": cold_seconds - warm_seconds,
        "memory_mb": ours["peak_mb"] - ours["peak_mb_before_training"],
        "cold": cold,
    }


def train_peer(python: Path, file: Path, model: str, setting: Setting, cap: float, seed: int) -> Row:
    """The peer's side, one seed: see torch_peer.py. A rate that is too high for a model is no reason to stop here."""
    output = file.with_name("peer.json")
    options = ["--batch", setting.batch, "--rate", setting.rate, "--threads", setting.threads, "--seconds", cap]
    options += ["--epochs", EPOCHS, "--seed", seed, "-o", output, *["--fused"] * setting.fused]
    command = [python, "-P", HERE / "torch_peer.py", file, "--model", model, *options]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    asked: Row = {"model": model, **setting._asdict(), "cap": cap, "seed": seed}
    if done.returncode and any(text in done.stderr for text in DIVERGED):
        return {**asked, "failed": done.stderr.strip().splitlines()[-1]}
    if done.returncode:
        raise SystemExit(f"PyTorch failed on {model} with {setting}:\n{done.stderr[-3000:]}")
    return {**json.loads(output.read_text()), **asked}


def seconds_to(ours: Row, loss: float) -> list[float]:
    """When our seeds are that good on average, in every repeat; none if they never are. A round that may have been
    rounded down to it does not count, unless it is the last one, of which the losses are known."""
    repeats = ours.get("all_rounds", [ours["rounds"]])
    for number, told in enumerate(ours["rounds"]):
        if told["best"] + ROUNDING <= loss:
            return [float(rounds[number]["seconds"]) for rounds in repeats]
    good = statistics.fmean(ours["held_out_loss"]) <= loss
    return [float(rounds[-1]["seconds"]) for rounds in repeats] if good else []


def against(ours: Row, runs: Sequence[Row]) -> Row:
    """Ours and the seeds of one setting of the peer, each up to its own best loss."""
    bests = [min(run["checks"], key=lambda check: check["validation"]) for run in runs]
    needed = [seconds_to(ours, best["validation"] + CLOSE) for best in bests]
    found: Row = {"ratio": None}
    if all(needed):
        pairs = list(zip(bests, needed, strict=True))
        each = [SEEDS * best["seconds"] / seconds for best, repeats in pairs for seconds in repeats]
        found = {"ratio": statistics.median(each), "ratio_range": [min(each), max(each)]}
    return {
        **Setting.of(runs[0])._asdict(),
        "loss": statistics.fmean(best["validation"] for best in bests),
        "peer_seconds": statistics.median(best["seconds"] for best in bests),
        "our_seconds": statistics.median(s for repeats in needed for s in repeats) if all(needed) else None,
        **found,
        "at_least": any(run["stopped_by"] != "patience" for run in runs),
        "peer_memory_mb": max(run["peak_mb"] - run["peak_mb_before_training"] for run in runs),
    }


def compare(model: str, ours: Row | None, runs: Iterable[Row]) -> Row:
    """Ratios by setting. A loss that we do not get to counts as the smallest ratio of all."""
    done = [run for run in runs if "failed" not in run]
    if not done or ours is None:
        return {}
    settings = dict.fromkeys(map(Setting.of, done))
    rows = [against(ours, [run for run in done if Setting.of(run) == setting]) for setting in settings]
    lowest = min(row["loss"] for row in rows)
    near = [row for row in rows if row["loss"] <= lowest + NEAR]
    best = min(near, key=lambda row: (row["ratio"] or 0.0, row["peer_seconds"]))
    of = {Setting.of(row): row for row in rows}
    return {
        "against": rows,
        "papers": {name: of[setting] for name, setting in PAPERS.items() if setting in of},
        "best": best,
        "peer_test": min(done, key=lambda run: run["best_validation"])["test"],
        "goals": GOALS[model],
    }


def show(results: Row) -> None:
    """A table in Markdown."""
    names = ["model", "ours, s to its best", "compiling, s", "s to papers' loss", "s to best's loss", "test nats: ours"]
    names += ["peer", "EM", "oracle", "ratio: papers' setting", "same, fused", "goal", "ratio: best", "goal", "best is"]
    names += [f"MB: ours, {SEEDS} seeds", "peer, 1 seed"]
    print(f"\n| {' | '.join(names)} |\n|{' --- |' * len(names)}")
    for model, row in results["models"].items():
        ours, best, papers, goals = row.get("ours"), row.get("best"), row.get("papers", {}), GOALS[model]
        plain, fused = papers.get("plain"), papers.get("fused")
        cells = [model]
        cells += [_number(ours, "seconds_to_best", 1), _number(ours, "compile_seconds", 1)]
        cells += [_number(plain, "our_seconds", 1), _number(best, "our_seconds", 1)]
        cells += [f"{statistics.fmean(ours['test']):.4f}" if ours else "", _number(row, "peer_test", 4)]
        cells += [_number(results["em"].get(model), "test", 4), _number(results["oracle"], "test", 4)]
        cells += [_ratio(plain), _ratio(fused), f"{goals['papers']:g}", _ratio(best), f"{goals['best']:g}"]
        cells += [str(Setting.of(best)) if best else "", _number(ours, "memory_mb", 0)]
        print(f"| {' | '.join([*cells, _number(best, 'peer_memory_mb', 0)])} |")
    busy = [run["other_work_cores"] for row in results["models"].values() for run in _measured(row)]
    if busy:
        print(f"\nCores busy with other work: {statistics.fmean(busy):.2f} on average, {max(busy):.2f} at most.")


def _number(row: Row | None, name: str, digits: int) -> str:
    """Empty where nothing was measured, "never" where the number does not exist."""
    if not row or name not in row:
        return ""
    return "never" if row[name] is None else f"{row[name]:.{digits}f}"


def _ratio(row: Row | None) -> str:
    shown = _number(row, "ratio", 1)
    if row and "ratio_range" in row:
        low, high = row["ratio_range"]
        shown += f" ({low:.1f} to {high:.1f})"
    return f">= {shown}" if row and row["ratio"] is not None and row["at_least"] else shown


def _measured(row: Row) -> list[Row]:
    ours = row.get("ours")
    return [*([ours, ours["cold"]] if ours else []), *row.get("peer_runs", [])]


def beginning(output: Path, reuse: bool, known: Row) -> Row:
    """Results so far: none, or those of a file, if they are of the same data and machine."""
    if not reuse:
        return {**known, "versions": {}, "models": {}}
    try:
        old: Row = json.loads(output.read_text())
    except FileNotFoundError:
        raise SystemExit(f"--reuse: there is no {output}.") from None
    for name in ("data", "machine"):
        if old[name] != known[name]:
            raise SystemExit(f"--reuse: {output} is of another {name}: {old[name]}, not {known[name]}.")
    return {**old, **known, "em": old["em"] | known["em"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="8,000 sessions, PBM and ARM, 10 seconds per run")
    parser.add_argument("--models", default=None, help=f"comma-separated; all are {','.join(GOALS)}")
    parser.add_argument("--sessions", type=int, default=None, help=f"of the training log; {SESSIONS:,} by default")
    parser.add_argument("--repeats", type=int, default=3, help="of ours, and seeds of the peer that are measured")
    parser.add_argument("--rounds", type=int, default=None, help="of ours, at most: for logs that take long")
    parser.add_argument("--paper-seconds", type=float, default=None, help="cap in the papers' setting; 300 by default")
    parser.add_argument("--seconds", type=float, default=None, help="cap in each other setting; 150 by default")
    parser.add_argument("--skip-peer", action="store_true", help="do not run PyTorch")
    parser.add_argument("--skip-ours", action="store_true", help="do not run our side")
    parser.add_argument("--reuse", action="store_true", help="keep the peer's runs of the result file")
    parser.add_argument("--load", type=float, default=1.0, help="wait until the load is below this...")
    parser.add_argument("--patience", type=float, default=180.0, help="...for at most so many seconds")
    parser.add_argument("--peer-python", type=Path, default=None, help="interpreter of an environment with PyTorch")
    parser.add_argument(
        "--work", type=Path, default=HERE.parent / "build" / "benchmark-neural", help="folder for logs and caches"
    )
    parser.add_argument(
        "--output", type=Path, default=None, help="results/neural.json by default, neural-quick.json if --quick"
    )
    args = parser.parse_args()

    models = (args.models or ("PBM,ARM" if args.quick else ",".join(GOALS))).split(",")
    if unknown := set(models) - set(GOALS):
        parser.error(f"unknown models: {', '.join(sorted(unknown))}")
    sessions, held_out = args.sessions or (8000 if args.quick else SESSIONS), 1000 if args.quick else HELD_OUT
    paper_cap = args.paper_seconds or (10.0 if args.quick else 300.0)
    cap = args.seconds or (10.0 if args.quick else 150.0)
    kind = "-quick" if args.quick else "" if sessions == SESSIONS else f"-{sessions}"
    output = args.output or HERE / "results" / f"neural{kind}.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    python = (
        None if args.skip_peer else args.peer_python or peer_python("torch", args.work / "environment", complete=False)
    )

    machine, file = Machine(args.load, args.patience), args.work.resolve() / f"sessions{kind}" / "log.npz"
    known = alone(write_logs, file, sessions, held_out, [name for name in models if name in BY_EM])
    results = beginning(output, args.reuse, {"machine": machine.about(), **known})
    if not args.skip_ours:
        names = ("clickshift", "jax", "jaxlib", "optax", "numpy")
        results["versions"] |= {"ours": {name: version(name) for name in names}}
        results["versions"]["ours"] |= {"python": platform.python_version()}

    for model in models:
        row = results["models"].setdefault(model, {})
        if not args.skip_ours:
            row["ours"] = ours = train_ours(file, file.parent, model, machine, args.rounds, args.repeats)
            output.write_text(json.dumps(results, indent=1))
            print(f"{model}: ours {ours['seconds']:.1f} s to {ours['rounds'][-1]['best']}", file=sys.stderr)
        runs = row.setdefault("peer_runs", [])
        there = {(Setting.of(run), run.get("seed", 0)) for run in runs}
        wanted = [] if python is None else [*PAPERS.values(), *TUNED, *PLAIN.get(model, ()), *ONE_THREAD.get(model, ())]
        for setting, seed in product(wanted, range(args.repeats)):
            of_papers = setting in PAPERS.values()
            if (setting, seed) in there or (of_papers and seed):
                continue  # the papers' setting takes all of its time, once
            limit = paper_cap if of_papers else cap
            run = machine.measure(lambda s=setting, m=model, c=limit, k=seed: train_peer(python, file, m, s, c, k))
            results["versions"] |= {"peer": run.pop("versions")} if "versions" in run else {}
            runs.append(run)
            output.write_text(json.dumps(results, indent=1))
            said = run.get("failed") or f"{run['seconds']:.1f} s to {run['best_validation']:.4f} ({run['stopped_by']})"
            print(f"{model}: PyTorch {setting} {said}", file=sys.stderr)
        row |= compare(model, row.get("ours"), runs)
        output.write_text(json.dumps(results, indent=1))
    show(results)


if __name__ == "__main__":
    main()
