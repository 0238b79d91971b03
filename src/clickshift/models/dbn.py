"""DBN: the dynamic Bayesian network of Chapelle & Zhang (2009)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from typing_extensions import override

from clickshift.models.base import PairTable
from clickshift.models.chain import ChainModel
from clickshift.models.formulas import Chain
from clickshift.sessions import Rankings
from clickshift.vocabulary import Vocabulary


@final
@dataclass(frozen=True, eq=False)
class DBN(ChainModel):
    """The user walks down, clicks what attracts, may be satisfied by a click and leave, else goes on.

    P(C_r = 1 | E_r = 1) = attractiveness
    P(E_{r+1} = 1 | E_r = 1, C_r = 0) = continuation
    P(E_{r+1} = 1 | E_r = 1, C_r = 1) = continuation (1 - satisfaction)

    Relevance is attractiveness x satisfaction, the probability that the document is clicked and satisfies.
    """

    vocabulary: Vocabulary
    attractiveness: PairTable
    satisfaction: PairTable
    continuation: float
    bottom_up: bool = False

    @override
    def _chain(self, rankings: Rankings) -> Chain:
        click = self.attractiveness[rankings.pair]
        return Chain(
            click=click,
            click_after_click=click,
            follow_click=self.continuation * (1 - self.satisfaction[rankings.pair]),
            follow_skip=np.float64(self.continuation),
            follow_unseen=np.float64(0),
        )

    @override
    def _relevance(self) -> PairTable:
        relevance: np.ndarray = self.attractiveness * self.satisfaction
        return relevance

    @override
    def _curve(self) -> tuple[str, list[dict[str, Any]]]:
        return "continuation", [{"after": "a skip or a click that did not satisfy"}]
