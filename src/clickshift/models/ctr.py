"""Click-through-rate baselines: by nothing, by rank, by document, by document and rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from clickshift.data.sessions import Rankings
from clickshift.data.vocabulary import Vocabulary
from clickshift.models.base import ClickModel, PairTable, at_rank


@final
@dataclass(frozen=True, eq=False)
class GCTR(ClickModel):
    """P(C = 1) = ctr. The least that any model must beat."""

    vocabulary: Vocabulary
    ctr: float

    ranks_documents: ClassVar[bool] = False

    @override
    def _click_prob(self, rankings: Rankings) -> Float[np.ndarray, "session rank"]:
        return np.full(rankings.pair.shape, self.ctr)

    @override
    def _relevance(self) -> PairTable:
        return np.zeros(self.vocabulary.n_pairs + 1)


@final
@dataclass(frozen=True, eq=False)
class RCTR(ClickModel):
    """P(C_r = 1) = ctr_r. It says nothing of documents."""

    vocabulary: Vocabulary
    ctr: Float[np.ndarray, " known_rank"]

    ranks_documents: ClassVar[bool] = False

    @override
    def _click_prob(self, rankings: Rankings) -> Float[np.ndarray, "session rank"]:
        return np.broadcast_to(at_rank(self.ctr, rankings.n_ranks), rankings.pair.shape)

    @override
    def _relevance(self) -> PairTable:
        return np.zeros(self.vocabulary.n_pairs + 1)

    @override
    def _curve(self) -> tuple[str, list[dict[str, Any]]]:
        return "ctr", [{"rank": r + 1} for r in range(len(self.ctr))]


@final
@dataclass(frozen=True, eq=False)
class DCTR(ClickModel):
    """P(C = 1) = ctr of the pair. It mistakes a good place for a good document, and so breaks when the ranker
    changes."""

    vocabulary: Vocabulary
    ctr: PairTable

    @override
    def _click_prob(self, rankings: Rankings) -> Float[np.ndarray, "session rank"]:
        prob: np.ndarray = self.ctr[rankings.pair]
        return prob

    @override
    def _relevance(self) -> PairTable:
        return self.ctr


@final
@dataclass(frozen=True, eq=False)
class DRCTR(ClickModel):
    """P(C_r = 1) = ctr[pair, r]; ranks beyond the known ones take the last one's.

    Relevance is a sum over ranks of the pair's rate over the rank's: of the ranks at which it was seen (policy-shift
    paper, eq. 3), or of all (CMIP paper); `Counting` says which.
    """

    vocabulary: Vocabulary
    ctr: Float[np.ndarray, "pair_or_unseen known_rank"]
    score: PairTable

    @override
    def _click_prob(self, rankings: Rankings) -> Float[np.ndarray, "session rank"]:
        rank = np.minimum(np.arange(rankings.n_ranks), self.ctr.shape[1] - 1)
        prob: np.ndarray = self.ctr[rankings.pair, rank]
        return prob

    @override
    def _relevance(self) -> PairTable:
        return self.score
