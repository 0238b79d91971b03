"""Which classical model holds when the ranker changes: the stacked mixture against its members.

    python benchmarks/stacking.py                                  # the 27 policy shifts, three seeds
    python benchmarks/stacking.py --seeds 10
    python benchmarks/stacking.py --real PATH/TO/SAMPLES           # random halves of real logs instead

Excess is the perplexity (of clicks given the clicks above) minus that of the simulated users themselves. Regret is the
excess minus that of the best member in hindsight, shift by shift. A shift's test policy never trained its log. With
real logs there are no known users: the table shows perplexities of held-out sessions.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np

import clickshift as cs
from clickshift.errors import ClickshiftWarning
from clickshift.experiments.policy_shift.protocol import PolicyShift
from clickshift.io.datasets.trec import read_trec
from clickshift.io.datasets.yandex import read_sample

HERE = Path(__file__).resolve().parent
MODELS = (*cs.Stacking().members, "Stacking")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--real", type=Path, help="folder of the real samples")
    parser.add_argument("--output", type=Path, default=HERE / "results" / "stacking.json")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ClickshiftWarning)
    name = "real logs" if options.real else "policy shift"
    rows = real_logs(options.real, options.seeds) if options.real else policy_shifts(options.seeds)
    kept = json.loads(options.output.read_text(encoding="utf-8")) if options.output.exists() else {}
    options.output.write_text(json.dumps(kept | {name: rows}, indent=1) + "\n", encoding="utf-8")
    print(real_table(rows) if options.real else shift_table(rows))


def policy_shifts(seeds: int) -> list[dict]:
    """One row per seed, user, training policy, test policy and model."""
    protocol, rows = PolicyShift(), []
    for seed in range(seeds):
        world = replace(protocol.world, seed=seed)
        for user_name, user in protocol.users:
            for training_name, training in protocol.training:
                logs = world.logs(user, training)
                oracles = {test: cs.perplexity(logs.user, log).average for test, log in logs.test.items()}
                for name in MODELS:
                    start = time.perf_counter()
                    model = cs.fit(name, logs.train)
                    seconds = time.perf_counter() - start
                    for test, log in logs.test.items():
                        excess = cs.perplexity(model, log).average - oracles[test]
                        kind = "ind" if test == "ind" else "same" if test.lower() in training_name.lower() else "ood"
                        row = {"seed": seed, "user": user_name, "training": training_name, "test": test, "kind": kind}
                        rows.append(row | {"model": name, "excess": excess, "fit_seconds": seconds})
                print(f"seed {seed}, {user_name}, {training_name}", file=sys.stderr, flush=True)
    return rows


def shift_table(rows: list[dict]) -> str:
    """Mean and worst excess in and out of distribution, regret and seconds of each model, in Markdown."""
    lines = [
        "| model | excess, ood: mean | worst | regret: mean | worst | excess, ind: mean | fit, s |",
        "|---|---|---|---|---|---|---|",
    ]
    table = {}
    for name in MODELS:
        own = [row for row in rows if row["model"] == name]
        table[name] = {kind: np.array([r["excess"] for r in own if r["kind"] == kind]) for kind in ("ind", "ood")}
        table[name]["seconds"] = np.array([r["fit_seconds"] for r in own])
    best = np.min([table[name]["ood"] for name in MODELS if name != "Stacking"], axis=0)
    for name, own in sorted(table.items(), key=lambda item: item[1]["ood"].mean()):
        regret = own["ood"] - best
        numbers = [own["ood"].mean(), own["ood"].max(), regret.mean(), regret.max(), own["ind"].mean()]
        lines.append(f"| {name} | {' | '.join(f'{x:+.4f}' for x in numbers)} | {own['seconds'].mean():.2f} |")
    return "\n".join(lines)


def real_logs(samples: Path, seeds: int) -> list[dict]:
    """One row per log, random split and model."""
    logs = {
        "Yandex sample": read_sample(samples / "yandex_wscd" / "trainSample.gz"),
        "TREC 2014": read_trec(samples / "trec_session2014" / "train_per_query_quid.txt.gz"),
    }
    rows = []
    for log_name, log in logs.items():
        for seed in range(seeds):
            train, test = log.split(0.8, rng=seed)
            for name in MODELS:
                perplexity = cs.perplexity(cs.fit(name, train), test).average
                rows.append({"log": log_name, "seed": seed, "model": name, "perplexity": perplexity})
    return rows


def real_table(rows: list[dict]) -> str:
    """Mean perplexity of each model, and in how many splits the stacked mixture is ahead of all members."""
    lines = [f"| log | {' | '.join(MODELS)} | splits in which Stacking is ahead |", "|---" * (len(MODELS) + 2) + "|"]
    for log in dict.fromkeys(row["log"] for row in rows):
        values = np.array([[r["perplexity"] for r in rows if r["log"] == log and r["model"] == m] for m in MODELS])
        ahead = int((values[-1] < values[:-1].min(axis=0)).sum())
        means = " | ".join(f"{value:.4f}" for value in values.mean(axis=1))
        lines.append(f"| {log} | {means} | {ahead} of {values.shape[1]} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
