"""LambdaMART on corrected labels, and the same training data for users of LightGBM and XGBoost.

The label of a document is W / N of its correction (`clickshift.ranking.labels`), its weight the number of sessions of
its query divided by their mean. LightGBM's lambdarank accepts integer labels only and looks up their gain in
`label_gain`: here, labels are grades, numbered in ascending order, and their gains are the relevance that they stand
for. XGBoost accepts the relevance itself (`ndcg_exp_gain=False`) and weights by query. LightGBM can also estimate
position bias itself, as a score to be added at each rank (`position`): that is bias="estimated", on uncorrected clicks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float, Int
from typing_extensions import override

from clickshift.core.boosting import check_trees
from clickshift.core.spec import label
from clickshift.counts.cells import Cells
from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Sessions
from clickshift.errors import DataError, SpecError
from clickshift.grading.quantiles import quantile_grades
from clickshift.policies.basic import Scored
from clickshift.policies.lambdamart import train_lambdarank
from clickshift.propensity.files import Trust
from clickshift.ranking.labels import check_position_bias, count_by_rank, labels_for, sessions_by_query
from clickshift.ranking.ranker import check_feature_count, checked_features

_LOSSES = ("ips", "policy-aware", "affine")
_BIASES = ("given", "naive", "estimated")
_MAX_GRADES = 256
"""Largest number of grades: with more distinct labels, neighbours share a grade, whose gain is their mean."""


@final
@dataclass(frozen=True)
class BoostedRanker:
    """LambdaMART (LightGBM's lambdarank) on corrected labels.

    Parameters
    ----------
    loss
        Correction of the labels: "ips", "policy-aware" or "affine", as for `ClickRanker`.
    bias
        Position bias: "given" to `fit`, "naive" (every rank counts as examined), or "estimated" by LightGBM along with
        the trees.
    trees
        Number of trees.
    leaves
        Number of leaves of a tree.
    rate
        Learning rate.
    clip
        Smallest propensity to divide by; None for no clipping.
    seed
        Random seed of LightGBM.

    Raises
    ------
    SpecError
        If an option is not valid ("bad-option").

    References
    ----------
    Burges, C. (2010). From RankNet to LambdaRank to LambdaMART: an overview. Microsoft Research.

    Examples
    --------
    >>> BoostedRanker("affine", trees=50)
    BoostedRanker(loss='affine', bias='given', trees=50, leaves=31, rate=0.1, clip=None, seed=0)
    """

    loss: str = "ips"
    bias: str = "given"
    trees: int = 100
    leaves: int = 31
    rate: float = 0.1
    clip: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.loss not in _LOSSES or self.bias not in _BIASES:
            raise SpecError(
                f"BoostedRanker needs a loss of {', '.join(_LOSSES)} and a bias of {', '.join(_BIASES)}: "
                f"got {self.loss!r} and {self.bias!r}.",
                code="bad-option",
                loss=self.loss,
                bias=self.bias,
            )
        check_trees("BoostedRanker", trees=self.trees, leaves=self.leaves, rate=self.rate)
        if self.clip is not None and not 0 < self.clip <= 1:
            raise SpecError(
                f"clip must be a propensity above 0, up to 1: got {self.clip}.", code="bad-option", clip=self.clip
            )

    def fit(
        self,
        corpus: Corpus,
        clicks: Cells | Sessions,
        *,
        examination: Float[np.ndarray, " rank"] | None = None,
        trust: Trust | None = None,
    ) -> TreeRanker:
        """Train trees on a log, or on its counts by rank.

        Parameters
        ----------
        corpus
            Documents with their features.
        clicks
            A log, or its counts in the vocabulary of the corpus.
        examination
            Examination by rank, for bias "given".
        trust
            Trust bias by rank, instead of `examination`.

        Returns
        -------
        TreeRanker
            The ranker.

        Raises
        ------
        SpecError
            If position bias is missing or not used ("missing-examination", "missing-trust", "unused-examination",
            "unused-trust").
        DataError
            If clicks, features or examination are not valid ("no-common-documents", "no-features", "not-finite",
            "bad-examination", "zero-propensity"), or a query has too many documents ("lists-too-long").
        """
        check_position_bias(self.loss, self.bias, examination, trust)
        data = boosting_data(
            corpus, count_by_rank(corpus, clicks), self.loss, examination=examination, trust=trust, clip=self.clip
        )
        features = checked_features(corpus)[data.pair]
        booster = train_lambdarank(
            features,
            data.grade,
            data.gain.tolist(),
            group=data.group,
            trees=self.trees,
            leaves=self.leaves,
            rate=self.rate,
            seed=self.seed,
            weight=data.weight,
            position=data.position if self.bias == "estimated" else None,
        )
        return TreeRanker(booster.model_to_string(), features.shape[1], label(self))


@final
@dataclass(frozen=True, eq=False)
class TreeRanker(Scored):
    """Ranker of boosted trees.

    Parameters
    ----------
    text
        LightGBM's model text.
    n_features
        Number of features that a document must have.
    learner
        Spec text of the learner that grew the trees.
    training_queries
        Int[query hash]: fingerprints of the queries that it was trained on; None where they are not known.
    """

    text: str
    n_features: int
    learner: str
    training_queries: np.ndarray | None = None

    @override
    def scores(self, corpus: Corpus) -> Float[np.ndarray, " pair"]:
        """Return the score of every document of a corpus.

        Raises
        ------
        DataError
            If the features are not those that the ranker was trained on ("no-features", "not-finite",
            "wrong-feature-count").
        """
        import lightgbm

        features = check_feature_count(checked_features(corpus), self.n_features)
        return np.asarray(lightgbm.Booster(model_str=self.text).predict(features))

    def staged_scores(self, corpus: Corpus, trees: Sequence[int]) -> Iterator[Float[np.ndarray, " pair"]]:
        """Yield the scores of the documents by the first trees only, for ascending numbers of trees."""
        import lightgbm

        booster, features = lightgbm.Booster(model_str=self.text), checked_features(corpus)
        scores, start = np.zeros(len(features)), 0
        for number in trees:
            scores = scores + np.asarray(booster.predict(features, start_iteration=start, num_iteration=number - start))
            start = number
            yield scores

    def feature_importance(self) -> Float[np.ndarray, " feature"]:
        """Return the total gain of the splits on each feature."""
        import lightgbm

        return np.asarray(lightgbm.Booster(model_str=self.text).feature_importance("gain"))

    @property
    def n_trees(self) -> int:
        """Number of trees."""
        import lightgbm

        return int(lightgbm.Booster(model_str=self.text).num_trees())


@final
@dataclass(frozen=True, eq=False)
class BoostingData:
    """Training data for gradient boosting: documents with corrected labels, sorted by query.

    Documents without information are left out.

    Parameters
    ----------
    corpus
        The corpus of the documents.
    pair
        The (query, document) pair of each row.
    relevance
        Corrected label W / N, at least 0.
    grade
        Integer grade of the relevance.
    gain
        Relevance that each grade stands for: LightGBM's `label_gain`.
    weight
        Number of sessions of the query, scaled to a mean of 1 over queries.
    position
        Rank, from 0, at which the document was shown most often.
    impressions, clicks
        Total counts of the document.
    """

    corpus: Corpus
    pair: Int[np.ndarray, " row"]
    relevance: Float[np.ndarray, " row"]
    grade: Int[np.ndarray, " row"]
    gain: Float[np.ndarray, " grade"]
    weight: Float[np.ndarray, " row"]
    position: Int[np.ndarray, " row"]
    impressions: Float[np.ndarray, " row"]
    clicks: Float[np.ndarray, " row"]

    @property
    def group(self) -> Int[np.ndarray, " query"]:
        """Number of rows of each query."""
        return np.unique(self.corpus.vocabulary.pair_query[self.pair], return_counts=True)[1]

    def table(self) -> Any:
        """Return a pyarrow table with one row per document.

        Its columns are query, doc, relevance, grade, weight, position (from 1), impressions, clicks, and the features
        f1, f2, ...
        """
        import pyarrow as pa

        vocabulary = self.corpus.vocabulary
        columns: dict[str, Any] = {
            "query": arrow_ids(vocabulary.query_ids[vocabulary.pair_query[self.pair]]),
            "doc": arrow_ids(vocabulary.doc_ids[vocabulary.pair_doc[self.pair]]),
            "relevance": self.relevance,
            "grade": self.grade,
            "weight": self.weight,
            "position": self.position + 1,
            "impressions": self.impressions,
            "clicks": self.clicks,
        }
        if self.corpus.features is not None:
            rows = self.corpus.features[self.pair]
            columns |= {f"f{k + 1}": rows[:, k] for k in range(rows.shape[1])}
        return pa.table(columns)


def boosting_data(
    corpus: Corpus,
    clicks: Cells,
    loss: str = "ips",
    *,
    examination: Float[np.ndarray, " rank"] | None = None,
    trust: Trust | None = None,
    clip: float | None = None,
) -> BoostingData:
    """Compute training data for gradient boosting from counts by rank.

    Parameters
    ----------
    corpus
        Documents with their features.
    clicks
        Counts by rank in the vocabulary of the corpus.
    loss
        Correction of the labels: "ips", "policy-aware" or "affine".
    examination, trust
        Examination by rank, or trust bias; with neither, clicks are not corrected.
    clip
        Smallest propensity to divide by.

    Returns
    -------
    BoostingData
        Documents with labels, grades and weights.

    Raises
    ------
    DataError
        If no document of the corpus was shown ("no-common-documents"), or examination is not valid ("bad-examination",
        "zero-propensity").
    """
    labels = labels_for(clicks, loss, examination=examination, trust=trust, clip=clip)
    pair = np.flatnonzero(labels.total)
    if not len(pair):
        raise DataError(
            "no document of the corpus was shown: there is nothing to learn from. Check that the log and the corpus "
            "use the same query and document ids.",
            code="no-common-documents",
        )
    relevance = np.maximum(labels.positive[pair] / labels.total[pair], 0.0)
    grade, gain = _grade_relevance(relevance)
    sessions = sessions_by_query(clicks)
    order = np.lexsort((clicks.impressions, clicks.pair))  # by pair, the rank with most impressions last
    last = np.searchsorted(clicks.pair[order], pair, side="right") - 1
    impressions, clicked = clicks.by_pair()
    weight = sessions[corpus.vocabulary.pair_query[pair]] / sessions[sessions > 0].mean()
    position = clicks.rank()[order][last]
    return BoostingData(corpus, pair, relevance, grade, gain, weight, position, impressions[pair], clicked[pair])


def _grade_relevance(
    relevance: Float[np.ndarray, " row"],
) -> tuple[Int[np.ndarray, " row"], Float[np.ndarray, " grade"]]:
    """Number the distinct values in ascending order, and return the grade of each row and the value of each grade.

    With more than 256 distinct values, neighbours are merged into grades with about equally many rows.

    >>> _grade_relevance(np.array([0.5, 0.0, 2.0, 0.5]))
    (array([1, 0, 2, 1]), array([0. , 0.5, 2. ]))
    """
    values, first, number, count = np.unique(relevance, return_index=True, return_inverse=True, return_counts=True)
    if len(values) <= _MAX_GRADES:
        return number, values
    grade = quantile_grades(relevance, _MAX_GRADES, by="lowest")
    return grade, np.bincount(grade[first], values * count) / np.bincount(grade[first], count)


def arrow_ids(ids: np.ndarray) -> np.ndarray:
    """Return ids as pyarrow accepts them: numpy's variable-width strings as objects."""
    return ids.astype(object) if ids.dtype.kind == "T" else ids
