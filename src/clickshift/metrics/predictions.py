"""Predictions: what a model said of every result of a log, computed once for all metrics."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, final

import numpy as np
from jaxtyping import Float, Int

from clickshift.data.sessions import Sessions
from clickshift.models.base import ClickModel

PredictionKind = Literal["conditional", "marginal"]
"""Conditional probabilities know the clicks above a result, marginal ones do not."""


@final
@dataclass(frozen=True, eq=False)
class Predictions:
    """The click probabilities that a model gave to the results of a log."""

    sessions: Sessions
    prob: Float[np.ndarray, "session rank"]
    """As the model gave it, not clipped; 0 where nothing is shown."""
    peeks: bool = False
    """True for a model that was shown the clicks which it predicts."""

    @classmethod
    def of(cls, model: ClickModel, sessions: Sessions, *, kind: PredictionKind = "conditional") -> Predictions:
        prob = (
            model.click_prob_given_history(sessions) if kind == "conditional" else model.click_prob(sessions.rankings)
        )
        return cls(sessions, prob, model.peeks)

    @cached_property
    def ascending(self) -> Int[np.ndarray, " impression"]:
        """The flat index (row times ranks, plus rank) of every result that is shown, the least probable click first."""
        shown = np.flatnonzero(self.sessions.rankings.shown)
        order: np.ndarray = shown[np.argsort(self.prob.ravel()[shown])]
        return order
