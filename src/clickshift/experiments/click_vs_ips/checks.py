"""Two claims of the IPS paper put to the test: counts teach what single sessions teach, and both naive rankers are one.

The first is about laws: rankers of drawn counts and rankers of counted sessions are alike over seeds. The second is
exact up to rounding, for on the same counts the two losses are the same number.
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
"""Of the rows: counted up when a change of the code changes numbers, so that old rows are not mixed with new ones."""

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
    """All models on one seed's clicks, drawn in both ways."""

    data: PointwiseData
    sessions: int
    seed: int
    version: int = VERSION

    @property
    def name(self) -> str:
        return f"{self.data.name}: {self.sessions:,} sessions, seed {self.seed}"

    def rows(self) -> list[dict[str, Any]]:
        engine, user = self.data.engine(self.seed), PBM()
        clicks = {
            COUNTS: engine.clicks(user, self.sessions, seed=self.seed),
            SESSIONS: self._counted(engine, user),
        }
        asked = [(way, name, text) for way in clicks for name, text in _CHECKED_RANKERS]
        runs = [
            build_run(parse_learner(text, self.data, self.seed), engine, user, clicks[way]) for way, _, text in asked
        ]
        test = engine.parts.test
        score = {(way, name): ranker.scores(test) for (way, name, _), ranker in zip(asked, fit_runs(runs), strict=True)}
        rows = []
        for (way, name), found in score.items():
            row = {"data": self.data.name, "sessions": self.sessions, "seed": self.seed, "clicks": way, "model": name}
            if name == NAIVE_PBM:
                row["distance"] = float(np.abs(found - score[way, NAIVE]).max())
            rows.append(row | ranking_metrics(found, engine, self.seed))
        return rows

    def _counted(self, engine: FixedRankingEngine, user: PBM) -> tuple[Cells, Cells]:
        other = max(1, int(self.sessions * engine.parts.held_out.n_queries / engine.parts.train.n_queries))
        rng = generator(self.seed, "sessions")
        train = Cells.of(engine.train.sessions(user, self.sessions, rng=rng))
        return train, Cells.of(engine.held_out.sessions(user, other, rng=rng))


def rows_of(cell: ChecksCell) -> list[dict[str, Any]]:
    """`ChecksCell.rows` as a function, for processes."""
    return cell.rows()


@dataclass(frozen=True)
class PointwiseChecks:
    """On logs that can be drawn session by session."""

    data: PointwiseData = _DATA
    sessions: int = 20_000
    seeds: int = 10

    def cells(self) -> list[ChecksCell]:
        return [ChecksCell(self.data, self.sessions, seed) for seed in range(self.seeds)]


def check_table(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For each model: nDCG@10 by both kinds of clicks and the p-value of their difference; for the naive click model
    also how far its scores are from those of naive IPS, at most."""
    lines = []
    for name, _ in _CHECKED_RANKERS:
        by_way = {
            way: [*values_by_seed(rows, "nDCG@10", model=name, clicks=way).values()] for way in (COUNTS, SESSIONS)
        }
        distance = [row["distance"] for row in rows if row["model"] == name and "distance" in row]
        lines.append(
            {"model": name}
            | {way: float(np.mean(values)) for way, values in by_way.items()}
            | {"p": welch(by_way[COUNTS], by_way[SESSIONS]), "distance": max(distance) if distance else None}
        )
    return lines
