"""Standard errors of cascades where the same documents meet again and again: the whole information, query by query.

Between the attractiveness of two results r < s of one tail, the log-likelihood has the second derivative
a_r a_s e_s (1 - e_r) by their logits (e: see `tail_steps`), and between that of a result and the continuation h after
the click above it -a_r e_r / z by logit and ln h. Where lists change, one pair meets many others and each seldom: then
this is little beside what a pair knows of itself. Where a ranker hardly ever changes its mind, documents at the bottom
would seem up to three times as well known as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Float, Int
from numba import njit

from clickshift.core.parallel import for_each, n_threads
from clickshift.counts.tail_e_step import SIDE_BY_SIDE, TailTransitions
from clickshift.counts.tails import TailsByShape
from clickshift.data.vocabulary import Vocabulary

_REPEAT_SHARE = 0.2
"""The share of places that show what the next session of that query shows there. Below it, errors are a twentieth too
small without this in the mean, a tenth at most."""
_MAX_ENTRIES = 1 << 22
"""Numbers of one table of meetings: a log with more pairs that meet is left as it is."""
_BLOCKS = 64
_MIN_EIGENVALUE = 1e-9


class _CoOccurrences(NamedTuple):
    """Of each query, a square table with a row and a column for each of its pairs, one query's after the other."""

    both: Float[np.ndarray, " place"]
    """Sum of a_r a_s e_s (1 - e_r), r in the rows and s in the columns."""
    below: Float[np.ndarray, " place"]
    """Sum of a_r e_r / z, with the last clicked pair in the rows."""

    def information(
        self, by_clicked: Float[np.ndarray, "part pair"], offsets: Int[np.ndarray, " query_or_end"]
    ) -> Float[np.ndarray, "part part place"]:
        """Minus the second derivatives, twice, those between the kinds of parameters in one of the two places that they
        have: half of it and half of its transpose are the matrix. `by_clicked` are derivatives of ln h by the logits of
        each kind of the clicked pair."""
        kinds, size = len(by_clicked), np.diff(offsets)
        information = np.zeros((kinds, kinds, len(self.both)))
        information[:, 0] = 2 * np.repeat(by_clicked, np.repeat(size, size), axis=1) * self.below
        information[0, 0] -= 2 * self.both
        return information


def lists_repeat(parts: Sequence[TailsByShape], words: Vocabulary) -> bool:
    """Whether sessions of one query often show the same results at the same ranks, by some of them."""
    query = np.append(words.pair_query, -1)
    seen = np.zeros(2)
    for tails in parts:
        _count_repeats(tails.rows, tails.sessions, tails.first_place, tails.pair, query, seen)
    return bool(seen[1] > _REPEAT_SHARE * seen[0])


def co_occurrences(
    parts: Sequence[TailsByShape], walk: TailTransitions, offsets: Int[np.ndarray, " query_or_end"]
) -> _CoOccurrences | None:
    """None where there would be too many."""
    size = np.diff(offsets)
    if (size.astype(np.float64) ** 2).sum() > _MAX_ENTRIES:
        return None
    ends = np.append(0, np.cumsum(size**2))
    place = np.arange(offsets[-1]) - np.repeat(offsets[:-1], size)
    row = np.append(np.repeat(ends[:-1], size) + place * np.repeat(size, size), -1)
    threads = n_threads()
    found = np.zeros((threads, 2, int(ends[-1])))

    def work(k: int) -> None:
        for tails in parts:
            shapes = tails.start, tails.length, tails.first_tail, tails.first_place
            _add_co_occurrences(
                *shapes, tails.pair, tails.count, k, threads, *walk, row, np.append(place, 0), *found[k]
            )

    for_each(work, threads)
    return _CoOccurrences(*found.sum(axis=0))


