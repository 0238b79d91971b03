"""PrefixModel: a click needs attractiveness and examination, and examination depends on all clicks above."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, no_type_check

import numpy as np
from jaxtyping import Bool, Float
from numba import njit
from typing_extensions import override

from clickshift.counts.cells import By
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.models._differentiable import Arrays, ExaminationBased
from clickshift.models._formulas import sigmoid
from clickshift.models._histories import MAX_ENUMERATED, Histories, average_over_draws
from clickshift.models.base import ClickModel, Evidence, PairTable, at_results


@dataclass(frozen=True, eq=False)
class PrefixModel(ClickModel, ExaminationBased):
    """Model of the form P(C_r = 1 | C_<r) = attractiveness x sigmoid(logit(C_1..C_{r-1})).

    Subclasses implement `examination_logits`.

    Parameters
    ----------
    vocabulary
        Queries, documents and pairs of the model.
    attractiveness
        P(click | examined) by pair, unseen pairs last.
    shared
        Parameters of examination, by name.
    evidence
        How the parameters were estimated.
    """

    vocabulary: Vocabulary
    attractiveness: PairTable
    shared: Mapping[str, np.ndarray]

    uses_history: ClassVar[bool] = True
    situations: ClassVar[By] = "prefix"

    @override
    @classmethod
    def from_parameters(cls, vocabulary: Vocabulary, by_pair: Arrays, shared: Arrays, evidence: Evidence) -> ClickModel:
        attractiveness = sigmoid(by_pair["attractiveness"].astype(np.float64)).yes
        return cls(vocabulary, attractiveness, dict(shared), evidence=evidence)

    def examination_after(self, histories: Histories) -> Float[np.ndarray, " history"]:
        """Return the probability that a result is examined, for each history."""
        shared = {name: array.astype(np.float64) for name, array in self.shared.items()}
        prob: np.ndarray = sigmoid(self.examination_logits(shared, histories)).yes
        return prob

    @override
    def _click_prob_given_history(self, sessions: Sessions) -> Float[np.ndarray, "session rank"]:
        prob: np.ndarray = self.attractiveness[sessions.rankings.pair] * self._examination_by_result(sessions.click)
        return prob

    def _examination_by_result(self, click: Bool[np.ndarray, "session rank"]) -> Float[np.ndarray, "session rank"]:
        """Return the examination of each result, computed once per distinct history."""
        histories, history = Histories.of(click)
        examination: np.ndarray = self.examination_after(histories)[history]
        return examination

    @override
    def _click_prob(self, rankings: Rankings) -> Float[np.ndarray, "session rank"]:
        """Sum over all histories of clicks above, or average over a sample of them in longer lists."""
        attractiveness, n, ranks = at_results(self.attractiveness, rankings), len(rankings), rankings.n_ranks
        if ranks > MAX_ENUMERATED:
            return average_over_draws(
                lambda click, session: attractiveness[session] * self._examination_by_result(click), n, ranks
            )
        out = np.zeros(attractiveness.shape)
        _sum_over_histories_kernel(attractiveness, self._examination_after_all(ranks), rankings.length, out)
        return out

    @cached_property
    def _examination_cache(self) -> dict[int, Float[np.ndarray, " history"]]:
        """Tables of `_examination_after_all` by the length of lists."""
        return {}

    def _examination_after_all(self, ranks: int) -> Float[np.ndarray, " history"]:
        """Return examination after every history of lists of this length; computed once for many small blocks."""
        if ranks not in self._examination_cache:
            self._examination_cache[ranks] = self.examination_after(Histories.all(ranks))
        return self._examination_cache[ranks]

    @override
    def _relevance(self) -> PairTable:
        return self.attractiveness

    @property
    @abstractmethod
    def known_ranks(self) -> int:
        """Number of ranks that the model was fitted on."""

    @property
    def examination(self) -> Float[np.ndarray, " situation"]:
        """Examination if one result above or none was clicked, numbered as in `UBM`."""
        ranks, click = self.known_ranks, np.eye(self.known_ranks + 1, self.known_ranks, -1) == 1
        examination = self._examination_by_result(click)  # a row per clicked rank, the first for none
        return np.concatenate([examination[: rank + 1, rank] for rank in range(ranks)])

    @override
    def _browsing_curve(self) -> tuple[str, list[dict[str, Any]]]:
        ranks = range(self.known_ranks)
        return "examination", [{"rank": r + 1, "last_click": last or None} for r in ranks for last in range(r + 1)]


@njit(cache=True, nogil=True, fastmath=True)
@no_type_check
def _sum_over_histories_kernel(attractiveness, examination, length, out):
    """Compiled form of `_histories.sum_over_histories`; examination after history h of rank r is at 2^r - 1 + h."""
    prob = np.empty(1 << out.shape[1])
    for i in range(len(out)):
        prob[0] = 1.0
        for rank in range(length[i]):
            half, total = 1 << rank, 0.0
            at_rank, skipped, clicked = examination[half - 1 : 2 * half - 1], prob[:half], prob[half : 2 * half]
            for h in range(half):
                clicked[h] = skipped[h] * at_rank[h] * attractiveness[i, rank]
            for h in range(half):
                skipped[h] -= clicked[h]
                total += clicked[h]
            out[i, rank] = total
