"""Maximum likelihood of PBM and UBM with examination by segment and shared attractiveness.

The pair (segment, situation) is the situation of `_position_models`, so the same Newton steps fit all curves jointly.
One situation of one segment has examination 1 by convention, and the level of every other segment is free: a segment
that clicks less on the same documents examines less. Views make examination observed, as without segments: then no
situation is 1 by convention. Then the curves are pooled (`_segment_pooling`).

What all values share, the level of low ranks that few documents connect with the first, is a factor. So curves are
pooled as logarithms, whose contrasts between segments do not depend on it. As logits, the larger of two estimates would
have the larger error, and their weighted mean would lie below both (Peelle's pertinent puzzle). The covariance is found
at 0.9 times examination: several segments may examine the first rank nearly always, where a logit is infinite. Only the
product with attractiveness is identified.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from clickshift.counts.cells import Cells, count_situations, rank_of
from clickshift.counts.segment_numbers import SegmentNumbers
from clickshift.errors import DataError
from clickshift.learners._examination_shrinkage import learned_variance
from clickshift.learners._position_kernels import clicks_per_impression
from clickshift.learners._position_models import (
    TOLERANCE_FACTOR,
    WEAK_PRIOR,
    ExaminationFit,
    ExaminationProblem,
    fit_examination,
    fit_with_reference,
)
from clickshift.learners._priors import Beta, beta_by_likelihood
from clickshift.learners._segment_pooling import CurvePrior, Pooled, SegmentEstimates
from clickshift.models.intervals import EffectiveCounts, effective_counts

_SCALE = 0.9
"""Factor of examination in the logits whose covariance is computed."""
_DEVIATION = 1.0
"""Standard deviation of the common curve around click-through rates, as without segments."""
_LEAST, _MOST = 0.05, 0.95
"""Range of the examination that the common curve is shrunk towards."""
_TOUCHING = 1.96
"""Standard errors below 1 from which on an interval ends at 1."""
_NO_FAILURE = 2.512
"""The lower bound after n successes is 1 - 2.512 / n, for the Jeffreys interval with n not small."""
_HIGHEST = 1 - 1e-7
_HIGHEST_START = 0.98
"""Largest examination to start from: that of the first rank may be nearly 1 in several segments."""
_CURVE_TOLERANCE, _CURVE_STEPS = 0.1, 100
"""Tolerance, and number of evaluations of the likelihood, of the PBM that UBM's common curve is shrunk towards."""
_LEAST_GAIN = 1.92
"""Log-likelihood that another reference situation must gain (the 95 % quantile of a likelihood ratio)."""
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
    rate = clicks_per_impression(cells)
    problem = ExaminationProblem(cells, prior or WEAK_PRIOR, pseudo_counts=prior is None, relative=rate)
    first = _first_reference(problem, rate)
    start = np.clip(rate / rate[first], 0.01, _HIGHEST_START)  # these rates are nearly the estimates
    if cells.views is not None:
        start = problem.start(None)
    fitted, newton, reference = fit_with_reference(
        problem, start, tolerance * TOLERANCE_FACTOR, max_steps, reference=first, least_gain=_LEAST_GAIN
    )
    free = fitted.free
    if prior is None:
        problem.remove_pseudo_counts()
    e, scale = np.minimum(fitted.examination, 1.0), _SCALE
    if reference is None:  # the scale was observed: logits of examination itself, but not of certain examination
        e, scale = np.minimum(e, 1 - 0.5 / (problem.impressions + 1)), 1.0
    scaled = problem.profile(scale * e, free)
    cov = problem.covariance(scaled, conditional=prior is None)
    at_maximum = replace(fitted, examination=e, attractiveness=problem.attractiveness(e))
    errors = problem.errors(at_maximum, _at_full_scale(cov, e, scale), reference)

    observed = free if reference is None else np.sort(np.append(free, reference))
    of_logs = _of_logs(cov, e, scale)[np.ix_(observed, observed)]
    estimates = SegmentEstimates(np.log(e[observed]), of_logs, _entries(cells, observed))
    shrunk, likelihood = estimates.pooled(_curve_prior(problem, by_rank, estimates, reference)), estimates.pooled()
    mean = np.minimum(np.exp(shrunk.mean), 1.0)
    if reference is not None:
        mean[observed == reference] = 1.0
    curves = _SegmentMeans(problem, observed, reference).curves(mean, likelihood)

    e = curves.curves.ravel()
    if prior is None:
        prior = problem.prior = beta_by_likelihood(problem.expected_examinations(e), problem.pair_clicks)
    attractiveness = problem.attractiveness(e)
    errors = errors.with_prior(prior, attractiveness)._replace(
        examination=curves.errors, examination_counts=curves.counts
    )
    return ExaminationFit(np.append(attractiveness, prior.mean), e, errors.with_unseen(prior), newton), curves


