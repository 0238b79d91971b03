"""TrustPBM: a position-based model whose users trust high ranks and click irrelevant documents there (trust bias)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from clickshift.data.sessions import Rankings
from clickshift.data.vocabulary import Vocabulary
from clickshift.models.base import ClickModel, PairTable, at_rank


@final
@dataclass(frozen=True, eq=False)
class TrustPBM(ClickModel):
    """An examined result is clicked if it is perceived as relevant, which rank distorts (Agarwal et al. 2019).

    P(C_r = 1) = examination_r [ true_positive_r x attractiveness + false_positive_r x (1 - attractiveness) ]
    """

    vocabulary: Vocabulary
    attractiveness: PairTable
    examination: Float[np.ndarray, " known_rank"]
    true_positive: Float[np.ndarray, " known_rank"]
    false_positive: Float[np.ndarray, " known_rank"]

    @override
    def _click_prob(self, rankings: Rankings) -> Float[np.ndarray, "session rank"]:
        examined, yes, no = (
            at_rank(table, rankings.n_ranks) for table in (self.examination, self.true_positive, self.false_positive)
        )
        attracted = self.attractiveness[rankings.pair]
        prob: np.ndarray = examined * (yes * attracted + no * (1 - attracted))
        return prob

    @override
    def _relevance(self) -> PairTable:
        return self.attractiveness
