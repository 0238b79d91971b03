"""Position bias from Neyman-orthogonal estimating equations, which compare documents that are comparable.

Comparable is a document with itself, or documents with the same features. A document was shown n_k times at rank k and
clicked c_k times, where n_k theta_k a clicks are expected. Let g be an estimate of its attractiveness a,
r_k = c_k - n_k theta_k g the residual of that estimate, and s_k the share of rank k among the impressions of comparable
documents. Then examination theta solves, for every rank,

    sum over documents of  r_k - p_k (r_1 + r_2 + ...)  =  0,      p_k = s_k theta_k / (s_1 theta_1 + s_2 theta_2 + ...)

These sums have expectation 0 if g is right, and also if s is right: an error of one matters only in so far as the other
is wrong for the same documents. Such equations are called (Neyman) orthogonal. Without p, they would attribute to
examination whatever g has missed of the documents that the ranker prefers.

Where a document is compared with itself (s_k = n_k), g cancels: the clicks on a document are distributed over its ranks
in proportion to n_k theta_k, whatever its attractiveness. No parameter is estimated by document, and so no badly
estimated parameter makes theta worse (the conditional likelihood of Hausman, Hall and Griliches for counts).

References
----------
Chernozhukov, V. et al. (2018). Double/debiased machine learning for treatment and structural parameters. The
Econometrics Journal.

Hausman, J., Hall, B. & Griliches, Z. (1984). Econometric models for count data with an application to the patents-R&D
relationship. Econometrica.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from clickshift.counts.cells import Cells
from clickshift.propensity._bootstrap import ExaminationCurve, effective_sample_size, query_weights

_MAX_ITERATIONS, _TOLERANCE, _MAX_STEP = 50, 1e-9, 1.0
_MIN_SHARE = 1e-300


@dataclass(frozen=True, eq=False)
class DocumentCounts:
    """Impressions and clicks of each document at each rank.

    Parameters
    ----------
    pairs
        (Query, document) pair of each row.
    query
        Query of each row, numbered from 0 without gaps.
    shown
        Impressions at each rank.
    clicked
        Clicks at each rank.
    """

    pairs: Int[np.ndarray, " row"]
    query: Int[np.ndarray, " row"]
    shown: Float[np.ndarray, "row rank"]
    clicked: Float[np.ndarray, "row rank"]

    @classmethod
    def of(cls, cells: Cells) -> DocumentCounts:
        """Arrange counts by pair and rank as a matrix."""
        cells = cells if cells.by == "rank" else cells.rolled_up("rank")
        pairs, row = np.unique(cells.pair, return_inverse=True)
        query = np.unique(cells.vocabulary.pair_query[pairs], return_inverse=True)[1]
        shown, clicked = np.zeros((2, len(pairs), cells.n_ranks))
        shown[row, cells.situation], clicked[row, cells.situation] = cells.impressions, cells.clicks
        return cls(pairs, query, shown, clicked)

    @property
    def n_queries(self) -> int:
        """Number of queries."""
        return int(self.query.max(initial=-1)) + 1

    @property
    def effective_queries(self) -> float:
        """Effective number of queries, weighted by impressions."""
        return effective_sample_size(np.bincount(self.query, self.shown.sum(axis=1)))


@dataclass(frozen=True, eq=False)
class Solution:
    """Solution of the estimating equations, with the influence of each query.

    Parameters
    ----------
    log_examination
        Logarithm of examination; -inf where nothing was clicked, NaN where nothing can be compared.
    influence
        First-order change of the logarithm if the query counted twice.
    """

    log_examination: Float[np.ndarray, " rank"]
    influence: Float[np.ndarray, "query rank"]

    def resampled(self, replicates: int, rng: np.random.Generator) -> Float[np.ndarray, "replicate rank"]:
        """Approximate the solution in resampled logs, from the influence of queries."""
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
    """Solve the estimating equations for ln theta by Newton's method.

    Parameters
    ----------
    documents
        Counts by document and rank.
    share
        Share s of each rank among comparable documents, on any scale, by document.
    attractiveness
        Estimate g by document. With it, theta has the scale at which as many clicks are expected as there were; without
        it, theta is 1 at the rank with most clicks.
    start
        Initial value of ln theta.
    among
        Ranks to solve for; all by default.
    """
    has_clicks = documents.clicked.sum(axis=0) > 0
    ranks = np.flatnonzero(has_clicks if among is None else has_clicks & among)
    log_theta, influence = np.where(has_clicks, np.nan, -np.inf), np.zeros((documents.n_queries, len(has_clicks)))
    if not len(ranks):
        return Solution(log_theta, influence)
    equations = _Equations(documents, share, attractiveness, ranks)
    x = np.zeros(len(ranks)) if start is None else np.nan_to_num(start[ranks], neginf=0.0)
    for _ in range(_MAX_ITERATIONS):
        value, jacobian = equations.at(x)
        step = np.linalg.lstsq(jacobian, -value.sum(axis=0), rcond=1e-12)[0]
        x = x + np.clip(step, -_MAX_STEP, _MAX_STEP)
        if np.abs(step).max() < _TOLERANCE:
            break
    value, jacobian = equations.at(x)
    by_query = np.stack([np.bincount(documents.query, of_rank, documents.n_queries) for of_rank in value.T], axis=1)
    log_theta[ranks] = x
    influence[:, ranks] = np.linalg.lstsq(jacobian, -by_query.T, rcond=1e-12)[0].T
    return Solution(log_theta, influence)


def within_documents(cells: Cells, *, reference: int, replicates: int, rng: np.random.Generator) -> ExaminationCurve:
    """Estimate examination by comparing every document with itself.

    The curve is NaN at ranks that no clicked documents connect with the reference rank.
    """
    from scipy.sparse.csgraph import connected_components

    documents = DocumentCounts.of(cells)
    seen = ((documents.shown > 0) & (documents.clicked.sum(axis=1, keepdims=True) > 0)).astype(float)
    has_clicks = documents.clicked.sum(axis=0) > 0
    connected = (seen.T @ seen > 0) & has_clicks & has_clicks[:, None]
    component = connected_components(connected, directed=False)[1]
    solution = solve_equations(documents, documents.shown, among=component == component[reference])
    return mean_curve([solution], documents, replicates, rng)


def mean_curve(
    solutions: list[Solution], documents: DocumentCounts, replicates: int, rng: np.random.Generator
) -> ExaminationCurve:
    """Average solutions that differ at random, e.g. by the assignment of queries to folds.

    Each is resampled equally often, so that the replicates include that variation, too.
    """
    each = -(-replicates // len(solutions))
    with np.errstate(invalid="ignore"):  # where nothing was clicked
        mean = np.mean([s.log_examination - np.nanmax(s.log_examination) for s in solutions], axis=0)
    resampled = [s.resampled(each, rng) for s in solutions]
    return ExaminationCurve(np.exp(mean), np.exp(np.concatenate(resampled)[:replicates]), documents.effective_queries)


class _Equations:
    """The estimating equations of some ranks, with their derivatives by ln theta."""

    def __init__(
        self,
        documents: DocumentCounts,
        share: Float[np.ndarray, "row rank"],
        attractiveness: Float[np.ndarray, " row"] | None,
        ranks: Int[np.ndarray, " some"],
    ) -> None:
        self._clicked, self._share = documents.clicked[:, ranks], np.maximum(share[:, ranks], _MIN_SHARE)
        self._attracted = None if attractiveness is None else documents.shown[:, ranks] * attractiveness[:, None]
        self._top = int(np.argmax(self._clicked.sum(axis=0)))

    def at(self, x: Float[np.ndarray, " some"]) -> tuple[Float[np.ndarray, "row some"], Float[np.ndarray, "some some"]]:
        """Contribution of every document to the equations at x = ln theta, and the Jacobian of the sums.

        The equations add up to 0, so that one is redundant: that of the most clicked rank is replaced by the one that
        fixes the scale of theta.
        """
        theta = np.exp(x)
        expected = np.zeros_like(self._clicked) if self._attracted is None else self._attracted * theta
        residual = self._clicked - expected
        total = residual.sum(axis=1)
        p = self._share * theta
        p /= p.sum(axis=1, keepdims=True)
        value = residual - p * total[:, None]
        spread = np.diag(total @ p) - p.T @ (total[:, None] * p)
        jacobian = p.T @ expected - np.diag(expected.sum(axis=0)) - spread
        if self._attracted is None:
            value[:, self._top], jacobian[self._top] = 0.0, np.eye(len(x))[self._top]
        else:
            value[:, self._top], jacobian[self._top] = total, -expected.sum(axis=0)
        return value, jacobian
