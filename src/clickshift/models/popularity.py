"""TopPop, TopPopObs and RankTopObs: popularity scores that rank documents but do not predict clicks.

They are equations 4 to 6 of the policy-shift paper (Deffayet et al. 2022). They are not meant to be good: they show
how much of a ranking metric exposure alone can earn.
"""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from clickshift.data.sessions import Rankings
from clickshift.data.vocabulary import Vocabulary
from clickshift.models.base import ClickModel, PairTable


@dataclass(frozen=True, eq=False)
class _PopularityScore(ClickModel, ABC):
    """Score per pair: the base class of the popularity scores.

    Parameters
    ----------
    vocabulary
        Queries, documents and pairs of the model.
    score
        Relevance by pair, unseen pairs last.
    evidence
        How the parameters were estimated.
    """

    vocabulary: Vocabulary
    score: PairTable

    predicts_clicks: ClassVar[bool] = False

    @final
    @override
    def _click_prob(self, rankings: Rankings) -> Float[np.ndarray, "session rank"]:
        raise AssertionError("never called: predicts_clicks is False")

    @final
    @override
    def _relevance(self) -> PairTable:
        return self.score


@final
class TopPop(_PopularityScore):
    """Popularity (TopPop; policy-shift paper, eq. 4): relevance = clicks.

    Parameters
    ----------
    vocabulary
        Queries, documents and pairs of the model.
    score
        Relevance by pair, unseen pairs last.
    evidence
        How the parameters were estimated.
    """


@final
class TopPopObs(_PopularityScore):
    """Popularity times exposure (TopPopObs; policy-shift paper, eq. 5): relevance = clicks x impressions.

    Parameters
    ----------
    vocabulary
        Queries, documents and pairs of the model.
    score
        Relevance by pair, unseen pairs last.
    evidence
        How the parameters were estimated.
    """


@final
class RankTopObs(_PopularityScore):
    """Exposure weighted by rank (RankTopObs; policy-shift paper, eq. 6).

    relevance = sum over ranks r of rCTR(r) x impressions at r; the document's own clicks are not used.

    Parameters
    ----------
    vocabulary
        Queries, documents and pairs of the model.
    score
        Relevance by pair, unseen pairs last.
    evidence
        How the parameters were estimated.
    """
