"""How often `shift logs` finds a change of policy where there is none: two logs of the same ranker and users.

    python benchmarks/shift_logs_chance.py --pairs 100

Each pair is one simulated log (30 queries of ten documents, PBM or DBN users in turn, 2 x 10,000 sessions), split at
random. Six models are fitted on one half by maximum likelihood and predict the other. Prints the verdicts, and the
number of pairs with a verdict beyond chance, which should be at most 5 %.
"""

from __future__ import annotations

import argparse
import warnings
from collections import Counter

import clickshift as cs

MODELS = ("PBM", "UBM", "DBN", "SDBN", "CCM", "DCM")
POLICY = "PlackettLuce(NoisyOracle, temperature=0.3, scores='log')"
CHANCE = "no change beyond chance"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--first", type=int, default=1000, help="seed of the first pair")
    parser.add_argument("--sessions", type=int, default=10_000, help="sessions of each log")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    verdicts: Counter[str] = Counter()
    alarms = 0
    for seed in range(options.first, options.first + options.pairs):
        user = "PBM" if seed % 2 else "DBN"
        sizes = {"sessions": 2 * options.sessions, "queries": 30, "documents": 10}
        log = cs.simulate_log(**sizes, policy=POLICY, user=user, seed=seed).log
        one, other = log.split(0.5, rng=seed)
        found = cs.compare_logs({"one": one}, {"other": other}, models=MODELS, workers=0).verdicts
        verdicts.update(verdict["verdict"] for verdict in found)
        alarms += any(verdict["verdict"] != CHANCE for verdict in found)
    print(dict(verdicts))
    print(f"{alarms} of {options.pairs} pairs have a verdict beyond chance")


if __name__ == "__main__":
    main()
