"""What documents have in common that usually stand at the same rank, and what rare ones may borrow from it.

A ranker puts better documents on top, so that documents of one rank are more alike than all are. A rare document is
given sessions of its group: in every situation in which it was shown, as many clicks as the group's documents had
there. That says which rates are likely, and nothing about how much of a rate is examination: the group's own clicks
compare situations as they do without it. A prior on attractiveness would say something about that, little for each
document, but where ranks are compared by few clicks all of it together decides.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np
from jaxtyping import Float, Int
from numba import njit

from clickshift.core.parallel import for_each, n_threads
from clickshift.counts.cells import Cells, rank_of
from clickshift.learners.priors import strength_by_group

_NOTHING = 1e-12
"""In a mixture sessions count in parts: less than one may be much of it."""


def usual_rank(cells: Cells) -> Int[np.ndarray, " pair"]:
    """The rank nearest to each pair's mean."""
    shown, _ = cells.by_pair()
    ranks = cells.weighed(rank_of(cells.by, cells.n_ranks).astype(np.float64))
    rank: np.ndarray = np.rint(ranks / np.maximum(shown, _NOTHING)).astype(np.int64)
    return rank


def borrow(
    cells: Cells, skips: Float[np.ndarray, " cell"]
) -> tuple[Float[np.ndarray, " pair"], Float[np.ndarray, " situation"]]:
    """Add what pairs borrow to `skips`, and return the clicks that they borrow, by pair and by situation."""
    group, (shown, clicked), n = usual_rank(cells), cells.by_pair(), cells.n_situations
    share = strength_by_group(group, shown, clicked) / np.maximum(shown, 1)
    pieces = cells.ranges(n_threads())
    totals = np.zeros((len(pieces), 2, cells.n_ranks, n))
    for_each(
        lambda k: _total(*pieces[k], cells.offsets, group, cells.situation, cells.impressions, cells.clicks, totals[k]),
        len(pieces),
    )
    impressions, clicks = totals.sum(axis=0)
    rate = clicks / np.maximum(impressions, _NOTHING)
    by_pair, by_situation = np.zeros(len(group)), np.zeros((len(pieces), n))
    for_each(
        lambda k: _borrow(
            *pieces[k], cells.offsets, group, cells.situation, cells.impressions, share, rate, skips, by_pair,
            by_situation[k],
        ),
        len(pieces),
    )  # fmt: skip
    return by_pair, by_situation.sum(axis=0)


@njit(cache=True, nogil=True)
@no_type_check
def _total(start, stop, offsets, group, situation, impressions, clicks, totals):
    for p in range(start, stop):
        for k in range(offsets[p], offsets[p + 1]):
            totals[0, group[p], situation[k]] += impressions[k]
            totals[1, group[p], situation[k]] += clicks[k]


@njit(cache=True, nogil=True)
@no_type_check
def _borrow(start, stop, offsets, group, situation, impressions, share, rate, skips, by_pair, by_situation):
    for p in range(start, stop):
        for k in range(offsets[p], offsets[p + 1]):
            more = share[p] * impressions[k]
            clicked = more * rate[group[p], situation[k]]
            skips[k] += more - clicked
            by_pair[p] += clicked
            by_situation[situation[k]] += clicked
