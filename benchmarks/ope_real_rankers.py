"""Off-policy answers about real rankers: how often the interval of the difference holds the true one.

    python benchmarks/ope_real_rankers.py MQ2008 [--logs 5]

MQ2008 is the folder of LETOR's MQ2008 (files S1 to S5). Sixteen rankers of the literature are targets: term frequency,
TF-IDF, BM25 and language models, each over one stream of the documents, as the features 11 to 15 and 21 to 40 of the
data set. The logging ranker draws lists of five from BM25 of the whole document (Plackett-Luce), and never shows a part
of what the targets show. Users are simulated in plain numpy; their gain is exact. Rows go to
benchmarks/results/ope_real_rankers.json.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.data.weighted_lists import WeightedLists
from clickshift.ope import evaluate_policy

RESULTS = Path(__file__).parent / "results" / "ope_real_rankers.json"
QUERIES, DOCS, RANKS = 40, 15, 5
LOGGING = 37
"""BM25 of the whole document (see benchmarks/debiasedness_studies.py)."""
TARGETS = (11, 12, 14, 15, 21, 22, 24, 25, 29, 30, 32, 34, 35, 38, 39, 40)
TEMPERATURE = 0.3
"""Of scores with standard deviation 1 in each query: a twelfth of what the targets show is not in a log of 5,000."""
LABELS = np.array([0.12, 0.35, 0.6])
"""Mean attractiveness by label."""
SESSIONS = (500, 5_000)

Array = np.ndarray


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--logs", type=int, default=5, help="logs of each kind of users and size")
    options = parser.parse_args()
    label, features = read_queries(options.folder)
    rows = []
    for name, users in USERS.items():
        for n in SESSIONS:
            rows.append({"users": name, "sessions": n, **study(users, n, options.logs, label, features)})
            print(rows[-1], flush=True)
    RESULTS.write_text(json.dumps({"logs": options.logs, "targets": list(TARGETS), "rows": rows}, indent=1) + "\n")


def read_queries(folder: Path) -> tuple[Array, Array]:
    """Return labels (query, doc) and features (query, doc, feature) of queries with enough documents, and with clicks
    to win: at least one relevant one.
    """
    labels: dict[str, list[int]] = {}
    features: dict[str, list[list[float]]] = {}
    for path in sorted(folder.glob("S*.txt*")):
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
            for line in lines:
                label, query, *values = line.partition("#")[0].split()
                labels.setdefault(query, []).append(int(label))
                features.setdefault(query, []).append([float(re.sub(r"^\d+:", "", value)) for value in values])
    chosen = [query for query, own in labels.items() if len(own) >= DOCS and max(own[:DOCS]) > 0]
    return (
        np.array([labels[query][:DOCS] for query in chosen]),
        np.array([features[query][:DOCS] for query in chosen]),
    )


def position_based(decay: float) -> Callable[[Array, Array], tuple[Array, Callable[[np.random.Generator], Array]]]:
    """Users who examine rank k with probability k^-decay."""

    def users(attractive: Array, satisfied: Array) -> tuple[Array, Callable[[np.random.Generator], Array]]:
        prob = attractive * np.arange(1.0, RANKS + 1) ** -decay
        return prob.sum(axis=1), lambda rng: rng.random(prob.shape) < prob

    return users


def cascade(continuation: float) -> Callable[[Array, Array], tuple[Array, Callable[[np.random.Generator], Array]]]:
    """Users who scan top-down, leave when satisfied, and go on with a probability otherwise (DBN)."""

    def users(attractive: Array, satisfied: Array) -> tuple[Array, Callable[[np.random.Generator], Array]]:
        examined, clicks = np.ones(len(attractive)), np.zeros(len(attractive))
        for k in range(RANKS):
            clicks += examined * attractive[:, k]
            examined = examined * continuation * (1 - attractive[:, k] * satisfied[:, k])

        def sample(rng: np.random.Generator) -> Array:
            here, click = np.ones(len(attractive), bool), np.zeros(attractive.shape, bool)
            for k in range(RANKS):
                click[:, k] = here & (rng.random(len(here)) < attractive[:, k])
                leaves = click[:, k] & (rng.random(len(here)) < satisfied[:, k])
                here &= ~leaves & (rng.random(len(here)) < continuation)
            return click

        return clicks, sample

    return users


USERS = {"PBM k^-.3": position_based(0.3), "PBM 1/k": position_based(1.0), "DBN": cascade(0.9)}


def study(users: Callable[..., Any], n: int, logs: int, label: Array, features: Array) -> dict[str, Any]:
    """Verdicts of all targets on several logs, and how often the intervals of each verdict hold the gain."""
    found, lost = [], []
    for seed in range(logs):
        rng = np.random.default_rng([26, seed])
        chosen = rng.choice(len(label), QUERIES, replace=False)
        attractive = np.clip(LABELS[label[chosen]] + rng.normal(scale=0.08, size=(QUERIES, DOCS)), 0.02, 0.95)
        satisfied = np.clip(attractive + 0.1, 0, 0.9)
        score = features[chosen][:, :, LOGGING - 1]
        score = (score - score.mean(axis=1, keepdims=True)) / (score.std(axis=1, keepdims=True) + 1e-9)
        query, docs, click = draw(users, attractive, satisfied, score, n, rng)
        vocabulary, queries, pairs = Vocabulary.of(np.repeat(query, RANKS), docs.ravel())
        log = Sessions(Rankings(vocabulary, queries[::RANKS], pairs.reshape(n, RANKS)), click)
        # what the logging ranker earns on the log's queries, over other lists of its own: its error is below .001
        more = np.resize(query, 300_000)
        other = top(score[more] / TEMPERATURE + rng.gumbel(size=(len(more), DOCS)))
        today = users(attractive[more[:, None], other], satisfied[more[:, None], other])[0].mean()
        for feature in TARGETS:
            order = top(features[chosen][:, :, feature - 1] - 1e-9 * np.arange(DOCS))
            every = np.arange(QUERIES)[:, None]
            value = users(attractive[every, order], satisfied[every, order])[0][query].mean()
            own, queries, pairs = Vocabulary.of(np.repeat(np.arange(QUERIES), RANKS), order.ravel())
            lists = WeightedLists(Rankings(own, queries[::RANKS], pairs.reshape(QUERIES, RANKS)))
            answer = evaluate_policy(log, lists, replicates=20).answer
            assert answer is not None
            logged = np.isin(query[:, None] * DOCS + order[query], np.unique(query[:, None] * DOCS + docs))
            lost.append(1 - logged.mean())
            found.append((answer, float(value - today)))
    row: dict[str, Any] = {"answers": len(found), "never logged": round(float(np.mean(lost)), 3)}
    for verdict in ("usable", "weak", "not identified"):
        own_answers = [(answer, gain) for answer, gain in found if answer.verdict == verdict]
        row[verdict] = len(own_answers)
        if verdict != "not identified":
            row[f"{verdict} covers"] = sum(a.difference_low <= gain <= a.difference_high for a, gain in own_answers)
    wrong = [a.difference_low > 0 > gain or a.difference_high < 0 < gain for a, gain in found]
    return row | {"wrong sign": int(sum(wrong))}


def draw(
    users: Callable[..., Any], attractive: Array, satisfied: Array, score: Array, n: int, rng: np.random.Generator
) -> tuple[Array, Array, Array]:
    """Draw the queries, lists and clicks of a log."""
    query = rng.choice(QUERIES, n, p=np.sort(rng.dirichlet(np.full(QUERIES, 2.0))))
    docs = top(score[query] / TEMPERATURE + rng.gumbel(size=(n, DOCS)))
    _, sample = users(attractive[query[:, None], docs], satisfied[query[:, None], docs])
    return query, docs, sample(rng)


def top(score: Array) -> Array:
    """Return the documents with the highest scores, best first."""
    return np.argsort(-score, axis=1, kind="stable")[:, :RANKS]


if __name__ == "__main__":
    main()
