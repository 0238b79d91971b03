"""CM: the cascade model of Craswell et al. (2008)."""

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
class CM(ChainModel):
    """The user walks down to the first document that attracts, clicks it, and leaves.

    A second click has probability 0, so that the probability clip of the metric decides what it costs.
    """

    vocabulary: Vocabulary
    attractiveness: PairTable

    @override
    def _chain(self, rankings: Rankings) -> Chain:
        click = self.attractiveness[rankings.pair]
        return Chain(
            click=click,
            click_after_click=click,
            follow_click=np.float64(0),
            follow_skip=np.float64(1),
            follow_unseen=np.float64(0),
        )

    @override
    def _relevance(self) -> PairTable:
        return self.attractiveness
