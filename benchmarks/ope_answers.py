"""Off-policy answers in worlds whose truth is known: how often the interval of the difference holds the true one.

    python benchmarks/ope_answers.py [--logs 20] [--shops 100] [--first-seed 6000]

Two studies, simulated in plain numpy:

- worlds of one kind each, made to mislead: position-based users whose examination is not 1 / rank, logs of a nearly or
  fully deterministic ranker, a target with an unseen document first in every query, 14 alike days;
- shops (`shops.py`) by family of users, with 500 and 5,000 sessions each. The width of the answer is also compared with
  that of the right family alone.

Rows go to benchmarks/results/ope_answers.json.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.data.weighted_lists import WeightedLists
from clickshift.ope import Answer, evaluate_policy

RESULTS = Path(__file__).parent / "results" / "ope_answers.json"
QUERIES, DOCS, RANKS = 40, 8, 5
FAMILIES = ("PBM 1/k", "PBM k^-.3", "UBM", "DBN", "CCM", "mixture", "unknown")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=int, default=20, help="logs of each world")
    parser.add_argument("--shops", type=int, default=100, help="shops of each family and size")
    parser.add_argument("--first-seed", type=int, default=6000)
    options = parser.parse_args()
    rows = [study(name, world, options.logs) for name, world in WORLDS.items()]
    rows += [shops(family, n, options.shops, options.first_seed) for family in FAMILIES for n in (500, 5000)]
    RESULTS.write_text(json.dumps({"settings": vars(options), "rows": rows}, indent=1) + "\n")
    for row in rows:
        print(row)


def answer_of(log: Sessions, target: WeightedLists) -> tuple[Answer, float]:
    """The answer, and the CPU seconds that it took."""
    start = time.process_time()
    answer = evaluate_policy(log, target, replicates=20).answer
    assert answer is not None
    return answer, time.process_time() - start


def summary(found: list[tuple[Answer, float, float]]) -> dict[str, Any]:
    """Verdicts, and how often the intervals of each verdict hold the gain."""
    row: dict[str, Any] = {"logs": len(found)}
    for verdict in ("usable", "weak"):
        own = [(a, gain) for a, gain, _ in found if a.verdict == verdict]
        row[verdict] = len(own)
        row[f"{verdict} covers"] = sum(a.difference_low <= gain <= a.difference_high for a, gain in own)
    wrong = [a.difference_low > 0 > gain or a.difference_high < 0 < gain for a, gain, _ in found]
    row["wrong sign"] = int(sum(wrong))
    row["estimators"] = sorted({a.estimator for a, _, _ in found})
    row["CPU seconds"] = round(float(np.mean([seconds for _, _, seconds in found])), 2)
    return row


def world(
    seed: int, decay: float, lists_of: Callable[[np.ndarray, np.random.Generator, int], np.ndarray], n: int,
    *, target: str = "best", days: int = 0,
) -> tuple[Sessions, WeightedLists, float]:  # fmt: skip
    """A log of position-based users, a target, and what the target earns more; examination is rank^-decay."""
    rng = np.random.default_rng([66, seed])
    attractive = rng.uniform(0.05, 0.8, (QUERIES, DOCS))
    score = attractive + rng.normal(scale=0.25, size=attractive.shape)
    query = rng.integers(QUERIES, size=n)
    docs = lists_of(score[query], rng, n)
    examination = np.arange(1.0, RANKS + 1) ** -decay
    prob = attractive[query[:, None], docs] * examination
    vocabulary, _, _ = Vocabulary.of(np.repeat(np.arange(QUERIES), DOCS), np.arange(QUERIES * DOCS))
    rankings = Rankings(vocabulary, query.astype(np.int32), (query[:, None] * DOCS + docs).astype(np.int32))
    day = rng.integers(days, size=n) if days else None
    log = Sessions(rankings, rng.random(prob.shape) < prob, time=day)
    order = np.argsort(attractive if target == "worst" else -attractive, axis=1)[:, :RANKS]
    value = attractive[np.arange(QUERIES)[:, None], order]
    wanted = np.arange(QUERIES)[:, None] * DOCS + order
    if target == "unseen first":
        wanted[:, 0], value[:, 0] = QUERIES * DOCS + np.arange(QUERIES), rng.uniform(0, 1, QUERIES)
    own, queries, pairs = Vocabulary.of(np.repeat(np.arange(QUERIES), RANKS), wanted.ravel())
    lists = WeightedLists(Rankings(own, queries[::RANKS], pairs.reshape(QUERIES, RANKS)))
    # what the logging ranker earns, by the lists of a log of its own: its error is below .001
    other = rng.integers(QUERIES, size=200_000)
    shown = lists_of(score[other], rng, len(other))
    today = (attractive[other[:, None], shown] @ examination).mean()
    return log, lists, float((value @ examination).mean() - today)


def plackett_luce(temperature: float) -> Callable[[np.ndarray, np.random.Generator, int], np.ndarray]:
    """Lists of a ranker that draws by its scores."""
    return lambda score, rng, n: np.argsort(-(score / temperature + rng.gumbel(size=score.shape)), axis=1)[:, :RANKS]


def swaps(share: float) -> Callable[[np.ndarray, np.random.Generator, int], np.ndarray]:
    """Lists of a ranker that swaps two neighbours in a share of sessions."""

    def lists(score: np.ndarray, rng: np.random.Generator, n: int) -> np.ndarray:
        docs = np.argsort(-score, axis=1)[:, :RANKS]
        rows = np.flatnonzero(rng.random(n) < share)
        k = rng.integers(RANKS - 1, size=len(rows))
        docs[rows, k], docs[rows, k + 1] = docs[rows, k + 1], docs[rows, k]
        return docs

    return lists


WORLDS: dict[str, Callable[[int], tuple[Sessions, WeightedLists, float]]] = {
    "examination k^-.8, randomised": lambda seed: world(seed, 0.8, plackett_luce(0.15), 40_000),
    "examination k^-.5, randomised": lambda seed: world(seed, 0.5, plackett_luce(0.3), 15_000),
    "examination k^-1.5, randomised": lambda seed: world(seed, 1.5, plackett_luce(0.3), 15_000),
    "one list per query": lambda seed: world(seed, 0.8, swaps(0.0), 40_000),
    "10 % neighbour swaps": lambda seed: world(seed, 0.8, swaps(0.1), 40_000),
    "unseen document first": lambda seed: world(seed, 0.8, plackett_luce(0.15), 40_000, target="unseen first"),
    "14 alike days, worst first": lambda seed: world(seed, 1.0, plackett_luce(0.15), 14_000, target="worst", days=14),
    "2,000 Plackett-Luce sessions": lambda seed: world(seed, 1.0, plackett_luce(0.3), 2000),
}


def study(name: str, make: Callable[[int], tuple[Sessions, WeightedLists, float]], logs: int) -> dict[str, Any]:
    """Answers of several logs of one world."""
    found = []
    for seed in range(logs):
        log, target, gain = make(seed)
        answer, seconds = answer_of(log, target)
        found.append((answer, gain, seconds))
    return {"world": name, **summary(found)}


def shops(family: str, sessions: int, number: int, first: int) -> dict[str, Any]:
    """Answers of shops whose users are of one family."""
    from shops import make_shop

    found, widths = [], []
    for seed in range(first, first + number):
        shop = make_shop(seed, users=family, sessions=sessions, days="no days")
        ranks = shop.docs.shape[1]
        words, query, pair = Vocabulary.of(np.repeat(shop.query, ranks), shop.docs.ravel())
        log = Sessions(Rankings(words, query[::ranks], pair.reshape(-1, ranks)), shop.clicks.astype(bool), shop.count)
        words, query, pair = Vocabulary.of(np.repeat(shop.target_query, ranks), shop.target_docs.ravel())
        lists = Rankings(words, query[::ranks], pair.reshape(-1, ranks))
        answer, seconds = answer_of(log, WeightedLists(lists, shop.target_weight))
        found.append((answer, shop.gain, seconds))
        right = [f for f in answer.families if f.name == family.split()[0] and np.isfinite(f.low)]
        if right and answer.verdict == "usable":
            widths.append((answer.difference_high - answer.difference_low) / (right[0].high - right[0].low))
    ratio = round(float(np.median(widths)), 2) if widths else None
    return {"users": family, "sessions": sessions, **summary(found), "width of the right family": ratio}


if __name__ == "__main__":
    main()
