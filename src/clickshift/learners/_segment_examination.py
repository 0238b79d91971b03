"""Maximum likelihood of PBM and UBM with examination by segment and shared attractiveness.

The pair (segment, situation) is the situation of `_position_models`, so the same Newton steps fit all curves jointly.
One situation of one segment has examination 1 by convention, and the level of every other segment is free: a segment
that clicks less on the same documents examines less. Views make examination observed, as without segments: then no
situation is 1 by convention. Then the curves are pooled (`_segment_pooling`).

What all values share, the level of low ranks that few documents connect with the first, is a factor. So curves are
pooled as logarithms, whose contrasts between segments do not depend on it. As logits, the larger of two estimates would
have the larger error, and their weighted mean would lie below both (Peelle's pertinent puzzle). The fit has no limit
of 1, which would move the curves down (`_examination_ratios`): estimates are the likeliest ones below it after pooling,
and intervals are cut at it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from clickshift.core.newton import NewtonResult
from clickshift.counts.cells import Cells, count_situations, rank_of
from clickshift.counts.segment_numbers import SegmentNumbers
from clickshift.errors import DataError
from clickshift.learners._examination_ratios import LogRatios, RatioProblem
from clickshift.learners._examination_shrinkage import learned_variance
from clickshift.learners._position_kernels import clicks_per_impression
from clickshift.learners._position_models import (
    TOLERANCE_FACTOR,
    WEAK_PRIOR,
    ExaminationErrors,
    ExaminationFit,
    ExaminationProblem,
    fit_examination,
    fit_with_reference,
)
from clickshift.learners._priors import Beta, beta_by_likelihood
from clickshift.learners._segment_pooling import CurvePrior, Pooled, SegmentEstimates
from clickshift.models.intervals import EffectiveCounts, counts_with_bounds

_DEVIATION = 1.0
"""Standard deviation of the common curve around click-through rates, as without segments."""
_LEAST, _MOST = 0.05, 0.95
"""Range of the examination that the common curve is shrunk towards."""
_QUANTILE = 1.96
"""Standard errors between an estimate and the bounds of its 95 % interval."""
_LEVEL = 0.05
"""Level of the lower bounds by which the most examined segment is found."""
_HIGHEST = 1 - 1e-7
_START, _HIGHEST_START = (0.01, 2.0), 0.98
"""Range of the ratios of examination to start from, and the highest examination of the common curve to start from."""
_CURVE_TOLERANCE, _CURVE_STEPS = 0.1, 100
"""Tolerance, and number of evaluations of the likelihood, of the PBM that UBM's common curve is shrunk towards."""
_MAX_VALUES = 1200
"""Values of all curves, at most: their joint covariance is inverted about twenty times."""


@dataclass(frozen=True, eq=False)
class SegmentCurves:
    """Curves of a parameter by segment, and the one of a session whose segment is not known.

    Parameters
    ----------
    curves
        Values by segment and entry.
    errors, counts
        Standard errors of the logits, and effective counts, of `curves.ravel()`.
    pooled
        Mean of the segments' curves, weighted by how often each was observed.
    pooled_errors, pooled_counts
        Standard errors of the logits, and effective counts, of `pooled`.
    """

    curves: Float[np.ndarray, "segment entry"]
    errors: Float[np.ndarray, " value"]
    counts: EffectiveCounts
    pooled: Float[np.ndarray, " entry"]
    pooled_errors: Float[np.ndarray, " entry"]
    pooled_counts: EffectiveCounts


