"""Swap interventions: documents that change places with the first result at random (Joachims et al. 2017, Wang et al.
2018).

    examination_k / examination_1 = weighted clicks at rank k / weighted clicks at rank 1

of the same documents, those that a swap moved, with the weights of `count_interventions`: the ratio of Mantel and Haenszel,
which is the papers' ratio of click-through rates where a swap is as likely as none, and holds for any share of swaps,
also one that differs by query.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int

from clickshift.counts.cells import Cells
from clickshift.data.sessions import Sessions
from clickshift.errors import DataError
from clickshift.propensity._bootstrap import ExaminationCurve
from clickshift.propensity._interventions import count_interventions


def swap_ratios(
    log: Sessions | Cells,
    swapped: Int[np.ndarray, " session"] | None,
    *,
    reference: int,
    replicates: int,
    rng: np.random.Generator,
) -> ExaminationCurve:
    """Examination relative to the `reference` rank; NaN for a rank that was not swapped with it.

    `swapped` has, for every row of the log, the rank (from 0) that changed places with the reference rank, and the
    reference rank itself, or -1, where the list stood as ranked. Without it, all differences in rank are taken for
    random.
    """
    if swapped is None:
        cells = log if isinstance(log, Cells) else Cells.of(log)
        found = count_interventions(cells, replicates=replicates, rng=rng)
        here, there = found.clicks[:, :, reference], found.clicks[:, reference, :]
        return _ratios(here, there, found.weight[:, :, reference], reference, found.n_queries)
    if isinstance(log, Cells):
        raise DataError("marked swaps are told from sessions: got counts. Give the log itself.")
    swapped = _checked(swapped, log)
    as_ranked = (swapped == -1) | (swapped == reference)
    shape = (replicates + 1, log.n_ranks)
    here, there, weight = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    n_queries = []
    for rank in np.unique(swapped[~as_ranked]):
        two = _two_ranks(Cells.of(log[np.flatnonzero(as_ranked | (swapped == rank))]), reference, int(rank))
        found = count_interventions(two, replicates=replicates, rng=rng)
        here[:, rank], there[:, rank] = found.clicks[:, 1, 0], found.clicks[:, 0, 1]
        weight[:, rank] = found.weight[:, 1, 0]
        n_queries.append(found.n_queries)
    return _ratios(here, there, weight, reference, min(n_queries, default=0.0))


def _ratios(
    here: np.ndarray, there: np.ndarray, weight: np.ndarray, reference: int, n_queries: float
) -> ExaminationCurve:
    known = (weight > 0) & (there > 0)
    ratio = np.where(known, here / np.where(known, there, 1.0), np.nan)
    ratio[:, reference] = 1.0
    return ExaminationCurve(ratio[0], ratio[1:], n_queries)


def _two_ranks(cells: Cells, reference: int, rank: int) -> Cells:
    """What was seen at two ranks alone, as ranks 0 and 1."""
    keep = np.flatnonzero((cells.situation == reference) | (cells.situation == rank))
    place = (cells.situation[keep] == rank).astype(cells.situation.dtype)
    return Cells(cells.vocabulary, 2, "rank", cells.pair[keep], place, cells.impressions[keep], cells.clicks[keep])


def _checked(swapped: np.ndarray, log: Sessions) -> Int[np.ndarray, " session"]:
    swapped = np.asarray(swapped)
    if swapped.shape != (len(log),) or swapped.dtype.kind not in "iu":
        raise DataError(
            f"swapped must be one whole number per row of the log, {len(log):,}: got {swapped.dtype} of shape "
            f"{swapped.shape}."
        )
    bad = np.flatnonzero((swapped < -1) | (swapped >= np.maximum(log.rankings.length, 1)))
    if len(bad):
        raise DataError(
            f"a swapped rank must be one of the list: row {bad[0] + 1} has rank {swapped[bad[0]] + 1} of a list of "
            f"{log.rankings.length[bad[0]]}. Mark a list that stood as ranked with -1 (0 in a file)."
        )
    return swapped.astype(np.int64)
