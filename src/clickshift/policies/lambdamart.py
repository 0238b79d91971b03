"""LambdaMART policy: a production ranker of gradient-boosted trees, fitted on labels of other queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float, Int
from typing_extensions import override

from clickshift.core.boosting import check_trees, lightgbm_settings
from clickshift.core.rng import generator
from clickshift.data.corpus import Corpus
from clickshift.data.vocabulary import UNSEEN
from clickshift.errors import DataError, SpecError
from clickshift.policies.base import Number
from clickshift.policies.basic import Scored, min_max_scaled

_MAX_DOCS = 10_000  # LightGBM rejects longer lists


@final
@dataclass(frozen=True)
class LambdaMART(Scored):
    """Policy that ranks by LightGBM's lambdarank on all features, never fitted on a query that it ranks.

    A ranker orders the queries it was fitted on far better than new ones; on them it would be nearly an oracle. With
    `train` it is fitted on that corpus, which must share no query with the one it ranks. Without `train` it is
    cross-fitted: each of `folds` parts of the queries is scored by a model fitted on the other parts. Every call of
    `scores` or `on` fits the model again; `Scores` stores the scores of one fit.

    Parameters
    ----------
    trees
        Number of trees.
    leaves
        Number of leaves per tree.
    rate
        Learning rate.
    n_queries
        Number of training queries to fit on, drawn at random, for a weak ranker; None for all of them.
    folds
        Number of folds of the cross-fitting.
    rescale
        Whether to map each query's scores to [0, 1]: raw scores of different models are not comparable.
    seed
        Random seed of the folds, of the training queries and of LightGBM.
    train
        Corpus to fit on; None to cross-fit on the corpus that is ranked.

    Raises
    ------
    SpecError
        "bad-option" if an option is out of range.
    DataError
        When it is fitted: "shared-query", "no-features", "wrong-shape" (another number of features),
        "too-few-queries", "not-integers" (labels) or "lists-too-long".

    References
    ----------
    Burges, C. J. C. (2010). From RankNet to LambdaRank to LambdaMART: an overview. Microsoft Research MSR-TR-2010-82.

    Examples
    --------
    >>> import clickshift as cs
    >>> scores = LambdaMART(trees=2, leaves=4).scores(cs.builtin_corpus(10))
    >>> (scores.min().item(), scores.max().item())
    (0.0, 1.0)
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
        check_trees("LambdaMART", trees=self.trees, leaves=self.leaves, rate=self.rate)
        if self.folds < 2:
            raise SpecError(
                f"cross-fitting needs at least 2 folds: got {self.folds}. Pass `train` to fit on another corpus.",
                code="bad-option",
                option="folds",
                value=self.folds,
            )

    @override
    def scores(self, corpus: Corpus) -> Float[np.ndarray, " pair"]:
        score = self._cross_fitted_scores(corpus) if self.train is None else self._fitted_scores(self.train, corpus)
        return min_max_scaled(corpus, score) if self.rescale else score

    def _fitted_scores(self, train: Corpus, corpus: Corpus) -> np.ndarray:
        """Return scores of the corpus by a model fitted on `train`."""
        shared = corpus.vocabulary.query_numbers(train.vocabulary.query_ids) != UNSEEN
        if shared.any():
            raise DataError(
                f"LambdaMART must not rank queries that it was fitted on: `train` shares {int(shared.sum()):,} with "
                f"the corpus, e.g. {train.vocabulary.query_ids[shared][0]}. Remove them, or omit `train` to cross-fit.",
                code="shared-query",
                count=int(shared.sum()),
                query=train.vocabulary.query_ids[shared][0],
            )
        features = _features(corpus)
        if features.shape[1] != _features(train).shape[1]:
            raise DataError(
                f"`train` must have the corpus' {features.shape[1]} features: it has {_features(train).shape[1]}.",
                code="wrong-shape",
                expected=features.shape[1],
                count=_features(train).shape[1],
            )
        score: np.ndarray = self._fit(train).predict(features)
        return score

    def _cross_fitted_scores(self, corpus: Corpus) -> np.ndarray:
        """Return scores of the corpus, each fold's by a model fitted on the other folds."""
        if corpus.n_queries < self.folds:
            raise DataError(
                f"{self.folds} folds need at least as many queries: the corpus has {corpus.n_queries}. "
                "Use a larger corpus, or pass `train`.",
                code="too-few-queries",
                count=corpus.n_queries,
            )
        features, score = _features(corpus), np.empty(corpus.n_pairs)
        fold = generator(self.seed, "LambdaMART", "folds").permutation(corpus.n_queries) % self.folds
        for held_out in range(self.folds):
            rows = (fold == held_out)[corpus.vocabulary.pair_query]
            score[rows] = self._fit(corpus.with_queries(fold != held_out)).predict(features[rows])
        return score

    def _fit(self, corpus: Corpus) -> Any:
        """Fit LightGBM on the corpus, or on `n_queries` of its queries."""
        if self.n_queries is not None:
            if not 1 <= self.n_queries <= corpus.n_queries:
                raise DataError(
                    f"n_queries must be from 1 to the {corpus.n_queries} queries to fit on: got {self.n_queries}.",
                    code="too-few-queries",
                    count=corpus.n_queries,
                    value=self.n_queries,
                )
            corpus = corpus.sample_queries(self.n_queries, rng=generator(self.seed, "LambdaMART", "queries"))
        if (corpus.label % 1).any():
            label = corpus.label[corpus.label % 1 != 0][0]
            raise DataError(
                f"lambdarank needs integer labels: got {label}. Round them first.",
                code="not-integers",
                value=float(label),
            )
        gain = [2.0**grade - 1 for grade in range(corpus.max_label + 1)]
        return train_lambdarank(
            _features(corpus),
            corpus.label,
            gain,
            group=corpus.n_candidates,
            trees=self.trees,
            leaves=self.leaves,
            rate=self.rate,
            seed=self.seed,
        )


