"""COEC: clicks over expected clicks (Zhang and Jones 2007)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from clickshift.counts.cells import By
from clickshift.data.sessions import Rankings
from clickshift.data.vocabulary import Vocabulary
from clickshift.models.base import ClickModel, PairTable, at_rank, at_results


@final
@dataclass(frozen=True, eq=False)
class COEC(ClickModel):
    """Clicks over expected clicks: P(click) = min(1, ctr[rank] * coec[query, document]).

    A pair whose COEC is 1 is clicked as often as the average result at its ranks, one of 2 twice as often. So its
    relevance is no probability. COEC is a position-based model whose examination is the click-through rate of the rank:
    a ranker that puts good documents first raises the rates of the first ranks, and COEC counts that as position bias.

    Parameters
    ----------
    vocabulary
        Queries, documents and pairs of the model.
    coec
        Clicks over expected clicks by pair, unseen pairs last.
    ctr
        Click-through rate by rank; ranks beyond the last known one take its value.
    expected
        Expected clicks by pair, unseen pairs last: what `coec` divides by.
    evidence
        How the parameters were estimated.

    References
    ----------
    Zhang, W. V. and Jones, R. (2007). Comparing click logs and editorial labels for training query rewriting. WWW
    workshop on query log analysis.

    Examples
    --------
    >>> from clickshift.models.base import pair_table
    >>> vocabulary, _, _ = Vocabulary.of(["shoes", "shoes"], ["a", "b"])
    >>> rankings = Rankings(vocabulary, np.array([0]), np.array([[0, 1]]), np.array([[True, True]]))
    >>> expected = pair_table(np.array([20.0, 10.0]), unseen=0.0)
    >>> model = COEC(vocabulary, pair_table(np.array([1.5, 0.4]), unseen=1.0), np.array([0.2, 0.1]), expected)
    >>> model.click_prob(rankings).round(3)
    array([[0.3 , 0.04]])
    """

    vocabulary: Vocabulary
    coec: PairTable
    ctr: Float[np.ndarray, " known_rank"]
    expected: PairTable

    situations: ClassVar[By] = "rank"

    @override
    def _click_prob(self, rankings: Rankings) -> Float[np.ndarray, "session rank"]:
        prob: np.ndarray = np.minimum(at_results(self.coec, rankings) * at_rank(self.ctr, rankings.n_ranks), 1.0)
        return prob

    @override
    def _relevance(self) -> PairTable:
        return self.coec

    @override
    def _probability_scale(self, name: str) -> PairTable | float:
        if name != "relevance" or self.evidence is None:
            return 1.0
        impressions = self.evidence.impressions
        known = (self.expected > 0) & (impressions > 0)
        scale: PairTable = np.where(known, impressions / np.where(known, self.expected, 1.0), 1.0)
        return scale

    @override
    def _browsing_curve(self) -> tuple[str, list[dict[str, Any]]]:
        return "ctr", [{"rank": r + 1} for r in range(len(self.ctr))]
