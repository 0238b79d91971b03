"""Click-through-rate baselines: global (gCTR), by rank (rCTR), by document (dCTR), by document and rank (drCTR)."""

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
    """Global click-through rate (gCTR): P(click) = ctr. The baseline that every other model must beat.

    Parameters
    ----------
    vocabulary
        Queries, documents and pairs of the model.
    ctr
        Click-through rate of all results.
    evidence
        How the parameters were estimated.
    """

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
    """Rank click-through rate (rCTR): P(click) = ctr[rank], the same for all documents.

    Parameters
    ----------
    vocabulary
        Queries, documents and pairs of the model.
    ctr
        Click-through rate by rank; ranks beyond the last known one take its value.
    evidence
        How the parameters were estimated.
    """

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
    def _browsing_curve(self) -> tuple[str, list[dict[str, Any]]]:
        return "ctr", [{"rank": r + 1} for r in range(len(self.ctr))]


@final
@dataclass(frozen=True, eq=False)
class DCTR(ClickModel):
    """Document click-through rate (dCTR): P(click) = ctr[query, document], at any rank.

    It mistakes a good rank for a good document, so its predictions fail when the ranking policy changes.

    Parameters
    ----------
    vocabulary
        Queries, documents and pairs of the model.
    ctr
        Click-through rate by pair, unseen pairs last.
    evidence
        How the parameters were estimated.
    """

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
    """Document-rank click-through rate (drCTR): P(click) = ctr[query, document, rank].

    Relevance is a sum over ranks of the pair's rate divided by the rank's rate: over the ranks at which the pair was
    shown (policy-shift paper, eq. 3) or over all ranks (CMIP paper). The `smoothing` of `Counting` decides which.

    Parameters
    ----------
    vocabulary
        Queries, documents and pairs of the model.
    ctr
        Click-through rate by pair (unseen pairs last) and rank; ranks beyond the last known one take its values.
    score
        Relevance by pair, unseen pairs last.
    evidence
        How the parameters were estimated.

    References
    ----------
    Deffayet, R., Renders, J.-M. and de Rijke, M. (2022). Evaluating the robustness of click models to policy
    distributional shift. ACM TOIS.
    Deffayet, R. et al. (2023). An offline metric for the debiasedness of click models. SIGIR.
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
