"""ARM: the auto-regressive click model of Deffayet et al. (2022), and its degenerate twin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from clickshift.data.sessions import Rankings, Sessions
from clickshift.errors import CapabilityError
from clickshift.models._differentiable import Arrays
from clickshift.models._formulas import Array, sigmoid
from clickshift.models._histories import Histories
from clickshift.models._prefix import PrefixModel


@dataclass(frozen=True, eq=False)
class _AutoRegressive(PrefixModel):
    @override
    @classmethod
    def start(cls, n_ranks: int, state: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"bias": np.zeros(()), "weight": np.zeros(n_ranks)}

    @property
    @override
    def known_ranks(self) -> int:
        return len(self.shared["weight"])

    @override
    @classmethod
    def examination_logits(cls, shared: Arrays, histories: Histories) -> Array:
        known = np.minimum(np.arange(histories.n_ranks), shared["weight"].shape[0] - 1)
        return shared["bias"] + histories.click.astype(np.float32) @ shared["weight"][known]


@final
@dataclass(frozen=True, eq=False)
class ARM(_AutoRegressive):
    """Examination is a logistic regression on the clicks above, with one weight per absolute rank.

    P(E_r = 1 | C_<r) = sigmoid(w_0 + sum over j < r of w_j C_j)

    The paper's eq. 15 lacks the sigmoid. Clicks at ranks beyond the known ones weigh like the last known one.
    """


@final
@dataclass(frozen=True, eq=False)
class ARM_NC(_AutoRegressive):
    """ARM that is also shown the click which it predicts: sum over j <= r. A warning, not a model.

    It tells what happened with what happened, so its perplexity is low, means nothing, and is never compared: kept from
    the paper to show what a careless evaluation rewards. It gives no marginal, and its likelihoods do not sum to 1.
    """

    peeks: ClassVar[bool] = True

    @override
    @classmethod
    def peek(cls, shared: Arrays, histories: Histories) -> Array:
        return shared["weight"][np.minimum(histories.rank, shared["weight"].shape[0] - 1)]

    @override
    def _click_prob_given_history(self, sessions: Sessions) -> Float[np.ndarray, "session rank"]:
        """Of the click that happened, given that it happened."""
        histories, where = Histories.of(sessions.click)
        without = self.examination_logits(self.shared, histories)
        logit = np.where(sessions.click, (without + self.peek(self.shared, histories))[where], without[where])
        prob: np.ndarray = self.attractiveness[sessions.rankings.pair] * sigmoid(logit.astype(np.float64)).yes
        return prob

    @override
    def _click_prob(self, rankings: Rankings) -> Float[np.ndarray, "session rank"]:
        raise CapabilityError("ARM_NC predicts a click from that click: it has no marginal. Use ARM.")
