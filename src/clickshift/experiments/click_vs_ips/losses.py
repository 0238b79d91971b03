"""Click loss and IPS loss without any training: figures 2 and 3 and section 4.2 of the IPS paper (Hager et al. 2022).

Expected losses of a document with relevance y and examination o, if its predicted relevance is r:

    PBM   -[ o y log(o r) + (1 - o y) log(1 - o r) ]           IPS   -[ y log r + (1 - y) log(1 - r) ]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import xlog1py, xlogy

from clickshift.experiments.click_vs_ips._one_hot import ips_limit, pbm_limit
from clickshift.experiments.click_vs_ips._report import ClickVsIps
from clickshift.experiments.click_vs_ips.data import CLICK_LOSS, IPS_LOSS, PointwiseData
from clickshift.experiments.runner import Task
from clickshift.simulation.users import PBM

_DATA = PointwiseData()


def click_loss(relevance: np.ndarray, examination: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Return the expected click loss of a PBM, by predicted relevance."""
    click, predicted_click = relevance * examination, predicted * examination
    loss: np.ndarray = -(xlogy(click, predicted_click) + xlog1py(1 - click, -predicted_click))
    return loss


def ips_loss(relevance: np.ndarray, examination: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Return the expected IPS loss, by predicted relevance.

    It is the same for every examination: in expectation, the propensities cancel.
    """
    click = relevance * examination
    loss: np.ndarray = -(xlogy(click / examination, predicted) + xlog1py(1 - click / examination, -predicted))
    return loss


class Analytic(ClickVsIps):
    """Base class of protocols that are computed without training: a single short task, which is the protocol itself."""

    name = "losses"

    def rows(self) -> list[dict[str, Any]]:
        """Compute the tidy rows."""
        raise NotImplementedError

    def tasks(self) -> Sequence[Task]:
        """Return no task: nothing runs in other processes."""
        return ()

    def facts(self) -> Sequence[Task]:
        """Return the protocol as its only task."""
        return (self,)


@dataclass(frozen=True)
class SharedFeatures(Analytic):
    """Figure 2: two documents with the same features and different relevance, one of them rarely examined.

    Parameters
    ----------
    relevance
        Relevance of each document.
    examination
        Examination of each document.
    steps
        Number of steps of the grid of predicted relevance.
    """

    relevance: tuple[float, ...] = (0.1, 0.9)
    examination: tuple[float, ...] = (1.0, 0.1)
    steps: int = 100

    def rows(self) -> list[dict[str, Any]]:
        """Return losses of each document and of both (document 0) by predicted relevance.

        Rows of kind "loss" are the curves, rows of kind "least" their minima.
        """
        y, o = np.array(self.relevance), np.array(self.examination)
        grid = np.arange(1, self.steps) / self.steps
        rows = []
        for model, loss, limit in ((CLICK_LOSS, click_loss, pbm_limit), (IPS_LOSS, ips_loss, ips_limit)):
            for documents in (*([k] for k in range(len(y))), [*range(len(y))]):
                setting = {"model": model, "document": documents[0] + 1 if len(documents) == 1 else 0}
                values = loss(y[documents], o[documents], grid[:, None]).sum(axis=1)
                rows += [
                    setting | {"kind": "loss", "relevance": float(r), "loss": float(value)}
                    for r, value in zip(grid, values, strict=True)
                ]
                same_column = np.zeros(len(documents), np.int64)
                minimiser = float(limit((o * y)[documents], o[documents], same_column)[0])
                minimum = float(loss(y[documents], o[documents], np.array(minimiser)).sum())
                rows.append(setting | {"kind": "least", "relevance": minimiser, "loss": minimum})
        return rows


@dataclass(frozen=True)
class LossByRank(Analytic):
    """Figure 3: one document at each of the first ranks, with examination 1 / rank.

    Parameters
    ----------
    relevance
        Relevance of the document.
    ranks
        Number of ranks.
    steps
        Number of steps of the grid of predicted relevance.
    """

    relevance: float = 0.5
    ranks: int = 10
    steps: int = 100

    def rows(self) -> list[dict[str, Any]]:
        """Return losses by rank, from 1, and predicted relevance (kind "loss"), and their minima (kind "least")."""
        grid = np.arange(1, self.steps) / self.steps
        y, rows = np.array([self.relevance]), []
        for model, loss, limit in ((CLICK_LOSS, click_loss, pbm_limit), (IPS_LOSS, ips_loss, ips_limit)):
            for rank, examination in enumerate(PBM().exposure(self.ranks).tolist(), 1):
                o = np.array([examination])
                setting = {"model": model, "rank": rank, "examination": examination}
                values = loss(y, o, grid[:, None])[:, 0]
                rows += [
                    setting | {"kind": "loss", "relevance": float(r), "loss": float(value)}
                    for r, value in zip(grid, values, strict=True)
                ]
                minimiser = float(limit(o * y, o, np.zeros(1, np.int64))[0])
                minimum = float(loss(y, o, np.array(minimiser))[0])
                rows.append(setting | {"kind": "least", "relevance": minimiser, "loss": minimum})
        return rows


@dataclass(frozen=True)
class GradientByRank(Analytic):
    """Section 4.2: size of the first gradient of a document's logit, by the rank at which it was shown.

    Gradients of a document's mean loss per session with respect to its logit s, with r = sigmoid(s), at s = 0:

        PBM   (1 - r) (o r - c) / (1 - o r)        IPS   r - c / o

    with the click rate c in a number of sessions per query, on the one-hot set.

    Parameters
    ----------
    data
        The data set.
    sessions_per_query
        Numbers of sessions per query; None for unlimited clicks.
    seed
        Random seed for the data and the clicks.
    """

    data: PointwiseData = _DATA
    sessions_per_query: tuple[int | None, ...] = (None, 10, 1000)
    seed: int = 0

    def rows(self) -> list[dict[str, Any]]:
        """Return the mean absolute gradient by loss, sessions and rank, from 1."""
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