def _first_reference(problem: ExaminationProblem, rate: Float[np.ndarray, " situation"]) -> int:
    """Return the situation of the first rank that is examined most: of one rank, segments show the same documents.

    Rates of low ranks may be far too high where only neighbours of a list are swapped, and the limit of 1 for all other
    situations would then keep the fit from the maximum.
    """
    n = problem.cells.n_situations // problem.cells.n_segments
    starts = np.arange(problem.cells.n_segments) * n
    starts = starts[problem.impressions[starts] > 0]
    return int(starts[np.argmax(rate[starts])]) if len(starts) else problem.most_examined(rate)


def _curve_prior(
    problem: ExaminationProblem, by_rank: Cells, estimates: SegmentEstimates, reference: int | None
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
    fitted = fit_examination(by_rank, prior=None, tolerance=_CURVE_TOLERANCE, max_steps=_CURVE_STEPS, errors=False)
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
        center = np.minimum(np.exp(likelihood.mean), 1.0)
        cov = likelihood.covariance * center * center[:, None]
        errors, counts = np.full(len(e), np.nan), np.full((2, len(e)), np.nan)
        sd = np.sqrt(np.maximum(np.diag(cov), 0))
        errors[self.observed], counts[:, self.observed] = _error_and_counts(center, sd)
        if self.reference is not None:
            errors[self.reference] = 0.0
        pooled_sd = np.sqrt(np.maximum(np.einsum("ev,vw,ew->e", share, cov, share), 0))
        pooled_sd[total[:, 0] == 0] = np.nan
        pooled_errors, pooled_counts = _error_and_counts(share @ center, pooled_sd)
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
    e: Float[np.ndarray, " value"], sd: Float[np.ndarray, " value"]
) -> tuple[Float[np.ndarray, " value"], EffectiveCounts]:
    """Return the standard errors of the logits, and effective counts, of examination with these standard errors.

    Near 1 no binomial likelihood has a mean and a variance like these. The counts are then those of successes alone,
    whose interval goes from the lower bound to 1.
    """
    inside = np.clip(e, 1e-7, _HIGHEST)
    errors = sd / (inside * (1 - inside))
    yes, trials = effective_counts(inside, errors)
    touching = e + _TOUCHING * sd >= 1
    successes = _NO_FAILURE / np.maximum(1 - e + _TOUCHING * sd, 1e-12)
    return errors, np.where(touching & (sd > 0), successes, np.stack([yes, trials]))


def _of_logs(
    cov: Float[np.ndarray, "situation situation"], e: Float[np.ndarray, " situation"], scale: float
) -> Float[np.ndarray, "situation situation"]:
    """Return the covariance of the logarithms of examination from that of the logits of `scale` times examination."""
    slope = 1 - scale * e
    logs: np.ndarray = cov * slope * slope[:, None]
    return logs


def _at_full_scale(
    cov: Float[np.ndarray, "situation situation"], e: Float[np.ndarray, " situation"], scale: float
) -> Float[np.ndarray, "situation situation"]:
    """Return the covariance of the logits of examination from that of the logits of `scale` times examination."""
    e = np.minimum(e, _HIGHEST)
    slope = (1 - scale * e) / (1 - e)
    full: np.ndarray = cov * slope * slope[:, None]
    return full
