"""NeuralModel: a click model that is fitted by gradient and gives its click probabilities for a whole list.

A subclass implements `start` and `click_given_history`; docs/how-to/add-a-click-model.md shows one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from clickshift.core.parallel import for_ranges
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.models._differentiable import Arrays, HistoryBased
from clickshift.models._formulas import sigmoid
from clickshift.models._histories import (
    MAX_ENUMERATED,
    MIN_TOLERANCE_LONG_LISTS,
    average_over_draws,
    sum_over_likely_histories,
)
from clickshift.models.base import ClickModel, Evidence, PairTable

_MAX_TABLE_SIZE = 1 << 21  # numbers in a table: limits how many lists are enumerated at a time
_ALL_HISTORIES = 1e-9  # tolerance
_TOLERANCES = (0.05, 0.02, 0.005, 0.001)
"""Tolerances of approximate marginals, the fastest first."""
_CHECKED_LISTS = 64
"""Number of lists on which the error of a tolerance is measured."""
_SAFETY = 10
"""Ratio of the accepted error to that of the checked lists: a log has more lists, and some have a larger error."""
_LISTS_PER_TASK = 512
"""Lists that a thread computes at a time."""


@dataclass(frozen=True, eq=False)
class NeuralModel(ClickModel, HistoryBased):
    """Base class of click models that are given by a differentiable formula for P(click | clicks above).

    `Gradient` fits it; marginals, sampling, likelihoods and files come with this class. Relevance is attractiveness if
    the model has such an output, otherwise the click probability of the document at the first rank. At a hole, a rank
    at which nothing is recorded, the formula sees no click and the outputs of `output_at_hole`, and its probability
    there is replaced by 0.

    Parameters
    ----------
    vocabulary
        Queries, documents and pairs of the model.
    by_pair
        Outputs of the tower by name, of shape `pair_or_unseen` or `pair_or_unseen width`.
    shared
        Parameters that all sessions share, by name.
    evidence
        How the parameters were estimated.

    Examples
    --------
    >>> class Attraction(NeuralModel):
    ...     @classmethod
    ...     def start(cls, n_ranks, state, rng):
    ...         return {}
    ...
    ...     @classmethod
    ...     def click_given_history(cls, by_pair, shared, click):
    ...         return sigmoid(by_pair["attractiveness"])
    >>> vocabulary, _, _ = Vocabulary.of(["shoes"], ["a"])
    >>> model = Attraction(vocabulary, {"attractiveness": np.array([2.0, -1.0])}, {})  # logits, unseen pairs last
    >>> model.relevance_table()["relevance"].to_numpy().round(2).tolist()
    [0.88]
    """

    vocabulary: Vocabulary
    by_pair: Mapping[str, np.ndarray]
    shared: Mapping[str, np.ndarray]

    uses_history: ClassVar[bool] = True
    approximate_marginals: ClassVar[bool] = True

    @override
    @classmethod
    def from_parameters(cls, vocabulary: Vocabulary, by_pair: Arrays, shared: Arrays, evidence: Evidence) -> ClickModel:
        return cls(vocabulary, dict(by_pair), dict(shared), evidence=evidence)

    def _outputs_of(self, rankings: Rankings) -> dict[str, np.ndarray]:
        """Return the outputs of all results, in double precision."""
        outputs = {name: table[rankings.pair].astype(np.float64) for name, table in self.by_pair.items()}
        if rankings.has_holes:
            for name, values in outputs.items():
                values[~rankings.shown] = self.output_at_hole(name)
        return outputs

    def _shared_parameters(self) -> dict[str, np.ndarray]:
        """Return the shared parameters, in double precision."""
        return {name: array.astype(np.float64) for name, array in self.shared.items()}

    @override
    def _click_prob_given_history(self, sessions: Sessions) -> Float[np.ndarray, "session rank"]:
        prob = self.click_given_history(self._outputs_of(sessions.rankings), self._shared_parameters(), sessions.click)
        click_prob: np.ndarray = prob.yes
        return click_prob

    @override
    def _click_prob(self, rankings: Rankings) -> Float[np.ndarray, "session rank"]:
        """Sum over all histories of clicks above, or average over a sample of them in longer lists."""
        ranks = rankings.n_ranks
        if ranks > MAX_ENUMERATED:
            return average_over_draws(self._prob_given_clicks(rankings), len(rankings), ranks)
        width = sum(table[0].size for table in self.by_pair.values())
        step = max(1, _MAX_TABLE_SIZE // (ranks << ranks) // max(width // ranks, 1))
        parts = [slice(at, at + step) for at in range(0, len(rankings), step)]
        return np.concatenate([self._sum_over_all_histories(rankings[part]) for part in parts])

    def _sum_over_all_histories(self, rankings: Rankings) -> Float[np.ndarray, "session rank"]:
        """Sum over all histories, for any model."""
        return self._sum_over_histories(rankings, 0.0)

    def _sum_over_histories(self, rankings: Rankings, tolerance: float) -> Float[np.ndarray, "session rank"]:
        """Sum over the histories that are at least as likely as `tolerance`; each list of clicks is one evaluation."""
        given = self._prob_given_clicks(rankings)
        return sum_over_likely_histories(given, len(rankings), rankings.n_ranks, tolerance)

    def _prob_given_clicks(self, rankings: Rankings) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        """Return the function of clicks and row numbers that gives P(click | clicks above), which is 0 at holes."""
        outputs, shared = self._outputs_of(rankings), self._shared_parameters()

        def prob_given_clicks(click: np.ndarray, session: np.ndarray) -> np.ndarray:
            prob: np.ndarray = self.click_given_history({k: v[session] for k, v in outputs.items()}, shared, click).yes
            return np.where(rankings.shown[session], prob, 0.0) if rankings.has_holes else prob

        return prob_given_clicks

    def _sum_over_likely_histories(self, rankings: Rankings, tolerance: float) -> Float[np.ndarray, "session rank"]:
        """Sum over likely histories of lists of any length; 0 where nothing is shown."""
        if rankings.n_ranks > MAX_ENUMERATED:
            tolerance = max(tolerance, MIN_TOLERANCE_LONG_LISTS)
        prob = self._sum_over_histories(rankings, tolerance)
        return np.where(rankings.shown, prob, 0.0)

    @override
    def _approximate_click_prob(self, rankings: Rankings, max_error: float) -> Float[np.ndarray, "session rank"]:
        """Sum over likely histories, as few as give a tenth of `max_error` at most on a sample of the lists."""
        order = np.lexsort(rankings.pair.T[::-1])  # lists that begin alike come one after the other: NCM shares states
        lists, out = rankings[order], np.empty(rankings.pair.shape)
        sample = lists[np.linspace(0, len(lists) - 1, min(len(lists), _CHECKED_LISTS)).astype(np.int64)]
        reference = self._sum_over_likely_histories(sample, _ALL_HISTORIES)

        def error(tolerance: float) -> float:
            difference = self._sum_over_likely_histories(sample, tolerance) - reference
            return float(np.abs(difference).max(initial=0.0))

        tolerance = next((t for t in _TOLERANCES if error(t) <= max_error / _SAFETY), _ALL_HISTORIES)

        def work(rows: slice) -> None:
            out[order[rows]] = self._sum_over_likely_histories(lists[rows], tolerance)

        for_ranges(work, len(lists), chunk=_LISTS_PER_TASK)
        return out

    @override
    def _expected_clicks(self, rankings: Rankings, tolerance: float) -> Float[np.ndarray, " session"]:
        if tolerance <= 0:
            return super()._expected_clicks(rankings, tolerance)
        total: np.ndarray = self._sum_over_likely_histories(rankings, tolerance).sum(axis=1)
        return total

    @override
    def _relevance(self) -> PairTable:
        """Return attractiveness if the model has it, otherwise the click probability at the first rank."""
        if "attractiveness" in self.by_pair:
            attractiveness: np.ndarray = sigmoid(self.by_pair["attractiveness"].astype(np.float64)).yes
            return attractiveness
        outputs = {name: table[:, None].astype(np.float64) for name, table in self.by_pair.items()}
        no_clicks = np.zeros(next(iter(outputs.values())).shape[:2], bool)
        first = self.click_given_history(outputs, self._shared_parameters(), no_clicks)
        relevance: np.ndarray = first.yes[:, 0]
        return relevance
