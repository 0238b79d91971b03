"""Cascade models: CM, DCM and CCM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from clickshift.data.sessions import Rankings
from clickshift.data.vocabulary import Vocabulary
from clickshift.models._chain import ChainModel
from clickshift.models._formulas import Chain
from clickshift.models.base import PairTable, at_rank


@final
@dataclass(frozen=True, eq=False)
class CM(ChainModel):
    """The user walks down to the first document that attracts, clicks it, and leaves.

    A second click has probability 0, so that the probability clip of the metric decides what it costs.
    """

    vocabulary: Vocabulary
    attractiveness: PairTable

    @override
    def _chain(self, rankings: Rankings) -> Chain:
        click = self.attractiveness[rankings.pair]
        return Chain(
            click=click,
            click_after_click=click,
            follow_click=np.float64(0),
            follow_skip=np.float64(1),
            follow_unseen=np.float64(0),
        )

    @override
    def _relevance(self) -> PairTable:
        return self.attractiveness


@final
@dataclass(frozen=True, eq=False)
class DCM(ChainModel):
    """A cascade that goes on after a click with a probability that depends on the rank alone.

    P(E_{r+1} = 1 | E_r = 1, C_r = 0) = 1,  P(E_{r+1} = 1 | E_r = 1, C_r = 1) = continuation_r
    """

    vocabulary: Vocabulary
    attractiveness: PairTable
    continuation: Float[np.ndarray, " known_rank"]

    @override
    def _chain(self, rankings: Rankings) -> Chain:
        click = self.attractiveness[rankings.pair]
        return Chain(
            click=click,
            click_after_click=click,
            follow_click=at_rank(self.continuation, rankings.n_ranks),
            follow_skip=np.float64(1),
            follow_unseen=np.float64(0),
        )

    @override
    def _relevance(self) -> PairTable:
        return self.attractiveness

    @override
    def _curve(self) -> tuple[str, list[dict[str, Any]]]:
        return "continuation", [{"rank": r + 1} for r in range(len(self.continuation))]


@final
@dataclass(frozen=True, eq=False)
class CCM(ChainModel):
    """A cascade whose continuation after a click depends on how good the document is.

    continuation = (t1, t2, t3):  after a skip t1,  after a click t2 (1 - attractiveness) + t3 attractiveness
    """

    vocabulary: Vocabulary
    attractiveness: PairTable
    continuation: Float[np.ndarray, 3]

    @override
    def _chain(self, rankings: Rankings) -> Chain:
        click = self.attractiveness[rankings.pair]
        skip, irrelevant, relevant = self.continuation
        return Chain(
            click=click,
            click_after_click=click,
            follow_click=irrelevant * (1 - click) + relevant * click,
            follow_skip=skip,
            follow_unseen=np.float64(0),
        )

    @override
    def _relevance(self) -> PairTable:
        return self.attractiveness

    @override
    def _curve(self) -> tuple[str, list[dict[str, Any]]]:
        return "continuation", [{"after": after} for after in ("a skip", "an irrelevant click", "a relevant click")]
