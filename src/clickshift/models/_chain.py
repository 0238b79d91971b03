"""Browsing chains: models in which the user visits the results one after the other.

Top-down cascades, bottom-up browsing and rows of a carousel are parameters of one chain (`_formulas.Chain`); this
module has its forward and backward messages, compiled. They repeat the formulas of `_formulas`, are tested against
them, and add the bottom-up direction: there the clicks above a result happen *later*, and the clicks below, which are
not known yet, are summed out.

A hole is never clicked, and the user goes on after it as after a skip; the ranks below a list are passed over with
certainty.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, final, no_type_check

import numpy as np
from jaxtyping import Bool, Float
from numba import njit
from typing_extensions import override

from clickshift.data.sessions import Rankings, Sessions
from clickshift.models._formulas import Chain
from clickshift.models.base import ClickModel


def cascade(attractiveness: Any, *, after_click: Any, after_skip: Any) -> Chain:
    """Return the chain of a user who sees nothing after leaving, and to whom a click above is no reason not to click.

    Parameters
    ----------
    attractiveness
        P(click | examined) of each result.
    after_click, after_skip
        P(the user goes on) after a click and after a skip.
    """
    return Chain(
        click=attractiveness,
        click_after_click=attractiveness,
        follow_click=after_click,
        follow_skip=after_skip,
        follow_unseen=np.float64(0),
    )


class ChainModel(ClickModel):
    """Model whose users read the list as a browsing chain; subclasses give the probabilities of the chain."""

    uses_history: ClassVar[bool] = True
    bottom_up: bool = False  # a subclass may make it a field

    @abstractmethod
    def _chain(self, rankings: Rankings) -> Chain:
        """Return the probabilities of the chain for these lists, as arrays that broadcast to `session rank`."""

    @final
    @override
    def _click_prob(self, rankings: Rankings) -> Float[np.ndarray, "session rank"]:
        out = np.empty(rankings.pair.shape)
        _marginal_kernel(*self._chain_arrays(rankings), self.bottom_up, out)
        return out

    @final
    @override
    def _click_prob_given_history(self, sessions: Sessions) -> Float[np.ndarray, "session rank"]:
        out = np.empty(sessions.click.shape)
        self._filter(sessions.rankings, sessions.click, out, draw=False)
        return out

    @final
    @override
    def _sample(
        self, rankings: Rankings, uniform: Float[np.ndarray, "session draw"]
    ) -> Bool[np.ndarray, "session rank"]:
        click = np.zeros(rankings.pair.shape, bool)
        self._filter(rankings, click, uniform[:, : rankings.n_ranks], draw=True)
        return click

    def _filter(self, rankings: Rankings, click: np.ndarray, values: np.ndarray, *, draw: bool) -> None:
        """Write P(C_r | clicks above) into `values`; with `draw`, clicks into `click` from uniform `values`."""
        kernel = _filter_bottom_up_kernel if self.bottom_up else _filter_top_down_kernel
        kernel(*self._chain_arrays(rankings), click, values, draw)

    def _chain_arrays(self, rankings: Rankings) -> tuple[np.ndarray, ...]:
        """Return the probabilities of the chain as arrays of shape `session rank`."""
        chain, holes = self._chain(rankings), rankings.has_holes
        if holes:
            chain = chain._replace(
                click=np.where(rankings.shown, chain.click, 0.0),
                click_after_click=np.where(rankings.shown, chain.click_after_click, 0.0),
            )
        if not rankings.shown[:, -1].all():
            listed = np.arange(rankings.n_ranks) < rankings.length[:, None] if holes else rankings.shown
            chain = _pass_over_padding(chain, listed)
        return tuple(np.broadcast_to(part, rankings.pair.shape) for part in chain)


def _pass_over_padding(chain: Chain, listed: np.ndarray) -> Chain:
    """Let browsing pass over the ranks below a list, from whichever end it starts."""
    pass_over = Chain(click=0.0, click_after_click=0.0, follow_click=1.0, follow_skip=1.0, follow_unseen=0.0)
    return Chain(*(np.where(listed, part, constant) for part, constant in zip(chain, pass_over, strict=True)))


@njit(cache=True, nogil=True)
@no_type_check
def _marginal_kernel(click, click_after_click, follow_click, follow_skip, follow_unseen, bottom_up, out):
    """Write P(C_r = 1) into `out`, by the forward recursion over the user's state."""
    n, ranks = out.shape
    for i in range(n):
        after_click, examining, unseen = 0.0, 1.0, 0.0
        for step in range(ranks):
            r = ranks - 1 - step if bottom_up else step
            clicked = examining * click[i, r] + after_click * click_after_click[i, r]
            skipped = examining * (1 - click[i, r]) + after_click * (1 - click_after_click[i, r])
            out[i, r] = clicked
            after_click = clicked * follow_click[i, r]
            examining = skipped * follow_skip[i, r] + unseen * follow_unseen[i, r]
            unseen = (
                clicked * (1 - follow_click[i, r])
                + skipped * (1 - follow_skip[i, r])
                + unseen * (1 - follow_unseen[i, r])
            )


