"""Examination from clicks on what can be compared: the same document, or documents with the same features.

A document was shown n_k times at rank k and clicked c_k times, where n_k theta_k a clicks are expected. Let g be what
is believed of its attractiveness a, r_k = c_k - n_k theta_k g what that belief leaves, and s_k the share of rank k
among the impressions of comparable documents. Then theta is where, for every rank,

    sum over documents of  r_k - p_k (r_1 + r_2 + ...)  =  0,      p_k = s_k theta_k / (s_1 theta_1 + s_2 theta_2 + ...)

These sums are 0 on average if g is right, and also if s is: an error of one counts only as far as the other is wrong
where it is. Such equations are called orthogonal (Chernozhukov et al. 2018, double machine learning). Without p they
would take for examination whatever g has missed of the ranker's good documents.

Where a document is compared with itself (s_k = n_k), g has no part in them: clicks on a document fall on its ranks in
proportion to n_k theta_k, whatever attracts in it. So nothing is estimated by document, and nothing that was estimated
badly by document makes theta worse (Hausman, Hall and Griliches 1984, for counts).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from clickshift.counts.cells import Cells
from clickshift.propensity._bootstrap import ExaminationCurve, effective_sample_size, query_weights

_MOST_STEPS, _STILL, _FAR = 50, 1e-9, 1.0
_LEAST = 1e-300


@dataclass(frozen=True, eq=False)
class DocumentCounts:
    """How often each document was shown and clicked at each rank."""

    pairs: Int[np.ndarray, " row"]
    query: Int[np.ndarray, " row"]
    """Numbered from 0, only those that occur."""
    shown: Float[np.ndarray, "row rank"]
    clicked: Float[np.ndarray, "row rank"]

    @classmethod
    def of(cls, cells: Cells) -> DocumentCounts:
        cells = cells if cells.by == "rank" else cells.rolled_up("rank")
        pairs, row = np.unique(cells.pair, return_inverse=True)
        query = np.unique(cells.vocabulary.pair_query[pairs], return_inverse=True)[1]
        shown, clicked = np.zeros((2, len(pairs), cells.n_ranks))
        shown[row, cells.situation], clicked[row, cells.situation] = cells.impressions, cells.clicks
        return cls(pairs, query, shown, clicked)

    @property
    def n_queries(self) -> int:
        return int(self.query.max(initial=-1)) + 1

    @property
    def effective_queries(self) -> float:
        return effective_sample_size(np.bincount(self.query, self.shown.sum(axis=1)))


@dataclass(frozen=True, eq=False)
class Solution:
    """Where the equations hold, and what each query adds to them."""

    log_examination: Float[np.ndarray, " rank"]
    """-inf where nothing was clicked, NaN where nothing can be compared."""
    influence: Float[np.ndarray, "query rank"]
    """By how much the logarithm would move if the query counted twice, in the first order."""

    def resampled(self, replicates: int, rng: np.random.Generator) -> Float[np.ndarray, "replicate rank"]:
        """Logarithms for queries that count more or less at random."""
        weight = query_weights(len(self.influence), replicates, rng)[1:]
        moved: np.ndarray = self.log_examination + weight / weight.mean(axis=1, keepdims=True) @ self.influence
        return moved


def solve_equations(
    documents: DocumentCounts,
    share: Float[np.ndarray, "row rank"],
    attractiveness: Float[np.ndarray, " row"] | None = None,
    *,
    start: Float[np.ndarray, " rank"] | None = None,
    among: Bool[np.ndarray, " rank"] | None = None,
) -> Solution:
    """Newton's method for ln theta, of the ranks `among` all. `share` may be on any scale, for each document its own.

    With `attractiveness`, theta has the scale at which as many clicks are expected as there were; without, it is 1 at
    the rank that was clicked most.
    """
    some = documents.clicked.sum(axis=0) > 0
    ranks = np.flatnonzero(some if among is None else some & among)
    log_theta, influence = np.where(some, np.nan, -np.inf), np.zeros((documents.n_queries, len(some)))
    if not len(ranks):
        return Solution(log_theta, influence)
    equations = _Equations(documents, share, attractiveness, ranks)
    x = np.zeros(len(ranks)) if start is None else np.nan_to_num(start[ranks], neginf=0.0)
    for _ in range(_MOST_STEPS):
        value, slope = equations.at(x)
        step = np.linalg.lstsq(slope, -value.sum(axis=0), rcond=1e-12)[0]
        x = x + np.clip(step, -_FAR, _FAR)
        if np.abs(step).max() < _STILL:
            break
    value, slope = equations.at(x)
    by_query = np.stack([np.bincount(documents.query, of_rank, documents.n_queries) for of_rank in value.T], axis=1)
    log_theta[ranks] = x
    influence[:, ranks] = np.linalg.lstsq(slope, -by_query.T, rcond=1e-12)[0].T
    return Solution(log_theta, influence)


def within_documents(cells: Cells, *, reference: int, replicates: int, rng: np.random.Generator) -> ExaminationCurve:
    """Every document compared with itself; NaN at ranks that no clicked documents join with the reference rank."""
    from scipy.sparse.csgraph import connected_components

    documents = DocumentCounts.of(cells)
    seen = ((documents.shown > 0) & (documents.clicked.sum(axis=1, keepdims=True) > 0)).astype(float)
    clicked = documents.clicked.sum(axis=0) > 0
    joined = (seen.T @ seen > 0) & clicked & clicked[:, None]
    component = connected_components(joined, directed=False)[1]
    found = solve_equations(documents, documents.shown, among=component == component[reference])
    return mean_curve([found], documents, replicates, rng)


def mean_curve(
    solutions: list[Solution], documents: DocumentCounts, replicates: int, rng: np.random.Generator
) -> ExaminationCurve:
    """The mean of solutions that differ by chance, such as how queries were dealt into folds.

    Each is resampled as often as the others, so that replicates differ by that chance, too.
    """
    each = -(-replicates // len(solutions))
    with np.errstate(invalid="ignore"):  # nothing was clicked
        mean = np.mean([found.log_examination - np.nanmax(found.log_examination) for found in solutions], axis=0)
    resampled = [found.resampled(each, rng) for found in solutions]
    return ExaminationCurve(np.exp(mean), np.exp(np.concatenate(resampled)[:replicates]), documents.effective_queries)


class _Equations:
    """One for each rank, and their derivatives by ln theta, at some ranks alone."""

    def __init__(
        self,
        documents: DocumentCounts,
        share: Float[np.ndarray, "row rank"],
        attractiveness: Float[np.ndarray, " row"] | None,
        ranks: Int[np.ndarray, " some"],
    ) -> None:
        self._clicked, self._share = documents.clicked[:, ranks], np.maximum(share[:, ranks], _LEAST)
        self._believed = None if attractiveness is None else documents.shown[:, ranks] * attractiveness[:, None]
        self._top = int(np.argmax(self._clicked.sum(axis=0)))

    def at(self, x: Float[np.ndarray, " some"]) -> tuple[Float[np.ndarray, "row some"], Float[np.ndarray, "some some"]]:
        """What every document adds to the equations, and the slope of the sums. They add up to 0, so that one says
        nothing: in the place of the most clicked rank's stands the one that gives theta its scale."""
        theta = np.exp(x)
        expected = np.zeros_like(self._clicked) if self._believed is None else self._believed * theta
        left = self._clicked - expected
        total = left.sum(axis=1)
        p = self._share * theta
        p /= p.sum(axis=1, keepdims=True)
        value = left - p * total[:, None]
        spread = np.diag(total @ p) - p.T @ (total[:, None] * p)
        slope = p.T @ expected - np.diag(expected.sum(axis=0)) - spread
        if self._believed is None:
            value[:, self._top], slope[self._top] = 0.0, np.eye(len(x))[self._top]
        else:
            value[:, self._top], slope[self._top] = total, -expected.sum(axis=0)
        return value, slope
