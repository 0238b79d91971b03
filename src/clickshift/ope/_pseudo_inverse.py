"""The pseudo-inverse estimator (PI): the reward of a list is assumed to be a sum over its placements.

    V = 1/n sum_t R_t w(A_t),   w(A) = q^T G^+ 1_A

where 1_A marks the documents of A at their ranks (its placements), q = E_target[1_A] and G = E_logging[1_A 1_A^T].
Lists that were never logged are covered if their placements are linear combinations of logged lists. With G from list
frequencies, the estimator is the least-squares regression of rewards on placements.

Where the logging policy fills each of K positions independently of the others, the inverse has a closed form:

    w(A) = sum_k h(a_k, k) / pi(a_k, k) - (K - 1)

so that propensities by position are all that is needed, and contexts that occur once can be evaluated.

References
----------
Swaminathan, A. et al. (2017). Off-policy evaluation for slate recommendation. NeurIPS.

Vlassis, N. et al. (2021). Control variates for slate off-policy evaluation. NeurIPS.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final, no_type_check

import numpy as np
from jaxtyping import Float
from numba import njit

from clickshift.errors import CapabilityError
from clickshift.ope.grouped_log import GroupedLog, sum_by_index
from clickshift.ope.target_policy import Target, TargetProbabilities
from clickshift.ope.weights import IPWeights, LoggingPolicy, WeightUnits

_TOLERANCE = 1e-22
"""The solver stops at this share of the initial squared gradient."""
_MAX_ITERATIONS = 1000
_ROUNDING = 1e-9
"""Mass that a rank may lack by rounding."""


@final
@dataclass(frozen=True)
class PIWeights:
    """Pseudo-inverse weights of whole lists, which may be negative: logged placements must add up to the target's.

    References
    ----------
    Swaminathan, A. et al. (2017). Off-policy evaluation for slate recommendation. NeurIPS.

    Vlassis, N. et al. (2021). Control variates for slate off-policy evaluation. NeurIPS.
    """

    name: ClassVar[str] = "PI"
    assumption: ClassVar[str] = "the reward of a list is a sum over its documents at their ranks"
    needs_linear: ClassVar[bool] = False

    def units(
        self,
        log: GroupedLog,
        probabilities: TargetProbabilities,
        logging: LoggingPolicy,
        target: Target | None = None,
    ) -> WeightUnits:
        """Return one unit per list, or per entry where the log carries propensities of independent positions.

        Raises
        ------
        CapabilityError
            If a logging policy is given, or propensities of positions that are not independent ("frequencies-only"), or
            if the target leaves ranks of such positions empty ("unfilled-ranks").
        """
        if logging == "propensities" and log.n_ranks == 1:
            return IPWeights().units(log, probabilities, logging, target)  # lists of one document
        if logging == "propensities" and log.propensities.independent:
            return _units_of_independent_positions(log, probabilities)
        if logging != "frequencies":
            raise CapabilityError(
                "PI needs the probability that the logging policy shows two documents together, which is available "
                'from list frequencies (logging="frequencies"), or from propensities by position where the logging '
                'policy fills every position by itself (propensity_kind="independent").',
                code="frequencies-only",
                estimator="PI",
            )
        lists = log.lists
        return WeightUnits(
            unit=log.list_of[:, None],
            exposure=np.ones((1, 1)),
            query=lists.query,
            group=np.zeros(len(lists), np.int64),
            target=np.zeros(len(lists)),
            logging=None,
            mass=probabilities.mass_of_lists,
            max_reward=np.array([log.largest]),
            solve=_PlacementSystem.of(log, probabilities).solve,
            signed=True,
        )


def _units_of_independent_positions(log: GroupedLog, probabilities: TargetProbabilities) -> WeightUnits:
    """Return one unit per entry, whose weight has a closed form."""
    mass, of_lists = probabilities.mass, probabilities.mass_of_lists
    logged = sum_by_index(log.lists.query, log.lists.shown.astype(np.float64), log.n_queries) > 0
    empty = (logged & (mass < of_lists - _ROUNDING)).any(axis=1)
    if empty.any():
        raise CapabilityError(
            "PI by propensities takes targets that fill every rank that the log fills, because the reward of a single "
            f"rank is not identified: the target's lists are shorter, or have holes, in {empty.sum():,} queries. "
            "Choose IP.",
            code="unfilled-ranks",
            count=int(empty.sum()),
        )
    placed = np.append(probabilities.placement[log.cell_pair, log.cell_rank], 0.0)[log.by_entry(log.cell)]
    propensity = log.propensities.ranks("PI")
    ratio = np.divide(placed, propensity, out=np.zeros(placed.shape), where=propensity > 0)
    weight = ratio.sum(axis=1) - (mass.sum(axis=1) - of_lists[:, 0])[log.query]
    return WeightUnits(
        unit=np.arange(len(weight))[:, None],
        exposure=np.ones((1, 1)),
        query=log.query,
        group=np.zeros(len(weight), np.int64),
        target=weight,
        logging=np.ones(len(weight)),
        mass=of_lists,
        max_reward=np.array([log.largest]),
        signed=True,
    )


@final
@dataclass(frozen=True, eq=False)
class _PlacementSystem:
    """The linear system of each query: its logged lists, and the target-policy probability of their placements.

    Parameters
    ----------
    log
        The grouped log.
    order
        Lists, ordered by query.
    ends
        Bounds of each query's lists in `order`.
    target
        Target-policy probability of each cell.
    value
        Reward of a click in each cell, as a share of the largest reward of a list.
    unlogged
        Target-policy probability of placements that no logged list has, weighted by the same share.
    """

    log: GroupedLog
    order: np.ndarray
    ends: np.ndarray
    target: Float[np.ndarray, " cell"]
    value: Float[np.ndarray, " cell"]
    unlogged: Float[np.ndarray, " query"]

    @classmethod
    def of(cls, log: GroupedLog, probabilities: TargetProbabilities) -> _PlacementSystem:
        """Set up the system of every query."""
        pair, rank = log.cell_pair, log.cell_rank
        target = np.ascontiguousarray(probabilities.placement[pair, rank])
        share = log.theta / log.largest
        value = np.ascontiguousarray(share[rank])
        logged = sum_by_index(log.vocabulary.pair_query[pair], (target * value)[:, None], log.n_queries)[:, 0]
        query = log.lists.query
        ends = np.r_[0, np.cumsum(np.bincount(query, minlength=log.n_queries))]
        unlogged = np.maximum(probabilities.mass @ share - logged, 0)
        return cls(log, np.argsort(query, kind="stable"), ends, target, value, unlogged)

    def solve(
        self, exposed: Float[np.ndarray, "unit part"], sessions: Float[np.ndarray, "query part"]
    ) -> tuple[Float[np.ndarray, "unit part"], Float[np.ndarray, "query part"]]:
        """Return weight x list frequency, and the mass of placements that logged lists do not add up to."""
        weighted, missing = np.zeros(exposed.shape), np.repeat(self.unlogged[:, None], exposed.shape[1], axis=1)
        _solve(self.order, self.ends, self.log.cell, self.target, self.value, exposed, sessions, weighted, missing)
        return weighted, np.minimum(missing, 1.0)


@njit(cache=True, nogil=True)
@no_type_check
def _solve(order, ends, cell, target, value, exposed, sessions, weighted, missing):
    """Find the minimum-norm least-squares solution of L y = q for each query by conjugate gradients.

    Column A of L is sqrt(f_A) 1_A with f_A the frequency of list A. Then w(A) = y_A / sqrt(f_A), since
    (L^T L)^+ L^T = L^T (L L^T)^+.
    """
    size = np.diff(ends).max()
    y, gradient, direction, root = np.zeros(size), np.zeros(size), np.zeros(size), np.zeros(size)
    residual, image = np.zeros(len(target)), np.zeros(len(target))
    for p in range(exposed.shape[1]):
        residual[:] = target
        for q in range(len(ends) - 1):
            lists = order[ends[q] : ends[q + 1]]
            n = len(lists)
            if sessions[q, p] <= 0.0:
                continue
            norm = 0.0
            for i in range(n):
                root[i] = np.sqrt(exposed[lists[i], p] / sessions[q, p])
                gradient[i] = root[i] * _sum_over(cell[lists[i]], residual)
                y[i], direction[i] = 0.0, gradient[i]
                norm += gradient[i] ** 2
            stop_norm, steps = _TOLERANCE * norm, 0
            while norm > stop_norm and steps < min(2 * n + 20, _MAX_ITERATIONS):
                for i in range(n):
                    for c in cell[lists[i]]:
                        if c >= 0:
                            image[c] += root[i] * direction[i]
                length = 0.0
                for i in range(n):
                    length += root[i] * direction[i] * _sum_over(cell[lists[i]], image)
                for i in range(n):
                    y[i] += norm / length * direction[i]
                    for c in cell[lists[i]]:
                        if c >= 0:
                            residual[c] -= norm / length * image[c]
                            image[c] = 0.0  # so that a cell that several lists share is moved only once
                new_norm = 0.0
                for i in range(n):
                    gradient[i] = root[i] * _sum_over(cell[lists[i]], residual)
                    new_norm += gradient[i] ** 2
                for i in range(n):
                    direction[i] = gradient[i] + new_norm / norm * direction[i]
                norm = new_norm
                steps += 1
            for i in range(n):
                weighted[lists[i], p] = y[i] * root[i]
                for c in cell[lists[i]]:
                    if c >= 0:
                        missing[q, p] += abs(residual[c]) * value[c]
                        residual[c] = 0.0  # so that a cell is counted only once


@njit(cache=True, nogil=True)
@no_type_check
def _sum_over(cells, values):
    """Sum the values of some cells; negative cell numbers are skipped."""
    total = 0.0
    for c in cells:
        if c >= 0:
            total += values[c]
    return total
