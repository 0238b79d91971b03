"""LambdaMART: gradient-boosted trees that a production ranker might be, fitted on labels of other queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from clickshift.core.parallel import n_threads
from clickshift.core.rng import generator
from clickshift.data.corpus import Corpus
from clickshift.data.vocabulary import UNSEEN
from clickshift.errors import DataError, SpecError
from clickshift.policies.base import Number
from clickshift.policies.basic import Scored, min_max_scaled

_MOST_DOCS = 10_000  # LightGBM refuses longer lists


@final
@dataclass(frozen=True)
class LambdaMART(Scored):
    """LightGBM's lambdarank on all features, never fitted on a query that it ranks.

    A ranker orders the queries it was fitted on far better than new ones: on them it would be nearly an oracle. With
    `train` it is fitted on that corpus, which must share no query with the one it ranks. Without, it is cross-fitted:
    each of `folds` parts of the queries is scored by a model of the other parts. Raw scores of different models are not
    comparable; `rescale` maps each query's scores to [0, 1]. `n_queries` fits on that many of the training queries,
    drawn at random: a weak ranker. Every call of `scores` or `on` fits anew; `Scores` keeps what it found.
    """

    trees: int = 100
    leaves: int = 31
    rate: Number = 0.1
    n_queries: int | None = None
    folds: int = 2
    rescale: bool = True
    seed: int = 0
    train: Corpus | None = None

    def __post_init__(self) -> None:
        if self.trees < 1 or self.leaves < 2 or not self.rate > 0:
            raise SpecError(
                "LambdaMART needs trees >= 1, leaves >= 2 and rate > 0: "
                f"got trees={self.trees}, leaves={self.leaves}, rate={self.rate}."
            )
        if self.folds < 2:
            raise SpecError(f"cross-fitting needs at least 2 folds: got {self.folds}. Give `train` to fit elsewhere.")

    @override
    def scores(self, corpus: Corpus) -> Float[np.ndarray, " pair"]:
        score = self._cross_fitted(corpus) if self.train is None else self._fitted_on(self.train, corpus)
        return min_max_scaled(corpus, score) if self.rescale else score

    def _fitted_on(self, train: Corpus, corpus: Corpus) -> np.ndarray:
        shared = corpus.vocabulary.query_numbers(train.vocabulary.query_ids) != UNSEEN
        if shared.any():
            raise DataError(
                f"LambdaMART must not rank queries that it was fitted on: `train` shares {int(shared.sum()):,} with "
                f"the corpus, e.g. {train.vocabulary.query_ids[shared][0]}. Drop them, or omit `train` to cross-fit."
            )
        features = _features(corpus)
        if features.shape[1] != _features(train).shape[1]:
            raise DataError(
                f"`train` must have the corpus' {features.shape[1]} features: it has {_features(train).shape[1]}."
            )
        score: np.ndarray = self._fit(train).predict(features)
        return score

    def _cross_fitted(self, corpus: Corpus) -> np.ndarray:
        if corpus.n_queries < self.folds:
            raise DataError(
                f"{self.folds} folds need at least as many queries: the corpus has {corpus.n_queries}. "
                "Use a larger corpus, or give `train`."
            )
        features, score = _features(corpus), np.empty(corpus.n_pairs)
        fold = generator(self.seed, "LambdaMART", "folds").permutation(corpus.n_queries) % self.folds
        for held_out in range(self.folds):
            mine = (fold == held_out)[corpus.vocabulary.pair_query]
            score[mine] = self._fit(corpus.with_queries(fold != held_out)).predict(features[mine])
        return score

    def _fit(self, corpus: Corpus) -> Any:
        import lightgbm

        if self.n_queries is not None:
            if not 1 <= self.n_queries <= corpus.n_queries:
                raise DataError(
                    f"n_queries must be from 1 to the {corpus.n_queries} queries to fit on: got {self.n_queries}."
                )
            corpus = corpus.sample_queries(self.n_queries, rng=generator(self.seed, "LambdaMART", "queries"))
        if (corpus.label % 1).any():
            label = corpus.label[corpus.label % 1 != 0][0]
            raise DataError(f"lambdarank needs whole-numbered labels: got {label}. Round them first.")
        if corpus.n_candidates.max() > _MOST_DOCS:
            raise DataError(
                f"LightGBM takes at most {_MOST_DOCS:,} documents per query: one has {corpus.n_candidates.max():,}. "
                "Drop some."
            )
        settings = {
            "objective": "lambdarank",
            "label_gain": [2.0**grade - 1 for grade in range(corpus.max_label + 1)],
            "num_leaves": self.leaves,
            "learning_rate": self.rate,
            "seed": self.seed % 2**31,
            "num_threads": n_threads(),
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
        }
        data = lightgbm.Dataset(_features(corpus), corpus.label, group=corpus.n_candidates)
        return lightgbm.train(settings, data, num_boost_round=self.trees)


def _features(corpus: Corpus) -> np.ndarray:
    if corpus.features is None:
        raise DataError("LambdaMART ranks by features: this corpus has none. Read one that has, or use another policy.")
    return corpus.features
