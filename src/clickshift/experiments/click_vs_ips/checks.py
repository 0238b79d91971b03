"""Two checks of claims of the IPS paper (Hager et al. 2022).

First, training on drawn counts is equivalent to training on single sessions: rankers of both kinds have the same
distribution over seeds. Second, the naive click model and the naive IPS ranker are the same, exactly up to rounding,
because the two losses are equal on the same counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from clickshift.core.rng import generator
from clickshift.counts.cells import Cells
from clickshift.experiments.click_vs_ips._report import ClickVsIps
from clickshift.experiments.click_vs_ips.data import (
    COUNTS,
    IPS_TRUE,
    NAIVE,
    PBM_TRUE,
    SESSIONS,
    VERSION,
    PointwiseData,
)
from clickshift.experiments.click_vs_ips.protocol import build_run, parse_learner, ranking_metrics
from clickshift.ranking import fit_runs
from clickshift.simulation.fixed_ranking import FixedRankingEngine
from clickshift.simulation.search_engine import Named
from clickshift.simulation.users import PBM

NAIVE_PBM = "Naive PBM"
_CHECKED_RANKERS: Named = (
    (NAIVE, "ClickRanker(loss='ips', bias='naive')"),
    (NAIVE_PBM, "ClickRanker(loss='pbm', bias='naive')"),
    (PBM_TRUE, "ClickRanker(loss='pbm')"),
    (IPS_TRUE, "ClickRanker(loss='ips')"),
)
_DATA = PointwiseData()


@dataclass(frozen=True)
class ChecksCell:
    """One task of the checks: all models on the clicks of one seed, drawn as counts and as single sessions.

    Parameters
    ----------
    data
        The data set.
    sessions
        Number of training sessions.
    seed
        Random seed.
    version
        Version of the rows.
    """

    data: PointwiseData
    sessions: int
    seed: int
    version: int = VERSION

    @property
    def name(self) -> str:
        """Name of the cell in progress messages."""
        return f"{self.data.name}: {self.sessions:,} sessions, seed {self.seed}"

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per kind of clicks and model.

        Rows of the naive click model have the largest difference of its scores to those of naive IPS as "distance".
        """
        engine, user = self.data.engine(self.seed), PBM()
        clicks = {
            COUNTS: engine.clicks(user, self.sessions, seed=self.seed),
            SESSIONS: self._counts_of_sessions(engine, user),
        }
        settings = [(kind, name, text) for kind in clicks for name, text in _CHECKED_RANKERS]
        runs = [
            build_run(parse_learner(text, self.data, self.seed), engine, user, clicks[kind])
            for kind, _, text in settings
        ]
        scores = {
            (kind, name): ranker.scores(engine.parts.test)
            for (kind, name, _), ranker in zip(settings, fit_runs(runs), strict=True)
        }
        rows = []
        for (kind, name), score in scores.items():
            row = {"data": self.data.name, "sessions": self.sessions, "seed": self.seed, "clicks": kind, "model": name}
            if name == NAIVE_PBM:
                row["distance"] = float(np.abs(score - scores[kind, NAIVE]).max())
            rows.append(row | ranking_metrics(score, engine, self.seed))
        return rows

    def _counts_of_sessions(self, engine: FixedRankingEngine, user: PBM) -> tuple[Cells, Cells]:
        """Draw single training and held-out sessions, and count them."""
        n_held_out = max(1, int(self.sessions * engine.parts.held_out.n_queries / engine.parts.train.n_queries))
        rng = generator(self.seed, "sessions")
        train = Cells.of(engine.train.sessions(user, self.sessions, rng=rng))
        return train, Cells.of(engine.held_out.sessions(user, n_held_out, rng=rng))


@dataclass(frozen=True)
class PointwiseChecks(ClickVsIps):
    """The checks, on logs that are small enough to be drawn session by session.

    Parameters
    ----------
    data
        The data set.
    sessions
        Number of training sessions.
    seeds
        Number of seeds.
    """

    data: PointwiseData = _DATA
    sessions: int = 20_000
    seeds: int = 10

    def tasks(self) -> list[ChecksCell]:
        """Return the tasks."""
        return [ChecksCell(self.data, self.sessions, seed) for seed in range(self.seeds)]
