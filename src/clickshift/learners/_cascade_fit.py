"""Maximum likelihood of cascade models, by Newton steps on the observed likelihood: the part that all of them share.

The models are DBN, SDBN, DCM and CCM (`_cascade_models`). Each family defines how its parameters give the continuation
probabilities g and h of the tails (see `counts.tails`), how expected counts give its parameters, and the curvature of
the likelihood. Parameters are one vector: attractiveness by pair, satisfaction by pair if the family has it, then the
shared parameters.

The E-step gives the gradient (Fisher's identity) and the curvature by logits (Louis' identity), except for the entries
between two pairs. So the information of a Newton step is an arrowhead matrix (`core.newton.ArrowheadInformation`), and
a few Newton steps replace fifty or more EM iterations. Where the same pairs keep co-occurring, steps are blended with
those of EM (`core.newton.EMDamping`), and standard errors use the entries between pairs too (`_cascade_covariance`). An
EM step is taken where a Newton step would decrease the likelihood.

References
----------
Breslow, N. E. and Lin, X. (1995). Bias correction in generalised linear mixed models with a single component of
dispersion. Biometrika.

Louis, T. A. (1982). Finding the observed information matrix when using the EM algorithm. JRSS B.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple, final

import numpy as np
from jaxtyping import Float

from clickshift.core.newton import (
    MAX_LOGIT_STEP,
    MAX_PROBABILITY,
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
from clickshift.counts.tails import TailsByShape
from clickshift.learners._cascade_covariance import (
    InvertedInformation,
    co_occurrences,
    invert_information,
    lists_repeat,
)
from clickshift.learners._priors import SHARED_PRIOR, Beta, beta_by_likelihood
from clickshift.learners._rank_groups import Penalty, RankGroups
from clickshift.models.intervals import FEW_CLICKS, EffectiveCounts, effective_counts

_HOMOGENEOUS_STEPS = 12
"""Steps of the first guess with homogeneous documents, at most: CCM is not identified there and would not converge."""
_DISCOUNT = 0.9
"""Discount of a rank by which the usual rank of a pair is found."""
_NEUTRAL_TOLERANCE, _NEUTRAL_STEPS = 0.1, 20
"""Expected gain of a step under the neutral prior, in nats, below which the steps end; and their number, at most."""
_MANY_IMPRESSIONS = 1e6
"""Impressions from which on one step under the neutral prior is enough, unless lists repeat."""
_KNOWN_SHARE = 0.75
"""Share of clicks on documents with at least five effective ones, below which the log does not decide shared
parameters."""
_DIFFERENCE = 1e-3
"""Change of a logit by which derivatives of the information are computed."""
_MAX_DERIVATIVES = 24
"""Shared parameters up to which attractiveness is integrated out of their likelihood: each takes an evaluation."""
_REMAINING_WEIGHT = 7
"""Weight of the gain that remains after a step in the stop rule: a seventh of the tolerance may remain."""
_MAX_RATIO = 0.95
"""Largest ratio of the expected gains of two steps that is extrapolated."""
_MAX_HALVINGS = 6
"""Number of lengths of the complete-data step that are tried."""
MIN_PROBABILITY = 1e-9
"""Smallest distance of a parameter from 0 and 1."""


class ExpectedChoices(NamedTuple):
    """Expected successes and trials of the hidden choices, given the tails.

    Parameters
    ----------
    successes
        Continuations, by shared parameter.
    chances
        Occasions to continue, by shared parameter.
    yes
        Further successes of attractiveness by pair, beyond clicks among examinations.
    trials
        Further trials of attractiveness by pair.
    """

    successes: Shared
    chances: Shared
    yes: PairValues | float = 0.0
    trials: PairValues | float = 0.0


class SharedCurvature(NamedTuple):
    """Second derivatives of the likelihood that depend on the family.

    Parameters
    ----------
    shared
        By ln p of two shared parameters p.
    cross_satisfaction
        Minus the derivatives by ln p of a shared parameter and the logit of a pair's satisfaction.
    attractiveness
        Minus the derivatives by the logit of a pair's attractiveness.
    cross_attractiveness
        Minus the derivatives by ln p of a shared parameter and the logit of a pair's attractiveness.
    """

    shared: Float[np.ndarray, "shared shared"]
    cross_satisfaction: Cross | float = 0.0
    attractiveness: PairValues | float = 0.0
    cross_attractiveness: Cross | float = 0.0


class CascadeCounts(NamedTuple):
    """Effective successes and trials of the parameters in the likelihood without priors (`models.intervals`).

    Parameters
    ----------
    attractiveness, satisfaction
        Counts by pair.
    shared
        Counts by shared parameter.
    """

    attractiveness: EffectiveCounts
    satisfaction: EffectiveCounts
    shared: EffectiveCounts


@dataclass(frozen=True, eq=False)
class CascadeFit:
    """Fitted parameters of a cascade model.

    Parameters
    ----------
    parameters
        The parameters.
    errors
        Standard errors of their logits; None if they were not computed.
    counts
        Their effective counts; None if they were not computed.
    newton
        How the maximisation ended.
    shared_covariance
        Covariance of the logits of the shared parameters; None if errors were not computed.
    """

    parameters: CascadeParameters
    errors: CascadeParameters | None
    counts: CascadeCounts | None
    newton: NewtonResult
    shared_covariance: np.ndarray | None = None


class TailsOfSegment(NamedTuple):
    """Tails with the transitions of their users.

    Parameters
    ----------
    parts
        The tails.
    transitions
        Probabilities by which users continue.
    by_clicked
        Derivatives of ln h by the logits of the clicked pair's attractiveness and satisfaction.
    """

    parts: Sequence[TailsByShape]
    transitions: TailTransitions
    by_clicked: tuple[PairValues | float, PairValues | float]


class CascadeFamily(ABC):
    """Likelihood of one cascade model on the counts of a log.

    Parameters
    ----------
    cascade
        Sufficient statistics of cascade models.
    prior
        Prior of attractiveness and satisfaction; None learns that of attractiveness by empirical Bayes.
    """

    has_satisfaction: ClassVar[bool] = False

    def __init__(self, cascade: Cascade, prior: Beta | None) -> None:
        self.data, self.tails = cascade, cascade.tails
        self.prior = self.satisfaction_prior = Beta() if prior is None else prior
        self.learns_prior, self.damping = prior is None, EMDamping()
        self.groups: RankGroups | None = None
        self.satisfaction_groups: RankGroups | None = None
        self.last_gain = 0.0

    @abstractmethod
    def start_shared(self) -> Shared:
        """Return a first guess of the shared parameters."""

    @abstractmethod
    def transitions(self, parameters: CascadeParameters) -> TailTransitions:
        """Return the probabilities by which users continue in the tails."""

    @abstractmethod
    def transition_derivatives(self, parameters: CascadeParameters) -> TransitionDerivatives:
        """Return the derivatives of the transitions by the shared parameters."""

    @abstractmethod
    def continuation_derivatives(self, parameters: CascadeParameters) -> tuple[PairValues | float, PairValues | float]:
        """Return the derivatives of ln h by the logits of the clicked pair's attractiveness and satisfaction."""

    @abstractmethod
    def certain_log_likelihood(self, parameters: CascadeParameters) -> float:
        """Return the log-likelihood of continuing after the skips and clicks above the last click.

        That users were not satisfied by those clicks is left out.
        """

    @abstractmethod
    def expected_choices(self, parameters: CascadeParameters, tails: ExpectedTails) -> ExpectedChoices:
        """Return the expected counts of the shared parameters, and further ones of attractiveness."""

    @abstractmethod
    def curvature(
        self, parameters: CascadeParameters, tails: ExpectedTails, tail_curvature: TailCurvature
    ) -> SharedCurvature:
        """Return the second derivatives that depend on the family."""

    def tails_of_segments(self, parameters: CascadeParameters) -> Iterator[TailsOfSegment]:
        """Yield the tails of each segment with the transitions of its users; without segments, those of all."""
        derivatives = self.continuation_derivatives(parameters)
        yield TailsOfSegment(self.tails.parts, self.transitions(parameters), derivatives)

    def homogeneous(self) -> CascadeFamily:
        """Return the likelihood as if all documents were one."""
        one = copy(self)
        one.data, one.tails, one.prior, one.damping = self.data.pooled(), self.tails.pooled(), Beta(), EMDamping()
        one.groups, one.satisfaction_groups, one.last_gain = None, None, 0.0
        return one

    def start(self, homogeneous: CascadeParameters, tails: ExpectedTails) -> np.ndarray:
        """Return the start of the Newton steps, from the fit in which all documents have the same parameters."""
        return self.m_step(homogeneous, tails)

    @final
    def fit(
        self,
        *,
        tolerance: float,
        max_steps: int,
        start: CascadeParameters | None = None,
        rng: np.random.Generator | None = None,
        errors: bool = True,
        intervals: bool = True,
    ) -> CascadeFit:
        """Maximise the penalised likelihood.

        Parameters
        ----------
        tolerance
            Expected gain of a step, in nats, below which the steps end.
        max_steps
            Number of evaluations of the likelihood, at most.
        start
            Parameters to start from; None makes a first guess.
        rng
            Generator of a random start.
        errors
            Whether to compute standard errors and effective counts.
        intervals
            Whether effective counts are those under the neutral prior, which takes further evaluations.

        Returns
        -------
        CascadeFit
            The parameters with their standard errors.
        """
        first, tails = None if start is None else self.join(*start), None
        if self.learns_prior or first is None:
            homogeneous = self._fit_homogeneous()
            tails = self.tails.expect(self.transitions(homogeneous))
            if self.learns_prior:
                # independent of the start: objectives under different priors could not be compared
                self.prior = beta_by_likelihood(self.data.examined[:-1] + tails.examined[:-1], self.data.clicks[:-1])
            first = self.start(homogeneous, tails) if first is None else first
        if rng is not None:
            first = rng.uniform(0.1, 0.9, len(first))
        self.damping, self.last_gain = EMDamping(), 0.0
        first = np.minimum(first, MAX_PROBABILITY)
        scale = float(self.data.impressions.sum())
        local, newton = maximise(self._local_likelihood, first, tolerance=tolerance, max_steps=max_steps, scale=scale)
        if not errors:
            return CascadeFit(local.parameters, None, None, newton)
        full = local.full_inverse()
        logit_errors = local.errors(full)
        if self.learns_prior and intervals and tails is not None:
            counts = self._neutral_counts(local, tails)
        else:
            counts = local.effective_counts(logit_errors, local.newton_step(full)[0])
        return CascadeFit(local.parameters, logit_errors, counts, newton, local.shared_covariance(full))

    @property
    def is_large(self) -> bool:
        """Whether one step under the neutral prior is enough."""
        return bool(self.data.impressions.sum() > _MANY_IMPRESSIONS)

    def _neutral_counts(self, fitted: _LocalLikelihood, homogeneous_tails: ExpectedTails) -> CascadeCounts:
        """Return the effective counts under the neutral prior of rank groups, starting from a fit under another prior.

        The last step needs no evaluation: effective counts include it. Continuation is moved to the maximum of the
        likelihood with the parameters of documents integrated out. The weak prior of satisfaction, which its own
        intervals need, is no distribution of documents: for continuation, satisfaction varies around a mean, too.
        """
        other = copy(self)
        other.groups = self._usual_rank_groups(homogeneous_tails)
        start = np.append(self.join(*fitted.parameters), other.groups.means(fitted.parameters.attractiveness))
        local, step, full = _LocalLikelihood(other, start, fitted.tails).neutral_maximum()
        counts = local.effective_counts(local.errors(full), step)
        if not self.is_large and 0 < len(fitted.parameters.shared) <= _MAX_DERIVATIVES:
            local, step, full = local.with_varying_satisfaction(step, full)
            marginal = local.effective_counts(local.errors(full), local.marginal_step(step, full))
            counts = marginal._replace(satisfaction=counts.satisfaction)
        return counts._replace(shared=self._of_known_documents(counts))

    def _of_known_documents(self, counts: CascadeCounts) -> EffectiveCounts:
        """Return the effective counts of shared parameters, reduced where most clicks are on hardly known documents.

        Shared parameters are estimated jointly with one or two for every document. If those have few clicks each, the
        information claims more than the log can tell, as in all models with many incidental parameters. It is
        multiplied by the squared share of clicks on documents with at least five effective ones; if that share is less
        than three quarters, it is that of fewer than five trials.
        """
        clicks, known = self.data.clicks, counts.attractiveness[0] >= FEW_CLICKS
        share = clicks[known].sum() / max(clicks.sum(), 1e-12)
        trials = counts.shared[1] * share**2
        if share < _KNOWN_SHARE:
            trials = np.minimum(trials, 0.99 * FEW_CLICKS)
        reduced: np.ndarray = counts.shared * (trials / np.maximum(counts.shared[1], 1e-300))
        return reduced

    def _usual_rank_groups(self, tails: ExpectedTails) -> RankGroups:
        """Group pairs by the rank at which they are usually shown below the last click; the top if they never were.

        It is the rank of the mean of c^rank, which is what an E-step returns as examined if nobody ever clicks and
        users go on with probability c.
        """
        data, ones = self.data, np.ones(len(self.data.clicks))
        shown, discount = data.impressions - data.examined, _DISCOUNT ** np.arange(1, data.n_ranks + 1)
        discounted = self.tails.expect(TailTransitions(ones, _DISCOUNT, ones, discount)).examined
        mean = np.where(shown > 0, discounted / np.maximum(shown, 1e-12), 1.0)
        rank = np.rint(np.log(np.clip(mean, 1e-300, 1.0)) / np.log(_DISCOUNT)).astype(np.int64)
        return RankGroups.of(rank, data.examined + tails.examined, data.clicks)

    def _fit_homogeneous(self) -> CascadeParameters:
        """Fit the model in which all documents have the same parameters.

        It is a small problem, and a better first guess than the closed form, which treats the results below the last
        click as unexamined.
        """
        one = self.homogeneous()
        start = one.join(np.full(2, 0.1), np.full(2, 0.5), self.start_shared())
        scale = float(self.data.impressions.sum())
        fitted = maximise(one._local_likelihood, start, tolerance=0.1, max_steps=_HOMOGENEOUS_STEPS, scale=scale)[
            0
        ].parameters
        a, s = (np.full(len(self.data.clicks), table[0]) for table in fitted[:2])
        return CascadeParameters(a, s, fitted.shared)

    def _local_likelihood(self, vector: np.ndarray) -> _LocalLikelihood:
        """Return the likelihood at a parameter vector."""
        return _LocalLikelihood(self, vector)

    def split(self, vector: np.ndarray) -> CascadeParameters:
        """Split the parameter vector; satisfaction is 0 if the family has none."""
        groups = (self.groups, self.satisfaction_groups)
        size, end = len(self.data.clicks), len(vector) - sum(group.n for group in groups if group is not None)
        s = vector[size : 2 * size] if self.has_satisfaction else np.zeros(size)
        return CascadeParameters(vector[:size], s, vector[size * (1 + self.has_satisfaction) : end])

    def join(self, a: PairValues, s: PairValues, shared: Shared) -> np.ndarray:
        """Join parameters to one vector, without satisfaction if the family has none."""
        return np.concatenate([a, s, shared] if self.has_satisfaction else [a, shared])

    def m_step(self, parameters: CascadeParameters, tails: ExpectedTails) -> np.ndarray:
        """Return the M-step of EM: successes divided by trials, with expected counts of the hidden ones."""
        data, hidden = self.data, self.expected_choices(parameters, tails)
        a = self.prior.mode(data.clicks + hidden.yes, data.examined + tails.examined + hidden.trials)
        s = self.satisfaction_prior.mode(parameters.satisfaction * tails.inverse, data.followed + data.open_last)
        return self.join(a, s, SHARED_PRIOR.mode(hidden.successes, hidden.chances))


