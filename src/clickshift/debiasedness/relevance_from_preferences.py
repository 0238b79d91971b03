"""Relevance from judgments that only order documents: preferences between two, or whole lists, best first.

Both are lists, so that one model serves both: Plackett-Luce, which for lists of two is Bradley-Terry.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np
from jaxtyping import Float
from numba import njit

from clickshift.core.parallel import for_ranges
from clickshift.data.sessions import Rankings
from clickshift.data.vocabulary import UNSEEN
from clickshift.errors import DataError

_QUERIES_AT_ONCE = 64
_STEPS = 100_000
_TOLERANCE = 1e-9


def relevance_from_orderings(rankings: Rankings, *, prior: float = 0.1) -> Float[np.ndarray, " pair"]:
    """Utilities u by which P(list) = product over its places of exp(u_i) / sum over what is left of exp(u_j).

    They are centred within each query: nothing here compares documents of different queries. NaN where a pair was never
    compared. A document that a list leaves out is neither better nor worse than those in it. Judges may contradict
    each other.

    `prior` are imaginary wins, and as many losses, of each document against an average one. It keeps a document that
    always wins finite, and decides between documents that nothing compares. The utilities are the most probable ones,
    found by minorisation and maximisation (Hunter 2004).

    >>> from clickshift import Rankings, Vocabulary
    >>> words, query, _ = Vocabulary.of(["cats"] * 3, ["a", "b", "c"])
    >>> preferred = Rankings(words, query, np.array([[0, 1], [0, 1], [1, 2]]))  # a to b twice, b to c once
    >>> relevance_from_orderings(preferred).round(2).tolist()
    [2.83, -0.22, -2.61]
    """
    if not prior > 0:
        raise DataError(f"the prior must be above 0, or a document that always wins has no utility: got {prior}.")
    entry, list_start, query_start = _by_query(rankings)
    words = rankings.vocabulary
    lists = np.diff(list_start)
    compared = np.zeros(words.n_pairs, bool)
    compared[entry[np.repeat(lists > 1, lists)]] = True
    utility, offsets = np.zeros(words.n_pairs), words.query_offsets
    state = np.zeros((4, words.n_pairs))

    def work(rows: slice) -> None:
        queries = (rows.start, rows.stop, query_start)
        _climb(*queries, list_start, entry, offsets, compared, prior, utility, state)

    for_ranges(work, words.n_queries, chunk=_QUERIES_AT_ONCE)
    n = np.bincount(words.pair_query[compared], minlength=words.n_queries)
    centre = np.bincount(words.pair_query, np.where(compared, utility, 0), words.n_queries) / np.maximum(n, 1)
    relevance: np.ndarray = np.where(compared, utility - centre[words.pair_query], np.nan)
    return relevance


def _by_query(rankings: Rankings) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pair numbers of all lists one after the other, where each list begins, and the first list of each query.

    What the vocabulary does not hold is left out: under Plackett-Luce the order of the others is as likely without it.
    """
    order = np.argsort(rankings.query, kind="stable")
    pair = rankings.pair[order]
    known = pair != UNSEEN
    list_start = np.r_[0, np.cumsum(known.sum(axis=1))]
    query_start = np.searchsorted(rankings.query[order], np.arange(rankings.vocabulary.n_queries + 1))
    return pair[known], list_start, query_start


@njit(cache=True, nogil=True)
@no_type_check
def _climb(first, last, query_start, list_start, entry, offsets, compared, prior, utility, state):
    """Hunter's eq. 30 with the imaginary comparisons: weight = (wins + prior) / (sum of 1 / what was left + ...)."""
    weight, wins, chances, left = state[0], state[1], state[2], state[3]
    for q in range(first, last):
        lists = range(query_start[q], query_start[q + 1])
        docs = range(offsets[q], offsets[q + 1])
        for k in lists:
            for i in range(list_start[k], list_start[k + 1] - 1):
                wins[entry[i]] += 1.0
        for d in docs:
            weight[d] = 1.0
        for _ in range(_STEPS):
            for d in docs:
                chances[d] = 2 * prior / (weight[d] + 1)
            for k in lists:
                start, end = list_start[k], list_start[k + 1]
                below = 0.0
                for i in range(end - 1, start - 1, -1):
                    below += weight[entry[i]]
                    left[i - start + offsets[q]] = below
                chance = 0.0
                for i in range(start, end):
                    if i < end - 1:  # the last place is no choice
                        chance += 1 / left[i - start + offsets[q]]
                    chances[entry[i]] += chance
            moved, lean, n = 0.0, 0.0, 0
            for d in docs:
                if compared[d]:
                    new = np.log((wins[d] + prior) / chances[d])
                    moved = max(moved, abs(new - utility[d]))
                    utility[d] = new
                    lean += np.tanh(new / 2)
                    n += 1
            if n == 0:
                break
            # Shifting all utilities changes the prior alone. Its curvature is at most 1/2, so that this step climbs.
            shift = 2 * lean / n
            for d in docs:
                if compared[d]:
                    utility[d] -= shift
                    weight[d] = np.exp(utility[d])
            if moved < _TOLERANCE and abs(shift) < _TOLERANCE:
                break
