"""The examination of a fitted click model, by rank, with its intervals.

PBM has one examination per rank, with standard errors of its own (docs/intervals.md). They do not know that it has a
number for each document, too, and that examination is too high where documents were seen little: where the log is at
hand, every document is compared with itself instead (`comparable`). Of other models examination is a mean over the
lists of the log (`policies.beliefs.examination`); those that EM fits are fitted again on resampled queries.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from clickshift.counts.cells import Cells
from clickshift.data.sessions import Rankings, Sessions
from clickshift.errors import ClickshiftWarning, DataError
from clickshift.learners.base import learner_for
from clickshift.learners.likelihood import MaximumLikelihood
from clickshift.models.base import ClickModel, at_rank
from clickshift.models.pbm import PBM
from clickshift.policies.derived.model_scores import examination
from clickshift.propensity._bootstrap import ExaminationCurve, effective_sample_size, query_weights
from clickshift.propensity._orthogonal import within_documents


@dataclass(frozen=True, eq=False)
class ModelIntervals:
    """An examination curve with intervals that come from the model itself, not from resampling."""

    estimate: Float[np.ndarray, " rank"]
    low: Float[np.ndarray, " rank"]
    high: Float[np.ndarray, " rank"]
    error: Float[np.ndarray, " rank"]


def fit_named_model(log: Sessions, text: str) -> ClickModel:
    """The model that a text names, fitted. What it warns of is left to who asked for propensities."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClickshiftWarning)
        return learner_for(text).fit(log)


def is_pbm(text: str) -> bool:
    learner = learner_for(text)
    return isinstance(learner, MaximumLikelihood) and learner.model == "PBM"


def pbm_curve(
    log: Sessions,
    cells: Cells,
    text: str,
    *,
    reference: int,
    connected: bool,
    replicates: int,
    rng: np.random.Generator,
) -> ExaminationCurve:
    """PBM's examination by documents that were seen at several ranks; what they do not tell is left to the model's
    assumptions, without an interval. That is news where ranks are `connected`, by documents that nobody clicked."""
    found = within_documents(cells, reference=reference, replicates=replicates, rng=rng).relative_to(reference)
    unknown = np.isnan(found.estimate)
    if not unknown.any():
        return found
    model = fit_named_model(log, text)
    assert isinstance(model, PBM)
    assumed = at_rank(model.examination, log.n_ranks)
    estimate = np.where(unknown, assumed / assumed[reference], found.estimate)
    ranks = ", ".join(map(str, np.flatnonzero(unknown) + 1))
    doubt = (
        f"no clicked document says how rank {ranks} compares with rank {reference + 1}: the curve rests on the model's "
        "assumptions there, and has no interval."
    )
    return ExaminationCurve(estimate, found.replicates, found.n_queries, (doubt,) if connected else ())


def model_curve(
    log: Sessions, model: ClickModel, text: str | None, *, replicates: int, rng: np.random.Generator
) -> ExaminationCurve:
    """Mean examination over the log's lists; `text` is what the model was fitted by, if it was fitted on this log."""
    if not model.predicts_clicks or model.peeks:
        raise DataError(
            f"{type(model).__name__} does not predict clicks, so that it has no examination. Try PBM or DBN."
        )
    lists, group = _lists(log)
    learner = None if text is None else learner_for(text)
    n = replicates if isinstance(learner, MaximumLikelihood) else 0
    query = log.rankings.query + 1  # UNSEEN is a query, too
    curves: list[np.ndarray] = []
    for weight in query_weights(int(query.max()) + 1, n, rng):
        count = log.count * weight[query]
        again = model
        if curves and isinstance(learner, MaximumLikelihood):
            again = learner.fit_from(learner.counts(log, weight=count), start=model)
        curves.append(examination(again, lists, weight=np.bincount(group, count, len(lists))))
    shown = np.bincount(query, log.count)
    return ExaminationCurve.of(curves, effective_sample_size(shown))


def model_intervals(model: ClickModel, *, ranks: int, reference: int, level: float) -> ModelIntervals | None:
    """PBM's own intervals; None of another model, or where the reference is not the rank that is 1 by convention."""
    errors = None if model.evidence is None else model.evidence.logit_error.get("examination")
    known = min(reference, len(errors) - 1) if errors is not None else 0
    if not isinstance(model, PBM) or errors is None or errors[known] != 0:
        return None
    rows = model.examination_table(level=level)
    estimate, low, high = (at_rank(np.array([row[k] for row in rows]), ranks) for k in ("estimate", "low", "high"))
    return ModelIntervals(estimate, low, high, at_rank(errors * model.examination * (1 - model.examination), ranks))


def _lists(log: Sessions) -> tuple[Rankings, np.ndarray]:
    """The distinct lists of a log, and which one each row shows."""
    from clickshift.core.unique_rows import distinct_rows

    rankings = log.rankings
    parts = [rankings.query[:, None], rankings.length[:, None], rankings.pair]
    group, first = distinct_rows(np.concatenate(parts, axis=1, dtype=np.int64))
    return rankings[first], group
