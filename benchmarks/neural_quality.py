"""How well each neural click model predicts, over ten seeds: on the built-in corpus with DBN users, and on Yandex's.

    python benchmarks/neural_quality.py                                    # the built-in corpus
    python benchmarks/neural_quality.py --yandex yandex_wscd/trainSample.gz

Built-in corpus: 1,000 queries, 100,000 sessions of DBN users on lists of Plackett-Luce by a noisy oracle, parted 80, 10
and 10 %. Yandex's sample has no times and is sorted by query: the first 80 % within each query train, a tenth of them
decides when to stop. Perplexity is conditional, on test sessions that all models share; the interval is Student's t
over seeds, which differ in where parameters start and in the order of batches. EM and counting have no seeds.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import clickshift as cs
from clickshift.core.intervals import mean_interval
from clickshift.io.datasets.yandex import read_sample

BY_COUNTING = ("rCTR", "dCTR", "PBM", "UBM", "DBN")
BY_GRADIENT = (
    *("PBM", "UBM", "DBN", "ARM", "CACM_minus", "NCM"),
    *(f"Gradient({name!r}, tower='free')" for name in ("PBM", "UBM", "DBN", "ARM", "CACM_minus", "NCM")),
)
Parts = tuple[cs.Sessions, cs.Sessions, cs.Sessions]


def builtin(queries: int, sessions: int) -> tuple[Parts, cs.ClickModel]:
    corpus, user = cs.builtin_corpus(queries), cs.users.DBN()
    policy = cs.PlackettLuce(cs.NoisyOracle(), temperature=0.1, scores="log")
    log = cs.simulate(corpus, policy, user, sessions, queries=cs.PowerLaw(seed=0), rng=1)
    train, rest = log.split(0.8, rng=2)
    held_out, test = rest.split(0.5, rng=3)
    return (train, held_out, test), user.on(corpus)


def yandex(file: Path) -> tuple[Parts, None]:
    whole, test = read_sample(file).split_within_queries(0.8)
    train, held_out = whole.split(0.9, rng=4)
    return (train, held_out, test), None


def rows(parts: Parts, oracle: cs.ClickModel | None, seeds: int) -> list[dict[str, Any]]:
    train, held_out, test = parts
    found: list[dict[str, Any]] = []
    if oracle is not None:
        found.append({"model": "user (oracle)", "learner": "", "perplexity": cs.perplexity(oracle, test).average})
    both = cs.Sessions.concat([train, held_out])  # nothing is held out of what does not stop early
    for name in BY_COUNTING:
        start = time.perf_counter()
        model = cs.fit(name, both)
        seconds = time.perf_counter() - start
        learner = "EM" if name in {"PBM", "UBM", "DBN"} else "counting"
        found.append({"model": name, "learner": learner, "perplexity": cs.perplexity(model, test).average})
        found[-1]["seconds"] = seconds
    for text in BY_GRADIENT:
        name = text.split("'")[1] if "(" in text else text
        learner = text if "(" in text else f"Gradient({name!r})"
        start = time.perf_counter()
        models = cs.fit(learner, train, seeds=seeds, held_out=held_out)
        seconds = time.perf_counter() - start
        mean, low, high = mean_interval([cs.perplexity(model, test).average for model in models])
        tower = "free" if "free" in learner else "embedding"
        found.append({"model": name, "learner": f"gradient, {tower}", "perplexity": mean, "half": (high - low) / 2})
        found[-1]["seconds"] = seconds
        print(json.dumps(found[-1]), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--yandex", type=Path, default=None, help="trainSample.gz of the WSCD 2012 sample")
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--seeds", type=int, default=10)
    options = parser.parse_args()
    world = builtin(options.queries, options.sessions) if options.yandex is None else yandex(options.yandex)
    print("| model | learner | perplexity | seconds, all seeds |\n|---|---|---|---|")
    for row in sorted(rows(*world, options.seeds), key=lambda row: row["perplexity"]):
        half = f" ± {row['half']:.4f}" if "half" in row else ""
        seconds = f"{row['seconds']:.1f}" if "seconds" in row else ""
        print(f"| {row['model']} | {row['learner']} | {row['perplexity']:.4f}{half} | {seconds} |")


if __name__ == "__main__":
    main()
