"""Compare the built-in corpus with the sample of MSLR-WEB10K: the table of docs/built-in-corpus.md.

    python benchmarks/calibrate_corpus.py                # three to five minutes
    python benchmarks/calibrate_corpus.py --samples 6    # a quick look

The sample is the first 5,000 lines of fold 1's train and test files, in `mslr_sample/` of $CLICKSHIFT_TEST_DATA or of
../shared/data beside the project. Each file's last query is cut short and left out: two halves of 42 queries.
LambdaMART is trained on one half and tested on the other, both ways. The built-in corpus is cut into samples of two
such halves and treated the same way. Standard errors are by bootstrap over queries, with training not repeated; how
much a mean over 84 queries varies with training is shown by the standard deviation over the built-in samples.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path

import lightgbm as lgb
import numpy as np
from scipy.stats import rankdata, spearmanr

from clickshift.core.rng import generator
from clickshift.data import builtin_corpus
from clickshift.data.corpus import Corpus
from clickshift.io.datasets.letor import read_corpus

Table = dict[str, np.ndarray]  # one row per query
HALF = 42
LARGE_TRAINING, LARGE_TEST = 500, 1000
FEATURES = {"BM25": 110, "BM25 of the title": 108, "BM25 of the url": 109, "clicks for the query": 134}
MARGINALS = {
    "words in the body": 11,
    "words in the anchor": 12,
    "query terms in the body": 21,
    "in the anchor": 22,
    "in the title": 23,
    "in the url": 24,
    "BM25": 110,
    "links to the page": 128,
    "SiteRank": 131,
    "clicks for the query": 134,
    "clicks for any query": 135,
}


def real_halves() -> list[Corpus]:
    shared = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("CLICKSHIFT_TEST_DATA", shared)) / "mslr_sample"
    halves = [read_corpus(folder / f"web10k_fold1_{part}_5k.txt.gz", cache=False) for part in ("train", "test")]
    # qids ascend in these files, so the last query of the corpus is the one that the cut went through
    return [half.with_queries(np.arange(half.n_queries - 1)) for half in halves]


def ndcg_at_10(score: np.ndarray, corpus: Corpus) -> np.ndarray:
    """nDCG@10 by query: gain 2^label - 1, discount log2(1 + rank), ties in file order; NaN where all are
    irrelevant."""
    query, gain = corpus.vocabulary.pair_query, np.exp2(corpus.label.astype(np.float64)) - 1
    rank = np.arange(corpus.n_pairs) - corpus.offsets[query]
    weight = np.where(rank < 10, 1 / np.log2(rank + 2), 0)
    found, best = (
        np.bincount(query, gain[np.lexsort((-by, query))] * weight) for by in (np.asarray(score, np.float64), gain)
    )
    return np.divide(found, best, out=np.full(corpus.n_queries, np.nan), where=best > 0)


def spearman(score: np.ndarray, corpus: Corpus) -> np.ndarray:
    """Rank correlation of score and label in each query; NaN where one of them does not vary."""
    rho = np.full(corpus.n_queries, np.nan)
    for q, (start, stop) in enumerate(zip(corpus.offsets[:-1], corpus.offsets[1:], strict=True)):
        s, y = score[start:stop], corpus.label[start:stop]
        if np.ptp(s) > 0 and np.ptp(y) > 0:
            rho[q] = np.corrcoef(rankdata(s), rankdata(y))[0, 1]
    return rho


def lambdamart(train: Corpus, test: Corpus) -> np.ndarray:
    """Scores of the test documents under LambdaMART: 100 trees of 31 leaves, learning rate .1."""
    settings = {"objective": "lambdarank", "num_leaves": 31, "learning_rate": 0.1, "verbose": -1, "seed": 0}
    data = lgb.Dataset(train.features, train.label, group=train.n_candidates)
    booster = lgb.train({**settings, "deterministic": True, "num_threads": 1}, data, 100)
    return np.asarray(booster.predict(test.features))


def measure(corpus: Corpus, score: np.ndarray | None = None) -> Table:
    """What is compared, by query; `score` is LambdaMART's."""
    query, label = corpus.vocabulary.pair_query, corpus.label.astype(int)
    grades = np.bincount(query * 5 + label, minlength=5 * corpus.n_queries).reshape(-1, 5)
    random = generator(0, "random order").random(corpus.n_pairs)
    table = {"grades": grades, "length": corpus.n_candidates, "best": np.maximum.reduceat(label, corpus.offsets[:-1])}
    for name, values in {
        "random order": random,
        "LambdaMART": score,
        **{name: corpus.feature(number) for name, number in FEATURES.items()},
    }.items():
        if values is not None:
            table[f"nDCG@10, {name}"] = ndcg_at_10(values, corpus)
            table[f"Spearman, {name}"] = spearman(values, corpus)
    return table


def two_fold(halves: list[Corpus]) -> Table:
    one, other = halves
    return joined([measure(one, lambdamart(other, one)), measure(other, lambdamart(one, other))])


def joined(tables: list[Table]) -> Table:
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}


