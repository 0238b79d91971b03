"""The comparison of the IPS paper: is a neural click model a pointwise IPS ranker in disguise?

Hager et al. 2022. A production ranker shows, PBM users click, and rankers learn from the clicks: with a click loss or
by inverse propensities, with the true examination, with an estimate of it, or with none. They are judged by true labels
of other queries, for ever more sessions (figure 1, table 2), more collisions of features (figure 4) and a stronger
position bias (figure 5).

A cell is one size of log, with all models: of the one-hot set with all seeds, which train side by side, of others with
one seed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from jaxtyping import Float

from clickshift.core.rng import generator
from clickshift.core.spec import parse
from clickshift.counts.cells import Cells
from clickshift.errors import SpecError
from clickshift.experiments.click_vs_ips._one_hot import document_columns, ips_limit, pbm_limit
from clickshift.experiments.click_vs_ips.data import PointwiseData
from clickshift.metrics.ranking import JudgedPairs, ranking_quality
from clickshift.ranking import RANKERS, ClickRanker, Ranker, Run, fit_runs
from clickshift.simulation.fixed_ranking import FixedRankingEngine
from clickshift.simulation.search_engine import Named
from clickshift.simulation.users import PBM

VERSION = 2
"""Of the rows: counted up when a change of the code changes numbers, so that old rows are not mixed with new ones."""

PRODUCTION = "Production"
NAIVE, PBM_ESTIMATED, PBM_TRUE, IPS_TRUE = "Naive", "PBM, estimated bias", "PBM, true bias", "IPS, true bias"
RANKERS_COMPARED: Named = (
    (NAIVE, "ClickRanker(loss='ips', bias='naive')"),
    (PBM_ESTIMATED, "ClickRanker(loss='pbm', bias='estimated')"),
    (PBM_TRUE, "ClickRanker(loss='pbm')"),
    (IPS_TRUE, "ClickRanker(loss='ips')"),
)
TRUE_BIAS_RANKERS: Named = RANKERS_COMPARED[2:]
SIZES = tuple(10**k for k in range(2, 9))
RANKING_METRICS = ("nDCG@5", "nDCG@10", "ARP")

_ONE_HOT = PointwiseData()


@dataclass(frozen=True)
class PointwiseCell:
    """All models on logs of one size, one of each seed."""

    data: PointwiseData
    models: Named
    sessions: int
    eta: float
    collisions: float
    noise: float
    seeds: tuple[int, ...]
    version: int = VERSION

    @property
    def name(self) -> str:
        seeds = f"seed {self.seeds[0]}" if len(self.seeds) == 1 else f"{len(self.seeds)} seeds"
        parts = [f"{self.sessions:,} sessions", seeds]
        parts += [f"{self.collisions:.0%} collisions"] if self.collisions else []
        parts += [f"eta {self.eta:g}"] if self.eta != 1 else []
        return f"{self.data.name}: {', '.join(parts)}"

    def rows(self) -> list[dict[str, Any]]:
        """One row per model and seed (kind "trained"); on the one-hot set also what unlimited clicks give ("limit")."""
        about: dict[str, Any] = {"data": self.data.name, "sessions": self.sessions}
        about |= {"eta": self.eta, "collisions": self.collisions}
        user = PBM(self.eta, self.noise)
        rows: list[dict[str, Any]] = []
        runs: list[tuple[dict[str, Any], FixedRankingEngine, Run]] = []
        engines = [self.data.engine(seed, collisions=self.collisions) for seed in self.seeds]
        for seed, engine in zip(self.seeds, engines, strict=True):
            here = about | {"seed": seed}
            rows.append(
                here | {"kind": "trained", "model": PRODUCTION} | ranking_metrics(engine.test_score, engine, seed)
            )
            clicks = engine.clicks(user, self.sessions, seed=seed)
            for name, text in self.models:
                learner = parse_learner(text, self.data, seed)
                runs.append(
                    (here | {"kind": "trained", "model": name}, engine, build_run(learner, engine, user, clicks))
                )
                limit = unlimited_click_scores(learner, engine, user) if self.data.is_one_hot else None
                if limit is not None:
                    rows.append(here | {"kind": "limit", "model": name} | ranking_metrics(limit, engine, seed))
        start = time.perf_counter()
        rankers = fit_runs([run for _, _, run in runs])
        seconds = (time.perf_counter() - start) / max(len(runs), 1)
        for (here, engine, _), ranker in zip(runs, rankers, strict=True):
            found = ranking_metrics(ranker.scores(engine.parts.test), engine, here["seed"])
            rows.append(here | found | {"fit_seconds": seconds} | _training(ranker))
        return rows


def parse_learner(text: str, data: PointwiseData, seed: int) -> ClickRanker:
    learner: ClickRanker = parse(text, RANKERS)
    return replace(learner, tower="one-hot" if data.is_one_hot else learner.tower, seed=seed)


def build_run(learner: ClickRanker, engine: FixedRankingEngine, user: PBM, clicks: tuple[Cells, Cells]) -> Run:
    examination = user.exposure(engine.n_ranks) if learner.bias == "given" else None
    return Run(learner, engine.parts.train, clicks[0], (engine.parts.held_out, clicks[1]), examination)


def unlimited_click_scores(
    learner: ClickRanker, engine: FixedRankingEngine, user: PBM
) -> Float[np.ndarray, " test_pair"] | None:
    """What a ranker with one number per column gives the test documents after unlimited clicks; None for estimated
    bias, which a log of one fixed ranking does not tell."""
    column, clicks = document_columns(engine.parts.train), engine.train.click_prob(user)
    known = engine.train.examination(user)
    limit = {
        ("pbm", "given"): lambda: pbm_limit(clicks, known, column),
        ("ips", "given"): lambda: ips_limit(clicks, known, column),
        ("pbm", "naive"): lambda: pbm_limit(clicks, np.ones_like(known), column),
        ("ips", "naive"): lambda: ips_limit(clicks, np.ones_like(known), column),
    }.get((learner.loss, learner.bias))
    return None if limit is None else limit()[document_columns(engine.parts.test)]


def ranking_metrics(score: Float[np.ndarray, " test_pair"], engine: FixedRankingEngine, seed: int) -> dict[str, float]:
    """nDCG and ARP on the test documents, as the IPS paper has them: a query without a relevant document counts as 0,
    ARP weights documents by their grade."""
    corpus = engine.parts.test
    judged = JudgedPairs(corpus.vocabulary, corpus.label)
    rng = generator(seed, "ties")
    found = ranking_quality(score.astype(np.float64), judged, cutoffs=(5, 10), graded_arp=True, rng=rng)
    means = found.means(missing=0.0)
    return {name: means[name] for name in RANKING_METRICS}


def _training(ranker: Ranker) -> dict[str, Any]:
    return {"rounds": ranker.rounds, "held_out_loss": float(ranker.held_out_loss), "converged": ranker.converged}


def rows_of(cell: PointwiseCell) -> list[dict[str, Any]]:
    """`PointwiseCell.rows` as a function, for processes."""
    return cell.rows()


@dataclass(frozen=True)
class Pointwise:
    """Models x sizes of the log x strengths of the position bias x rates of collisions, ten seeds each."""

    data: PointwiseData = _ONE_HOT
    models: Named = RANKERS_COMPARED
    sessions: tuple[int, ...] = SIZES
    eta: tuple[float, ...] = (1.0,)
    collisions: tuple[float, ...] = (0.0,)
    noise: float = 0.1
    seeds: int = 10

    def __post_init__(self) -> None:
        if any(self.collisions) and not self.data.is_one_hot:
            raise SpecError(f"only the one-hot set can have collisions: got {self.data.name!r}.")
        for name, text in self.models:
            if not isinstance(parse(text, RANKERS), ClickRanker):
                raise SpecError(f"{name} must be a ClickRanker: got {text!r}.")

    def cells(self) -> list[PointwiseCell]:
        """Cells of one seed stand together, so that a process makes its production ranker once."""
        together = tuple(range(self.seeds))
        chunks = [together] if self.data.is_one_hot else [(seed,) for seed in together]
        return [
            PointwiseCell(self.data, self.models, sessions, eta, collisions, self.noise, seeds)
            for seeds, sessions, eta, collisions in product(chunks, self.sessions, self.eta, self.collisions)
        ]


def values_by_seed(rows: Sequence[Mapping[str, Any]], metric: str, **where: Any) -> dict[int, float]:
    """One metric of the rows with these values, by seed."""
    return {row["seed"]: row[metric] for row in rows if all(row.get(name) == value for name, value in where.items())}
