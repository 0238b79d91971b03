"""TrustPBM: the position-based model with trust bias (Agarwal et al. 2019): false clicks at high ranks."""

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
    """Position-based model with trust bias (Agarwal et al. 2019).

    An examined result is clicked if the user perceives it as relevant, and the rank distorts that perception: users
    trust high ranks and click irrelevant documents there.

    P(C_r = 1) = examination_r [ true_positive_r x attractiveness + false_positive_r x (1 - attractiveness) ]

    Ranks beyond the last known one take its values.

    Parameters
    ----------
    vocabulary
        Queries, documents and pairs of the model.
    attractiveness
        P(relevant) by pair, unseen pairs last.
    examination
        P(examined) by rank.
    true_positive
        P(perceived as relevant | examined, relevant) by rank.
    false_positive
        P(perceived as relevant | examined, not relevant) by rank.
    evidence
        How the parameters were estimated.

    References
    ----------
    Agarwal, A., Wang, X., Li, C., Bendersky, M. and Najork, M. (2019). Addressing trust bias for unbiased
    learning-to-rank. WWW.
    """

    vocabulary: Vocabulary
    attractiveness: PairTable
    examination: Float[np.ndarray, " known_rank"]
    true_positive: Float[np.ndarray, " known_rank"]
    false_positive: Float[np.ndarray, " known_rank"]

    @override
    def _click_prob(self, rankings: Rankings) -> Float[np.ndarray, "session rank"]:
        examination, true_positive, false_positive = (
            at_rank(table, rankings.n_ranks) for table in (self.examination, self.true_positive, self.false_positive)
        )
        attractiveness = self.attractiveness[rankings.pair]
        prob: np.ndarray = examination * (true_positive * attractiveness + false_positive * (1 - attractiveness))
        return prob

    @override
    def _relevance(self) -> PairTable:
        return self.attractiveness