@njit(cache=True, nogil=True)
@no_type_check
def _count_repeats(rows, sessions, first_place, pairs, query, seen):
    for shape in range(len(rows)):
        blocks, size = sessions[shape] // SIDE_BY_SIDE, rows[shape] * SIDE_BY_SIDE
        for block in range(0, blocks, blocks // _BLOCKS + 1):
            begin = first_place[shape] + block * size
            for r in range(rows[shape]):
                for at in range(begin + r * SIDE_BY_SIDE, begin + (r + 1) * SIDE_BY_SIDE - 1):
                    if query[pairs[at]] == query[pairs[at + 1]]:
                        seen[0] += 1
                        seen[1] += pairs[at] == pairs[at + 1]


@njit(cache=True, nogil=True)
@no_type_check
def _add_co_occurrences(
    starts, lengths, first_tail, first_place, pairs, count, k, parts, skip, g, h_pair, h_rank, row, place, both, below
):
    """Part k of every shape. Pairs that nobody knows meet nobody."""
    onward, examined = np.empty(len(h_rank) + 1), np.empty(len(h_rank))
    for shape in range(len(starts)):
        start, depth = starts[shape], lengths[shape] - starts[shape]
        size, sessions = (depth + (start > 0)) * SIDE_BY_SIDE, first_tail[shape + 1] - first_tail[shape]
        for i in range(sessions * k // parts, sessions * (k + 1) // parts):
            block = i // SIDE_BY_SIDE
            bottom = first_place[shape] + block * size + i - block * SIDE_BY_SIDE
            top, weight = bottom + (depth - 1) * SIDE_BY_SIDE, count[first_tail[shape] + i]
            onward[depth] = 1.0
            for r in range(depth - 1, -1, -1):
                nothing = skip[pairs[top - r * SIDE_BY_SIDE]] * onward[r + 1]
                examined[r], onward[r] = nothing, 1 - g + g * nothing
            h, last = 1.0, -1
            if start > 0:
                clicked = pairs[top + SIDE_BY_SIDE]
                h, last = h_pair[clicked] * h_rank[start - 1], row[clicked]
            z = 1 - h + h * examined[0]
            forward = h / z
            for r in range(depth):
                pair = pairs[top - r * SIDE_BY_SIDE]
                examined[r] *= forward
                forward *= skip[pair] * g
            for r in range(depth):
                pair = pairs[top - r * SIDE_BY_SIDE]
                a = weight * (1 - skip[pair])
                if row[pair] < 0:
                    continue
                if last >= 0:
                    below[last + place[pair]] += a * examined[r] / z
                for s in range(r + 1, depth):
                    other = pairs[top - s * SIDE_BY_SIDE]
                    if row[other] >= 0:
                        both[row[pair] + place[other]] += a * (1 - skip[other]) * examined[s] * (1 - examined[r])


def invert_information(
    own: Float[np.ndarray, "part pair"],
    between: Float[np.ndarray, "part part place"],
    cross: Float[np.ndarray, "shared part pair"],
    shared: Float[np.ndarray, "shared shared"],
    offsets: Int[np.ndarray, " query_or_end"],
) -> tuple[Float[np.ndarray, "part pair"], Float[np.ndarray, "shared shared"]]:
    """The diagonal of the inverse information, and its part of what is shared.

    `own` is the diagonal by pair for each kind of parameter, `between` what stands between two pairs of a query (of
    each pair of kinds a table like those of `_CoOccurrences`), `cross` what stands between those and the shared ones.
    """
    kinds, size = len(own), np.diff(offsets)
    ends = np.append(0, np.cumsum(size**2))
    inverses, left = [], shared.copy()
    for n in np.unique(size[size > 0]).tolist():  # queries with as many pairs together
        queries = np.flatnonzero(size == n)
        pairs = offsets[queries][:, None] + np.arange(n)
        places = (ends[queries][:, None] + np.arange(n * n)).reshape(-1, n, n)
        matrix = np.moveaxis(between[:, :, places], (0, 1), (1, 3)).reshape(len(queries), kinds * n, kinds * n)
        matrix = (matrix + matrix.swapaxes(1, 2)) / 2
        diagonal = np.moveaxis(own[:, pairs], 0, 1).reshape(len(queries), kinds * n)
        matrix[:, np.arange(kinds * n), np.arange(kinds * n)] += diagonal
        inverse = _inverse(matrix, _MIN_EIGENVALUE * diagonal.max(axis=1, keepdims=True))
        rows = np.moveaxis(cross[:, :, pairs], 2, 0).reshape(len(queries), len(shared), kinds * n)
        moved = rows @ inverse
        left -= (moved @ rows.swapaxes(1, 2)).sum(axis=0)
        inverses.append((pairs, inverse, moved))
    covariance = np.linalg.pinv((left + left.T) / 2, hermitian=True) if len(left) else left
    variance = np.zeros_like(own)
    for pairs, inverse, moved in inverses:
        n = pairs.shape[1]
        added = np.einsum("qki,kl,qli->qi", moved, covariance, moved)
        of = np.einsum("qii->qi", inverse) + np.maximum(added, 0)
        variance[:, pairs] = np.moveaxis(of.reshape(len(pairs), kinds, n), 1, 0)
    return variance, covariance


def _inverse(
    matrix: Float[np.ndarray, "query n n"], flat: Float[np.ndarray, "query 1"]
) -> Float[np.ndarray, "query n n"]:
    """Where some direction is flat or worse, hardly anything is known along it."""
    try:
        np.linalg.cholesky(matrix)
        return np.linalg.inv(matrix)
    except np.linalg.LinAlgError:
        values, axes = np.linalg.eigh(matrix)
        inverse: np.ndarray = (axes / np.maximum(values, flat)[:, None]) @ axes.swapaxes(1, 2)
        return inverse
