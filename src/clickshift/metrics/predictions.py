"""Click predictions of a model for every result of a log, computed once for all metrics."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, final

import numpy as np
from jaxtyping import Float, Int

from clickshift.data.sessions import Sessions
from clickshift.models.base import MARGINAL_ERROR, ClickModel

PredictionKind = Literal["conditional", "marginal"]
"""Kind of click probability: conditional on the clicks above a result, or marginal over them."""


@final
@dataclass(frozen=True, eq=False)
class Predictions:
    """Click probabilities that a model assigns to the results of a log.

    Parameters
    ----------
    sessions
        The log.
    prob
        Click probability of each result as the model gave it, not clipped; 0 where nothing is shown.
    peeks
        Whether the model was shown the clicks it predicts.
    """

    sessions: Sessions
    prob: Float[np.ndarray, "session rank"]
    peeks: bool = False

    @classmethod
    def of(
        cls, model: ClickModel, sessions: Sessions, *, kind: PredictionKind = "conditional", exact: bool = False
    ) -> Predictions:
        """Predict the clicks of a log.

        Parameters
        ----------
        model
            Click model.
        sessions
            Log to predict.
        kind
            "conditional" predicts each click given the clicks above it, "marginal" without them.
        exact
            Whether marginal probabilities of models that sum over click histories (NCM) are exact. By default, they may
            have an error of `MARGINAL_ERROR`, which is much faster.
        """
        if kind == "conditional":
            prob = model.click_prob_given_history(sessions)
        else:
            prob = model.click_prob(sessions.rankings, max_error=0.0 if exact else MARGINAL_ERROR)
        return cls(sessions, prob, model.peeks)

    @cached_property
    def ascending(self) -> Int[np.ndarray, " impression"]:
        """Flat indices (row times ranks, plus rank) of all shown results in ascending order of their probability."""
        shown = np.flatnonzero(self.sessions.rankings.shown)
        order: np.ndarray = shown[np.argsort(self.prob.ravel()[shown])]
        return order
