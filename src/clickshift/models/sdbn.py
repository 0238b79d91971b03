"""SDBN: the simplified DBN of Chapelle & Zhang (2009), whose users never give up before they are satisfied."""

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
class SDBN(ChainModel):
    """DBN with continuation 1: P(E_{r+1} = 1 | E_r = 1, C_r) = 1 - C_r satisfaction."""

    vocabulary: Vocabulary
    attractiveness: PairTable
    satisfaction: PairTable

    @override
    def _chain(self, rankings: Rankings) -> Chain:
        click = self.attractiveness[rankings.pair]
        return Chain(
            click=click,
            click_after_click=click,
            follow_click=1 - self.satisfaction[rankings.pair],
            follow_skip=np.float64(1),
            follow_unseen=np.float64(0),
        )

    @override
    def _relevance(self) -> PairTable:
        relevance: np.ndarray = self.attractiveness * self.satisfaction
        return relevance
