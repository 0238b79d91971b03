"""ARM and ARM_NC: the auto-regressive click models of the policy-shift paper (Deffayet et al. 2022)."""

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
    """Parameters of ARM and ARM_NC: the bias w_0 and one weight per rank of a click above."""

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
        known_rank = np.minimum(np.arange(histories.n_ranks), shared["weight"].shape[0] - 1)
        return shared["bias"] + histories.click.astype(np.float32) @ shared["weight"][known_rank]


@final
@dataclass(frozen=True, eq=False)
class ARM(_AutoRegressive):
    """Auto-regressive model (ARM; Deffayet et al. 2022): examination is a logistic regression on the clicks above.

    There is one weight per absolute rank of a click:
    P(E_r = 1 | C_<r) = sigmoid(w_0 + sum over j < r of w_j C_j)

    Equation 15 of the paper lacks the sigmoid. Clicks at ranks beyond the last known one have its weight.

    Parameters
    ----------
    vocabulary
        Queries, documents and pairs of the model.
    attractiveness
        P(click | examined) by pair, unseen pairs last.
    shared
        "bias" w_0 and "weight" w_j by rank.
    evidence
        How the parameters were estimated.

    References
    ----------
    Deffayet, R., Renders, J.-M. and de Rijke, M. (2022). Evaluating the robustness of click models to policy
    distributional shift. ACM TOIS.
    """


@final
@dataclass(frozen=True, eq=False)
class ARM_NC(_AutoRegressive):
    """Auto-regressive model with the predicted click among its inputs (ARM-NC; Deffayet et al. 2022): sum over j <= r.

    It predicts a click from that click, so its perplexity is low and meaningless, and it is never compared with other
    models. It is kept from the paper to show what a careless evaluation rewards. It has no marginal, and its
    likelihoods do not sum to 1.

    Parameters
    ----------
    vocabulary
        Queries, documents and pairs of the model.
    attractiveness
        P(click | examined) by pair, unseen pairs last.
    shared
        "bias" w_0 and "weight" w_j by rank.
    evidence
        How the parameters were estimated.

    References
    ----------
    Deffayet, R., Renders, J.-M. and de Rijke, M. (2022). Evaluating the robustness of click models to policy
    distributional shift. ACM TOIS.
    """

    peeks: ClassVar[bool] = True

    @override
    @classmethod
    def own_click_logit(cls, shared: Arrays, histories: Histories) -> Array:
        return shared["weight"][np.minimum(histories.rank, shared["weight"].shape[0] - 1)]

    @override
    def _click_prob_given_history(self, sessions: Sessions) -> Float[np.ndarray, "session rank"]:
        """Return the probability of a click, with the observed click itself among the inputs."""
        histories, history = Histories.of(sessions.click)
        skip_logit = self.examination_logits(self.shared, histories)
        click_logit = skip_logit + self.own_click_logit(self.shared, histories)
        logit = np.where(sessions.click, click_logit[history], skip_logit[history])
        prob: np.ndarray = self.attractiveness[sessions.rankings.pair] * sigmoid(logit.astype(np.float64)).yes
        return prob

    @override
    def _click_prob(self, rankings: Rankings) -> Float[np.ndarray, "session rank"]:
        raise CapabilityError(
            "ARM_NC predicts a click from that click: it has no marginal. Use ARM.",
            code="no-marginal-prediction",
            model="ARM_NC",
        )
