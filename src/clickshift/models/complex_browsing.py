"""Complex browsing: one browsing mode of the complex click model (CoCM) of the policy-shift paper, in three readings.

Equation 17 of the paper, its authors' code, and the reading that clickshift uses by default differ in how browsing
ends (docs/decisions/0004).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from jaxtyping import Bool, Float
from typing_extensions import override

from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.models._chain import ChainModel
from clickshift.models._formulas import Chain
from clickshift.models.base import ClickModel, PairTable


@final
@dataclass(frozen=True, eq=False)
class ComplexBrowsing(ChainModel):
    """Complex browsing (CoCM; Deffayet et al. 2022): neither the examination nor the cascade hypothesis holds.

    An examined result is clicked with probability a_r (1 - a_next / 2): an attractive next result distracts; after the
    last result nothing distracts. The result after a click is never clicked. The user leaves after a click with
    probability `satisfaction`, and otherwise goes on with probability `continuation`; leaving is a latent event.

    With `reference_code`, browsing is that of the authors' code. Only leaving after a click is a latent event, and
    `continuation` to the power of the number of visited results is a factor of every click probability. Two results
    are special, as side effects of the code: the factor of the first visited one is 1 - a_next, and the last visited
    one is clicked if and only if the one before it was clicked.

    Parameters
    ----------
    vocabulary
        Queries, documents and pairs of the model.
    attractiveness
        P(click | examined) by pair, unseen pairs last.
    satisfaction
        P(the user leaves | clicked).
    continuation
        P(the user goes on | not satisfied).
    bottom_up
        Whether the user reads from the last result upwards.
    reference_code
        Whether browsing is that of the authors' code.
    evidence
        How the parameters were estimated.

    References
    ----------
    Deffayet, R., Renders, J.-M. and de Rijke, M. (2022). Evaluating the robustness of click models to policy
    distributional shift. ACM TOIS.
    """

    vocabulary: Vocabulary
    attractiveness: PairTable
    satisfaction: float
    continuation: float
    bottom_up: bool = False
    reference_code: bool = False

    @override
    def _chain(self, rankings: Rankings) -> Chain:
        attractiveness, distraction = _attractions(rankings, self.attractiveness, self.bottom_up)
        if self.reference_code:
            return self._chain_of_reference_code(rankings, attractiveness, distraction)
        return Chain(
            click=attractiveness * (1 - distraction / 2),
            click_after_click=np.float64(0),
            follow_click=np.float64((1 - self.satisfaction) * self.continuation),
            follow_skip=np.float64(self.continuation),
            follow_unseen=np.float64(0),
        )

    def _chain_of_reference_code(
        self, rankings: Rankings, attractiveness: np.ndarray, distraction: np.ndarray
    ) -> Chain:
        """Return the chain of the authors' code; `visited` is the number of results that were visited before."""
        visited, left = _visits(rankings, self.bottom_up)
        click = self.continuation**visited * attractiveness * (1 - distraction / np.where(visited == 0, 1, 2))
        return Chain(
            click=np.where((left == 0) & (visited > 0), 0.0, click),
            click_after_click=np.where((left == 0) & (visited > 0), 1.0, 0.0),
            follow_click=np.where(left == 1, 1.0, 1 - self.satisfaction),
            follow_skip=np.float64(1),
            follow_unseen=np.float64(0),
        )

    @override
    def _relevance(self) -> PairTable:
        return self.attractiveness


