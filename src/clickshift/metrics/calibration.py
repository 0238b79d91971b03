"""Calibration: are results clicked as often as the model says?"""

from __future__ import annotations

from typing import Any

import numpy as np

from clickshift.core.intervals import wilson_interval
from clickshift.data.sessions import Sessions
from clickshift.errors import CapabilityError
from clickshift.metrics.predictions import PredictionKind, Predictions
from clickshift.models.base import ClickModel

DECILES = 10


def calibration(
    model: ClickModel, sessions: Sessions, *, kind: PredictionKind = "conditional", level: float = 0.95
) -> list[dict[str, Any]]:
    """Expected and observed click-through rates by rank and by decile of the predicted probability.

    Rows of both kinds have the same keys: `by` ("rank" or "decile"), its `number` from 1, the least and the greatest
    prediction, their mean `expected_ctr`, `observed_ctr` with its Wilson interval, and `impressions`.

    Deciles hold a tenth of the impressions each, the least probable clicks first. Equal predictions stay together, in
    the decile of the impression in their middle, so that a decile may be left empty, and has no row then. The interval
    takes impressions as independent. Clicks that are predicted with the clicks above (conditional) are, as far as the
    model is right; without them (marginal) clicks of one session hang together, and the interval is a rough one.
    """
    return calibration_of(Predictions.of(model, sessions, kind=kind), level=level)


def calibration_of(predictions: Predictions, *, level: float = 0.95) -> list[dict[str, Any]]:
    """`calibration` of probabilities that are there."""
    if predictions.peeks:
        raise CapabilityError(
            "a model that is shown the clicks which it predicts has no calibration. Leave it out, or use one that "
            "does not peek (ARM for ARM_NC)."
        )
    sessions = predictions.sessions
    row, rank = np.divmod(predictions.ascending, sessions.n_ranks)
    prob = predictions.prob.ravel()[predictions.ascending]
    click = sessions.click.ravel()[predictions.ascending]
    weight = sessions.count[row].astype(np.float64)
    by_rank = _rows("rank", rank, prob, click, weight, level)
    return by_rank + _rows("decile", _deciles(prob, weight), prob, click, weight, level)


def _deciles(prob: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The decile, from 0, of ascending predictions."""
    new = np.r_[True, prob[1:] != prob[:-1]]
    size = np.add.reduceat(weight, np.flatnonzero(new))
    middle = (np.cumsum(size) - size / 2) / size.sum()
    decile: np.ndarray = np.minimum((DECILES * middle).astype(np.int64), DECILES - 1)[np.cumsum(new) - 1]
    return decile


def _rows(
    by: str, group: np.ndarray, prob: np.ndarray, click: np.ndarray, weight: np.ndarray, level: float
) -> list[dict[str, Any]]:
    impressions = np.bincount(group, weight)
    there = np.flatnonzero(impressions)
    impressions = impressions[there]
    clicks = np.bincount(group, weight * click)[there]
    expected = np.bincount(group, weight * prob)[there] / impressions
    least, greatest = np.full(there[-1] + 1, np.inf), np.full(there[-1] + 1, -np.inf)
    np.minimum.at(least, group, prob)
    np.maximum.at(greatest, group, prob)
    low, high = wilson_interval(clicks, impressions, level)
    names = ("prediction_low", "prediction_high", "expected_ctr", "observed_ctr", "observed_low", "observed_high")
    values = (least[there], greatest[there], expected, clicks / impressions, low, high)
    columns = zip(*(value.tolist() for value in values), strict=True)
    return [
        {"by": by, "number": number + 1, **dict(zip(names, numbers, strict=True)), "impressions": round(n)}
        for number, numbers, n in zip(there.tolist(), columns, impressions.tolist(), strict=True)
    ]
