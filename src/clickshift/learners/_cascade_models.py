"""Likelihoods of the cascade models DBN, SDBN, DCM and CCM, as families of `_cascade_fit`.

In the tail of a session, the results below its last click, users continue with probability g after a skip, and with
probability h after the last click (see `counts.tails`).
"""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np
from jaxtyping import Float, Int
from typing_extensions import override

from clickshift.core.newton import CascadeParameters, PairValues, Shared, damped_newton_step, single_threaded_products
from clickshift.counts.cascade import Cascade
from clickshift.counts.tail_e_step import ExpectedTails, TailCurvature, TailTransitions, TransitionDerivatives
from clickshift.learners._cascade_fit import MIN_PROBABILITY, CascadeFamily, ExpectedChoices, SharedCurvature
from clickshift.learners._priors import SHARED_PRIOR, Beta

_KNOWN_RANKS = 500
"""Number of ranks whose continuation DCM learns: clicks below count at the last one, as the model predicts them."""
_LINE_STEPS = 4
"""Newton steps of the start of CCM's continuations after a click."""
_MIN_START = 0.1
"""Smallest distance of the start of CCM's continuations from 0 and 1, where logits are far from any other value."""


@final
class DBNFamily(CascadeFamily):
    """Likelihood of DBN and SDBN: h = g (1 - satisfaction).

    Parameters
    ----------
    cascade
        Sufficient statistics of cascade models.
    prior
        Prior of attractiveness and satisfaction; None learns that of attractiveness.
    continuation
        Fixed value of g (1 for SDBN); None learns it.
    """

    has_satisfaction: ClassVar[bool] = True

    def __init__(self, cascade: Cascade, prior: Beta | None, continuation: float | None = None) -> None:
        super().__init__(cascade, prior)
        self.continuation = continuation

    @override
    def start_shared(self) -> Shared:
        return np.full(1 if self.continuation is None else 0, 0.8)

    @override
    def start(self, homogeneous: CascadeParameters, tails: ExpectedTails) -> np.ndarray:
        first = super().start(homogeneous, tails)
        if self.continuation is None:
            first[: len(homogeneous.attractiveness)] = self._independent_attractiveness(homogeneous, tails)
        return first

    def _independent_attractiveness(self, homogeneous: CascadeParameters, tails: ExpectedTails) -> PairValues:
        """Return the attractiveness that maximises the likelihood of each pair if all others were homogeneous.

        The pair's examinations in tails are taken as equally likely, e. With w = 1 - a, and w0 its homogeneous value, a
        tail then has the likelihood 1 - e + e w / w0, and the derivative is 0 at a root of a quadratic in w.
        """
        data, prior = self.data, self.prior
        clicks, skips = data.clicks + prior.yes, data.examined - data.clicks + prior.total - prior.yes
        tail_impressions = data.impressions - data.examined
        e = np.minimum(tails.examined / np.maximum(tail_impressions, 1e-9), 1)
        ratio, not_e = e / (1 - homogeneous.attractiveness), 1 - e
        square = np.maximum(ratio * (clicks + skips + tail_impressions), 1e-9)
        linear = skips * (ratio - not_e) + tail_impressions * ratio - clicks * not_e
        w = (linear + np.sqrt(linear**2 + 4 * square * skips * not_e)) / (2 * square)
        best: np.ndarray = np.where(
            tail_impressions > 0, np.clip(1 - w, MIN_PROBABILITY, 1 - MIN_PROBABILITY), clicks / (clicks + skips)
        )
        return best

    def _g(self, parameters: CascadeParameters) -> float:
        """Return the continuation, learned or fixed."""
        return float(parameters.shared[0]) if self.continuation is None else self.continuation

    @override
    def transitions(self, parameters: CascadeParameters) -> TailTransitions:
        g = self._g(parameters)
        return TailTransitions(
            1 - parameters.attractiveness, g, 1 - parameters.satisfaction, np.full(self.data.n_ranks, g)
        )

    @override
    def transition_derivatives(self, parameters: CascadeParameters) -> TransitionDerivatives:
        learned = len(parameters.shared)
        return TransitionDerivatives(
            np.ones(learned), np.ones((1, len(parameters.satisfaction))), np.ones((learned, self.data.n_ranks))
        )

    @override
    def continuation_derivatives(self, parameters: CascadeParameters) -> tuple[PairValues | float, PairValues | float]:
        return 0.0, -parameters.satisfaction

    @override
    def certain_log_likelihood(self, parameters: CascadeParameters) -> float:
        steps = self.data.passed + self.data.followed.sum()
        return float(steps * np.log(self._g(parameters)))

    @override
    def expected_choices(self, parameters: CascadeParameters, tails: ExpectedTails) -> ExpectedChoices:
        certain = self.data.passed + self.data.followed.sum()
        unsatisfied = self.data.open_last.sum() - (parameters.satisfaction * tails.inverse).sum()
        went_on = certain + tails.skip_went_on + tails.went_on.sum()
        could = certain + tails.skip_could + unsatisfied
        learned = len(parameters.shared)
        return ExpectedChoices(np.full(learned, went_on), np.full(learned, could))

    @override
    def curvature(
        self, parameters: CascadeParameters, tails: ExpectedTails, tail_curvature: TailCurvature
    ) -> SharedCurvature:
        learned, by_h = len(parameters.shared), tails.inverse - tail_curvature.inverse
        both = tail_curvature.g + (2 * tail_curvature.turned + by_h).sum()
        cross = parameters.satisfaction * (by_h + tail_curvature.turned)
        return SharedCurvature(np.full((learned, learned), both), np.broadcast_to(cross, (learned, len(cross))))


