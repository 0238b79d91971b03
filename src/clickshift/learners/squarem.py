"""SQUAREM: EM in large steps (Varadhan & Roland 2008), which never lets the objective fall."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

Vector = Float[np.ndarray, " parameter"]
Step = Callable[[Vector], tuple[Vector, float]]
"""One EM step: the next parameters, and the objective of the ones given (it comes for free with the E-step)."""

_EDGE = 1e-9
_PATIENCE = 2
"""One slow cycle may come before a fast one: on a million sessions UBM would stop two nats short."""


@dataclass(frozen=True, eq=False)
class Ascent:
    """Where it ended, and how it went: `trace` holds the objective of every accepted point."""

    parameters: Vector
    objective: float
    trace: list[float]
    steps: int
    converged: bool


def ascend(step: Step, start: Vector, *, tolerance: float, max_steps: int) -> Ascent:
    """Repeat EM steps on probabilities until two cycles in a row gain less than `tolerance` nats each, in total.

    Two EM steps give a direction and its curvature; the third starts where they point to, if the objective there is not
    below that of the first step, else where the second step ended. Extrapolation is on logits: probabilities stay
    inside (0, 1).
    """
    here, trace, steps = start, [], 0
    before, slow = -np.inf, 0  # the objective where the last cycle began; how many cycles in a row gained little
    while True:
        first, value = step(here)
        steps += 1
        trace.append(value)
        slow = slow + 1 if value - before < tolerance else 0
        if slow == _PATIENCE or steps >= max_steps:
            return Ascent(here, value, trace, steps, slow == _PATIENCE)
        before = value
        second, value_first = step(first)
        steps += 1
        trace.append(value_first)
        ahead = _extrapolate(here, first, second)
        here = second
        if ahead is not None:
            landed, value_ahead = step(ahead)
            steps += 1
            if value_ahead >= value_first:
                trace.append(value_ahead)
                here = landed


def _extrapolate(here: Vector, first: Vector, second: Vector) -> Vector | None:
    x0, x1, x2 = (_logit(p) for p in (here, first, second))
    move, bend = x1 - x0, (x2 - x1) - (x1 - x0)
    size = float((bend * bend).sum())  # not @: threads of a linear algebra library take longer to wake up than this
    if size == 0:
        return None
    length = max(1.0, float(np.sqrt((move * move).sum() / size)))
    if length == 1.0:
        return None
    ahead: np.ndarray = 1 / (1 + np.exp(-np.clip(x0 + 2 * length * move + length**2 * bend, -20.0, 20.0)))
    return ahead


def _logit(p: Vector) -> Vector:
    p = np.clip(p, _EDGE, 1 - _EDGE)
    logit: np.ndarray = np.log(p) - np.log1p(-p)
    return logit
