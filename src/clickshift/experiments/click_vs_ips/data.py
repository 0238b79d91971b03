"""Data sets of the comparison of click models and IPS rankers: the paper's one-hot set, the built-in corpus, or files.

The numbers that the IPS paper printed are here too, for the data sets that it used.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
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

VERSION = 2
"""Version of the rows: increased when a code change changes numbers, so that old rows are not mixed with new ones."""
PRODUCTION = "Production"
NAIVE, PBM_ESTIMATED, PBM_TRUE, IPS_TRUE = "Naive", "PBM, estimated bias", "PBM, true bias", "IPS, true bias"
"""Names of the rankers in the tables."""
RANKING_METRICS = ("nDCG@5", "nDCG@10", "ARP")
COUNTS, SESSIONS = "drawn counts", "single sessions"
"""Kinds of simulated clicks."""
CLICK_LOSS, IPS_LOSS = "PBM", "IPS"
ONE_HOT, ONE_HOT_TWICE = "one-hot", "one-hot-twice"
_SHARES = (0.6, 0.2, 0.2)
"""Shares of the queries for training, early stopping and testing, for data without a split of its own."""
_PARTS = ("train", "val", "test")
"""Parts of the names of files that make up a split."""
_FOLDS = ("S1", "S2", "S3", "S4", "S5")
"""Files of LETOR 4.0: three to train on, one for early stopping, one to test; each fold starts one file later."""
_LAMBDAMART = LambdaMART(rescale=False)


@dataclass(frozen=True)
class PointwiseData:
    """A data set, as texts and numbers only, because it is a part of every cell's key.

    The one-hot set is drawn for every seed, and its production ranker is random: LightGBM needs 20 documents in a leaf,
    and no column of the one-hot table has two. Other sets are truncated to the number of documents that 90 % of the
    queries have, with a random sample for every seed, and ranked by a LambdaMART that is trained on 20 queries. The
    five folds of LETOR take turns: seed 0 uses the first.

    Parameters
    ----------
    documents
        Number of documents of the one-hot set, each in one query of every split, or in two (docs/decisions/0010).
    queries
        Number of training queries, and the same share of the others; None for all, or 1,000 of the built-in corpus.
    content
        Identity of the data set: its name, or a digest of its files.
    corpus
        Name or path of the data set.
    """

    documents: int = 10_000
    queries: int | None = None
    content: str = ONE_HOT
    corpus: str = field(default=ONE_HOT, repr=False, compare=False)

    @property
    def is_one_hot(self) -> bool:
        """Whether this is the one-hot set, with one or two occurrences of each document."""
        return self.content in {ONE_HOT, ONE_HOT_TWICE}

    @property
    def name(self) -> str:
        """Name of the data set in tables."""
        return self.corpus if self.is_one_hot or self.content == BUILTIN else Path(self.corpus).resolve().name

    def engine(self, seed: int, *, collisions: float = 0.0) -> FixedRankingEngine:
        """Return the search engine of a seed, with the same production ranker for all models and numbers of sessions.

        Parameters
        ----------
        seed
            Random seed.
        collisions
            Collision rate, for the one-hot set.

        Raises
        ------
        SpecError
            If there are collisions on another data set ("collisions-need-one-hot").
        """
        if self.is_one_hot:
            occurrences = 2 if self.content == ONE_HOT_TWICE else 1
            split = one_hot_split(seed=seed, collisions=collisions, occurrences=occurrences, documents=self.documents)
            return FixedRankingEngine.of(split, None, seed=seed)
        if collisions:
            raise SpecError(
                f"only the one-hot set can have collisions: got {self.name!r}. Use {ONE_HOT!r}.",
                code="collisions-need-one-hot",
                data=self.name,
            )
        return _engine(self, seed)


def pointwise_data(corpus: str, *, queries: int | None = None) -> PointwiseData:
    """Return the data set of a name or path.

    Parameters
    ----------
    corpus
        "one-hot", "one-hot-twice", "builtin", or a LETOR file or folder.
    queries
        Number of training queries; None for the default. The one-hot set ignores it.
    """
    if corpus in {ONE_HOT, ONE_HOT_TWICE}:
        return PointwiseData(content=corpus, corpus=corpus)
    if corpus == BUILTIN:
        return PointwiseData(content=corpus, corpus=corpus, queries=queries)
    return PointwiseData(content=content_key(corpus_files(corpus)), corpus=corpus, queries=queries)


def read_corpus_split(path: str | Path, *, fold: int = 0) -> CorpusSplit:
    """Read a training, held-out and test corpus from LETOR files.

    Parameters
    ----------
    path
        A LETOR file or folder. Files are assigned by name: train, vali and test, or LETOR's S1 to S5, which make five
        folds. Otherwise the queries are split at random, 60, 20 and 20 %.
    fold
        Number of the fold, from 0, for LETOR's S1 to S5.
    """
    files = corpus_files(path)
    names = [unpacked_name(file).name.lower() for file in files]
    by_part = [[file for file, name in zip(files, names, strict=True) if part in name] for part in _PARTS]
    if sum(map(len, by_part)) == len(files) and all(by_part):
        return _with_common_scale([read_corpus(group) for group in by_part])
    if _has_folds(files):
        rotated = files[fold:] + files[:fold]
        return _with_common_scale([read_corpus(group) for group in (rotated[:3], rotated[3:4], rotated[4:])])
    return _random_split(read_corpus(files))


def _has_folds(files: Sequence[Path]) -> bool:
    """Whether the files are LETOR's S1 to S5."""
    return tuple(file.name.split(".")[0] for file in files) == _FOLDS


