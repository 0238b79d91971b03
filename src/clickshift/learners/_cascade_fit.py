"""Cascades by exact maximum likelihood: what DBN, SDBN, DCM and CCM (`cascade_families`) share.

Each family says how its parameters give g and h of the tails (see `tails`), how expected counts give its parameters,
and how the likelihood curves. Parameters are one vector: attractiveness by pair, satisfaction by pair if the family
has it, then the shared ones.

The E-step gives the slope (Fisher's identity) and the curvature, all of it by logits but for what is between two pairs.
So Newton's steps have a matrix with the form of an arrow (`arrow`), and a few of them do what EM needs fifty and more
for. Where the same pairs keep meeting, steps lean towards EM's, and errors take what is between them into account
(`co_occurrences`). EM's step is taken where Newton's would be one down.
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

from clickshift.core.newton import (
    ArrowheadInformation,
    CascadeParameters,
    Cross,
    EMDamping,
    NewtonResult,
    NewtonStep,
    PairValues,
    Shared,
    maximise,
    shift_logits,
)
from clickshift.counts.cascade import Cascade
from clickshift.counts.tail_e_step import ExpectedTails, TailCurvature, TailTransitions, TransitionDerivatives
from clickshift.learners._cascade_covariance import co_occurrences, invert_information, lists_repeat
from clickshift.learners._priors import SHARED_PRIOR, Beta, beta_by_likelihood

_HOMOGENEOUS_STEPS = 12
"""Enough for a first guess: what CCM cannot tell apart there would go on for ever."""
MIN_PROBABILITY = 1e-9
"""How near to 0 and 1 a parameter may come."""


class ExpectedChoices(NamedTuple):
    """Expected successes and trials of the hidden choices, given the tails."""

    went_on: Shared
    could: Shared
    yes: PairValues | float = 0.0
    """Further successes of attractiveness, beyond clicks among examinations."""
    trials: PairValues | float = 0.0


class SharedCurvature(NamedTuple):
    """How the likelihood curves beyond what all families share: derivatives by ln p of shared p, and minus those by a
    pair's logit."""

    shared: Float[np.ndarray, "shared shared"]
    cross_satisfaction: Cross | float = 0.0
    attractiveness: PairValues | float = 0.0
    cross_attractiveness: Cross | float = 0.0


@dataclass(frozen=True, eq=False)
class CascadeFit:
    parameters: CascadeParameters
    errors: CascadeParameters
    ascent: NewtonResult


