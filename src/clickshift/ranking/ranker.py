"""Ranker: a network or one-hot table learned from clicks. It is its weights, and a policy like any other."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float, Int
from typing_extensions import override

from clickshift.core.parallel import for_ranges
from clickshift.data.corpus import Corpus, signed_log
from clickshift.errors import ClickshiftWarning, DataError
from clickshift.policies.basic import Scored

_MAX_NAMED_FEATURES = 5
"""Largest number of features that a warning names."""
_CHUNK = 4096
"""Number of documents that are scored at once."""


@final
@dataclass(frozen=True, eq=False)
class Ranker(Scored):
    """Ranker that scores documents by their features.

    A score is the logit of relevance; scores of a listwise loss have no scale. Layer k of a network computes
    values @ weights["k"] + weights["k.bias"], followed by ELU except after the last layer, from features scaled as
    sign(x) log(1 + |x|). A one-hot tower is weights["table"], indexed by the first feature, + weights["intercept"].

    Parameters
    ----------
    tower
        "network" or "one-hot".
    weights
        Arrays by name, see above.
    learner
        Spec text of the learner that found the weights.
    examination
        Float[rank]: examination, where it was estimated along with relevance.
    held_out_loss
        Held-out loss of the round that was kept, in nats per query.
    rounds
        Number of training rounds.
    converged
        Whether early stopping ended the training; False if the rounds ran out first.
    losses
        Held-out loss after each round, in nats per query.
    training_queries
        Int[query hash]: fingerprints of the queries that it was trained on; None where they are not known.
    """

    tower: str
    weights: Mapping[str, np.ndarray]
    learner: str
    examination: np.ndarray | None = None
    held_out_loss: float = float("nan")
    rounds: int = 0
    converged: bool = True
    losses: tuple[float, ...] = ()
    training_queries: np.ndarray | None = None

    @property
    def n_features(self) -> int:
        """Number of features that a document must have."""
        return 1 if self.tower == "one-hot" else len(self.weights["0"])

    @override
    def scores(self, corpus: Corpus) -> Float[np.ndarray, " pair"]:
        """Return the score of every document of a corpus.

        Raises
        ------
        DataError
            If the features are not those that the ranker was trained on ("no-features", "not-finite",
            "wrong-feature-count", "bad-one-hot-feature", "feature-out-of-range").
        """
        if self.tower == "one-hot":
            return self._one_hot_scores(one_hot_columns(corpus))
        features = check_feature_count(checked_features(corpus), self.n_features)
        scores = np.empty(len(features))

        def score_rows(rows: slice) -> None:
            scores[rows] = self.score(features[rows])

        for_ranges(score_rows, len(features), chunk=_CHUNK)
        return scores

    def relevance(self, corpus: Corpus) -> Float[np.ndarray, " pair"]:
        """Return the sigmoid of the scores: the probability that a document is clicked given that it is examined."""
        relevance: np.ndarray = 0.5 * (1 + np.tanh(0.5 * self.scores(corpus)))
        return relevance

    def score(self, features: Float[np.ndarray, "document feature"]) -> Float[np.ndarray, " document"]:
        """Return a network's scores of documents that are given by their features alone."""
        values, last = signed_log(features), len(self.weights) // 2 - 1
        for layer in range(last + 1):
            values = values @ self.weights[f"{layer}"] + self.weights[f"{layer}.bias"]
            if layer < last:
                values = np.where(values > 0, values, np.expm1(np.minimum(values, 0)))
        return values[:, 0]

    def _one_hot_scores(self, column: Int[np.ndarray, " pair"]) -> np.ndarray:
        """Look up the logits of columns of the one-hot table."""
        table = self.weights["table"]
        if column.max() >= len(table):
            raise DataError(
                f"a one-hot feature must be from 0 to {len(table) - 1}, the values that the ranker was trained on: got "
                f"{column.max()}. Remove such documents.",
                code="feature-out-of-range",
                value=int(column.max()),
                largest=len(table) - 1,
            )
        score: np.ndarray = (table[column] + self.weights["intercept"]).astype(np.float64)
        return score


def checked_features(corpus: Corpus) -> Float[np.ndarray, "pair feature"]:
    """Return the features of a corpus, checked to be finite numbers.

    Raises
    ------
    DataError
        If the corpus has no features ("no-features") or one of them is not a finite number ("not-finite").
    """
    if corpus.features is None:
        raise DataError(
            "a ranker needs features: this corpus has none. Pass a corpus with features.", code="no-features"
        )
    if not np.isfinite(corpus.features.sum(dtype=np.float64)):
        pair, feature = np.argwhere(~np.isfinite(corpus.features))[0].tolist()
        vocabulary = corpus.vocabulary
        doc = vocabulary.doc_ids[vocabulary.pair_doc[pair]]
        query = vocabulary.query_ids[vocabulary.pair_query[pair]]
        raise DataError(
            f"a feature must be a finite number: got {corpus.features[pair, feature]} as feature {feature + 1} of "
            f"document {doc} of query {query}. Fill it, e.g. with 0.",
            code="not-finite",
            feature=feature + 1,
            document=str(doc),
            query=str(query),
        )
    return corpus.features


def check_feature_count(features: Float[np.ndarray, "pair feature"], width: int) -> Float[np.ndarray, "pair feature"]:
    """Return the features, checked to be as many as the ranker was trained on ("wrong-feature-count")."""
    if features.shape[1] != width:
        raise DataError(
            f"documents must have the {width} features that the ranker was trained on: got {features.shape[1]}. "
            "Pass the same features, in the same order.",
            code="wrong-feature-count",
            expected=width,
            count=features.shape[1],
        )
    return features


def one_hot_columns(corpus: Corpus) -> Int[np.ndarray, " pair"]:
    """Return the first feature of every document as a column of a one-hot table ("bad-one-hot-feature")."""
    column = corpus.feature(1)
    bad = ~((column >= 0) & (column < 2**24) & (column % 1 == 0))
    if bad.any():
        raise DataError(
            f"the first feature must be a whole number from 0 on, for tower='one-hot': got {column[bad][0]:g}. "
            "Number its values from 0, or use tower='network'.",
            code="bad-one-hot-feature",
            value=float(column[bad][0]),
        )
    return column.astype(np.int32)


def warn_constant_features(corpus: Corpus) -> None:
    """Warn of features that are the same for all documents: a file may have been put together wrongly."""
    features = checked_features(corpus)
    constant = np.flatnonzero(features.max(axis=0) == features.min(axis=0)) + 1
    if len(constant):
        ellipsis = ", ..." if len(constant) > _MAX_NAMED_FEATURES else ""
        named = ", ".join(map(str, constant[:_MAX_NAMED_FEATURES])) + ellipsis
        warnings.warn(
            ClickshiftWarning(
                f"{len(constant)} of {features.shape[1]} features are the same for all documents: {named}. "
                "Nothing can be learned from them.",
                code="constant-features",
                features=constant.tolist(),
                count=len(constant),
            ),
            stacklevel=3,
        )
