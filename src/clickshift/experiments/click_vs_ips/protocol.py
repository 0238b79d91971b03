"""Main experiment of the IPS paper: is a neural click model a pointwise IPS ranker in disguise?

Hager et al. 2022. A production ranker shows documents, users of a position-based model click, and rankers learn from
the clicks: with a click loss or with inverse propensity scoring, with the true examination, an estimate of it, or none.
They are evaluated by the true labels of other queries, for increasing numbers of sessions (figure 1, table 2), feature
collisions (figure 4) and position bias (figure 5).

A cell is one log size with all models: with all seeds of the one-hot set, which train side by side, and with one seed
of other data sets.
"""

from __future__ import annotations

import time
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
from clickshift.experiments.click_vs_ips._report import ClickVsIps
from clickshift.experiments.click_vs_ips.data import (
    IPS_TRUE,
    NAIVE,
    PBM_ESTIMATED,
    PBM_TRUE,
    PRODUCTION,
    RANKING_METRICS,
    VERSION,
    PointwiseData,
)
from clickshift.experiments.click_vs_ips.published import published_rate
from clickshift.metrics.ranking import JudgedPairs, ranking_quality
from clickshift.ranking import RANKERS, ClickRanker, Ranker, Run, fit_runs
from clickshift.simulation.fixed_ranking import FixedRankingEngine
from clickshift.simulation.search_engine import Named
from clickshift.simulation.users import PBM

RANKERS_COMPARED: Named = (
    (NAIVE, "ClickRanker(loss='ips', bias='naive')"),
    (PBM_ESTIMATED, "ClickRanker(loss='pbm', bias='estimated')"),
    (PBM_TRUE, "ClickRanker(loss='pbm')"),
    (IPS_TRUE, "ClickRanker(loss='ips')"),
)
"""Names and spec texts of the rankers that the paper compares."""
TRUE_BIAS_RANKERS: Named = RANKERS_COMPARED[2:]
"""The two rankers that are given the true position bias."""
TWO_TOWERS = ("Two towers, additive", "ClickRanker(loss='additive', bias='estimated')")
"""Click model that is not in the paper: sigmoid(relevance logit + position logit)."""
SIZES = tuple(10**k for k in range(2, 9))
"""Numbers of sessions of figure 1."""

_ONE_HOT = PointwiseData()


@dataclass(frozen=True)
class PointwiseCell:
    """One task of the experiment: all models on logs of one size, one log per seed.

    Parameters
    ----------
    data
        The data set.
    models
        Names and spec texts of the rankers.
    sessions
        Number of training sessions.
    eta
        Strength of the position bias: examination is (1 / rank) ** eta.
    collisions
        Collision rate of the one-hot set.
    noise
        Click probability of an examined document of grade 0.
    seeds
        Random seeds.
    version
        Version of the rows.
    """

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
        """Name of the cell in progress messages."""
        seeds = f"seed {self.seeds[0]}" if len(self.seeds) == 1 else f"{len(self.seeds)} seeds"
        parts = [f"{self.sessions:,} sessions", seeds]
        parts += [f"{self.collisions:.0%} collisions"] if self.collisions else []
        parts += [f"eta {self.eta:g}"] if self.eta != 1 else []
        return f"{self.data.name}: {', '.join(parts)}"

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per model and seed (kind "trained").

        On the one-hot set there are also rows of the closed-form limit with unlimited clicks (kind "limit").
        """
        setting: dict[str, Any] = {"data": self.data.name, "set": self.data.published_set, "sessions": self.sessions}
        setting |= {"eta": self.eta, "collisions": self.collisions}
        setting |= {"as_published": True} if self.data.as_published else {}
        setting |= {} if self.data.queries is None or self.data.is_one_hot else {"queries": self.data.queries}
        user = PBM(self.eta, self.noise)
        rows: list[dict[str, Any]] = []
        runs: list[tuple[dict[str, Any], FixedRankingEngine, Run]] = []
        engines = [self.data.engine(seed, collisions=self.collisions) for seed in self.seeds]
        for seed, engine in zip(self.seeds, engines, strict=True):
            with_seed = setting | {"seed": seed}
            production = ranking_metrics(engine.test_score, engine, seed)
            rows.append(with_seed | {"kind": "trained", "model": PRODUCTION} | production)
            clicks = engine.clicks(user, self.sessions, seed=seed)
            for name, text in self.models:
                learner = parse_learner(text, self.data, seed)
                run = build_run(learner, engine, user, clicks)
                runs.append((with_seed | {"kind": "trained", "model": name}, engine, run))
                limit = unlimited_click_scores(learner, engine, user) if self.data.is_one_hot else None
                if limit is not None:
                    rows.append(with_seed | {"kind": "limit", "model": name} | ranking_metrics(limit, engine, seed))
        start = time.perf_counter()
        rankers = fit_runs([run for _, _, run in runs])
        seconds = (time.perf_counter() - start) / max(len(runs), 1)
        for (row, engine, _), ranker in zip(runs, rankers, strict=True):
            metrics = ranking_metrics(ranker.scores(engine.parts.test), engine, row["seed"])
            rows.append(row | metrics | {"fit_seconds": seconds} | _training_facts(ranker))
        return rows


def parse_learner(text: str, data: PointwiseData, seed: int) -> ClickRanker:
    """Return the learner of a spec text, with the tower of the data set, its published learning rate, and a seed."""
    learner: ClickRanker = parse(text, RANKERS)
    rate = learner.learning_rate or published_rate(data.published_set, loss=learner.loss, bias=learner.bias)
    if data.as_published:
        learner = replace(learner, by_traffic=False, keep="last")
    return replace(learner, tower="one-hot" if data.is_one_hot else learner.tower, learning_rate=rate, seed=seed)


def build_run(learner: ClickRanker, engine: FixedRankingEngine, user: PBM, clicks: tuple[Cells, Cells]) -> Run:
    """Return the training run of a learner on training and held-out clicks, with the user's examination if needed."""
    examination = user.exposure(engine.n_ranks) if learner.bias == "given" else None
    return Run(learner, engine.parts.train, clicks[0], (engine.parts.held_out, clicks[1]), examination)