class CascadeFamily(ABC):
    """How one model uses the tails."""

    has_satisfaction: ClassVar[bool] = False

    def __init__(self, cascade: Cascade, prior: Beta | None) -> None:
        self.data, self.tails = cascade, cascade.tails
        self.prior = self.satisfaction = Beta() if prior is None else prior
        self.learns_prior, self.care = prior is None, EMDamping()

    @abstractmethod
    def start_shared(self) -> Shared:
        """A first guess of the parameters that all sessions share."""

    @abstractmethod
    def walk(self, now: CascadeParameters) -> TailTransitions:
        """How the parameters lead users on."""

    @abstractmethod
    def turns(self, now: CascadeParameters) -> TransitionDerivatives:
        """How the shared ones change that."""

    @abstractmethod
    def follow_slopes(self, now: CascadeParameters) -> tuple[PairValues | float, PairValues | float]:
        """Of ln h, by the logits of the clicked pair's attractiveness and satisfaction."""

    @abstractmethod
    def certain(self, now: CascadeParameters) -> float:
        """Log-likelihood of going on after the skips and clicks above the last click."""

    @abstractmethod
    def expect(self, now: CascadeParameters, tails: ExpectedTails) -> ExpectedChoices:
        """What the tails say of the shared parameters, and further of attractiveness."""

    @abstractmethod
    def curved(self, now: CascadeParameters, tails: ExpectedTails, bends: TailCurvature) -> SharedCurvature:
        """What the tails say of how sure that is."""

    def start(self, alike: CascadeParameters, tails: ExpectedTails) -> np.ndarray:
        """Where to begin, from what the tails would say if all documents were alike."""
        return self.maximised(alike, tails)

    @final
    def fit(
        self,
        *,
        tolerance: float,
        max_steps: int,
        start: CascadeParameters | None = None,
        rng: np.random.Generator | None = None,
    ) -> CascadeFit:
        """Maximise the penalised likelihood from a first guess, from `start`, or from random numbers."""
        alike = self._alike()
        tails = self.tails.expect(self.walk(alike))
        if self.learns_prior:
            # from the same place wherever the climb starts: objectives under different priors could not be compared
            self.prior = beta_by_likelihood(self.data.examined[:-1] + tails.examined[:-1], self.data.clicks[:-1])
        first = self.start(alike, tails) if start is None else self.join(*start)
        if rng is not None:
            first = rng.uniform(0.1, 0.9, len(first))
        self.care = EMDamping()
        found, ascent = maximise(self._look, first, tolerance=tolerance, max_steps=max_steps)
        return CascadeFit(found.now, found.errors(), ascent)

    def _alike(self) -> CascadeParameters:
        """The parameters if all documents were one: a small problem, and a better first guess than the closed form,
        which takes for unexamined what is below the last click."""
        one = copy(self)
        one.data, one.tails, one.prior, one.care = self.data.alike(), self.tails.alike(), Beta(), EMDamping()
        start = one.join(np.full(2, 0.1), np.full(2, 0.5), self.start_shared())
        found = maximise(one._look, start, tolerance=0.1, max_steps=_HOMOGENEOUS_STEPS)[0].now
        a, s = (np.full(len(self.data.clicks), both[0]) for both in found[:2])
        return CascadeParameters(a, s, found.shared)

    def _look(self, vector: np.ndarray) -> _LocalLikelihood:
        return _LocalLikelihood(self, self.split(vector))

    def split(self, vector: np.ndarray) -> CascadeParameters:
        size = len(self.data.clicks)
        s = vector[size : 2 * size] if self.has_satisfaction else np.zeros(size)
        return CascadeParameters(vector[:size], s, vector[size * (1 + self.has_satisfaction) :])

    def join(self, a: PairValues, s: PairValues, shared: Shared) -> np.ndarray:
        return np.concatenate([a, s, shared] if self.has_satisfaction else [a, shared])

    def maximised(self, now: CascadeParameters, tails: ExpectedTails) -> np.ndarray:
        """The M-step: shares of successes among trials, hidden ones expected."""
        data, hidden = self.data, self.expect(now, tails)
        a = self.prior.mode(data.clicks + hidden.yes, data.examined + tails.examined + hidden.trials)
        s = self.satisfaction.mode(now.satisfaction * tails.inverse, data.followed + data.open_last)
        return self.join(a, s, SHARED_PRIOR.mode(hidden.went_on, hidden.could))