def _random_split(corpus: Corpus) -> CorpusSplit:
    """Split the queries of a corpus at random, 60, 20 and 20 %."""
    order = generator(0, "parts").permutation(corpus.n_queries)
    cuts = np.rint(np.cumsum(_SHARES[:2]) * corpus.n_queries).astype(int)
    return CorpusSplit(*(corpus.with_queries(part) for part in np.split(order, cuts)))


def _with_common_scale(corpora: list[Corpus]) -> CorpusSplit:
    """Give all corpora the same highest grade and number of features: one file may lack the highest of either."""
    max_label = max(corpus.max_label for corpus in corpora)
    width = max(0 if corpus.features is None else corpus.features.shape[1] for corpus in corpora)
    return CorpusSplit(
        *(replace(corpus, max_label=max_label, features=_padded_features(corpus, width)) for corpus in corpora)
    )


def _padded_features(corpus: Corpus, width: int) -> np.ndarray | None:
    """Return the features of a corpus, padded with zeros to a number of features."""
    if corpus.features is None or corpus.features.shape[1] == width:
        return corpus.features
    return np.pad(corpus.features, ((0, 0), (0, width - corpus.features.shape[1])))


@lru_cache(maxsize=1)
def _corpus_split(data: PointwiseData, fold: int) -> CorpusSplit:
    """Return the corpora of a data set other than one-hot, with the chosen number of queries."""
    if data.content == BUILTIN:
        return _random_split(builtin_corpus(data.queries or 1000))
    split = read_corpus_split(data.corpus, fold=fold)
    if data.queries is None or data.queries >= split.train.n_queries:
        return split
    share = data.queries / split.train.n_queries
    return CorpusSplit(
        *(
            corpus.sample_queries(max(round(share * corpus.n_queries), 1), rng=generator(0, "queries", name))
            for name, corpus in zip(CorpusSplit._fields, split, strict=True)
        )
    )


@lru_cache(maxsize=1)
def _engine(data: PointwiseData, seed: int) -> FixedRankingEngine:
    """Return the search engine of a data set other than one-hot; the last one is cached."""
    folds = len(_FOLDS) if data.content != BUILTIN and _has_folds(corpus_files(data.corpus)) else 1
    return FixedRankingEngine.of(truncated(_corpus_split(data, seed % folds), seed=seed), _LAMBDAMART, seed=seed)


_FIGURE = {"sessions": "figure1", "collisions": "figure4", "eta": "figure5"}
"""Figure of the paper that shows nDCG@10 by each axis."""


@cache
def _published() -> dict[str, Any]:
    """Return the published numbers."""
    text = (files("clickshift.experiments") / "published" / "pointwise.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def published_name(data: str) -> str:
    """Return the name of a data set in the paper's tables, from the name of its folder; "" if the paper lacks it.

    >>> published_name("Istella-S"), published_name("one-hot-twice"), published_name("builtin")
    ('Istella', 'one-hot', '')
    """
    return next((name for name in _published()["table2"] if name.lower() in data.lower()), "")


def published_curve(data: str, axis: str, model: str) -> dict[float, float]:
    """Return the published nDCG@10 by sessions, collisions or eta; empty if the paper has no such figure."""
    figure = _published()[_FIGURE[axis]]
    values = figure.get(published_name(data), {}).get(model, [])
    return dict(zip(figure[axis], values, strict=False))


def published_row(data: str, model: str) -> list[list[float]] | None:
    """Return the published mean and standard deviation of nDCG@5, nDCG@10 and ARP after 100 million sessions."""
    row: list[list[float]] | None = _published()["table2"].get(published_name(data), {}).get(model)
    return row


def values_by_seed(rows: Sequence[Mapping[str, Any]], metric: str, **where: Any) -> dict[int, float]:
    """Return one metric by seed, of the rows that have the given values."""
    return {row["seed"]: row[metric] for row in rows if all(row.get(name) == value for name, value in where.items())}
