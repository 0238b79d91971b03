"""Data sets of the comparison of click models and IPS rankers: the paper's one-hot set, the built-in corpus, or files.

The data sets of the paper are recognised by their content and prepared as the authors' code does: Yahoo's features,
which are normalised, are not log-scaled, and those of Istella are clipped at 1e9.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from clickshift.core.files import content_key, unpacked_name
from clickshift.core.rng import generator
from clickshift.data.builtin_corpus import builtin_corpus
from clickshift.data.corpus import Corpus, CorpusSplit
from clickshift.errors import FileError, SpecError
from clickshift.experiments.click_vs_ips._one_hot import one_hot_split
from clickshift.experiments.click_vs_ips.published import set_of_split
from clickshift.io.datasets.letor import corpus_files, read_corpus
from clickshift.policies.lambdamart import LambdaMART
from clickshift.simulation.fixed_ranking import FixedRankingEngine, truncated
from clickshift.simulation.search_engine import BUILTIN

VERSION = 3
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
_ISTELLA_LARGEST = 1e9
"""Largest feature of Istella-S: larger numbers stand for unknown values."""


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
    as_published
        Whether rankers are trained as in the authors' code: every query has weight 1, the last round is kept, and the
        production ranker ranks the queries on which it was fitted, too.
    corpus
        Name or path of the data set.
    """

    documents: int = 10_000
    queries: int | None = None
    content: str = ONE_HOT
    as_published: bool = False
    corpus: str = field(default=ONE_HOT, repr=False, compare=False)

    @property
    def is_one_hot(self) -> bool:
        """Whether this is the one-hot set, with one or two occurrences of each document."""
        return self.content in {ONE_HOT, ONE_HOT_TWICE}

    @property
    def name(self) -> str:
        """Name of the data set in tables."""
        return self.corpus if self.is_one_hot or self.content == BUILTIN else Path(self.corpus).resolve().name

    @property
    def published_set(self) -> str:
        """Key of the data set of the IPS paper that this is, by its content; "" if it is another one."""
        if self.is_one_hot:
            return ONE_HOT
        return "" if self.content == BUILTIN else _published_set(self)

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

    Raises
    ------
    FileError
        "several-sets" if a folder holds the files of both sets of Yahoo.
    """
    if corpus in {ONE_HOT, ONE_HOT_TWICE}:
        return PointwiseData(content=corpus, corpus=corpus)
    if corpus == BUILTIN:
        return PointwiseData(content=corpus, corpus=corpus, queries=queries)
    files = corpus_files(corpus)
    _check_one_set(corpus, files)
    return PointwiseData(content=content_key(files), corpus=corpus, queries=queries)


def read_corpus_split(path: str | Path, *, fold: int = 0) -> CorpusSplit:
    """Read a training, held-out and test corpus from LETOR files.

    Parameters
    ----------
    path
        A LETOR file or folder. Files are assigned by name: train, vali and test, or LETOR's S1 to S5, which make five
        folds. Otherwise the queries are split at random, 60, 20 and 20 %.
    fold
        Number of the fold, from 0, for LETOR's S1 to S5.

    Raises
    ------
    FileError
        "several-sets" if a folder holds the files of both sets of Yahoo.
    """
    files = corpus_files(path)
    _check_one_set(path, files)
    names = [unpacked_name(file).name.lower() for file in files]
    by_part = [[file for file, name in zip(files, names, strict=True) if part in name] for part in _PARTS]
    if sum(map(len, by_part)) == len(files) and all(by_part):
        return _with_common_scale([read_corpus(group) for group in by_part])
    if _has_folds(files):
        rotated = files[fold:] + files[:fold]
        return _with_common_scale([read_corpus(group) for group in (rotated[:3], rotated[3:4], rotated[4:])])
    return _random_split(read_corpus(files))


def _check_one_set(path: str | Path, files: Sequence[Path]) -> None:
    """Check that files are not those of both sets of Yahoo."""
    names = [unpacked_name(file).name.lower() for file in files]
    sets = sorted({name[: len("set1")] for name in names if name.startswith(("set1.", "set2."))})
    if len(sets) > 1:
        raise FileError(
            path,
            "must hold the files of one data set: it has Yahoo's set1 and set2, which are of different countries. Move "
            "the files of one of them to a folder of its own; the IPS paper uses set1.",
            code="several-sets",
            sets=sets,
        )


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
    split = _prepared(split, set_of_split(split))
    if data.queries is None or data.queries >= split.train.n_queries:
        return split
    share = data.queries / split.train.n_queries
    return CorpusSplit(
        *(
            corpus.sample_queries(max(round(share * corpus.n_queries), 1), rng=generator(0, "queries", name))
            for name, corpus in zip(CorpusSplit._fields, split, strict=True)
        )
    )


@lru_cache(maxsize=8)
def _published_set(data: PointwiseData) -> str:
    """Return the key of the data set of the paper that files hold."""
    return set_of_split(read_corpus_split(data.corpus))


def _prepared(split: CorpusSplit, key: str) -> CorpusSplit:
    """Return the features of a data set of the paper as its authors prepare them, before rankers log-scale them.

    Rankers take the signed logarithm of features, log(1 + x). Yahoo's features are already normalised, so they are
    replaced by exp(x) - 1, of which the logarithm is x.
    """
    if key not in {"Yahoo", "Istella"}:
        return split

    def prepare(features: np.ndarray | None) -> np.ndarray:
        assert features is not None  # a data set without features is not recognised
        values: np.ndarray = np.expm1(features) if key == "Yahoo" else np.minimum(features, _ISTELLA_LARGEST)
        return values.astype(np.float32)

    return CorpusSplit(*(replace(part, features=prepare(part.features)) for part in split))


@lru_cache(maxsize=1)
def _engine(data: PointwiseData, seed: int) -> FixedRankingEngine:
    """Return the search engine of a data set other than one-hot; the last one is cached."""
    folds = len(_FOLDS) if data.content != BUILTIN and _has_folds(corpus_files(data.corpus)) else 1
    parts = truncated(_corpus_split(data, seed % folds), seed=seed)
    return FixedRankingEngine.of(parts, _LAMBDAMART, seed=seed, own_queries=data.as_published)


def values_by_seed(rows: Sequence[Mapping[str, Any]], metric: str, **where: Any) -> dict[int, float]:
    """Return one metric by seed, of the rows that have the given values."""
    return {row["seed"]: row[metric] for row in rows if all(row.get(name) == value for name, value in where.items())}
