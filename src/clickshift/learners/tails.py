"""The E-step of cascades: what probably happened after the last click, where nothing was clicked any more.

With u = 1 - attractiveness, g the continuation after a skip, and h that after the last click (1 for a session without
clicks, which begins at the top):

    B_r = u_r (1 - g + g B_{r+1})     no click from r on, if r is examined
    z   = 1 - h + h B_start           no click in the tail
    e_r = (h / z) F_r B_r             r was examined, given that;  F_start = 1, F_{r+1} = F_r u_r g

One division and one logarithm per session. DBN, SDBN, DCM and CCM differ in g and h alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import no_type_check

import numpy as np
from jaxtyping import Float
from numba import njit

from clickshift.cascade import Cascade
from clickshift.threads import for_each, n_threads


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
    squares: Float[np.ndarray, "pair_or_unseen 2"] | None = None
    """Sums of the squares of `examined` and of `inverse`, session by session, where they were asked for."""


class TailStep:
    """The E-step on the tails of one log."""

    def __init__(self, cascade: Cascade) -> None:
        self.cascade = cascade
        cuts = np.linspace(0, len(cascade.pair), n_threads() + 1).astype(int)
        self.pieces = list(pairwise(cuts.tolist()))

    def __call__(
        self,
        skip: Float[np.ndarray, " pair_or_unseen"],
        g: float,
        h_pair: np.ndarray,
        h_rank: np.ndarray,
        *,
        squares: bool = False,
    ) -> Tails:
        """`skip` is 1 - attractiveness; h = h_pair[last clicked pair] x h_rank[its rank]."""
        data, size = self.cascade, len(skip)
        pairs = np.zeros((len(self.pieces), size, 3))
        ranks = np.zeros((len(self.pieces), data.n_ranks))
        totals = np.zeros((len(self.pieces), 3))
        seconds = np.zeros((len(self.pieces), size if squares else 0, 2))

        def work(k: int) -> None:
            sessions = data.pair, data.length, data.last, data.count
            _tails(*sessions, *self.pieces[k], skip, g, h_pair, h_rank, pairs[k], ranks[k], totals[k], seconds[k])

        for_each(work, len(self.pieces))
        examined, went_on, inverse = pairs.sum(axis=0).T
        log_likelihood, skip_went_on, skip_could = totals.sum(axis=0).tolist()
        return Tails(
            examined=examined,
            went_on=went_on,
            inverse=inverse,
            went_on_at_rank=ranks.sum(axis=0),
            log_likelihood=log_likelihood,
            skip_went_on=skip_went_on,
            skip_could=skip_could,
            squares=seconds.sum(axis=0) if squares else None,
        )


@njit(cache=True, nogil=True, fastmath=True)
@no_type_check
def _tails(pair, length, last, count, begin, end, skip, g, h_pair, h_rank, pairs, ranks, totals, squares):
    width = pair.shape[1]
    message, step = np.empty(width), np.empty(width)
    log_likelihood, product, went_on, could = 0.0, 1.0, 0.0, 0.0
    stop = 1 - g
    for i in range(begin, end):
        n, start = length[i], last[i] + 1
        if start >= n:
            continue
        onward = 1.0  # beyond the list there is nothing to see
        for r in range(n - 1, start - 1, -1):
            u = skip[pair[i, r]]
            step[r] = g * u
            message[r] = u * onward
            onward = stop + step[r] * onward  # one multiply-add after the other: this chain bounds the speed
        weight, z = count[i], message[start]
        forward = first = weight
        if start > 0:
            clicked = pair[i, start - 1]
            h = h_pair[clicked] * h_rank[start - 1]
            z = 1 - h + h * message[start]
            inverse = weight / z
            forward = h * inverse
            first = forward * message[start]
            pairs[clicked, 1] += first
            pairs[clicked, 2] += inverse
            ranks[start - 1] += first
            if len(squares):
                squares[clicked, 1] += inverse / z
        else:
            forward = weight / z
        if weight == 1:  # a logarithm for many sessions at once
            product *= z
            if product < 1e-200:
                log_likelihood += np.log(product)
                product = 1.0
        else:
            log_likelihood += weight * np.log(z)
        total, examined = 0.0, 0.0
        for r in range(start, n):
            examined = forward * message[r]
            forward *= step[r]
            pairs[pair[i, r], 0] += examined
            total += examined
            if len(squares):
                squares[pair[i, r], 0] += examined * (examined / weight)
        went_on += total - first
        could += total - examined
    totals[0] += log_likelihood + np.log(product)
    totals[1] += went_on
    totals[2] += could