def unlimited_click_scores(
    learner: ClickRanker, engine: FixedRankingEngine, user: PBM
) -> Float[np.ndarray, " test_pair"] | None:
    """Return the scores of the test documents by a one-hot ranker after unlimited clicks.

    None for estimated bias, which a log of one fixed ranking does not identify.
    """
    column, clicks = document_columns(engine.parts.train), engine.train.click_prob(user)
    examination = engine.train.examination(user)
    limit = {
        ("pbm", "given"): lambda: pbm_limit(clicks, examination, column),
        ("ips", "given"): lambda: ips_limit(clicks, examination, column),
        ("pbm", "naive"): lambda: pbm_limit(clicks, np.ones_like(examination), column),
        ("ips", "naive"): lambda: ips_limit(clicks, np.ones_like(examination), column),
    }.get((learner.loss, learner.bias))
    return None if limit is None else limit()[document_columns(engine.parts.test)]


def ranking_metrics(score: Float[np.ndarray, " test_pair"], engine: FixedRankingEngine, seed: int) -> dict[str, float]:
    """Return nDCG and ARP on the test documents, as the IPS paper defines them.

    A query without a relevant document counts as 0, and ARP weights documents by their grade.
    """
    corpus = engine.parts.test
    judged = JudgedPairs(corpus.vocabulary, corpus.label)
    rng = generator(seed, "ties")
    quality = ranking_quality(score.astype(np.float64), judged, cutoffs=(5, 10), graded_arp=True, rng=rng)
    means = quality.means(missing=0.0)
    return {name: means[name] for name in RANKING_METRICS}


def _training_facts(ranker: Ranker) -> dict[str, Any]:
    """Return the facts of a training that its row keeps."""
    return {"rounds": ranker.rounds, "held_out_loss": float(ranker.held_out_loss), "converged": ranker.converged}


@dataclass(frozen=True)
class Pointwise(ClickVsIps):
    """The experiment: models x log sizes x strengths of the position bias x collision rates, with ten seeds each.

    Parameters
    ----------
    data
        The data set.
    models
        Names and spec texts of the rankers.
    sessions
        Numbers of training sessions.
    eta
        Strengths of the position bias: examination is (1 / rank) ** eta.
    collisions
        Collision rates of the one-hot set.
    noise
        Click probability of an examined document of grade 0.
    seeds
        Number of seeds.

    Raises
    ------
    SpecError
        If there are collisions on another data set than one-hot ("collisions-need-one-hot"), or a model is not a
        ClickRanker ("not-a-click-ranker").

    References
    ----------
    Hager, P., de Rijke, M., Zoeter, O. (2022). Are neural click models pointwise IPS rankers? CONSEQUENCES+REVEAL
    workshop at RecSys. (Later: Contrasting neural click models and pointwise IPS rankers. ECIR 2023.)

    Examples
    --------
    >>> [cell.name for cell in Pointwise(sessions=(100,), collisions=(0.0, 0.5)).tasks()]
    ['one-hot: 100 sessions, 10 seeds', 'one-hot: 100 sessions, 10 seeds, 50% collisions']
    """

    data: PointwiseData = _ONE_HOT
    models: Named = RANKERS_COMPARED
    sessions: tuple[int, ...] = SIZES
    eta: tuple[float, ...] = (1.0,)
    collisions: tuple[float, ...] = (0.0,)
    noise: float = 0.1
    seeds: int = 10

    def __post_init__(self) -> None:
        if any(self.collisions) and not self.data.is_one_hot:
            raise SpecError(
                f"only the one-hot set can have collisions: got {self.data.name!r}.",
                code="collisions-need-one-hot",
                data=self.data.name,
            )
        for name, text in self.models:
            if not isinstance(parse(text, RANKERS), ClickRanker):
                raise SpecError(
                    f"{name} must be a ClickRanker: got {text!r}.", code="not-a-click-ranker", name=name, value=text
                )

    def tasks(self) -> list[PointwiseCell]:
        """Return the tasks; those of one seed are consecutive, so that a process trains its production ranker once."""
        all_seeds = tuple(range(self.seeds))
        chunks = [all_seeds] if self.data.is_one_hot else [(seed,) for seed in all_seeds]
        return [
            PointwiseCell(self.data, self.models, sessions, eta, collisions, self.noise, seeds)
            for seeds, sessions, eta, collisions in product(chunks, self.sessions, self.eta, self.collisions)
        ]
