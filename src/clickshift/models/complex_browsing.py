"""Complex browsing: one mode of the policy-shift paper's complex click model (CoCM, eq. 17)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from typing_extensions import override

from clickshift.data.sessions import Rankings
from clickshift.data.vocabulary import Vocabulary
from clickshift.models._chain import ChainModel
from clickshift.models._formulas import Chain
from clickshift.models.base import PairTable


@final
@dataclass(frozen=True, eq=False)
class ComplexBrowsing(ChainModel):
    """A walk that follows neither the examination nor the cascade hypothesis.

    An examined result is clicked with probability a_r (1 - a_next / 2): an attractive result further on distracts. The
    result after a click is never clicked. The walk ends after a click with probability `satisfaction`, and otherwise
    goes on with probability `continuation`. Beyond the last result nothing distracts. The paper prints the *expected*
    examination; here, as in its authors' code, the end of the walk is a latent event.
    """

    vocabulary: Vocabulary
    attractiveness: PairTable
    satisfaction: float
    continuation: float
    bottom_up: bool = False

    @override
    def _chain(self, rankings: Rankings) -> Chain:
        attractiveness = np.where(rankings.shown, self.attractiveness[rankings.pair], 0.0)
        following = np.zeros_like(attractiveness)
        if self.bottom_up:
            following[:, 1:] = attractiveness[:, :-1]
        else:
            following[:, :-1] = attractiveness[:, 1:]
        return Chain(
            click=attractiveness * (1 - following / 2),
            click_after_click=np.float64(0),
            follow_click=np.float64((1 - self.satisfaction) * self.continuation),
            follow_skip=np.float64(self.continuation),
            follow_unseen=np.float64(0),
        )

    @override
    def _relevance(self) -> PairTable:
        return self.attractiveness
