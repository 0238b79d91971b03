"""DBN, SDBN, DCM and CCM by exact maximum likelihood.

Each family says how its parameters give g and h of the tails (see `tails`), how expected counts give its parameters,
and how the likelihood curves. Parameters are one vector: attractiveness by pair, satisfaction by pair if the family
has it, then the shared ones.

The E-step gives the slope (Fisher's identity) and the curvature, all of it by logits but for what is between two pairs,
which meet in few sessions. So Newton's steps have a matrix with the form of an arrow, and a few of them do what EM
needs fifty and more for. EM's step is taken where Newton's would be one down.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple, final

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from clickshift.cascade import Cascade
from clickshift.learners.newton import FAR, Ascent, climb, covariance, moved, solved
from clickshift.learners.prior import SHARED, Beta, beta_by_likelihood
from clickshift.tail_steps import Bends, Tails, Turns, Walk

Table = Float[np.ndarray, " pair_or_unseen"]
Shared = Float[np.ndarray, " shared"]
Cross = Float[np.ndarray, "shared pair_or_unseen"]
_STEPS_ALIKE = 12
_EDGE = 1e-9
_FAR_TOGETHER = 1.5
"""The largest move of what all sessions share, and of all pairs with it."""


class Parameters(NamedTuple):
    """The parameters of a cascade, or slopes or standard errors of their logits. Satisfaction is 0 where a family has
    none."""

    attractiveness: Table
    satisfaction: Table
    shared: Shared


class Expected(NamedTuple):
    """Expected successes and trials of the hidden choices, given the tails."""

    went_on: Shared
    could: Shared
    yes: Table | float = 0.0
    """Further successes of attractiveness, beyond clicks among examinations."""
    trials: Table | float = 0.0


class Curved(NamedTuple):
    """How the likelihood curves beyond what all families share: derivatives by ln p of shared p, and minus those by a
    pair's logit."""

    shared: Float[np.ndarray, "shared shared"]
    cross_satisfaction: Cross | float = 0.0
    attractiveness: Table | float = 0.0
    cross_attractiveness: Cross | float = 0.0


class Information(NamedTuple):
    """Minus the second derivatives of the objective by logits: an arrow, since none between two pairs are kept."""

    attractiveness: Table
    satisfaction: Table
    cross_attractiveness: Cross
    cross_satisfaction: Cross
    shared: Float[np.ndarray, "shared shared"]

    @property
    def profile(self) -> Float[np.ndarray, "shared shared"]:
        """What is left of the shared parameters' when all others follow them."""
        left = self.shared - _products(self.cross_attractiveness, self.cross_attractiveness / self.attractiveness)
        left = left - _products(self.cross_satisfaction, self.cross_satisfaction / self.satisfaction)
        symmetric: np.ndarray = (left + left.T) / 2
        return symmetric


@dataclass(frozen=True, eq=False)
class CascadeFit:
    parameters: Parameters
    errors: Parameters
    ascent: Ascent


