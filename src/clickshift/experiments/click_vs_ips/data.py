"""The sets on which click models meet IPS rankers: the paper's one-hot set, the built-in corpus, or files."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from clickshift.core.files import content_key, unpacked_name
from clickshift.core.rng import generator
from clickshift.data.builtin_corpus import builtin_corpus
from clickshift.data.corpus import Corpus, CorpusSplit
from clickshift.errors import SpecError
from clickshift.experiments.click_vs_ips._one_hot import one_hot_split
from clickshift.io.datasets.letor import corpus_files, read_corpus
from clickshift.policies.lambdamart import LambdaMART
from clickshift.simulation.fixed_ranking import FixedRankingEngine, truncated
from clickshift.simulation.search_engine import BUILTIN

ONE_HOT, ONE_HOT_TWICE = "one-hot", "one-hot-twice"
_SHARES = (0.6, 0.2, 0.2)
"""Of the queries, where a set has no parts of its own."""
_PARTS = ("train", "val", "test")
_FOLDS = ("S1", "S2", "S3", "S4", "S5")
"""LETOR 4.0: the first three to learn from, one to stop by, one to test; each further fold begins one part later."""
_LAMBDAMART = LambdaMART(rescale=False)


@dataclass(frozen=True)
class PointwiseData:
    """Texts and numbers only: a part of every cell's key.

    The one-hot set is drawn anew for every seed, and its production ranker is random: LightGBM wants 20 documents in
    a leaf, and no column of the one-hot table has two. Other sets are cut to the number of documents that 90 % of the
    queries have, anew for every seed, and ranked by a LambdaMART of 20 queries. LETOR's five folds take turns: seed 0
    has the first.
    """

    documents: int = 10_000
    """Of the one-hot set, each in one query of every part, or in two (docs/decisions/0010)."""
    queries: int | None = None
    """How many of the training queries, and the same share of the others; None: all, 1,000 of the built-in corpus."""
    content: str = ONE_HOT
    """What tells one set from another: its name, or a digest of its files."""
    corpus: str = field(default=ONE_HOT, repr=False, compare=False)
    """Where it is."""

    @property
    def is_one_hot(self) -> bool:
        return self.content in {ONE_HOT, ONE_HOT_TWICE}

    @property
    def name(self) -> str:
        """For tables."""
        return self.corpus if self.is_one_hot or self.content == BUILTIN else Path(self.corpus).resolve().name

    def engine(self, seed: int, *, collisions: float = 0.0) -> FixedRankingEngine:
        """The same production ranker for all models and numbers of sessions of a seed."""
        if self.is_one_hot:
            times = 2 if self.content == ONE_HOT_TWICE else 1
            parts = one_hot_split(seed=seed, collisions=collisions, occurrences=times, documents=self.documents)
            return FixedRankingEngine.of(parts, None, seed=seed)
        if collisions:
            raise SpecError(f"only the one-hot set can have collisions: got {self.name!r}. Use {ONE_HOT!r}.")
        return _engine(self, seed)


def pointwise_data(corpus: str, *, queries: int | None = None) -> PointwiseData:
    """From the command line's words: 'one-hot', 'one-hot-twice', 'builtin', or a LETOR file or folder."""
    if corpus in {ONE_HOT, ONE_HOT_TWICE}:
        return PointwiseData(content=corpus, corpus=corpus)
    if corpus == BUILTIN:
        return PointwiseData(content=corpus, corpus=corpus, queries=queries)
    return PointwiseData(content=content_key(corpus_files(corpus)), corpus=corpus, queries=queries)


def read_corpus_split(path: str | Path, *, fold: int = 0) -> CorpusSplit:
    """By the names of the files: train, vali and test, or LETOR's S1 to S5, of which there are five folds; else 60, 20
    and 20 % of the queries."""
    files = corpus_files(path)
    names = [unpacked_name(file).name.lower() for file in files]
    by_part = [[file for file, name in zip(files, names, strict=True) if part in name] for part in _PARTS]
    if sum(map(len, by_part)) == len(files) and all(by_part):
        return _alike([read_corpus(group) for group in by_part])
    if _has_folds(files):
        turned = files[fold:] + files[:fold]
        return _alike([read_corpus(group) for group in (turned[:3], turned[3:4], turned[4:])])
    return _random_split(read_corpus(files))


def _has_folds(files: Sequence[Path]) -> bool:
    return tuple(file.name.split(".")[0] for file in files) == _FOLDS


def _random_split(corpus: Corpus) -> CorpusSplit:
    """60, 20 and 20 % of the queries, at random."""
    order = generator(0, "parts").permutation(corpus.n_queries)
    cuts = np.rint(np.cumsum(_SHARES[:2]) * corpus.n_queries).astype(int)
    return CorpusSplit(*(corpus.with_queries(part) for part in np.split(order, cuts)))


def _alike(parts: list[Corpus]) -> CorpusSplit:
    """With one scale of labels and one number of features: a part may lack the highest of either."""
    best = max(part.max_label for part in parts)
    width = max(0 if part.features is None else part.features.shape[1] for part in parts)
    return CorpusSplit(*(replace(part, max_label=best, features=_wide(part, width)) for part in parts))


def _wide(part: Corpus, width: int) -> np.ndarray | None:
    if part.features is None or part.features.shape[1] == width:
        return part.features
    return np.pad(part.features, ((0, 0), (0, width - part.features.shape[1])))


@lru_cache(maxsize=1)
def _parts(data: PointwiseData, fold: int) -> CorpusSplit:
    if data.content == BUILTIN:
        return _random_split(builtin_corpus(data.queries or 1000))
    parts = read_corpus_split(data.corpus, fold=fold)
    if data.queries is None or data.queries >= parts.train.n_queries:
        return parts
    share = data.queries / parts.train.n_queries
    return CorpusSplit(
        *(
            corpus.sample_queries(max(round(share * corpus.n_queries), 1), rng=generator(0, "queries", name))
            for name, corpus in zip(CorpusSplit._fields, parts, strict=True)
        )
    )


@lru_cache(maxsize=1)
def _engine(data: PointwiseData, seed: int) -> FixedRankingEngine:
    folds = len(_FOLDS) if data.content != BUILTIN and _has_folds(corpus_files(data.corpus)) else 1
    return FixedRankingEngine.of(truncated(_parts(data, seed % folds), seed=seed), _LAMBDAMART, seed=seed)


_FIGURE = {"sessions": "figure1", "collisions": "figure4", "eta": "figure5"}


@cache
def _published() -> dict[str, Any]:
    text = (files("clickshift.experiments") / "published" / "pointwise.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def published_name(data: str) -> str:
    """The name of a set in the paper's tables, by the name of its folder; "" for a set of one's own.

    >>> published_name("Istella-S"), published_name("one-hot-twice"), published_name("builtin")
    ('Istella', 'one-hot', '')
    """
    return next((name for name in _published()["table2"] if name.lower() in data.lower()), "")


def published_curve(data: str, axis: str, model: str) -> dict[float, float]:
    """nDCG@10 by sessions, collisions or eta, where there is a figure of it."""
    figure = _published()[_FIGURE[axis]]
    values = figure.get(published_name(data), {}).get(model, [])
    return dict(zip(figure[axis], values, strict=False))


def published_row(data: str, model: str) -> list[list[float]] | None:
    """Mean and standard deviation of nDCG@5, nDCG@10 and ARP after 100 million sessions."""
    row: list[list[float]] | None = _published()["table2"].get(published_name(data), {}).get(model)
    return row
