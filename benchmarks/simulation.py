"""How fast a log is drawn: Plackett-Luce lists and DBN clicks, with peak memory.

    python benchmarks/simulation.py [--sessions 1000000]

Targets on two cores: 300,000 sessions/s with 120 candidates, 1,000,000 sessions/s with 10.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time

import numpy as np

import clickshift as cs
from clickshift.core.parallel import n_threads
from clickshift.data.corpus import Corpus
from clickshift.data.vocabulary import Vocabulary

TARGET = {120: 300_000, 10: 1_000_000}


def corpus_of(candidates: int, queries: int = 1000) -> Corpus:
    rng = np.random.default_rng(0)
    n = queries * candidates
    vocabulary, _, _ = Vocabulary.of(np.repeat(np.arange(queries), candidates), np.arange(n))
    label = rng.choice(5, n, p=[0.525, 0.32, 0.13, 0.018, 0.007]).astype(np.float32)
    return Corpus(vocabulary, label)


def peak() -> float:
    """Megabytes that this process has held at the most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    policy, user = cs.PlackettLuce(cs.NoisyOracle(), temperature=0.1), cs.users.DBN()
    results = []
    for candidates, target in TARGET.items():
        corpus = corpus_of(candidates)
        cs.simulate(corpus, policy, user, 1000, rng=0)  # compile
        before, seconds = peak(), []
        for repeat in range(options.repeats):
            start = time.perf_counter()
            log = cs.simulate(corpus, policy, user, options.sessions, rng=repeat)
            seconds.append(time.perf_counter() - start)
        arrays = (
            log.rankings.query,
            log.rankings.pair,
            log.rankings.shown,
            log.rankings.log_prob,
            log.click,
            log.count,
        )
        results.append(
            {
                "candidates": candidates,
                "sessions": options.sessions,
                "threads": n_threads(),
                "load": os.getloadavg()[0],
                "sessions_per_second": round(options.sessions / float(np.median(seconds))),
                "best_sessions_per_second": round(options.sessions / min(seconds)),
                "target": target,
                "log_megabytes": round(sum(a.nbytes for a in arrays if a is not None) / 2**20),
                "peak_megabytes_beyond_start": round(peak() - before),
            }
        )
    if options.json:
        print(json.dumps(results))
        return
    for row in results:
        print(", ".join(f"{k} {v:,}" if isinstance(v, int) else f"{k} {v}" for k, v in row.items()))


if __name__ == "__main__":
    main()
