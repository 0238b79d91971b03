"""Position bias from a fitted click model: examination by rank, with intervals.

PBM has one examination parameter per rank, with standard errors of its own (docs/intervals.md). Those ignore that the
model also has a parameter for each document, so that examination is biased upwards where documents were shown rarely.
Where the log is available, every document is therefore compared with itself instead (`_orthogonal`). For other models,
examination is a mean over the lists of the log (`policies.derived.model_scores.examination`); models that are fitted by
maximum likelihood are fitted again on resampled queries.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from clickshift.core.intervals import normal_quantile
from clickshift.counts.cells import Cells
from clickshift.data.encoded_log import Log
from clickshift.data.sessions import Rankings, Sessions
from clickshift.errors import ClickshiftWarning, DataError
from clickshift.learners.base import learner_for
from clickshift.learners.likelihood import MaximumLikelihood
from clickshift.models.base import ClickModel, at_rank
from clickshift.models.pbm import PBM
from clickshift.policies.derived.model_scores import examination
from clickshift.propensity._bootstrap import CurveWarning, ExaminationCurve, effective_sample_size, query_weights
from clickshift.propensity._orthogonal import within_documents


@dataclass(frozen=True, eq=False)
class ModelIntervals:
    """A position-bias curve whose intervals come from the model itself, not from a bootstrap.

    Parameters
    ----------
    estimate
        Examination by rank.
    low, high
        Limits of the confidence interval.
    error
        Standard error.
    """

    estimate: Float[np.ndarray, " rank"]
    low: Float[np.ndarray, " rank"]
    high: Float[np.ndarray, " rank"]
    error: Float[np.ndarray, " rank"]


def fit_named_model(log: Log, text: str) -> ClickModel:
    """Fit the click model that a text names, without its warnings: propensities give warnings of their own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClickshiftWarning)
        return learner_for(text).fit(log)


def is_pbm(text: str) -> bool:
    """Whether a text names a PBM that is fitted by maximum likelihood."""
    learner = learner_for(text)
    return isinstance(learner, MaximumLikelihood) and learner.model == "PBM"


def pbm_curve(
    log: Log,
    cells: Cells,
    text: str,
    *,
    reference: int,
    connected: bool,
    replicates: int,
    rng: np.random.Generator,
) -> ExaminationCurve:
    """Estimate the examination of a PBM from documents that were shown at several ranks.

    Ranks that such documents do not identify get the fitted model's value, without an interval. This is reported as a
    warning where ranks are `connected`, but only by documents that nobody clicked.
    """
    curve = within_documents(cells, reference=reference, replicates=replicates, rng=rng).relative_to(reference)
    unidentified = np.isnan(curve.estimate)
    if not unidentified.any():
        return curve
    model = fit_named_model(log, text)
    assert isinstance(model, PBM)
    fitted = at_rank(model.examination, log.n_ranks)
    estimate = np.where(unidentified, fitted / fitted[reference], curve.estimate)
    ranks = tuple((np.flatnonzero(unidentified) + 1).tolist())
    warning = CurveWarning(
        "rank-not-identified",
        f"no clicked document was shown at both rank {', '.join(map(str, ranks))} and rank {reference + 1}: the curve "
        "rests on the model's assumptions there, and has no interval.",
        ranks,
    )
    return ExaminationCurve(estimate, curve.replicates, curve.n_queries, (warning,) if connected else ())


def model_curve(
    log: Sessions, model: ClickModel, text: str | None, *, replicates: int, rng: np.random.Generator
) -> ExaminationCurve:
    """Average the examination of a click model over the lists of a log.

    Parameters
    ----------
    log
        The log.
    model
        The fitted click model.
    text
        Name by which the model was fitted on this log, so that it can be fitted again; None for any other model.
    replicates
        Number of resampled logs; models that are not fitted by maximum likelihood get none.
    rng
        Generator of the bootstrap weights.

    Raises
    ------
    DataError
        If the model does not predict clicks ("cannot-predict-clicks").
    """
    if not model.predicts_clicks or model.peeks:
        name = type(model).__name__
        raise DataError(
            f"{name} does not predict clicks, so it has no examination. Choose PBM or DBN.",
            code="cannot-predict-clicks",
            model=name,
        )
    lists, group = _distinct_lists(log)
    learner = None if text is None else learner_for(text)
    n = replicates if isinstance(learner, MaximumLikelihood) else 0
    query = log.rankings.query + 1  # UNSEEN counts as a query, too
    curves: list[np.ndarray] = []
    for weight in query_weights(int(query.max()) + 1, n, rng):
        count = log.count * weight[query]
        refitted = model
        if curves and isinstance(learner, MaximumLikelihood):
            refitted = learner.fit_from(learner.counts(log, weight=count), start=model, errors=False)
        curves.append(examination(refitted, lists, weight=np.bincount(group, count, len(lists))))
    sessions = np.bincount(query, log.count)
    return ExaminationCurve.of(curves, effective_sample_size(sessions))


def model_intervals(model: ClickModel, *, ranks: int, reference: int, level: float) -> ModelIntervals | None:
    """Intervals of a PBM from its own standard errors; None for another model.

    Where the examination of the reference rank is not 1 by convention, as in a segment that examines even its first
    rank less than another one does, intervals are those of a ratio. The errors of both ranks are taken as independent,
    which is conservative: they share that of the convention.
    """
    errors = None if model.evidence is None else model.evidence.logit_error.get("examination")
    if not isinstance(model, PBM) or errors is None:
        return None
    index, e = min(reference, len(errors) - 1), model.examination
    rows = model.examination_table(level=level)
    estimate, low, high = (np.array([row[k] for row in rows]) for k in ("estimate", "low", "high"))
    error = errors * e * (1 - e)
    if errors[index] != 0:
        estimate = e / e[index]
        spread = np.hypot(errors * (1 - e), errors[index] * (1 - e[index]))  # of the logarithm
        spread[index] = 0.0
        factor = np.exp(normal_quantile((1 + level) / 2) * spread)
        low, high, error = estimate / factor, estimate * factor, estimate * spread
    return ModelIntervals(*(at_rank(values, ranks) for values in (estimate, low, high, error)))


def _distinct_lists(log: Sessions) -> tuple[Rankings, np.ndarray]:
    """Return the distinct lists of a log, and the number of the list that each row shows."""
    from clickshift.core.unique_rows import distinct_rows

    rankings = log.rankings
    parts = [rankings.query[:, None], rankings.length[:, None], rankings.pair]
    parts += [np.packbits(rankings.shown, axis=1)] if rankings.has_holes else []  # not documents of other vocabularies
    group, first = distinct_rows(np.concatenate(parts, axis=1, dtype=np.int64))
    return rankings[first], group
