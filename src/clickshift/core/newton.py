"""Newton's method for maximum likelihood on the logit scale, with steps that never lower the objective.

`maximise` is the general loop. The second part of the module is for problems whose information matrix has the form of
an arrowhead: a diagonal for the parameters of the pairs, a block for the few parameters that all sessions share, and
the cross terms between the two. Second derivatives between two pairs are left out. Where they are small, one division
per pair and a small linear system for the shared parameters solve for the whole step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar, final, runtime_checkable

import numpy as np
from jaxtyping import Float

Vector = Float[np.ndarray, " parameter"]
MAX_PROBABILITY = 1 - 1e-15
"""Largest estimate of a probability: with some 1e15 successes it would be rounded to 1, whose logit is infinite."""
MAX_LOGIT_STEP = 2.0
"""Largest change of a logit in one step."""
MAX_HALVINGS = 8
"""Number of lengths of a step that are tried, each half of the one before."""
_ROUNDING_ERROR = 1e-12
"""Relative rounding error of the objective: a decrease by less does not count, or the order of sums would decide."""
_SINGULAR = 1e10
"""Variance inflation factor from which on an information matrix counts as singular: its inverse is rounding error."""
_MAX_STALLED = 3
"""Number of steps in a row whose gain is below the rounding error, before the maximisation ends."""


@runtime_checkable
class LocalModel(Protocol):
    """The objective at one point, with a local model of it that proposes the next points."""

    @property
    def objective(self) -> float:
        """Value of the objective at the point."""

    def expected_gain(self) -> float:
        """Return the gain that the Newton step is expected to make."""

    def candidates(self) -> Iterator[Vector]:
        """Yield candidates for the next point: the Newton step first, then alternatives if the objective falls."""


_Local = TypeVar("_Local", bound=LocalModel)


@dataclass(frozen=True, eq=False)
class NewtonResult:
    """Course of a maximisation by Newton's method.

    Parameters
    ----------
    objective
        Objective at the last accepted point.
    trace
        Objective at each accepted point.
    steps
        Number of evaluations of the objective.
    converged
        Whether the tolerance was reached, or no candidate was better by more than the rounding error.
    """

    objective: float
    trace: list[float]
    steps: int
    converged: bool


def maximise(
    look: Callable[[Vector], _Local],
    start: Vector,
    *,
    tolerance: float,
    max_steps: int,
    scale: float = 0.0,
    last_step: bool = True,
) -> tuple[_Local, NewtonResult]:
    """Maximise an objective by Newton's method; a point is accepted only if the objective does not fall.

    Parameters
    ----------
    look
        Function that evaluates the objective at a point and returns its local model.
    start
        First point.
    tolerance
        Convergence threshold: the last step taken has an expected gain below it. Three steps in a row that
        gain less than the rounding error of the objective end the maximisation, too.
    max_steps
        Largest number of evaluations.
    scale
        Sum of the weights of all terms of the objective. Terms are rounded relative to their weights, so this limits
        the accuracy where the objective itself is near 0, e.g. if one session is repeated 1e12 times.
    last_step
        Whether the step whose expected gain is below the tolerance is taken.

    Returns
    -------
    tuple[LocalModel, NewtonResult]
        Local model at the last accepted point, and the course of the maximisation.
    """
    current, steps, stalled, converged = look(start), 1, 0, False
    trace = [current.objective]
    while not converged and steps < max_steps:
        rounding_error = _ROUNDING_ERROR * max(abs(current.objective), scale)
        converged = current.expected_gain() < tolerance
        if converged and not last_step:
            break
        for point in current.candidates():
            candidate = look(point)
            steps += 1
            if candidate.objective >= current.objective - rounding_error:
                # where parameters are at the limits of their range, a gain is expected for ever
                stalled = stalled + 1 if candidate.objective <= current.objective + rounding_error else 0
                converged = converged or stalled == _MAX_STALLED
                current = candidate
                trace.append(current.objective)
                break
        else:
            converged = True
    return current, NewtonResult(current.objective, trace, steps, converged)


def halved_steps(
    step: Float[np.ndarray, " free"], *, longest: float = MAX_LOGIT_STEP, times: int = MAX_HALVINGS
) -> Iterator[Float[np.ndarray, " free"]]:
    """Yield a step, then half of it, a quarter, and so on: the candidates of a `LocalModel`.

    Parameters
    ----------
    step
        Newton step.
    longest
        Largest change of one parameter; a longer step is shortened.
    times
        Number of steps to yield.

    Examples
    --------
    >>> [step.tolist() for step in halved_steps(np.array([4.0, 1.0]), times=2)]
    [[2.0, 0.5], [1.0, 0.25]]
    """
    step = step * min(1.0, longest / max(float(np.abs(step).max(initial=0.0)), 1e-300))
    for _ in range(times):
        yield step
        step = step / 2


def damped_newton_step(
    information: Float[np.ndarray, "free free"], slope: Float[np.ndarray, " free"]
) -> Float[np.ndarray, " free"]:
    """Return the Newton step, damped by a ridge if the information matrix is not positive definite.

    Parameters
    ----------
    information
        Negative Hessian of the objective.
    slope
        Gradient of the objective.

    Examples
    --------
    >>> damped_newton_step(np.diag([4.0, 1.0]), np.array([1.0, 1.0])).tolist()
    [0.25, 1.0]
    """
    step, ridge = _solve_positive_definite(information, slope), 0.0
    while step is None:
        ridge = max(10 * ridge, 1e-6)
        step = _solve_positive_definite(information + np.diag(ridge * (np.abs(np.diag(information)) + 1e-9)), slope)
    return step


def covariance(information: Float[np.ndarray, "free free"]) -> Float[np.ndarray, "free free"]:
    """Return the covariance matrix: the inverse of the information matrix.

    If the matrix is not positive definite, or only up to rounding, eigenvalues are raised to 0.01, so that directions
    that are not identified have a standard error of 10 on the logit scale.

    Parameters
    ----------
    information
        Negative Hessian of the log-likelihood.
    """
    inverse = _solve_positive_definite(information, np.eye(len(information)))
    if inverse is None or (np.diag(information) * np.diag(inverse) > _SINGULAR).any():
        curvature, axes = np.linalg.eigh(information)
        inverse = np.einsum("ij,j,kj->ik", axes, 1 / np.maximum(curvature, 0.01), axes)
    return inverse


def _solve_positive_definite(matrix: Float[np.ndarray, "n n"], right: np.ndarray) -> np.ndarray | None:
    """Solve a linear system by the Cholesky decomposition; None if the matrix is not positive definite.

    It calls LAPACK itself: `scipy.linalg.cho_factor` takes ten times as long for a handful of parameters.
    """
    from scipy.linalg.lapack import dpotrf, dpotrs

    if not len(matrix):
        return right
    factor, failed = dpotrf(np.asarray_chkfinite(matrix), clean=False)
    if failed:
        return None
    solution: np.ndarray = dpotrs(factor, right)[0]
    return solution


def shift_logits(p: Float[np.ndarray, " n"], step: Float[np.ndarray, " n"], edge: float) -> Float[np.ndarray, " n"]:
    """Add a step to the logits of probabilities, and clip the result to [edge, 1 - edge].

    Parameters
    ----------
    p
        Probabilities.
    step
        Change of their logits.
    edge
        Smallest distance to 0 and 1.

    Examples
    --------
    >>> shift_logits(np.array([0.5, 0.5]), np.array([0.0, 50.0]), 1e-3).tolist()
    [0.5, 0.999]
    """
    shifted: np.ndarray = np.clip(1 / (1 + (1 - p) / p * np.exp(-step)), edge, 1 - edge)
    return shifted


PairValues = Float[np.ndarray, " pair_or_unseen"]
"""A number for each pair; the last one is for unseen pairs."""
Shared = Float[np.ndarray, " shared"]
"""A number for each parameter that all sessions share."""
Cross = Float[np.ndarray, "shared pair_or_unseen"]
"""Second derivatives by a shared parameter and by that of a pair."""
_MAX_SHARED_STEP = 1.5
"""Largest change of a shared parameter's logit in one step, with which all pairs change too."""


