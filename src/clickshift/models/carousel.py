"""Carousel: rows of results, each examined like a list (CMIP paper)."""

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
from clickshift.models.base import PairTable, at_rank, at_results


@final
@dataclass(frozen=True, eq=False)
class Carousel(ChainModel):
    """Carousel model (Deffayet et al. 2023): rows of results, each examined like a DBN list.

    Rank r is in row r // columns. A row is examined with a probability of its own, whatever happened above it, and then
    read like a DBN list: attractiveness, satisfaction, continuation. The first row is always examined. Relevance is
    attractiveness x satisfaction, as for DBN.

    Parameters
    ----------
    vocabulary
        Queries, documents and pairs of the model.
    attractiveness
        P(click | examined) by pair, unseen pairs last.
    satisfaction
        P(the user leaves | clicked) by pair, unseen pairs last.
    continuation
        P(the user goes on in the row | not satisfied).
    row_examination
        P(examined) by row; rows beyond the last known one take its value.
    columns
        Number of results in a row.
    evidence
        How the parameters were estimated.

    References
    ----------
    Deffayet, R. et al. (2023). An offline metric for the debiasedness of click models. SIGIR.
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
        # after the last result of a row, the next row is examined or not, whatever happened before
        next_row = at_rank(self.row_examination, n_rows + 1)[rank // self.columns + 1]
        attractiveness = at_results(self.attractiveness, rankings)
        after_click = self.continuation * (1 - self.satisfaction[rankings.pair])
        return Chain(
            click=attractiveness,
            click_after_click=attractiveness,
            follow_click=np.where(last_in_row, next_row, after_click),
            follow_skip=np.where(last_in_row, next_row, self.continuation),
            follow_unseen=np.where(last_in_row, next_row, 0.0),
        )

    @override
    def _relevance(self) -> PairTable:
        relevance: np.ndarray = self.attractiveness * self.satisfaction
        return relevance
