"""Calibration of click predictions: expected against observed click-through rates."""

from __future__ import annotations

from typing import Any

import numpy as np

from clickshift.core.intervals import wilson_interval
from clickshift.data.sessions import Sessions
from clickshift.errors import CapabilityError
from clickshift.metrics.predictions import PredictionKind, Predictions
from clickshift.models.base import ClickModel

DECILES = 10
"""Number of groups of predicted probabilities."""


def calibration(
    model: ClickModel, sessions: Sessions, *, kind: PredictionKind = "conditional", level: float = 0.95
) -> list[dict[str, Any]]:
    """Compare expected and observed click-through rates by rank and by decile of the predicted probability.

    Each decile holds a tenth of the impressions, lowest predictions first. Equal predictions stay together, in the
    decile of the impression in their middle, so a decile may be empty and then has no row. The interval treats
    impressions as independent. For conditional predictions that holds as far as the model is right; for marginal
    predictions the clicks of a session are dependent, and the interval is approximate.

    Parameters
    ----------
    model
        Click model.
    sessions
        Log to predict.
    kind
        "conditional" predicts each click given the clicks above it, "marginal" without them.
    level
        Confidence level of the intervals.

    Returns
    -------
    list of dict
        Rows with the same keys for both groupings: `by` ("rank" or "decile"), its `number` from 1, the smallest and
        largest prediction (`prediction_low`, `prediction_high`), their mean `expected_ctr`, `observed_ctr` with its
        Wilson interval (`observed_low`, `observed_high`), and `impressions`.

    Raises
    ------
    CapabilityError
        "model-peeks" for a model that is shown the clicks it predicts.

    Examples
    --------
    >>> import clickshift as cs
    >>> log = cs.simulate(cs.builtin_corpus(5), cs.Uniform(), cs.users.PBM(), 2000, rng=0)
    >>> rows = calibration(cs.fit("rCTR", log), log)
    >>> [row["number"] for row in rows if row["by"] == "rank"]
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    """
    return calibration_of(Predictions.of(model, sessions, kind=kind), level=level)


def calibration_of(predictions: Predictions, *, level: float = 0.95) -> list[dict[str, Any]]:
    """Compare expected and observed click-through rates of given predictions; see `calibration`.

    Parameters
    ----------
    predictions
        Predicted click probabilities of a log.
    level
        Confidence level of the intervals.

    Returns
    -------
    list of dict
        Rows as in `calibration`.

    Raises
    ------
    CapabilityError
        "model-peeks" for a model that is shown the clicks it predicts.
    """
    if predictions.peeks:
        raise CapabilityError(
            "a model that is shown the clicks it predicts has no calibration. Leave it out, or use one that does not "
            "peek (ARM for ARM_NC).",
            code="model-peeks",
        )
    sessions = predictions.sessions
    row, rank = np.divmod(predictions.ascending, sessions.n_ranks)
    prob = predictions.prob.ravel()[predictions.ascending]
    click = sessions.click.ravel()[predictions.ascending]
    weight = sessions.count[row].astype(np.float64)
    by_rank = _group_rows("rank", rank, prob, click, weight, level)
    return by_rank + _group_rows("decile", _deciles(prob, weight), prob, click, weight, level)


def _deciles(prob: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return the decile, from 0, of each of the ascending predictions."""
    is_new = np.r_[True, prob[1:] != prob[:-1]]
    size = np.add.reduceat(weight, np.flatnonzero(is_new))
    middle = (np.cumsum(size) - size / 2) / size.sum()
    decile: np.ndarray = np.minimum((DECILES * middle).astype(np.int64), DECILES - 1)[np.cumsum(is_new) - 1]
    return decile


def _group_rows(
    by: str, group: np.ndarray, prob: np.ndarray, click: np.ndarray, weight: np.ndarray, level: float
) -> list[dict[str, Any]]:
    """Return one row per group that has impressions."""
    impressions = np.bincount(group, weight)
    present = np.flatnonzero(impressions)
    impressions = impressions[present]
    clicks = np.bincount(group, weight * click)[present]
    expected = np.bincount(group, weight * prob)[present] / impressions
    lowest, highest = np.full(present[-1] + 1, np.inf), np.full(present[-1] + 1, -np.inf)
    np.minimum.at(lowest, group, prob)
    np.maximum.at(highest, group, prob)
    low, high = wilson_interval(clicks, impressions, level)
    names = ("prediction_low", "prediction_high", "expected_ctr", "observed_ctr", "observed_low", "observed_high")
    values = (lowest[present], highest[present], expected, clicks / impressions, low, high)
    columns = zip(*(value.tolist() for value in values), strict=True)
    return [
        {"by": by, "number": number + 1, **dict(zip(names, numbers, strict=True)), "impressions": round(n)}
        for number, numbers, n in zip(present.tolist(), columns, impressions.tolist(), strict=True)
    ]