@final
class DCMFamily(CascadeFamily):
    """Likelihood of DCM: g = 1, and h depends on the rank of the click; ranks below the last known one have its h."""

    @property
    def _known_rank(self) -> Int[np.ndarray, " rank"]:
        """The known rank whose continuation each rank has."""
        return np.minimum(np.arange(self.data.n_ranks), _KNOWN_RANKS - 1)

    def by_known_rank(self, values: Float[np.ndarray, " rank"]) -> Float[np.ndarray, " known_rank"]:
        """Add up the values of ranks that have the same continuation."""
        sums: np.ndarray = np.bincount(self._known_rank, values)
        return sums

    @override
    def start_shared(self) -> Shared:
        followed = self.by_known_rank(self.data.followed_at_rank)
        open_last = self.by_known_rank(self.data.open_last_at_rank)
        return SHARED_PRIOR.mode(followed + open_last / 2, followed + open_last)

    @override
    def transitions(self, parameters: CascadeParameters) -> TailTransitions:
        return TailTransitions(
            1 - parameters.attractiveness,
            1.0,
            np.ones_like(parameters.attractiveness),
            parameters.shared[self._known_rank],
        )

    @override
    def transition_derivatives(self, parameters: CascadeParameters) -> TransitionDerivatives:
        known = len(parameters.shared)
        at_rank = np.eye(known)[:, self._known_rank]
        return TransitionDerivatives(np.zeros(known), np.ones((1, len(parameters.attractiveness))), at_rank)

    @override
    def continuation_derivatives(self, parameters: CascadeParameters) -> tuple[PairValues | float, PairValues | float]:
        return 0.0, 0.0

    @override
    def certain_log_likelihood(self, parameters: CascadeParameters) -> float:
        return float(self.by_known_rank(self.data.followed_at_rank) @ np.log(parameters.shared))

    @override
    def expected_choices(self, parameters: CascadeParameters, tails: ExpectedTails) -> ExpectedChoices:
        followed, open_last = self.data.followed_at_rank, self.data.open_last_at_rank
        return ExpectedChoices(
            self.by_known_rank(followed + tails.went_on_at_rank), self.by_known_rank(followed + open_last)
        )

    @override
    def curvature(
        self, parameters: CascadeParameters, tails: ExpectedTails, tail_curvature: TailCurvature
    ) -> SharedCurvature:
        return SharedCurvature(
            np.diag(self.by_known_rank(tail_curvature.inverse_at_rank[0] - tail_curvature.inverse_at_rank[1]))
        )


