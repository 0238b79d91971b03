"""Which pairs a log can grade: those that were shown often enough, and whose grade is not the prior's."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int

from clickshift.errors import CapabilityError, DataError
from clickshift.models.base import ClickModel
from clickshift.models.coec import COEC

_FEW_IMPRESSIONS = 5
"""Impressions below which an unclicked document is not graded, if the model does not know how strong its prior is."""


def graded_by_prior(model: ClickModel, grade: Int[np.ndarray, " pair"]) -> Bool[np.ndarray, " pair"]:
    """Return whether the prior, and not the log, decides the grade of each pair of a model's vocabulary.

    It does if the log holds less than one effective observation of the pair, or if the pair was never clicked and
    either its grade is above the lowest one, which no click supports, or the log has less than half of the information
    in its estimate. A model without effective counts is asked for at least five impressions instead.

    Parameters
    ----------
    model
        A click model; one that was not fitted on a log has no prior.
    grade
        Grade of each pair.
    """
    evidence = model.evidence
    if evidence is None:
        return np.zeros(len(grade), bool)
    impressions, unclicked = evidence.impressions[:-1], evidence.clicks[:-1] <= 0
    if evidence.sharing > 0:  # clicks for other queries of the group count as far as they are shared
        unclicked &= evidence.effective_counts["relevance"][0][:-1] < 1 / 2
    share = _log_share(model)
    uncertain = impressions < _FEW_IMPRESSIONS if share is None else share < 1 / 2
    by_prior: np.ndarray = unclicked & ((grade > 0) | uncertain)
    if "relevance" in evidence.effective_counts:
        by_prior |= model.intervals("relevance").support[:-1] == "not identified"
    return by_prior


def _log_share(model: ClickModel) -> Float[np.ndarray, " pair"] | None:
    """Return the share of the log in the information of each pair's estimate; None if it is not known.

    The estimate is attractiveness, which bounds the relevance of a pair without clicks from above, where a model has
    it: satisfaction after a click is not known of such a pair.
    """
    evidence = model.evidence
    if isinstance(model, COEC):  # an expected click tells as much as the prior's one
        expected = model.expected[:-1]
        known: np.ndarray = expected / (expected + 1)
        return known
    attractiveness = getattr(model, "attractiveness", None)
    name = "relevance" if attractiveness is None else "attractiveness"
    if evidence is None or name not in evidence.effective_counts or name not in evidence.logit_error:
        return None
    estimate = model.relevance() if attractiveness is None else np.asarray(attractiveness)[:-1]
    estimate = np.clip(estimate, 1e-12, 1 - 1e-12)
    _, trials = evidence.effective_counts[name]
    share: np.ndarray = trials[:-1] * estimate * (1 - estimate) * evidence.logit_error[name][:-1] ** 2
    return share


def shown_often(model: ClickModel, impressions: Float[np.ndarray, " pair"], minimum: int) -> Bool[np.ndarray, " pair"]:
    """Return whether each pair was shown at least `minimum` times.

    Raises
    ------
    CapabilityError
        If the model was not fitted on a log ("no-evidence").
    DataError
        If no pair was ("too-few-impressions").
    """
    if minimum <= 0:
        return np.ones(len(impressions), bool)
    if model.evidence is None:
        name = type(model).__name__
        raise CapabilityError(
            f"this {name} was not fitted on a log, so it has no impressions. Pass min_impressions=0.",
            code="no-evidence",
            model=name,
        )
    keep: np.ndarray = impressions >= minimum
    if not keep.any():
        raise DataError(
            f"at least one pair must be shown {minimum:,} times: the most frequent one was shown "
            f"{impressions.max():,.0f} times. Choose a smaller min_impressions.",
            code="too-few-impressions",
            value=float(impressions.max()),
            minimum=minimum,
        )
    return keep


def reliability_weight(
    relevance: Float[np.ndarray, " pair"], error: Float[np.ndarray, " pair"]
) -> Float[np.ndarray, " pair"]:
    """Return the inverse variance of a pair, relative to that of an exactly known pair: V / (V + error^2) in logits.

    V is the variance of the logits over all pairs, so that a pair whose error is as large as the differences between
    pairs weighs 1/2. The plain inverse variance would give a few frequent pairs all the weight.
    """
    logit = np.log(np.clip(relevance, 1e-12, 1) / np.clip(1 - relevance, 1e-12, 1))
    variance = logit.var()
    if not variance > 0:
        return np.ones(len(relevance))
    weight: np.ndarray = variance / (variance + np.where(np.isnan(error), np.inf, error) ** 2)
    return weight
