"""PBM: the position-based model (Craswell et al. 2008)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from clickshift.counts.cells import By
from clickshift.data.sessions import Rankings
from clickshift.data.vocabulary import Vocabulary
from clickshift.models._differentiable import ExaminationTableBased
from clickshift.models.base import ClickModel, PairTable, at_rank


@final
@dataclass(frozen=True, eq=False)
class PBM(ClickModel, ExaminationTableBased):
    """Position-based model (Craswell et al. 2008): P(click) = examination[rank] * attractiveness[query, document].

    A result is clicked if the user examines it, which depends on its rank alone, and finds it attractive.

    Parameters
    ----------
    vocabulary
        Queries, documents and pairs of the model.
    attractiveness
        P(click | examined) by pair, unseen pairs last.
    examination
        P(examined) by rank; ranks beyond the last known one take its value.
    evidence
        How the parameters were estimated.

    References
    ----------
    Craswell, N., Zoeter, O., Taylor, M. and Ramsey, B. (2008). An experimental comparison of click position-bias
    models. WSDM.

    Examples
    --------
    >>> from clickshift.models.base import pair_table
    >>> vocabulary, _, _ = Vocabulary.of(["shoes", "shoes"], ["a", "b"])
    >>> rankings = Rankings(vocabulary, np.array([0]), np.array([[0, 1]]), np.array([[True, True]]))
    >>> model = PBM(vocabulary, pair_table(np.array([0.5, 0.4]), unseen=0.1), np.array([1.0, 0.5]))
    >>> model.click_prob(rankings)
    array([[0.5, 0.2]])
    """

    vocabulary: Vocabulary
    attractiveness: PairTable
    examination: Float[np.ndarray, " known_rank"]

    situations: ClassVar[By] = "rank"

    @override
    def _click_prob(self, rankings: Rankings) -> Float[np.ndarray, "session rank"]:
        prob: np.ndarray = self.attractiveness[rankings.pair] * at_rank(self.examination, rankings.n_ranks)
        return prob

    @override
    def _relevance(self) -> PairTable:
        return self.attractiveness

    @override
    def _browsing_curve(self) -> tuple[str, list[dict[str, Any]]]:
        return "examination", [{"rank": r + 1} for r in range(len(self.examination))]
