"""UBM: the user browsing model (Dupret and Piwowarski 2008)."""

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
from clickshift.models.base import ClickModel, PairTable, at_results


@final
@dataclass(frozen=True, eq=False)
class UBM(ClickModel, ExaminationTableBased):
    """User browsing model (Dupret and Piwowarski 2008): examination depends on the rank and on the last click above.

    P(C_r = 1 | C_<r) = examination[r, last click] x attractiveness

    Parameters
    ----------
    vocabulary
        Queries, documents and pairs of the model.
    attractiveness
        P(click | examined) by pair, unseen pairs last.
    examination
        P(examined) by situation, numbered as `counts.cells.Cells` numbers situations by "last_click": r (r + 1) / 2 +
        the rank of the last click from 1, or + 0 if nothing above was clicked. Ranks beyond the last known one are
        examined like it at the same distance from the last click.
    evidence
        How the parameters were estimated.

    References
    ----------
    Dupret, G. and Piwowarski, B. (2008). A user browsing model to predict search engine click data from past
    observations. SIGIR.
    """

    vocabulary: Vocabulary
    attractiveness: PairTable
    examination: Float[np.ndarray, " situation"]

    uses_history: ClassVar[bool] = True
    situations: ClassVar[By] = "last_click"

    @property
    def n_known_ranks(self) -> int:
        """Number of ranks that `examination` covers."""
        return int(np.sqrt(2 * len(self.examination)))

    def examination_matrix(self, n_ranks: int) -> Float[np.ndarray, "rank last_click"]:
        """Return examination by rank and last click (column 0: none; column j: rank j, from 1).

        It is NaN where the last click would not be above the rank.
        """
        rank, last = np.arange(n_ranks)[:, None], np.arange(n_ranks + 1)[None, :]
        known_rank = np.minimum(rank, self.n_known_ranks - 1)
        known_last = np.where(last == 0, 0, np.maximum(last - (rank - known_rank), 1))
        situation = known_rank * (known_rank + 1) // 2 + known_last
        table = self.examination[np.minimum(situation, len(self.examination) - 1)]
        return np.where(last <= rank, table, np.nan)

    @override
    def _click_prob_given_history(self, sessions: Sessions) -> Float[np.ndarray, "session rank"]:
        ranks = np.arange(sessions.n_ranks)
        last = np.zeros(sessions.click.shape, np.int64)
        last[:, 1:] = np.maximum.accumulate(np.where(sessions.click, ranks + 1, 0), axis=1)[:, :-1]
        examination = self.examination_matrix(sessions.n_ranks)
        prob: np.ndarray = examination[ranks, last] * self.attractiveness[sessions.rankings.pair]
        return prob

    @override
    def _click_prob(self, rankings: Rankings) -> Float[np.ndarray, "session rank"]:
        """Run the forward recursion over the last click: last[:, l] = P(last click at rank l, from 1; 0: none)."""
        attractiveness = at_results(self.attractiveness, rankings)
        examination = self.examination_matrix(rankings.n_ranks)
        last = np.zeros((len(rankings), rankings.n_ranks + 1))
        last[:, 0] = 1.0
        out = np.empty(attractiveness.shape)
        for rank in range(rankings.n_ranks):
            clicked = last[:, : rank + 1] * examination[rank, : rank + 1] * attractiveness[:, rank, None]
            out[:, rank] = clicked.sum(axis=1)
            last[:, : rank + 1] -= clicked
            last[:, rank + 1] = out[:, rank]
        return out

    @override
    def _expected_clicks(self, rankings: Rankings, tolerance: float) -> Float[np.ndarray, " session"]:
        if rankings.has_holes:
            return super()._expected_clicks(rankings, tolerance)
        out = np.empty(len(rankings))
        _expected_clicks_kernel(
            self.attractiveness, self.examination_matrix(rankings.n_ranks), rankings.pair, rankings.length, out
        )
        return out

    @override
    def _relevance(self) -> PairTable:
        return self.attractiveness

    @override
    def _browsing_curve(self) -> tuple[str, list[dict[str, Any]]]:
        ranks = range(self.n_known_ranks)
        return "examination", [{"rank": r + 1, "last_click": last or None} for r in ranks for last in range(r + 1)]


@njit(cache=True, nogil=True)
@no_type_check
def _expected_clicks_kernel(attractiveness, examination, pair, length, out):
    """Compiled form of the recursion of `UBM._click_prob`, summed over ranks into `out`."""
    last = np.empty(pair.shape[1] + 1)
    for i in range(len(out)):
        last[0], total = 1.0, 0.0
        for rank in range(length[i]):
            clicks = 0.0
            for k in range(rank + 1):
                clicked = last[k] * examination[rank, k] * attractiveness[pair[i, rank]]
                last[k] -= clicked
                clicks += clicked
            last[rank + 1] = clicks
            total += clicks
        out[i] = total
