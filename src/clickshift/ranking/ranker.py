"""Ranker: what was learned from clicks. It is its weights, and a policy like any other."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float, Int
from typing_extensions import override

from clickshift.core.parallel import for_ranges
from clickshift.data.corpus import Corpus
from clickshift.errors import ClickshiftWarning, DataError
from clickshift.policies.basic import Scored

_NAMED = 5  # features that a warning names
_AT_ONCE = 4096  # documents


@final
@dataclass(frozen=True, eq=False)
class Ranker(Scored):
    """Scores documents by their features. A score is the logit of relevance; of a listwise loss it has no scale.

    A network's layer k computes values @ weights["k"] + weights["k.bias"], followed by ELU but for the last one, from
    features as sign(x) log(1 + |x|). A one-hot tower is weights["table"], by the first feature, + weights["intercept"].
    """

    tower: str
    """"network" or "one-hot"."""
    weights: Mapping[str, np.ndarray]
    learner: str
    """The text form of what found the weights."""
    examination: np.ndarray | None = None
    """Float[rank]: where it was learned along with relevance."""
    held_out_loss: float = float("nan")
    """Of the round that was kept: nats per query."""
    rounds: int = 0
    """How many there were."""
    converged: bool = True
    """False where rounds ran out before held-out clicks said stop."""

    @property
    def n_features(self) -> int:
        return 1 if self.tower == "one-hot" else len(self.weights["0"])

    @override
    def scores(self, corpus: Corpus) -> Float[np.ndarray, " pair"]:
        if self.tower == "one-hot":
            return self._looked_up(column_numbers(corpus))
        features = check_width(network_features(corpus), self.n_features)
        out = np.empty(len(features))

        def score(rows: slice) -> None:
            out[rows] = self.score(features[rows])

        for_ranges(score, len(features), chunk=_AT_ONCE)
        return out

    def relevance(self, corpus: Corpus) -> Float[np.ndarray, " pair"]:
        """Sigmoids of the scores: the probability that a document is clicked if it is examined."""
        relevance: np.ndarray = 0.5 * (1 + np.tanh(0.5 * self.scores(corpus)))
        return relevance

    def score(self, features: Float[np.ndarray, "document feature"]) -> Float[np.ndarray, " document"]:
        """A network's scores of documents that are in no corpus."""
        values, last = signed_log(features), len(self.weights) // 2 - 1
        for layer in range(last + 1):
            values = values @ self.weights[f"{layer}"] + self.weights[f"{layer}.bias"]
            if layer < last:
                values = np.where(values > 0, values, np.expm1(np.minimum(values, 0)))
        return values[:, 0]

    def _looked_up(self, column: Int[np.ndarray, " pair"]) -> np.ndarray:
        table = self.weights["table"]
        if column.max() >= len(table):
            raise DataError(
                f"a one-hot feature must be from 0 to {len(table) - 1}, what the ranker has learned: got "
                f"{column.max()}. Leave such documents out."
            )
        score: np.ndarray = (table[column] + self.weights["intercept"]).astype(np.float64)
        return score


def network_features(corpus: Corpus) -> Float[np.ndarray, "pair feature"]:
    """As they are in the corpus, every one a number."""
    if corpus.features is None:
        raise DataError("a ranker needs features: this corpus has none. Read one that has.")
    if not np.isfinite(corpus.features.sum(dtype=np.float64)):
        pair, feature = np.argwhere(~np.isfinite(corpus.features))[0]
        words = corpus.vocabulary
        raise DataError(
            f"a feature must be a number: got {corpus.features[pair, feature]} as feature {feature + 1} of document "
            f"{words.doc_ids[words.pair_doc[pair]]} of query {words.query_ids[words.pair_query[pair]]}. "
            "Fill it, e.g. with 0."
        )
    return corpus.features


def check_width(features: Float[np.ndarray, "pair feature"], width: int) -> Float[np.ndarray, "pair feature"]:
    if features.shape[1] != width:
        raise DataError(
            f"documents must have the {width} features that the ranker was trained on: got {features.shape[1]}. "
            "Give the same features, in the same order."
        )
    return features


def signed_log(features: Float[np.ndarray, "pair feature"]) -> Float[np.ndarray, "pair feature"]:
    """sign(x) log(1 + |x|): features of learning to rank span many magnitudes (Qin et al. 2021)."""
    scaled: np.ndarray = np.copysign(np.log1p(np.abs(features)), features)
    return scaled


def column_numbers(corpus: Corpus) -> Int[np.ndarray, " pair"]:
    """The first feature of every document, as the number of a column of a one-hot table."""
    column = corpus.feature(1)
    bad = ~((column >= 0) & (column < 2**24) & (column % 1 == 0))
    if bad.any():
        raise DataError(
            f"the first feature must be a whole number from 0 on, for tower='one-hot': got {column[bad][0]:g}. "
            "Number what it stands for, or use tower='network'."
        )
    return column.astype(np.int32)


def warn_of_constants(corpus: Corpus) -> None:
    """Features that are the same for all documents say nothing; perhaps a file was put together wrongly."""
    features = network_features(corpus)
    constant = np.flatnonzero(features.max(axis=0) == features.min(axis=0)) + 1
    if len(constant):
        named = ", ".join(map(str, constant[:_NAMED])) + (", ..." if len(constant) > _NAMED else "")
        warnings.warn(
            f"{len(constant)} of {features.shape[1]} features are the same for all documents: {named}. "
            "Nothing can be learned from them.",
            ClickshiftWarning,
            stacklevel=3,
        )
