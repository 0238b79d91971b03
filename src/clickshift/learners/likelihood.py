"""MaximumLikelihood: the learner of models with hidden events, on sufficient statistics.

It fits PBM and UBM (`_position_models`), DBN, SDBN, DCM and CCM (`_cascade_fit`, `_cascade_models`), and CM, whose
maximum has a closed form.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from clickshift.core.newton import CascadeParameters, NewtonResult
from clickshift.core.rng import generator
from clickshift.core.spec import check_options, label
from clickshift.counts.cascade import Cascade
from clickshift.counts.cells import By, Cells, count_situations
from clickshift.counts.connectivity import swap_graph
from clickshift.counts.segment_differences import SegmentDifference, segment_difference
from clickshift.counts.segment_numbers import SegmentNumbers
from clickshift.data.encoded_log import Log
from clickshift.errors import ClickshiftWarning, SpecError
from clickshift.learners._cascade_fit import CascadeCounts, CascadeFamily, CascadeFit
from clickshift.learners._cascade_models import CCMFamily, DBNFamily, DCMFamily
from clickshift.learners._observed_examination import (
    compare_with_clicks,
    has_usable_views,
    identifies_all_ranks,
)
from clickshift.learners._position_models import ExaminationFit, fit_examination
from clickshift.learners._priors import SHARED_PRIOR, Beta, beta_by_likelihood
from clickshift.learners._segment_continuation import (
    SegmentedDBNFamily,
    SegmentedFamily,
    cascades_of_segments,
    pooled_continuations,
)
from clickshift.learners._segment_examination import (
    SegmentCurves,
    check_number_of_curves,
    fit_examination_by_segment,
)
from clickshift.learners.base import Requirement
from clickshift.models.base import ClickModel, Evidence, pair_table
from clickshift.models.cascade_models import CCM, CM, DCM
from clickshift.models.dbn import DBN, SDBN
from clickshift.models.intervals import product_counts
from clickshift.models.observed_views import VIEWS_LEVEL, VIEWS_TOLERANCE, largest_difference
from clickshift.models.pbm import PBM
from clickshift.models.segmented import Segmented
from clickshift.models.ubm import UBM

__all__ = ["MaximumLikelihood"]

_SITUATIONS: dict[str, By] = {"PBM": "rank", "UBM": "last_click"}
KNOWN_RANKS: dict[By, int] = {"rank": 500, "last_click": 50}
"""Number of ranks whose examination is learned: results below count at the last one, as models predict them. Newton
steps take the memory of a matrix of all examination parameters, and the time of its factorisation."""
_CASCADES = ("DBN", "SDBN", "DCM", "CCM", "CM")
_SHORTCUTS = ("DCM", "SDBN")
SEGMENTED = ("PBM", "UBM", "DBN", "DCM", "CCM")
"""Models whose examination or continuation can be learned by segment."""
_MAX_CONTINUATIONS = 24
"""Divisor of the number of values of all curves for cascade models: each label has tables over pairs of its own."""
_SHOWN_OFTEN, _HIDDEN_SHARE = 20, 0.1
"""Impressions from which on a document should have been examined, and the share of impressions of documents that were
not, above which a cascade model warns."""


@final
@dataclass(frozen=True)
class MaximumLikelihood:
    """Learner by penalised maximum likelihood, with Newton steps on sufficient statistics.

    PBM and UBM: Newton steps on the profile likelihood of examination, with the attractiveness of every pair at its
    maximum. DBN, SDBN, DCM and CCM: Newton steps on the observed likelihood, whose gradient and curvature come from
    exact E-steps over the results below the last click; an EM step is taken where a Newton step would decrease the
    likelihood. CM: the closed form. The steps end when the next one is expected to gain less than `tolerance` nats.

    The learner was called `EM` before, and that name is still accepted in texts and saved models.

    Parameters
    ----------
    model
        PBM, UBM, DBN, SDBN, DCM, CCM or CM.
    iterations
        Number of evaluations of the likelihood, at most.
    tolerance
        Expected gain of a step, in nats, below which the steps end.
    prior
        Pseudo-clicks and pseudo-examinations of every pair (maximum a posteriori estimates; unseen pairs get their
        ratio). None: empirical Bayes, the prior by which the documents of this log vary.
    starts
        Number of starts; the ones beyond the first are random, and the best result is kept.
    seed
        Random seed of the random starts.
    continuation
        Fixed continuation of DBN; None learns it.
    method
        "em": the maximum of the likelihood. "shortcut": the usual closed form for DCM and SDBN, which treats every
        result below the last click as unexamined and every last click as satisfying: faster, and measurably worse.
    segment
        Segment of the log by which examination or continuation is learned, e.g. "device"; attractiveness is shared.

    Raises
    ------
    SpecError
        If the model is not one of these ("unknown-name"), or if an option is wrong ("bad-option", "bad-prior").

    References
    ----------
    Chuklin, A., Markov, I. and de Rijke, M. (2015). Click models for web search. Morgan & Claypool.

    Examples
    --------
    >>> MaximumLikelihood("UBM").by
    'last_click'
    """

    model: str
    iterations: int = 1000
    tolerance: float = 0.1
    prior: tuple[float, float] | None = None
    starts: int = 1
    seed: int = 0
    continuation: float | None = None
    method: str = "em"
    segment: str | None = None

    def __post_init__(self) -> None:
        check_options(self)
        models = (*_SITUATIONS, *_CASCADES)
        if self.model not in models:
            raise SpecError(
                f"MaximumLikelihood does not fit {self.model!r}. It fits: {', '.join(models)}.",
                code="unknown-name",
                value=self.model,
                known=list(models),
            )
        if self.iterations < 1 or self.starts < 1 or not self.tolerance > 0:
            raise SpecError(
                "MaximumLikelihood needs iterations >= 1, starts >= 1 and tolerance > 0: "
                f"got {self.iterations}, {self.starts} and {self.tolerance}.",
                code="bad-option",
                iterations=self.iterations,
                starts=self.starts,
                tolerance=self.tolerance,
            )
        if self.method == "shortcut" and self.model not in _SHORTCUTS:
            raise SpecError(
                f"method='shortcut' is for {' and '.join(_SHORTCUTS)} only: got {self.model}.",
                code="bad-option",
                option="method",
                value=self.method,
            )
        if self.method not in {"em", "shortcut"}:
            raise SpecError(
                f"method must be 'em' or 'shortcut': got {self.method!r}.",
                code="bad-option",
                option="method",
                value=self.method,
            )
        if self.continuation is not None and (self.model != "DBN" or not 0 < self.continuation <= 1):
            raise SpecError(
                "continuation is for DBN, and must be above 0 and at most 1: "
                f"got {self.continuation} for {self.model}.",
                code="bad-option",
                option="continuation",
                value=self.continuation,
            )
        self._beta_prior()
        if self.segment is not None:
            self._check_segment()

    def _check_segment(self) -> None:
        """Raise unless the model has a parameter that can be learned by segment."""
        without = {"CM": "it has no continuation", "SDBN": "its continuation is 1"}
        if self.model not in SEGMENTED or self.continuation is not None or self.method == "shortcut" or self.starts > 1:
            why = without.get(self.model, "continuation, method and starts have other values than the defaults")
            raise SpecError(
                f"{self.model} cannot be fitted by {self.segment}: {why}. Models that can: {', '.join(SEGMENTED)}.",
                code="cannot-segment",
                model=self.model,
                segment=self.segment,
                known=list(SEGMENTED),
            )

    @property
    def requires(self) -> Requirement:
        """What this learner needs of a log: cells for PBM and UBM, else cascade counts; sessions for segments."""
        if self.segment is not None:
            return "sessions"
        return "cascade" if self.by is None else "cells"

    @property
    def by(self) -> By | None:
        """Situations by which `Cells` are counted for this model; None if it is fitted on a `Cascade`."""
        return _SITUATIONS.get(self.model)

    def _beta_prior(self) -> Beta | None:
        """Return the given prior of attractiveness; None if it is learned."""
        return None if self.prior is None else Beta(*self.prior)

    def fit(self, data: Log | Cells | Cascade) -> ClickModel:
        """Estimate the parameters from a log, or from its counts.

        PBM and UBM take the signal `viewed` of a log as observed examination, where it is known. Attractiveness is then
        P(click | viewed), and no rank has examination 1 by convention.

        Warns ("weak-identification") if the log cannot separate attractiveness from examination,
        ("views-contradict-clicks") if the examination that was observed is not the one that clicks alone would suggest,
        and ("no-unviewed-results") if views are not used because no result is known not to have been viewed.

        Parameters
        ----------
        data
            A log, or its counts: `Cells` for PBM and UBM, `Cascade` for the other models.

        Returns
        -------
        ClickModel
            The fitted model, with standard errors in its evidence.

        Raises
        ------
        SpecError
            If the counts are of the wrong kind for the model ("wrong-counts").
        """
        if self.segment is not None:
            return self._fit_by_segment(data)
        counts = self.counts(data)
        fitted = self.fit_from(counts)
        if not isinstance(counts, Cells):
            warning = _hidden_documents(fitted)
        else:
            warning = None if identifies_all_ranks(counts) else swap_graph(counts).warning()
            self._warn_of_views(counts, fitted)
        if warning:
            self._warn_of(warning)
        return fitted

    def _warn_of(self, warning: str) -> None:
        """Warn that the log hardly separates attractiveness from examination."""
        warnings.warn(
            ClickshiftWarning(f"{self.model}: {warning}", code="weak-identification", model=self.model), stacklevel=3
        )

    def _fit_by_segment(self, data: Log | Cells | Cascade) -> ClickModel:
        """Fit a model with a curve per segment."""
        if isinstance(data, Cells | Cascade):
            raise SpecError(
                f"{self.model} by {self.segment} needs sessions, not counts. Pass the log itself.",
                code="needs-sessions",
                learner=label(self),
            )
        assert self.segment is not None
        segments = SegmentNumbers.in_log(data, self.segment)
        if self.by is None:
            return self._fit_continuation_by_segment(data, segments)
        known = min(data.n_ranks, KNOWN_RANKS[self.by])
        check_number_of_curves(segments, count_situations(self.by, known), model=self.model)
        counted = Cells.of(data, self.by, segments=segments, views=True).with_known_ranks(known)
        cells = _with_usable_views(counted)
        by_rank = cells.pooled_by_rank()
        fitted, curves = self._fit_curves(cells, by_rank)
        if not identifies_all_ranks(by_rank) and (warning := swap_graph(by_rank).warning()):
            self._warn_of(warning)
        cls = PBM if self.model == "PBM" else UBM
        pooled = cls(
            cells.vocabulary,
            fitted.attractiveness,
            curves.pooled,
            evidence=self._position_evidence(cells, fitted, curves.pooled_errors, curves.pooled_counts),
        )
        model = self._segmented(pooled, segments, curves, segment_difference(cells, segments))
        if cells.views is not None:
            from_clicks, _ = self._fit_curves(replace(cells, views=None), replace(by_rank, views=None))
            model = _with_views(model, compare_with_clicks(cells, from_clicks))
        self._warn_of_views(counted, model)
        return model

    def _fit_curves(self, cells: Cells, by_rank: Cells) -> tuple[ExaminationFit, SegmentCurves]:
        """Fit examination by segment."""
        return fit_examination_by_segment(
            cells, by_rank, prior=self._beta_prior(), tolerance=self.tolerance, max_steps=self.iterations
        )

    def _fit_continuation_by_segment(self, log: Log, segments: SegmentNumbers) -> Segmented:
        """Fit a cascade model with a continuation per segment."""
        check_number_of_curves(segments, _MAX_CONTINUATIONS, model=self.model)
        families = [self._family(cascade) for cascade in cascades_of_segments(log, segments)]
        family = (SegmentedDBNFamily if self.model == "DBN" else SegmentedFamily)(families)
        fitted = family.fit(tolerance=self.tolerance, max_steps=self.iterations)
        curves, difference = pooled_continuations(fitted, family, segments)
        errors, counts = fitted.errors, fitted.counts
        assert errors is not None
        assert counts is not None
        pooled = self._make_model(
            family.data,
            fitted.parameters._replace(shared=curves.pooled),
            errors._replace(shared=curves.pooled_errors),
            fitted.newton,
            counts._replace(shared=curves.pooled_counts),
        )
        model = self._segmented(pooled, segments, curves, difference)
        if warning := _hidden_documents(pooled):
            self._warn_of(warning)
        return model

    def _segmented(
        self, pooled: ClickModel, segments: SegmentNumbers, curves: SegmentCurves, difference: SegmentDifference
    ) -> Segmented:
        """Make the model with a curve per segment from that of a session whose segment is not known."""
        n, evidence, name = len(segments.labels), pooled.evidence, pooled._browsing_curve()[0]
        assert evidence is not None
        values = n * curves.curves.shape[1]  # without those of unknown labels
        evidence = replace(
            evidence,
            logit_error={**evidence.logit_error, name: curves.errors[:values]},
            effective_counts={**evidence.effective_counts, name: curves.counts[:, :values]},
        )
        return Segmented(
            pooled.vocabulary,
            (pooled,),
            segments.name,
            segments.labels,
            curves.curves[:n],
            difference.statistic,
            difference.degrees_of_freedom,
            difference.p_value,
            segments.sessions[:n],
            evidence=evidence,
        )

    def counts(self, data: Log | Cells | Cascade, weight: np.ndarray | None = None) -> Cells | Cascade:
        """Count the sufficient statistics of this model.

        Parameters
        ----------
        data
            A log or its counts.
        weight
            Weight of each row of a log, in place of its `count`.

        Returns
        -------
        Cells or Cascade
            The sufficient statistics.

        Raises
        ------
        SpecError
            If the counts are of the wrong kind for the model ("wrong-counts").
        """
        if self.by is not None:
            if isinstance(data, Cascade):
                raise SpecError(
                    f"{self.model} is fitted on Cells, not on Cascade. Pass the log or its Cells.",
                    code="wrong-counts",
                    model=self.model,
                )
            cells = (
                data.rolled_up(self.by)
                if isinstance(data, Cells)
                else Cells.of(data, self.by, weight=weight, views=True)
            )
            return cells.with_known_ranks(KNOWN_RANKS[self.by])
        if isinstance(data, Cells):
            raise SpecError(
                f"{self.model} is fitted on Cascade, not on Cells. Pass the log or its Cascade.",
                code="wrong-counts",
                model=self.model,
            )
        return data if isinstance(data, Cascade) else Cascade.of(data, weight=weight)

    def fit_from(
        self,
        counts: Cells | Cascade,
        *,
        start: ClickModel | None = None,
        max_steps: int | None = None,
        errors: bool = True,
    ) -> ClickModel:
        """Estimate the parameters from counts, optionally from a start and with fewer steps: the M-step of a mixture.

        Parameters
        ----------
        counts
            Sufficient statistics of the model.
        start
            Model of the same kind whose parameters are the start.
        max_steps
            Number of evaluations of the likelihood, at most; None for `iterations`.
        errors
            Whether to compute standard errors, which takes up to half of the time. Replicates of a jackknife or a
            bootstrap need none.

        Returns
        -------
        ClickModel
            The fitted model.
        """
        steps = self.iterations if max_steps is None else max_steps
        if isinstance(counts, Cells):
            return self._fit_position_model(counts, start, steps, errors=errors)
        if self.model == "CM":
            return self._fit_cm(counts)
        if self.method == "shortcut":
            return self._fit_shortcut(counts)
        return self._fit_cascade(counts, start, steps, errors=errors, intervals=max_steps is None)

    def _best(
        self, run: Callable[[np.random.Generator | None], CascadeFit | ExaminationFit]
    ) -> CascadeFit | ExaminationFit:
        """Return the best of several starts; the first one (no generator) is deterministic."""
        runs = [run(None)] + [run(generator(self.seed, "EM", k)) for k in range(1, self.starts)]
        return max(runs, key=lambda result: result.newton.objective)

    def _fit_position_model(
        self, cells: Cells, start: ClickModel | None, max_steps: int, *, errors: bool
    ) -> ClickModel:
        """Fit PBM or UBM."""
        cells = _with_usable_views(cells)
        prior, cls = self._beta_prior(), PBM if self.model == "PBM" else UBM
        parameters = None
        if isinstance(start, PBM | UBM):
            parameters = np.clip(np.concatenate([start.attractiveness[:-1], start.examination]), 1e-6, 1 - 1e-6)
        fitted = self._best(
            lambda rng: fit_examination(
                cells,
                prior=prior,
                tolerance=self.tolerance,
                max_steps=max_steps,
                start=parameters,
                rng=rng,
                errors=errors,
            )
        )
        assert isinstance(fitted, ExaminationFit)
        found = fitted.errors
        own = (None, None) if found is None else (found.examination, found.examination_counts)
        evidence = self._position_evidence(cells, fitted, *own)
        if errors and start is None and cells.views is not None:  # not in each step of a mixture
            from_clicks = fit_examination(
                replace(cells, views=None), prior=prior, tolerance=self.tolerance, max_steps=max_steps
            )
            evidence = replace(evidence, views=compare_with_clicks(cells, from_clicks))
        return cls(cells.vocabulary, fitted.attractiveness, fitted.examination, evidence=evidence)

    def _position_evidence(
        self,
        cells: Cells,
        fitted: ExaminationFit,
        errors: np.ndarray | None,
        counts: np.ndarray | None,
    ) -> Evidence:
        """Return the evidence of PBM or UBM, with errors and effective counts of examination if there are any."""
        impressions, clicks = (pair_table(totals, unseen=0.0) for totals in cells.by_pair())
        found = fitted.errors
        if found is None or errors is None or counts is None:  # replicates need none of this
            return self._evidence(impressions, clicks, {}, fitted.newton, {})
        logit_error = {"attractiveness": found.attractiveness, "examination": errors}
        effective = {"attractiveness": found.attractiveness_counts, "examination": counts}
        logit_error["relevance"], effective["relevance"] = found.attractiveness, found.attractiveness_counts
        evidence = self._evidence(impressions, clicks, logit_error, fitted.newton, effective)
        return replace(evidence, mean_rank=pair_table(cells.mean_rank(), unseen=float("nan")))

    def _warn_of_views(self, cells: Cells, fitted: ClickModel) -> None:
        """Warn if views are no observations of examination, or if clicks contradict them."""
        message, code, facts = "", "", {}
        views = {} if fitted.evidence is None else fitted.evidence.views
        if cells.views is not None and not has_usable_views(cells):
            message, code = (
                "views are not used, because no result is known not to have been viewed. Record 0 for results that "
                "were not in the viewport, and leave unknown ones empty.",
                "no-unviewed-results",
            )
        elif views and (largest := largest_difference(views)) is not None:
            at, difference, p_value = largest
            if p_value < VIEWS_LEVEL and abs(difference) > VIEWS_TOLERANCE:
                row = fitted.examination_table()[at]
                rank, label = int(row["rank"]), row.get("segment")
                where = f"at rank {rank}" + (f" on {label}" if label else "")
                message, code, facts = (
                    f"examination inferred from clicks alone differs from the observed one by up to {difference:+.2f}, "
                    f"{where}, which is beyond chance. The model uses what was observed; clicks may depend on "
                    "rank in other ways, or views be recorded wrongly.",
                    "views-contradict-clicks",
                    {"rank": rank, "difference": difference, "p_value": p_value},
                )
        if message:
            warnings.warn(
                ClickshiftWarning(f"{self.model}: {message}", code=code, model=self.model, **facts), stacklevel=3
            )

    def _fit_cascade(
        self, cascade: Cascade, start: ClickModel | None, max_steps: int, *, errors: bool, intervals: bool
    ) -> ClickModel:
        """Fit DBN, SDBN, DCM or CCM."""
        family, parameters = self._family(cascade), None if start is None else _cascade_parameters(start)
        fitted = self._best(
            lambda rng: family.fit(
                tolerance=self.tolerance,
                max_steps=max_steps,
                start=parameters,
                rng=rng,
                errors=errors,
                intervals=intervals,
            )
        )
        assert isinstance(fitted, CascadeFit)
        return self._make_model(cascade, fitted.parameters, fitted.errors, fitted.newton, fitted.counts)

    def _family(self, cascade: Cascade) -> CascadeFamily:
        """Return the likelihood of this cascade model."""
        prior = self._beta_prior()
        if self.model == "DCM":
            return DCMFamily(cascade, prior)
        if self.model == "CCM":
            return CCMFamily(cascade, prior)
        return DBNFamily(cascade, prior, 1.0 if self.model == "SDBN" else self.continuation)

    def _fit_shortcut(self, cascade: Cascade) -> ClickModel:
        """Fit DCM or SDBN by the closed form that ignores the results below the last click."""
        examined, last = np.maximum(cascade.first_examined, cascade.examined), cascade.clicks - cascade.followed
        prior = self._beta_prior() or beta_by_likelihood(examined[:-1], cascade.clicks[:-1])
        a, s = prior.mode(cascade.clicks, examined), SHARED_PRIOR.mode(last, cascade.clicks)
        followed, last = cascade.followed_at_rank, cascade.open_last_at_rank
        shared = SHARED_PRIOR.mode(followed, followed + last) if self.model == "DCM" else np.empty(0)
        return self._make_model(cascade, CascadeParameters(a, s, shared), None, None)

    def _fit_cm(self, cascade: Cascade) -> ClickModel:
        """Fit CM by its closed form: first clicks among examinations up to the first click."""
        prior = self._beta_prior() or beta_by_likelihood(cascade.first_examined[:-1], cascade.first_clicks[:-1])
        a = prior.mode(cascade.first_clicks, cascade.first_examined)
        error = 1 / np.sqrt((cascade.first_examined + prior.total) * a * (1 - a))
        parameters = CascadeParameters(a, np.zeros_like(a), np.empty(0))
        return self._make_model(cascade, parameters, CascadeParameters(error, np.zeros_like(a), np.empty(0)), None)

    def _make_model(
        self,
        cascade: Cascade,
        parameters: CascadeParameters,
        errors: CascadeParameters | None,
        newton: NewtonResult | None,
        counts: CascadeCounts | None = None,
    ) -> ClickModel:
        """Make the model with these parameters and standard errors."""
        a, s, shared = parameters
        logit_error = {} if errors is None else _named_errors(self.model, parameters, errors)
        named = {} if counts is None else _named_counts(self.model, counts)
        evidence = self._evidence(cascade.impressions, cascade.clicks, logit_error, newton, named)
        vocabulary = cascade.vocabulary
        if self.model == "CM":
            return CM(vocabulary, a, evidence=evidence)
        if self.model == "DCM":
            return DCM(vocabulary, a, shared, evidence=evidence)
        if self.model == "CCM":
            return CCM(vocabulary, a, shared, evidence=evidence)
        if self.model == "SDBN":
            return SDBN(vocabulary, a, s, evidence=evidence)
        continuation = float(shared[0]) if self.continuation is None else self.continuation
        return DBN(vocabulary, a, s, continuation, evidence=evidence)

    def _evidence(
        self,
        impressions: np.ndarray,
        clicks: np.ndarray,
        errors: dict[str, np.ndarray],
        newton: NewtonResult | None,
        counts: dict[str, np.ndarray],
    ) -> Evidence:
        """Return the evidence of a fitted model; `newton` is None for closed forms."""
        evidence = Evidence(label(self), impressions, clicks, errors, effective_counts=counts)
        if newton is None:
            return evidence
        return replace(evidence, log_likelihood=newton.objective, iterations=newton.steps, converged=newton.converged)


def _with_usable_views(cells: Cells) -> Cells:
    """Return counts without views that say nothing about examination."""
    return cells if has_usable_views(cells) else replace(cells, views=None)


def _with_views(model: Segmented, views: dict[str, np.ndarray]) -> Segmented:
    """Return a model with the observed examination of its labels; that of unknown labels is left out."""
    assert model.evidence is not None
    of_labels = {
        name: values if name == "contradicted" else values[: model.curves.size] for name, values in views.items()
    }
    return replace(model, evidence=replace(model.evidence, views=of_labels))


def _hidden_documents(model: ClickModel) -> str | None:
    """Return a sentence on documents of a cascade model that were shown but hardly examined; None if they are few."""
    evidence = model.evidence
    if evidence is None or "attractiveness" not in evidence.effective_counts:
        return None
    support, impressions = model.intervals("attractiveness").support[:-1], evidence.impressions[:-1]
    hidden = (support == "not identified") & (impressions >= _SHOWN_OFTEN)
    if impressions[hidden].sum() <= _HIDDEN_SHARE * impressions.sum():
        return None
    return (
        f"{hidden.sum():,} documents that were shown at least {_SHOWN_OFTEN} times were examined less than once in "
        "effect, because users stopped above them: their attractiveness is not identified, and its estimate is the "
        "prior mean. To fix this, show them higher up now and then, or log several rankers."
    )


def _named_errors(model: str, parameters: CascadeParameters, errors: CascadeParameters) -> dict[str, np.ndarray]:
    """Return the standard errors of the logits by the names of the model's parameters, and of relevance."""
    named = {"attractiveness": errors.attractiveness, "relevance": errors.attractiveness}
    if len(errors.shared):
        named["continuation"] = errors.shared
    if model in {"DBN", "SDBN"}:
        a, s = parameters.attractiveness, parameters.satisfaction
        named["satisfaction"] = errors.satisfaction
        # delta method: log(a s) has variance ((1 - a) error_a)^2 + ((1 - s) error_s)^2
        log_error = np.hypot((1 - a) * errors.attractiveness, (1 - s) * errors.satisfaction)
        named["relevance"] = log_error / (1 - a * s)
    return named


def _named_counts(model: str, counts: CascadeCounts) -> dict[str, np.ndarray]:
    """Return the effective counts by the names of the model's parameters, and of relevance."""
    named = {"attractiveness": counts.attractiveness, "relevance": counts.attractiveness}
    if counts.shared.shape[1]:
        named["continuation"] = counts.shared
    if model in {"DBN", "SDBN"}:
        named["satisfaction"] = counts.satisfaction
        named["relevance"] = product_counts(counts.attractiveness, counts.satisfaction)
    return named


def _cascade_parameters(model: ClickModel) -> CascadeParameters | None:
    """Return the parameters of a fitted cascade model, as a start; None for other models."""
    if isinstance(model, DBN | SDBN):
        shared = np.array([model.continuation]) if isinstance(model, DBN) else np.empty(0)
        return CascadeParameters(model.attractiveness, model.satisfaction, shared)
    if isinstance(model, DCM | CCM):
        return CascadeParameters(model.attractiveness, np.zeros_like(model.attractiveness), model.continuation)
    return None