@final
class _LocalLikelihood:
    """The penalised likelihood from one point."""

    def __init__(self, family: CascadeFamily, now: CascadeParameters) -> None:
        self.now, self._family, data, (a, s, shared) = now, family, family.data, now
        self._tails = family.tails.expect(family.walk(now), family.turns(now))
        objective = self._tails.log_likelihood + family.certain(now)
        objective += float((data.clicks * np.log(a) + (data.examined - data.clicks) * np.log1p(-a)).sum())
        objective += family.prior.log_density(a) + SHARED_PRIOR.log_density(shared)
        if family.has_satisfaction:
            objective += family.satisfaction.log_density(s)
        self.objective = objective

    def promise(self) -> float:
        return self._newton.gain

    def ahead(self) -> Iterator[np.ndarray]:
        """Newton's step, as careful as the last ones taught, then EM's, which never goes down."""
        join, care = self._family.join, self._family.care
        share = care.share(self.objective)
        newton = (
            self._newton if share == 0 else NewtonStep(self._slopes, self._information.blended(self._complete, share))
        )
        care.expect(self.objective, newton.gain)
        yield shift_logits(join(*self.now), join(*newton.step()), MIN_PROBABILITY)
        care.grow()
        yield self._family.maximised(self.now, self._tails)

    @cached_property
    def _hidden(self) -> ExpectedChoices:
        return self._family.expect(self.now, self._tails)

    @cached_property
    def _slopes(self) -> CascadeParameters:
        """Derivatives of the objective by the logits: successes minus p x trials, hidden ones expected (Fisher)."""
        data, tails, hidden, (a, s, shared) = self._family.data, self._tails, self._hidden, self.now
        prior, other = self._family.prior, self._family.satisfaction
        return CascadeParameters(
            data.clicks + hidden.yes + prior.yes - a * (data.examined + tails.examined + hidden.trials + prior.total),
            s * tails.inverse + other.yes - s * (data.followed + data.open_last + other.total)
            if self._family.has_satisfaction
            else np.zeros_like(s),
            hidden.went_on + SHARED_PRIOR.yes - shared * (hidden.could + SHARED_PRIOR.total),
        )

    @cached_property
    def _information(self) -> ArrowheadInformation:
        """The observed one. Of what is hidden, that of complete data is less by the variance (Louis)."""
        family, data, tails, (a, s, shared) = self._family, self._family.data, self._tails, self.now
        bends, hidden = tails.bends, self._hidden
        assert bends is not None
        curved, off = family.curved(self.now, tails, bends), 1 - shared
        of_a = (data.examined + tails.examined) * a * (1 - a) - a**2 * (tails.examined - bends.examined)
        of_s = (data.followed + data.open_last) * s * (1 - s) - s * tails.inverse + s**2 * bends.inverse
        own = shared * (hidden.went_on - shared * hidden.could) + SHARED_PRIOR.information(shared)
        return ArrowheadInformation(
            _with_prior(family.prior, a, of_a + curved.attractiveness),
            _with_prior(family.satisfaction, s, of_s),
            off[:, None] * (a * bends.cross + curved.cross_attractiveness),
            off[:, None] * np.broadcast_to(curved.cross_satisfaction, bends.cross.shape),
            np.diag(own) - off * curved.shared * off[:, None],
        )

    @cached_property
    def _complete(self) -> ArrowheadInformation:
        """What it would be if nothing were hidden: steps by it are about those of EM."""
        family, data, tails, (a, s, shared) = self._family, self._family.data, self._tails, self.now
        hidden, none = self._hidden, np.zeros_like(self._information.cross_attractiveness)
        own = hidden.could * shared * (1 - shared) + SHARED_PRIOR.information(shared)
        return ArrowheadInformation(
            _with_prior(family.prior, a, (data.examined + tails.examined + hidden.trials) * a * (1 - a)),
            _with_prior(family.satisfaction, s, (data.followed + data.open_last) * s * (1 - s)),
            none,
            none,
            np.diag(own),
        )

    @cached_property
    def _newton(self) -> NewtonStep:
        return NewtonStep(self._slopes, self._information)

    def errors(self) -> CascadeParameters:
        """Standard errors of the logits from the observed information; from all of it where pairs keep meeting."""
        of, parts = self._information, self._family.tails.parts
        words = self._family.data.vocabulary
        variance, shared = of.inverted()
        met = (
            co_occurrences(parts, self._family.walk(self.now), words.query_offsets)
            if lists_repeat(parts, words)
            else None
        )
        if met is not None:
            kinds = 1 + self._family.has_satisfaction
            own = np.stack([of.attractiveness, of.satisfaction])[:kinds, :-1]
            cross = np.stack([of.cross_attractiveness, of.cross_satisfaction], axis=1)[:, :kinds, :-1]
            slopes = self._family.follow_slopes(self.now)
            by_clicked = np.stack([np.broadcast_to(slope, len(of.satisfaction)) for slope in slopes])
            between = met.information(by_clicked[:kinds, :-1], words.query_offsets)
            variance[:kinds, :-1], shared = invert_information(own, between, cross, of.shared, words.query_offsets)
        of_a, of_s = np.sqrt(variance)
        return CascadeParameters(of_a, of_s, np.sqrt(np.maximum(np.diag(shared), 0)))


def _with_prior(prior: Beta, p: PairValues, information: PairValues) -> PairValues:
    """At a maximum the sum is above 0; elsewhere it need not be, and is kept there."""
    believed = np.maximum(prior.information(p), 1e-12)
    total: np.ndarray = np.maximum(information + believed, 0.1 * believed)
    return total
