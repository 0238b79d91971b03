"""What Max-Reward costs and finds: local search against sampled orders, for each click model, one seed.

    python benchmarks/derived_policies.py            # 1,000 queries, 80,000 sessions: some twenty minutes on two cores
    python benchmarks/derived_policies.py --quick    # 100 queries, 10,000 sessions: two minutes
    python benchmarks/derived_policies.py --models UBM NCM --user CoCM_mismatch

The log: CoCM users on the built-in corpus, ranked by Plackett-Luce on a noisy oracle (policy-shift paper, figure 2).
Models are fitted by gradient and rank the documents that training has shown. Sampling 8! orders takes long for NCM: it
is timed on --sampled queries, taken at random, and the time for all of them is extrapolated from that. Values are
expected clicks per list according to the model; on the sampled queries both searches are compared. "earned" is what the
true user gives to Top-Down and Max-Reward lists. Seconds are wall time, after a first call that compiles.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from typing import Any

import numpy as np

import clickshift as cs
from clickshift.core.parallel import n_threads
from clickshift.core.spec import parse
from clickshift.data.corpus import Corpus
from clickshift.learners.gradient import Gradient
from clickshift.models.base import ClickModel
from clickshift.policies.derived import DerivedLists, max_reward, top_down
from clickshift.simulation.users import USERS

MODELS = ("PBM", "UBM", "DBN", "ARM", "CACM_minus", "NCM")
TARGETS = {"PBM": 0.1, "DBN": 0.1, "UBM": 1.5, "ARM": 1.5, "CACM_minus": 1.5, "NCM": 12.0}
"""Seconds for the local search of 1,000 queries of ten documents, on two cores with nothing else to do."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--user", default="CoCM")
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--sampled", type=int, default=50, help="queries on which 8! orders are tried")
    parser.add_argument("--samples", type=int, default=40_320)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    queries, sessions = (100, 10_000) if options.quick else (1000, 100_000)
    if options.quick:
        options.sampled = min(options.sampled, 5)

    user, seen, train, held_out = world(options.user, queries, sessions)
    some = np.sort(np.random.default_rng(1).permutation(seen.n_queries)[: options.sampled])
    rows = []
    for name in options.models:
        model = Gradient(name).fit(train, held_out=held_out)
        rows.append({"model": name, **measured(model, seen, some, user, options.samples)})
        if not options.json:
            print(", ".join(f"{k} {v}" for k, v in rows[-1].items()), flush=True)
    if options.json:
        print(json.dumps({"user": options.user, "threads": n_threads(), "load": os.getloadavg()[0], "rows": rows}))


def world(user: str, queries: int, sessions: int) -> tuple[ClickModel, Corpus, cs.Sessions, cs.Sessions]:
    """The user, the documents that training has shown, and a log in two parts."""
    corpus = cs.builtin_corpus(queries * 11 // 10, seed=0)
    corpus = corpus.with_queries(corpus.usable_queries()).sample_queries(queries, rng=np.random.default_rng(0))
    policy = cs.PlackettLuce(cs.NoisyOracle(), temperature=0.1, scores="log")
    model = parse(user, USERS).on(corpus)
    log = cs.simulate(corpus, policy, model, sessions, queries=cs.PowerLaw(), rng=0)
    train, held_out = log.split(0.8, rng=np.random.default_rng(0))
    return model, corpus.with_pairs(np.unique(train.rankings.pair[train.rankings.shown])), train, held_out


def measured(model: ClickModel, seen: Corpus, some: np.ndarray, user: ClickModel, samples: int) -> dict[str, Any]:
    few = seen.with_queries(np.arange(3))
    max_reward(model, few, rng=0)  # compile
    down, _ = timed(lambda: top_down(model, seen, rng=0))
    local, seconds = timed(lambda: max_reward(model, seen, rng=0))
    part = seen.with_queries(some)
    sampled, sampled_seconds = timed(lambda: max_reward(model, part, search="sampled", samples=samples, rng=0))
    difference = local.predicted[some] - sampled.predicted
    per_thousand = 1000 / seen.n_queries
    return {
        "queries": seen.n_queries,
        "local_seconds_per_1000": round(seconds * per_thousand, 3),
        "target": TARGETS.get(type(model).__name__),
        "sampled_seconds_per_1000": round(sampled_seconds * 1000 / len(some), 1),
        "top_down_value": round(float(down.predicted.mean()), 4),
        "local_value": round(float(local.predicted.mean()), 4),
        "on_sampled_queries": len(some),
        "local_minus_sampled": round(float(difference.mean()), 5),
        "local_at_least_sampled": round(float((difference > -1e-6).mean()), 3),
        "earned_top_down": round(earned(user, down), 4),
        "earned_max_reward": round(earned(user, local), 4),
    }


def earned(user: ClickModel, lists: DerivedLists) -> float:
    return float(user.expected_clicks(lists.rankings).mean())


def timed(work: Any) -> tuple[DerivedLists, float]:
    start = time.perf_counter()
    return work(), time.perf_counter() - start


if __name__ == "__main__":
    main()
