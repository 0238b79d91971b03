"""Estimates from sums of clipped importance weights, for many clipping constants and many (resampled) logs at once.

Units of the log are binned by their importance weight, with the clipping constants as bin edges. Two cumulative sums
over the bins then give the clipped sums for every clipping constant in one pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float

from clickshift.ope.estimators import Estimator

REWARD_WEIGHT, REWARD, WEIGHT, EXPOSURE, SQUARE = range(5)
"""Sums over the units of a bin: reward x weight, reward, exposure x weight, exposure, exposure x weight^2."""


@final
@dataclass(frozen=True, eq=False)
class WeightedSums:
    """Sums over the sessions of a log, for each part of a tally; a part is a log of its own, e.g. a resampled one.

    Parameters
    ----------
    sessions
        Number of sessions.
    reward
        Reward x clipped weight; the residual reward, beyond what the click model predicts, if there is a model.
    covered
        Exposure x clipped weight: the mass of the target policy that the log supports after clipping.
    logged
        Exposure x unclipped weight: the mass of the target policy that was logged.
    mass
        Total mass of the target policy.
    never_logged
        Mass of the target policy outside the support of the log, clipping aside.
    predicted
        Reward of the target policy that the click model predicts; 0 without a model.
    """

    sessions: Float[np.ndarray, " part"]
    reward: Float[np.ndarray, "group clip part"]
    covered: Float[np.ndarray, "group clip part"]
    logged: Float[np.ndarray, "group part"]
    mass: Float[np.ndarray, "group part"]
    never_logged: Float[np.ndarray, "group part"]
    predicted: Float[np.ndarray, " part"]


@final
@dataclass(frozen=True, eq=False)
class ClippingPath:
    """An estimate as a function of the clipping constant, for each part of a tally. Masses are in units of the reward.

    Parameters
    ----------
    sessions
        Number of sessions.
    value
        Estimated reward per session; NaN where nothing that the target policy shows was logged.
    floor
        Smallest possible reward of the target policy: lost mass earns nothing. NaN for the direct method.
    ceiling
        Largest possible reward of the target policy: everything in the lost mass is clicked.
    most
        Reward of the target policy if everything that it shows were clicked.
    never_logged
        Part of `most` that was never logged.
    clipped
        Part of `most` that clipping removes.
    """

    sessions: Float[np.ndarray, " part"]
    value: Float[np.ndarray, "clip part"]
    floor: Float[np.ndarray, "clip part"]
    ceiling: Float[np.ndarray, "clip part"]
    most: Float[np.ndarray, " part"]
    never_logged: Float[np.ndarray, " part"]
    clipped: Float[np.ndarray, "clip part"]


def clipping_path(
    sums: WeightedSums, estimator: Estimator, max_reward: Float[np.ndarray, " group"], *, signed: bool = False
) -> ClippingPath:
    """Turn sums of clipped weights into estimates with their partial-identification range.

    Parameters
    ----------
    sums
        Sums over the sessions of each part.
    estimator
        Decides on self-normalisation and on the click model.
    max_reward
        Largest reward of one unit of a group's mass.
    signed
        Whether weights may be negative, so that lost mass may count in either direction.
    """
    n = sums.sessions
    with np.errstate(invalid="ignore", divide="ignore"):
        reward, covered, logged, mass = sums.reward / n, sums.covered / n, sums.logged / n, sums.mass / n
        never_logged, clipped = sums.never_logged / n, np.maximum(logged[:, None] - covered, 0)
        value = reward
        if estimator.self_normalised:
            value = np.where(covered > 0, reward / covered * mass[:, None], 0)
        has_overlap = covered != 0 if signed else covered > 0
        value = np.where(has_overlap.any(axis=0), value.sum(axis=0), np.nan)
        lost: np.ndarray = np.einsum("g,gmp->mp", max_reward, never_logged[:, None] + clipped)
        floor = reward.sum(axis=0)
        ceiling = floor + lost
        if signed:
            floor = floor - lost
        if estimator.model is not None:
            # the correction by weighted residuals is 0 without overlap, and for the direct method
            correction = np.zeros_like(value) if estimator.weights is None else np.nan_to_num(value)
            value = correction + sums.predicted / n
            # for the lost mass, both the model's prediction and the truth are between 0 and all of it
            lost = np.full_like(lost, np.nan) if estimator.weights is None else lost
            floor, ceiling = value - lost, value + lost
        clipped_reward: np.ndarray = np.einsum("g,gmp->mp", max_reward, clipped)
    return ClippingPath(n, value, floor, ceiling, max_reward @ mass, max_reward @ never_logged, clipped_reward)


def clipped_sums(
    table: Float[np.ndarray, "place bin sum part"], clip: Float[np.ndarray, " clip"]
) -> tuple[Float[np.ndarray, "place clip part"], Float[np.ndarray, "place clip part"]]:
    """Sum reward x clipped weight, and exposure x clipped weight, for all clipping constants.

    Units of bins 0..j have a weight up to clip[j] and keep it; the weight of units in later bins becomes clip[j].
    """
    below, above = _below_above(table)
    limit = clip[:, None]
    reward: np.ndarray = below[:, :, REWARD_WEIGHT] + _times(limit, above[:, :, REWARD])
    covered: np.ndarray = below[:, :, WEIGHT] + _times(limit, above[:, :, EXPOSURE])
    return reward, covered


def effective_share(
    table: Float[np.ndarray, "place bin sum part"],
    clip: Float[np.ndarray, " clip"],
    max_reward: Float[np.ndarray, " place"],
) -> Float[np.ndarray, "clip part"]:
    """Effective over actual sample size: (sum w)^2 / (n sum w^2), impressions weighted by exposure x max_reward."""
    below, above = _below_above(table)
    limit = clip[:, None]
    exposure, first, square = (
        np.tensordot(max_reward, values, 1)
        for values in (
            table[:, :, EXPOSURE].sum(axis=1),
            below[:, :, WEIGHT] + _times(limit, above[:, :, EXPOSURE]),
            below[:, :, SQUARE] + _times(limit**2, above[:, :, EXPOSURE]),
        )
    )
    spread = exposure * square
    return np.where(spread > 0, first**2 / np.where(spread > 0, spread, 1), 0.0)


def _below_above(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sum the bins up to each clipping constant, and the bins above it."""
    return np.cumsum(table, axis=1)[:, :-1], np.cumsum(table[:, ::-1], axis=1)[:, -2::-1]


def _times(limit: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Multiply with the convention that infinity times 0 is 0."""
    product: np.ndarray = np.multiply(limit, values, where=values != 0, out=np.zeros(values.shape))
    return product
