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
from clickshift.models._histories import MAX_ENUMERATED, Histories, average_over_draws, sum_over_histories
from clickshift.models.base import ClickModel, Evidence, PairTable


@dataclass(frozen=True, eq=False)
class PrefixModel(ClickModel, ExaminationBased):
    """P(C_r = 1 | C_<r) = attractiveness x sigmoid(logit(C_1..C_{r-1})); subclasses write `examination_logits`."""

    vocabulary: Vocabulary
    attractiveness: PairTable
    shared: Mapping[str, np.ndarray]

    uses_history: ClassVar[bool] = True
    situations: ClassVar[By] = "prefix"

    @override
    @classmethod
    def found(cls, vocabulary: Vocabulary, by_pair: Arrays, shared: Arrays, evidence: Evidence) -> ClickModel:
        attractiveness = sigmoid(by_pair["attractiveness"].astype(np.float64)).yes
        return cls(vocabulary, attractiveness, dict(shared), evidence=evidence)

    def examined(self, histories: Histories) -> Float[np.ndarray, " history"]:
        """The probability that a result with this history is examined."""
        shared = {name: array.astype(np.float64) for name, array in self.shared.items()}
        prob: np.ndarray = sigmoid(self.examination_logits(shared, histories)).yes
        return prob

    @override
    def _click_prob_given_history(self, sessions: Sessions) -> Float[np.ndarray, "session rank"]:
        prob: np.ndarray = self.attractiveness[sessions.rankings.pair] * self._examined_in(sessions.click)
        return prob

    def _examined_in(self, click: Bool[np.ndarray, "session rank"]) -> Float[np.ndarray, "session rank"]:
        histories, where = Histories.of(click)
        examined: np.ndarray = self.examined(histories)[where]
        return examined

    @override
    def _click_prob(self, rankings: Rankings) -> Float[np.ndarray, "session rank"]:
        """Clicks above summed out over every history, or over a sample of them in longer lists."""
        attractiveness, n, ranks = self.attractiveness[rankings.pair], len(rankings), rankings.n_ranks
        if ranks > MAX_ENUMERATED:
            return average_over_draws(
                lambda click, session: attractiveness[session] * self._examined_in(click), n, ranks
            )
        examined = self._examined_after_all(ranks)

        def given(rank: int) -> np.ndarray:
            prob: np.ndarray = attractiveness[:, rank, None] * examined[(1 << rank) - 1 : (2 << rank) - 1]
            return prob

        return sum_over_histories(given, n, ranks)

    @override
    def _expected_clicks(self, rankings: Rankings, tolerance: float) -> Float[np.ndarray, " session"]:
        if rankings.n_ranks > MAX_ENUMERATED:
            return super()._expected_clicks(rankings, tolerance)
        out, examined = np.empty(len(rankings)), self._examined_after_all(rankings.n_ranks)
        _expected_clicks_kernel(self.attractiveness, examined, rankings.pair, rankings.length, out)
        return out

    @cached_property
    def _tables(self) -> dict[int, Float[np.ndarray, " history"]]:
        return {}

    def _examined_after_all(self, ranks: int) -> Float[np.ndarray, " history"]:
        """Examination after every history that lists of this length can have: computed once, for many small blocks."""
        if ranks not in self._tables:
            self._tables[ranks] = self.examined(Histories.all(ranks))
        return self._tables[ranks]

    @override
    def _relevance(self) -> PairTable:
        return self.attractiveness

    @property
    @abstractmethod
    def known_ranks(self) -> int:
        """How many ranks the model was learned on."""

    @property
    def examination(self) -> Float[np.ndarray, " situation"]:
        """Examination where one result above was clicked, or none: numbered as in `UBM`."""
        ranks, click = self.known_ranks, np.eye(self.known_ranks + 1, self.known_ranks, -1) == 1
        examined = self._examined_in(click)  # a row per clicked rank, the first for none
        return np.concatenate([examined[: rank + 1, rank] for rank in range(ranks)])

    @override
    def _curve(self) -> tuple[str, list[dict[str, Any]]]:
        ranks = range(self.known_ranks)
        return "examination", [{"rank": r + 1, "last_click": last or None} for r in ranks for last in range(r + 1)]


@njit(cache=True, nogil=True, fastmath=True)
@no_type_check
def _expected_clicks_kernel(attractiveness, examined, pair, length, out):
    """The recursion of `histories.sum_over_histories`, compiled; history h of rank r stands at 2^r - 1 + h."""
    prob = np.empty(1 << pair.shape[1])
    for i in range(len(out)):
        prob[0], total = 1.0, 0.0
        for rank in range(length[i]):
            half = 1 << rank
            attracted = attractiveness[pair[i, rank]]
            here, skipped, clicked = examined[half - 1 : 2 * half - 1], prob[:half], prob[half : 2 * half]
            for h in range(half):
                clicked[h] = skipped[h] * here[h] * attracted
            for h in range(half):
                skipped[h] -= clicked[h]
                total += clicked[h]
        out[i] = total
