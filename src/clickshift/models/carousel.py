"""Carousel: results in rows, each row walked through like a list of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from clickshift.data.sessions import Rankings
from clickshift.data.vocabulary import Vocabulary
from clickshift.models._chain import ChainModel
from clickshift.models._formulas import Chain
from clickshift.models.base import PairTable, at_rank


@final
@dataclass(frozen=True, eq=False)
class Carousel(ChainModel):
    """Rank r stands in row r // columns. A row is looked at with a probability of its own, whatever happened above it,
    and then walked through like a DBN: attractiveness, satisfaction, continuation.

    The first row is always looked at. Relevance is attractiveness x satisfaction, as for DBN.
    """

    vocabulary: Vocabulary
    attractiveness: PairTable
    satisfaction: PairTable
    continuation: float
    row_examination: Float[np.ndarray, " row"]
    columns: int

    @override
    def _chain(self, rankings: Rankings) -> Chain:
        rank = np.arange(rankings.n_ranks)
        last_in_row = rank % self.columns == self.columns - 1
        n_rows = -(-rankings.n_ranks // self.columns)
        # from the last result of a row the walk jumps to the next row, or not, whatever it has seen before
        jump = at_rank(self.row_examination, n_rows + 1)[rank // self.columns + 1]
        click = self.attractiveness[rankings.pair]
        goes_on = self.continuation * (1 - self.satisfaction[rankings.pair])
        return Chain(
            click=click,
            click_after_click=click,
            follow_click=np.where(last_in_row, jump, goes_on),
            follow_skip=np.where(last_in_row, jump, self.continuation),
            follow_unseen=np.where(last_in_row, jump, 0.0),
        )

    @override
    def _relevance(self) -> PairTable:
        relevance: np.ndarray = self.attractiveness * self.satisfaction
        return relevance
