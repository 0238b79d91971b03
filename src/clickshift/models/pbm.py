"""PBM: the position-based model of Craswell et al. (2008)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from clickshift.counts.cells import By
from clickshift.data.sessions import Rankings
from clickshift.data.vocabulary import Vocabulary
from clickshift.models._differentiable import ExaminationTableBased
from clickshift.models.base import ClickModel, PairTable, at_rank


@final
@dataclass(frozen=True, eq=False)
class PBM(ClickModel, ExaminationTableBased):
    """A result is clicked if it is examined, which depends on its rank, and attracts.

    P(C_r = 1) = examination_r x attractiveness
    """

    vocabulary: Vocabulary
    attractiveness: PairTable
    examination: Float[np.ndarray, " known_rank"]

    situations: ClassVar[By] = "rank"

    @override
    def _click_prob(self, rankings: Rankings) -> Float[np.ndarray, "session rank"]:
        prob: np.ndarray = self.attractiveness[rankings.pair] * at_rank(self.examination, rankings.n_ranks)
        return prob

    @override
    def _relevance(self) -> PairTable:
        return self.attractiveness

    @override
    def _curve(self) -> tuple[str, list[dict[str, Any]]]:
        return "examination", [{"rank": r + 1} for r in range(len(self.examination))]
