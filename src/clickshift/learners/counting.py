"""Counting: the learner of click-through-rate models and popularity scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from clickshift.core.newton import MAX_PROBABILITY
from clickshift.core.spec import label
from clickshift.counts.cells import By, Cells
from clickshift.data.encoded_log import Log
from clickshift.errors import SpecError
from clickshift.learners._position_kernels import usual_rank
from clickshift.learners._priors import fit_beta_binomial
from clickshift.learners.base import Learner, Requirement
from clickshift.models.base import ClickModel, Evidence, pair_table
from clickshift.models.ctr import DCTR, DRCTR, GCTR, RCTR
from clickshift.models.popularity import RankTopObs, TopPop, TopPopObs

__all__ = ["Counting"]

_Counts = np.ndarray


@final
@dataclass(frozen=True)
class Counting:
    """Learner of smoothed click-through rates: (clicks + a) / (impressions + a + b) with a Beta(a, b) prior.

    A rate that was never observed is the mean of the prior. The relevance of drCTR sums rates over ranks: with "fixed"
    smoothing over the observed ranks, without smoothing; with "fitted" over all ranks, as the CMIP paper does.

    Parameters
    ----------
    model
        gCTR, rCTR, dCTR, drCTR, TopPop, TopPopObs or RankTopObs.
    smoothing
        "fixed", as in the policy-shift paper: a = `strength`, and a / (a + b) is the global rate (drCTR: the rank's
        rate). "fitted": a and b by empirical Bayes, the beta-binomial that fits the counts best, per rank (dCTR: for
        the documents that are usually shown at the rank, since a ranker does not show all documents equally).
    strength
        Pseudo-clicks a of "fixed" smoothing.

    Raises
    ------
    SpecError
        If the model is not one of these ("unknown-name"), or if an option is wrong ("bad-option").

    References
    ----------
    Deffayet, R., Renders, J.-M. and de Rijke, M. (2022). Evaluating the robustness of click models to policy
    distributional shift. ACM TOIS.
    Deffayet, R. et al. (2023). An offline metric for the debiasedness of click models. SIGIR.

    Examples
    --------
    >>> import clickshift as cs
    >>> log = cs.simulate(cs.builtin_corpus(5), cs.Uniform(), cs.users.PBM(), 2000, rng=0)
    >>> model = cs.fit(Counting("rCTR"), log)
    >>> bool(model.ctr[0] > model.ctr[9])
    True
    """

    requires: ClassVar[Requirement] = "cells"
    """What this learner needs of a log."""
    by: ClassVar[By] = "rank"
    """Situations by which `Cells` are counted for this learner."""
    model: str
    smoothing: str = "fixed"
    strength: float = 1.0

    def __post_init__(self) -> None:
        if self.model not in _FITTERS:
            raise SpecError(
                f"Counting does not fit {self.model!r}. It fits: {', '.join(_FITTERS)}.",
                code="unknown-name",
                value=self.model,
                known=list(_FITTERS),
            )
        if self.smoothing not in {"fixed", "fitted"}:
            raise SpecError(
                f"smoothing must be 'fixed' or 'fitted': got {self.smoothing!r}.",
                code="bad-option",
                option="smoothing",
                value=self.smoothing,
            )
        if not self.strength > 0:
            raise SpecError(
                f"strength must be above 0: got {self.strength}.",
                code="bad-option",
                option="strength",
                value=self.strength,
            )

    def fit(self, data: Log | Cells) -> ClickModel:
        """Estimate the rates from a log, or from its counts.

        Parameters
        ----------
        data
            A log, or its cells by pair and rank (finer cells are summed).

        Returns
        -------
        ClickModel
            The fitted model.
        """
        return _FITTERS[self.model](self, cells_by_rank(data))

    def rates(self, impressions: _Counts, clicks: _Counts, mean: float) -> tuple[np.ndarray, np.ndarray, float]:
        """Return smoothed rates, the standard errors of their logits, and the rate of what was never observed."""
        a, b = self.strength, self.strength * (1 - mean) / mean
        if self.smoothing == "fitted":
            a, b = fit_beta_binomial(impressions, clicks)
        rate = np.minimum((clicks + a) / (impressions + a + b), MAX_PROBABILITY)
        return rate, 1 / np.sqrt((impressions + a + b) * rate * (1 - rate)), a / (a + b)


def cells_by_rank(data: Log | Cells) -> Cells:
    """Return the counts of a log by pair and rank.

    Parameters
    ----------
    data
        A log, or its cells, of which finer ones are summed.
    """
    return data.rolled_up("rank") if isinstance(data, Cells) else Cells.of(data)


def evidence_of_rates(learner: Learner, cells: Cells, **errors: np.ndarray) -> Evidence:
    """Return the evidence of a model that was fitted by counting, with the standard errors of its parameters.

    Parameters
    ----------
    learner
        The learner.
    cells
        The counts that it was fitted on.
    **errors
        Standard errors of the logits of parameters. With those of the relevance, all are by pair, and the counts of the
        pairs are their successes and trials.
    """
    impressions, clicks = (pair_table(counts, unseen=0.0) for counts in cells.by_pair())
    counts = np.stack([clicks, impressions])
    ranks = pair_table(cells.mean_rank(), unseen=float("nan"))
    effective = dict.fromkeys(errors, counts) if "relevance" in errors else {}
    return Evidence(label(learner), impressions, clicks, errors, mean_rank=ranks, effective_counts=effective)


def _global_rate(cells: Cells) -> float:
    """Return the global rate, kept off 0 and 1 by half a pseudo-click in one pseudo-impression."""
    return float((cells.clicks.sum() + 0.5) / (cells.impressions.sum() + 1))


def _rank_rates(cells: Cells) -> np.ndarray:
    """Return the rates by rank, each with one pseudo-impression at the global rate."""
    impressions, clicks = cells.by_rank()
    global_rate = _global_rate(cells)
    rates: np.ndarray = (clicks + global_rate) / (impressions + 1)
    return rates


def _gctr(learner: Counting, cells: Cells) -> ClickModel:
    """Fit the global click-through rate."""
    return GCTR(cells.vocabulary, _global_rate(cells), evidence=evidence_of_rates(learner, cells))


def _rctr(learner: Counting, cells: Cells) -> ClickModel:
    """Fit click-through rates by rank."""
    rate, error, _ = learner.rates(*cells.by_rank(), _global_rate(cells))
    return RCTR(cells.vocabulary, rate, evidence=evidence_of_rates(learner, cells, ctr=error))


def _dctr(learner: Counting, cells: Cells) -> ClickModel:
    """Fit click-through rates by pair."""
    (impressions, clicks), global_rate = cells.by_pair(), _global_rate(cells)
    rate, error, unseen = learner.rates(impressions, clicks, global_rate)
    if learner.smoothing == "fitted":
        rank_of_pair = usual_rank(cells)
        for rank in range(cells.n_ranks):
            at_rank = rank_of_pair == rank
            rate[at_rank], error[at_rank], _ = learner.rates(impressions[at_rank], clicks[at_rank], global_rate)
    errors = pair_table(error, unseen=float("inf"))
    evidence = evidence_of_rates(learner, cells, ctr=errors, relevance=errors)
    return DCTR(cells.vocabulary, pair_table(rate, unseen=unseen), evidence=evidence)


def _drctr(learner: Counting, cells: Cells) -> ClickModel:
    """Fit click-through rates by pair and rank."""
    rank_rate, pairs = _rank_rates(cells), cells.vocabulary.n_pairs
    ctr, score = np.empty((pairs + 1, cells.n_ranks)), np.zeros(pairs + 1)
    for rank in range(cells.n_ranks):
        at_rank = cells.situation == rank
        impressions = np.bincount(cells.pair[at_rank], cells.impressions[at_rank], pairs)
        clicks = np.bincount(cells.pair[at_rank], cells.clicks[at_rank], pairs)
        rate, _, unseen = learner.rates(impressions, clicks, float(rank_rate[rank]))
        ctr[:, rank] = np.append(rate, unseen)
        # eq. 3 of the policy-shift paper smooths predictions only; the code of the CMIP paper smooths relevance too
        relevance_rate = (
            np.append(clicks / np.maximum(impressions, 1), 0.0) if learner.smoothing == "fixed" else ctr[:, rank]
        )
        score += relevance_rate / rank_rate[rank]
    return DRCTR(cells.vocabulary, ctr, score, evidence=evidence_of_rates(learner, cells))


def _top_pop(learner: Counting, cells: Cells) -> ClickModel:
    """Score pairs by clicks."""
    _, clicks = cells.by_pair()
    return TopPop(cells.vocabulary, pair_table(clicks, unseen=0.0), evidence=evidence_of_rates(learner, cells))


def _top_pop_obs(learner: Counting, cells: Cells) -> ClickModel:
    """Score pairs by clicks x impressions."""
    impressions, clicks = cells.by_pair()
    return TopPopObs(
        cells.vocabulary, pair_table(clicks * impressions, unseen=0.0), evidence=evidence_of_rates(learner, cells)
    )


def _rank_top_obs(learner: Counting, cells: Cells) -> ClickModel:
    """Score pairs by their impressions, weighted by the click-through rate of the rank."""
    impressions, clicks = cells.by_rank()
    score = cells.weighted_impressions(clicks / np.maximum(impressions, 1))
    return RankTopObs(cells.vocabulary, pair_table(score, unseen=0.0), evidence=evidence_of_rates(learner, cells))


_FITTERS: dict[str, Callable[[Counting, Cells], ClickModel]] = {
    "gCTR": _gctr,
    "rCTR": _rctr,
    "dCTR": _dctr,
    "drCTR": _drctr,
    "TopPop": _top_pop,
    "TopPopObs": _top_pop_obs,
    "RankTopObs": _rank_top_obs,
}
