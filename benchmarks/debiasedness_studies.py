"""What debiasedness metrics say of click models whose bias is known: the numbers of docs/debiasedness.md.

    python benchmarks/debiasedness_studies.py leakage         # does noise look like bias, and to which metric?
    python benchmarks/debiasedness_studies.py label-noise     # what do wrong and coarse labels do?
    python benchmarks/debiasedness_studies.py random-traffic  # can random lists or preferences replace labels?
    python benchmarks/debiasedness_studies.py real-rankers    # two real rankers of MQ2008 (skipped without the data)
    python benchmarks/debiasedness_studies.py intervals --seeds 200  # do intervals cover, and is the null calibrated?
    python benchmarks/debiasedness_studies.py query-effects --seeds 200  # does it hold where queries differ in level?

Each takes --seeds (20) and --queries (1,000) and writes its rows to benchmarks/results/debiasedness.json. A seed is
another built-in corpus, logging policy and log; intervals are Student-t over seeds. Users are PBM users who examine
rank k with probability 1 / k. The logging policy is NoisyOracle on labels (sd .5), Plackett-Luce at temperature .1. Ten
documents per query are stratified by label, and all are shown in every session.

"true examination" is clicks / sum of e_k over the impressions of a document. It is exactly unbiased given the ranks at
which the document stood, since E[click at k] = a e_k. So is the mean of click / e_k, which varies more. "PBM" is fitted
by EM as it comes, "PBM, weak prior" with one imaginary examination per document. "perfect" is the true attractiveness.

Values: ksg and classifier are CMIP in nats (the classifier leaves a row as it is where its label is too rare to be
mimicked), mean_dependence is the share of the estimate's variance within labels, slope the change of the estimate from
the logging policy's least to its most favoured document. p<.05 is the share of seeds in which MeanDependence finds a
bias, the other shares say what they count.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

import clickshift as cs
from clickshift.core.intervals import mean_interval
from clickshift.counts.cells import Cells
from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Rankings
from clickshift.debiasedness.classifier_cmi import Classifier, Logistic
from clickshift.debiasedness.label_grades import grades
from clickshift.debiasedness.metrics import CMIP, MeanDependence
from clickshift.debiasedness.relevance_from_preferences import relevance_from_orderings
from clickshift.debiasedness.relevance_from_random_traffic import relevance_from_random_log
from clickshift.debiasedness.scored_pairs import ScoredPairs
from clickshift.policies.base import ScoredPolicy

RESULTS = Path(__file__).parent / "results" / "debiasedness.json"
SESSIONS = 1000
"""Per query, where a study does not vary them."""
BM25_OF_MQ2008 = 37
"""LETOR 4.0's published list says 25, but in the data features 21 to 40 stand by stream (body, anchor, title, URL,
whole document), not by ranker: 25 to 28 are 0 wherever the anchor text has no query term."""

ORDERED = ("true examination", "PBM", "naive CTR")
"""Models that are far from each other given true labels: does another source of labels keep their order?"""

Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    found: list[Row] = []
    for seed in range(options.seeds):
        found.extend(STUDIES[options.study](seed, options.queries))
        print(f"seed {seed + 1} of {options.seeds}", file=sys.stderr, flush=True)
    if not found:
        return
    rows = summarised(found)
    show(rows)
    kept = json.loads(options.out.read_text()) if options.out.exists() else {}
    kept[options.study] = {"seeds": options.seeds, "queries": options.queries, "rows": rows}
    options.out.write_text(json.dumps(kept, indent=1) + "\n")


def leakage(seed: int, queries: int) -> Iterator[Row]:
    """From 30 to 3,000 sessions per query; the smaller logs are the beginnings of the largest."""
    world = World.of(stratified(queries, seed), seed)
    sizes = (30, 100, 300, 1000, 3000)
    log = world.log(sizes[-1])
    for size in sizes:
        for name, estimate in world.estimates(Cells.of(log[: size * queries])).items():
            rows = world.rows(estimate)
            yield {
                "sessions": f"{size:,} per query",
                "estimate": name,
                **metrics(rows, seed),
                "classifier": published(rows, seed),
            }


def label_noise(seed: int, queries: int) -> Iterator[Row]:
    corpus = stratified(queries, seed)
    world, rng = World.of(corpus, seed), np.random.default_rng(seed)
    estimates = world.some_estimates()
    label = corpus.label.astype(np.float64)
    labels = {f"{share:.0%} off by one": flipped(label, share, rng) for share in (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)}
    labels["0 | 1 2 | 3 4"] = np.ceil(label / 2)
    labels["0 | 1 2 3 4"] = np.minimum(label, 1)
    for said, used in labels.items():
        for name, estimate in estimates.items():
            yield {"labels": said, "estimate": name, **metrics(world.rows(estimate, used), seed)}
    for width in (0.25, 0.5, 1.0):
        # users and the logging policy see a relevance of which the label is the nearest grade
        fine = np.clip(label + width * (rng.random(len(label)) - 0.5), 0, corpus.max_label)
        finer = World.of(Corpus(corpus.vocabulary, fine, max_label=corpus.max_label), seed)
        for name, estimate in finer.some_estimates().items():
            said = f"relevance varies by {width:g} grade within a label"
            yield {"labels": said, "estimate": name, **metrics(finer.rows(estimate, label), seed)}


def random_traffic(seed: int, queries: int) -> Iterator[Row]:
    """Do models keep their order without annotators, and is the one that is plainly biased the last?"""
    world = World.of(stratified(queries, seed), seed)
    estimates = world.estimates(Cells.of(world.log(SESSIONS)))
    label = world.corpus.label.astype(np.float64)
    sources = {"labels": label}
    sizes = (10, 30, 100, 300, 1000)
    random = cs.simulate(world.corpus, cs.Uniform(), cs.users.PBM(), sizes[-1] * queries, rng=10_000 + seed)
    for size in sizes:
        relevance = relevance_from_random_log(random[: size * queries])
        sources[f"{size} random sessions per query"] = relevance
    yield from compared(world, sources, estimates, seed)
    preferred = preferences(world.corpus, 300, np.random.default_rng(seed))
    sources = {"labels, within queries": label}
    for size in (10, 30, 100, 300):
        some = preferred[np.flatnonzero(np.arange(len(preferred)) % 300 < size)]
        sources[f"{size} preferences per query, within queries"] = relevance_from_orderings(some)
    yield from compared(world, sources, estimates, seed, within=True)


def compared(
    world: World, sources: dict[str, np.ndarray], estimates: dict[str, np.ndarray], seed: int, *, within: bool = False
) -> Iterator[Row]:
    """Every estimate given every source, the first of which is the truth.

    `within` compares scores within queries alone, as preferences do.
    """
    truth = world.corpus.label.astype(np.float64)
    wanted: dict[str, list[str]] = {}  # the order of the estimates given the truth
    for said, relevance in sources.items():
        used, found = relevance if not wanted else grades(relevance), {}
        for name, estimate in estimates.items():
            rows = world.rows(estimate, used)
            found[name] = metrics(rows.within_queries() if within else rows, seed)
        order = {m: sorted(ORDERED, key=lambda name, m=m: found[name][m]) for m in ("ksg", "mean_dependence")}
        wanted = wanted or order
        kept = {f"{m} order kept": order[m] == wanted[m] for m in order}
        last = {f"{m} CTR last": order[m][-1] == "naive CTR" for m in order}
        known = ~np.isnan(relevance)
        correlation = float(np.corrcoef(relevance[known], truth[known])[0, 1])
        for name, values in found.items():
            yield {"source": said, "estimate": name, **values, "correlation": correlation, **kept, **last}


def real_rankers(seed: int, queries: int) -> Iterator[Row]:
    """Clicks on lists of each ranker; debiasedness with respect to it, and to the one that made no list.

    Rankers are real and fixed, users are not: a seed is another log on the same queries, of which all are used.
    """
    folder = Path(os.environ.get("CLICKSHIFT_TEST_DATA", Path(__file__).parents[2] / "shared" / "data")) / "mq2008"
    if not folder.is_dir():
        print(f"skipped: no MQ2008 at {folder}. Set CLICKSHIFT_TEST_DATA to the folder that holds it.")
        return
    corpus, scores = ranked(folder)
    for logged_by, score in scores.items():
        world = World(corpus, score, seed)
        cells = Cells.of(world.log(SESSIONS))
        shown = cells.by_pair()[0] > 0
        for name, estimate in world.estimates(cells).items():
            for asked, about in scores.items():
                seen = np.where(shown, estimate, np.nan)
                rows = ScoredPairs.of_pairs(corpus.vocabulary, seen, about, corpus.label.astype(np.float64))
                values = {**metrics(rows, seed), "rows": float(len(rows))}
                yield {"lists by": logged_by, "with respect to": asked, "estimate": name, **values}


@cache
def ranked(folder: Path) -> tuple[Corpus, dict[str, np.ndarray]]:
    corpus = cs.read_corpus(folder)
    corpus = corpus.with_queries(corpus.usable_queries(min_docs=5))
    rankers: dict[str, ScoredPolicy] = {"BM25": cs.Feature(BM25_OF_MQ2008), "LambdaMART": cs.LambdaMART()}
    return corpus, {name: ranker.scores(corpus) for name, ranker in rankers.items()}


def intervals(seed: int, queries: int) -> Iterator[Row]:
    """Normal scores with a known dependence within labels, ten documents per query: a seed is one draw.

    Rows of a query may have a share of their variance in common ("alike"), and estimates be noisier for documents that
    the logging policy disliked ("uneven noise", of which CMIP has no closed form). The truth of mean dependence is the
    squared correlation times 3 / pi, what a line in ranks explains of a line in normal scores.
    """
    rng = np.random.default_rng(seed)
    for n in (100, 300):
        for correlation, alike, uneven in (
            (0.0, 0.0, 0.0),
            (0.0, 0.3, 0.0),
            (0.3, 0.0, 0.0),
            (0.3, 0.3, 0.0),
            (0.7, 0.0, 0.0),
            (0.0, 0.0, 0.7),
        ):
            rows = normal_rows(n, correlation, alike, uneven, rng)
            cmip = CMIP(permutations=19, subsamples=40)(rows, rng=rng)
            mean = MeanDependence(permutations=19, subsamples=40)(rows, rng=rng)
            information, share = -0.5 * np.log(1 - correlation**2), correlation**2 * 3 / np.pi
            yield {
                "queries": str(n),
                "correlation": f"{correlation:g}",
                "alike": f"{alike:g}",
                "uneven noise": f"{uneven:g}",
                "ksg - truth": float(cmip.value - information) if not uneven else float("nan"),
                "ksg covers": bool(cmip.low <= information <= cmip.high),
                "ksg p<=.05": cmip.p_value <= 0.05,
                "mean - truth": float(mean.value - share),
                "mean covers": bool(mean.low <= share <= mean.high),
                "mean p<=.05": mean.p_value <= 0.05,
            }


def query_effects(seed: int, queries: int) -> Iterator[Row]:
    """Share of p-values up to .05 where all scores of a query have a level in common, with standard deviation "level".

    Within a query and a label, scores are normal with the correlation of the row (0: every p-value up to .05 is a false
    alarm). "as independent rows" gives every row a query of its own: logging scores are then exchanged between queries.
    """
    classifier = CMIP(Classifier(splits=1, fits=1, by=Logistic(), keep_unmatched=True), permutations=19, subsamples=0)
    for n in (25, 100):
        for correlation, level in ((0.0, 0.0), (0.0, 1.0), (0.0, 3.0), (0.5, 0.0), (0.5, 1.0), (0.5, 3.0)):
            rng = np.random.default_rng([seed, n, int(10 * correlation), int(level)])
            rows = normal_rows(n, correlation, 0.0, 0.0, rng)
            common = level * rng.standard_normal((2, n))[:, rows.query]
            rows = ScoredPairs(rows.query, rows.estimate + common[0], rows.logging + common[1], rows.label)
            alone = ScoredPairs(np.arange(len(rows)), rows.estimate, rows.logging, rows.label)
            ksg, mean = CMIP(permutations=19, subsamples=0), MeanDependence(permutations=19, subsamples=0)
            yield {
                "queries": str(n),
                "correlation": f"{correlation:g}",
                "level": f"{level:g}",
                "ksg as independent rows": ksg(alone, rng=rng).p_value <= 0.05,
                "ksg": ksg(rows, rng=rng).p_value <= 0.05,
                "ksg of ranks within queries": ksg(rows.within_queries(), rng=rng).p_value <= 0.05,
                "classifier": classifier(rows, rng=rng).p_value <= 0.05,
                "mean as independent rows": mean(alone, rng=rng).p_value <= 0.05,
                "mean": mean(rows, rng=rng).p_value <= 0.05,
            }


def normal_rows(queries: int, correlation: float, alike: float, uneven: float, rng: np.random.Generator) -> ScoredPairs:
    query = np.repeat(np.arange(queries), 10)
    label = rng.choice(5, len(query), p=[0.5, 0.3, 0.13, 0.05, 0.02]).astype(float)
    common = rng.standard_normal((2, queries))[:, query]
    liked, own = np.sqrt(alike) * common + np.sqrt(1 - alike) * rng.standard_normal((2, len(query)))
    estimate = correlation * liked + np.sqrt(1 - correlation**2) * own * np.exp(-uneven * liked)
    return ScoredPairs.of(query, estimate=estimate + 2 * label, logging=liked + label, label=label)


STUDIES: dict[str, Callable[[int, int], Iterable[Row]]] = {
    "leakage": leakage,
    "label-noise": label_noise,
    "random-traffic": random_traffic,
    "real-rankers": real_rankers,
    "intervals": intervals,
    "query-effects": query_effects,
}


@dataclass(frozen=True)
class World:
    """Documents, what the logging policy thinks of them, and PBM users."""

    corpus: Corpus
    score: np.ndarray
    seed: int

    @classmethod
    def of(cls, corpus: Corpus, seed: int) -> World:
        return cls(corpus, cs.NoisyOracle(sd=0.5, scale="label", seed=seed).scores(corpus), seed)

    def log(self, sessions_per_query: int) -> cs.Sessions:
        policy = cs.PlackettLuce(cs.Scores(self.corpus.vocabulary, self.score), temperature=0.1)
        return cs.simulate(
            self.corpus, policy, cs.users.PBM(), sessions_per_query * self.corpus.n_queries, rng=self.seed
        )

    def estimates(self, cells: Cells) -> dict[str, np.ndarray]:
        examination = cs.users.PBM().exposure(cells.n_ranks)[cells.situation]
        impressions, clicks = cells.by_pair()
        examined = np.bincount(cells.pair, cells.impressions * examination, self.corpus.n_pairs)
        return {
            "true examination": clicks / np.where(examined > 0, examined, 1),
            "naive CTR": clicks / np.maximum(impressions, 1),
            "PBM": cs.MaximumLikelihood("PBM").fit(cells).relevance(),
            "PBM, weak prior": cs.MaximumLikelihood("PBM", prior=(0.1, 1.0)).fit(cells).relevance(),
        }

    def some_estimates(self) -> dict[str, np.ndarray]:
        found = self.estimates(Cells.of(self.log(SESSIONS)))
        perfect = {"perfect": cs.users.PBM().on(self.corpus).relevance()}
        return perfect | {name: found[name] for name in ("true examination", "naive CTR")}

    def rows(self, estimate: np.ndarray, label: np.ndarray | None = None) -> ScoredPairs:
        used = self.corpus.label.astype(np.float64) if label is None else label
        return ScoredPairs.of_pairs(self.corpus.vocabulary, estimate, self.score, used)


def stratified(queries: int, seed: int) -> Corpus:
    """Ten documents of each query; some queries leave fewer and are dropped, hence the surplus."""
    corpus = cs.builtin_corpus(queries * 3 // 2 + 20, seed=seed)
    rng = np.random.default_rng(seed)
    corpus = corpus.with_queries(corpus.usable_queries()).stratified(10, rng=rng)
    return corpus.with_queries(corpus.n_candidates == 10).sample_queries(queries, rng=rng)


def flipped(label: np.ndarray, share: float, rng: np.random.Generator, best: int = 4) -> np.ndarray:
    """A share of the labels one grade up or down, at the ends of the scale the only way there is."""
    step = np.where(rng.random(len(label)) < 0.5, -1, 1)
    step = np.where(label == 0, 1, np.where(label == best, -1, step))
    return np.where(rng.random(len(label)) < share, label + step, label)


def preferences(corpus: Corpus, per_query: int, rng: np.random.Generator) -> Rankings:
    """Random pairs of each query's documents, preferred by logistic noise on the difference of their labels."""
    query = np.repeat(np.arange(corpus.n_queries, dtype=np.int32), per_query)
    size, start = corpus.n_candidates[query], corpus.offsets[query]
    first = rng.integers(0, size)
    pair = start[:, None] + np.stack([first, (first + rng.integers(1, size)) % size], axis=1)
    better = rng.random(len(query)) < expit(corpus.label[pair[:, 0]] - corpus.label[pair[:, 1]])
    return Rankings(corpus.vocabulary, query, np.where(better[:, None], pair, pair[:, ::-1]))