class Family(ABC):
    """How one model uses the tails."""

    has_satisfaction: ClassVar[bool] = False

    def __init__(self, cascade: Cascade, prior: Beta | None) -> None:
        self.data, self.tails = cascade, cascade.tails
        self.prior = self.satisfaction = Beta() if prior is None else prior
        self.learns_prior = prior is None

    @abstractmethod
    def start_shared(self) -> Shared:
        """A first guess of the parameters that all sessions share."""

    @abstractmethod
    def walk(self, now: Parameters) -> Walk:
        """How the parameters lead users on."""

    @abstractmethod
    def turns(self, now: Parameters) -> Turns:
        """How the shared ones change that."""

    @abstractmethod
    def certain(self, now: Parameters) -> float:
        """Log-likelihood of going on after the skips and clicks above the last click."""

    @abstractmethod
    def expect(self, now: Parameters, tails: Tails) -> Expected:
        """What the tails say of the shared parameters, and further of attractiveness."""

    @abstractmethod
    def curved(self, now: Parameters, tails: Tails, bends: Bends) -> Curved:
        """What the tails say of how sure that is."""

    @final
    def fit(
        self,
        *,
        tolerance: float,
        max_steps: int,
        start: Parameters | None = None,
        rng: np.random.Generator | None = None,
    ) -> CascadeFit:
        """Maximise the penalised likelihood from a first guess, from `start`, or from random numbers."""
        alike = self._alike()
        tails = self.tails.expect(self.walk(alike))
        if self.learns_prior:
            # from the same place wherever the climb starts: objectives under different priors could not be compared
            self.prior = beta_by_likelihood(self.data.examined[:-1] + tails.examined[:-1], self.data.clicks[:-1])
        first = self.maximised(alike, tails) if start is None else self.join(*start)
        if rng is not None:
            first = rng.uniform(0.1, 0.9, len(first))
        found, ascent = climb(self._look, first, tolerance=tolerance, max_steps=max_steps)
        return CascadeFit(found.now, found.errors(), ascent)

    def _alike(self) -> Parameters:
        """The parameters if all documents were one: a small problem, and a better first guess than the closed form,
        which takes for unexamined what is below the last click."""
        one = copy(self)
        one.data, one.tails, one.prior = self.data.alike(), self.tails.alike(), Beta()
        start = one.join(np.full(2, 0.1), np.full(2, 0.5), self.start_shared())
        found = climb(one._look, start, tolerance=0.1, max_steps=_STEPS_ALIKE)[0].now
        a, s = (np.full(len(self.data.clicks), both[0]) for both in found[:2])
        return Parameters(a, s, found.shared)

    def _look(self, vector: np.ndarray) -> _View:
        return _View(self, self.split(vector))

    def split(self, vector: np.ndarray) -> Parameters:
        size = len(self.data.clicks)
        s = vector[size : 2 * size] if self.has_satisfaction else np.zeros(size)
        return Parameters(vector[:size], s, vector[size * (1 + self.has_satisfaction) :])

    def join(self, a: Table, s: Table, shared: Shared) -> np.ndarray:
        return np.concatenate([a, s, shared] if self.has_satisfaction else [a, shared])

    def maximised(self, now: Parameters, tails: Tails) -> np.ndarray:
        """The M-step: shares of successes among trials, hidden ones expected."""
        data, hidden = self.data, self.expect(now, tails)
        a = self.prior.mode(data.clicks + hidden.yes, data.examined + tails.examined + hidden.trials)
        s = self.satisfaction.mode(now.satisfaction * tails.inverse, data.followed + data.open_last)
        return self.join(a, s, SHARED.mode(hidden.went_on, hidden.could))


@final
class _View:
    """The penalised likelihood from one point."""

    def __init__(self, family: Family, now: Parameters) -> None:
        self.now, self._family, data, (a, s, shared) = now, family, family.data, now
        self._tails = family.tails.expect(family.walk(now), family.turns(now))
        objective = self._tails.log_likelihood + family.certain(now)
        objective += float((data.clicks * np.log(a) + (data.examined - data.clicks) * np.log1p(-a)).sum())
        objective += family.prior.log_density(a) + SHARED.log_density(shared)
        if family.has_satisfaction:
            objective += family.satisfaction.log_density(s)
        self.objective = objective

    def promise(self) -> float:
        join = self._family.join
        return float((join(*self._slopes) * join(*self._step)).sum()) / 2

    def ahead(self) -> Iterator[np.ndarray]:
        join = self._family.join
        yield moved(join(*self.now), join(*self._step), _EDGE)
        yield self._family.maximised(self.now, self._tails)

    @cached_property
    def _hidden(self) -> Expected:
        return self._family.expect(self.now, self._tails)

    @cached_property
    def _slopes(self) -> Parameters:
        """Derivatives of the objective by the logits: successes minus p x trials, hidden ones expected (Fisher)."""
        data, tails, hidden, (a, s, shared) = self._family.data, self._tails, self._hidden, self.now
        prior, other = self._family.prior, self._family.satisfaction
        return Parameters(
            data.clicks + hidden.yes + prior.yes - a * (data.examined + tails.examined + hidden.trials + prior.total),
            s * tails.inverse + other.yes - s * (data.followed + data.open_last + other.total),
            hidden.went_on + SHARED.yes - shared * (hidden.could + SHARED.total),
        )

    @cached_property
    def _information(self) -> Information:
        """The observed one. Of what is hidden, that of complete data is less by the variance (Louis)."""
        family, data, tails, (a, s, shared) = self._family, self._family.data, self._tails, self.now
        bends, hidden = tails.bends, self._hidden
        assert bends is not None
        curved, off = family.curved(self.now, tails, bends), 1 - shared
        of_a = (data.examined + tails.examined) * a * (1 - a) - a**2 * (tails.examined - bends.examined)
        of_s = (data.followed + data.open_last) * s * (1 - s) - s * tails.inverse + s**2 * bends.inverse
        own = shared * (hidden.went_on - shared * hidden.could) + SHARED.information(shared)
        return Information(
            _with_prior(family.prior, a, of_a + curved.attractiveness),
            _with_prior(family.satisfaction, s, of_s),
            off[:, None] * (a * bends.cross + curved.cross_attractiveness),
            off[:, None] * np.broadcast_to(curved.cross_satisfaction, bends.cross.shape),
            np.diag(own) - off * curved.shared * off[:, None],
        )

    @cached_property
    def _step(self) -> Parameters:
        """Newton's, but no logit moves far at once."""
        (a, s, shared), of = self._slopes, self._information
        rest = shared - _products(of.cross_attractiveness, (a / of.attractiveness)[None])[:, 0]
        rest = rest - _products(of.cross_satisfaction, (s / of.satisfaction)[None])[:, 0]
        step = solved(of.profile, rest) if len(rest) else rest
        step *= min(1.0, _FAR_TOGETHER / max(float(np.abs(step).max(initial=0.0)), 1e-300))
        by_a = (a - np.einsum("k,kp->p", step, of.cross_attractiveness)) / of.attractiveness
        by_s = (s - np.einsum("k,kp->p", step, of.cross_satisfaction)) / of.satisfaction
        return Parameters(np.clip(by_a, -FAR, FAR), np.clip(by_s, -FAR, FAR), step)

    def errors(self) -> Parameters:
        """Standard errors of the logits from the observed information."""
        of = self._information
        shared = covariance(of.profile) if len(of.shared) else of.shared
        return Parameters(
            np.sqrt(1 / of.attractiveness + _quadratic(of.cross_attractiveness / of.attractiveness, shared)),
            np.sqrt(1 / of.satisfaction + _quadratic(of.cross_satisfaction / of.satisfaction, shared)),
            np.sqrt(np.maximum(np.diag(shared), 0)),
        )


