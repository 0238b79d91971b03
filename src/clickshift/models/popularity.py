"""TopPop, TopPopObs, RankTopObs: scores that rank documents but predict no clicks (policy-shift paper, eq. 4 to 6).

They are not meant to be good: they show how much of a ranking metric mere exposure can earn.
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
    """A score per pair."""

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
    """Relevance = clicks."""


@final
class TopPopObs(_PopularityScore):
    """Relevance = clicks x impressions."""


@final
class RankTopObs(_PopularityScore):
    """Relevance = sum over ranks of rCTR(r) x impressions at r: nothing of the document's own clicks."""
