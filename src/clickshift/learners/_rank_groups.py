"""Priors of attractiveness as penalties of a cascade model's likelihood, and the neutral one that intervals use.

A ranker puts better documents at the top. A prior with one mean for all documents, which predicts well, therefore
pulls documents at the bottom, which are rarely examined, towards the attractiveness of those at the top, and all of
them together pull the continuation probabilities. The neutral prior lets the logits of documents that are usually shown
at the same rank vary around a mean that is estimated like any other parameter: it says nothing about ranks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from clickshift.core.newton import ArrowheadInformation, PairValues, Shared
from clickshift.learners._priors import Beta, prior_strength_by_moments

_LAST_RANKS = np.array([0, 1, 2, 3, 4, 5, 6, 8, 10, 15, 25, 50])
"""Last rank of each group, from 0: ranks far down have few clicks."""
_MEAN_PRIOR = Beta(0.1, 0.5)
"""Prior of the mean of a group: it only keeps it off 0 and 1."""


class Penalty(NamedTuple):
    """Log-density of a prior of attractiveness or satisfaction at one point, with its derivatives by logits.

    Parameters
    ----------
    value
        Log-density.
    slope, information
        First and minus second derivatives by the logit of each pair's parameter.
    mean_slope, mean_information
        The same by the logits of the means of groups; empty without groups.
    group
        Group of each pair; None without groups.
    """

    value: float
    slope: PairValues
    information: PairValues
    mean_slope: Shared
    mean_information: Shared
    group: Int[np.ndarray, " pair_or_unseen"] | None = None

    @classmethod
    def of_beta(cls, prior: Beta, a: PairValues, log_a: PairValues, log_not_a: PairValues) -> Penalty:
        """Return the penalty of a Beta prior that all pairs share, with the logarithms of a and 1 - a."""
        return cls(
            prior.log_density_of(log_a, log_not_a), prior.slope(a), prior.information(a), np.empty(0), np.empty(0)
        )

    def extended(self, information: ArrowheadInformation, *, of_satisfaction: bool = False) -> ArrowheadInformation:
        """Append the means of groups to the shared parameters of an information matrix.

        Parameters
        ----------
        information
            Information matrix.
        of_satisfaction
            Whether it is a prior of satisfaction.
        """
        if self.group is None:
            return information
        cross = np.zeros((len(self.mean_slope), len(self.slope)))
        cross[self.group, np.arange(len(self.group))] = -self.information
        own, none = (np.zeros_like(cross), cross) if of_satisfaction else (cross, np.zeros_like(cross))
        zeros = np.zeros((len(information.shared), len(cross)))
        return information._replace(
            cross_attractiveness=np.vstack([information.cross_attractiveness, own]),
            cross_satisfaction=np.vstack([information.cross_satisfaction, none]),
            shared=np.block([[information.shared, zeros], [zeros.T, np.diag(self.mean_information)]]),
        )


class RankGroups(NamedTuple):
    """Normal prior of the logits of attractiveness, or satisfaction, around the unknown mean of a group of ranks.

    Parameters
    ----------
    group
        Group of each pair.
    precision
        Inverse variance of the logit, by pair.
    n
        Number of groups.
    """

    group: Int[np.ndarray, " pair_or_unseen"]
    precision: PairValues
    n: int

    @classmethod
    def of(cls, rank: Int[np.ndarray, " pair_or_unseen"], trials: PairValues, clicks: PairValues) -> RankGroups:
        """Group pairs by usual rank, and estimate how much the attractiveness of a group varies.

        Parameters
        ----------
        rank
            Usual rank of each pair.
        trials
            Expected examinations of each pair, or the trials of its satisfaction.
        clicks
            Clicks on each pair, or the successes.
        """
        used, group = np.unique(np.searchsorted(_LAST_RANKS, rank), return_inverse=True)
        strength = prior_strength_by_moments(group[:-1], trials[:-1], clicks[:-1])
        yes, total = (np.bincount(group, n, len(used)) for n in (clicks, trials))
        mean = _MEAN_PRIOR.mode(yes, total)
        return cls(group, (strength * mean * (1 - mean))[group], len(used))

    @classmethod
    def of_all(cls, trials: PairValues, successes: PairValues) -> RankGroups:
        """Make all pairs one group, whose logits vary as those of a Beta distribution: the sum of two trigammas.

        Parameters
        ----------
        trials, successes
            Trials and successes of each pair.
        """
        from scipy.special import polygamma

        group = np.zeros(len(trials), np.int64)
        strength = prior_strength_by_moments(group[:-1], trials[:-1], successes[:-1])
        mean = _MEAN_PRIOR.mode(successes.sum(keepdims=True), trials.sum(keepdims=True))
        variance = float(polygamma(1, strength * np.append(mean, 1 - mean)).sum())
        return cls(group, np.full(len(trials), 1 / variance), 1)

    def means(self, a: PairValues) -> Shared:
        """Return the mean of each group, taken over logits."""
        total = np.bincount(self.group, np.log(a) - np.log1p(-a), self.n)
        means: np.ndarray = 1 / (1 + np.exp(-total / np.bincount(self.group, minlength=self.n)))
        return means

    def penalty(self, a: PairValues, means: Float[np.ndarray, " group"]) -> Penalty:
        """Return the penalty at one point."""
        deviation = np.log(a) - np.log1p(-a) - (np.log(means) - np.log1p(-means))[self.group]
        slope = -self.precision * deviation
        return Penalty(
            float((slope * deviation).sum()) / 2 + _MEAN_PRIOR.log_density(means),
            slope,
            self.precision,
            _MEAN_PRIOR.slope(means) - np.bincount(self.group, slope, self.n),
            _MEAN_PRIOR.information(means) + np.bincount(self.group, self.precision, self.n),
            self.group,
        )
