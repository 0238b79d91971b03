"""NeuralModel: a click model found by gradient whose click probabilities are written for a whole list.

A subclass writes `start` and `click_given_history`; docs/how-to/add-a-click-model.md makes one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.models._differentiable import Arrays, HistoryBased
from clickshift.models._formulas import sigmoid
from clickshift.models._histories import MAX_ENUMERATED, average_over_draws, sum_over_histories
from clickshift.models.base import ClickModel, Evidence, PairTable

_MAX_TABLE_SIZE = 1 << 21  # numbers per table: few enough lists are enumerated at a time to stay below


@dataclass(frozen=True, eq=False)
class NeuralModel(ClickModel, HistoryBased):
    """Parameters: what the tower gave for each pair, and what all sessions share."""

    vocabulary: Vocabulary
    by_pair: Mapping[str, np.ndarray]
    """Shape `pair_or_unseen` or `pair_or_unseen width`, by output."""
    shared: Mapping[str, np.ndarray]

    uses_history: ClassVar[bool] = True

    @override
    @classmethod
    def found(cls, vocabulary: Vocabulary, by_pair: Arrays, shared: Arrays, evidence: Evidence) -> ClickModel:
        return cls(vocabulary, dict(by_pair), dict(shared), evidence=evidence)

    def _outputs(self, pair: np.ndarray) -> dict[str, np.ndarray]:
        return {name: table[pair].astype(np.float64) for name, table in self.by_pair.items()}

    def _shared(self) -> dict[str, np.ndarray]:
        return {name: array.astype(np.float64) for name, array in self.shared.items()}

    @override
    def _click_prob_given_history(self, sessions: Sessions) -> Float[np.ndarray, "session rank"]:
        prob = self.click_given_history(self._outputs(sessions.rankings.pair), self._shared(), sessions.click)
        given: np.ndarray = prob.yes
        return given

    @override
    def _click_prob(self, rankings: Rankings) -> Float[np.ndarray, "session rank"]:
        """Clicks above summed out over every history, or over a sample of them in longer lists."""
        outputs, ranks = self._outputs(rankings.pair), rankings.n_ranks
        if ranks <= MAX_ENUMERATED:
            width = sum(array[0, 0].size for array in outputs.values())
            step = max(1, _MAX_TABLE_SIZE // (ranks << ranks) // max(width // ranks, 1))
            parts = [slice(at, at + step) for at in range(0, len(rankings), step)]
            return np.concatenate([self._enumerated({k: v[part] for k, v in outputs.items()}) for part in parts])
        shared = self._shared()

        def given(click: np.ndarray, session: np.ndarray) -> np.ndarray:
            prob: np.ndarray = self.click_given_history({k: v[session] for k, v in outputs.items()}, shared, click).yes
            return prob

        return average_over_draws(given, len(rankings), ranks)

    def _enumerated(self, outputs: Mapping[str, np.ndarray]) -> Float[np.ndarray, "session rank"]:
        """Any model, at the price of running each history from its first rank."""
        shared, (n, ranks) = self._shared(), next(iter(outputs.values())).shape[:2]

        def given(rank: int) -> np.ndarray:
            histories = np.arange(1 << rank)
            click = np.zeros((len(histories), rank + 1), bool)
            click[:, :rank] = (histories[:, None] >> np.arange(rank)) % 2 == 1
            lists = {name: np.repeat(array[:, : rank + 1], len(click), axis=0) for name, array in outputs.items()}
            prob: Any = self.click_given_history(lists, shared, np.tile(click, (n, 1))).yes
            last: np.ndarray = prob[:, rank].reshape(n, -1)
            return last

        return sum_over_histories(given, n, ranks)

    @override
    def _relevance(self) -> PairTable:
        """Attractiveness where the model has one; else the click probability of the document placed first."""
        if "attractiveness" in self.by_pair:
            attractiveness: np.ndarray = sigmoid(self.by_pair["attractiveness"].astype(np.float64)).yes
            return attractiveness
        every = np.arange(len(next(iter(self.by_pair.values()))))[:, None]
        first = self.click_given_history(self._outputs(every), self._shared(), np.zeros(every.shape, bool))
        relevance: np.ndarray = first.yes[:, 0]
        return relevance
