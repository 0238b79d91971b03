"""Variants of the stacked mixture at a small size: several logging policies, neural members, and a penalty.

    python benchmarks/stacking_variants.py

200 queries and 20,000 sessions a log, one world. Logs that the results file holds are not computed again. Excess is
the perplexity minus that of the simulated users themselves.

- Several logging policies: models learn from a log of one policy, or from a log that two policies ranked in equal
  shares, with as many sessions in all, and predict clicks on random lists.
- Neural members: NCM as a further member of the stacked mixture, on lists of policies that did not train it.
- Penalty: Max-Reward of the mixture's members as an ensemble, with their mean less a number of standard deviations
  between them, shown to the users.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections import defaultdict
from pathlib import Path

import clickshift as cs
from clickshift.core.files import write_atomically
from clickshift.errors import ClickshiftWarning
from clickshift.experiments.policy_shift.protocol import PolicyShift
from clickshift.models import Mixture
from clickshift.policies.derived import max_reward, top_down
from clickshift.simulation.search_engine import World

HERE = Path(__file__).resolve().parent
WORLD = World(
    testing=(("oracle", "Oracle"), ("random", "Uniform"), ("BM25", "BM25")),
    queries=200,
    sessions=20_000,
    test_sessions=10_000,
)
TRAINING = dict(PolicyShift.training)
LOGS = {
    "PL-oracle": TRAINING["PL-oracle"],
    "PL-BM25": TRAINING["PL-BM25"],
    "PL-oracle + PL-BM25": f"{TRAINING['PL-oracle']} + {TRAINING['PL-BM25']}",
}
NEURAL = cs.Stacking(members=(*cs.Stacking().members, "Gradient('NCM')"))
PENALTIES = (0.0, 1.0, 2.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=HERE / "results" / "stacking_variants.json")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ClickshiftWarning)
    parts: dict[str, list[dict]] = {"several logging policies": [], "penalty": [], "neural members": []}
    if options.output.exists():
        parts |= json.loads(options.output.read_text(encoding="utf-8"))
    done = {(row["user"], row["training"]) for row in parts["several logging policies"]}
    for user_name, user in PolicyShift.users:
        for log_name, text in LOGS.items():
            if (user_name, log_name) in done:
                continue
            logs = WORLD.logs(user, text)
            common = {"user": user_name, "training": log_name}
            for name in ("PBM", "UBM", "DBN", "Stacking"):
                model = cs.fit(name, logs.train)
                row = common | {"model": name, "excess": excess(model, logs, "random")}
                parts["several logging policies"].append(row)
            if user_name != "DBN" and log_name != "PL-BM25":
                parts["penalty"] += [common | row for row in penalty_rows(model, logs)]
            print(user_name, log_name, file=sys.stderr, flush=True)
            write(options.output, parts)
    for user_name, user in PolicyShift.users:
        if user_name in {row["user"] for row in parts["neural members"]}:
            continue
        logs = WORLD.logs(user, LOGS["PL-oracle"])
        for name, learner in (("Stacking", cs.Stacking()), ("Stacking with NCM", NEURAL), ("NCM", "NCM")):
            start = time.process_time()
            model = cs.fit(learner, logs.train)
            row = {"user": user_name, "model": name, "fit_seconds": round(time.process_time() - start, 2)}
            row["excess"] = {test: excess(model, logs, test) for test in ("ind", "random", "BM25")}
            if name == "Stacking with NCM":
                row["weights"] = weights_by_class(model)
            parts["neural members"].append(row)
        print(user_name, "neural", file=sys.stderr, flush=True)
        write(options.output, parts)


def weights_by_class(model: Mixture) -> dict[str, float]:
    """Weights of a mixture, added up over members of the same class."""
    weights: dict[str, float] = defaultdict(float)
    for component, weight in zip(model.components, model.weights.tolist(), strict=True):
        weights[type(component).__name__] += weight
    return {name: round(weight, 4) for name, weight in weights.items()}


def excess(model: cs.ClickModel, logs, test: str) -> float:
    """Perplexity above that of the users."""
    log = logs.test[test]
    return round(cs.perplexity(model, log).average - cs.perplexity(logs.user, log).average, 6)


def penalty_rows(model: cs.ClickModel, logs) -> list[dict]:
    """Expected clicks of the lists of a stacked mixture, and of its members with penalties."""
    share = logs.frequency / logs.frequency.sum()
    derived = {"Top-Down": top_down(model, logs.seen, rng=0), "Max-Reward": max_reward(model, logs.seen, rng=0)}
    if len(model.components) > 1:
        for penalty in PENALTIES:
            lists = max_reward(list(model.components), logs.seen, penalty=penalty, rng=0)
            derived[f"members - {penalty:g} sd"] = lists
    return [
        {
            "policy": name,
            "clicks": round(float(share @ logs.user.expected_clicks(lists.rankings)), 5),
            "predicted": round(float(share @ lists.predicted), 5),
        }
        for name, lists in derived.items()
    ]


def write(path: Path, parts: dict[str, list[dict]]) -> None:
    """Write the results, one row per line."""
    texts = [f'"{name}": [\n' + ",\n".join(json.dumps(row) for row in rows) + "\n]" for name, rows in parts.items()]
    with write_atomically(path) as temporary:
        temporary.write_text("{\n" + ",\n".join(texts) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
