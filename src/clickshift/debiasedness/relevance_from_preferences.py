"""Relevance from judgments that only order documents: preferences between two, or whole lists, best first.

Both are rankings, so one model serves both: Plackett-Luce, which for lists of two is Bradley-Terry.
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

_QUERIES_PER_TASK = 64
_MAX_ITERATIONS = 100_000
_TOLERANCE = 1e-9


def relevance_from_orderings(rankings: Rankings, *, prior: float = 0.1) -> Float[np.ndarray, " pair"]:
    """Estimate utilities u with P(list) = product over its ranks of exp(u_i) / sum over the remaining of exp(u_j).

    Utilities are centred within each query: orderings do not compare documents of different queries. A document that a
    list leaves out is neither better nor worse than those in it. Judges may contradict each other. The estimates are
    posterior modes, found by minorisation-maximisation (Hunter 2004).

    Parameters
    ----------
    rankings
        Ordered lists, best document first; a preference is a list of two.
    prior
        Pseudo-count of wins, and of as many losses, of each document against an average one. It keeps the utility of a
        document that always wins finite, and determines the difference between documents that nothing compares.

    Returns
    -------
    Float[pair]
        Utility of each pair; NaN for a pair that was never compared.

    Raises
    ------
    DataError
        "bad-option" if the prior is not positive.

    References
    ----------
    Hunter, D. R. (2004). MM algorithms for generalized Bradley-Terry models. Annals of Statistics.

    Examples
    --------
    >>> from clickshift import Rankings, Vocabulary
    >>> vocabulary, query, _ = Vocabulary.of(["cats"] * 3, ["a", "b", "c"])
    >>> preferred = Rankings(vocabulary, query, np.array([[0, 1], [0, 1], [1, 2]]))  # a to b twice, b to c once
    >>> relevance_from_orderings(preferred).round(2).tolist()
    [2.83, -0.22, -2.61]
    """
    if not prior > 0:
        raise DataError(
            f"the prior must be above 0, or a document that always wins has no finite utility: got {prior}.",
            code="bad-option",
            option="prior",
            value=prior,
        )
    entry, list_start, query_start = _by_query(rankings)
    vocabulary = rankings.vocabulary
    length = np.diff(list_start)
    compared = np.zeros(vocabulary.n_pairs, bool)
    compared[entry[np.repeat(length > 1, length)]] = True
    utility, offsets = np.zeros(vocabulary.n_pairs), vocabulary.query_offsets
    workspace = np.zeros((4, vocabulary.n_pairs))

    def work(rows: slice) -> None:
        queries = (rows.start, rows.stop, query_start)
        _maximise_posterior(*queries, list_start, entry, offsets, compared, prior, utility, workspace)

    for_ranges(work, vocabulary.n_queries, chunk=_QUERIES_PER_TASK)
    n = np.bincount(vocabulary.pair_query[compared], minlength=vocabulary.n_queries)
    total = np.bincount(vocabulary.pair_query, np.where(compared, utility, 0), vocabulary.n_queries)
    centre = total / np.maximum(n, 1)
    relevance: np.ndarray = np.where(compared, utility - centre[vocabulary.pair_query], np.nan)
    return relevance


def _by_query(rankings: Rankings) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the concatenated pair numbers of all lists, the start of each list, and the first list of each query.

    Documents that the vocabulary does not hold are left out: under Plackett-Luce the order of the others has the same
    probability without them.
    """
    order = np.argsort(rankings.query, kind="stable")
    pair = rankings.pair[order]
    present = pair != UNSEEN
    list_start = np.r_[0, np.cumsum(present.sum(axis=1))]
    query_start = np.searchsorted(rankings.query[order], np.arange(rankings.vocabulary.n_queries + 1))
    return pair[present], list_start, query_start


@njit(cache=True, nogil=True)
@no_type_check
def _maximise_posterior(first, last, query_start, list_start, entry, offsets, compared, prior, utility, workspace):
    """Iterate Hunter's eq. 30 with the prior's comparisons added, for queries first..last.

    weight = (wins + prior) / (sum over choices of 1 / weight of the remaining documents + 2 prior / (weight + 1))
    """
    weight, wins, denominator, remaining = workspace[0], workspace[1], workspace[2], workspace[3]
    for q in range(first, last):
        lists = range(query_start[q], query_start[q + 1])
        docs = range(offsets[q], offsets[q + 1])
        for k in lists:
            for i in range(list_start[k], list_start[k + 1] - 1):
                wins[entry[i]] += 1.0
        for d in docs:
            weight[d] = 1.0
        for _ in range(_MAX_ITERATIONS):
            for d in docs:
                denominator[d] = 2 * prior / (weight[d] + 1)
            for k in lists:
                start, end = list_start[k], list_start[k + 1]
                below = 0.0
                for i in range(end - 1, start - 1, -1):
                    below += weight[entry[i]]
                    remaining[i - start + offsets[q]] = below
                inverse_sum = 0.0
                for i in range(start, end):
                    if i < end - 1:  # the last rank leaves no choice
                        inverse_sum += 1 / remaining[i - start + offsets[q]]
                    denominator[entry[i]] += inverse_sum
            largest_change, prior_gradient, n = 0.0, 0.0, 0
            for d in docs:
                if compared[d]:
                    new = np.log((wins[d] + prior) / denominator[d])
                    largest_change = max(largest_change, abs(new - utility[d]))
                    utility[d] = new
                    prior_gradient += np.tanh(new / 2)
                    n += 1
            if n == 0:
                break
            # A common shift of utilities changes only the prior; its curvature is at most 1/2, so this step ascends.
            shift = 2 * prior_gradient / n
            for d in docs:
                if compared[d]:
                    utility[d] -= shift
                    weight[d] = np.exp(utility[d])
            if largest_change < _TOLERANCE and abs(shift) < _TOLERANCE:
                break