@final
class CCMFamily(CascadeFamily):
    """Likelihood of CCM: g = t1, h = t2 (1 - a) + t3 a.

    After a click, a hidden coin with probability a decides between t3 and t2; it is one more hidden trial of
    attractiveness.
    """

    @override
    def start_shared(self) -> Shared:
        return np.array([0.8, 0.9, 0.2])

    @override
    def start(self, homogeneous: CascadeParameters, tails: ExpectedTails) -> np.ndarray:
        """Start from clicks alone, and fit the line h = t2 (1 - a) + t3 a to the continuations after clicks.

        If documents are homogeneous, t2 and t3 are not identified, and the coin between equal values carries no
        information about a. So a comes from clicks alone. The likelihood of the line is
        followed ln h + open_last ln(1 - h (1 - B)), with each pair's mean of B, and has two parameters.
        """
        data, h = self.data, float(self._follow(homogeneous)[0])
        a = self.prior.mode(data.clicks, data.examined + tails.examined)
        one_minus_b = np.clip((1 - data.open_last / np.maximum(tails.inverse, data.open_last + 1e-300)) / h, 0, 1)
        line, coins = np.full(2, h), np.stack([1 - a, a])
        for _ in range(_LINE_STEPS):
            follow = line @ coins
            by_h, stopped = 1 / follow, one_minus_b / (1 - follow * one_minus_b)
            gradient = single_threaded_products(coins, (data.followed * by_h - data.open_last * stopped)[None])[:, 0]
            line = line + damped_newton_step(
                single_threaded_products(coins * (data.followed * by_h**2 + data.open_last * stopped**2), coins),
                gradient,
            )
            line = np.clip(line, _MIN_START, 1 - _MIN_START)
        return self.join(a, homogeneous.satisfaction, np.array([homogeneous.shared[0], *line]))

    @override
    def transitions(self, parameters: CascadeParameters) -> TailTransitions:
        return TailTransitions(
            1 - parameters.attractiveness,
            float(parameters.shared[0]),
            self._follow(parameters),
            np.ones(self.data.n_ranks),
        )

    @override
    def transition_derivatives(self, parameters: CascadeParameters) -> TransitionDerivatives:
        ones = np.ones((2, self.data.n_ranks))
        shares = self._shares(parameters)
        return TransitionDerivatives(
            np.array([1.0, 0, 0]), np.vstack([0 * shares[:1], shares]), np.vstack([0 * ones[:1], ones])
        )

    @override
    def continuation_derivatives(self, parameters: CascadeParameters) -> tuple[PairValues | float, PairValues | float]:
        a, (_, t2, t3) = parameters.attractiveness, parameters.shared
        return a * (1 - a) * (t3 - t2) / self._follow(parameters), 0.0

    def _follow(self, parameters: CascadeParameters) -> PairValues:
        """Return h: P(the user goes on | clicked), by pair."""
        follow: np.ndarray = (
            parameters.shared[1] * (1 - parameters.attractiveness) + parameters.shared[2] * parameters.attractiveness
        )
        return follow

    def _shares(self, parameters: CascadeParameters) -> Float[np.ndarray, "2 pair_or_unseen"]:
        """Return the shares of t2 and t3 in h: d ln h / d ln t."""
        a, (_, t2, t3) = parameters.attractiveness, parameters.shared
        shares: np.ndarray = np.stack([t2 * (1 - a), t3 * a]) / self._follow(parameters)
        return shares

    @override
    def certain_log_likelihood(self, parameters: CascadeParameters) -> float:
        return float(
            (self.data.followed * np.log(self._follow(parameters))).sum()
            + self.data.passed * np.log(parameters.shared[0])
        )

    @override
    def expected_choices(self, parameters: CascadeParameters, tails: ExpectedTails) -> ExpectedChoices:
        data, a, (_, t2, t3) = self.data, parameters.attractiveness, parameters.shared
        follow = self._follow(parameters)
        onward = tails.went_on / follow  # the sum of B / z over open last clicks
        heads_followed = data.followed * a * t3 / follow
        heads_on, heads_off = a * t3 * onward, a * (1 - t3) * tails.inverse
        tails_followed = data.followed - heads_followed
        tails_on, tails_off = (1 - a) * t2 * onward, (1 - a) * (1 - t2) * tails.inverse
        heads = heads_followed + heads_on + heads_off
        return ExpectedChoices(
            successes=np.array(
                [
                    data.passed + tails.skip_went_on,
                    (tails_followed + tails_on).sum(),
                    (heads_followed + heads_on).sum(),
                ]
            ),
            chances=np.array(
                [data.passed + tails.skip_could, (tails_followed + tails_on + tails_off).sum(), heads.sum()]
            ),
            yes=heads,
            trials=data.followed + data.open_last,
        )

    @override
    def curvature(
        self, parameters: CascadeParameters, tails: ExpectedTails, tail_curvature: TailCurvature
    ) -> SharedCurvature:
        """Return the second derivatives of CCM.

        `by_a` is d ln h / d logit a; `gradient` and `second` are the first and second derivatives of the likelihood by
        ln h.
        """
        data, a, shares = self.data, parameters.attractiveness, self._shares(parameters)
        by_a, _ = self.continuation_derivatives(parameters)
        gradient, second = data.followed + data.open_last - tails.inverse, tails.inverse - tail_curvature.inverse
        by_t = np.diag((shares * gradient).sum(axis=1)) + single_threaded_products(shares * (second - gradient), shares)
        with_g = (shares * tail_curvature.turned).sum(axis=1)
        shares_by_a = shares * (np.stack([-a, 1 - a]) - by_a)
        return SharedCurvature(
            shared=np.block([[np.array([[tail_curvature.g]]), with_g[None]], [with_g[:, None], by_t]]),
            attractiveness=-(second * by_a**2 + gradient * (by_a * (1 - 2 * a) - by_a**2)),
            cross_attractiveness=-np.vstack(
                [by_a * tail_curvature.turned, second * by_a * shares + gradient * shares_by_a]
            ),
        )
