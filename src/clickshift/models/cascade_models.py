"""Cascade models: users read from the top (CM, DCM, CCM).

- CM: the cascade model (Craswell et al. 2008).
- DCM: the dependent click model (Guo et al. 2009).
- CCM: the click chain model (Guo et al. 2009).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from clickshift.data.sessions import Rankings
from clickshift.data.vocabulary import Vocabulary
from clickshift.models._chain import ChainModel, cascade
from clickshift.models._formulas import Chain
from clickshift.models.base import PairTable, at_rank, at_results


@final
@dataclass(frozen=True, eq=False)
class CM(ChainModel):
    """Cascade model (Craswell et al. 2008): the user reads from the top, clicks the first attractive result and leaves.

    A second click has probability 0, so its cost in a metric is decided by the metric's clipping of probabilities.

    Parameters
    ----------
    vocabulary
        Queries, documents and pairs of the model.
    attractiveness
        P(click | examined) by pair, unseen pairs last.
    evidence
        How the parameters were estimated.

    References
    ----------
    Craswell, N., Zoeter, O., Taylor, M. and Ramsey, B. (2008). An experimental comparison of click position-bias
    models. WSDM.
    """

    vocabulary: Vocabulary
    attractiveness: PairTable

    @override
    def _chain(self, rankings: Rankings) -> Chain:
        attractiveness = at_results(self.attractiveness, rankings)
        return cascade(
            attractiveness,
            after_click=np.float64(0),
            after_skip=np.float64(1),
        )

    @override
    def _relevance(self) -> PairTable:
        return self.attractiveness


@final
@dataclass(frozen=True, eq=False)
class DCM(ChainModel):
    """Dependent click model (Guo et al. 2009): a cascade that continues after a click with a probability by rank.

    P(E_{r+1} = 1 | E_r = 1, C_r = 0) = 1,  P(E_{r+1} = 1 | E_r = 1, C_r = 1) = continuation_r

    Parameters
    ----------
    vocabulary
        Queries, documents and pairs of the model.
    attractiveness
        P(click | examined) by pair, unseen pairs last.
    continuation
        P(the user goes on after a click) by rank; ranks beyond the last known one take its value.
    evidence
        How the parameters were estimated.

    References
    ----------
    Guo, F., Liu, C. and Wang, Y. M. (2009). Efficient multiple-click models in web search. WSDM.
    """

    vocabulary: Vocabulary
    attractiveness: PairTable
    continuation: Float[np.ndarray, " known_rank"]

    @override
    def _chain(self, rankings: Rankings) -> Chain:
        attractiveness = at_results(self.attractiveness, rankings)
        return cascade(
            attractiveness,
            after_click=at_rank(self.continuation, rankings.n_ranks),
            after_skip=np.float64(1),
        )

    @override
    def _relevance(self) -> PairTable:
        return self.attractiveness

    @override
    def _browsing_curve(self) -> tuple[str, list[dict[str, Any]]]:
        return "continuation", [{"rank": r + 1} for r in range(len(self.continuation))]


@final
@dataclass(frozen=True, eq=False)
class CCM(ChainModel):
    """Click chain model (Guo et al. 2009): a cascade whose continuation depends on the relevance of what was clicked.

    continuation = (t1, t2, t3):  after a skip t1,  after a click t2 (1 - attractiveness) + t3 attractiveness

    Parameters
    ----------
    vocabulary
        Queries, documents and pairs of the model.
    attractiveness
        P(click | examined) by pair, unseen pairs last.
    continuation
        P(the user goes on) after a skip, after a click on an irrelevant document, after a click on a relevant one.
    evidence
        How the parameters were estimated.

    References
    ----------
    Guo, F., Liu, C., Kannan, A., Minka, T., Taylor, M., Wang, Y. M. and Faloutsos, C. (2009). Click chain model in web
    search. WWW.
    """

    vocabulary: Vocabulary
    attractiveness: PairTable
    continuation: Float[np.ndarray, 3]

    @override
    def _chain(self, rankings: Rankings) -> Chain:
        attractiveness = at_results(self.attractiveness, rankings)
        skip, irrelevant, relevant = self.continuation
        return cascade(
            attractiveness,
            after_click=irrelevant * (1 - attractiveness) + relevant * attractiveness,
            after_skip=skip,
        )

    @override
    def _relevance(self) -> PairTable:
        return self.attractiveness

    @override
    def _browsing_curve(self) -> tuple[str, list[dict[str, Any]]]:
        return "continuation", [{"after": after} for after in ("a skip", "an irrelevant click", "a relevant click")]
