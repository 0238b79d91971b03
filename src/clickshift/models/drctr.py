"""drCTR: the click-through rate of a document at a rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from clickshift.data.sessions import Rankings
from clickshift.data.vocabulary import Vocabulary
from clickshift.models.base import ClickModel, PairTable


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
