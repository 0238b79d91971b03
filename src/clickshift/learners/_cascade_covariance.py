"""Standard errors of cascade models from the full per-query information matrix.

They are needed for logs in which the same documents keep co-occurring. Between the attractiveness of two results r < s
of one tail, the log-likelihood has the second derivative a_r a_s e_s (1 - e_r) by their logits (e: see
`counts.tail_e_step`), and between the attractiveness of a result and the continuation h after the click above it
-a_r e_r / z by logit and ln h. Where lists vary, a pair co-occurs with many others, each of them rarely: then these
entries are small against the diagonal. Where a ranker hardly ever changes its lists, documents at the bottom would have
standard errors up to three times too small without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Float, Int
from numba import njit

from clickshift.core.parallel import for_each, n_threads
from clickshift.counts.tail_e_step import SESSIONS_PER_BLOCK, TailTransitions
from clickshift.counts.tails import TailsByShape
from clickshift.data.vocabulary import Vocabulary

_REPEAT_SHARE = 0.2
"""Share of results that equal the result at the same rank of the next session of the query, above which the full matrix
is used. Below it, the approximate standard errors are too small by a twentieth on average, a tenth at most."""
_MAX_ENTRIES = 1 << 22
"""Entries of the per-query matrices, at most: for larger logs the full matrix is not used."""
_BLOCKS = 64
"""Blocks of sessions of each shape that are sampled to measure repetition, about."""
_MIN_EIGENVALUE = 1e-9
"""Smallest eigenvalue of a query's information matrix, relative to its largest diagonal entry."""


class _CoOccurrences(NamedTuple):
    """Sums over co-occurring pairs: one square matrix per query, with a row and a column for each of its pairs.

    The matrices of all queries are stored one after the other.

    Parameters
    ----------
    both
        Sum of a_r a_s e_s (1 - e_r), r in the rows and s in the columns.
    below
        Sum of a_r e_r / z, with the last clicked pair in the rows.
    """

    both: Float[np.ndarray, " entry"]
    below: Float[np.ndarray, " entry"]

    def information(
        self, by_clicked: Float[np.ndarray, "kind pair"], offsets: Int[np.ndarray, " query_or_end"]
    ) -> Float[np.ndarray, "kind kind entry"]:
        """Return twice minus the second derivatives, each in one of its two symmetric positions.

        Half of the result plus half of its transpose is the information matrix.

        Parameters
        ----------
        by_clicked
            Derivatives of ln h by the logits of each kind of parameter (attractiveness, satisfaction) of the clicked
            pair.
        offsets
            First pair of each query, and the number of pairs.
        """
        kinds, size = len(by_clicked), np.diff(offsets)
        information = np.zeros((kinds, kinds, len(self.both)))
        information[:, 0] = 2 * np.repeat(by_clicked, np.repeat(size, size), axis=1) * self.below
        information[0, 0] -= 2 * self.both
        return information


def lists_repeat(parts: Sequence[TailsByShape], vocabulary: Vocabulary) -> bool:
    """Return whether sessions of one query often show the same results at the same ranks, from a sample of them."""
    query = np.append(vocabulary.pair_query, [-1, -2])  # of unseen pairs and of holes
    compared_and_equal = np.zeros(2)
    for tails in parts:
        _count_repeats(tails.rows, tails.sessions, tails.first_place, tails.pair, query, compared_and_equal)
    return bool(compared_and_equal[1] > _REPEAT_SHARE * compared_and_equal[0])


def co_occurrences(
    parts: Sequence[TailsByShape], transitions: TailTransitions, offsets: Int[np.ndarray, " query_or_end"]
) -> _CoOccurrences | None:
    """Return the sums over co-occurring pairs; None if there would be too many entries."""
    size = np.diff(offsets)
    if (size.astype(np.float64) ** 2).sum() > _MAX_ENTRIES:
        return None
    ends = np.append(0, np.cumsum(size**2))
    place = np.arange(offsets[-1]) - np.repeat(offsets[:-1], size)
    # unseen pairs and holes have no row; nobody is attracted by a hole
    row = np.append(np.repeat(ends[:-1], size) + place * np.repeat(size, size), [-1, -1])
    transitions = transitions._replace(skip=np.append(transitions.skip, 1.0))
    threads = n_threads(sum(len(tails.count) for tails in parts))
    sums = np.zeros((threads, 2, int(ends[-1])))

    def work(k: int) -> None:
        for tails in parts:
            shapes = tails.start, tails.length, tails.first_tail, tails.first_place
            _add_co_occurrences(
                *shapes, tails.pair, tails.count, k, threads, *transitions, row, np.append(place, [0, 0]), *sums[k]
            )

    for_each(work, threads)
    return _CoOccurrences(*sums.sum(axis=0))