@final
class _LocalLikelihood:
    """Penalised observed likelihood at one point: a `core.newton.LocalModel`."""

    def __init__(self, family: CascadeFamily, vector: np.ndarray, tails: ExpectedTails | None = None) -> None:
        self._vector, self._family, data = vector, family, family.data
        self.parameters = parameters = family.split(vector)
        (a, s, shared), groups, of_satisfaction = parameters, family.groups, family.satisfaction_groups
        log_a, log_not_a = np.log(a), np.log1p(-a)
        means = vector[-groups.n - (0 if of_satisfaction is None else of_satisfaction.n) :] if groups else vector[:0]
        self._penalty = (
            Penalty.of_beta(family.prior, a, log_a, log_not_a)
            if groups is None
            else groups.penalty(a, means[: groups.n])
        )
        if of_satisfaction is not None:
            assert groups is not None
            self._satisfaction_penalty = of_satisfaction.penalty(s, means[groups.n :])
        else:
            log_s = np.log(s) if family.has_satisfaction else s
            self._satisfaction_penalty = Penalty.of_beta(family.satisfaction_prior, s, log_s, np.log1p(-s))
        self.tails = tails or family.tails.expect(
            family.transitions(parameters), family.transition_derivatives(parameters)
        )
        objective = self.tails.log_likelihood + family.certain_log_likelihood(parameters)
        objective += float((data.clicks * log_a + (data.examined - data.clicks) * log_not_a).sum())
        objective += self._penalty.value + SHARED_PRIOR.log_density(shared)
        if family.has_satisfaction:
            objective += float((data.followed * np.log1p(-s)).sum()) + self._satisfaction_penalty.value
        self.objective = objective

    def expected_gain(self) -> float:
        """Return the expected gain of the Newton step, or several times that of all steps after it, if that is larger.

        Steps omit the entries between pairs, so their gains fall by a constant ratio, which is near 1 where the same
        pairs keep co-occurring: what remains after the step is extrapolated from it. With the default tolerance of 0.1,
        about a hundredth of a nat remains.
        """
        gain, last = self._newton.gain, self._family.last_gain
        ratio = min(gain / last, _MAX_RATIO) if last > 0 else 0.5
        self._family.last_gain = gain
        return max(gain, _REMAINING_WEIGHT * gain * ratio / (1 - ratio))

    def candidates(self) -> Iterator[np.ndarray]:
        """Yield the parameters after the Newton step, damped by the success of the last ones, then after the EM step.

        The EM step never decreases the likelihood.
        """
        family, damping = self._family, self._family.damping
        share = damping.share(self.objective)
        newton = (
            self._newton if share == 0 else NewtonStep(self._gradient, self._information.blended(self._complete, share))
        )
        damping.expect(self.objective, newton.gain)
        yield self.moved(newton.step())
        damping.grow()
        yield family.m_step(self.parameters, self.tails)

    def moved(self, step: CascadeParameters, length: float = 1.0) -> np.ndarray:
        """Return the parameter vector after a step."""
        return shift_logits(self._vector, length * self._family.join(*step), MIN_PROBABILITY)

    @cached_property
    def _hidden(self) -> ExpectedChoices:
        """Expected counts of the hidden choices."""
        return self._family.expected_choices(self.parameters, self.tails)

    @cached_property
    def _gradient(self) -> CascadeParameters:
        """Derivatives of the objective by the logits (Fisher's identity): expected successes - p x expected trials."""
        data, tails, hidden, (a, s, shared) = self._family.data, self.tails, self._hidden, self.parameters
        by_shared = hidden.successes + SHARED_PRIOR.yes - shared * (hidden.chances + SHARED_PRIOR.total)
        return CascadeParameters(
            data.clicks + hidden.yes - a * (data.examined + tails.examined + hidden.trials) + self._penalty.slope,
            s * tails.inverse - s * (data.followed + data.open_last) + self._satisfaction_penalty.slope
            if self._family.has_satisfaction
            else np.zeros_like(s),
            np.concatenate([by_shared, self._penalty.mean_slope, self._satisfaction_penalty.mean_slope]),
        )

    @cached_property
    def _information(self) -> ArrowheadInformation:
        """Observed information: that of the complete data minus the variance of the hidden counts (Louis 1982)."""
        family, data, tails, (a, s, shared) = self._family, self._family.data, self.tails, self.parameters
        tail_curvature, hidden = tails.curvature, self._hidden
        assert tail_curvature is not None
        curved, off = family.curvature(self.parameters, tails, tail_curvature), 1 - shared
        information_a = (data.examined + tails.examined) * a * (1 - a) - a**2 * (
            tails.examined - tail_curvature.examined
        )
        information_s = (
            (data.followed + data.open_last) * s * (1 - s) - s * tails.inverse + s**2 * tail_curvature.inverse
        )
        diagonal = shared * (hidden.successes - shared * hidden.chances) + SHARED_PRIOR.information(shared)
        return self._with_means(
            ArrowheadInformation(
                _with_prior(self._penalty.information, information_a + curved.attractiveness),
                _with_prior(self._satisfaction_penalty.information, information_s),
                off[:, None] * (a * tail_curvature.cross + curved.cross_attractiveness),
                off[:, None] * np.broadcast_to(curved.cross_satisfaction, tail_curvature.cross.shape),
                np.diag(diagonal) - off * curved.shared * off[:, None],
            )
        )

    @cached_property
    def _complete(self) -> ArrowheadInformation:
        """Complete-data information, as if nothing were hidden: steps by it are about those of EM."""
        data, tails, (a, s, shared) = self._family.data, self.tails, self.parameters
        hidden, zeros = self._hidden, np.zeros((len(shared), len(a)))
        diagonal = hidden.chances * shared * (1 - shared) + SHARED_PRIOR.information(shared)
        trials = data.examined + tails.examined + hidden.trials
        return self._with_means(
            ArrowheadInformation(
                _with_prior(self._penalty.information, trials * a * (1 - a)),
                _with_prior(self._satisfaction_penalty.information, (data.followed + data.open_last) * s * (1 - s)),
                zeros,
                zeros,
                np.diag(diagonal),
            )
        )

    def _with_means(self, information: ArrowheadInformation) -> ArrowheadInformation:
        """Append the means of groups to the shared parameters."""
        return self._satisfaction_penalty.extended(self._penalty.extended(information), of_satisfaction=True)

    @cached_property
    def _newton(self) -> NewtonStep:
        """Newton step by the observed information, without damping."""
        return NewtonStep(self._gradient, self._information)

    def effective_counts(self, errors: CascadeParameters, step: CascadeParameters) -> CascadeCounts:
        """Return the effective counts of all parameters, after the Newton step."""
        (a, s, shared), of_satisfaction = self.parameters, self._satisfaction_penalty
        with np.errstate(divide="ignore", invalid="ignore"):
            ahead = [np.nan_to_num(move[: len(error)] / error**2) for move, error in zip(step, errors, strict=True)]
        return CascadeCounts(
            effective_counts(a, errors.attractiveness, self._penalty.slope - ahead[0], self._penalty.information),
            effective_counts(s, errors.satisfaction, of_satisfaction.slope - ahead[1], of_satisfaction.information),
            effective_counts(
                shared, errors.shared, SHARED_PRIOR.slope(shared) - ahead[2], SHARED_PRIOR.information(shared)
            ),
        )

    def neutral_maximum(self) -> tuple[_LocalLikelihood, CascadeParameters, InvertedInformation | None]:
        """Return the likelihood near its maximum, with the last step to it and the inverted information."""
        local = self
        for _ in range(_NEUTRAL_STEPS):
            full = local.full_inverse()
            step, gain = local.newton_step(full)
            if abs(gain) < _NEUTRAL_TOLERANCE or (self._family.is_large and full is None):
                break
            shorter = ((s, 0.5**k) for k in range(_MAX_HALVINGS) for s in (step, local.newton_step(None)[0]))
            tried = (self._family._local_likelihood(local.moved(*one)) for one in shorter)
            better = next((moved for moved in tried if moved.objective > local.objective), None)
            if better is None:
                break
            local = better
        return local, step, full

    def with_varying_satisfaction(
        self, step: CascadeParameters, full: InvertedInformation | None
    ) -> tuple[_LocalLikelihood, CascadeParameters, InvertedInformation | None]:
        """Return the neutral maximum with a satisfaction that varies around a mean, which is learned.

        Without satisfaction, it is this one.
        """
        family, s, penalty = copy(self._family), self.parameters.satisfaction, self._satisfaction_penalty
        if not family.has_satisfaction:
            return self, step, full
        errors = 1 / np.sqrt(self._information.satisfaction)
        yes, trials = effective_counts(s, errors, penalty.slope, penalty.information)
        family.satisfaction_groups = groups = RankGroups.of_all(trials, yes)
        # the likelihood may have another maximum where satisfaction and continuation are too low, as estimates of s are
        mean = SHARED_PRIOR.mode(yes.sum(keepdims=True), trials.sum(keepdims=True))
        strength = groups.precision / (mean * (1 - mean))
        s = (yes + strength * mean) / (trials + strength)
        start = np.concatenate([self.parameters.attractiveness, s, self._vector[2 * len(s) :], mean])
        return family._local_likelihood(start).neutral_maximum()

    def full_inverse(self) -> InvertedInformation | None:
        """Invert the information with the entries between pairs; None where the same pairs rarely co-occur."""
        family, information, gradient = self._family, self._information, self._gradient
        vocabulary, kinds = family.data.vocabulary, 1 + family.has_satisfaction
        if not lists_repeat(family.tails.parts, vocabulary):
            return None
        between: np.ndarray | None = None
        for own in family.tails_of_segments(self.parameters):
            pairs = co_occurrences(own.parts, own.transitions, vocabulary.query_offsets)
            if pairs is None:
                return None
            size = len(information.satisfaction)
            by_clicked = np.stack([np.broadcast_to(values, size) for values in own.by_clicked])
            found = pairs.information(by_clicked[:kinds, :-1], vocabulary.query_offsets)
            between = found if between is None else between + found
        assert between is not None
        diagonal = np.stack([information.attractiveness, information.satisfaction])[:kinds, :-1]
        cross = np.stack([information.cross_attractiveness, information.cross_satisfaction], axis=1)[:, :kinds, :-1]
        slopes = np.stack([gradient.attractiveness, gradient.satisfaction])[:kinds, :-1]
        return invert_information(
            diagonal, between, cross, information.shared, vocabulary.query_offsets, slopes, gradient.shared
        )

    def newton_step(self, full: InvertedInformation | None) -> tuple[CascadeParameters, float]:
        """Return the Newton step, limited in size, and its expected gain."""
        if full is None:
            return self._newton.step(), self._newton.gain
        kinds, gradient = len(full.step), self._gradient
        moves, slopes = np.zeros((2, len(gradient.attractiveness))), np.stack(gradient[:2])[:kinds, :-1]
        moves[:kinds, :-1] = np.clip(full.step, -MAX_LOGIT_STEP, MAX_LOGIT_STEP)
        step = CascadeParameters(moves[0], moves[1], np.clip(full.shared_step, -MAX_LOGIT_STEP, MAX_LOGIT_STEP))
        return step, float((slopes * full.step).sum() + (gradient.shared * full.shared_step).sum()) / 2

    def marginal_step(self, step: CascadeParameters, full: InvertedInformation | None) -> CascadeParameters:
        """Extend a step to the maximum of the likelihood with the parameters of documents integrated out.

        Where documents have few clicks each, the joint maximum makes those at low ranks too unattractive, and users too
        persistent. Integrated by Laplace's method, the log-likelihood of the shared parameters and the means of groups
        is that of the profile minus half of ln det D, with D the information of documents: its slope moves the maximum
        (Breslow and Lin 1995). The entries of D between documents matter for DBN, whose satisfaction shares the
        information of a session with the attractiveness of what is below the click.
        """
        between = full if self._family.has_satisfaction else None
        if between is None:
            slope = self._diagonal_slopes()
        else:
            slope = np.array([self._determinant_slope(move, between) for move in np.eye(len(between.shared))])
        inverse = self._information.inverted()[1] if full is None else full.shared
        shift = np.clip(-inverse @ slope / 2, -MAX_LOGIT_STEP, MAX_LOGIT_STEP)
        moved = self._with_documents(shift, between)
        return CascadeParameters(*(a + b for a, b in zip(step, moved, strict=True)))

    def _diagonal_slopes(self) -> Shared:
        """Return the derivatives of ln det D, as if it were diagonal, by the shared parameters and means."""
        groups, n_shared, here = self._family.groups, len(self.parameters.shared), self._information
        assert groups is not None
        moves, of_groups = np.eye(len(here.shared)), slice(n_shared, n_shared + groups.n)
        slope = np.zeros(len(moves))

        def change(move: Shared) -> PairValues:
            """Derivative of each document's part."""
            there = self._family._local_likelihood(
                self.moved(self._with_documents(move, None), _DIFFERENCE)
            )._information
            ratio = there.attractiveness / here.attractiveness * (there.satisfaction / here.satisfaction)
            parts: np.ndarray = np.log(ratio) / _DIFFERENCE
            return parts

        for k in (*range(n_shared), *range(of_groups.stop, len(moves))):
            slope[k] = change(moves[k]).sum()
        # means all at once: one has little effect on documents of other groups
        slope[of_groups] = np.bincount(groups.group, change(moves[of_groups].sum(axis=0)), groups.n)
        return slope

    def _determinant_slope(self, move: Shared, full: InvertedInformation) -> float:
        """Return the derivative of ln det D along a move."""
        there = self._family._local_likelihood(self.moved(self._with_documents(move, full), _DIFFERENCE)).full_inverse()
        assert there is not None
        return (there.log_determinant - full.log_determinant) / _DIFFERENCE

    def _with_documents(self, move: Shared, full: InvertedInformation | None) -> CascadeParameters:
        """Return a move of shared parameters and means of groups, with the documents that follow."""
        information = self._information
        if full is None:
            a = -move @ (information.cross_attractiveness / information.attractiveness)
            return CascadeParameters(a, -move @ (information.cross_satisfaction / information.satisfaction), move)
        follow = np.zeros((2, len(information.attractiveness)))
        follow[:, :-1] = -np.einsum("k,kcp->cp", move, full.follow)
        return CascadeParameters(follow[0], follow[1], move)

    def shared_covariance(self, full: InvertedInformation | None) -> np.ndarray:
        """Return the covariance of the logits of the shared parameters."""
        n = len(self.parameters.shared)
        covariance: np.ndarray = (self._information.inverted()[1] if full is None else full.shared)[:n, :n]
        return covariance

    def errors(self, full: InvertedInformation | None) -> CascadeParameters:
        """Return standard errors of the logits from the observed information."""
        variance, shared = self._information.inverted()
        if full is not None:
            variance[: len(full.variance), :-1], shared = full.variance, full.shared
        error_a, error_s = np.sqrt(variance)
        error_shared = np.sqrt(np.maximum(np.diag(shared), 0))[: len(self.parameters.shared)]
        return CascadeParameters(error_a, error_s, error_shared)


def _with_prior(of_prior: PairValues, information: PairValues) -> PairValues:
    """Add the information of the prior, and keep the sum above 0, as it is at a maximum but not everywhere."""
    of_prior = np.maximum(of_prior, 1e-12)
    total: np.ndarray = np.maximum(information + of_prior, 0.1 * of_prior)
    return total
