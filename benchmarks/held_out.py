"""Held-out log-likelihood of click models: does a model predict worse than one that it contains?

    python benchmarks/held_out.py trec-train.txt.gz --format trec
    python benchmarks/held_out.py simulated

The log is split into random halves ten times; each model is fitted on one half and predicts the other. PBM contains
rCTR (documents alike), UBM contains PBM (examination by rank alone), DBN contains SDBN (continuation 1). Differences
are paired by split; their standard error is that of the mean over splits. A model that contains another one should not
be worse by more than two standard errors.

`simulated` takes no file: logs of the built-in corpus with different users, rankers and sizes, and a test log by the
same ranker.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import clickshift as cs
from clickshift.errors import ClickshiftWarning
from clickshift.io.datasets.registry import read_raw

NAMES = ("rCTR", "PBM", "UBM", "SDBN", "DBN", "DCM", "CCM")
CONTAINED = (("PBM", "rCTR"), ("UBM", "PBM"), ("DBN", "SDBN"))
_CLIP = 1e-9


def held_out(train: cs.Sessions, test: cs.Sessions) -> dict[str, float]:
    """Return the mean log-likelihood per session of the test log, in nats, by model."""
    values = {}
    for name in NAMES:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ClickshiftWarning)
            model = cs.fit(name, train)
        p = np.clip(model.click_prob_given_history(test), _CLIP, 1 - _CLIP)
        terms = np.where(test.click, np.log(p), np.log1p(-p))
        values[name] = float(terms.sum(axis=1, where=test.rankings.shown).mean())
    return values


def halves(log: cs.Sessions, splits: int) -> Iterator[tuple[cs.Sessions, cs.Sessions]]:
    """Yield random halves."""
    for seed in range(splits):
        order = np.random.default_rng(seed).permutation(len(log))
        yield log[np.sort(order[: len(log) // 2])], log[np.sort(order[len(log) // 2 :])]


def simulated() -> Iterator[tuple[str, cs.Sessions, cs.Sessions]]:
    """Yield logs of the built-in corpus, and test logs of the same ranker."""
    corpus = cs.builtin_corpus(60, seed=0)
    rankers = {
        "noisy oracle": cs.PlackettLuce(cs.NoisyOracle(sd=0.5, scale="label"), temperature=0.5),
        "nearly fixed": cs.PlackettLuce(cs.NoisyOracle(sd=0.5, scale="label"), temperature=0.1),
        "random": cs.Uniform(),
    }
    for user_name in ("PBM", "DBN"):
        user = getattr(cs.users, user_name)()
        for ranker, policy in rankers.items():
            for per_query in (30, 300):
                train = cs.simulate(corpus, policy, user, 60 * per_query, rng=1)
                test = cs.simulate(corpus, policy, user, 4_000, rng=2)
                yield f"{user_name}, {ranker}, {per_query}", train, test


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", help="path of a log, or simulated")
    parser.add_argument("--format", default=None)
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--save", type=Path, default=None, help="JSON file for the values by split")
    args = parser.parse_args()
    if args.log == "simulated":
        results = {}
        print(f"{'log':28}", *(f"{name:>9}" for name in NAMES))
        for label, train, test in simulated():
            results[label] = held_out(train, test)
            print(f"{label:28}", *(f"{results[label][name]:9.5f}" for name in NAMES), flush=True)
    else:
        log = read_raw(args.log, format=args.format) if args.format else cs.read_log(args.log)
        rows = [held_out(train, test) for train, test in halves(log, args.splits)]
        results = {str(split): row for split, row in enumerate(rows)}
        for name in NAMES:
            print(f"{name:5} {np.mean([row[name] for row in rows]):9.5f} nats per session")
        for larger, smaller in CONTAINED:
            gap = np.array([row[larger] - row[smaller] for row in rows])
            error = gap.std(ddof=1) / np.sqrt(len(gap))
            print(f"{larger} - {smaller}: {gap.mean():+.5f}, standard error {error:.5f}")
    if args.save is not None:
        args.save.write_text(json.dumps(results))


if __name__ == "__main__":
    main()
