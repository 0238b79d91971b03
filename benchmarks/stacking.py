"""Leaderboard of click models under policy shift: the stacked mixture, its members, and the paper's gradient models.

    python benchmarks/stacking.py --seeds 10                       # the 27 policy shifts in ten simulated worlds
    python benchmarks/stacking.py --real PATH/TO/SAMPLES           # random splits of real logs

Logs that the results file holds are not computed again. Excess is the perplexity (of clicks given the clicks above)
minus that of the simulated users themselves. Regret is the excess minus that of the best member in hindsight, shift by
shift. A shift's test policy never trained its log. With real logs there are no known users: the table shows
perplexities of held-out sessions. `leaderboard.py` makes the tables of docs/robust-models.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path

import clickshift as cs
from clickshift.core.files import write_atomically
from clickshift.errors import ClickshiftWarning
from clickshift.experiments.policy_shift.protocol import PolicyShift
from clickshift.io.datasets.trec import read_trec
from clickshift.io.datasets.yandex import read_sample
from clickshift.policies.derived import max_reward, top_down

HERE = Path(__file__).resolve().parent
SINGLE = tuple(name for name in cs.Stacking().members if "(" not in name)
"""Single models that the mixture is compared with: its members by their default learners."""
MODELS = {name: name for name in SINGLE} | {"Stacking of eight": cs.Stacking(members=SINGLE), "Stacking": "Stacking"}
REWARD_USERS = ("CoCM", "CoCM-mismatch")
"""Users of figure 2, for whom ranking by relevance is not optimal."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--reward-seeds", type=int, default=2, help="worlds in which Max-Reward lists are shown")
    parser.add_argument("--real", type=Path, help="folder of the real samples")
    parser.add_argument("--output", type=Path, default=HERE / "results" / "stacking.json")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ClickshiftWarning)
    if options.real:
        add_rows(options.output, "real logs", real_logs(options.real, options.seeds))
        return
    for seed in range(options.seeds):
        policy_shifts(seed, options.output, reward=seed < options.reward_seeds)


def read_rows(path: Path, part: str) -> list[dict]:
    """Rows of one part of the results file."""
    return json.loads(path.read_text(encoding="utf-8")).get(part, []) if path.exists() else []


def add_rows(path: Path, part: str, rows: list[dict]) -> None:
    """Add rows to a part of the results file, one row per line."""
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    kept[part] = kept.get(part, []) + rows
    parts = [f'"{name}": [\n' + ",\n".join(json.dumps(row) for row in kept[name]) + "\n]" for name in kept]
    with write_atomically(path) as temporary:
        temporary.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def policy_shifts(seed: int, output: Path, *, reward: bool) -> None:
    """One row per user, training policy and model in one simulated world: excess on each test log, clicks, seconds."""
    protocol = PolicyShift()
    done = {(row["seed"], row["user"], row["training"]) for row in read_rows(output, "policy shift")}
    world = replace(protocol.world, seed=seed)
    for user_name, user in protocol.users:
        for training_name, training in protocol.training:
            if (seed, user_name, training_name) in done:
                continue
            rows = []
            logs = world.logs(user, training)
            oracles = {test: cs.perplexity(logs.user, log).average for test, log in logs.test.items()}
            for name, learner in MODELS.items():
                start = time.process_time()
                model = cs.fit(learner, logs.train)
                row = {"seed": seed, "user": user_name, "training": training_name, "model": name}
                row["fit_seconds"] = round(time.process_time() - start, 3)
                row["excess"] = {
                    test: round(cs.perplexity(model, log).average - oracles[test], 6) for test, log in logs.test.items()
                }
                if reward and user_name in REWARD_USERS:
                    share = logs.frequency / logs.frequency.sum()
                    for key, derive in (("top_down", top_down), ("max_reward", max_reward)):
                        lists = derive(model, logs.seen, rng=seed).rankings
                        row[key] = round(float(share @ logs.user.expected_clicks(lists)), 5)
                rows.append(row)
            add_rows(output, "policy shift", rows)
            print(f"seed {seed}, {user_name}, {training_name}", file=sys.stderr, flush=True)


def real_logs(samples: Path, seeds: int) -> list[dict]:
    """One row per log, random split and model, and whether `compare` recommends it, with the paired 95 % margin."""
    logs = {
        "Yandex sample": read_sample(samples / "yandex_wscd" / "trainSample.gz"),
        "TREC 2014": read_trec(samples / "trec_session2014" / "train_per_query_quid.txt.gz"),
    }
    rows = []
    for log_name, log in logs.items():
        for seed in range(seeds):
            train, test = log.split(0.8, rng=seed)
            comparison = cs.compare(train, test=test)
            recommended = comparison.facts()["recommended"]
            for row in sorted(comparison.rows(), key=lambda row: str(row["model"])):
                if row["model"] in MODELS:
                    own = {"log": log_name, "seed": seed, "model": row["model"]}
                    own["perplexity"] = round(row["conditional_perplexity"], 6)
                    own["recommended"] = row["model"] == recommended
                    if row["difference_error"] is not None:
                        own["margin"] = round(1.96 * row["difference_error"], 6)
                    rows.append(own)
            print(f"{log_name}, split {seed}: {recommended}", file=sys.stderr, flush=True)
    return rows


if __name__ == "__main__":
    main()
