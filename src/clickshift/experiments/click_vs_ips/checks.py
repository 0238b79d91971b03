"""Two checks of claims of the IPS paper (Hager et al. 2022).

First, training on drawn counts is equivalent to training on single sessions: rankers of both kinds have the same
distribution over seeds. Second, the naive click model and the naive IPS ranker are the same, exactly up to rounding,
because the two losses are equal on the same counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from clickshift.core.rng import generator
from clickshift.counts.cells import Cells
from clickshift.experiments.click_vs_ips.data import PointwiseData
from clickshift.experiments.click_vs_ips.protocol import (
    IPS_TRUE,
    NAIVE,
    PBM_TRUE,
    build_run,
    parse_learner,
    ranking_metrics,
    values_by_seed,
)
from clickshift.metrics.significance import welch
from clickshift.ranking import fit_runs
from clickshift.simulation.fixed_ranking import FixedRankingEngine
from clickshift.simulation.search_engine import Named
from clickshift.simulation.users import PBM

VERSION = 2
"""Version of the rows: increased when a code change changes numbers, so that old rows are not mixed with new ones."""

NAIVE_PBM = "Naive PBM"
COUNTS, SESSIONS = "drawn counts", "single sessions"
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


def rows_of(cell: ChecksCell) -> list[dict[str, Any]]:
    """Return `ChecksCell.rows`: a function that other processes can import."""
    return cell.rows()


@dataclass(frozen=True)
class PointwiseChecks:
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

    def cells(self) -> list[ChecksCell]:
        """Return the tasks."""
        return [ChecksCell(self.data, self.sessions, seed) for seed in range(self.seeds)]


def check_table(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Summarise the checks, one line per model.

    Parameters
    ----------
    rows
        Rows of `PointwiseChecks`.

    Returns
    -------
    list of dict
        Mean nDCG@10 by both kinds of clicks and the p-value of their difference; for the naive click model also the
        largest difference of its scores to those of naive IPS.
    """
    lines = []
    for name, _ in _CHECKED_RANKERS:
        by_kind = {
            kind: [*values_by_seed(rows, "nDCG@10", model=name, clicks=kind).values()] for kind in (COUNTS, SESSIONS)
        }
        distance = [row["distance"] for row in rows if row["model"] == name and "distance" in row]
        lines.append(
            {"model": name}
            | {kind: float(np.mean(values)) for kind, values in by_kind.items()}
            | {"p": welch(by_kind[COUNTS], by_kind[SESSIONS]), "distance": max(distance) if distance else None}
        )
    return lines
