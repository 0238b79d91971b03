"""dCTR: the click-through rate of a document for its query, wherever it stands."""

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
class DCTR(ClickModel):
    """P(C = 1) = ctr of the pair. It mistakes a good place for a good document, and so breaks when the ranker
    changes."""

    vocabulary: Vocabulary
    ctr: PairTable

    @override
    def _click_prob(self, rankings: Rankings) -> Float[np.ndarray, "session rank"]:
        prob: np.ndarray = self.ctr[rankings.pair]
        return prob

    @override
    def _relevance(self) -> PairTable:
        return self.ctr
