"""Mixture: several click models, each for a share of the sessions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from jaxtyping import Bool, Float
from typing_extensions import override

from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import UNSEEN, Vocabulary
from clickshift.errors import CapabilityError, DataError
from clickshift.models.base import ClickModel, PairTable, pair_table

KNOWN_WEIGHT = 0.9
"""Weight of components with standard errors from which on a mixture has standard errors, too."""


@final
@dataclass(frozen=True, eq=False)
class Mixture(ClickModel):
    """Mixture of click models: each session follows one component, drawn by its weight.

    The clicks of a session update the posterior of its component:
    P(C_r = 1 | C_<r) = sum_m posterior_m P_m(C_r = 1 | C_<r), with posterior_m proportional to weight_m P_m(C_<r).

    Any click model can be a component: only its conditionals are needed. Relevance is the probability of a click on
    the first rank, the weighted mean over components: their own relevance may be on different scales (a product of
    attractiveness and satisfaction, a sum of rates over ranks), which cannot be averaged.

    Parameters
    ----------
    vocabulary
        Queries, documents and pairs of the model.
    components
        Click models that share the vocabulary.
    weights
        Share of the sessions of each component; they sum to 1.
    evidence
        How the parameters were estimated.

    Raises
    ------
    DataError
        If the weights are not one probability per component or do not sum to 1 ("bad-weights"), or if a component has
        another vocabulary ("different-vocabulary").
    """

    vocabulary: Vocabulary
    components: tuple[ClickModel, ...]
    weights: Float[np.ndarray, " component"]

    uses_history: ClassVar[bool] = True

    def __post_init__(self) -> None:
        weights = np.asarray(self.weights, np.float64)
        if weights.shape != (len(self.components),) or (weights < 0).any() or abs(weights.sum() - 1) > 1e-9:
            raise DataError(
                f"a mixture needs one weight per component, and the weights must sum to 1: got {weights.tolist()}.",
                code="bad-weights",
                value=weights.tolist(),
            )
        if not all(component.vocabulary.same_as(self.vocabulary) for component in self.components):
            raise DataError("the components of a mixture must share its vocabulary.", code="different-vocabulary")
        object.__setattr__(self, "weights", weights)

    @override
    def _click_prob(self, rankings: Rankings) -> Float[np.ndarray, "session rank"]:
        total = np.zeros(rankings.pair.shape)
        for weight, component in zip(self.weights, self.components, strict=True):
            total += weight * component._click_prob(rankings)
        return total

    @override
    def _expected_clicks(self, rankings: Rankings, tolerance: float) -> Float[np.ndarray, " session"]:
        total = np.zeros(len(rankings))
        for weight, component in zip(self.weights, self.components, strict=True):
            total += weight * component._expected_clicks(rankings, tolerance)
        return total

    @override
    def _click_prob_given_history(self, sessions: Sessions) -> Float[np.ndarray, "session rank"]:
        prob = np.stack([component._click_prob_given_history(sessions) for component in self.components])
        shown = sessions.rankings.shown
        likelihood = np.where(sessions.click, prob, 1 - prob)
        likelihood[:, ~shown] = 1.0
        # P_m(C_<r), relative to the likeliest component so that long lists do not underflow
        history = np.ones_like(prob)
        for rank in range(1, prob.shape[2]):
            step = history[:, :, rank - 1] * likelihood[:, :, rank - 1]
            history[:, :, rank] = step / np.maximum(step.max(axis=0), 1e-300)
        joint = self.weights[:, None, None] * history
        mixed: np.ndarray = (joint * prob).sum(axis=0) / np.maximum(joint.sum(axis=0), 1e-300)
        return mixed

    @override
    def _sample(
        self, rankings: Rankings, uniform: Float[np.ndarray, "session draw"]
    ) -> Bool[np.ndarray, "session rank"]:
        """Choose the component by the spare number, and rescale that to (0, 1) again for a nested mixture."""
        upper = np.cumsum(self.weights)
        chosen = np.minimum(np.searchsorted(upper, uniform[:, -1], side="right"), len(upper) - 1)
        click = np.zeros(rankings.pair.shape, bool)
        for m, component in enumerate(self.components):
            rows = np.flatnonzero(chosen == m)
            if len(rows):
                numbers = uniform[rows]
                numbers[:, -1] = (numbers[:, -1] - (upper[m] - self.weights[m])) / self.weights[m]
                click[rows] = component._sample(rankings[rows], numbers)
        return click

    @override
    def _relevance(self) -> PairTable:
        prob = self._click_prob(first_rank(self.vocabulary))
        return pair_table(prob[:-1, 0], unseen=float(prob[-1, 0]))

    @property
    def component_titles(self) -> list[str]:
        """Names of the components, with the options of their learners if any: "CCM, prior=(0.1, 1.0)"."""
        from clickshift.models import model_title

        titles = []
        for component in self.components:
            learner = component.evidence.learner if component.evidence is not None else ""
            options = learner.partition("(")[2].removesuffix(")").partition(", ")[2]
            titles.append(", ".join(filter(None, (model_title(component), options))))
        return titles

    @override
    def _browsing_curve(self) -> tuple[str, list[dict[str, Any]]]:
        names = self.component_titles
        raise CapabilityError(
            f"a mixture has no curve of its own: it is one of {'; '.join(names)} in each session. Fit one of "
            "them alone, or examine its `components` in Python.",
            code="no-examination",
            model="Mixture",
            components=names,
        )


def first_rank(vocabulary: Vocabulary) -> Rankings:
    """Return a list of one document for every pair of a vocabulary; the last list shows an unknown pair."""
    n_pairs = vocabulary.n_pairs
    query, pair = np.full(n_pairs + 1, UNSEEN, np.int32), np.full((n_pairs + 1, 1), UNSEEN, np.int32)
    query[:-1], pair[:-1, 0] = vocabulary.pair_query, np.arange(n_pairs)
    return Rankings.checked(vocabulary, query, pair, np.ones(pair.shape, bool))