def statistics() -> dict[str, Callable[[Table], float]]:
    def share(grade: int) -> Callable[[Table], float]:
        return lambda t: t["grades"][:, grade].sum() / t["grades"].sum()

    def mean(name: str) -> Callable[[Table], float]:
        return lambda t: float(np.nanmean(t[name]))

    def relevant(t: Table) -> np.ndarray:
        return np.asarray(1 - t["grades"][:, 0] / t["length"])

    return {
        **{f"documents of grade {grade}": share(grade) for grade in range(5)},
        "queries without a relevant document": lambda t: float(np.mean(t["best"] == 0)),
        "queries whose best grade is 3 or 4": lambda t: float(np.mean(t["best"] >= 3)),
        "queries whose best grade is 4": lambda t: float(np.mean(t["best"] == 4)),
        "relevant share of a query, sd": lambda t: float(relevant(t).std(ddof=1)),
        "candidates, mean": lambda t: float(t["length"].mean()),
        "candidates, 10th percentile": lambda t: float(np.percentile(t["length"], 10)),
        "candidates, median": lambda t: float(np.median(t["length"])),
        "candidates, 90th percentile": lambda t: float(np.percentile(t["length"], 90)),
        "Spearman, candidates and relevant share": lambda t: float(spearmanr(t["length"], relevant(t)).statistic),
        **{f"nDCG@10, {n}": mean(f"nDCG@10, {n}") for n in ("random order", *FEATURES, "LambdaMART")},
        **{f"Spearman, {n}": mean(f"Spearman, {n}") for n in ("BM25", "LambdaMART")},
        "nDCG@10 of BM25, sd over queries": lambda t: float(np.nanstd(t["nDCG@10, BM25"], ddof=1)),
        "Spearman of BM25, sd over queries": lambda t: float(np.nanstd(t["Spearman, BM25"], ddof=1)),
    }


def standard_error(statistic: Callable[[Table], float], table: Table) -> float:
    n = len(table["length"])
    rng = generator(0, "bootstrap")
    draws = (rng.integers(0, n, n) for _ in range(500))
    return float(np.std([statistic({name: column[rows] for name, column in table.items()}) for rows in draws], ddof=1))


def print_marginals(real: list[Corpus], made: Corpus) -> None:
    print("\n| feature | zeros, real | built-in | median, real | built-in | 95th percentile, real | built-in |")
    print("|---|---|---|---|---|---|---|")
    for name, number in MARGINALS.items():
        columns = np.concatenate([half.feature(number) for half in real]), made.feature(number)
        zeros = [f"{np.mean(column == 0):.2f}" for column in columns]
        quantiles = [f"{np.percentile(column, percent):,.0f}" for percent in (50, 95) for column in columns]
        print(f"| {number}, {name} | {' | '.join(zeros + quantiles)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare the built-in corpus with a sample of MSLR-WEB10K.")
    parser.add_argument("--samples", type=int, default=60, help="built-in samples of the real sample's size")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    sample = real_halves()
    real = two_fold(sample)
    corpus = builtin_corpus.builtin_corpus(2 * HALF * options.samples, seed=options.seed)
    halves = [corpus.with_queries(np.arange(HALF) + HALF * i) for i in range(2 * options.samples)]
    made = joined([two_fold(halves[i : i + 2]) for i in range(0, len(halves), 2)])

    print(f"| | real, {len(real['length'])} queries | built-in, {len(made['length']):,} queries | difference / SE |")
    print("|---|---|---|---|")
    for name, statistic in statistics().items():
        (a, a_se), (b, b_se) = ((statistic(t), standard_error(statistic, t)) for t in (real, made))
        digits = 0 if a >= 10 else 3 if a >= 0.05 else 4
        cells = [f"{value:.{digits}f} ± {se:.{digits or 1}f}" for value, se in ((a, a_se), (b, b_se))]
        print(f"| {name} | {cells[0]} | {cells[1]} | {(b - a) / np.hypot(a_se, b_se):+.1f} |")

    print_marginals(sample, corpus)

    print(f"\nStandard deviation of a mean over {2 * HALF} queries, from {options.samples} built-in samples:")
    for name in ("nDCG@10, BM25", "nDCG@10, LambdaMART", "Spearman, BM25", "Spearman, LambdaMART"):
        means = np.nanmean(made[name].reshape(options.samples, -1), axis=1)
        print(f"{name}: {means.std(ddof=1):.3f}")

    start = time.perf_counter()
    large = builtin_corpus.builtin_corpus(LARGE_TRAINING + LARGE_TEST, seed=options.seed + 1)
    seconds = time.perf_counter() - start
    train = large.with_queries(np.arange(LARGE_TRAINING))
    test = large.with_queries(np.arange(LARGE_TRAINING, large.n_queries))
    table = measure(test, lambdamart(train, test))
    print(f"\nTrained on {LARGE_TRAINING} built-in queries, tested on {LARGE_TEST} others:")
    for name in ("nDCG@10, LambdaMART", "Spearman, LambdaMART", "nDCG@10, BM25"):
        statistic = statistics()[name]
        print(f"{name}: {statistic(table):.3f} ± {standard_error(statistic, table):.3f}")
    print(f"\n{large} made in {seconds:.1f} s")


if __name__ == "__main__":
    main()
