"""gCTR: one click-through rate for everything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from clickshift.data.sessions import Rankings
from clickshift.data.vocabulary import Vocabulary
from clickshift.models.base import ClickModel, PairTable


@final
@dataclass(frozen=True, eq=False)
class GCTR(ClickModel):
    """P(C = 1) = ctr. The least that any model must beat."""

    vocabulary: Vocabulary
    ctr: float

    ranks_documents: ClassVar[bool] = False

    @override
    def _click_prob(self, rankings: Rankings) -> Float[np.ndarray, "session rank"]:
        return np.full(rankings.pair.shape, self.ctr)

    @override
    def _relevance(self) -> PairTable:
        return np.zeros(self.vocabulary.n_pairs + 1)
