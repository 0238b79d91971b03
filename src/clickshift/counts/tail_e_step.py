"""E-step of cascade models on the tails (the results below the last click), and the curvature of their log-likelihood.

With u = 1 - attractiveness, g the continuation probability after a skip, and h that after the last click (1 for a
session without clicks, whose tail begins at the top):

    B_r = u_r (1 - g + g B_{r+1})     probability of no click from r on, given that r is examined
    z   = 1 - h + h B_start           probability of no click in the tail
    e_r = (h / z) F_r B_r             posterior probability that r was examined;  F_start = 1, F_{r+1} = F_r u_r g

DBN, SDBN, DCM and CCM differ in g and h only. With P = dB / d ln g and Q = dP / d ln g,

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

SESSIONS_PER_BLOCK = 128
"""Sessions that the kernel processes at once: few enough for their intermediate values to stay in the cache."""
_PRODUCT_LENGTH = 16
"""Probabilities that are multiplied before taking a logarithm: a product of more, each below 1e-18, would underflow."""


class TailCurvature(NamedTuple):
    """Second derivatives of the log-likelihood of the tails, as sums: the parts of the information matrix.

    Parameters
    ----------
    examined
        Sum over tails of the squared examination probability of the pair.
    inverse
        Sum of 1 / z^2 over the open last clicks on the pair.
    turned
        Sum of d2 ln z / d ln h d ln g over the open last clicks on the pair.
    cross
        Sum of d e / d ln(shared parameter) over the tails that contain the pair.
    inverse_at_rank
        Sums of 1 / z and of 1 / z^2 over the open last clicks at a rank.
    g
        Sum of d2 ln z / d ln g2.
    """

    examined: Float[np.ndarray, " pair_or_unseen"]
    inverse: Float[np.ndarray, " pair_or_unseen"]
    turned: Float[np.ndarray, " pair_or_unseen"]
    cross: Float[np.ndarray, "shared pair_or_unseen"]
    inverse_at_rank: Float[np.ndarray, "2 rank"]
    g: float


@dataclass(frozen=True, eq=False)
class ExpectedTails:
    """Expected counts of the hidden events in the tails.

    Parameters
    ----------
    examined
        Expected examinations of the pair below the last click.
    went_on
        Expected number of open last clicks on the pair after which the user continued.
    inverse
        Sum of 1 / z over the open last clicks on the pair.
    went_on_at_rank
        Expected number of open last clicks at a rank after which the user continued.
    log_likelihood
        Sum of ln z.
    skip_went_on
        Expected number of skips in tails after which the user continued.
    skip_could
        Expected number of examined skips in tails with a result below, after which the user could have continued.
    curvature
        Second derivatives, if they were requested.
    """

    examined: Float[np.ndarray, " pair_or_unseen"]
    went_on: Float[np.ndarray, " pair_or_unseen"]
    inverse: Float[np.ndarray, " pair_or_unseen"]
    went_on_at_rank: Float[np.ndarray, " rank"]
    log_likelihood: float
    skip_went_on: float
    skip_could: float
    curvature: TailCurvature | None = None


class EStepSums(NamedTuple):
    """Sums that the E-step accumulates over any part of a log.

    Parameters
    ----------
    below
        Columns for pairs in tails: examined; with curvature also its squares, and `cross` for each shared parameter.
    clicked
        Columns for pairs with open last clicks: went_on, inverse; with curvature also its squares, turned.
    ranks
        Columns for ranks of open last clicks: went_on, inverse, its squares.
    totals
        Log-likelihood, skips after which the user continued, skips after which that was possible, d2 ln z / d ln g2.
    """

    below: Float[np.ndarray, "pair_or_unseen column"]
    clicked: Float[np.ndarray, "pair_or_unseen column"]
    ranks: Float[np.ndarray, "rank 3"]
    totals: Float[np.ndarray, " 4"]

    @classmethod
    def zeros(cls, walk: TailTransitions, turns: TransitionDerivatives | None) -> EStepSums:
        """Return sums of 0, with columns for the curvature if there are derivatives."""
        pairs, ranks = len(walk.skip), len(walk.h_rank)
        below, clicked = (1, 2) if turns is None else (2 + len(turns.g), 4)
        return cls(np.zeros((pairs, below)), np.zeros((pairs, clicked)), np.zeros((ranks, 3)), np.zeros(4))

    def tails(self) -> ExpectedTails:
        """Return the sums by name."""
        below, clicked = (np.ascontiguousarray(table.T) for table in (self.below, self.clicked))
        log_likelihood, skip_went_on, skip_could, g = self.totals.tolist()
        curvature = None
        if len(below) > 1:
            curvature = TailCurvature(below[1], clicked[2], clicked[3], below[2:], self.ranks.T[1:], g)
        went_on_at_rank = self.ranks[:, 0].copy()
        return ExpectedTails(
            below[0], clicked[0], clicked[1], went_on_at_rank, log_likelihood, skip_went_on, skip_could, curvature
        )


class TailTransitions(NamedTuple):
    """Transition probabilities of users in the tails: all that DBN, SDBN, DCM and CCM differ in.

    Parameters
    ----------
    skip
        1 - attractiveness of each pair.
    g
        Continuation probability after a skip.
    h_pair, h_rank
        Factors of the continuation probability after the last click: h = h_pair[clicked pair] x h_rank[its rank].
    """

    skip: Float[np.ndarray, " pair_or_unseen"]
    g: float
    h_pair: Float[np.ndarray, " pair_or_unseen"]
    h_rank: Float[np.ndarray, " rank"]


class TransitionDerivatives(NamedTuple):
    """Derivatives of the transition probabilities by the logarithm of each parameter that all sessions share.

    Parameters
    ----------
    g
        Derivative of ln g: 1 if the parameter is g, else 0.
    h_pair, h_rank
        Factors of the derivative of ln h: h_pair[clicked pair] x h_rank[its rank]. A single row of h_pair serves all
        parameters.
    """

    g: Float[np.ndarray, " shared"]
    h_pair: Float[np.ndarray, "shared_or_one pair_or_unseen"]
    h_rank: Float[np.ndarray, "shared rank"]


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
    with_curvature,
    turn_g,
    turn_pair,
    turn_rank,
    below,
    clicked,
    ranks,
    totals,
):
    """Add the sums of part k of `parts` of every shape to below, clicked, ranks and totals.

    Sessions are processed in blocks, with lookups and scatter-adds in separate loops, so that the remaining arithmetic
    on contiguous values is vectorised. Processing session by session took twice as long. In the names of the module's
    formulas: `message` is B, `forward` is F h / z, `slope` is P and `bend` is Q.

    Parameters
    ----------
    starts, lengths, first_tail, first_place, pairs, count, plain
        Tails, as in `TailsByShape`.
    k, parts
        Which of how many parts of every shape to add, e.g. the number of the thread.
    skip, g, h_pair, h_rank
        Transition probabilities, as in `TailTransitions`.
    with_curvature
        Whether to add the second derivatives.
    turn_g, turn_pair, turn_rank
        Derivatives by shared parameters, as in `TransitionDerivatives`; not used without curvature.
    below, clicked, ranks, totals
        Sums to add to, as in `EStepSums`.
    """
    message, step = np.empty((len(h_rank), SESSIONS_PER_BLOCK)), np.empty((len(h_rank), SESSIONS_PER_BLOCK))
    onward, forward, first = np.empty(SESSIONS_PER_BLOCK), np.empty(SESSIONS_PER_BLOCK), np.empty(SESSIONS_PER_BLOCK)
    z, inverse = np.empty(SESSIONS_PER_BLOCK), np.empty(SESSIONS_PER_BLOCK)
    slope, moved, bend = (
        np.empty((len(h_rank), SESSIONS_PER_BLOCK)),
        np.empty(SESSIONS_PER_BLOCK),
        np.empty(SESSIONS_PER_BLOCK),
    )
    direct, along = np.empty((len(turn_g), SESSIONS_PER_BLOCK)), np.zeros(SESSIONS_PER_BLOCK)
    stop, by_g = 1 - g, False
    for d in range(len(turn_g)):
        by_g = by_g or turn_g[d] != 0
    log_likelihood, all_examined, all_first, all_last, bend_g = 0.0, 0.0, 0.0, 0.0, 0.0
    for shape in range(len(starts)):
        start, end, tail = starts[shape], first_tail[shape + 1], first_tail[shape]
        depth = lengths[shape] - start
        above = 1 if start > 0 else 0
        lowest, beyond = 0, len(turn_g)  # range of the shared parameters that affect this shape
        while lowest < beyond and turn_g[lowest] == 0 and (not above or turn_rank[lowest, start - 1] == 0):
            lowest += 1
        while lowest < beyond and turn_g[beyond - 1] == 0 and (not above or turn_rank[beyond - 1, start - 1] == 0):
            beyond -= 1
        blocks, size = (end - tail + SESSIONS_PER_BLOCK - 1) // SESSIONS_PER_BLOCK, (depth + above) * SESSIONS_PER_BLOCK
        for block in range(blocks * k // parts, blocks * (k + 1) // parts):
            begin = first_place[shape] + block * size
            pair = pairs[begin : begin + size].reshape((depth + above, SESSIONS_PER_BLOCK))
            begin = tail + block * SESSIONS_PER_BLOCK
            n = min(SESSIONS_PER_BLOCK, end - begin)
            weight = count[begin : begin + n]
            onward[:] = 1.0  # below the list there is nothing to click
            moved[:] = 0.0
            bend[:] = 0.0
            for r in range(depth - 1, -1, -1):
                at_rank, u, b, p = pair[depth - 1 - r], step[r], message[r], slope[r]
                for j in range(n):
                    u[j] = skip[at_rank[j]]
                if by_g:
                    for j in range(n):
                        more = onward[j] - 1
                        bend[j] = u[j] * (more + g * (2 * moved[j] + bend[j]))
                        p[j] = u[j] * (more + g * moved[j])
                        moved[j] = p[j]
                for j in range(n):
                    b[j] = u[j] * onward[j]
                    u[j] *= g
                    onward[j] = stop + g * b[j]
            b = message[0]
            if above:
                last = pair[depth]
                for j in range(n):
                    first[j] = h_pair[last[j]]
                for j in range(n):
                    h = first[j] * h_rank[start - 1]
                    z[j] = 1 - h + h * b[j]
                    inverse[j] = 1 / z[j]
                    forward[j] = h * inverse[j]
                    first[j] = forward[j] * b[j]
            else:
                for j in range(n):
                    z[j] = b[j]
                    inverse[j] = forward[j] = 1 / z[j]
                    first[j] = 1.0
            if by_g:
                for j in range(n):
                    moved[j] *= forward[j]
                    bend_g += weight[j] * (forward[j] * bend[j] - moved[j] * moved[j])
            if above and not with_curvature:
                for j in range(n):
                    clicked[last[j], 0] += weight[j] * first[j]
                    clicked[last[j], 1] += weight[j] * inverse[j]
            elif above:
                sum_inverse, sum_squares = 0.0, 0.0
                for j in range(n):
                    z_inverse = weight[j] * inverse[j]
                    sum_inverse += z_inverse
                    sum_squares += z_inverse * inverse[j]
                ranks[start - 1, 1] += sum_inverse
                ranks[start - 1, 2] += sum_squares
                for j in range(n):
                    z_inverse = weight[j] * inverse[j]
                    clicked[last[j], 0] += weight[j] * first[j]
                    clicked[last[j], 1] += z_inverse
                    clicked[last[j], 2] += z_inverse * inverse[j]
                    clicked[last[j], 3] += z_inverse * moved[j]
            for d in range(lowest, beyond):
                for j in range(n):
                    direct[d, j] = 0.0
                if above and turn_rank[d, start - 1] != 0:
                    for j in range(n):
                        turn = turn_rank[d, start - 1] * turn_pair[d % len(turn_pair), last[j]]
                        direct[d, j] = turn * inverse[j]
            if plain:
                for start_j in range(0, n, _PRODUCT_LENGTH):
                    product = 1.0
                    for j in range(start_j, min(start_j + _PRODUCT_LENGTH, n)):
                        product *= z[j]
                    log_likelihood += np.log(product)
            else:
                for j in range(n):
                    log_likelihood += weight[j] * np.log(z[j])
            went_on, examined = 0.0, 0.0
            for j in range(n):
                went_on += weight[j] * first[j]
            if above:
                ranks[start - 1, 0] += went_on
            for r in range(depth):
                at_rank, u, b, p = pair[depth - 1 - r], step[r], message[r], slope[r]
                examined = 0.0
                if by_g:
                    for j in range(n):
                        along[j] = weight[j] * forward[j] * (b[j] * (r - moved[j]) + p[j])
                for j in range(n):
                    arrived = forward[j]
                    b[j] *= arrived
                    forward[j] = arrived * u[j]
                    u[j] = weight[j] * b[j]
                    examined += u[j]
                if not with_curvature:
                    for j in range(n):
                        below[at_rank[j], 0] += u[j]
                elif beyond == lowest + 1:  # one shared parameter, as in most models
                    for j in range(n):
                        below[at_rank[j], 0] += u[j]
                        below[at_rank[j], 1] += u[j] * b[j]
                        below[at_rank[j], 2 + lowest] += u[j] * direct[lowest, j] + turn_g[lowest] * along[j]
                elif lowest == 0 and beyond == 3:  # CCM: an inner loop over the three takes a seventh longer
                    for j in range(n):
                        row = below[at_rank[j]]
                        row[0] += u[j]
                        row[1] += u[j] * b[j]
                        row[2] += u[j] * direct[0, j] + turn_g[0] * along[j]
                        row[3] += u[j] * direct[1, j] + turn_g[1] * along[j]
                        row[4] += u[j] * direct[2, j] + turn_g[2] * along[j]
                else:
                    for j in range(n):
                        below[at_rank[j], 0] += u[j]
                        below[at_rank[j], 1] += u[j] * b[j]
                        for d in range(lowest, beyond):
                            below[at_rank[j], 2 + d] += u[j] * direct[d, j] + turn_g[d] * along[j]
                all_examined += examined
            all_first += went_on
            all_last += examined
    totals[0] += log_likelihood
    totals[1] += all_examined - all_first
    totals[2] += all_examined - all_last
    totals[3] += bend_g