def _products(rows: Float[np.ndarray, "k pair"], others: Float[np.ndarray, "l pair"]) -> Float[np.ndarray, "k l"]:
    """rows others', by one thread: those of a linear algebra library would spin on the cores that E-steps need."""
    products: np.ndarray = np.einsum("kp,lp->kl", rows, others)
    return products


def _with_prior(prior: Beta, p: Table, information: Table) -> Table:
    total: np.ndarray = np.maximum(information, 0) + np.maximum(prior.information(p), 1e-12)
    return total


def _quadratic(rows: Cross, middle: Float[np.ndarray, "shared shared"]) -> Table:
    """The diagonal of rows' middle rows: what the shared parameters' uncertainty adds to each pair's."""
    added: np.ndarray = np.einsum("kp,kl,lp->p", rows, middle, rows) if len(rows) else np.zeros(rows.shape[1])
    positive: np.ndarray = np.maximum(added, 0)
    return positive


@final
class DBNFamily(Family):
    """h = g (1 - satisfaction). `continuation` fixes g; None learns it."""

    has_satisfaction: ClassVar[bool] = True

    def __init__(self, cascade: Cascade, prior: Beta | None, continuation: float | None = None) -> None:
        super().__init__(cascade, prior)
        self.continuation = continuation

    @override
    def start_shared(self) -> Shared:
        return np.full(1 if self.continuation is None else 0, 0.8)

    def _g(self, now: Parameters) -> float:
        return float(now.shared[0]) if self.continuation is None else self.continuation

    @override
    def walk(self, now: Parameters) -> Walk:
        g = self._g(now)
        return Walk(1 - now.attractiveness, g, 1 - now.satisfaction, np.full(self.data.n_ranks, g))

    @override
    def turns(self, now: Parameters) -> Turns:
        learned = len(now.shared)
        return Turns(np.ones(learned), np.ones((1, len(now.satisfaction))), np.ones((learned, self.data.n_ranks)))

    @override
    def certain(self, now: Parameters) -> float:
        steps = self.data.passed + self.data.followed.sum()
        return float((self.data.followed * np.log1p(-now.satisfaction)).sum() + steps * np.log(self._g(now)))

    @override
    def expect(self, now: Parameters, tails: Tails) -> Expected:
        sure = self.data.passed + self.data.followed.sum()
        unsatisfied = self.data.open_last.sum() - (now.satisfaction * tails.inverse).sum()
        went_on = sure + tails.skip_went_on + tails.went_on.sum()
        could = sure + tails.skip_could + unsatisfied
        learned = len(now.shared)
        return Expected(np.full(learned, went_on), np.full(learned, could))

    @override
    def curved(self, now: Parameters, tails: Tails, bends: Bends) -> Curved:
        learned, by_h = len(now.shared), tails.inverse - bends.inverse
        both = bends.g + (2 * bends.turned + by_h).sum()
        cross = now.satisfaction * (by_h + bends.turned)
        return Curved(np.full((learned, learned), both), np.broadcast_to(cross, (learned, len(cross))))


