"""Corrected labels: what clicks say of relevance once it is known where documents were shown.

Every correction gives two numbers for each pair: a positive weight W and a total weight N. A pointwise loss is
-[W log y + (N - W) log(1 - y)], a listwise one -W log softmax(s); W / N estimates relevance. With clicks c and
impressions n of a document at rank k, m sessions of its query, and P(click at k) = alpha_k x relevance + beta_k:

    by rank           N = sum_k n_k     W = sum_k (c_k - n_k beta_k) / alpha_k
    policy-aware      N = m             W = sum_k (c_k - n_k beta_k) / rho,     rho = sum_k n_k alpha_k / m
    doubly robust     N = m             W = m r + sum_k (c_k - n_k (alpha_k r + beta_k)) / rho

Without trust bias alpha is examination and beta is 0. Then the first is inverse propensity scoring (Joachims et al.
2017; pointwise: Bekker et al. 2019, Saito et al. 2020), with trust bias the affine correction (Vardasbi et al. 2020).

rho is the chance that a session examines the document, wherever it stands: policy-aware labels (Oosterhuis & de Rijke
2020, with trust bias 2021) also make up for sessions that did not show it. Doubly robust (Oosterhuis 2023) adds the
relevance r of a regression. As rho is counted in the log itself, r cancels out wherever rho is used as it is: what it
decides are documents that were never shown, and what is lost where rho is clipped.

A correction is right on average, not for each pair: W may be above N, or below 0. Where it is above N, the pointwise
loss has no lower bound: it falls for ever as the score grows. Early stopping and shared features hold it in check.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal, NamedTuple, final

import numpy as np
from jaxtyping import Bool, Float

from clickshift.counts.cells import Cells
from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Sessions
from clickshift.errors import ClickshiftWarning, DataError, SpecError, VocabularyError

Correction = Literal["by-rank", "policy-aware", "doubly-robust"]


@final
@dataclass(frozen=True, eq=False)
class Trust:
    """Users who trust the ranker: P(click at rank k) = alpha_k x relevance + beta_k (Vardasbi et al. 2020).

    >>> Trust.of(np.array([1.0, 0.5]), np.array([0.9, 0.8]), np.array([0.3, 0.2])).alpha.round(3).tolist()
    [0.6, 0.3]
    """

    alpha: Float[np.ndarray, " rank"]
    beta: Float[np.ndarray, " rank"]

    def __post_init__(self) -> None:
        if self.alpha.shape != self.beta.shape:
            raise DataError(f"alpha and beta must have one entry per rank: got {len(self.alpha)} and {len(self.beta)}.")
        bad = ~((self.beta >= 0) & (self.alpha + self.beta <= 1 + 1e-9))
        if bad.any():
            rank = int(bad.argmax())
            raise DataError(
                f"beta and alpha + beta are probabilities of a click: got beta = {self.beta[rank]:g}, "
                f"alpha = {self.alpha[rank]:g} at rank {rank + 1}. Check them."
            )

    @classmethod
    def of(
        cls,
        examination: Float[np.ndarray, " rank"],
        true_positive: Float[np.ndarray, " rank"],
        false_positive: Float[np.ndarray, " rank"],
    ) -> Trust:
        """From the probabilities that an examined document is clicked if it is relevant and if it is not (Agarwal et
        al. 2019)."""
        return cls(examination * (true_positive - false_positive), examination * false_positive)


class Labels(NamedTuple):
    """Of every pair."""

    positive: Float[np.ndarray, " pair"]
    """W: clicks, corrected."""
    total: Float[np.ndarray, " pair"]
    """N: impressions, or sessions of the query."""


def corrected_labels(
    cells: Cells,
    correction: Correction,
    examination: Float[np.ndarray, " rank"],
    *,
    false_clicks: Float[np.ndarray, " rank"] | None = None,
    clip: float | None = None,
    regression: Float[np.ndarray, " pair"] | None = None,
) -> Labels:
    """The labels of all pairs; 0 and 0 where nothing is known of a pair.

    `examination` is alpha, `false_clicks` is beta. A propensity, alpha or rho, below `clip` is taken as that: documents
    that few users looked at get labels that are too low, but vary less. `regression` is r, from 0 to 1 for each pair.

    >>> from clickshift.data.vocabulary import Vocabulary
    >>> words, _, pair = Vocabulary.of([1, 1], [10, 20])
    >>> cells = Cells(words, 2, "rank", pair, np.array([0, 1]), np.array([8.0, 8.0]), np.array([2.0, 1.0]))
    >>> corrected_labels(cells, "by-rank", np.array([1.0, 0.5]))
    Labels(positive=array([2., 2.]), total=array([8., 8.]))
    """
    words, rank = cells.vocabulary, cells.rank()
    shown = np.bincount(rank, minlength=cells.n_ranks) > 0
    alpha = propensities_at(examination, shown, clip=clip if correction == "by-rank" else None)[rank]
    beta = 0.0 if false_clicks is None else at_shown("the probability of a false click", false_clicks, shown)[rank]
    clicks = cells.clicks - beta * cells.impressions

    def of_pair(values: Float[np.ndarray, " cell"]) -> Float[np.ndarray, " pair"]:
        return np.bincount(cells.pair, values, words.n_pairs)

    if correction == "by-rank":
        return Labels(of_pair(clicks / alpha), of_pair(cells.impressions))
    total, examined = sessions_by_query(cells)[words.pair_query], of_pair(alpha * cells.impressions)
    rho = np.maximum(examined / np.maximum(total, 1e-300), clip or 0.0)
    rho = np.where(examined > 0, rho, 1.0)
    if correction == "policy-aware":
        return Labels(of_pair(clicks) / rho, np.where(examined > 0, total, 0.0))
    if regression is None:
        raise DataError("the doubly robust correction needs a regression: the relevance of every pair.")
    if regression.shape != (words.n_pairs,) or not ((regression >= 0) & (regression <= 1)).all():
        raise DataError(f"a regression must give every one of the {words.n_pairs:,} pairs a relevance from 0 to 1.")
    return Labels(total * regression + (of_pair(clicks) - examined * regression) / rho, total)


def labels_for(
    cells: Cells,
    loss: str,
    *,
    examination: Float[np.ndarray, " rank"] | None = None,
    trust: Trust | None = None,
    clip: float | None = None,
    regression: Float[np.ndarray, " pair"] | None = None,
) -> Labels:
    """The labels of a learner's loss: "policy-aware" and "doubly-robust" are corrections of their own, the others are
    by rank. Where nothing is known of users, everyone looks at everything."""
    correction: Correction = "by-rank"
    if loss in {"policy-aware", "doubly-robust"}:
        correction = "policy-aware" if loss == "policy-aware" else "doubly-robust"
    false_clicks = None
    if trust is not None:
        examination, false_clicks = trust.alpha, trust.beta
    elif examination is None:
        examination = np.ones(cells.n_ranks)
    return corrected_labels(cells, correction, examination, false_clicks=false_clicks, clip=clip, regression=regression)


def check_known(loss: str, bias: str, examination: Float[np.ndarray, " rank"] | None, trust: Trust | None) -> None:
    """Refuse what a learner of this loss and bias cannot use, or cannot do without."""
    if bias != "given":
        if examination is not None or trust is not None:
            raise SpecError(f"examination is not used with bias={bias!r}. Leave it out, or say bias='given'.")
        return
    if loss == "affine" and trust is None:
        raise SpecError("loss='affine' needs trust: the alpha and beta of every rank.")
    if trust is not None and loss in {"ips", "pbm"}:
        raise SpecError(f"loss={loss!r} knows no trust bias. Use 'affine', or give examination alone.")
    if (examination is None) == (trust is None):
        raise SpecError(
            "bias='given' needs examination by rank, or trust, but not both. Estimate it with propensities(log), or "
            "choose bias='naive' or bias='estimated'."
        )


def sessions_by_query(cells: Cells) -> Float[np.ndarray, " query"]:
    """How many sessions each query has: the most impressions of one of its ranks."""
    words = cells.vocabulary
    key = words.pair_query[cells.pair] * cells.n_ranks + cells.rank()
    at_rank = np.bincount(key, cells.impressions, words.n_queries * cells.n_ranks)
    most: np.ndarray = at_rank.reshape(words.n_queries, cells.n_ranks).max(axis=1)
    return most


def propensities_at(
    examination: Float[np.ndarray, " known_rank"], shown: Bool[np.ndarray, " rank"], *, clip: float | None = None
) -> Float[np.ndarray, " rank"]:
    """Examination at the ranks of a log, fit to divide by: above 0 wherever the log shows a document."""
    examination = at_shown("examination", examination, shown)
    if clip is not None:
        examination = np.maximum(examination, clip)
    bad = shown & (examination == 0)
    if bad.any():
        raise DataError(
            f"a propensity must be above 0 where a document is shown: it is 0 at rank {bad.argmax() + 1}, and clicks "
            "cannot be divided by it. Leave such ranks out of the log, or give the smallest propensity with clip."
        )
    return np.where(shown, examination, 1.0)


def at_shown(
    what: str, values: Float[np.ndarray, " known_rank"], shown: Bool[np.ndarray, " rank"]
) -> Float[np.ndarray, " rank"]:
    """A table over ranks, as long as the lists of a log; every rank that the log shows must have a number."""
    table = np.full(len(shown), np.nan)
    known = min(len(values), len(shown))
    table[:known] = values[:known]
    bad = shown & ~((table >= 0) & (table < np.inf))
    if bad.any():
        rank = int(bad.argmax())
        got = f"it is {table[rank]:g}" if rank < known else f"it ends at rank {known}"
        raise DataError(
            f"{what} must be a number, 0 or more, at every rank that the log shows: {got}, where rank {rank + 1} is "
            "needed. Give more ranks, or cut the lists of the log."
        )
    return np.where(shown, table, 0.0)


def count_by_rank(corpus: Corpus, clicks: Cells | Sessions) -> Cells:
    """Counts by rank in the vocabulary of the corpus. What it does not hold is left out, with a warning."""
    if isinstance(clicks, Cells):
        if not clicks.vocabulary.same_as(corpus.vocabulary):
            raise VocabularyError("counts must be in the vocabulary of the corpus. Give the log, which is translated.")
        return clicks if clicks.by == "rank" else clicks.rolled_up("rank")
    known = clicks.in_vocabulary(corpus.vocabulary)
    unknown = known.rankings.shown & (known.rankings.pair < 0)
    if unknown.any():
        row, rank = np.argwhere(unknown)[0]
        words, pair = clicks.vocabulary, clicks.rankings.pair[row, rank]
        name = "one that its own vocabulary does not hold"
        if pair >= 0:
            query, doc = words.query_ids[words.pair_query[pair]], words.doc_ids[words.pair_doc[pair]]
            name = f"document {doc} of query {query}"
        lost, total = (float(known.count @ which.sum(axis=1)) for which in (unknown, known.rankings.shown))
        if (unknown == known.rankings.shown).all():
            raise DataError(
                f"the log must show documents of the corpus: it shows none, but e.g. {name}. "
                "Do the log and the corpus use the same ids of queries and documents?"
            )
        warnings.warn(
            f"{lost / total:.1%} of the results in the log ({lost:,.0f}) are of documents that the corpus does not "
            f"hold, e.g. {name}: they are left out.",
            ClickshiftWarning,
            stacklevel=3,
        )
    return Cells.of(known)
