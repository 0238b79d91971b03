"""CCM: the click chain model of Guo et al. (2009)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from clickshift.data.sessions import Rankings
from clickshift.data.vocabulary import Vocabulary
from clickshift.models._chain import ChainModel
from clickshift.models._formulas import Chain
from clickshift.models.base import PairTable


@final
@dataclass(frozen=True, eq=False)
class CCM(ChainModel):
    """A cascade whose continuation after a click depends on how good the document is.

    continuation = (t1, t2, t3):  after a skip t1,  after a click t2 (1 - attractiveness) + t3 attractiveness
    """

    vocabulary: Vocabulary
    attractiveness: PairTable
    continuation: Float[np.ndarray, 3]

    @override
    def _chain(self, rankings: Rankings) -> Chain:
        click = self.attractiveness[rankings.pair]
        skip, irrelevant, relevant = self.continuation
        return Chain(
            click=click,
            click_after_click=click,
            follow_click=irrelevant * (1 - click) + relevant * click,
            follow_skip=skip,
            follow_unseen=np.float64(0),
        )

    @override
    def _relevance(self) -> PairTable:
        return self.attractiveness

    @override
    def _curve(self) -> tuple[str, list[dict[str, Any]]]:
        return "continuation", [{"after": after} for after in ("a skip", "an irrelevant click", "a relevant click")]
