"""Newton's steps where the information has the form of an arrow: each pair's own, what all share, and between the two.

What stands between two pairs is left out. Where it is little, one division per pair and a small system for what is
shared do for the whole matrix.
"""

from __future__ import annotations

from typing import NamedTuple, final

import numpy as np
from jaxtyping import Float

from clickshift.core.newton import FAR, covariance, solved

PairTable = Float[np.ndarray, " pair_or_unseen"]
Shared = Float[np.ndarray, " shared"]
Cross = Float[np.ndarray, "shared pair_or_unseen"]
_FAR_TOGETHER = 1.5
"""The largest move of what all sessions share, and of all pairs with it."""


class Parameters(NamedTuple):
    """The parameters of a cascade, or slopes or standard errors of their logits. Satisfaction is 0 where a family has
    none."""

    attractiveness: PairTable
    satisfaction: PairTable
    shared: Shared


class Information(NamedTuple):
    """Minus the second derivatives of the objective by logits: an arrow, since none between two pairs are kept."""

    attractiveness: PairTable
    satisfaction: PairTable
    cross_attractiveness: Cross
    cross_satisfaction: Cross
    shared: Float[np.ndarray, "shared shared"]

    def blended(self, other: Information, share: float) -> Information:
        return Information(*((1 - share) * mine + share * its for mine, its in zip(self, other, strict=True)))

    def inverted(self) -> tuple[Float[np.ndarray, "2 pair_or_unseen"], Float[np.ndarray, "shared shared"]]:
        """The diagonal of its inverse by attractiveness and satisfaction, and its part of what is shared."""
        shared = covariance(self.profile) if len(self.shared) else self.shared
        of_a = 1 / self.attractiveness + _quadratic(self.cross_attractiveness / self.attractiveness, shared)
        of_s = 1 / self.satisfaction + _quadratic(self.cross_satisfaction / self.satisfaction, shared)
        return np.stack([of_a, of_s]), shared

    @property
    def profile(self) -> Float[np.ndarray, "shared shared"]:
        """What is left of the shared parameters' when all others follow them."""
        left = self.shared - products(self.cross_attractiveness, self.cross_attractiveness / self.attractiveness)
        left = left - products(self.cross_satisfaction, self.cross_satisfaction / self.satisfaction)
        symmetric: np.ndarray = (left + left.T) / 2
        return symmetric


@final
class NewtonStep:
    """Newton's step by some information, and what it would gain if the objective were as curved as that."""

    def __init__(self, slopes: Parameters, of: Information) -> None:
        self._slopes, self._of, (a, s, shared) = slopes, of, slopes
        by_a, by_s = a / of.attractiveness, s / of.satisfaction
        rest = shared - products(of.cross_attractiveness, by_a[None])[:, 0]
        rest = rest - products(of.cross_satisfaction, by_s[None])[:, 0]
        self._shared = solved(of.profile, rest) if len(rest) else rest
        self.gain = float((a * by_a).sum() + (s * by_s).sum() + (rest * self._shared).sum()) / 2

    def step(self) -> Parameters:
        """No logit moves far at once; attractiveness and satisfaction follow what is shared."""
        (a, s, _), of = self._slopes, self._of
        shared = self._shared * min(1.0, _FAR_TOGETHER / max(float(np.abs(self._shared).max(initial=0.0)), 1e-300))
        by_a = (a - np.einsum("k,kp->p", shared, of.cross_attractiveness)) / of.attractiveness
        by_s = (s - np.einsum("k,kp->p", shared, of.cross_satisfaction)) / of.satisfaction
        return Parameters(np.clip(by_a, -FAR, FAR), np.clip(by_s, -FAR, FAR), shared)


@final
class Care:
    """How much of what is hidden a step takes for known: none of it is Newton's step, all of it is EM's.

    Newton's goes too far where pairs often meet in the same sessions, whose curvature together is left out.
    """

    def __init__(self) -> None:
        self._share, self._before, self._gain = 0.0, 0.0, 0.0

    def share(self, objective: float) -> float:
        """Less, if the last step gained what was expected of it; more, if it did not."""
        if self._gain > 0:
            met = (objective - self._before) / self._gain
            if met > 0.75:
                self._share = self._share / 2 if self._share > 0.1 else 0.0
            elif met < 0.25:
                self.grow()
        return self._share

    def expect(self, objective: float, gain: float) -> None:
        self._before, self._gain = objective, gain

    def grow(self) -> None:
        self._share, self._gain = min(1.0, max(0.25, 2 * self._share)), 0.0


def products(rows: Float[np.ndarray, "k pair"], others: Float[np.ndarray, "l pair"]) -> Float[np.ndarray, "k l"]:
    """rows others', by one thread: those of a linear algebra library would spin on the cores that E-steps need."""
    products: np.ndarray = np.einsum("kp,lp->kl", rows, others)
    return products


def _quadratic(rows: Cross, middle: Float[np.ndarray, "shared shared"]) -> PairTable:
    """The diagonal of rows' middle rows: what the shared parameters' uncertainty adds to each pair's."""
    added: np.ndarray = np.einsum("kp,kl,lp->p", rows, middle, rows) if len(rows) else np.zeros(rows.shape[1])
    positive: np.ndarray = np.maximum(added, 0)
    return positive