class CascadeParameters(NamedTuple):
    """Parameters of a cascade model, or the gradient, step or standard errors of their logits.

    Parameters
    ----------
    attractiveness
        Attractiveness of each pair.
    satisfaction
        Satisfaction of each pair; 0 if the model has none.
    shared
        Parameters that all sessions share, such as continuation probabilities.
    """

    attractiveness: PairValues
    satisfaction: PairValues
    shared: Shared


class ArrowheadInformation(NamedTuple):
    """Information matrix on the logit scale (negative second derivatives), without the terms between two pairs.

    Parameters
    ----------
    attractiveness, satisfaction
        Diagonal: one number for each pair.
    cross_attractiveness, cross_satisfaction
        Cross terms between the shared parameters and those of the pairs.
    shared
        Block of the shared parameters.
    """

    attractiveness: PairValues
    satisfaction: PairValues
    cross_attractiveness: Cross
    cross_satisfaction: Cross
    shared: Float[np.ndarray, "shared shared"]

    def blended(self, other: ArrowheadInformation, share: float) -> ArrowheadInformation:
        """Return the weighted mean with another information matrix, which has the weight `share`."""
        return ArrowheadInformation(*((1 - share) * a + share * b for a, b in zip(self, other, strict=True)))

    def inverted(self) -> tuple[Float[np.ndarray, "2 pair_or_unseen"], Float[np.ndarray, "shared shared"]]:
        """Return the variances of attractiveness and satisfaction, and the covariance of the shared parameters."""
        shared = covariance(self.profile) if len(self.shared) else self.shared
        attractiveness = 1 / self.attractiveness + _quadratic_form_diagonal(
            self.cross_attractiveness / self.attractiveness, shared
        )
        satisfaction = 1 / self.satisfaction + _quadratic_form_diagonal(
            self.cross_satisfaction / self.satisfaction, shared
        )
        return np.stack([attractiveness, satisfaction]), shared

    @property
    def profile(self) -> Float[np.ndarray, "shared shared"]:
        """Profile information of the shared parameters: the Schur complement, with all others maximised out."""
        complement = self.shared - single_threaded_products(
            self.cross_attractiveness, self.cross_attractiveness / self.attractiveness
        )
        if self.cross_satisfaction.any():  # 0 where satisfaction does not depend on the shared parameters
            complement = complement - single_threaded_products(
                self.cross_satisfaction, self.cross_satisfaction / self.satisfaction
            )
        symmetric: np.ndarray = (complement + complement.T) / 2
        return symmetric


