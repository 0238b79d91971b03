"""What sharing attractiveness between variants of a query gains, on simulated logs with planted variants.

    python benchmarks/query_groups.py

Each query is typed in several ways (case, punctuation, order), the first one most often. Variants share the
attractiveness of their documents up to noise in logits; different queries have the same documents with nothing else in
common. Measured by held-out log-likelihood, and by nDCG@10 of the estimates against the true attractiveness, both for
the rarer half of the variants too. Groups at random show whether sharing does harm.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings

import numpy as np

import clickshift as cs
from clickshift.errors import ClickshiftWarning
from clickshift.models import PBM

_DOCUMENTS = 30
_FORMS = ("number {}", "Number {}", "number, {}", "{} NUMBER", "Number  {}!", "({}) number")


def variant_corpus(queries: int, variants: int) -> tuple[cs.Corpus, np.ndarray]:
    """Queries in several forms, all with the same documents; and the number of the base pair of each of its pairs."""
    query, rest = np.divmod(np.arange(queries * variants * _DOCUMENTS), variants * _DOCUMENTS)
    form, doc = np.divmod(rest, _DOCUMENTS)
    texts = [_FORMS[v].format(q) for q, v in zip(query.tolist(), form.tolist(), strict=True)]
    vocabulary, _, pair = cs.Vocabulary.of(texts, doc)
    source = np.empty(len(doc), np.int64)
    source[pair] = query * _DOCUMENTS + doc
    return cs.Corpus(vocabulary, np.zeros(len(doc))), source


def measure(queries: int, variants: int, sessions: int, noise: float, model: str, seed: int) -> list[dict[str, object]]:
    """Fit a model alone, with groups by text, and with random groups of the same sizes."""
    corpus, source = variant_corpus(queries, variants)
    rng = np.random.default_rng(seed)
    base = rng.normal(-2.0, 1.2, source.max() + 1)
    truth = 1 / (1 + np.exp(-(base[source] + noise * rng.normal(size=len(source)))))
    examination = 1 / (1 + np.arange(10)) ** 0.7
    user = PBM(corpus.vocabulary, np.append(truth, 0.1), examination)
    n_queries = corpus.vocabulary.n_queries
    share = 1 / (1 + np.arange(n_queries) % variants) ** 1.5
    weight = rng.gamma(1.0, size=n_queries // variants)[np.arange(n_queries) // variants] * share
    starts = np.searchsorted(corpus.vocabulary.pair_query, np.arange(n_queries + 1))

    def draw(n: int) -> cs.Sessions:
        query = rng.choice(n_queries, n, p=weight / weight.sum())
        lists = np.stack([rng.permutation(np.arange(starts[q], starts[q + 1]))[:10] for q in query.tolist()])
        return user.sample(cs.Rankings(corpus.vocabulary, query, lists), rng=rng)

    train, test = draw(sessions), draw(sessions // 2)
    groups = cs.group_queries(train, ignore_word_order=True)
    shuffled = rng.permutation(groups.group)
    _, label = np.unique(shuffled, return_inverse=True)
    first = np.full(label.max() + 1, n_queries)
    np.minimum.at(first, label, np.arange(n_queries))
    at_random = type(groups)(groups.vocabulary, first[label], groups.impressions, "file")
    seen = np.bincount(train.rankings.query, minlength=n_queries)
    tail = seen < np.median(seen)
    rows = []
    alone = cs.fit(model, train)
    for name, chosen in (("alone", None), ("groups by text", groups), ("random groups", at_random)):
        start = time.process_time()
        fitted = alone if chosen is None else cs.share_attractiveness(alone, chosen)
        likelihood = fitted.log_likelihood(test)
        rows.append(
            {
                "model": model,
                "noise": noise,
                "groups": name,
                "sharing": fitted.evidence.sharing,
                "log_likelihood": float(likelihood.mean()),
                "tail_log_likelihood": float(likelihood[tail[test.rankings.query]].mean()),
                "tail_ndcg": ndcg(fitted.relevance(), truth, corpus.vocabulary, np.flatnonzero(tail)),
                "cpu_seconds": time.process_time() - start,
            }
        )
    return rows


def ndcg(score: np.ndarray, truth: np.ndarray, vocabulary: cs.Vocabulary, queries: np.ndarray) -> float:
    """Mean nDCG@10 with the true attractiveness as gain."""
    values, discount = [], 1 / np.log2(np.arange(10) + 2)
    for q in queries.tolist():
        own = np.flatnonzero(vocabulary.pair_query == q)
        best = np.sort(truth[own])[::-1][:10]
        found = truth[own[np.argsort(-score[own], kind="stable")]][:10]
        values.append((found * discount[: len(found)]).sum() / (best * discount[: len(best)]).sum())
    return float(np.mean(values))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--queries", type=int, default=60)
    parser.add_argument("--variants", type=int, default=6)
    parser.add_argument("--sessions", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ClickshiftWarning)
    for model in ("PBM", "dCTR"):
        for noise in (0.0, 0.5, 1.5):
            runs = [
                measure(arguments.queries, arguments.variants, arguments.sessions, noise, model, seed)
                for seed in range(arguments.seeds)
            ]
            for rows in zip(*runs, strict=True):
                means = {
                    k: round(float(np.mean([row[k] for row in rows])), 4)
                    for k in rows[0]
                    if not isinstance(rows[0][k], str)
                }
                print(json.dumps({"model": model, "groups": rows[0]["groups"], **means}), flush=True)


if __name__ == "__main__":
    main()
