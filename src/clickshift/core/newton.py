"""Newton's method, for logits of probabilities and the like: a climb that never lets the objective fall."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar, final, runtime_checkable

import numpy as np
from jaxtyping import Float

Vector = Float[np.ndarray, " parameter"]
FAR = 2.0
"""The largest move of a logit in one step."""
_ROUNDING = 1e-12
"""A share of the objective: what is lower by less is not lower, or the order of sums would decide where to end."""


@runtime_checkable
class LocalModel(Protocol):
    """The objective as it looks from one point."""

    @property
    def objective(self) -> float: ...

    def promise(self) -> float:
        """How much higher Newton's step is expected to end."""

    def ahead(self) -> Iterator[Vector]:
        """Where to go, and where else if that is lower."""


Seen = TypeVar("Seen", bound=LocalModel)


@dataclass(frozen=True, eq=False)
class NewtonResult:
    """How a climb went: `trace` holds the objective of every accepted point."""

    objective: float
    trace: list[float]
    steps: int
    converged: bool


def maximise(
    look: Callable[[Vector], Seen], start: Vector, *, tolerance: float, max_steps: int
) -> tuple[Seen, NewtonResult]:
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
    return here, NewtonResult(here.objective, trace, steps, converged)


def damped_newton_step(
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


def shift_logits(p: Float[np.ndarray, " n"], step: Float[np.ndarray, " n"], edge: float) -> Float[np.ndarray, " n"]:
    """Probabilities whose logits have moved, kept off 0 and 1."""
    there: np.ndarray = np.clip(1 / (1 + (1 - p) / p * np.exp(-step)), edge, 1 - edge)
    return there


PairValues = Float[np.ndarray, " pair_or_unseen"]


Shared = Float[np.ndarray, " shared"]


Cross = Float[np.ndarray, "shared pair_or_unseen"]


_FAR_TOGETHER = 1.5
"""The largest move of what all sessions share, and of all pairs with it."""


class CascadeParameters(NamedTuple):
    """The parameters of a cascade, or slopes or standard errors of their logits. Satisfaction is 0 where a family has
    none."""

    attractiveness: PairValues
    satisfaction: PairValues
    shared: Shared


class ArrowheadInformation(NamedTuple):
    """Minus the second derivatives of the objective by logits: an arrow, since none between two pairs are kept."""

    attractiveness: PairValues
    satisfaction: PairValues
    cross_attractiveness: Cross
    cross_satisfaction: Cross
    shared: Float[np.ndarray, "shared shared"]

    def blended(self, other: ArrowheadInformation, share: float) -> ArrowheadInformation:
        return ArrowheadInformation(*((1 - share) * mine + share * its for mine, its in zip(self, other, strict=True)))

    def inverted(self) -> tuple[Float[np.ndarray, "2 pair_or_unseen"], Float[np.ndarray, "shared shared"]]:
        """The diagonal of its inverse by attractiveness and satisfaction, and its part of what is shared."""
        shared = covariance(self.profile) if len(self.shared) else self.shared
        of_a = 1 / self.attractiveness + _quadratic(self.cross_attractiveness / self.attractiveness, shared)
        of_s = 1 / self.satisfaction + _quadratic(self.cross_satisfaction / self.satisfaction, shared)
        return np.stack([of_a, of_s]), shared

    @property
    def profile(self) -> Float[np.ndarray, "shared shared"]:
        """What is left of the shared parameters' when all others follow them."""
        left = self.shared - single_threaded_products(
            self.cross_attractiveness, self.cross_attractiveness / self.attractiveness
        )
        left = left - single_threaded_products(self.cross_satisfaction, self.cross_satisfaction / self.satisfaction)
        symmetric: np.ndarray = (left + left.T) / 2
        return symmetric


@final
class NewtonStep:
    """Newton's step by some information, and what it would gain if the objective were as curved as that."""

    def __init__(self, slopes: CascadeParameters, of: ArrowheadInformation) -> None:
        self._slopes, self._of, (a, s, shared) = slopes, of, slopes
        by_a, by_s = a / of.attractiveness, s / of.satisfaction
        rest = shared - single_threaded_products(of.cross_attractiveness, by_a[None])[:, 0]
        rest = rest - single_threaded_products(of.cross_satisfaction, by_s[None])[:, 0]
        self._shared = damped_newton_step(of.profile, rest) if len(rest) else rest
        self.gain = float((a * by_a).sum() + (s * by_s).sum() + (rest * self._shared).sum()) / 2

    def step(self) -> CascadeParameters:
        """No logit moves far at once; attractiveness and satisfaction follow what is shared."""
        (a, s, _), of = self._slopes, self._of
        shared = self._shared * min(1.0, _FAR_TOGETHER / max(float(np.abs(self._shared).max(initial=0.0)), 1e-300))
        by_a = (a - np.einsum("k,kp->p", shared, of.cross_attractiveness)) / of.attractiveness
        by_s = (s - np.einsum("k,kp->p", shared, of.cross_satisfaction)) / of.satisfaction
        return CascadeParameters(np.clip(by_a, -FAR, FAR), np.clip(by_s, -FAR, FAR), shared)


@final
class EMDamping:
    """How much of what is hidden a step takes for known: none of it is Newton's step, all of it is EM's.

    Newton's goes too far where pairs often meet in the same sessions, whose curvature together is left out.
    """

    def __init__(self) -> None:
        self._share, self._before, self._gain = 0.0, 0.0, 0.0

    def share(self, objective: float) -> float:
        """Less, if the last step gained what was expected of it; more, if it did not."""
        if self._gain > 0:
            met = (objective - self._before) / self._gain
            if met > 0.75:
                self._share = self._share / 2 if self._share > 0.1 else 0.0
            elif met < 0.25:
                self.grow()
        return self._share

    def expect(self, objective: float, gain: float) -> None:
        self._before, self._gain = objective, gain

    def grow(self) -> None:
        self._share, self._gain = min(1.0, max(0.25, 2 * self._share)), 0.0


def single_threaded_products(
    rows: Float[np.ndarray, "k pair"], others: Float[np.ndarray, "l pair"]
) -> Float[np.ndarray, "k l"]:
    """rows others', by one thread: those of a linear algebra library would spin on the cores that E-steps need."""
    products: np.ndarray = np.einsum("kp,lp->kl", rows, others)
    return products


def _quadratic(rows: Cross, middle: Float[np.ndarray, "shared shared"]) -> PairValues:
    """The diagonal of rows' middle rows: what the shared parameters' uncertainty adds to each pair's."""
    added: np.ndarray = np.einsum("kp,kl,lp->p", rows, middle, rows) if len(rows) else np.zeros(rows.shape[1])
    positive: np.ndarray = np.maximum(added, 0)
    return positive
