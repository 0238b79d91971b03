"""Newton's method, for logits of probabilities and the like: a climb that never lets the objective fall."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Float

Vector = Float[np.ndarray, " parameter"]
FAR = 2.0
"""The largest move of a logit in one step."""
_ROUNDING = 1e-12
"""A share of the objective: what is lower by less is not lower, or the order of sums would decide where to end."""


@runtime_checkable
class View(Protocol):
    """The objective as it looks from one point."""

    @property
    def objective(self) -> float: ...

    def promise(self) -> float:
        """How much higher Newton's step is expected to end."""

    def ahead(self) -> Iterator[Vector]:
        """Where to go, and where else if that is lower."""


Seen = TypeVar("Seen", bound=View)


@dataclass(frozen=True, eq=False)
class Ascent:
    """How a climb went: `trace` holds the objective of every accepted point."""

    objective: float
    trace: list[float]
    steps: int
    converged: bool


def climb(look: Callable[[Vector], Seen], start: Vector, *, tolerance: float, max_steps: int) -> tuple[Seen, Ascent]:
    """Go on until a step promised less than `tolerance` and was taken, or until there is nowhere higher to go.

    `max_steps` are looks.
    """
    here, steps, converged = look(start), 1, False
    trace = [here.objective]
    while not converged and steps < max_steps:
        converged = here.promise() < tolerance
        for point in here.ahead():
            there = look(point)
            steps += 1
            if there.objective >= here.objective - _ROUNDING * abs(here.objective):
                here = there
                trace.append(here.objective)
                break
        else:
            converged = True
    return here, Ascent(here.objective, trace, steps, converged)


def solved(
    information: Float[np.ndarray, "free free"], slope: Float[np.ndarray, " free"]
) -> Float[np.ndarray, " free"]:
    """The step to where the slope would be 0, made shorter where the objective is not curved down."""
    from scipy.linalg import LinAlgError, cho_factor, cho_solve

    ridge, diagonal = 0.0, np.abs(np.diag(information)) + 1e-9
    while True:
        try:
            step: np.ndarray = cho_solve(cho_factor(information + np.diag(ridge * diagonal)), slope)
            return step
        except LinAlgError:
            ridge = max(10 * ridge, 1e-6)


def covariance(information: Float[np.ndarray, "free free"]) -> Float[np.ndarray, "free free"]:
    """Its inverse; what cannot be told has a variance that says so, a logit's standard error of 10."""
    from scipy.linalg import LinAlgError, cho_factor, cho_solve

    try:
        inverse: np.ndarray = cho_solve(cho_factor(information), np.eye(len(information)))
    except LinAlgError:
        curvature, axes = np.linalg.eigh(information)
        inverse = np.einsum("ij,j,kj->ik", axes, 1 / np.maximum(curvature, 0.01), axes)
    return inverse


def moved(p: Float[np.ndarray, " n"], step: Float[np.ndarray, " n"], edge: float) -> Float[np.ndarray, " n"]:
    """Probabilities whose logits have moved, kept off 0 and 1."""
    there: np.ndarray = np.clip(1 / (1 + (1 - p) / p * np.exp(-step)), edge, 1 - edge)
    return there
