"""What probably happened in the tails, where nothing was clicked any more: the E-step, and how sure it is.

With u = 1 - attractiveness, g the continuation after a skip, and h that after the last click (1 for a session without
clicks, which begins at the top):

    B_r = u_r (1 - g + g B_{r+1})     no click from r on, if r is examined
    z   = 1 - h + h B_start           no click in the tail
    e_r = (h / z) F_r B_r             r was examined, given that;  F_start = 1, F_{r+1} = F_r u_r g

DBN, SDBN, DCM and CCM differ in g and h alone. With P = dB / d ln g and Q = dP / d ln g,

    P_r = u_r (g B_{r+1} - g + g P_{r+1}),   Q_r = u_r (g B_{r+1} - g + 2 g P_{r+1} + g Q_{r+1})

the curvature of ln z follows: d2 / d ln h2 = 1/z - 1/z^2,  d2 / d ln h d ln g = h P_start / z^2,
d2 / d ln g2 = h Q_start / z - (h P_start / z)^2,  d2 / d u_r2 = -(e_r / u_r)^2,  d2 / d u_r d ln h = e_r / (u_r z),
d2 / d u_r d ln g = (e_r / u_r) (r - start + P_r / B_r - h P_start / z).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Float
from numba import njit

SIDE_BY_SIDE = 128
"""Sessions that a kernel has in hand at once: few enough that what it needs of them stays in the nearest cache."""
_FACTORS = 16
"""Sessions that share a logarithm: more of them, each less likely than 1e-18, would be less than any number."""


class TailCurvature(NamedTuple):
    """How the log-likelihood of the tails curves: what `Information` is made of."""

    examined: Float[np.ndarray, " pair_or_unseen"]
    """Sum of the squares of a pair's examinations, tail by tail."""
    inverse: Float[np.ndarray, " pair_or_unseen"]
    """Sum of 1 / z^2 over the open last clicks on the pair."""
    turned: Float[np.ndarray, " pair_or_unseen"]
    """Sum of d2 ln z / d ln h d ln g over them."""
    cross: Float[np.ndarray, "shared pair_or_unseen"]
    """Sum of d e / d ln(shared parameter) over the tails that a pair is in."""
    inverse_at_rank: Float[np.ndarray, "2 rank"]
    """Sums of 1 / z and 1 / z^2 over the open last clicks at a rank."""
    g: float
    """Sum of d2 ln z / d ln g2."""


@dataclass(frozen=True, eq=False)
class ExpectedTails:
    """Expected counts of the hidden part."""

    examined: Float[np.ndarray, " pair_or_unseen"]
    """Examinations after the last click."""
    went_on: Float[np.ndarray, " pair_or_unseen"]
    """Open last clicks on the pair after which the user went on."""
    inverse: Float[np.ndarray, " pair_or_unseen"]
    """Sum of 1 / z over the open last clicks on the pair."""
    went_on_at_rank: Float[np.ndarray, " rank"]
    log_likelihood: float
    """Sum of log z."""
    skip_went_on: float
    """Skips in tails after which the user went on..."""
    skip_could: float
    """...among those with a result below."""
    bends: TailCurvature | None = None
    """Where they were asked for."""


class EStepSums(NamedTuple):
    """What an E-step adds up, of any part of a log: a column of each table for each thing."""

    below: Float[np.ndarray, "pair_or_unseen column"]
    """Of pairs in tails: examined; its squares, and one column of `cross` for each shared parameter."""
    clicked: Float[np.ndarray, "pair_or_unseen column"]
    """Of open last clicks: went_on, inverse; its squares, turned."""
    ranks: Float[np.ndarray, "rank 3"]
    """Of open last clicks: went_on, inverse, its squares."""
    totals: Float[np.ndarray, " 4"]

    @classmethod
    def zeros(cls, walk: TailTransitions, turns: TransitionDerivatives | None) -> EStepSums:
        pairs, ranks = len(walk.skip), len(walk.h_rank)
        below, clicked = (1, 2) if turns is None else (2 + len(turns.g), 4)
        return cls(np.zeros((pairs, below)), np.zeros((pairs, clicked)), np.zeros((ranks, 3)), np.zeros(4))

    def tails(self) -> ExpectedTails:
        below, clicked = (np.ascontiguousarray(table.T) for table in (self.below, self.clicked))
        log_likelihood, skip_went_on, skip_could, g = self.totals.tolist()
        bends = None
        if len(below) > 1:
            bends = TailCurvature(below[1], clicked[2], clicked[3], below[2:], self.ranks.T[1:], g)
        return ExpectedTails(
            below[0], clicked[0], clicked[1], self.ranks[:, 0].copy(), log_likelihood, skip_went_on, skip_could, bends
        )


