"""EM for cascades: DBN, SDBN, DCM and CCM by exact maximum likelihood.

Each family says how its parameters give g and h of the tails (see `tails`), and how expected counts give its
parameters. Parameters are one vector: attractiveness by pair, satisfaction by pair if the family has it, then the
shared ones.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import copy
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, final

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from clickshift.cascade import Cascade
from clickshift.learners.prior import SHARED, Beta, beta_by_likelihood
from clickshift.learners.squarem import Ascent, ascend
from clickshift.tails import HiddenTails, Tails, Walk

Table = Float[np.ndarray, " pair_or_unseen"]
Shared = Float[np.ndarray, " shared"]
_STEPS_ALIKE = 12


class Parameters(NamedTuple):
    """The parameters of a cascade, or the standard errors of their logits. Satisfaction is 0 where a family has
    none."""

    attractiveness: Table
    satisfaction: Table
    shared: Shared


class Expected(NamedTuple):
    """Expected successes and trials of the hidden choices, given the tails."""

    went_on: Shared
    could: Shared
    yes: Table | float = 0.0
    """Further successes of attractiveness, beyond clicks among examinations..."""
    trials: Table | float = 0.0
    variance: Table | float = 0.0
    """...and how uncertain they are."""


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
    def certain(self, now: Parameters) -> float:
        """Log-likelihood of going on after the skips and clicks above the last click."""

    @abstractmethod
    def expect(self, now: Parameters, tails: Tails) -> Expected:
        """What the tails say of the shared parameters, and further of attractiveness."""

    def _tails_with(self, k: int) -> HiddenTails:
        """The tails that shared parameter k has a part in."""
        return self.tails

    def _expect_tails(self, now: Parameters, part: HiddenTails | None = None, *, squares: bool = False) -> Tails:
        part = self.tails if part is None else part
        return part.expect(self.walk(now), squares=squares)

    def _split(self, vector: np.ndarray) -> Parameters:
        size = len(self.data.clicks)
        s = vector[size : 2 * size] if self.has_satisfaction else np.zeros(size)
        return Parameters(vector[:size], s, vector[size * (1 + self.has_satisfaction) :])

    def _join(self, a: Table, s: Table, shared: Shared) -> np.ndarray:
        return np.concatenate([a, s, shared] if self.has_satisfaction else [a, shared])

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
        tails = self._expect_tails(alike)
        if self.learns_prior:
            # from the same place wherever the climb starts: objectives under different priors could not be compared
            self.prior = beta_by_likelihood(self.data.examined[:-1] + tails.examined[:-1], self.data.clicks[:-1])
        first = self._maximised(alike, tails) if start is None else self._join(*start)
        if rng is not None:
            first = rng.uniform(0.1, 0.9, len(first))
        ascent = ascend(self._step, first, tolerance=tolerance, max_steps=max_steps)
        found = self._split(ascent.parameters)
        return CascadeFit(found, self._errors(found), ascent)

    def _alike(self) -> Parameters:
        """The parameters if all documents were one: a small problem, and a better first guess than the closed form,
        which takes for unexamined what is below the last click."""
        one = copy(self)
        one.data, one.tails, one.prior = self.data.alike(), self.tails.alike(), Beta()
        start = one._join(np.full(2, 0.1), np.full(2, 0.5), self.start_shared())
        found = one._split(ascend(one._step, start, tolerance=0.1, max_steps=_STEPS_ALIKE).parameters)
        a, s = (np.full(len(self.data.clicks), both[0]) for both in found[:2])
        return Parameters(a, s, found.shared)

    def _step(self, vector: np.ndarray) -> tuple[np.ndarray, float]:
        data, now = self.data, self._split(vector)
        a, s, shared = now
        tails = self._expect_tails(now)
        objective = tails.log_likelihood + self.certain(now)
        objective += float((data.clicks * np.log(a) + (data.examined - data.clicks) * np.log1p(-a)).sum())
        objective += self.prior.log_density(a) + SHARED.log_density(shared)
        if self.has_satisfaction:
            objective += self.satisfaction.log_density(s)
        return self._maximised(now, tails), objective

    def _maximised(self, now: Parameters, tails: Tails) -> np.ndarray:
        """The M-step: shares of successes among trials, hidden ones expected."""
        data, hidden = self.data, self.expect(now, tails)
        a = self.prior.mode(data.clicks + hidden.yes, data.examined + tails.examined + hidden.trials)
        s = self.satisfaction.mode(now.satisfaction * tails.inverse, data.followed + data.open_last)
        return self._join(a, s, SHARED.mode(hidden.went_on, hidden.could))

    def _scores(self, now: Parameters, tails: Tails) -> Parameters:
        """Derivatives of the objective by the logits: successes minus p x trials, hidden ones expected (Fisher)."""
        data, prior, (a, s, shared) = self.data, self.prior, now
        hidden = self.expect(now, tails)
        a_trials = data.examined + tails.examined + hidden.trials
        return Parameters(
            data.clicks + hidden.yes + prior.yes - a * (a_trials + prior.total),
            s * tails.inverse + self.satisfaction.yes - s * (data.followed + data.open_last + self.satisfaction.total),
            hidden.went_on + SHARED.yes - shared * (hidden.could + SHARED.total),
        )

    def _errors(self, now: Parameters) -> Parameters:
        """Standard errors of the logits from the observed information.

        Its diagonal by pair is Louis' identity: the information of complete data minus what is hidden. Information
        between pairs is left out; that between pairs and shared parameters is not: it comes from differences of scores.
        """
        data, (a, s, _) = self.data, now
        tails = self._expect_tails(now, squares=True)
        assert tails.squares is not None
        hidden = self.expect(now, tails)
        trials = data.examined + tails.examined + hidden.trials
        doubt = a**2 * (tails.examined - tails.squares[0]) + hidden.variance
        of_a = _with_prior(self.prior, a, trials * a * (1 - a) - doubt)
        s_doubt = s * tails.inverse - s**2 * tails.squares[1]
        of_s = _with_prior(self.satisfaction, s, (data.followed + data.open_last) * s * (1 - s) - s_doubt)
        cross_a, cross_s, of_shared = self._shared_information(now, tails)
        if not self.has_satisfaction:
            cross_s = np.zeros_like(cross_s)
        profile = of_shared - cross_a @ (cross_a / of_a).T - cross_s @ (cross_s / of_s).T
        covariance = np.linalg.pinv((profile + profile.T) / 2, hermitian=True)
        return Parameters(
            np.sqrt(1 / of_a + _quadratic(cross_a / of_a, covariance)),
            np.sqrt(1 / of_s + _quadratic(cross_s / of_s, covariance)),
            np.sqrt(np.maximum(np.diag(covariance), 0)),
        )

    def _shared_information(
        self, now: Parameters, tails: Tails
    ) -> tuple[Float[np.ndarray, "shared pair"], Float[np.ndarray, "shared pair"], Float[np.ndarray, "shared shared"]]:
        """Minus the derivatives of all scores by each shared logit, by differences."""
        step, rows = 1e-3, []
        for k in range(len(now.shared)):
            part = self._tails_with(k)
            here = self._scores(now, tails if part is self.tails else self._expect_tails(now, part))
            p = now.shared.copy()
            p[k] = 1 / (1 + (1 - p[k]) / p[k] * np.exp(-step))
            moved = now._replace(shared=p)
            there = self._scores(moved, self._expect_tails(moved, part))
            rows.append([(a - b) / step for a, b in zip(here, there, strict=True)])
        size = len(now.attractiveness)
        if not rows:
            return np.zeros((0, size)), np.zeros((0, size)), np.zeros((0, 0))
        by_a, by_s, by_shared = (np.stack(part) for part in zip(*rows, strict=True))
        return by_a, by_s, by_shared


def _with_prior(prior: Beta, p: Table, information: Table) -> Table:
    total: np.ndarray = np.maximum(information, 0) + np.maximum(prior.information(p), 1e-12)
    return total


def _quadratic(rows: Float[np.ndarray, "shared pair"], middle: Float[np.ndarray, "shared shared"]) -> Table:
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
    def certain(self, now: Parameters) -> float:
        return float(self.data.followed_at_rank @ np.log(now.shared))

    @override
    def expect(self, now: Parameters, tails: Tails) -> Expected:
        followed, open_last = self.data.followed_at_rank, self.data.open_last_at_rank
        return Expected(followed + tails.went_on_at_rank, followed + open_last)

    @override
    def _tails_with(self, k: int) -> HiddenTails:
        return self.tails.starting_at(k + 1)


@final
class CCMFamily(Family):
    """g = t1, h = t2 (1 - a) + t3 a: after a click, a coin with probability a decides between t3 and t2.

    That coin is one more hidden success of attractiveness.
    """

    @override
    def start_shared(self) -> Shared:
        return np.array([0.8, 0.8, 0.5])

    @override
    def walk(self, now: Parameters) -> Walk:
        return Walk(1 - now.attractiveness, float(now.shared[0]), self._follow(now), np.ones(self.data.n_ranks))

    def _follow(self, now: Parameters) -> Table:
        follow: np.ndarray = now.shared[1] * (1 - now.attractiveness) + now.shared[2] * now.attractiveness
        return follow

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
        trials = data.followed + data.open_last
        mean = heads / np.maximum(trials, 1e-12)
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
            trials=trials,
            variance=trials * mean * (1 - mean),
        )
