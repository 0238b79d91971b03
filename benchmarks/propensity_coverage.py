"""How often 95 % intervals hold the planted examination, for every way to find propensities.

    python benchmarks/propensity_coverage.py [--repeats 200] [--json]

PBM users, examination 1 / rank, five ranks, ten documents per query with grades 0 to 4, attractiveness from `top` / 10
to `top` by grade. Three rankers by noisy views of the grade share the sessions ("three"), or one has them all ("one");
"swaps" is one ranker whose first result changes places with a random rank. Features are the grade itself, the views and
noise. Corpus, rankers and clicks are drawn anew in every repeat.
"""

from __future__ import annotations

import argparse
import json
import warnings
from dataclasses import dataclass

import numpy as np

import clickshift as cs
from clickshift.corpus import Corpus
from clickshift.errors import ClickshiftWarning
from clickshift.models.base import pair_table
from clickshift.models.pbm import PBM
from clickshift.sessions import Rankings, Sessions
from clickshift.ultr.propensities import Propensities, propensities
from clickshift.vocabulary import Vocabulary

RANKS, DOCS = 5, 10
TRUTH = 1 / np.arange(1.0, RANKS + 1)
BY_FEATURES = ("regression-em", "dual-learning")


@dataclass(frozen=True)
class Setting:
    queries: int
    sessions: int
    law: str
    top: float
    methods: tuple[str, ...]
    share: float = 1.0
    """Of the repeats: what takes long is repeated less."""


COUNTS = ("harvesting", "swaps", "PBM")
TREES = ("regression-em three", "dual-learning three", "regression-em one", "dual-learning one")
SETTINGS = (
    Setting(100, 20_000, "uniform", 1.0, COUNTS),
    Setting(100, 20_000, "uniform", 0.6, COUNTS),
    Setting(100, 20_000, "power law", 1.0, COUNTS),
    Setting(100, 20_000, "power law", 0.6, COUNTS),
    Setting(400, 20_000, "uniform", 0.6, COUNTS, 0.5),
    Setting(100, 20_000, "uniform", 0.6, TREES, 0.1),
    Setting(400, 100_000, "uniform", 0.6, TREES, 0.05),
)


def world(queries: int, rng: np.random.Generator) -> Corpus:
    words = Vocabulary.of(np.repeat(np.arange(queries), DOCS), np.arange(queries * DOCS))[0]
    grade = rng.integers(0, 5, queries * DOCS)
    views = [grade + rng.normal(size=len(grade)) * sd for sd in (1.0, 1.5, 2.0)]
    return Corpus(words, grade, np.stack([grade, *views, rng.normal(size=len(grade))], axis=1))


def clicks(corpus: Corpus, user: PBM, rankers: tuple[int, ...], setting: Setting, rng: np.random.Generator) -> Sessions:
    law = cs.PowerLaw() if setting.law == "power law" else "uniform"
    each = setting.sessions // len(rankers)
    parts = [cs.simulate(corpus, cs.Feature(k), user, each, queries=law, ranks=RANKS, rng=rng) for k in rankers]
    return Sessions.concat(parts)


def swapped(log: Sessions, user: PBM, rng: np.random.Generator) -> tuple[Sessions, np.ndarray]:
    """The same lists with the first result at a random rank, and clicks anew."""
    lists, rank, row = log.rankings, rng.integers(0, RANKS, len(log)), np.arange(len(log))
    pair = lists.pair.copy()
    pair[row, 0], pair[row, rank] = lists.pair[row, rank], lists.pair[row, 0]
    return user.sample(Rankings(lists.vocabulary, lists.query, pair), rng=rng), rank


def found(name: str, corpus: Corpus, user: PBM, setting: Setting, seed: int, rng: np.random.Generator) -> Propensities:
    method, _, rankers = name.partition(" ")
    if method == "swaps":
        log, rank = swapped(clicks(corpus, user, (3,), setting, rng), user, rng)
        return propensities(log, method, swapped=rank, seed=seed)
    log = clicks(corpus, user, (3,) if rankers == "one" else (2, 3, 4), setting, rng)
    return propensities(log, method, corpus=corpus if method in BY_FEATURES else None, seed=seed)


def rows(setting: Setting, repeats: int) -> list[dict[str, object]]:
    inside: dict[str, list[np.ndarray]] = {name: [] for name in setting.methods}
    estimate: dict[str, list[np.ndarray]] = {name: [] for name in setting.methods}
    n = max(2, round(setting.share * repeats))
    for repeat in range(n):
        for name in setting.methods:
            rng = np.random.default_rng([repeat, *name.encode()])
            corpus = world(setting.queries, rng)
            attractiveness = setting.top * (0.1 + 0.9 * corpus.gain)
            user = PBM(corpus.vocabulary, pair_table(attractiveness, unseen=0.1), TRUTH)
            curve = found(name, corpus, user, setting, repeat, rng)
            inside[name].append(((curve.low <= TRUTH) & (curve.high >= TRUTH))[1:])
            estimate[name].append(curve.estimate[1:])
    return [
        {
            "method": name,
            "queries": setting.queries,
            "sessions": setting.sessions,
            "law": setting.law,
            "top": setting.top,
            "logs": n,
            "coverage": round(float(np.mean(inside[name])), 3),
            "bias": (np.mean(estimate[name], axis=0) / TRUTH[1:] - 1).round(3).tolist(),
            "spread": (np.std(estimate[name], axis=0) / TRUTH[1:]).round(3).tolist(),
        }
        for name in setting.methods
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    for setting in SETTINGS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ClickshiftWarning)
            for row in rows(setting, options.repeats):
                print(json.dumps(row) if options.json else "  ".join(f"{k} {v}" for k, v in row.items()), flush=True)


if __name__ == "__main__":
    main()
