"""What the error of a click model's own parameters adds to an interval, where weights are made of them.

Each number that all lists share, such as the examination of a rank, is moved by a part of its standard error, and the
estimate with it: the delta method. A resampled log gets a draw of each number; the same one for every estimator and
target, so that differences stay paired. Errors of single documents are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from clickshift.core.rng import generator
from clickshift.models.perturb import STEP, nearby
from clickshift.ope.accumulators import Path
from clickshift.ope.bound_estimator import Prepared
from clickshift.ope.click_ratio import CIPS
from clickshift.ope.target_policy import Aim, Target

DRAWN = ("value", "floor", "ceiling")
"""What is followed through resampled logs."""


def with_model_error(
    drawn: Sequence[np.ndarray], prepared: Prepared, path: Path, aim: Aim, target: Target, clip: np.ndarray, seed: int
) -> list[np.ndarray]:
    """Replicates of what is drawn, spread by the errors of the model that the weights ask."""
    spread = [np.array(values) for values in drawn]
    for number, slopes in enumerate(_slopes(prepared, path, aim, target, clip)):
        normal = generator(seed, "model error", number).standard_normal(spread[0].shape[1])
        for values, slope in zip(spread, slopes, strict=True):
            values += slope[:, None] * normal
    return spread


def has_model_error(prepared: Prepared) -> bool:
    """Whether the weights ask a model that knows the errors of its parameters."""
    weights = prepared.estimator.weights
    return isinstance(weights, CIPS) and next(nearby(weights.model), None) is not None


def _slopes(
    prepared: Prepared, path: Path, aim: Aim, target: Target, clip: np.ndarray
) -> Iterator[list[Float[np.ndarray, " clip"]]]:
    """By how much one error of one number moves what is drawn."""
    weights, logged = prepared.estimator.weights, prepared.logged
    if not isinstance(weights, CIPS):
        return
    for model in nearby(weights.model):
        strata = CIPS(model).strata(logged, aim, "frequencies", target)
        there = replace(prepared, strata=strata).path(logged.total, clip)
        yield [(getattr(there, name) - getattr(path, name))[:, 0] / STEP for name in DRAWN]
