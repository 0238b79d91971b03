"""Maximum likelihood of position-based models (PBM, UBM), by Newton steps on a profile likelihood.

The examination hypothesis is click = examined and attractive; clicks are counted by pair and situation, which is the
rank (PBM) or the rank and the last click above it (UBM).

Given examination e, each pair is a problem of its own, concave in its attractiveness a:
    (clicks + yes) ln a + no ln(1 - a) + sum over situations of skips ln(1 - a e)
Views make examination known: a viewed result is a success of its situation and, without a click, a failure of its pair;
a result that was not viewed is a failure of its situation, and says nothing of its pair. Only skips whose view is
unknown are left in the sum. Then examination is identified by itself, and no situation is 1 by convention.

So the likelihood is maximised over examination alone, a few dozen numbers, with every attractiveness at its maximum:
the profile likelihood. Its gradient and curvature come with it: with D the information of a pair, E that of situations
and C the block between them, all by logits, the curvature is E - C' D^-1 C. A few Newton steps replace a hundred or
more EM iterations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from clickshift.core.newton import (
    NewtonResult,
    covariance,
    damped_newton_step,
    halved_steps,
    maximise,
    shift_logits,
)
from clickshift.core.parallel import for_each, n_threads
from clickshift.counts.cells import Cells, rank_of
from clickshift.learners._examination_shrinkage import (
    conditional_covariance,
    shrink_examination,
    shrink_towards_ranks,
)
from clickshift.learners._position_kernels import add_pseudo_counts, attractiveness_variance, solve_pairs
from clickshift.learners._priors import Beta, beta_by_likelihood
from clickshift.models.intervals import EffectiveCounts, effective_counts

_AT_LIMIT = 0.999
"""Examination above which a situation may be examined more than the reference situation."""
_MIN_PROBABILITY = 1e-7
EXAMINATION_PRIOR = Beta(0.1, 0.2)
"""Prior of examination: it only keeps it off 0 and 1. A prior ten times as strong would dominate where few documents
connect the ranks."""
WEAK_PRIOR = Beta(0.001, 0.01)
"""Prior of attractiveness while examination is estimated without a given prior."""
TOLERANCE_FACTOR = 0.1
"""Factor of the tolerance: where few clicks compare ranks, a tenth of a nat is half a standard error of examination."""
_START_TOLERANCE, _START_STEPS = 0.01, 100
"""Tolerance and number of evaluations of the likelihood where the estimate is a start for another learner."""
_RANK_IMPRESSIONS = 50.0
"""Pseudo-impressions at the click-through rate of the rank that a situation receives."""
_RANGES_PER_THREAD = 8
"""Ranges of pairs per thread: pairs of frequent queries cost more, and are neighbours."""


class ExaminationErrors(NamedTuple):
    """Standard errors of the logits of PBM or UBM, and effective successes and trials (`models.intervals`).

    Parameters
    ----------
    attractiveness
        Standard error of attractiveness; the last row is for unseen pairs.
    examination
        Standard error of examination; 0 for the reference situation, NaN for ones that never occurred.
    attractiveness_counts, examination_counts
        Effective counts.
    """

    attractiveness: Float[np.ndarray, " pair_or_unseen"]
    examination: Float[np.ndarray, " situation"]
    attractiveness_counts: EffectiveCounts
    examination_counts: EffectiveCounts

    def with_prior(self, prior: Beta, a: Float[np.ndarray, " pair"]) -> ExaminationErrors:
        """Return the errors of attractiveness that was estimated with another prior."""
        return self._replace(attractiveness=1 / np.sqrt((self.attractiveness_counts[1] + prior.total) * a * (1 - a)))

    def with_unseen(self, prior: Beta) -> ExaminationErrors:
        """Append the row of unseen pairs."""
        error = 1 / np.sqrt(prior.information(np.array([prior.mean])))
        return self._replace(
            attractiveness=np.append(self.attractiveness, error),
            attractiveness_counts=np.append(self.attractiveness_counts, [[0.0], [0.0]], axis=1),
        )


@dataclass(frozen=True, eq=False)
class ExaminationFit:
    """Fitted parameters of PBM or UBM.

    Parameters
    ----------
    attractiveness
        Attractiveness by pair; the last row is for unseen pairs.
    examination
        Examination by situation.
    errors
        Standard errors; None if they were not computed.
    newton
        How the maximisation ended.
    """

    attractiveness: Float[np.ndarray, " pair_or_unseen"]
    examination: Float[np.ndarray, " situation"]
    errors: ExaminationErrors | None
    newton: NewtonResult


@dataclass(frozen=True, eq=False)
class ProfileLikelihood:
    """Profile likelihood at one examination: a `core.newton.LocalModel`.

    Parameters
    ----------
    examination
        Examination by situation.
    free
        Situations whose examination is learned.
    attractiveness
        Attractiveness by pair that maximises the likelihood given examination.
    objective
        Penalised log-likelihood.
    gradient
        Derivatives of the objective by the logits of examination.
    information
        Minus the second derivatives of the objective by the logits of examination.
    """

    examination: Float[np.ndarray, " situation"]
    free: Int[np.ndarray, " free"]
    attractiveness: Float[np.ndarray, " pair"]
    objective: float
    gradient: Float[np.ndarray, " situation"]
    information: Float[np.ndarray, "situation situation"]

    @cached_property
    def _step(self) -> Float[np.ndarray, " free"]:
        """Newton step of the logits of the free situations."""
        return damped_newton_step(self.information[np.ix_(self.free, self.free)], self.gradient[self.free])

    def expected_gain(self) -> float:
        """Return the expected gain of the Newton step."""
        return float(self.gradient[self.free] @ self._step) / 2

    def candidates(self) -> Iterator[Float[np.ndarray, " situation"]]:
        """Yield the examination after the Newton step, then after half of it, and so on."""
        for step in halved_steps(self._step):
            e = self.examination.copy()
            e[self.free] = shift_logits(e[self.free], step, _MIN_PROBABILITY)
            yield e


def fit_examination(
    cells: Cells,
    *,
    prior: Beta | None,
    tolerance: float,
    max_steps: int,
    start: np.ndarray | None = None,
    rng: np.random.Generator | None = None,
    errors: bool = True,
) -> ExaminationFit:
    """Fit examination and attractiveness by penalised maximum likelihood.

    Only the product of attractiveness and examination is identified. By convention the first rank has examination 1,
    unless another situation is examined more, which then has 1; attractiveness is relative to that reference situation.

    Without a given prior, examination is estimated with a very weak prior of attractiveness, since the sum of its
    effects on many documents could dominate where few clicks compare ranks. Rarely shown documents receive
    pseudo-counts at the click rates of documents usually shown at the same rank instead
    (`_position_kernels.add_pseudo_counts`). Given examination, attractiveness is shrunk towards one mean for all pairs,
    so that the estimates do not reproduce the ranker's order. Standard errors of examination use no prior either.

    Parameters
    ----------
    cells
        Impressions and clicks by pair and situation.
    prior
        Prior of attractiveness; None for empirical Bayes.
    tolerance
        Expected gain of a step, in nats, below which the steps end.
    max_steps
        Number of evaluations of the likelihood, at most.
    start
        Attractiveness by pair, then examination by situation, to start from; None starts from click-through rates.
    rng
        Generator of a random start.
    errors
        Whether to compute standard errors. Without them, UBM's examination is not shrunk towards PBM's: off-policy
        evaluation tests whether UBM fits, and shrinkage would look like a misfit.

    Returns
    -------
    ExaminationFit
        The parameters with their standard errors.
    """
    problem = ExaminationProblem(cells, prior or WEAK_PRIOR, pseudo_counts=prior is None)
    e = (
        problem.start(rng)
        if start is None
        else np.clip(start[cells.vocabulary.n_pairs :], _MIN_PROBABILITY, 1 - _MIN_PROBABILITY)
    )
    fitted, newton, reference = fit_with_reference(problem, e, tolerance * TOLERANCE_FACTOR, max_steps)
    e = fitted.examination
    found = None
    if prior is None:
        problem.remove_pseudo_counts()
        free, unshrunk = fitted.free, problem.profile(e, fitted.free)
        if cells.by == "rank" or errors:
            cov = problem.covariance(unshrunk, conditional=True)
            found = problem.errors(unshrunk, cov, reference) if errors else None
            error = cov[np.ix_(free, free)]
            if cells.by == "rank":
                e = shrink_examination(e, problem.alike(e, reference), free, error)
            else:  # rates by the last click mix users, and are no guide to examination: that of PBM is
                curve = problem.examination_by_rank(unshrunk, reference, tolerance=tolerance, max_steps=max_steps)
                e = shrink_towards_ranks(e, curve, free, error)
        prior = problem.prior = beta_by_likelihood(problem.expected_examinations(e), problem.pair_clicks)
        fitted = replace(fitted, attractiveness=problem.attractiveness(e))
        found = None if found is None else found.with_prior(prior, fitted.attractiveness)
    elif errors:
        found = problem.errors(fitted, problem.covariance(fitted), reference)
    return ExaminationFit(
        np.append(fitted.attractiveness, prior.mean),
        problem.fill_unobserved(e),
        None if found is None else found.with_unseen(prior),
        newton,
    )


def observed_views(cells: Cells) -> tuple[Float[np.ndarray, " situation"], Float[np.ndarray, " situation"]]:
    """Return how many results were viewed in each situation, and of how many that is known.

    Parameters
    ----------
    cells
        Counts of a log with views.
    """
    assert cells.views is not None
    clicks, skips, unviewed = (np.bincount(cells.situation, counts, cells.n_situations) for counts in cells.views[:3])
    return clicks + skips, clicks + skips + unviewed


def maximum_likelihood_examination(cells: Cells) -> Float[np.ndarray, " situation"]:
    """Return examination by situation at maximum likelihood, without standard errors: 1 in the reference situation.

    Parameters
    ----------
    cells
        Impressions and clicks by pair and situation.

    Returns
    -------
    array
        Examination by situation.
    """
    problem = ExaminationProblem(cells, WEAK_PRIOR, pseudo_counts=True)
    fitted, _, _ = fit_with_reference(problem, problem.start(None), _START_TOLERANCE, _START_STEPS)
    return problem.fill_unobserved(fitted.examination)


def at_least(
    cov: Float[np.ndarray, "free free"], least: Float[np.ndarray, "free free"]
) -> Float[np.ndarray, "free free"]:
    """Return a covariance with variances that are not below those of another one, and the same correlations."""
    scale = np.sqrt(np.maximum(np.diag(least) / np.maximum(np.diag(cov), 1e-12), 1.0))
    scaled: np.ndarray = cov * scale * scale[:, None]
    return scaled


def fit_with_reference(
    problem: ExaminationProblem, start: Float[np.ndarray, " situation"], tolerance: float, max_steps: int
) -> tuple[ProfileLikelihood, NewtonResult, int | None]:
    """Maximise the likelihood with the first situation as the reference, or with another that is examined more.

    There is no reference where examination was observed.
    """
    if problem.cells.views is not None:
        return *problem.maximise(start, None, tolerance=tolerance, max_steps=max_steps), None
    e, reference, tried = start, 0, {0}
    while True:
        fitted, newton = problem.maximise(e, reference, tolerance=tolerance, max_steps=max_steps)
        e = fitted.examination
        candidate = problem.most_examined(e, other_than=reference)
        if e[candidate] < _AT_LIMIT or candidate in tried or len(tried) > 3:
            return fitted, newton, reference
        e = e.copy()
        e[reference] = _AT_LIMIT
        reference = candidate  # it would be examined more than the situation that was fixed at 1
        tried.add(reference)


class ExaminationProblem:
    """Counts of one log, and its profile likelihood.

    Only skips whose view is unknown have hidden causes: of clicks, and of known views, the totals by pair and by
    situation suffice.
    """

    def __init__(
        self, cells: Cells, prior: Beta, *, pseudo_counts: bool, relative: Float[np.ndarray, " situation"] | None = None
    ) -> None:
        self.cells, self.prior, self.offsets = cells, prior, cells.offsets
        _, self.pair_clicks = cells.by_pair()
        self.impressions, self.clicks = cells.by_situation()
        self.situation = cells.situation.astype(np.int32, copy=False)
        self._attractiveness = np.full(cells.vocabulary.n_pairs, 0.5)
        # viewed skips by pair and by situation, and results by situation that were not viewed
        self.rejected: np.ndarray = np.zeros(cells.vocabulary.n_pairs)
        self.viewed: np.ndarray = np.zeros(1)
        self.unviewed: np.ndarray = np.zeros(1)
        self.unknown = cells  # the part of the counts whose views are unknown
        if (views := cells.views) is not None:
            self.rejected = np.bincount(cells.pair, views.skips, len(self.rejected))
            self.viewed, self.unviewed = (
                np.bincount(cells.situation, counts, cells.n_situations) for counts in (views.skips, views.unviewed)
            )
            known = views.clicks + views.skips + views.unviewed
            self.unknown = replace(
                cells,
                impressions=np.maximum(cells.impressions - known, 0.0),
                clicks=np.maximum(cells.clicks - views.clicks, 0.0),
                views=None,
            )
        self.skips = self.unknown.impressions - self.unknown.clicks
        self._observed_clicks = self.pair_clicks, self.clicks
        if pseudo_counts and cells.views is None:  # those of a group would be too alike for what views say of a pair
            by_pair, by_situation = add_pseudo_counts(cells, self.skips, relative)
            self.pair_clicks, self.clicks = self.pair_clicks + by_pair, self.clicks + by_situation

    def remove_pseudo_counts(self) -> None:
        """Restore the observed counts."""
        self.pair_clicks, self.clicks = self._observed_clicks
        np.subtract(self.unknown.impressions, self.unknown.clicks, out=self.skips)

    def start(self, rng: np.random.Generator | None) -> Float[np.ndarray, " situation"]:
        """Return examination proportional to the click-through rates of situations, or a random start."""
        if rng is not None:
            return rng.uniform(0.1, 0.9, self.cells.n_situations)
        rate = (self.clicks + 1) / (self.impressions + 2)
        start: np.ndarray = np.clip(0.95 * rate / rate[self._frequent()].max(), 0.01, 0.95)
        if self.cells.views is None:
            return start
        viewed, known = observed_views(self.cells)
        observed: np.ndarray = np.where(known > 0, (viewed + 0.5) / (known + 1), start)
        return observed

    def maximise(
        self,
        start: Float[np.ndarray, " situation"],
        reference: int | None,
        *,
        tolerance: float,
        max_steps: int,
        last_step: bool = True,
    ) -> tuple[ProfileLikelihood, NewtonResult]:
        """Maximise the profile likelihood, with the reference fixed at 1 and situations that never occurred at 1/2."""
        e, occurred = np.where(self.impressions > 0, start, 0.5), self.impressions > 0
        if reference is not None:
            e[reference], occurred[reference] = 1.0, False
        free = np.flatnonzero(occurred)
        self._attractiveness = np.clip(
            self.prior.mode(self.pair_clicks, self.expected_examinations(e)), _MIN_PROBABILITY, 1 - _MIN_PROBABILITY
        )
        return maximise(
            lambda point: self.profile(point, free), e, tolerance=tolerance, max_steps=max_steps, last_step=last_step
        )

    def profile(self, e: Float[np.ndarray, " situation"], free: Int[np.ndarray, " free"]) -> ProfileLikelihood:
        """Compute the profile likelihood with its gradient and curvature.

        The curvature of a nearby point would do where ranks are well connected. Where they hardly are, it has another
        scale along the directions that the data hardly determine, and steps by it make no progress.
        """
        objective, gradient, curvature = self.skips_by_logs(e)
        successes = self.clicks + self.viewed + EXAMINATION_PRIOR.yes
        failures = self.unviewed + (EXAMINATION_PRIOR.total - EXAMINATION_PRIOR.yes)
        e_no = 1 - e  # the derivative of ln e by the logit of e
        information = curvature * e_no * e_no[:, None]
        information += np.diag((successes + failures + gradient) * e * e_no)
        with np.errstate(divide="ignore", invalid="ignore"):
            penalty = np.where(e < 1, successes * np.log(e) + failures * np.log1p(-e), 0.0).sum()
        by_logits = gradient * e_no + successes * e_no - failures * e
        return ProfileLikelihood(e, free, self._attractiveness, float(objective + penalty), by_logits, information)

    def skips_by_logs(
        self, e: Float[np.ndarray, " situation"]
    ) -> tuple[float, Float[np.ndarray, " situation"], Float[np.ndarray, "situation situation"]]:
        """Return the log-likelihood of skips and of pairs, its gradient by ln e and its negative curvature.

        The attractiveness of all pairs is at its maximum given e.
        """
        n = len(e)
        objective, gradient, matrix = self._solve_pairs(e, np.zeros((self._threads(), n, n)))
        curvature = matrix.sum(axis=0)
        return float(objective.sum()), gradient.sum(axis=0), curvature + np.triu(curvature, 1).T

    def attractiveness(self, e: Float[np.ndarray, " situation"]) -> Float[np.ndarray, " pair"]:
        """Return the attractiveness that maximises the likelihood given examination."""
        self._solve_pairs(e, np.empty((self._threads(), 0, 0)))
        return self._attractiveness

    def _solve_pairs(
        self, e: Float[np.ndarray, " situation"], matrix: Float[np.ndarray, "thread n n"]
    ) -> tuple[Float[np.ndarray, " range"], Float[np.ndarray, "range situation"], Float[np.ndarray, "thread n n"]]:
        """Find the attractiveness of all pairs; return objectives, gradients and, in `matrix`, curvatures."""
        ranges, threads, a = self._ranges(), len(matrix), self._attractiveness.copy()
        yes, no = self.prior.yes, self.prior.total - self.prior.yes
        gradient, objective = np.zeros((len(ranges), len(e))), np.zeros(len(ranges))

        def work(thread: int) -> None:
            for k in range(thread, len(ranges), threads):
                objective[k] = solve_pairs(
                    *ranges[k], self.offsets, self.situation, self.skips, self.pair_clicks, self.rejected, yes, no, e,
                    a, gradient[k], matrix[thread],
                )  # fmt: skip

        for_each(work, threads)
        self._attractiveness = a
        return objective, gradient, matrix

    def covariance(
        self, fitted: ProfileLikelihood, *, conditional: bool = False
    ) -> Float[np.ndarray, "situation situation"]:
        """Return the covariance of the logits of examination, (E - C' D^-1 C)^-1; 0 for situations that are not free.

        Variances are not below those of the conditional likelihood if `conditional`.
        """
        e, free, n = fitted.examination, fitted.free, len(fitted.examination)
        cov = np.zeros((n, n))
        if not len(free):
            return cov
        # without the prior of examination, which only keeps it off 0 and 1
        observed = fitted.information - np.diag(EXAMINATION_PRIOR.total * e * (1 - e))
        found = covariance(observed[np.ix_(free, free)])
        if conditional:
            viewed, seen = 0.0, None
            if (views := self.cells.views) is not None:
                viewed = observed_views(self.cells)[1] * e * (1 - e)
                clicked = np.bincount(self.cells.pair, views.clicks, len(self.rejected))
                seen = clicked + self.rejected, clicked
            found = at_least(found, conditional_covariance(self.unknown, e, free, viewed, seen))
        cov[np.ix_(free, free)] = found
        return cov

    def errors(
        self, fitted: ProfileLikelihood, cov: Float[np.ndarray, "situation situation"], reference: int | None
    ) -> ExaminationErrors:
        """Return standard errors of the logits from the full observed information, an arrowhead matrix.

        With C, D and E as in the module's docstring, var_a = D^-1 + D^-1 C cov_e C' D^-1. The reference situation is 1
        by convention and has error 0.
        """
        e, free, e_no = fitted.examination, fitted.free, 1 - fitted.examination
        errors = np.full(len(e), np.nan)
        errors[free] = np.sqrt(np.maximum(np.diag(cov)[free], 0))
        if reference is not None:
            errors[reference] = 0.0
        of_pairs = self.attractiveness_errors(e, fitted.attractiveness, cov * e_no * e_no[:, None])
        return ExaminationErrors(of_pairs[0], errors, of_pairs[1], effective_counts(e, errors))

    def attractiveness_errors(
        self,
        e: Float[np.ndarray, " situation"],
        a: Float[np.ndarray, " pair"],
        cov: Float[np.ndarray, "situation situation"],
    ) -> tuple[Float[np.ndarray, " pair"], EffectiveCounts]:
        """Return standard errors of the logits of attractiveness and effective counts, from the covariance of ln e."""
        variance, judged, ranges = np.empty(len(a)), self.pair_clicks + self.rejected, self._ranges()

        def work(k: int) -> None:
            attractiveness_variance(
                *ranges[k], self.offsets, self.situation, self.skips, judged, self.prior.total, e, a, cov, variance
            )

        for_each(work, len(ranges))
        error = np.sqrt(variance)
        return error, effective_counts(a, error, self.prior.slope(a), self.prior.information(a))

    def alike(self, e: Float[np.ndarray, " situation"], reference: int | None) -> Float[np.ndarray, " situation"]:
        """Return examination as if documents of all ranks were alike: click-through rates relative to the reference.

        Without one, they are relative to the most examined situation. Rates of rare situations are shrunk towards that
        of their rank.
        """
        at = self.most_examined(e) if reference is None else reference
        rank = self.cells.rank_of_situation()
        clicks, impressions = (np.bincount(rank, counts)[rank] for counts in (self.clicks, self.impressions))
        of_rank = (clicks + 0.5) / (impressions + 1)
        rate = (self.clicks + _RANK_IMPRESSIONS * of_rank) / (self.impressions + _RANK_IMPRESSIONS)
        alike: np.ndarray = np.minimum(rate / rate[at], 1.0) * e[at]
        return alike

    def examination_by_rank(
        self, fitted: ProfileLikelihood, reference: int | None, *, tolerance: float, max_steps: int
    ) -> Float[np.ndarray, " situation"]:
        """Return the examination of each situation's rank in a PBM of the same log, which starts from the means.

        Only products with attractiveness are identified: it is relative to the same reference situation, so that UBM
        becomes this PBM where all deviations are shrunk to nothing.
        """
        rank, weight = rank_of(self.cells.by, self.cells.n_ranks), np.maximum(self.impressions, 1e-9)
        means = np.bincount(rank, weight * fitted.examination) / np.bincount(rank, weight)
        by_rank = fit_examination(
            self.cells.rolled_up("rank"),
            prior=None,
            tolerance=tolerance,
            max_steps=max_steps,
            start=np.append(fitted.attractiveness, means),
            errors=False,
        )
        curve: np.ndarray = by_rank.examination[rank]
        return curve if reference is None else np.minimum(curve / curve[reference], 1.0)

    def expected_examinations(self, e: Float[np.ndarray, " situation"]) -> Float[np.ndarray, " pair"]:
        """Return the prior expectation of each pair's examinations, but not less than its clicks."""
        examinations, certain = self.unknown.weighted_impressions(e), self.pair_clicks + self.rejected
        if (views := self.cells.views) is not None:
            examinations += np.bincount(self.cells.pair, views.clicks + views.skips, len(examinations))
        at_least: np.ndarray = np.maximum(examinations, certain)
        return at_least

    def most_examined(self, e: Float[np.ndarray, " situation"], *, other_than: int | None = None) -> int:
        """Return the most examined situation among the frequent ones."""
        e = np.where(self._frequent(), e, -1.0)
        if other_than is not None:
            e[other_than] = -1.0
        return int(np.argmax(e))

    def fill_unobserved(self, e: Float[np.ndarray, " situation"]) -> Float[np.ndarray, " situation"]:
        """Give situations that never occurred the mean examination of their rank."""
        rank, observed = self.cells.rank_of_situation(), self.impressions > 0
        total, weight = (
            np.bincount(rank, np.where(observed, e * self.impressions, 0)),
            np.bincount(rank, self.impressions),
        )
        overall = np.average(e[observed], weights=self.impressions[observed])
        by_rank = np.where(weight > 0, total / np.maximum(weight, 1), overall)
        filled: np.ndarray = np.where(observed, e, by_rank[rank])
        return filled

    def _frequent(self) -> np.ndarray:
        """Return which situations are frequent enough for their examination to be reliable."""
        frequent: np.ndarray = self.impressions >= self.impressions.max() / 50
        return frequent

    def _ranges(self) -> list[tuple[int, int]]:
        """Return ranges of pairs, several per thread."""
        threads = self._threads()
        return self.cells.ranges(threads * _RANGES_PER_THREAD if threads > 1 else 1)

    def _threads(self) -> int:
        """Return the number of threads that share the cells."""
        return n_threads(len(self.cells.pair))
