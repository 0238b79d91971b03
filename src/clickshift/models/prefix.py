"""PrefixModel: a click needs attractiveness and examination, and examination depends on all clicks above."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float
from typing_extensions import override

from clickshift.models.base import ClickModel, Evidence, PairTable
from clickshift.models.differentiable import Arrays, ByExamination
from clickshift.models.formulas import sigmoid
from clickshift.models.histories import MAX_ENUMERATED, Histories, average_over_draws, sum_over_histories
from clickshift.sessions import Rankings, Sessions
from clickshift.statistics import By
from clickshift.vocabulary import Vocabulary


@dataclass(frozen=True, eq=False)
class PrefixModel(ClickModel, ByExamination):
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
        examined = self.examined(Histories.all(ranks))

        def given(rank: int) -> np.ndarray:
            prob: np.ndarray = attractiveness[:, rank, None] * examined[(1 << rank) - 1 : (2 << rank) - 1]
            return prob

        return sum_over_histories(given, n, ranks)

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