def check_number_of_curves(segments: SegmentNumbers, entries: int, *, model: str) -> None:
    """Raise if the curves of a segment have more values than are fitted jointly.

    Parameters
    ----------
    segments
        The segment.
    entries
        Number of values of a curve, or what else a label costs.
    model
        Name of the model.

    Raises
    ------
    DataError
        "too-many-segments".
    """
    most = max(_MAX_VALUES // entries, 2)
    if segments.n > most:
        raise DataError(
            f"{segments.name} must have at most {most:,} labels to fit {model} by them: got "
            f"{len(segments.labels):,}. Group rare labels first{'' if model == 'PBM' else ', or fit PBM'}.",
            code="too-many-segments",
            name=segments.name,
            count=len(segments.labels),
            limit=most,
        )


def fit_examination_by_segment(
    cells: Cells, by_rank: Cells, *, prior: Beta | None, tolerance: float, max_steps: int
) -> tuple[ExaminationFit, SegmentCurves]:
    """Fit examination by segment, partially pooled, and attractiveness, which all segments share.

    Parameters
    ----------
    cells
        Impressions and clicks by pair and situation, counted by segment.
    by_rank
        Impressions and clicks of all segments together by pair and rank.
    prior
        Prior of attractiveness; None for empirical Bayes.
    tolerance
        Expected gain of a step, in nats, below which the steps end.
    max_steps
        Number of evaluations of the likelihood, at most.

    Returns
    -------
    tuple
        The fit of all curves, and the curves by segment.
    """
    fit = _fit_ratios if cells.views is None else _fit_views
    problem, newton, ratios, of_pairs, reference = fit(
        cells, prior, tolerance=tolerance * TOLERANCE_FACTOR, max_steps=max_steps
    )
    occurred = np.flatnonzero(problem.impressions > 0)
    observed = occurred if reference is None else np.union1d(occurred, [reference])
    estimates = SegmentEstimates(
        ratios.mean[observed], ratios.covariance[np.ix_(observed, observed)], _entries(cells, observed)
    )
    towards = _curve_prior(problem, by_rank, estimates, np.exp(ratios.mean), reference)
    shrunk, likelihood = estimates.pooled(towards), estimates.pooled()
    mean = np.exp(LogRatios(*shrunk).below_one())
    if reference is not None:
        mean[observed == reference] = 1.0
    curves = _SegmentMeans(problem, observed, reference).curves(mean, likelihood)

    e = curves.curves.ravel()
    if prior is None:
        prior = problem.prior = beta_by_likelihood(problem.expected_examinations(e), problem.pair_clicks)
    attractiveness = problem.attractiveness(e)
    errors = ExaminationErrors(of_pairs[0], curves.errors, of_pairs[1], curves.counts).with_prior(prior, attractiveness)
    return ExaminationFit(np.append(attractiveness, prior.mean), e, errors.with_unseen(prior), newton), curves


class _Found(NamedTuple):
    """Maximum-likelihood estimates of all curves.

    Parameters
    ----------
    problem
        Counts of the log.
    newton
        How the maximisation ended.
    ratios
        Logarithms of examination by situation, with their covariance.
    of_pairs
        Standard errors of the logits of attractiveness, and effective counts.
    reference
        The situation whose examination is 1 by convention; None where examination was observed.
    """

    problem: ExaminationProblem
    newton: NewtonResult
    ratios: LogRatios
    of_pairs: tuple[Float[np.ndarray, " pair"], EffectiveCounts]
    reference: int | None


def _fit_ratios(cells: Cells, prior: Beta | None, *, tolerance: float, max_steps: int) -> _Found:
    """Fit examination relative to a reference situation, without the limit of 1."""
    rate = clicks_per_impression(cells)
    problem = RatioProblem(cells, prior or WEAK_PRIOR, pseudo_counts=prior is None, relative=rate)
    reference = _first_reference(problem, rate)
    start = np.clip(rate / rate[reference], *_START)  # these rates are nearly the estimates
    fitted, newton = problem.maximise(start, reference, tolerance=tolerance, max_steps=max_steps, last_step=False)
    near = fitted.expected_gain() < tolerance
    problem.remove_pseudo_counts()
    fitted = problem.profile(next(fitted.candidates()) if near else fitted.examination, fitted.free)
    ratios, a = problem.ratios(fitted, conditional=prior is None), fitted.attractiveness
    better = ratios.better_reference(reference, problem.most_examined(fitted.examination))
    if better != reference:
        reference, ratios = better, ratios.relative_to(better)
        a = problem.attractiveness(np.exp(ratios.mean))
    of_pairs = problem.attractiveness_errors(np.exp(ratios.mean), a, ratios.covariance)
    return _Found(problem, newton, ratios, of_pairs, reference)


def _fit_views(cells: Cells, prior: Beta | None, *, tolerance: float, max_steps: int) -> _Found:
    """Fit examination whose scale was observed; certain examination is kept off 1, where logits are infinite."""
    problem = ExaminationProblem(cells, prior or WEAK_PRIOR, pseudo_counts=prior is None)
    fitted, newton, _ = fit_with_reference(problem, problem.start(None), tolerance, max_steps)
    e = np.minimum(fitted.examination, 1 - 0.5 / (problem.impressions + 1))
    fitted = problem.profile(e, fitted.free)
    cov = problem.covariance(fitted, conditional=prior is None) * (1 - e) * (1 - e)[:, None]
    of_pairs = problem.attractiveness_errors(e, fitted.attractiveness, cov)
    return _Found(problem, newton, LogRatios(np.log(e), cov), of_pairs, None)


def _first_reference(problem: RatioProblem, rate: Float[np.ndarray, " situation"]) -> int:
    """Return the situation of the first rank that is examined most: of one rank, segments show the same documents.

    Rates of low ranks may be far too high where only neighbours of a list are swapped, and the limit of 1 for all other
    situations would then keep the fit from the maximum. Of many segments, the highest rate is that of a small one by
    chance: lower bounds are compared, which all hold at a level.
    """
    from scipy.special import ndtri

    n = problem.cells.n_situations // problem.cells.n_segments
    starts = np.arange(problem.cells.n_segments) * n
    starts = starts[problem.impressions[starts] > 0]
    if not len(starts):
        return problem.most_examined(rate)
    errors = 1 / np.sqrt(problem.clicks[starts] + 1)
    return int(starts[np.argmax(np.log(rate[starts]) - ndtri(1 - _LEVEL / len(starts)) * errors)])


def _curve_prior(
    problem: ExaminationProblem,
    by_rank: Cells,
    estimates: SegmentEstimates,
    examination: Float[np.ndarray, " situation"],
    reference: int | None,
) -> CurvePrior:
    """Return the prior of the common curve: what one curve for all segments would be shrunk towards.

    It is relative to the reference situation or, where examination was observed, to the most examined entry.
    """
    cells = problem.cells
    n = count_situations(cells.by, cells.n_ranks)
    occurred = np.flatnonzero(problem.impressions > 0)
    entries = np.unique((occurred if reference is None else np.append(occurred, reference)) % n)
    common, cov = estimates.common()
    if cells.by == "rank":
        impressions, clicks = by_rank.by_situation()
        rate = (clicks + 0.5) / (impressions + 1)
        top = int(np.argmax(common))
        at, level = (entries[top], np.exp(common[top])) if reference is None else (reference % n, 1.0)
        alike = np.clip(np.minimum(rate / rate[at], 1.0) * level, _LEAST, _MOST)[entries]
        return CurvePrior(np.log(alike), _DEVIATION**2)
    rank, weight = cells.rank_of_situation(), np.maximum(problem.impressions, 1e-9)
    means = np.bincount(rank, weight * examination) / np.bincount(rank, weight)
    fitted = fit_examination(
        by_rank,
        prior=None,
        tolerance=_CURVE_TOLERANCE,
        max_steps=_CURVE_STEPS,
        start=np.append(np.zeros(cells.vocabulary.n_pairs), np.minimum(means / means[0], _HIGHEST_START)),
        errors=False,
    )
    curve = fitted.examination[rank_of(cells.by, cells.n_ranks)]
    relative = curve if reference is None else curve / curve[reference % n]
    towards = np.log(np.minimum(relative, 1.0))[entries]
    return CurvePrior(towards, learned_variance(common - towards, cov))


@dataclass(frozen=True, eq=False)
class _SegmentMeans:
    """Curves of all segments from the values of the observed situations.

    Parameters
    ----------
    problem
        Counts of the log.
    observed
        Situations that occurred.
    reference
        The situation whose examination is 1 by convention; None where examination was observed.
    """

    problem: ExaminationProblem
    observed: Int[np.ndarray, " value"]
    reference: int | None

    def curves(self, mean: Float[np.ndarray, " value"], likelihood: Pooled) -> SegmentCurves:
        """Return the curves with estimates `mean`, and intervals without the prior of the common curve."""
        cells, impressions = self.problem.cells, self.problem.impressions
        n = count_situations(cells.by, cells.n_ranks)
        entry, weight = self.observed % n, impressions[self.observed]
        share = weight * (entry == np.arange(n)[:, None])  # (entry, value)
        total = share.sum(axis=1, keepdims=True)
        share = np.divide(share, total, out=np.zeros_like(share), where=total > 0)
        pooled = _filled(share @ mean, total[:, 0] > 0, cells)
        e = np.tile(pooled, cells.n_segments)
        e[self.observed] = mean
        center = np.exp(likelihood.mean)
        cov = likelihood.covariance * center * center[:, None]
        errors, counts = np.full(len(e), np.nan), np.full((2, len(e)), np.nan)
        errors[self.observed], counts[:, self.observed] = _error_and_counts(
            mean, likelihood.mean, np.diag(likelihood.covariance)
        )
        if self.reference is not None:
            errors[self.reference] = 0.0
        own, variance = share @ center, np.einsum("ev,vw,ew->e", share, cov, share)
        occurs = total[:, 0] > 0
        pooled_errors, pooled_counts = np.full(n, np.nan), np.full((2, n), np.nan)
        pooled_errors[occurs], pooled_counts[:, occurs] = _error_and_counts(
            pooled[occurs], np.log(own[occurs]), variance[occurs] / own[occurs] ** 2
        )
        return SegmentCurves(e.reshape(cells.n_segments, n), errors, counts, pooled, pooled_errors, pooled_counts)


def _filled(curve: Float[np.ndarray, " entry"], observed: np.ndarray, cells: Cells) -> Float[np.ndarray, " entry"]:
    """Give situations that never occurred the mean of their rank, or of all."""
    rank = rank_of(cells.by, cells.n_ranks)
    total, number = np.bincount(rank, np.where(observed, curve, 0.0)), np.bincount(rank, observed)
    by_rank = np.where(number > 0, total / np.maximum(number, 1), curve[observed].mean())
    return np.where(observed, curve, by_rank[rank])


def _entries(cells: Cells, observed: Int[np.ndarray, " value"]) -> Int[np.ndarray, " value"]:
    """Number the situations of observed values consecutively, whichever segment they are of."""
    entries: np.ndarray = np.unique(observed % count_situations(cells.by, cells.n_ranks), return_inverse=True)[1]
    return entries


def _error_and_counts(
    estimate: Float[np.ndarray, " value"], mean: Float[np.ndarray, " value"], variance: Float[np.ndarray, " value"]
) -> tuple[Float[np.ndarray, " value"], EffectiveCounts]:
    """Return the standard errors of the logits of estimates, and effective counts, from normal logarithms.

    The level of low ranks, which all of a curve share, is a factor: intervals are those of logarithms, cut at 1.
    """
    sd = np.sqrt(np.maximum(variance, 0))
    errors = sd / (1 - np.minimum(estimate, _HIGHEST))
    return errors, counts_with_bounds(*(np.exp(np.minimum(mean + z * sd, 0.0)) for z in (-_QUANTILE, _QUANTILE)))
