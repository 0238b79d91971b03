"""The pseudo-inverse estimator: lists whose reward is a sum over their places, told from whole lists' rewards.

Swaminathan et al. (NeurIPS 2017): V = 1/n sum_t R_t w(A_t),  w(A) = q^T G^+ 1_A,  where 1_A marks the documents of A at
their ranks, q = E_target[1_A] and G = E_logging[1_A 1_A^T]. Lists never logged are told of if their places can be put
together from logged ones. With G from list frequencies it is the least-squares fit of rewards by places.
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
from clickshift.ope.weights import LoggingPolicy, WeightUnits

_ENOUGH = 1e-22
"""Of the squared gradient that the solver starts with."""
_MOST_STEPS = 1000


@final
@dataclass(frozen=True)
class PIWeights:
    """Weights of whole lists, which may be negative: what must be logged are places that add up to the target's."""

    name: ClassVar[str] = "PI"
    assumption: ClassVar[str] = "what a list earns is a sum over its documents at their ranks"
    needs_linear: ClassVar[bool] = False

    def strata(
        self, logged: GroupedLog, aim: TargetProbabilities, logging: LoggingPolicy, target: Target | None = None
    ) -> WeightUnits:
        if logging != "frequencies":
            raise CapabilityError(
                "PI needs how often the logging policy shows two documents together: only list frequencies tell that "
                "here. Leave the logging policy out."
            )
        lists = logged.lists
        places = _PlacementSystem.of(logged, aim)
        return WeightUnits(
            logged.list_of[:, None],
            np.ones((1, 1)),
            lists.query,
            np.zeros(len(lists), np.int64),
            np.zeros(len(lists)),
            None,
            aim.mass[:, :1],
            np.array([logged.largest]),
            places.solve,
        )


@final
@dataclass(frozen=True, eq=False)
class _PlacementSystem:
    """The linear system of each query: its logged lists, and how likely the target shows each of their places."""

    logged: GroupedLog
    order: np.ndarray
    """Lists, query by query."""
    ends: np.ndarray
    aimed: Float[np.ndarray, " cell"]
    value: Float[np.ndarray, " cell"]
    """What a click there earns, as a share of the most that a list can."""
    unlogged: Float[np.ndarray, " query"]
    """Of the target's places, those that no logged list has, by the same share."""

    @classmethod
    def of(cls, logged: GroupedLog, aim: TargetProbabilities) -> _PlacementSystem:
        pair, rank = logged.cell_pair, logged.cell_rank
        aimed = np.ascontiguousarray(aim.placement[pair, rank])
        share = logged.theta / logged.largest
        value = np.ascontiguousarray(share[rank])
        told = sum_by_index(logged.vocabulary.pair_query[pair], (aimed * value)[:, None], logged.n_queries)[:, 0]
        query = logged.lists.query
        ends = np.r_[0, np.cumsum(np.bincount(query, minlength=logged.n_queries))]
        unlogged = np.maximum(aim.mass @ share - told, 0)
        return cls(logged, np.argsort(query, kind="stable"), ends, aimed, value, unlogged)

    def solve(
        self, exposed: Float[np.ndarray, "unit part"], sessions: Float[np.ndarray, "query part"]
    ) -> tuple[Float[np.ndarray, "unit part"], Float[np.ndarray, "query part"]]:
        """Weights times list frequencies, and the mass of places that logged lists do not add up to."""
        weighted, missing = np.zeros(exposed.shape), np.repeat(self.unlogged[:, None], exposed.shape[1], axis=1)
        _solve(self.order, self.ends, self.logged.cell, self.aimed, self.value, exposed, sessions, weighted, missing)
        return weighted, np.minimum(missing, 1.0)


@njit(cache=True, nogil=True)
@no_type_check
def _solve(order, ends, cell, aimed, value, exposed, sessions, weighted, missing):
    """For each query the shortest y that brings L y nearest to q, by conjugate gradients; column A of L is
    sqrt(f_A) 1_A with f_A the frequency of the list. Then w(A) = y_A / sqrt(f_A), since (L^T L)^+ L^T = L^T (L L^T)^+.
    """
    size = np.diff(ends).max()
    y, gradient, direction, root = np.zeros(size), np.zeros(size), np.zeros(size), np.zeros(size)
    rest, image = np.zeros(len(aimed)), np.zeros(len(aimed))
    for p in range(exposed.shape[1]):
        rest[:] = aimed
        for q in range(len(ends) - 1):
            lists = order[ends[q] : ends[q + 1]]
            n = len(lists)
            if sessions[q, p] <= 0.0:
                continue
            norm = 0.0
            for i in range(n):
                root[i] = np.sqrt(exposed[lists[i], p] / sessions[q, p])
                gradient[i] = root[i] * _sum_over(cell[lists[i]], rest)
                y[i], direction[i] = 0.0, gradient[i]
                norm += gradient[i] ** 2
            least, steps = _ENOUGH * norm, 0
            while norm > least and steps < min(2 * n + 20, _MOST_STEPS):
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
                            rest[c] -= norm / length * image[c]
                            image[c] = 0.0  # so that a place that several lists share is moved once
                after = 0.0
                for i in range(n):
                    gradient[i] = root[i] * _sum_over(cell[lists[i]], rest)
                    after += gradient[i] ** 2
                for i in range(n):
                    direction[i] = gradient[i] + after / norm * direction[i]
                norm = after
                steps += 1
            for i in range(n):
                weighted[lists[i], p] = y[i] * root[i]
                for c in cell[lists[i]]:
                    if c >= 0:
                        missing[q, p] += abs(rest[c]) * value[c]
                        rest[c] = 0.0  # counted once


@njit(cache=True, nogil=True)
@no_type_check
def _sum_over(cells, values):
    total = 0.0
    for c in cells:
        if c >= 0:
            total += values[c]
    return total
