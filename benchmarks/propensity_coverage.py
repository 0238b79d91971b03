"""How often 95 % intervals hold the planted examination, for every way to find propensities.

    python benchmarks/propensity_coverage.py [--repeats 200] [--methods harvesting PBM ...] [--json]

PBM users, examination 1 / rank, five ranks, ten documents per query with grades 0 to 4, attractiveness from `top` / 10
to `top` by grade. Three rankers by noisy views of the grade share the sessions ("three"), or one has them all ("one");
"swaps" is one ranker whose first result changes places with a random rank. Features are the grade itself, the views and
noise; in "views" the grade is missing, in "blind" also the view that the one ranker has. Corpus, rankers and clicks are
drawn anew in every repeat. Rows go to benchmarks/results/propensity_coverage.json; with --methods, only theirs are new.
"""

from __future__ import annotations

import argparse
import json
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import clickshift as cs
from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import ClickshiftWarning
from clickshift.models.base import pair_table
from clickshift.models.pbm import PBM
from clickshift.propensity.estimate import Propensities, propensities

RANKS, DOCS = 5, 10
TRUTH = 1 / np.arange(1.0, RANKS + 1)
BY_FEATURES = ("regression-em", "dual-learning")
FEATURES = {"grade": [0, 1, 2, 3, 4], "views": [1, 2, 3, 4], "blind": [1, 3, 4]}
RESULTS = Path(__file__).parent / "results" / "propensity_coverage.json"


@dataclass(frozen=True)
class Setting:
    queries: int
    sessions: int
    law: str
    top: float
    methods: tuple[str, ...]
    share: float = 1.0
    """Of the repeats: what takes long is repeated less."""
    features: str = "grade"


COUNTS = ("harvesting", "swaps", "PBM")
TREES = ("regression-em three", "dual-learning three", "regression-em one", "dual-learning one")
SETTINGS = (
    Setting(100, 20_000, "uniform", 1.0, COUNTS),
    Setting(100, 20_000, "uniform", 0.6, COUNTS),
    Setting(100, 20_000, "power law", 1.0, COUNTS),
    Setting(100, 20_000, "power law", 0.6, COUNTS),
    Setting(400, 20_000, "uniform", 0.6, COUNTS, 0.5),
    Setting(100, 20_000, "uniform", 0.6, TREES, 0.3),
    Setting(400, 100_000, "uniform", 0.6, TREES, 0.2),
    Setting(100, 20_000, "uniform", 0.6, TREES, 0.2, "views"),
    Setting(100, 20_000, "uniform", 0.6, TREES[2:], 0.2, "blind"),
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
    assert corpus.features is not None
    known = Corpus(corpus.vocabulary, corpus.label, corpus.features[:, FEATURES[setting.features]])
    return propensities(log, method, corpus=known if method in BY_FEATURES else None, seed=seed)


def row(setting: Setting, name: str, repeats: int) -> dict[str, object]:
    inside, estimate, width = [], [], []
    n = max(2, round(setting.share * repeats))
    for repeat in range(n):
        rng = np.random.default_rng([repeat, *name.encode()])
        corpus = world(setting.queries, rng)
        attractiveness = setting.top * (0.1 + 0.9 * corpus.gain)
        user = PBM(corpus.vocabulary, pair_table(attractiveness, unseen=0.1), TRUTH)
        curve = found(name, corpus, user, setting, repeat, rng)
        inside.append(((curve.low <= TRUTH) & (curve.high >= TRUTH))[1:])
        estimate.append(curve.estimate[1:])
        width.append((curve.high - curve.low)[1:])
    return {
        "method": name,
        "queries": setting.queries,
        "sessions": setting.sessions,
        "law": setting.law,
        "top": setting.top,
        "features": setting.features,
        "logs": n,
        "coverage": round(float(np.mean(inside)), 3),
        "bias": (np.mean(estimate, axis=0) / TRUTH[1:] - 1).round(3).tolist(),
        "spread": (np.std(estimate, axis=0) / TRUTH[1:]).round(3).tolist(),
        "width": (np.mean(width, axis=0) / TRUTH[1:]).round(3).tolist(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--methods", nargs="*", help="such as PBM, or 'regression-em one'; all by default")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    known = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
    rows = {_key(old): old for old in known}
    for setting in SETTINGS:
        for name in setting.methods:
            if options.methods and not {name, name.split()[0]} & set(options.methods):
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ClickshiftWarning)
                new = row(setting, name, options.repeats)
            rows[_key(new)] = new
            print(json.dumps(new) if options.json else "  ".join(f"{k} {v}" for k, v in new.items()), flush=True)
            RESULTS.write_text(json.dumps({"rows": list(rows.values())}, indent=1) + "\n")


def _key(of: dict[str, object]) -> tuple[object, ...]:
    return tuple(of[name] for name in ("method", "queries", "sessions", "law", "top", "features"))


if __name__ == "__main__":
    main()
