"""SoftDBN: the recursion that the code of the CMIP paper calls DBN, kept to reproduce the paper's numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.models.base import ClickModel, PairTable, at_results


@final
@dataclass(frozen=True, eq=False)
class SoftDBN(ClickModel):
    """Soft DBN (code of Deffayet et al. 2023): DBN with a deterministic examination weight in place of an event.

    The user's stopping is never sampled, and a click is no evidence that the results above were examined.

    e_1 = 1;  P(C_r = 1 | C_<r) = e_r x attractiveness;  e_{r+1} = e_r x continuation x (1 - satisfaction C_r)

    Relevance is attractiveness x satisfaction, as for DBN.

    Parameters
    ----------
    vocabulary
        Queries, documents and pairs of the model.
    attractiveness
        P(click) at e = 1, by pair, unseen pairs last.
    satisfaction
        Share of the examination weight that a click removes, by pair, unseen pairs last.
    continuation
        Factor of the examination weight from one rank to the next.
    evidence
        How the parameters were estimated.

    References
    ----------
    Deffayet, R. et al. (2023). An offline metric for the debiasedness of click models. SIGIR.
    """

    vocabulary: Vocabulary
    attractiveness: PairTable
    satisfaction: PairTable
    continuation: float

    uses_history: ClassVar[bool] = True

    @override
    def _click_prob_given_history(self, sessions: Sessions) -> Float[np.ndarray, "session rank"]:
        pair = sessions.rankings.pair
        shrink = self.continuation * (1 - self.satisfaction[pair] * sessions.click)
        examination = np.ones(pair.shape)
        np.cumprod(shrink[:, :-1], axis=1, out=examination[:, 1:])
        prob: np.ndarray = examination * self.attractiveness[pair]
        return prob

    @override
    def _click_prob(self, rankings: Rankings) -> Float[np.ndarray, "session rank"]:
        """Compute P(C_r = 1) = a_r E[e_r] from the moments of e.

        E[e_{r+1}^j] = continuation^j ( E[e_r^j] - a_r (1 - (1 - s_r)^j) E[e_r^{j+1}] )
        """
        attractiveness, stay = at_results(self.attractiveness, rankings), 1 - self.satisfaction[rankings.pair]
        out = np.empty(rankings.pair.shape)
        moments = [np.ones(len(rankings)) for _ in range(rankings.n_ranks + 1)]
        for rank in range(rankings.n_ranks):
            a, s = attractiveness[:, rank], stay[:, rank]
            out[:, rank] = a * moments[1]
            moments = [
                self.continuation**j * (moments[j] - a * (1 - s**j) * moments[j + 1]) for j in range(len(moments) - 1)
            ]
        return out

    @override
    def _relevance(self) -> PairTable:
        relevance: np.ndarray = self.attractiveness * self.satisfaction
        return relevance
