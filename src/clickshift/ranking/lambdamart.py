"""Boosted trees on corrected labels: LambdaMART as a baseline, and the same data for LightGBM's and XGBoost's users.

A document's label is W / N of its correction (`labels`), its weight the sessions of its query over their mean.
LightGBM's lambdarank takes whole-numbered labels only, and looks their gain up in `label_gain`: here labels are grades,
numbered in ascending order, and their gains are what they stand for. XGBoost takes the relevance itself
(`ndcg_exp_gain=False`) and weights by query. LightGBM can also learn position bias by itself, as a score to be added at
each rank (`position`): that is bias="estimated", on clicks as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float, Int
from typing_extensions import override

from clickshift.core.parallel import n_threads
from clickshift.core.spec import label
from clickshift.counts.cells import Cells
from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Sessions
from clickshift.errors import DataError, SpecError
from clickshift.policies.basic import Scored
from clickshift.ranking.labels import Trust, check_known, count_by_rank, labels_for, sessions_by_query
from clickshift.ranking.ranker import check_width, network_features

LOSSES = ("ips", "policy-aware", "affine")
GRADES = 256
"""At most: where there are more distinct labels, neighbours share a grade, whose gain is their mean."""
_MOST_DOCS = 10_000  # LightGBM refuses longer lists


@final
@dataclass(frozen=True)
class BoostedRanker:
    """LightGBM's lambdarank on corrected labels.

    `loss` says how labels are corrected, `bias` what is known of examination, as for `ClickRanker`: "given", "naive",
    or "estimated", by LightGBM along with the trees. `clip` is the smallest propensity to divide by.
    """

    loss: str = "ips"
    bias: str = "given"
    trees: int = 100
    leaves: int = 31
    rate: float = 0.1
    clip: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.loss not in LOSSES or self.bias not in {"given", "naive", "estimated"}:
            raise SpecError(
                f"BoostedRanker needs a loss of {', '.join(LOSSES)} and a bias of given, naive, estimated: "
                f"got {self.loss!r} and {self.bias!r}."
            )
        if self.trees < 1 or self.leaves < 2 or not self.rate > 0 or not (self.clip is None or 0 < self.clip <= 1):
            raise SpecError("BoostedRanker needs trees of 1 or more, leaves of 2 or more, rate and clip above 0.")

    def fit(
        self,
        corpus: Corpus,
        clicks: Cells | Sessions,
        *,
        examination: Float[np.ndarray, " rank"] | None = None,
        trust: Trust | None = None,
    ) -> Trees:
        """Learn from a log, or its counts by rank."""
        import lightgbm

        check_known(self.loss, self.bias, examination, trust)
        data = boosting_data(
            corpus, count_by_rank(corpus, clicks), self.loss, examination=examination, trust=trust, clip=self.clip
        )
        if data.group.max() > _MOST_DOCS:
            raise DataError(f"LightGBM takes at most {_MOST_DOCS:,} documents per query: one has {data.group.max():,}.")
        settings = {
            "objective": "lambdarank",
            "label_gain": data.gain.tolist(),
            "num_leaves": self.leaves,
            "learning_rate": self.rate,
            "seed": self.seed % 2**31,
            "num_threads": n_threads(),
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
        }
        position = data.position if self.bias == "estimated" else None
        features = network_features(corpus)[data.pair]
        table = lightgbm.Dataset(features, data.grade, group=data.group, weight=data.weight, position=position)
        booster = lightgbm.train(settings, table, num_boost_round=self.trees)
        return Trees(booster.model_to_string(), features.shape[1], label(self))


@final
@dataclass(frozen=True, eq=False)
class Trees(Scored):
    """A ranker of boosted trees: LightGBM's text of them."""

    text: str
    n_features: int
    learner: str
    """The text form of what grew them."""

    @override
    def scores(self, corpus: Corpus) -> Float[np.ndarray, " pair"]:
        import lightgbm

        features = check_width(network_features(corpus), self.n_features)
        return np.asarray(lightgbm.Booster(model_str=self.text).predict(features))


@final
@dataclass(frozen=True, eq=False)
class BoostingData:
    """Documents with corrected labels, query by query; those of which nothing is known are left out."""

    corpus: Corpus
    pair: Int[np.ndarray, " row"]
    relevance: Float[np.ndarray, " row"]
    """W / N, but not below 0."""
    grade: Int[np.ndarray, " row"]
    gain: Float[np.ndarray, " grade"]
    """The relevance that each grade stands for: LightGBM's `label_gain`."""
    weight: Float[np.ndarray, " row"]
    """The sessions of the query, 1 on average over queries."""
    position: Int[np.ndarray, " row"]
    """The rank, from 0, at which the document was shown most often."""
    impressions: Float[np.ndarray, " row"]
    clicks: Float[np.ndarray, " row"]

    @property
    def group(self) -> Int[np.ndarray, " query"]:
        """How many rows each query has."""
        return np.unique(self.corpus.vocabulary.pair_query[self.pair], return_counts=True)[1]

    def table(self) -> Any:
        """A pyarrow table: query, doc, relevance, grade, weight, position (from 1), impressions, clicks, and the
        features f1, f2, ..."""
        import pyarrow as pa

        words = self.corpus.vocabulary
        columns: dict[str, Any] = {
            "query": _raw(words.query_ids[words.pair_query[self.pair]]),
            "doc": _raw(words.doc_ids[words.pair_doc[self.pair]]),
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
    """Without examination and trust, clicks are taken as they are."""
    labels = labels_for(clicks, loss, examination=examination, trust=trust, clip=clip)
    pair = np.flatnonzero(labels.total)
    if not len(pair):
        raise DataError("the clicks are on no document of the corpus: there is nothing to learn.")
    relevance = np.maximum(labels.positive[pair] / labels.total[pair], 0.0)
    grade, gain = distinct_grades(relevance)
    sessions = sessions_by_query(clicks)
    most = np.lexsort((clicks.impressions, clicks.pair))  # by pair, the rank that was shown most often last
    last = np.searchsorted(clicks.pair[most], pair, side="right") - 1
    impressions, clicked = clicks.by_pair()
    weight = sessions[corpus.vocabulary.pair_query[pair]] / sessions[sessions > 0].mean()
    position = clicks.rank()[most][last]
    return BoostingData(corpus, pair, relevance, grade, gain, weight, position, impressions[pair], clicked[pair])


def distinct_grades(
    relevance: Float[np.ndarray, " row"],
) -> tuple[Int[np.ndarray, " row"], Float[np.ndarray, " grade"]]:
    """The number of each value among the distinct ones, and what they are; of too many, equal shares have one grade.

    >>> distinct_grades(np.array([0.5, 0.0, 2.0, 0.5]))
    (array([1, 0, 2, 1]), array([0. , 0.5, 2. ]))
    """
    values, number, count = np.unique(relevance, return_inverse=True, return_counts=True)
    if len(values) <= GRADES:
        return number, values
    first = (np.cumsum(count) - count) * GRADES // len(relevance)  # of the rows below, as a share
    grade_of = np.unique(first, return_inverse=True)[1]
    total = np.bincount(grade_of, values * count) / np.bincount(grade_of, count)
    return grade_of[number], total


def _raw(ids: np.ndarray) -> np.ndarray:
    return ids.astype(object) if ids.dtype.kind == "T" else ids