@final
class DCMFamily(Family):
    """g = 1, h depends on the rank of the click."""

    @override
    def start_shared(self) -> Shared:
        followed, open_last = self.data.followed_at_rank, self.data.open_last_at_rank
        return SHARED.mode(followed + open_last / 2, followed + open_last)

    @override
    def walk(self, now: Parameters) -> Walk:
        return Walk(1 - now.attractiveness, 1.0, np.ones_like(now.attractiveness), now.shared)

    @override
    def turns(self, now: Parameters) -> Turns:
        ranks = len(now.shared)
        return Turns(np.zeros(ranks), np.ones((1, len(now.attractiveness))), np.eye(ranks))

    @override
    def certain(self, now: Parameters) -> float:
        return float(self.data.followed_at_rank @ np.log(now.shared))

    @override
    def expect(self, now: Parameters, tails: Tails) -> Expected:
        followed, open_last = self.data.followed_at_rank, self.data.open_last_at_rank
        return Expected(followed + tails.went_on_at_rank, followed + open_last)

    @override
    def curved(self, now: Parameters, tails: Tails, bends: Bends) -> Curved:
        return Curved(np.diag(bends.inverse_at_rank[0] - bends.inverse_at_rank[1]))


@final
class CCMFamily(Family):
    """g = t1, h = t2 (1 - a) + t3 a: after a click, a coin with probability a decides between t3 and t2.

    That coin is one more hidden success of attractiveness.
    """

    @override
    def start_shared(self) -> Shared:
        return np.array([0.8, 0.9, 0.2])

    @override
    def walk(self, now: Parameters) -> Walk:
        return Walk(1 - now.attractiveness, float(now.shared[0]), self._follow(now), np.ones(self.data.n_ranks))

    @override
    def turns(self, now: Parameters) -> Turns:
        ones = np.ones((2, self.data.n_ranks))
        shares = self._shares(now)
        return Turns(np.array([1.0, 0, 0]), np.vstack([0 * shares[:1], shares]), np.vstack([0 * ones[:1], ones]))

    def _follow(self, now: Parameters) -> Table:
        follow: np.ndarray = now.shared[1] * (1 - now.attractiveness) + now.shared[2] * now.attractiveness
        return follow

    def _shares(self, now: Parameters) -> Float[np.ndarray, "2 pair_or_unseen"]:
        """Of t2 and t3 in h: d ln h / d ln t."""
        a, (_, t2, t3) = now.attractiveness, now.shared
        shares: np.ndarray = np.stack([t2 * (1 - a), t3 * a]) / self._follow(now)
        return shares

    @override
    def certain(self, now: Parameters) -> float:
        return float((self.data.followed * np.log(self._follow(now))).sum() + self.data.passed * np.log(now.shared[0]))

    @override
    def expect(self, now: Parameters, tails: Tails) -> Expected:
        data, a, (_, t2, t3) = self.data, now.attractiveness, now.shared
        follow = self._follow(now)
        onward = tails.went_on / follow  # the sum of B / z over open last clicks
        heads_followed = data.followed * a * t3 / follow
        heads_on, heads_off = a * t3 * onward, a * (1 - t3) * tails.inverse
        tails_followed = data.followed - heads_followed
        tails_on, tails_off = (1 - a) * t2 * onward, (1 - a) * (1 - t2) * tails.inverse
        heads = heads_followed + heads_on + heads_off
        return Expected(
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
    def curved(self, now: Parameters, tails: Tails, bends: Bends) -> Curved:
        """By the logit of a, ln h has the derivative `by_a`; the likelihood has the slope `slope` by ln h, and the
        curvature `bend`."""
        data, a, (_, t2, t3) = self.data, now.attractiveness, now.shared
        shares = self._shares(now)
        by_a = a * (1 - a) * (t3 - t2) / self._follow(now)
        slope, bend = data.followed + data.open_last - tails.inverse, tails.inverse - bends.inverse
        by_t = np.diag((shares * slope).sum(axis=1)) + _products(shares * (bend - slope), shares)
        with_g = (shares * bends.turned).sum(axis=1)
        shares_by_a = shares * (np.stack([-a, 1 - a]) - by_a)
        return Curved(
            shared=np.block([[np.array([[bends.g]]), with_g[None]], [with_g[:, None], by_t]]),
            attractiveness=-(bend * by_a**2 + slope * (by_a * (1 - 2 * a) - by_a**2)),
            cross_attractiveness=-np.vstack([by_a * bends.turned, bend * by_a * shares + slope * shares_by_a]),
        )
