"""How often the intervals of off-policy estimates hold what they promise, in a world that can be written out.

    python benchmarks/ope_coverage.py [--repeats 2000] [--sessions 2000]

Four documents, two ranks, twelve lists; PBM users with examination 1 / rank; a logging policy and a target that prefer
different lists. A bootstrap interval should hold what its estimator estimates, clipped as it is: its value on a log in
which everything happens exactly as often as it is likely. So should the bounds. The range of partial identification,
widened by sampling error, should hold the true value where the estimator's assumption is right: here not for Item and
RCTR. CIPS asks a PBM that EM has fitted to that log, and should hold the true value: of the target on the same log, and
of a list turned round on ten times as many sessions that all saw one list; with the error of its examination, and as if
that were known. Rows go to benchmarks/results/ope_coverage.json.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import replace
from itertools import permutations, product
from pathlib import Path

import numpy as np

import clickshift as cs
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.ope import (
    Bernstein,
    Bootstrap,
    Estimate,
    Estimator,
    GroupedLog,
    Hoeffding,
    WeightedLists,
    evaluate_target,
)

RESULTS = Path(__file__).parent / "results" / "ope_coverage.json"
LISTS = np.array(list(permutations(range(4), 2)), np.int32)
LOGGING = np.array([1, 2, 3, 4, 5, 6, 7, 8, 9, 5, 6, 4]) / 60
TARGET = np.array([9, 3, 1, 1, 2, 4, 6, 1, 1, 20, 2, 10]) / 60
CLICK = np.array([0.2, 0.8, 0.4, 0.6])[LISTS] * np.array([1.0, 0.5])
WORDS, _, _ = Vocabulary.of(np.zeros(4, int), np.arange(4))
PATTERNS = np.array(list(product((False, True), repeat=2)))
ONE, TURNED = (int((pair == LISTS).all(axis=1).argmax()) for pair in ([1, 3], [3, 1]))
"""A list, and the same two documents the other way round."""
CLIP = (2.0, 5.0, math.inf)
NAMES = ("List", "IP", "PBM", "Item", "RCTR", "SN-List", "SN-IP", "RIPS", "PI")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=2000)
    parser.add_argument("--sessions", type=int, default=2000)
    options = parser.parse_args()
    target, policy = lottery(TARGET), lottery(LOGGING)
    truth, rng = float(TARGET @ CLICK.sum(axis=1)), np.random.default_rng(0)
    turned, turned_truth = lottery(np.eye(12)[TURNED]), float(CLICK[TURNED].sum())
    settings = {
        "bootstrap, frequencies": ("frequencies", NAMES, CLIP, Bootstrap()),
        "bootstrap, known policy": (policy, NAMES[:-1], CLIP, Bootstrap()),
        "Hoeffding, known policy": (policy, NAMES[:5], CLIP[:2], Hoeffding()),
        "Bernstein, known policy": (policy, NAMES[:5], CLIP[:2], Bernstein()),
    }
    exactly = GroupedLog.of(log_of(10_000_000 * probabilities()))
    held: dict[tuple[str, str, float], list[tuple[bool, bool]]] = {}
    wanted = {
        name: by_key(evaluate_target(exactly, target, names, clip=clip, logging=logging, interval=Bootstrap(20)))
        for name, (logging, names, clip, _) in settings.items()
    }
    for repeat in range(options.repeats):
        resampled = Bootstrap(seed=repeat)  # one seed for all logs would give all of them the same luck
        sessions = log_of(rng.multinomial(options.sessions, probabilities().ravel()).reshape(12, 4))
        log, fitted = GroupedLog.of(sessions), cs.fit("PBM", sessions)
        one = GroupedLog.of(log_of(rng.multinomial(10 * options.sessions, one_list().ravel()).reshape(12, 4)))
        cases = ("same log", log, target, truth), ("log of one list", one, turned, turned_truth)
        for said, model in (("", fitted), (", as if it were known", replace(fitted, evidence=None))):
            for name, seen, aim, value in cases:
                e = evaluate_target(seen, aim, [Estimator.named("CIPS", model)], interval=resampled)[0].estimates[0]
                inside = e.low <= value <= e.high, e.floor_low <= value <= e.ceiling_high
                held.setdefault((f"fitted examination{said}, {name}", "CIPS", math.inf), []).append(inside)
        for name, (logging, names, clip, interval) in settings.items():
            asked = resampled if isinstance(interval, Bootstrap) else interval
            found = by_key(evaluate_target(log, target, names, clip=clip, logging=logging, interval=asked))
            for key, e in found.items():
                inside = e.low <= wanted[name][key].value <= e.high
                held.setdefault((name, *key), []).append((inside, e.floor_low <= truth <= e.ceiling_high))
    rows = [
        {"interval": name, "estimator": estimator, "M": "inf" if math.isinf(m) else m}
        | dict(zip(("covers", "range covers the truth"), np.mean(found, axis=0).round(4).tolist(), strict=True))
        for (name, estimator, m), found in held.items()
    ]
    for row in rows:
        print(*row.values(), sep="\t")
    RESULTS.write_text(json.dumps({**vars(options), "truth": truth, "rows": rows}, indent=1) + "\n")


def probabilities() -> np.ndarray:
    """Of each list with each pattern of clicks."""
    each = np.where(PATTERNS, CLICK[:, None], 1 - CLICK[:, None]).prod(axis=2)
    joint: np.ndarray = LOGGING[:, None] * each
    return joint


def one_list() -> np.ndarray:
    """The same where every session sees one list: no weights of whole lists or places can tell of another."""
    joint: np.ndarray = probabilities() * np.eye(12)[ONE][:, None]
    return joint / joint.sum()


def log_of(times: np.ndarray) -> Sessions:
    at, pattern = np.nonzero(np.rint(times))
    rankings = Rankings(WORDS, np.zeros(len(at), np.int32), LISTS[at])
    return Sessions(rankings, PATTERNS[pattern], np.rint(times)[at, pattern].astype(np.int64))


def lottery(prob: np.ndarray) -> WeightedLists:
    return WeightedLists(Rankings(WORDS, np.zeros(len(LISTS), np.int32), LISTS), prob)


def by_key(evaluations: list) -> dict[tuple[str, float], Estimate]:
    return {(e.estimator, e.clip): e for one in evaluations for e in one.estimates}


if __name__ == "__main__":
    main()