class TailTransitions(NamedTuple):
    """How users walk down the tails: all that DBN, SDBN, DCM and CCM differ in."""

    skip: Float[np.ndarray, " pair_or_unseen"]
    """1 - attractiveness."""
    g: float
    h_pair: Float[np.ndarray, " pair_or_unseen"]
    h_rank: Float[np.ndarray, " rank"]
    """h = h_pair[last clicked pair] x h_rank[its rank]."""


class TransitionDerivatives(NamedTuple):
    """How parameters that all sessions share turn the walk: derivatives by the logarithm of each."""

    g: Float[np.ndarray, " shared"]
    """Of ln g: 1 where the parameter is g, else 0."""
    h_pair: Float[np.ndarray, "shared_or_one pair_or_unseen"]
    h_rank: Float[np.ndarray, "shared rank"]
    """Of ln h: h_pair[last clicked pair] x h_rank[its rank]; one row of h_pair does for all."""


@njit(cache=True, nogil=True, fastmath=True)
@no_type_check
def e_step(
    starts,
    lengths,
    first_tail,
    first_place,
    pairs,
    count,
    plain,
    k,
    parts,
    skip,
    g,
    h_pair,
    h_rank,
    bends,
    turn_g,
    turn_pair,
    turn_rank,
    below,
    clicked,
    ranks,
    totals,
):
    """Part k of every shape.

    Many sessions side by side, with the looking up and the adding up in loops of their own: what remains is arithmetic
    on neighbours, which a processor does several at a time. Session by session took twice as long.
    """
    message, step = np.empty((len(h_rank), SIDE_BY_SIDE)), np.empty((len(h_rank), SIDE_BY_SIDE))
    onward, forward, first = np.empty(SIDE_BY_SIDE), np.empty(SIDE_BY_SIDE), np.empty(SIDE_BY_SIDE)
    z, inverse = np.empty(SIDE_BY_SIDE), np.empty(SIDE_BY_SIDE)
    slope, moved, bend = np.empty((len(h_rank), SIDE_BY_SIDE)), np.empty(SIDE_BY_SIDE), np.empty(SIDE_BY_SIDE)
    direct, along = np.empty((len(turn_g), SIDE_BY_SIDE)), np.zeros(SIDE_BY_SIDE)
    stop, by_g = 1 - g, False
    for d in range(len(turn_g)):
        by_g = by_g or turn_g[d] != 0
    log_likelihood, all_examined, all_first, all_last, bend_g = 0.0, 0.0, 0.0, 0.0, 0.0
    for shape in range(len(starts)):
        start, end, tail = starts[shape], first_tail[shape + 1], first_tail[shape]
        depth = lengths[shape] - start
        above = 1 if start > 0 else 0
        lowest, beyond = 0, len(turn_g)  # the shared parameters that matter here
        while lowest < beyond and turn_g[lowest] == 0 and (not above or turn_rank[lowest, start - 1] == 0):
            lowest += 1
        while lowest < beyond and turn_g[beyond - 1] == 0 and (not above or turn_rank[beyond - 1, start - 1] == 0):
            beyond -= 1
        blocks, size = (end - tail + SIDE_BY_SIDE - 1) // SIDE_BY_SIDE, (depth + above) * SIDE_BY_SIDE
        for block in range(blocks * k // parts, blocks * (k + 1) // parts):
            begin = first_place[shape] + block * size
            pair = pairs[begin : begin + size].reshape((depth + above, SIDE_BY_SIDE))
            begin = tail + block * SIDE_BY_SIDE
            some = min(SIDE_BY_SIDE, end - begin)
            weight = count[begin : begin + some]
            onward[:] = 1.0  # beyond the list there is nothing to see
            moved[:] = 0.0
            bend[:] = 0.0
            for r in range(depth - 1, -1, -1):
                here, u, b, p = pair[depth - 1 - r], step[r], message[r], slope[r]
                for j in range(some):
                    u[j] = skip[here[j]]
                if by_g:
                    for j in range(some):
                        more = onward[j] - 1
                        bend[j] = u[j] * (more + g * (2 * moved[j] + bend[j]))
                        p[j] = u[j] * (more + g * moved[j])
                        moved[j] = p[j]
                for j in range(some):
                    b[j] = u[j] * onward[j]
                    u[j] *= g
                    onward[j] = stop + g * b[j]
            b = message[0]
            if above:
                last = pair[depth]
                for j in range(some):
                    first[j] = h_pair[last[j]]
                for j in range(some):
                    h = first[j] * h_rank[start - 1]
                    z[j] = 1 - h + h * b[j]
                    inverse[j] = 1 / z[j]
                    forward[j] = h * inverse[j]
                    first[j] = forward[j] * b[j]
            else:
                for j in range(some):
                    z[j] = b[j]
                    inverse[j] = forward[j] = 1 / z[j]
                    first[j] = 1.0
            if by_g:
                for j in range(some):
                    moved[j] *= forward[j]
                    bend_g += weight[j] * (forward[j] * bend[j] - moved[j] * moved[j])
            if above and not bends:
                for j in range(some):
                    clicked[last[j], 0] += weight[j] * first[j]
                    clicked[last[j], 1] += weight[j] * inverse[j]
            elif above:
                sum_inverse, sum_squares = 0.0, 0.0
                for j in range(some):
                    z_inverse = weight[j] * inverse[j]
                    sum_inverse += z_inverse
                    sum_squares += z_inverse * inverse[j]
                ranks[start - 1, 1] += sum_inverse
                ranks[start - 1, 2] += sum_squares
                for j in range(some):
                    z_inverse = weight[j] * inverse[j]
                    clicked[last[j], 0] += weight[j] * first[j]
                    clicked[last[j], 1] += z_inverse
                    clicked[last[j], 2] += z_inverse * inverse[j]
                    clicked[last[j], 3] += z_inverse * moved[j]
            for d in range(lowest, beyond):
                for j in range(some):
                    direct[d, j] = 0.0
                if above and turn_rank[d, start - 1] != 0:
                    for j in range(some):
                        turn = turn_rank[d, start - 1] * turn_pair[d % len(turn_pair), last[j]]
                        direct[d, j] = turn * inverse[j]
            if plain:
                for some_first in range(0, some, _FACTORS):
                    product = 1.0
                    for j in range(some_first, min(some_first + _FACTORS, some)):
                        product *= z[j]
                    log_likelihood += np.log(product)
            else:
                for j in range(some):
                    log_likelihood += weight[j] * np.log(z[j])
            went_on, examined = 0.0, 0.0
            for j in range(some):
                went_on += weight[j] * first[j]
            if above:
                ranks[start - 1, 0] += went_on
            for r in range(depth):
                here, u, b, p = pair[depth - 1 - r], step[r], message[r], slope[r]
                examined = 0.0
                if by_g:
                    for j in range(some):
                        along[j] = weight[j] * forward[j] * (b[j] * (r - moved[j]) + p[j])
                for j in range(some):
                    arrived = forward[j]
                    b[j] *= arrived
                    forward[j] = arrived * u[j]
                    u[j] = weight[j] * b[j]
                    examined += u[j]
                if not bends:
                    for j in range(some):
                        below[here[j], 0] += u[j]
                elif beyond == lowest + 1:  # what most models have, in one go
                    for j in range(some):
                        below[here[j], 0] += u[j]
                        below[here[j], 1] += u[j] * b[j]
                        below[here[j], 2 + lowest] += u[j] * direct[lowest, j] + turn_g[lowest] * along[j]
                elif lowest == 0 and beyond == 3:  # CCM's: a loop of three for every place takes a seventh more
                    for j in range(some):
                        row = below[here[j]]
                        row[0] += u[j]
                        row[1] += u[j] * b[j]
                        row[2] += u[j] * direct[0, j] + turn_g[0] * along[j]
                        row[3] += u[j] * direct[1, j] + turn_g[1] * along[j]
                        row[4] += u[j] * direct[2, j] + turn_g[2] * along[j]
                else:
                    for j in range(some):
                        below[here[j], 0] += u[j]
                        below[here[j], 1] += u[j] * b[j]
                        for d in range(lowest, beyond):
                            below[here[j], 2 + d] += u[j] * direct[d, j] + turn_g[d] * along[j]
                all_examined += examined
            all_first += went_on
            all_last += examined
    totals[0] += log_likelihood
    totals[1] += all_examined - all_first
    totals[2] += all_examined - all_last
    totals[3] += bend_g
