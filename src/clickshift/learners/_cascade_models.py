"""DBN, SDBN, DCM and CCM: how each uses the tails."""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from clickshift.core.newton import CascadeParameters, PairValues, Shared, damped_newton_step, single_threaded_products
from clickshift.counts.cascade import Cascade
from clickshift.counts.tail_e_step import ExpectedTails, TailCurvature, TailTransitions, TransitionDerivatives
from clickshift.learners._cascade_fit import MIN_PROBABILITY, CascadeFamily, ExpectedChoices, SharedCurvature
from clickshift.learners._priors import SHARED_PRIOR, Beta

_LINE_STEPS = 4
_MIN_START = 0.1
"""Where CCM's continuations may start: near 0 and 1 a logit has far to go."""


@final
class DBNFamily(CascadeFamily):
    """h = g (1 - satisfaction). `continuation` fixes g; None learns it."""

    has_satisfaction: ClassVar[bool] = True

    def __init__(self, cascade: Cascade, prior: Beta | None, continuation: float | None = None) -> None:
        super().__init__(cascade, prior)
        self.continuation = continuation

    @override
    def start_shared(self) -> Shared:
        return np.full(1 if self.continuation is None else 0, 0.8)

    @override
    def start(self, alike: CascadeParameters, tails: ExpectedTails) -> np.ndarray:
        first = super().start(alike, tails)
        if self.continuation is None:
            first[: len(alike.attractiveness)] = self._alone(alike, tails)
        return first

    def _alone(self, alike: CascadeParameters, tails: ExpectedTails) -> PairValues:
        """The attractiveness that suits each pair best, if all others were alike and its examinations in tails equally
        likely. With w = 1 - a, and w0 where all are alike, a tail then has the likelihood 1 - e + e w / w0, and the
        slope of the whole is 0 where a quadratic in w is."""
        data, prior = self.data, self.prior
        clicks, skips = data.clicks + prior.yes, data.examined - data.clicks + prior.total - prior.yes
        places = data.impressions - data.examined
        e = np.minimum(tails.examined / np.maximum(places, 1e-9), 1)
        rise, not_e = e / (1 - alike.attractiveness), 1 - e
        square = np.maximum(rise * (clicks + skips + places), 1e-9)
        linear = skips * (rise - not_e) + places * rise - clicks * not_e
        w = (linear + np.sqrt(linear**2 + 4 * square * skips * not_e)) / (2 * square)
        best: np.ndarray = np.where(
            places > 0, np.clip(1 - w, MIN_PROBABILITY, 1 - MIN_PROBABILITY), clicks / (clicks + skips)
        )
        return best

    def _g(self, now: CascadeParameters) -> float:
        return float(now.shared[0]) if self.continuation is None else self.continuation

    @override
    def walk(self, now: CascadeParameters) -> TailTransitions:
        g = self._g(now)
        return TailTransitions(1 - now.attractiveness, g, 1 - now.satisfaction, np.full(self.data.n_ranks, g))

    @override
    def turns(self, now: CascadeParameters) -> TransitionDerivatives:
        learned = len(now.shared)
        return TransitionDerivatives(
            np.ones(learned), np.ones((1, len(now.satisfaction))), np.ones((learned, self.data.n_ranks))
        )

    @override
    def follow_slopes(self, now: CascadeParameters) -> tuple[PairValues | float, PairValues | float]:
        return 0.0, -now.satisfaction

    @override
    def certain(self, now: CascadeParameters) -> float:
        steps = self.data.passed + self.data.followed.sum()
        return float((self.data.followed * np.log1p(-now.satisfaction)).sum() + steps * np.log(self._g(now)))

    @override
    def expect(self, now: CascadeParameters, tails: ExpectedTails) -> ExpectedChoices:
        sure = self.data.passed + self.data.followed.sum()
        unsatisfied = self.data.open_last.sum() - (now.satisfaction * tails.inverse).sum()
        went_on = sure + tails.skip_went_on + tails.went_on.sum()
        could = sure + tails.skip_could + unsatisfied
        learned = len(now.shared)
        return ExpectedChoices(np.full(learned, went_on), np.full(learned, could))

    @override
    def curved(self, now: CascadeParameters, tails: ExpectedTails, bends: TailCurvature) -> SharedCurvature:
        learned, by_h = len(now.shared), tails.inverse - bends.inverse
        both = bends.g + (2 * bends.turned + by_h).sum()
        cross = now.satisfaction * (by_h + bends.turned)
        return SharedCurvature(np.full((learned, learned), both), np.broadcast_to(cross, (learned, len(cross))))