@final
@dataclass(frozen=True, eq=False)
class ExpectedComplexBrowsing(ClickModel):
    """Complex browsing as printed in equation 17 (Deffayet et al. 2022): examination is an expected value.

    With k results visited before and c clicks among them, a result is clicked with probability
    a_r (1 - a_next / 2) continuation^k (1 - satisfaction)^c, and never directly after a click. A skip does not change
    what is known about examination, unlike in `ComplexBrowsing`.

    Parameters
    ----------
    vocabulary
        Queries, documents and pairs of the model.
    attractiveness
        P(click | examined) by pair, unseen pairs last.
    satisfaction
        Factor 1 - satisfaction of examination after each click.
    continuation
        Factor of examination at each further result.
    bottom_up
        Whether the user reads from the last result upwards.
    evidence
        How the parameters were estimated.

    References
    ----------
    Deffayet, R., Renders, J.-M. and de Rijke, M. (2022). Evaluating the robustness of click models to policy
    distributional shift. ACM TOIS.
    """

    vocabulary: Vocabulary
    attractiveness: PairTable
    satisfaction: float
    continuation: float
    bottom_up: bool = False

    uses_history: ClassVar[bool] = True

    @override
    def _click_prob(self, rankings: Rankings) -> Float[np.ndarray, "session rank"]:
        return np.stack([state[:, :, 1].sum(axis=1) for state in self._states(rankings)], axis=1)

    @override
    def _click_prob_given_history(self, sessions: Sessions) -> Float[np.ndarray, "session rank"]:
        first, click = self._first_click_prob(sessions.rankings), sessions.click & sessions.rankings.shown
        if not self.bottom_up:
            before = np.pad(click, ((0, 0), (1, 0)))[:, :-1]
            prob: np.ndarray = np.where(before, 0.0, first * (1 - self.satisfaction) ** np.cumsum(before, axis=1))
            return prob
        # clicks above a result happen later, and those below, which are not known yet, are summed out:
        # above[:, c, l] = P(clicks above | c clicks up to this result, and whether it was clicked), scaled
        states = self._states(sessions.rankings)
        above = np.ones_like(states[0])
        out = np.empty(click.shape)
        for rank in range(sessions.n_ranks):
            joint = states[rank] * above
            total = joint.sum(axis=(1, 2))
            out[:, rank] = joint[:, :, 1].sum(axis=1) / np.where(total > 0, total, 1.0)
            given = self._click_prob_by_state(first[:, rank], above.shape[1])
            if_clicked, if_skipped = np.zeros_like(above), (1 - given) * above[:, :, :1]
            if_clicked[:, :-1] = given[:, :-1] * above[:, 1:, 1:]
            above = np.where(click[:, rank, None, None], if_clicked, if_skipped)
            above /= np.maximum(above.max(axis=(1, 2), keepdims=True), 1e-300)
        return out

    @override
    def _sample(
        self, rankings: Rankings, uniform: Float[np.ndarray, "session draw"]
    ) -> Bool[np.ndarray, "session rank"]:
        first, click = self._first_click_prob(rankings), np.zeros(rankings.pair.shape, bool)
        examined, before = np.ones(len(rankings)), np.zeros(len(rankings), bool)
        for rank in self._visiting_order(rankings.n_ranks):
            click[:, rank] = before = ~before & (uniform[:, rank] < examined * first[:, rank])
            examined = np.where(before, (1 - self.satisfaction) * examined, examined)
        return click

    @override
    def _relevance(self) -> PairTable:
        return self.attractiveness

    def _visiting_order(self, n_ranks: int) -> range:
        """Return the ranks in the order in which they are visited."""
        return range(n_ranks - 1, -1, -1) if self.bottom_up else range(n_ranks)

    def _first_click_prob(self, rankings: Rankings) -> Float[np.ndarray, "session rank"]:
        """Return the click probability of each result if nothing was clicked before it was visited."""
        attractiveness, distraction = _attractions(rankings, self.attractiveness, self.bottom_up)
        visited, _ = _visits(rankings, self.bottom_up)
        prob: np.ndarray = self.continuation**visited * attractiveness * (1 - distraction / 2)
        return prob

    def _click_prob_by_state(
        self, first: Float[np.ndarray, " session"], n_counts: int
    ) -> Float[np.ndarray, "session count last"]:
        """Return a result's click probability by the number of clicks before, and by whether the last was one."""
        given = np.zeros((len(first), n_counts, 2))
        given[:, :, 0] = first[:, None] * (1 - self.satisfaction) ** np.arange(n_counts)
        return given

    def _states(self, rankings: Rankings) -> list[Float[np.ndarray, "session count last"]]:
        """Return P(number of clicks up to a result in the order of visits, and whether it was clicked), by rank."""
        first, n_counts = self._first_click_prob(rankings), rankings.n_ranks // 2 + 2
        state = np.zeros((len(rankings), n_counts, 2))
        state[:, 0, 0] = 1.0
        states = [state] * rankings.n_ranks
        for rank in self._visiting_order(rankings.n_ranks):
            given = self._click_prob_by_state(first[:, rank], n_counts)
            after = np.zeros_like(state)
            after[:, :, 0] = (state * (1 - given)).sum(axis=2)
            after[:, 1:, 1] = (state * given).sum(axis=2)[:, :-1]
            states[rank] = state = after
        return states


def _attractions(
    rankings: Rankings, attractiveness: PairTable, bottom_up: bool
) -> tuple[Float[np.ndarray, "session rank"], Float[np.ndarray, "session rank"]]:
    """Return the attractiveness of each result and of the one that is visited next; 0 where nothing is shown."""
    own = np.where(rankings.shown, attractiveness[rankings.pair], 0.0)
    following = np.zeros_like(own)
    if bottom_up:
        following[:, 1:] = own[:, :-1]
    else:
        following[:, :-1] = own[:, 1:]
    return own, following


def _visits(rankings: Rankings, bottom_up: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return how many results are visited before each result, and how many after it."""
    above = np.arange(rankings.n_ranks)[None, :]
    below = np.maximum(rankings.length[:, None] - 1 - above, 0)
    return (below, above) if bottom_up else (above, below)