def train_lambdarank(
    features: np.ndarray,
    grade: np.ndarray,
    gain: list[float],
    *,
    group: Int[np.ndarray, " query"],
    trees: int,
    weight: np.ndarray | None = None,
    position: np.ndarray | None = None,
    **options: Any,
) -> Any:
    """Train LightGBM's lambdarank.

    Parameters
    ----------
    features
        Features of each document, sorted by query.
    grade
        Integer grade of each document.
    gain
        Gain of each grade.
    group
        Number of documents of each query.
    trees
        Number of trees.
    weight
        Weight of each document; None for equal ones.
    position
        Rank of each document, for LightGBM's own estimate of position bias.
    **options
        Number of leaves, learning rate and seed, see `lightgbm_settings`.

    Returns
    -------
    lightgbm.Booster
        The trees.

    Raises
    ------
    DataError
        If a query has more documents than LightGBM accepts ("lists-too-long").
    """
    import lightgbm

    if group.max() > _MAX_DOCS:
        raise DataError(
            f"LightGBM accepts at most {_MAX_DOCS:,} documents per query: one has {group.max():,}. Remove some.",
            code="lists-too-long",
            count=int(group.max()),
            limit=_MAX_DOCS,
        )
    settings = lightgbm_settings("lambdarank", label_gain=gain, **options)
    data = lightgbm.Dataset(features, grade, group=group, weight=weight, position=position)
    return lightgbm.train(settings, data, num_boost_round=trees)


def _features(corpus: Corpus) -> np.ndarray:
    """Return the feature matrix of the corpus, which must have one."""
    if corpus.features is None:
        raise DataError(
            "LambdaMART ranks by features: this corpus has none. Read one with features, or choose another policy.",
            code="no-features",
        )
    return corpus.features