@final
class DCMFamily(CascadeFamily):
    """g = 1, h depends on the rank of the click."""

    @override
    def start_shared(self) -> Shared:
        followed, open_last = self.data.followed_at_rank, self.data.open_last_at_rank
        return SHARED_PRIOR.mode(followed + open_last / 2, followed + open_last)

    @override
    def walk(self, now: CascadeParameters) -> TailTransitions:
        return TailTransitions(1 - now.attractiveness, 1.0, np.ones_like(now.attractiveness), now.shared)

    @override
    def turns(self, now: CascadeParameters) -> TransitionDerivatives:
        ranks = len(now.shared)
        return TransitionDerivatives(np.zeros(ranks), np.ones((1, len(now.attractiveness))), np.eye(ranks))

    @override
    def follow_slopes(self, now: CascadeParameters) -> tuple[PairValues | float, PairValues | float]:
        return 0.0, 0.0

    @override
    def certain(self, now: CascadeParameters) -> float:
        return float(self.data.followed_at_rank @ np.log(now.shared))

    @override
    def expect(self, now: CascadeParameters, tails: ExpectedTails) -> ExpectedChoices:
        followed, open_last = self.data.followed_at_rank, self.data.open_last_at_rank
        return ExpectedChoices(followed + tails.went_on_at_rank, followed + open_last)

    @override
    def curved(self, now: CascadeParameters, tails: ExpectedTails, bends: TailCurvature) -> SharedCurvature:
        return SharedCurvature(np.diag(bends.inverse_at_rank[0] - bends.inverse_at_rank[1]))