def metrics(rows: ScoredPairs, seed: int) -> Row:
    mean = MeanDependence(permutations=199, subsamples=0)(rows, rng=seed)
    ksg = CMIP(permutations=0, subsamples=0)(rows, rng=seed)
    return {"ksg": ksg.value, "mean_dependence": mean.value, "slope": mean.slope, "p<.05": mean.p_value < 0.05}


def published(rows: ScoredPairs, seed: int) -> float:
    return CMIP(Classifier(keep_unmatched=True), permutations=0, subsamples=0)(rows, rng=seed).value


def summarised(found: list[Row]) -> list[Row]:
    """One row per setting: [mean, low, high] over seeds of every number, and the share of seeds of every yes or no."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in found:
        groups.setdefault(tuple(value for value in row.values() if isinstance(value, str)), []).append(row)
    return [{key: over_seeds([row[key] for row in rows]) for key in rows[0]} for rows in groups.values()]


def over_seeds(values: list[Any]) -> Any:
    if isinstance(values[0], bool):
        return round(float(np.mean(values)), 3)
    return [round(x, 5) for x in mean_interval(values)] if isinstance(values[0], float) else values[0]


def show(rows: list[Row]) -> None:
    cells = [[_text(value) for value in row.values()] for row in rows]
    widths = [max(map(len, column)) for column in zip(list(rows[0]), *cells, strict=True)]
    for line in [list(rows[0]), *cells]:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def _text(value: Any) -> str:
    if not isinstance(value, list):
        return str(value)
    mean, low, high = value
    return f"{mean:.4f}" if low == high or np.isnan(low) else f"{mean:.4f} [{low:.4f}, {high:.4f}]"


if __name__ == "__main__":
    main()
