"""ExpectedClicks: the learner of COEC, clicks over expected clicks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from jaxtyping import Float

from clickshift.core.newton import MAX_PROBABILITY
from clickshift.counts.cells import By, Cells
from clickshift.data.encoded_log import Log
from clickshift.errors import SpecError
from clickshift.learners.base import Requirement
from clickshift.learners.counting import cells_by_rank, evidence_of_rates
from clickshift.models.base import pair_table
from clickshift.models.coec import COEC

__all__ = ["ExpectedClicks"]


@final
@dataclass(frozen=True)
class ExpectedClicks:
    """Learner of COEC: (clicks + a) / (expected clicks + a), with a Gamma(a, a) prior, whose mean is 1.

    Expected clicks of a pair are the sum over its impressions of the click-through rate of their rank.

    Parameters
    ----------
    model
        COEC.
    reference
        Ranks whose click-through rates are expected of a pair. "impressions": those at which it was shown, as often
        as it was shown at each (Zhang and Jones 2007). "best-rank": for all of its impressions the best rank at which
        it was ever shown, which is how the Search Relevance Workbench of OpenSearch computes COEC; a document that was
        shown at several ranks gets a COEC that is too low.
    strength
        Pseudo-clicks a of the prior, which are expected and observed. By default, 1, and 0 for "best-rank": the numbers
        of OpenSearch. With 0, a pair without clicks has a COEC of 0 and is predicted never to be clicked.

    Raises
    ------
    SpecError
        If the model is another one ("unknown-name"), or if an option is wrong ("bad-option").

    References
    ----------
    Zhang, W. V. and Jones, R. (2007). Comparing click logs and editorial labels for training query rewriting. WWW
    workshop on query log analysis.

    Examples
    --------
    >>> import clickshift as cs
    >>> log = cs.simulate(cs.builtin_corpus(5), cs.Uniform(), cs.users.PBM(), 2000, rng=0)
    >>> cs.fit("COEC", log).ctr.round(2)[[0, 4]]
    array([0.15, 0.03])
    >>> cs.fit("COEC(reference='best-rank')", log).evidence.learner
    "ExpectedClicks('COEC', reference='best-rank')"
    """

    requires: ClassVar[Requirement] = "cells"
    """What this learner needs of a log."""
    by: ClassVar[By] = "rank"
    """Situations by which `Cells` are counted for this learner."""
    model: str
    reference: str = "impressions"
    strength: float | None = None

    def __post_init__(self) -> None:
        if self.model != "COEC":
            raise SpecError(
                f"ExpectedClicks does not fit {self.model!r}. It fits: COEC.",
                code="unknown-name",
                value=self.model,
                known=["COEC"],
            )
        if self.reference not in {"impressions", "best-rank"}:
            raise SpecError(
                f"reference must be 'impressions' or 'best-rank': got {self.reference!r}.",
                code="bad-option",
                option="reference",
                value=self.reference,
            )
        if self.strength is not None and not 0 <= self.strength < np.inf:
            raise SpecError(
                f"strength must be a number of 0 or more: got {self.strength}.",
                code="bad-option",
                option="strength",
                value=self.strength,
            )

    @property
    def pseudo_clicks(self) -> float:
        """Pseudo-clicks of the prior, the default filled in."""
        if self.strength is not None:
            return float(self.strength)
        return 1.0 if self.reference == "impressions" else 0.0

    def fit(self, data: Log | Cells) -> COEC:
        """Estimate COEC from a log, or from its counts.

        Parameters
        ----------
        data
            A log, or its cells by pair and rank (finer cells are summed).

        Returns
        -------
        COEC
            The fitted model.
        """
        cells = cells_by_rank(data)
        impressions, clicks = cells.by_pair()
        shown, clicked = cells.by_rank()
        rate: np.ndarray = clicked / np.maximum(shown, 1.0)
        expected = cells.weighted_impressions(rate) if self.reference == "impressions" else _at_best_rank(cells, rate)
        a = self.pseudo_clicks
        total = expected + a
        known = total > 0
        coec = np.where(known, (clicks + a) / np.where(known, total, 1.0), 0.0)
        # standard error of the logit of clicks per impression, with the pseudo-impressions of the prior
        trials = impressions + np.where(expected > 0, a * impressions / np.where(expected > 0, expected, 1.0), 0.0)
        smoothed = np.clip((clicks + a) / np.maximum(trials, 1e-12), 1e-12, MAX_PROBABILITY)
        with np.errstate(divide="ignore"):
            error = 1 / np.sqrt(trials * smoothed * (1 - smoothed))
        evidence = evidence_of_rates(self, cells, relevance=pair_table(error, unseen=np.inf))
        if a > 0:  # a rank without clicks can be clicked, and so can an unknown pair
            rate = np.where(clicked > 0, rate, clicked.sum() / max(shown.sum(), 1.0) / (shown + 1))
        return COEC(
            cells.vocabulary,
            pair_table(coec, unseen=1.0 if a > 0 else 0.0),
            rate,
            pair_table(expected, unseen=0.0),
            evidence=evidence,
        )


def _at_best_rank(cells: Cells, rate: Float[np.ndarray, " rank"]) -> Float[np.ndarray, " pair"]:
    """Return the expected clicks of each pair as if all of its impressions were at its best rank."""
    impressions, _ = cells.by_pair()
    present = np.flatnonzero(cells.impressions > 0)
    best = np.zeros(cells.vocabulary.n_pairs, np.int64)
    pairs, first = np.unique(cells.pair[present], return_index=True)  # cells of a pair ascend by rank
    best[pairs] = cells.rank()[present[first]]
    expected: np.ndarray = impressions * rate[best]
    return expected
