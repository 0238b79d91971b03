"""Swap interventions: documents that are randomly swapped with the first result.

    examination_k / examination_1 = weighted clicks at rank k / weighted clicks at rank 1

of the same documents, those that a swap moved, with the weights of `_interventions`. This is the ratio of Mantel and
Haenszel. It equals the papers' ratio of click-through rates where a swap is as likely as none, and holds for any share
of swaps, also one that differs by query.

References
----------
Joachims, T., Swaminathan, A. & Schnabel, T. (2017). Unbiased learning-to-rank with biased feedback. WSDM.

Wang, X. et al. (2018). Position bias estimation for unbiased learning to rank in personal search. WSDM.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Int

from clickshift.counts.cells import Cells
from clickshift.data.encoded_log import Log
from clickshift.errors import DataError
from clickshift.propensity._bootstrap import ExaminationCurve
from clickshift.propensity._interventions import count_interventions


def swap_ratios(
    log: Log | Cells,
    swapped: Int[np.ndarray, " session"] | None,
    *,
    reference: int,
    replicates: int,
    rng: np.random.Generator,
) -> ExaminationCurve:
    """Estimate examination relative to the reference rank from swaps; NaN for a rank that was not swapped with it.

    Parameters
    ----------
    log
        The log, or its counts by pair and rank.
    swapped
        For every row of the log, the rank (from 0) that was swapped with the reference rank; the reference rank itself,
        or -1, where none was. Without it, all differences in rank are taken to be random.
    reference
        The reference rank, from 0.
    replicates
        Number of resampled logs.
    rng
        Generator of the bootstrap weights.

    Raises
    ------
    DataError
        If `swapped` is given for counts ("needs-sessions") or is not valid ("wrong-shape", "rank-out-of-range").
    """
    if swapped is None:
        cells = log if isinstance(log, Cells) else Cells.of(log)
        counts = count_interventions(cells, replicates=replicates, rng=rng)
        clicks, reference_clicks = counts.clicks[:, :, reference], counts.clicks[:, reference, :]
        return _ratios(clicks, reference_clicks, counts.weight[:, :, reference], reference, counts.n_queries)
    if isinstance(log, Cells):
        raise DataError("marked swaps need sessions: got counts. Pass the log itself.", code="needs-sessions")
    swapped = _checked_swaps(swapped, log)
    not_swapped = (swapped == -1) | (swapped == reference)
    shape = (replicates + 1, log.n_ranks)
    clicks, reference_clicks, weight = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    n_queries = []
    for rank in np.unique(swapped[~not_swapped]):
        cells = _two_ranks(Cells.of(log[not_swapped | (swapped == rank)]), reference, int(rank))
        counts = count_interventions(cells, replicates=replicates, rng=rng)
        clicks[:, rank], reference_clicks[:, rank] = counts.clicks[:, 1, 0], counts.clicks[:, 0, 1]
        weight[:, rank] = counts.weight[:, 1, 0]
        n_queries.append(counts.n_queries)
    return _ratios(clicks, reference_clicks, weight, reference, min(n_queries, default=0.0))


def _ratios(
    clicks: np.ndarray, reference_clicks: np.ndarray, weight: np.ndarray, reference: int, n_queries: float
) -> ExaminationCurve:
    """Ratio of weighted clicks at each rank to those at the reference rank."""
    identified = (weight > 0) & (reference_clicks > 0)
    ratio = np.where(identified, clicks / np.where(identified, reference_clicks, 1.0), np.nan)
    ratio[:, reference] = 1.0
    return ExaminationCurve(ratio[0], ratio[1:], n_queries)


def _two_ranks(cells: Cells, reference: int, rank: int) -> Cells:
    """Keep the counts of two ranks, as ranks 0 (the reference) and 1."""
    keep = np.flatnonzero((cells.situation == reference) | (cells.situation == rank))
    new_rank = (cells.situation[keep] == rank).astype(cells.situation.dtype)
    return Cells(cells.vocabulary, 2, "rank", cells.pair[keep], new_rank, cells.impressions[keep], cells.clicks[keep])


def _checked_swaps(swapped: np.ndarray, log: Log) -> Int[np.ndarray, " session"]:
    """Check the swapped rank of each row of a log."""
    swapped = np.asarray(swapped)
    if swapped.shape != (len(log),) or swapped.dtype.kind not in "iu":
        raise DataError(
            f"swapped must be one whole number per row of the log, {len(log):,}: got {swapped.dtype} of shape "
            f"{swapped.shape}.",
            code="wrong-shape",
            shape=swapped.shape,
            expected=(len(log),),
        )
    length = np.concatenate([part.rankings.length for part in log.chunks()])
    out_of_range = (swapped < -1) | (swapped >= np.maximum(length, 1))
    bad = np.flatnonzero(out_of_range | _at_a_hole(np.where(out_of_range, -1, swapped), log))
    if len(bad):
        row = int(bad[0])
        raise DataError(
            f"a swapped rank must be one of the list, with a document: row {row + 1} has rank {swapped[row] + 1} of a "
            f"list of {length[row]}. Mark a list without a swap with -1 (0 in a file).",
            code="rank-out-of-range",
            row=row + 1,
            value=int(swapped[row]) + 1,
            n_ranks=int(length[row]),
            count=len(bad),
        )
    return swapped.astype(np.int64)


def _at_a_hole(swapped: Int[np.ndarray, " session"], log: Log) -> Bool[np.ndarray, " session"]:
    """Return whether the list of each row shows nothing at its swapped rank; False where none was swapped."""
    first, holes = 0, []
    for part in log.chunks():
        rank = swapped[first : first + len(part)]
        holes.append((rank >= 0) & ~part.rankings.shown[np.arange(len(part)), rank])
        first += len(part)
    return np.concatenate(holes)
