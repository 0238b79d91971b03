"""Counting: models whose parameters are click-through rates, and scores that are mere counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np

from clickshift.core.spec import label
from clickshift.counts.cells import By, Cells
from clickshift.data.encoded_log import Log
from clickshift.errors import SpecError
from clickshift.learners._position_kernels import usual_rank
from clickshift.learners._priors import fit_beta_binomial
from clickshift.models.base import ClickModel, Evidence, pair_table
from clickshift.models.ctr import DCTR, DRCTR, GCTR, RCTR
from clickshift.models.popularity import RankTopObs, TopPop, TopPopObs

Counts = np.ndarray


@final
@dataclass(frozen=True)
class Counting:
    """Smoothed click-through rates: (clicks + a) / (impressions + a + b) with a Beta(a, b) prior.

    smoothing="fixed" is the policy-shift paper's: a = strength, and a / (a + b) is the global rate (drCTR: the rank's).
    smoothing="fitted" finds a and b by empirical Bayes: the beta-binomial that fits the counts best, per rank (dCTR:
    for the documents that usually stand at it, since a ranker does not show all documents alike).
    A rate that was never observed is the prior's mean. drCTR's relevance sums rates over ranks: "fixed" over those that
    were observed, without smoothing; "fitted" over all, as the CMIP paper does.
    """

    model: str
    smoothing: str = "fixed"
    strength: float = 1.0

    def __post_init__(self) -> None:
        if self.model not in _FITTERS:
            raise SpecError(f"Counting does not fit {self.model!r}. It fits: {', '.join(_FITTERS)}.")
        if self.smoothing not in {"fixed", "fitted"}:
            raise SpecError(f"smoothing must be 'fixed' or 'fitted': got {self.smoothing!r}.")
        if not self.strength > 0:
            raise SpecError(f"strength must be above 0: got {self.strength}.")

    @property
    def by(self) -> By:
        """The situations by which `Cells` are counted."""
        return "rank"

    def fit(self, data: Log | Cells) -> ClickModel:
        """From a log, or from its counts by pair and rank."""
        cells = data.rolled_up("rank") if isinstance(data, Cells) else Cells.of(data)
        return _FITTERS[self.model](self, cells)

    def rates(self, impressions: Counts, clicks: Counts, mean: float) -> tuple[np.ndarray, np.ndarray, float]:
        """Smoothed rates, the standard error of their logits, and the rate where nothing was seen."""
        a, b = self.strength, self.strength * (1 - mean) / mean
        if self.smoothing == "fitted":
            a, b = fit_beta_binomial(impressions, clicks)
        rate = (clicks + a) / (impressions + a + b)
        return rate, 1 / np.sqrt((impressions + a + b) * rate * (1 - rate)), a / (a + b)

    def evidence(self, cells: Cells, **errors: np.ndarray) -> Evidence:
        impressions, clicks = (pair_table(counts, unseen=0.0) for counts in cells.by_pair())
        return Evidence(label(self), impressions, clicks, errors)


def _global_rate(cells: Cells) -> float:
    """Kept off 0 and 1: half a click more, half a click less."""
    return float((cells.clicks.sum() + 0.5) / (cells.impressions.sum() + 1))


def _rank_rates(cells: Cells) -> np.ndarray:
    impressions, clicks = cells.by_rank()
    overall = _global_rate(cells)
    rates: np.ndarray = (clicks + overall) / (impressions + 1)
    return rates


def _gctr(learner: Counting, cells: Cells) -> ClickModel:
    return GCTR(cells.vocabulary, _global_rate(cells), evidence=learner.evidence(cells))


def _rctr(learner: Counting, cells: Cells) -> ClickModel:
    rate, error, _ = learner.rates(*cells.by_rank(), _global_rate(cells))
    return RCTR(cells.vocabulary, rate, evidence=learner.evidence(cells, ctr=error))


def _dctr(learner: Counting, cells: Cells) -> ClickModel:
    (shown, clicks), overall = cells.by_pair(), _global_rate(cells)
    rate, error, unseen = learner.rates(shown, clicks, overall)
    if learner.smoothing == "fitted":
        usual = usual_rank(cells)
        for rank in range(cells.n_ranks):
            here = usual == rank
            rate[here], error[here], _ = learner.rates(shown[here], clicks[here], overall)
    errors = pair_table(error, unseen=float("inf"))
    evidence = learner.evidence(cells, ctr=errors, relevance=errors)
    return DCTR(cells.vocabulary, pair_table(rate, unseen=unseen), evidence=evidence)


def _drctr(learner: Counting, cells: Cells) -> ClickModel:
    rank_rate, pairs = _rank_rates(cells), cells.vocabulary.n_pairs
    ctr, score = np.empty((pairs + 1, cells.n_ranks)), np.zeros(pairs + 1)
    for rank in range(cells.n_ranks):
        here = cells.situation == rank
        impressions = np.bincount(cells.pair[here], cells.impressions[here], pairs)
        clicks = np.bincount(cells.pair[here], cells.clicks[here], pairs)
        rate, _, unseen = learner.rates(impressions, clicks, float(rank_rate[rank]))
        ctr[:, rank] = np.append(rate, unseen)
        # the policy-shift paper's eq. 3 smooths predictions only, the CMIP paper's code relevance too
        read = np.append(clicks / np.maximum(impressions, 1), 0.0) if learner.smoothing == "fixed" else ctr[:, rank]
        score += read / rank_rate[rank]
    return DRCTR(cells.vocabulary, ctr, score, evidence=learner.evidence(cells))


def _top_pop(learner: Counting, cells: Cells) -> ClickModel:
    _, clicks = cells.by_pair()
    return TopPop(cells.vocabulary, pair_table(clicks, unseen=0.0), evidence=learner.evidence(cells))


def _top_pop_obs(learner: Counting, cells: Cells) -> ClickModel:
    impressions, clicks = cells.by_pair()
    return TopPopObs(cells.vocabulary, pair_table(clicks * impressions, unseen=0.0), evidence=learner.evidence(cells))


def _rank_top_obs(learner: Counting, cells: Cells) -> ClickModel:
    impressions, clicks = cells.by_rank()
    score = cells.weighed(clicks / np.maximum(impressions, 1))
    return RankTopObs(cells.vocabulary, pair_table(score, unseen=0.0), evidence=learner.evidence(cells))


_FITTERS: dict[str, Callable[[Counting, Cells], ClickModel]] = {
    "gCTR": _gctr,
    "rCTR": _rctr,
    "dCTR": _dctr,
    "drCTR": _drctr,
    "TopPop": _top_pop,
    "TopPopObs": _top_pop_obs,
    "RankTopObs": _rank_top_obs,
}
