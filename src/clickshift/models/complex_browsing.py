"""ComplexBrowsing: one browsing mode of the complex click model (CoCM) of the policy-shift paper, eq. 17."""

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
    """Complex browsing (CoCM; Deffayet et al. 2022): neither the examination nor the cascade hypothesis holds.

    An examined result is clicked with probability a_r (1 - a_next / 2): an attractive next result distracts; after the
    last result nothing distracts. The result after a click is never clicked. The user leaves after a click with
    probability `satisfaction`, and otherwise goes on with probability `continuation`. The paper prints the *expected*
    examination; here, as in its authors' code, the end of browsing is a latent event.

    Parameters
    ----------
    vocabulary
        Queries, documents and pairs of the model.
    attractiveness
        P(click | examined) by pair, unseen pairs last.
    satisfaction
        P(the user leaves | clicked).
    continuation
        P(the user goes on | not satisfied).
    bottom_up
        Whether the user reads from the last result upwards.
    evidence
        How the parameters were estimated.

    References
    ----------
    Deffayet, R., Renders, J.-M. and de Rijke, M. (2022). Evaluating the robustness of click models to policy
    distributional shift. ACM TOIS.
    """

    vocabulary: Vocabulary
    attractiveness: PairTable
    satisfaction: float
    continuation: float
    bottom_up: bool = False

    @override
    def _chain(self, rankings: Rankings) -> Chain:
        attractiveness = np.where(rankings.shown, self.attractiveness[rankings.pair], 0.0)
        next_attractiveness = np.zeros_like(attractiveness)
        if self.bottom_up:
            next_attractiveness[:, 1:] = attractiveness[:, :-1]
        else:
            next_attractiveness[:, :-1] = attractiveness[:, 1:]
        return Chain(
            click=attractiveness * (1 - next_attractiveness / 2),
            click_after_click=np.float64(0),
            follow_click=np.float64((1 - self.satisfaction) * self.continuation),
            follow_skip=np.float64(self.continuation),
            follow_unseen=np.float64(0),
        )

    @override
    def _relevance(self) -> PairTable:
        return self.attractiveness
