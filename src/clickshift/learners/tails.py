"""The E-step of cascades: what probably happened after the last click, where nothing was clicked any more.

With u = 1 - attractiveness, g the continuation after a skip, and h that after the last click (1 for a session without
clicks, which begins at the top):

    B_r = u_r (1 - g + g B_{r+1})     no click from r on, if r is examined
    z   = 1 - h + h B_start           no click in the tail
    e_r = (h / z) F_r B_r             r was examined, given that;  F_start = 1, F_{r+1} = F_r u_r g

DBN, SDBN, DCM and CCM differ in g and h alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import no_type_check

import numpy as np
from jaxtyping import Float
from numba import njit

from clickshift.cascade import SIDE_BY_SIDE, TailsByShape
from clickshift.threads import for_each, n_threads

_WORTH_A_THREAD = 2048
_FACTORS = 16
"""Sessions that share a logarithm: more of them, each less likely than 1e-18, would be less than any number."""


@dataclass(frozen=True, eq=False)
class Tails:
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
    squares: Float[np.ndarray, "2 pair_or_unseen"] | None = None
    """Sums of the squares of `examined` and of `inverse`, session by session, where they were asked for."""


def e_step(
    tails: TailsByShape,
    skip: Float[np.ndarray, " pair_or_unseen"],
    g: float,
    h_pair: Float[np.ndarray, " pair_or_unseen"],
    h_rank: Float[np.ndarray, " rank"],
    *,
    squares: bool = False,
) -> Tails:
    """`skip` is 1 - attractiveness; h = h_pair[last clicked pair] x h_rank[its rank]."""
    threads = min(n_threads(), 1 + len(tails.count) // _WORTH_A_THREAD)
    tables = np.zeros((threads, 5 if squares else 3, len(skip)))
    ranks, totals = np.zeros((threads, len(h_rank))), np.zeros((threads, 3))
    shapes = tails.start, tails.length, tails.first_tail, tails.first_place

    def work(k: int) -> None:
        _e_step(
            *shapes,
            tails.pair,
            tails.count,
            tails.plain,
            k,
            threads,
            skip,
            g,
            h_pair,
            h_rank,
            tables[k],
            ranks[k],
            totals[k],
        )

    for_each(work, threads)
    table = tables.sum(axis=0)
    log_likelihood, skip_went_on, skip_could = totals.sum(axis=0).tolist()
    return Tails(
        examined=table[0],
        went_on=table[1],
        inverse=table[2],
        went_on_at_rank=ranks.sum(axis=0),
        log_likelihood=log_likelihood,
        skip_went_on=skip_went_on,
        skip_could=skip_could,
        squares=table[3:] if squares else None,
    )


@njit(cache=True, nogil=True, fastmath=True)
@no_type_check
def _e_step(
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
    table,
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
    squares, stop = len(table) > 3, 1 - g
    log_likelihood, all_examined, all_first, all_last = 0.0, 0.0, 0.0, 0.0
    of_examined, of_went_on, of_inverse = table[0], table[1], table[2]
    for shape in range(len(starts)):
        start, end, tail = starts[shape], first_tail[shape + 1], first_tail[shape]
        depth = lengths[shape] - start
        above = 1 if start > 0 else 0
        blocks, size = (end - tail + SIDE_BY_SIDE - 1) // SIDE_BY_SIDE, (depth + above) * SIDE_BY_SIDE
        for block in range(blocks * k // parts, blocks * (k + 1) // parts):
            begin = first_place[shape] + block * size
            pair = pairs[begin : begin + size].reshape((depth + above, SIDE_BY_SIDE))
            begin = tail + block * SIDE_BY_SIDE
            some = min(SIDE_BY_SIDE, end - begin)
            weight = count[begin : begin + some]
            onward[:] = 1.0  # beyond the list there is nothing to see
            for r in range(depth - 1, -1, -1):
                here, u, b = pair[depth - 1 - r], step[r], message[r]
                for j in range(some):
                    u[j] = skip[here[j]]
                for j in range(some):
                    below, through = onward[j], g * u[j]
                    b[j] = u[j] * below
                    u[j] = through
                    onward[j] = stop + through * below
            b = message[0]
            if above:
                clicked = pair[depth]
                for j in range(some):
                    first[j] = h_pair[clicked[j]]
                for j in range(some):
                    h = first[j] * h_rank[start - 1]
                    z[j] = 1 - h + h * b[j]
                    inverse[j] = weight[j] / z[j]
                    forward[j] = h * inverse[j]
                    first[j] = forward[j] * b[j]
                for j in range(some):
                    of_went_on[clicked[j]] += first[j]
                    of_inverse[clicked[j]] += inverse[j]
                    if squares:
                        table[4, clicked[j]] += inverse[j] / z[j]
            else:
                for j in range(some):
                    z[j] = b[j]
                    forward[j] = weight[j] / z[j]
                    first[j] = weight[j]
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
                went_on += first[j]
            if above:
                ranks[start - 1] += went_on
            for r in range(depth):
                here, u, b = pair[depth - 1 - r], step[r], message[r]
                examined = 0.0
                for j in range(some):
                    arrived = forward[j]
                    e = arrived * b[j]
                    forward[j] = arrived * u[j]
                    b[j] = e
                    examined += e
                for j in range(some):
                    of_examined[here[j]] += b[j]
                if squares:
                    for j in range(some):
                        table[3, here[j]] += b[j] * (b[j] / weight[j])
                all_examined += examined
            all_first += went_on
            all_last += examined
    totals[:] = log_likelihood, all_examined - all_first, all_examined - all_last