@final
class NewtonStep:
    """Newton step by an arrowhead information matrix, and the gain that a quadratic objective would make.

    Parameters
    ----------
    gradient
        Gradient of the objective by the logits.
    information
        Information matrix to solve with.

    Attributes
    ----------
    gain
        Expected gain: half of gradient' information^-1 gradient.
    """

    def __init__(self, gradient: CascadeParameters, information: ArrowheadInformation) -> None:
        self._gradient, self._information, (a, s, shared) = gradient, information, gradient
        step_a, step_s = a / information.attractiveness, s / information.satisfaction
        profile_gradient = shared - single_threaded_products(information.cross_attractiveness, step_a[None])[:, 0]
        profile_gradient = (
            profile_gradient - single_threaded_products(information.cross_satisfaction, step_s[None])[:, 0]
        )
        self._shared = (
            damped_newton_step(information.profile, profile_gradient) if len(profile_gradient) else profile_gradient
        )
        pair_gain = (a * step_a).sum() + (s * step_s).sum()
        self.gain = float(pair_gain + (profile_gradient * self._shared).sum()) / 2

    def step(self) -> CascadeParameters:
        """Return the step of the logits, limited in size; those of pairs follow the limited shared parameters."""
        (a, s, _), information = self._gradient, self._information
        shared = self._shared * min(1.0, _MAX_SHARED_STEP / max(float(np.abs(self._shared).max(initial=0.0)), 1e-300))
        step_a = (a - np.einsum("k,kp->p", shared, information.cross_attractiveness)) / information.attractiveness
        step_s = (s - np.einsum("k,kp->p", shared, information.cross_satisfaction)) / information.satisfaction
        return CascadeParameters(
            np.clip(step_a, -MAX_LOGIT_STEP, MAX_LOGIT_STEP), np.clip(step_s, -MAX_LOGIT_STEP, MAX_LOGIT_STEP), shared
        )


@final
class EMDamping:
    """Adaptive weight of the complete-data information in a step: 0 is a Newton step, 1 is an EM step.

    A Newton step goes too far if pairs often co-occur in sessions, because their joint curvature is left out. The
    complete-data information treats the hidden events as observed, which shortens the step.
    """

    def __init__(self) -> None:
        self._share, self._before, self._gain = 0.0, 0.0, 0.0

    def share(self, objective: float) -> float:
        """Return the weight for the next step: lower if the last step made its expected gain, higher if it did not."""
        if self._gain > 0:
            gain_ratio = (objective - self._before) / self._gain
            if gain_ratio > 0.75:
                self._share = self._share / 2 if self._share > 0.1 else 0.0
            elif gain_ratio < 0.25:
                self.grow()
        return self._share

    def expect(self, objective: float, gain: float) -> None:
        """Record the objective before a step and the step's expected gain."""
        self._before, self._gain = objective, gain

    def grow(self) -> None:
        """Raise the weight after a step that failed."""
        self._share, self._gain = min(1.0, max(0.25, 2 * self._share)), 0.0


def single_threaded_products(
    rows: Float[np.ndarray, "k pair"], others: Float[np.ndarray, "l pair"]
) -> Float[np.ndarray, "k l"]:
    """Return the matrix product rows others', computed in one thread.

    The threads of a linear algebra library would spin on the cores that the E-step needs.

    Parameters
    ----------
    rows, others
        Matrices with one column per pair.
    """
    products: np.ndarray = np.einsum("kp,lp->kl", rows, others)
    return products


def _quadratic_form_diagonal(rows: Cross, middle: Float[np.ndarray, "shared shared"]) -> PairValues:
    """Return the diagonal of rows' middle rows: the variance that the shared parameters add to each pair's."""
    if not rows.any():
        return np.zeros(rows.shape[1])
    added = np.einsum("kp,kp->p", rows, np.einsum("kl,lp->kp", middle, rows))
    positive: np.ndarray = np.maximum(added, 0)
    return positive
