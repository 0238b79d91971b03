"""UBM: the user browsing model of Dupret & Piwowarski (2008)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final, no_type_check

import numpy as np
from jaxtyping import Float
from numba import njit
from typing_extensions import override

from clickshift.counts.cells import By
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.models._differentiable import ExaminationTableBased
from clickshift.models.base import ClickModel, PairTable


@final
@dataclass(frozen=True, eq=False)
class UBM(ClickModel, ExaminationTableBased):
    """As PBM, but examination depends on the rank and on the rank of the last click above it.

    P(C_r = 1 | C_<r) = examination[r, last click] x attractiveness

    `examination` is numbered as `statistics.Cells` numbers situations by last_click: r (r + 1) / 2 + rank of the last
    click from 1, or 0 where nothing above was clicked. Ranks beyond the known ones are examined like the last known
    rank at the same distance from the last click.
    """

    vocabulary: Vocabulary
    attractiveness: PairTable
    examination: Float[np.ndarray, " situation"]

    uses_history: ClassVar[bool] = True
    situations: ClassVar[By] = "last_click"

    @property
    def n_known_ranks(self) -> int:
        return int(np.sqrt(2 * len(self.examination)))

    def examined(self, n_ranks: int) -> Float[np.ndarray, "rank last_click"]:
        """Examination by rank and last click (column 0: none; column j: rank j, from 1); NaN where that is not
        above."""
        rank, last = np.arange(n_ranks)[:, None], np.arange(n_ranks + 1)[None, :]
        known = np.minimum(rank, self.n_known_ranks - 1)
        near = np.where(last == 0, 0, np.maximum(last - (rank - known), 1))
        table = self.examination[np.minimum(known * (known + 1) // 2 + near, len(self.examination) - 1)]
        return np.where(last <= rank, table, np.nan)

    @override
    def _click_prob_given_history(self, sessions: Sessions) -> Float[np.ndarray, "session rank"]:
        ranks = np.arange(sessions.n_ranks)
        last = np.zeros(sessions.click.shape, np.int64)
        last[:, 1:] = np.maximum.accumulate(np.where(sessions.click, ranks + 1, 0), axis=1)[:, :-1]
        examined = self.examined(sessions.n_ranks)
        prob: np.ndarray = examined[ranks, last] * self.attractiveness[sessions.rankings.pair]
        return prob

    @override
    def _click_prob(self, rankings: Rankings) -> Float[np.ndarray, "session rank"]:
        """Forward over the last click: prob[l] = P(the last click is at rank l), 0 for none."""
        attractiveness, examined = self.attractiveness[rankings.pair], self.examined(rankings.n_ranks)
        last = np.zeros((len(rankings), rankings.n_ranks + 1))
        last[:, 0] = 1.0
        out = np.empty(attractiveness.shape)
        for rank in range(rankings.n_ranks):
            clicked = last[:, : rank + 1] * examined[rank, : rank + 1] * attractiveness[:, rank, None]
            out[:, rank] = clicked.sum(axis=1)
            last[:, : rank + 1] -= clicked
            last[:, rank + 1] = out[:, rank]
        return out

    @override
    def _expected_clicks(self, rankings: Rankings, tolerance: float) -> Float[np.ndarray, " session"]:
        out = np.empty(len(rankings))
        _expected_clicks_kernel(
            self.attractiveness, self.examined(rankings.n_ranks), rankings.pair, rankings.length, out
        )
        return out

    @override
    def _relevance(self) -> PairTable:
        return self.attractiveness

    @override
    def _curve(self) -> tuple[str, list[dict[str, Any]]]:
        ranks = range(self.n_known_ranks)
        return "examination", [{"rank": r + 1, "last_click": last or None} for r in ranks for last in range(r + 1)]


@njit(cache=True, nogil=True)
@no_type_check
def _expected_clicks_kernel(attractiveness, examined, pair, length, out):
    """The recursion of `UBM._click_prob`, compiled."""
    last = np.empty(pair.shape[1] + 1)
    for i in range(len(out)):
        last[0], total = 1.0, 0.0
        for rank in range(length[i]):
            clicks = 0.0
            for k in range(rank + 1):
                clicked = last[k] * examined[rank, k] * attractiveness[pair[i, rank]]
                last[k] -= clicked
                clicks += clicked
            last[rank + 1] = clicks
            total += clicks
        out[i] = total