@final
class CCMFamily(CascadeFamily):
    """g = t1, h = t2 (1 - a) + t3 a: after a click, a coin with probability a decides between t3 and t2.

    That coin is one more hidden success of attractiveness.
    """

    @override
    def start_shared(self) -> Shared:
        return np.array([0.8, 0.9, 0.2])

    @override
    def start(self, alike: CascadeParameters, tails: ExpectedTails) -> np.ndarray:
        """Where documents are alike nothing tells t2 from t3, and a coin between equals says nothing of a. So a comes
        from clicks alone, and then the line h = t2 (1 - a) + t3 a from who clicked on: its likelihood is
        followed ln h + open_last ln(1 - h (1 - B)), with each pair's mean of B, and two numbers to find."""
        data, h = self.data, float(self._follow(alike)[0])
        a = self.prior.mode(data.clicks, data.examined + tails.examined)
        seen = np.clip((1 - data.open_last / np.maximum(tails.inverse, data.open_last + 1e-300)) / h, 0, 1)  # 1 - B
        line, coins = np.full(2, h), np.stack([1 - a, a])
        for _ in range(_LINE_STEPS):
            follow = line @ coins
            by_h, stopped = 1 / follow, seen / (1 - follow * seen)
            slope = single_threaded_products(coins, (data.followed * by_h - data.open_last * stopped)[None])[:, 0]
            line = line + damped_newton_step(
                single_threaded_products(coins * (data.followed * by_h**2 + data.open_last * stopped**2), coins), slope
            )
            line = np.clip(line, _MIN_START, 1 - _MIN_START)
        return self.join(a, alike.satisfaction, np.array([alike.shared[0], *line]))

    @override
    def walk(self, now: CascadeParameters) -> TailTransitions:
        return TailTransitions(
            1 - now.attractiveness, float(now.shared[0]), self._follow(now), np.ones(self.data.n_ranks)
        )

    @override
    def turns(self, now: CascadeParameters) -> TransitionDerivatives:
        ones = np.ones((2, self.data.n_ranks))
        shares = self._shares(now)
        return TransitionDerivatives(
            np.array([1.0, 0, 0]), np.vstack([0 * shares[:1], shares]), np.vstack([0 * ones[:1], ones])
        )

    @override
    def follow_slopes(self, now: CascadeParameters) -> tuple[PairValues | float, PairValues | float]:
        a, (_, t2, t3) = now.attractiveness, now.shared
        return a * (1 - a) * (t3 - t2) / self._follow(now), 0.0

    def _follow(self, now: CascadeParameters) -> PairValues:
        follow: np.ndarray = now.shared[1] * (1 - now.attractiveness) + now.shared[2] * now.attractiveness
        return follow

    def _shares(self, now: CascadeParameters) -> Float[np.ndarray, "2 pair_or_unseen"]:
        """Of t2 and t3 in h: d ln h / d ln t."""
        a, (_, t2, t3) = now.attractiveness, now.shared
        shares: np.ndarray = np.stack([t2 * (1 - a), t3 * a]) / self._follow(now)
        return shares

    @override
    def certain(self, now: CascadeParameters) -> float:
        return float((self.data.followed * np.log(self._follow(now))).sum() + self.data.passed * np.log(now.shared[0]))

    @override
    def expect(self, now: CascadeParameters, tails: ExpectedTails) -> ExpectedChoices:
        data, a, (_, t2, t3) = self.data, now.attractiveness, now.shared
        follow = self._follow(now)
        onward = tails.went_on / follow  # the sum of B / z over open last clicks
        heads_followed = data.followed * a * t3 / follow
        heads_on, heads_off = a * t3 * onward, a * (1 - t3) * tails.inverse
        tails_followed = data.followed - heads_followed
        tails_on, tails_off = (1 - a) * t2 * onward, (1 - a) * (1 - t2) * tails.inverse
        heads = heads_followed + heads_on + heads_off
        return ExpectedChoices(
            went_on=np.array(
                [
                    data.passed + tails.skip_went_on,
                    (tails_followed + tails_on).sum(),
                    (heads_followed + heads_on).sum(),
                ]
            ),
            could=np.array(
                [data.passed + tails.skip_could, (tails_followed + tails_on + tails_off).sum(), heads.sum()]
            ),
            yes=heads,
            trials=data.followed + data.open_last,
        )

    @override
    def curved(self, now: CascadeParameters, tails: ExpectedTails, bends: TailCurvature) -> SharedCurvature:
        """By the logit of a, ln h has the derivative `by_a`; the likelihood has the slope `slope` by ln h, and the
        curvature `bend`."""
        data, a, shares = self.data, now.attractiveness, self._shares(now)
        by_a, _ = self.follow_slopes(now)
        slope, bend = data.followed + data.open_last - tails.inverse, tails.inverse - bends.inverse
        by_t = np.diag((shares * slope).sum(axis=1)) + single_threaded_products(shares * (bend - slope), shares)
        with_g = (shares * bends.turned).sum(axis=1)
        shares_by_a = shares * (np.stack([-a, 1 - a]) - by_a)
        return SharedCurvature(
            shared=np.block([[np.array([[bends.g]]), with_g[None]], [with_g[:, None], by_t]]),
            attractiveness=-(bend * by_a**2 + slope * (by_a * (1 - 2 * a) - by_a**2)),
            cross_attractiveness=-np.vstack([by_a * bends.turned, bend * by_a * shares + slope * shares_by_a]),
        )
