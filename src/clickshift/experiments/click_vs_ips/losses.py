"""What the two losses look like, without any training: figures 2 and 3 and section 4.2 of the IPS paper.

Expected losses of a document of relevance y that is examined with probability o, when it is given relevance r:

    PBM   -[ o y log(o r) + (1 - o y) log(1 - o r) ]           IPS   -[ y log r + (1 - y) log(1 - r) ]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import xlog1py, xlogy

from clickshift.experiments.click_vs_ips._one_hot import ips_limit, pbm_limit
from clickshift.experiments.click_vs_ips.data import PointwiseData
from clickshift.simulation.users import PBM

CLICK_LOSS, IPS_LOSS = "PBM", "IPS"
_DATA = PointwiseData()


def click_loss(relevance: np.ndarray, examination: np.ndarray, given: np.ndarray) -> np.ndarray:
    c, predicted = relevance * examination, given * examination
    loss: np.ndarray = -(xlogy(c, predicted) + xlog1py(1 - c, -predicted))
    return loss


def ips_loss(relevance: np.ndarray, examination: np.ndarray, given: np.ndarray) -> np.ndarray:
    """The same for every examination: with unlimited clicks the propensities cancel."""
    c = relevance * examination
    loss: np.ndarray = -(xlogy(c / examination, given) + xlog1py(1 - c / examination, -given))
    return loss


@dataclass(frozen=True)
class SharedFeatures:
    """Figure 2: two documents with the same features and different relevance, one of them seldom examined."""

    relevance: tuple[float, ...] = (0.1, 0.9)
    examination: tuple[float, ...] = (1.0, 0.1)
    steps: int = 100

    def rows(self) -> list[dict[str, Any]]:
        """Losses of each document and of both (document 0) by the relevance given (kind "loss"), and where each is
        least ("least")."""
        y, o = np.array(self.relevance), np.array(self.examination)
        grid = np.arange(1, self.steps) / self.steps
        rows = []
        for model, loss, limit in ((CLICK_LOSS, click_loss, pbm_limit), (IPS_LOSS, ips_loss, ips_limit)):
            for documents in (*([k] for k in range(len(y))), [*range(len(y))]):
                about = {"model": model, "document": documents[0] + 1 if len(documents) == 1 else 0}
                values = loss(y[documents], o[documents], grid[:, None]).sum(axis=1)
                rows += [
                    about | {"kind": "loss", "relevance": float(r), "loss": float(value)}
                    for r, value in zip(grid, values, strict=True)
                ]
                together = np.zeros(len(documents), np.int64)
                least = float(limit((o * y)[documents], o[documents], together)[0])
                value = float(loss(y[documents], o[documents], np.array(least)).sum())
                rows.append(about | {"kind": "least", "relevance": least, "loss": value})
        return rows


@dataclass(frozen=True)
class LossByRank:
    """Figure 3: one document at each of the first ranks, examination 1 / rank."""

    relevance: float = 0.5
    ranks: int = 10
    steps: int = 100

    def rows(self) -> list[dict[str, Any]]:
        """By rank, from 1, and relevance given (kind "loss"), and where the loss is least ("least")."""
        grid = np.arange(1, self.steps) / self.steps
        y, rows = np.array([self.relevance]), []
        for model, loss, limit in ((CLICK_LOSS, click_loss, pbm_limit), (IPS_LOSS, ips_loss, ips_limit)):
            for rank, examination in enumerate(PBM().exposure(self.ranks).tolist(), 1):
                o = np.array([examination])
                about = {"model": model, "rank": rank, "examination": examination}
                values = loss(y, o, grid[:, None])[:, 0]
                rows += [
                    about | {"kind": "loss", "relevance": float(r), "loss": float(value)}
                    for r, value in zip(grid, values, strict=True)
                ]
                least = float(limit(o * y, o, np.zeros(1, np.int64))[0])
                rows.append(
                    about | {"kind": "least", "relevance": least, "loss": float(loss(y, o, np.array(least))[0])}
                )
        return rows


@dataclass(frozen=True)
class GradientByRank:
    """Section 4.2: how far the first step moves a document's logit, by the rank at which it was shown.

    Gradients by the logit s of a document's mean loss per session, r = sigmoid(s), at s = 0:

        PBM   (1 - r) (o r - c) / (1 - o r)        IPS   r - c / o

    with click rates c of so many sessions of each query, on the one-hot set; None: of unlimited ones.
    """

    data: PointwiseData = _DATA
    sessions_per_query: tuple[int | None, ...] = (None, 10, 1000)
    seed: int = 0

    def rows(self) -> list[dict[str, Any]]:
        """Mean absolute gradient by loss, sessions and rank, from 1."""
        engine, user, rows = self.data.engine(self.seed), PBM(), []
        o, rank = engine.train.examination(user), engine.train.rank
        prob, size = engine.train.click_prob(user), np.bincount(rank)
        rng = np.random.default_rng(self.seed)
        for sessions in self.sessions_per_query:
            c = prob if sessions is None else rng.binomial(sessions, prob) / sessions
            for model, gradient in ((CLICK_LOSS, 0.5 * (0.5 * o - c) / (1 - 0.5 * o)), (IPS_LOSS, 0.5 - c / o)):
                means = np.bincount(rank, np.abs(gradient)) / size
                rows += [
                    {"model": model, "sessions_per_query": sessions, "rank": k, "gradient": float(mean)}
                    for k, mean in enumerate(means, 1)
                ]
        return rows
