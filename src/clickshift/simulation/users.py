"""Simulated users: from relevance labels to a click model with the papers' parameters.

A user is a frozen value; `on(corpus)` gives the click model, which draws clicks, and whose exact conditionals make it
the oracle: no model predicts its clicks better. A document without a label counts as irrelevant (label 0). Sources:
policy-shift paper = Deffayet et al. 2022, CMIP paper = Deffayet et al. 2023, IPS paper = Hager et al. 2022.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from scipy.special import ndtr

from clickshift import models
from clickshift.data.corpus import Corpus
from clickshift.models.base import ClickModel, pair_table

USERS = {
    "DBN": "clickshift.simulation.users:DBN",
    "CoCM": "clickshift.simulation.users:CoCM",
    "CoCM_mismatch": "clickshift.simulation.users:CoCM_mismatch",
    "PBM": "clickshift.simulation.users:PBM",
    "GradedDBN": "clickshift.simulation.users:GradedDBN",
    "MixtureDBN": "clickshift.simulation.users:MixtureDBN",
    "Carousel": "clickshift.simulation.users:Carousel",
    "TrustBias": "clickshift.simulation.users:TrustBias",
}

_ROWS = 64  # of a carousel, more than anyone shows


@runtime_checkable
class User(Protocol):
    def on(self, corpus: Corpus) -> ClickModel:
        """The click model of this user for the corpus' documents."""

    def exposure(self, ranks: int) -> Float[np.ndarray, " rank"]:
        """How likely each rank is examined while nothing is clicked: where a ranker should put its best documents."""


@dataclass(frozen=True)
class DBN:
    """Policy-shift paper, 5.2.4: attractiveness .95 g, satisfaction .9 g, g = (2^label - 1) / (2^max_label - 1).

    `floor` is the least attractiveness; it is in the authors' code, not in the paper. The published section 6.1 seems
    to use satisfaction=.5 (see docs/decisions).
    """

    attractiveness: float = 0.95
    satisfaction: float = 0.9
    continuation: float = 0.9
    floor: float = 0.02

    def on(self, corpus: Corpus) -> ClickModel:
        return models.DBN(
            corpus.vocabulary,
            _by_pair(np.maximum(self.attractiveness * corpus.gain, self.floor), label_0=self.floor),
            _by_pair(self.satisfaction * corpus.gain, label_0=0.0),
            self.continuation,
        )

    def exposure(self, ranks: int) -> Float[np.ndarray, " rank"]:
        return _down(self.continuation, ranks)


@dataclass(frozen=True)
class CoCM:
    """Policy-shift paper, appendix B: sessions are top-down, bottom-up, or do not look at all (`modes`, in this order).

    Attractiveness is g, at least `floor` (authors' code). Who does not look clicks rank r, from 0, with probability
    `no_look` x `no_look_decay`^r.
    """

    modes: tuple[float, float, float] = (0.6, 0.3, 0.1)
    satisfaction: float = 0.7
    continuation: float = 0.9
    no_look: float = 0.2
    no_look_decay: float = 0.9
    floor: float = 0.02

    def on(self, corpus: Corpus) -> ClickModel:
        attractiveness = _by_pair(np.maximum(corpus.gain, self.floor), label_0=self.floor)
        walk = (corpus.vocabulary, attractiveness, self.satisfaction, self.continuation)
        blind = models.RCTR(corpus.vocabulary, self.no_look * self.no_look_decay ** np.arange(256))
        components = (models.ComplexBrowsing(*walk), models.ComplexBrowsing(*walk, bottom_up=True), blind)
        return models.Mixture(corpus.vocabulary, components, np.array(self.modes))

    def exposure(self, ranks: int) -> Float[np.ndarray, " rank"]:
        down = _down(self.continuation, ranks)
        return self.modes[0] * down + self.modes[1] * down[::-1]


def CoCM_mismatch(**changes: float) -> CoCM:
    """CoCM with modes (.2, .7, .1). The paper prints (.2, .7, .3), which does not add up; its code has .1."""
    return CoCM(modes=(0.2, 0.7, 0.1), **changes)


@dataclass(frozen=True)
class PBM:
    """IPS paper and, with the same numbers, CMIP paper.

    Attractiveness is noise + (1 - noise) g, examination (1 / rank)^eta.
    """

    eta: float = 1.0
    noise: float = 0.1

    def on(self, corpus: Corpus) -> ClickModel:
        attractiveness = _by_pair(self.noise + (1 - self.noise) * corpus.gain, label_0=self.noise)
        return models.PBM(corpus.vocabulary, attractiveness, self.exposure(256))

    def exposure(self, ranks: int) -> Float[np.ndarray, " rank"]:
        return (1.0 / np.arange(1, ranks + 1)) ** self.eta


