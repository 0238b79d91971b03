"""DBN: the dynamic Bayesian network of Chapelle & Zhang (2009)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from typing_extensions import override

from clickshift.data.sessions import Rankings
from clickshift.data.vocabulary import Vocabulary
from clickshift.models._chain import ChainModel
from clickshift.models._differentiable import Arrays, HistoryBased
from clickshift.models._formulas import Array, Chain, Prob, both, chain_click_given_history, sigmoid
from clickshift.models.base import ClickModel, Evidence, PairTable


@final
@dataclass(frozen=True, eq=False)
class DBN(ChainModel, HistoryBased):
    """The user walks down, clicks what attracts, may be satisfied by a click and leave, else goes on.

    P(C_r = 1 | E_r = 1) = attractiveness
    P(E_{r+1} = 1 | E_r = 1, C_r = 0) = continuation
    P(E_{r+1} = 1 | E_r = 1, C_r = 1) = continuation (1 - satisfaction)

    Relevance is attractiveness x satisfaction, the probability that the document is clicked and satisfies.
    """

    vocabulary: Vocabulary
    attractiveness: PairTable
    satisfaction: PairTable
    continuation: float
    bottom_up: bool = False

    @override
    def _chain(self, rankings: Rankings) -> Chain:
        click = self.attractiveness[rankings.pair]
        return Chain(
            click=click,
            click_after_click=click,
            follow_click=self.continuation * (1 - self.satisfaction[rankings.pair]),
            follow_skip=np.float64(self.continuation),
            follow_unseen=np.float64(0),
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
        attracted, satisfied = sigmoid(by_pair["attractiveness"]), sigmoid(by_pair["satisfaction"])
        xp, going_on = attracted.yes.__array_namespace__(), sigmoid(shared["continuation"])
        everywhere, nowhere = xp.ones_like(attracted.yes), xp.zeros_like(attracted.yes)
        chain = Chain(
            click=attracted,
            click_after_click=attracted,
            follow_click=both(going_on, Prob(satisfied.no, satisfied.yes)),
            follow_skip=Prob(going_on.yes * everywhere, going_on.no * everywhere),
            follow_unseen=Prob(nowhere, everywhere),
        )
        return chain_click_given_history(chain, click)

    @override
    @classmethod
    def found(cls, vocabulary: Vocabulary, by_pair: Arrays, shared: Arrays, evidence: Evidence) -> ClickModel:
        attracted, satisfied, going_on = (
            sigmoid(logit.astype(np.float64)).yes
            for logit in (by_pair["attractiveness"], by_pair["satisfaction"], shared["continuation"])
        )
        return cls(vocabulary, attracted, satisfied, float(going_on), evidence=evidence)

    @override
    def _curve(self) -> tuple[str, list[dict[str, Any]]]:
        return "continuation", [{"after": "a skip or a click that did not satisfy"}]


@final
@dataclass(frozen=True, eq=False)
class SDBN(ChainModel):
    """DBN with continuation 1: P(E_{r+1} = 1 | E_r = 1, C_r) = 1 - C_r satisfaction."""

    vocabulary: Vocabulary
    attractiveness: PairTable
    satisfaction: PairTable

    @override
    def _chain(self, rankings: Rankings) -> Chain:
        click = self.attractiveness[rankings.pair]
        return Chain(
            click=click,
            click_after_click=click,
            follow_click=1 - self.satisfaction[rankings.pair],
            follow_skip=np.float64(1),
            follow_unseen=np.float64(0),
        )

    @override
    def _relevance(self) -> PairTable:
        relevance: np.ndarray = self.attractiveness * self.satisfaction
        return relevance