@njit(cache=True, nogil=True)
@no_type_check
def _count_repeats(rows, sessions, first_place, pairs, query, compared_and_equal):
    """Count results of neighbouring sessions of one query at the same rank: all of them, and the equal ones."""
    for shape in range(len(rows)):
        blocks, size = sessions[shape] // SESSIONS_PER_BLOCK, rows[shape] * SESSIONS_PER_BLOCK
        for block in range(0, blocks, blocks // _BLOCKS + 1):
            begin = first_place[shape] + block * size
            for r in range(rows[shape]):
                for at in range(begin + r * SESSIONS_PER_BLOCK, begin + (r + 1) * SESSIONS_PER_BLOCK - 1):
                    if query[pairs[at]] == query[pairs[at + 1]] >= -1:
                        compared_and_equal[0] += 1
                        compared_and_equal[1] += pairs[at] == pairs[at + 1]


@njit(cache=True, nogil=True)
@no_type_check
def _add_co_occurrences(
    starts, lengths, first_tail, first_place, pairs, count, k, parts, skip, g, h_pair, h_rank, row, place, both, below
):
    """Add up the co-occurrences of part k of every shape; unseen pairs and holes (row -1) are left out."""
    onward, examined = np.empty(len(h_rank) + 1), np.empty(len(h_rank))
    for shape in range(len(starts)):
        start, depth = starts[shape], lengths[shape] - starts[shape]
        size, sessions = (depth + (start > 0)) * SESSIONS_PER_BLOCK, first_tail[shape + 1] - first_tail[shape]
        for i in range(sessions * k // parts, sessions * (k + 1) // parts):
            block = i // SESSIONS_PER_BLOCK
            bottom = first_place[shape] + block * size + i - block * SESSIONS_PER_BLOCK
            top, weight = bottom + (depth - 1) * SESSIONS_PER_BLOCK, count[first_tail[shape] + i]
            onward[depth] = 1.0
            for r in range(depth - 1, -1, -1):
                nothing = skip[pairs[top - r * SESSIONS_PER_BLOCK]] * onward[r + 1]
                examined[r], onward[r] = nothing, 1 - g + g * nothing
            h, last = 1.0, -1
            if start > 0:
                clicked = pairs[top + SESSIONS_PER_BLOCK]
                h, last = h_pair[clicked] * h_rank[start - 1], row[clicked]
            z = 1 - h + h * examined[0]
            forward = h / z
            for r in range(depth):
                pair = pairs[top - r * SESSIONS_PER_BLOCK]
                examined[r] *= forward
                forward *= skip[pair] * g
            for r in range(depth):
                pair = pairs[top - r * SESSIONS_PER_BLOCK]
                a = weight * (1 - skip[pair])
                if row[pair] < 0:
                    continue
                if last >= 0:
                    below[last + place[pair]] += a * examined[r] / z
                for s in range(r + 1, depth):
                    other = pairs[top - s * SESSIONS_PER_BLOCK]
                    if row[other] >= 0:
                        both[row[pair] + place[other]] += a * (1 - skip[other]) * examined[s] * (1 - examined[r])


class InvertedInformation(NamedTuple):
    """Variances, and the Newton step by the full information matrix.

    Parameters
    ----------
    variance
        Diagonal of the inverse by kind and pair.
    shared
        Block of the inverse of the shared parameters.
    step, shared_step
        Inverse times gradient.
    follow
        How the maximum of the parameters of pairs falls with each shared one.
    log_determinant
        Logarithm of the determinant of the block of all pairs.
    """

    variance: Float[np.ndarray, "kind pair"]
    shared: Float[np.ndarray, "shared shared"]
    step: Float[np.ndarray, "kind pair"]
    shared_step: Float[np.ndarray, " shared"]
    follow: Float[np.ndarray, "shared kind pair"]
    log_determinant: float


def invert_information(
    own: Float[np.ndarray, "kind pair"],
    between: Float[np.ndarray, "kind kind entry"],
    cross: Float[np.ndarray, "shared kind pair"],
    shared: Float[np.ndarray, "shared shared"],
    offsets: Int[np.ndarray, " query_or_end"],
    gradient: Float[np.ndarray, "kind pair"],
    shared_gradient: Float[np.ndarray, " shared"],
) -> InvertedInformation:
    """Invert the information matrix query by query.

    Parameters
    ----------
    own
        Diagonal by pair, for each kind of parameter.
    between
        Entries between two pairs of a query, for each two kinds a matrix in the layout of `_CoOccurrences`.
    cross
        Entries between the parameters of pairs and the shared parameters.
    shared
        Entries between shared parameters.
    offsets
        First pair of each query, and the number of pairs.
    gradient, shared_gradient
        Gradient by the parameters of pairs and by the shared parameters.

    Returns
    -------
    InvertedInformation
        Variances, and the Newton step.
    """
    kinds, size = len(own), np.diff(offsets)
    ends = np.append(0, np.cumsum(size**2))
    inverses, schur, slope = [], shared.copy(), shared_gradient.copy()
    follow, log_determinant = np.zeros_like(cross), 0.0
    for n in np.unique(size[size > 0]).tolist():  # queries with the same number of pairs together
        queries = np.flatnonzero(size == n)
        pairs = offsets[queries][:, None] + np.arange(n)
        entries = (ends[queries][:, None] + np.arange(n * n)).reshape(-1, n, n)
        matrix = np.moveaxis(between[:, :, entries], (0, 1), (1, 3)).reshape(len(queries), kinds * n, kinds * n)
        matrix = (matrix + matrix.swapaxes(1, 2)) / 2
        diagonal = np.moveaxis(own[:, pairs], 0, 1).reshape(len(queries), kinds * n)
        matrix[:, np.arange(kinds * n), np.arange(kinds * n)] += diagonal
        inverse = _inverse(matrix, _MIN_EIGENVALUE * diagonal.max(axis=1, keepdims=True))
        rows = np.moveaxis(cross[:, :, pairs], 2, 0).reshape(len(queries), len(shared), kinds * n)
        projected = rows @ inverse
        follow[:, :, pairs] = np.moveaxis(projected.reshape(len(queries), len(shared), kinds, n), 0, 2)
        log_determinant -= float(np.linalg.slogdet(inverse)[1].sum())
        schur -= (projected @ rows.swapaxes(1, 2)).sum(axis=0)
        own_gradient = np.moveaxis(gradient[:, pairs], 0, 1).reshape(len(queries), kinds * n)
        slope -= np.einsum("qki,qi->k", projected, own_gradient)
        inverses.append((pairs, inverse, projected, np.einsum("qij,qj->qi", inverse, own_gradient)))
    covariance = np.linalg.pinv((schur + schur.T) / 2, hermitian=True) if len(schur) else schur
    variance, step, shared_step = np.zeros_like(own), np.zeros_like(own), covariance @ slope
    for pairs, inverse, projected, alone in inverses:
        n = pairs.shape[1]
        moved = alone - np.einsum("qki,k->qi", projected, shared_step)
        step[:, pairs] = np.moveaxis(moved.reshape(len(pairs), kinds, n), 1, 0)
        added = np.einsum("qki,kl,qli->qi", projected, covariance, projected)
        diagonal = np.einsum("qii->qi", inverse) + np.maximum(added, 0)
        variance[:, pairs] = np.moveaxis(diagonal.reshape(len(pairs), kinds, n), 1, 0)
    return InvertedInformation(variance, covariance, step, shared_step, follow, log_determinant)


def _inverse(
    matrix: Float[np.ndarray, "query n n"], smallest: Float[np.ndarray, "query 1"]
) -> Float[np.ndarray, "query n n"]:
    """Invert matrices; if one is not positive definite, its eigenvalues are raised to `smallest`."""
    try:
        np.linalg.cholesky(matrix)
        return np.linalg.inv(matrix)
    except np.linalg.LinAlgError:
        values, axes = np.linalg.eigh(matrix)
        inverse: np.ndarray = (axes / np.maximum(values, smallest)[:, None]) @ axes.swapaxes(1, 2)
        return inverse