@dataclass(frozen=True)
class GradedDBN:
    """CMIP paper: attractiveness label / max_label, at least `floor`; satisfaction half of label / max_label.

    `as_published=True` gives the recursion of its code, in which stopping is never drawn (`models.SoftDBN`).
    """

    satisfaction: float = 0.5
    continuation: float = 0.8
    floor: float = 0.1
    as_published: bool = False

    def on(self, corpus: Corpus) -> ClickModel:
        grade = corpus.label.astype(np.float64) / corpus.max_label
        attractiveness = _by_pair(np.maximum(grade, self.floor), label_0=self.floor)
        satisfaction = _by_pair(self.satisfaction * grade, label_0=0.0)
        model = models.SoftDBN if self.as_published else models.DBN
        return model(corpus.vocabulary, attractiveness, satisfaction, self.continuation)

    def exposure(self, ranks: int) -> Float[np.ndarray, " rank"]:
        return _down(self.continuation, ranks)


@dataclass(frozen=True)
class MixtureDBN:
    """CMIP paper: a DBN that a share `top_down` of the sessions walks down and the others walk up.

    Attractiveness is clip(g + noise N(0, 1), floor, 1), drawn anew at every impression; satisfaction is g.
    """

    top_down: float = 0.7
    continuation: float = 0.7
    noise: float = 0.1
    floor: float = 0.1

    def on(self, corpus: Corpus) -> ClickModel:
        attractiveness = _by_pair(
            _clipped_normal(corpus.gain, self.noise, self.floor)[0],
            label_0=_clipped_normal(np.zeros(1), self.noise, self.floor)[0][0],
        )
        walk = (corpus.vocabulary, attractiveness, _by_pair(corpus.gain, label_0=0.0), self.continuation)
        components = (models.DBN(*walk), models.DBN(*walk, bottom_up=True))
        return models.Mixture(corpus.vocabulary, components, np.array([self.top_down, 1 - self.top_down]))

    def exposure(self, ranks: int) -> Float[np.ndarray, " rank"]:
        down = _down(self.continuation, ranks)
        return self.top_down * down + (1 - self.top_down) * down[::-1]


@dataclass(frozen=True)
class Carousel:
    """CMIP paper: rows of `columns` results, each looked at with probability (1 / row)^row_decay and walked like a DBN.

    Attractiveness is as in MixtureDBN and is also the satisfaction. The same draw a decides on both, so that a click is
    evidence of a large a: P(satisfied | clicked) = E[a^2] / E[a], not E[a]. The published code multiplies sampled
    clicks by the row's examination, which gives clicks of 0.7071; here it is drawn, and clicks are 0 or 1.
    """

    columns: int = 5
    continuation: float = 0.75
    row_decay: float = 0.5
    noise: float = 0.1
    floor: float = 0.1

    def on(self, corpus: Corpus) -> ClickModel:
        mean, square = _clipped_normal(np.append(corpus.gain, 0.0), self.noise, self.floor)
        rows = (1.0 / np.arange(1, _ROWS + 1)) ** self.row_decay
        return models.Carousel(corpus.vocabulary, mean, square / mean, self.continuation, rows, self.columns)

    def exposure(self, ranks: int) -> Float[np.ndarray, " rank"]:
        row, column = np.divmod(np.arange(ranks), self.columns)
        exposure: np.ndarray = (1.0 / (row + 1)) ** self.row_decay * self.continuation**column
        return exposure


@dataclass(frozen=True)
class TrustBias:
    """CMIP paper's code: P(C_k = 1) = (1/k) [ g (1 - (min(k, 20) + 1) / 100) + (1 - g) .65 / min(k, 10) ]."""

    eta: float = 1.0

    def on(self, corpus: Corpus) -> ClickModel:
        k = np.arange(1, 257)
        return models.TrustPBM(
            corpus.vocabulary,
            _by_pair(corpus.gain, label_0=0.0),
            self.exposure(len(k)),
            true_positive=1 - (np.minimum(k, 20) + 1) / 100,
            false_positive=0.65 / np.minimum(k, 10),
        )

    def exposure(self, ranks: int) -> Float[np.ndarray, " rank"]:
        return (1.0 / np.arange(1, ranks + 1)) ** self.eta


def _by_pair(values: np.ndarray, *, label_0: float) -> np.ndarray:
    return pair_table(values, unseen=label_0)


def _down(continuation: float, ranks: int) -> np.ndarray:
    exposure: np.ndarray = continuation ** np.arange(ranks)
    return exposure


def _clipped_normal(mean: np.ndarray, sd: float, low: float, high: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """E[a] and E[a^2] of a = clip(mean + sd N(0, 1), low, high)."""
    if sd == 0:
        a = np.clip(mean, low, high)
        return a, a * a
    alpha, beta = (low - mean) / sd, (high - mean) / sd
    inside = ndtr(beta) - ndtr(alpha)
    density_a, density_b = (np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi) for x in (alpha, beta))
    first = low * ndtr(alpha) + high * ndtr(-beta) + mean * inside + sd * (density_a - density_b)
    second = (
        low**2 * ndtr(alpha)
        + high**2 * ndtr(-beta)
        + (mean**2 + sd**2) * inside
        + 2 * mean * sd * (density_a - density_b)
        + sd**2 * (alpha * density_a - beta * density_b)
    )
    return first, second