@njit(cache=True, nogil=True)
@no_type_check
def _filter_top_down_kernel(
    click_prob, click_after_click, follow_click, follow_skip, follow_unseen, click, values, draw
):
    """Write P(C_r | clicks above) into `values`; with `draw`, clicks into `click` from uniform `values`."""
    n, ranks = click.shape
    for i in range(n):
        examined, previous = 1.0, False
        for r in range(ranks):
            if_examined = click_after_click[i, r] if previous else click_prob[i, r]
            p = examined * if_examined
            if draw:
                click[i, r] = values[i, r] < p
            else:
                values[i, r] = p
            previous = click[i, r]
            if previous:
                examined = follow_click[i, r]
            else:
                seen = examined * (1 - if_examined) / (1 - p) if p < 1 else 0.0
                examined = seen * follow_skip[i, r] + (1 - seen) * follow_unseen[i, r]


@njit(cache=True, nogil=True)
@no_type_check
def _filter_bottom_up_kernel(
    click_prob, click_after_click, follow_click, follow_skip, follow_unseen, click, values, draw
):
    """Do the same as `_filter_top_down_kernel` for browsing that starts at the last result.

    forward[r, s] = P(state s at rank r), with the clicks below summed out;
    b_s = P(C_1..C_{r-1} | state s at rank r), scaled; states: 0 not examined, 1 skipped, 2 clicked.
    """
    n, ranks = click.shape
    forward = np.empty((ranks, 3))
    for i in range(n):
        after_click, examining, unseen = 0.0, 1.0, 0.0
        for r in range(ranks - 1, -1, -1):
            clicked = examining * click_prob[i, r] + after_click * click_after_click[i, r]
            skipped = examining * (1 - click_prob[i, r]) + after_click * (1 - click_after_click[i, r])
            forward[r, 0], forward[r, 1], forward[r, 2] = unseen, skipped, clicked
            after_click = clicked * follow_click[i, r]
            examining = skipped * follow_skip[i, r] + unseen * follow_unseen[i, r]
            unseen = (
                clicked * (1 - follow_click[i, r])
                + skipped * (1 - follow_skip[i, r])
                + unseen * (1 - follow_unseen[i, r])
            )
        b0, b1, b2 = 1.0, 1.0, 1.0
        for r in range(ranks):
            yes = forward[r, 2] * b2
            no = forward[r, 0] * b0 + forward[r, 1] * b1
            p = yes / (yes + no) if yes + no > 0 else 0.0
            if draw:
                click[i, r] = values[i, r] < p
            else:
                values[i, r] = p
            if r == ranks - 1:
                break
            # backward message: the likelihood of this rank's click given the state one rank below, visited before it
            below = r + 1
            if click[i, r]:
                b0 = follow_unseen[i, below] * click_prob[i, r] * b2
                b1 = follow_skip[i, below] * click_prob[i, r] * b2
                b2 = follow_click[i, below] * click_after_click[i, r] * b2
            else:
                c, a = click_prob[i, r], click_after_click[i, r]
                skip_b, unseen_b = b1, b0
                b0 = follow_unseen[i, below] * (1 - c) * skip_b + (1 - follow_unseen[i, below]) * unseen_b
                b1 = follow_skip[i, below] * (1 - c) * skip_b + (1 - follow_skip[i, below]) * unseen_b
                b2 = follow_click[i, below] * (1 - a) * skip_b + (1 - follow_click[i, below]) * unseen_b
            largest = max(b0, b1, b2)
            if largest > 0:
                b0, b1, b2 = b0 / largest, b1 / largest, b2 / largest
