"""DBN and SDBN: the dynamic Bayesian network (Chapelle and Zhang 2009) and its simplified form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from typing_extensions import override

from clickshift.data.sessions import Rankings
from clickshift.data.vocabulary import Vocabulary
from clickshift.models._chain import ChainModel, cascade
from clickshift.models._differentiable import Arrays, HistoryBased
from clickshift.models._formulas import Array, Chain, Prob, both, chain_click_given_history, sigmoid
from clickshift.models.base import ClickModel, Evidence, PairTable, at_results


@final
@dataclass(frozen=True, eq=False)
class DBN(ChainModel, HistoryBased):
    """Dynamic Bayesian network (Chapelle and Zhang 2009): attractiveness, satisfaction after a click, continuation.

    The user reads from the top and clicks attractive results; after a click they may be satisfied and leave, otherwise
    they go on with a fixed probability.

    P(C_r = 1 | E_r = 1) = attractiveness
    P(E_{r+1} = 1 | E_r = 1, C_r = 0) = continuation
    P(E_{r+1} = 1 | E_r = 1, C_r = 1) = continuation (1 - satisfaction)

    Relevance is attractiveness x satisfaction: the probability that an examined document is clicked and satisfies.

    Parameters
    ----------
    vocabulary
        Queries, documents and pairs of the model.
    attractiveness
        P(click | examined) by pair, unseen pairs last.
    satisfaction
        P(the user leaves | clicked) by pair, unseen pairs last.
    continuation
        P(the user goes on | not satisfied).
    bottom_up
        Whether the user reads from the last result upwards.
    evidence
        How the parameters were estimated.

    References
    ----------
    Chapelle, O. and Zhang, Y. (2009). A dynamic Bayesian network click model for web search ranking. WWW.
    """

    vocabulary: Vocabulary
    attractiveness: PairTable
    satisfaction: PairTable
    continuation: float
    bottom_up: bool = False

    @override
    def _chain(self, rankings: Rankings) -> Chain:
        attractiveness = at_results(self.attractiveness, rankings)
        return cascade(
            attractiveness,
            after_click=self.continuation * (1 - self.satisfaction[rankings.pair]),
            after_skip=np.float64(self.continuation),
        )

    @override
    def _relevance(self) -> PairTable:
        relevance: np.ndarray = self.attractiveness * self.satisfaction
        return relevance

    @override
    @classmethod
    def outputs(cls, state: int) -> dict[str, int]:
        return {"attractiveness": 1, "satisfaction": 1}

    @override
    @classmethod
    def start(cls, n_ranks: int, state: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"continuation": np.full((), 2.2)}  # the logit of .9

    @override
    @classmethod
    def click_given_history(cls, by_pair: Arrays, shared: Arrays, click: Array) -> Prob:
        attractive, satisfied = sigmoid(by_pair["attractiveness"]), sigmoid(by_pair["satisfaction"])
        xp, continues = attractive.yes.__array_namespace__(), sigmoid(shared["continuation"])
        ones, zeros = xp.ones_like(attractive.yes), xp.zeros_like(attractive.yes)
        chain = Chain(
            click=attractive,
            click_after_click=attractive,
            follow_click=both(continues, Prob(satisfied.no, satisfied.yes)),
            follow_skip=Prob(continues.yes * ones, continues.no * ones),
            follow_unseen=Prob(zeros, ones),
        )
        return chain_click_given_history(chain, click)

    @override
    @classmethod
    def from_parameters(cls, vocabulary: Vocabulary, by_pair: Arrays, shared: Arrays, evidence: Evidence) -> ClickModel:
        attractiveness, satisfaction, continuation = (
            sigmoid(logit.astype(np.float64)).yes
            for logit in (by_pair["attractiveness"], by_pair["satisfaction"], shared["continuation"])
        )
        return cls(vocabulary, attractiveness, satisfaction, float(continuation), evidence=evidence)

    @override
    def _browsing_curve(self) -> tuple[str, list[dict[str, Any]]]:
        return "continuation", [{"after": "a skip or a click that did not satisfy"}]


@final
@dataclass(frozen=True, eq=False)
class SDBN(ChainModel):
    """Simplified dynamic Bayesian network (Chapelle and Zhang 2009): DBN with continuation 1.

    Users never give up before they are satisfied: P(E_{r+1} = 1 | E_r = 1, C_r) = 1 - C_r satisfaction.

    Parameters
    ----------
    vocabulary
        Queries, documents and pairs of the model.
    attractiveness
        P(click | examined) by pair, unseen pairs last.
    satisfaction
        P(the user leaves | clicked) by pair, unseen pairs last.
    evidence
        How the parameters were estimated.

    References
    ----------
    Chapelle, O. and Zhang, Y. (2009). A dynamic Bayesian network click model for web search ranking. WWW.
    """

    vocabulary: Vocabulary
    attractiveness: PairTable
    satisfaction: PairTable

    @override
    def _chain(self, rankings: Rankings) -> Chain:
        attractiveness = at_results(self.attractiveness, rankings)
        return cascade(
            attractiveness,
            after_click=1 - self.satisfaction[rankings.pair],
            after_skip=np.float64(1),
        )

    @override
    def _relevance(self) -> PairTable:
        relevance: np.ndarray = self.attractiveness * self.satisfaction
        return relevance
