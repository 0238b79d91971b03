"""rCTR: the click-through rate of a rank, whatever stands there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from clickshift.data.sessions import Rankings
from clickshift.data.vocabulary import Vocabulary
from clickshift.models.base import ClickModel, PairTable, at_rank


@final
@dataclass(frozen=True, eq=False)
class RCTR(ClickModel):
    """P(C_r = 1) = ctr_r. It says nothing of documents."""

    vocabulary: Vocabulary
    ctr: Float[np.ndarray, " known_rank"]

    ranks_documents: ClassVar[bool] = False

    @override
    def _click_prob(self, rankings: Rankings) -> Float[np.ndarray, "session rank"]:
        return np.broadcast_to(at_rank(self.ctr, rankings.n_ranks), rankings.pair.shape)

    @override
    def _relevance(self) -> PairTable:
        return np.zeros(self.vocabulary.n_pairs + 1)

    @override
    def _curve(self) -> tuple[str, list[dict[str, Any]]]:
        return "ctr", [{"rank": r + 1} for r in range(len(self.ctr))]
