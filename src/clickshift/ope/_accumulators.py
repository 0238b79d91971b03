"""From sums of clipped weights to an estimate, for any number of clipping constants and resampled logs at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float

from clickshift.ope.estimators import Estimator

REWARD_WEIGHT, REWARD, WEIGHT, EXPOSURE, SQUARE = range(5)
"""What is added up over units, in bins of their weight."""


@final
@dataclass(frozen=True, eq=False)
class WeightedSums:
    """Over the sessions of a log, and for each part of a tally. A part is a log of its own, such as a resampled one."""

    sessions: Float[np.ndarray, " part"]
    reward: Float[np.ndarray, "group clip part"]
    """Reward x clipped weight; beyond what a model expects, if there is one."""
    covered: Float[np.ndarray, "group clip part"]
    """Exposure x clipped weight: how much of the target the log tells of."""
    total: Float[np.ndarray, "group part"]
    """Exposure x weight."""
    mass: Float[np.ndarray, "group part"]
    """All of the target."""
    never: Float[np.ndarray, "group part"]
    """What of it the log cannot tell of, clipping aside."""
    expected: Float[np.ndarray, " part"]
    """What a model expects of the target; 0 without a model."""


@final
@dataclass(frozen=True, eq=False)
class ClippingPath:
    """An estimate along the clipping constants, for each part of a tally. Masses are in units of the reward."""

    sessions: Float[np.ndarray, " part"]
    value: Float[np.ndarray, "clip part"]
    """NaN where nothing of the target was logged."""
    floor: Float[np.ndarray, "clip part"]
    """The least that the target can earn: as if lost mass earned nothing. NaN for the direct method."""
    ceiling: Float[np.ndarray, "clip part"]
    """The most that it can earn: as if all lost mass were clicked."""
    most: Float[np.ndarray, " part"]
    """What the target would earn if all that it shows were clicked."""
    never: Float[np.ndarray, " part"]
    """Of that, the part that was never logged."""
    clipped: Float[np.ndarray, "clip part"]
    """And the part that clipping takes away."""


def clipping_path(
    sums: WeightedSums, estimator: Estimator, worth: Float[np.ndarray, " group"], *, signed: bool = False
) -> ClippingPath:
    """`worth` is the most that one unit of a group's mass can earn; `signed` weights may count lost mass either way."""
    n = sums.sessions
    with np.errstate(invalid="ignore", divide="ignore"):
        reward, covered, total, mass = sums.reward / n, sums.covered / n, sums.total / n, sums.mass / n
        never, clipped = sums.never / n, np.maximum(total[:, None] - covered, 0)
        value = reward
        if estimator.self_normalised:
            value = np.where(covered > 0, reward / covered * mass[:, None], 0)
        told = covered != 0 if signed else covered > 0
        value = np.where(told.any(axis=0), value.sum(axis=0), np.nan)
        lost: np.ndarray = np.einsum("g,gmp->mp", worth, never[:, None] + clipped)
        floor = reward.sum(axis=0)
        ceiling = floor + lost
        if signed:
            floor = floor - lost
        if estimator.model is not None:
            # what the log says beyond the model: nothing where it does not overlap, or is not asked
            beyond = np.zeros_like(value) if estimator.weights is None else np.nan_to_num(value)
            value = beyond + sums.expected / n
            # the model says something between 0 and all of what is lost, and so does the truth
            lost = np.full_like(lost, np.nan) if estimator.weights is None else lost
            floor, ceiling = value - lost, value + lost
        clipped_mass: np.ndarray = np.einsum("g,gmp->mp", worth, clipped)
    return ClippingPath(n, value, floor, ceiling, worth @ mass, worth @ never, clipped_mass)


def clipped_sums(
    table: Float[np.ndarray, "place bin sum part"], clip: Float[np.ndarray, " clip"]
) -> tuple[Float[np.ndarray, "place clip part"], Float[np.ndarray, "place clip part"]]:
    """Sums of reward and of exposure, times clipped weights, for all constants.

    Units of bins 0..j have a weight up to clip[j] and keep it; those of later bins have clip[j] instead.
    """
    below, above = _below_above(table)
    limit = clip[:, None]
    reward: np.ndarray = below[:, :, REWARD_WEIGHT] + _times(limit, above[:, :, REWARD])
    covered: np.ndarray = below[:, :, WEIGHT] + _times(limit, above[:, :, EXPOSURE])
    return reward, covered


def effective_share(
    table: Float[np.ndarray, "place bin sum part"],
    clip: Float[np.ndarray, " clip"],
    worth: Float[np.ndarray, " place"],
) -> Float[np.ndarray, "clip part"]:
    """Effective sample size over sample size: (sum w)^2 / (n sum w^2), impressions weighted by exposure and worth."""
    below, above = _below_above(table)
    limit = clip[:, None]
    exposure, first, square = (
        np.tensordot(worth, values, 1)
        for values in (
            table[:, :, EXPOSURE].sum(axis=1),
            below[:, :, WEIGHT] + _times(limit, above[:, :, EXPOSURE]),
            below[:, :, SQUARE] + _times(limit**2, above[:, :, EXPOSURE]),
        )
    )
    spread = exposure * square
    return np.where(spread > 0, first**2 / np.where(spread > 0, spread, 1), 0.0)


def _below_above(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.cumsum(table, axis=1)[:, :-1], np.cumsum(table[:, ::-1], axis=1)[:, -2::-1]


def _times(limit: np.ndarray, rest: np.ndarray) -> np.ndarray:
    """Infinity times nothing is nothing."""
    product: np.ndarray = np.multiply(limit, rest, where=rest != 0, out=np.zeros(rest.shape))
    return product
