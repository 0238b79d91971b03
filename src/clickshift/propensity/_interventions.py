"""Interventions: documents that were shown at two ranks, and what their clicks say about the position bias of both.

For a (query, document) pair that was shown n_k times at rank k and n_l times at rank l, a click at rank k counts
n_l / (n_k + n_l) and one at rank l counts n_k / (n_k + n_l). The pair thus has the same weight, n_k n_l / (n_k + n_l),
at both ranks, and the sums over all such pairs have the expectations

    E[clicks_kl] = examination_k x sum of weight x attractiveness,   E[clicks_lk] = examination_l x the same sum

exactly, given where documents were shown. Agarwal et al. (2019) divide clicks by the probability that the rankers
together show the document at the rank, for which the rankers must be known. These weights of Mantel and Haenszel need
only counts, and a document that was shown once at a rank does not weigh as much as one that was shown a thousand times.

References
----------
Agarwal, A. et al. (2019). Estimating position bias without intrusive interventions. WSDM.

Mantel, N. & Haenszel, W. (1959). Statistical aspects of the analysis of data from retrospective studies of disease.
Journal of the National Cancer Institute.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from clickshift.counts.cells import Cells
from clickshift.propensity._bootstrap import effective_sample_size, query_weights

_BLOCK_SIZE = 1 << 22
"""Number of pairs x ranks x ranks that are processed at once."""


@dataclass(frozen=True, eq=False)
class Interventions:
    """Sums over the pairs that were shown at both of two ranks, for the log (first) and resampled logs.

    Parameters
    ----------
    clicks
        [k, l]: weighted clicks at rank k of documents that were also shown at rank l.
    weight
        [k, l]: weight of those documents, i.e. the effective number of swaps.
    n_queries
        Effective number of queries that have any.
    """

    clicks: Float[np.ndarray, "replicate rank rank"]
    weight: Float[np.ndarray, "replicate rank rank"]
    n_queries: float


def count_interventions(cells: Cells, *, replicates: int, rng: np.random.Generator) -> Interventions:
    """Sum the weighted clicks of documents that were shown at two ranks, from counts by pair and rank."""
    cells = cells if cells.by == "rank" else cells.rolled_up("rank")
    n_ranks = cells.n_ranks
    clicks = np.zeros((replicates + 1, n_ranks * n_ranks))
    weight = np.zeros((replicates + 1, n_ranks * n_ranks))
    by_query = []
    for first_of_query, shown, clicked in _blocks(cells):
        total = shown[:, :, None] + shown[:, None, :]
        share = np.where(shown[:, :, None] > 0, shown[:, None, :], 0.0) / np.where(total > 0, total, 1.0)
        share[:, np.arange(n_ranks), np.arange(n_ranks)] = 0.0
        sums = [
            np.add.reduceat(share * counts[:, :, None], first_of_query, axis=0).reshape(len(first_of_query), -1)
            for counts in (clicked, shown)
        ]
        drawn = query_weights(len(first_of_query), replicates, rng)
        clicks += drawn @ sums[0]
        weight += drawn @ sums[1]
        by_query.append(sums[1].sum(axis=1))
    shape = (replicates + 1, n_ranks, n_ranks)
    n_queries = effective_sample_size(np.concatenate(by_query)) if by_query else 0.0
    return Interventions(clicks.reshape(shape), weight.reshape(shape), n_queries)


def _blocks(cells: Cells) -> Iterator[tuple[Int[np.ndarray, " query"], np.ndarray, np.ndarray]]:
    """Yield impressions and clicks (pairs x ranks) of pairs that were shown at several ranks, by whole queries.

    The first value is the row at which the pairs of each query begin.
    """
    nonempty = np.flatnonzero(cells.impressions > 0)
    n_ranks_shown = np.bincount(cells.pair[nonempty], minlength=cells.vocabulary.n_pairs)
    cell = nonempty[n_ranks_shown[cells.pair[nonempty]] > 1]
    pairs, row = np.unique(cells.pair[cell], return_inverse=True)
    if not len(pairs):
        return
    query = cells.vocabulary.pair_query[pairs]
    first = np.flatnonzero(np.r_[True, query[1:] != query[:-1]])
    size = max(1, _BLOCK_SIZE // cells.n_ranks**2)
    cuts = np.unique(np.searchsorted(first, np.arange(0, len(pairs), size), side="right") - 1)
    for start, stop in zip(cuts, np.append(cuts[1:], len(first)), strict=True):
        rows = slice(first[start], first[stop] if stop < len(first) else len(pairs))
        block = slice(*np.searchsorted(row, [rows.start, rows.stop]))
        block_cells = cell[block]
        index = row[block] - rows.start, cells.situation[block_cells]
        shown, clicked = (np.zeros((rows.stop - rows.start, cells.n_ranks)) for _ in range(2))
        shown[index], clicked[index] = cells.impressions[block_cells], cells.clicks[block_cells]
        yield first[start:stop] - rows.start, shown, clicked
