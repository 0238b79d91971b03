"""Search for the optimiser and learning rate of each loss: appendix C.2 of the IPS paper (Hager et al. 2022).

The setting with the smallest held-out click loss is chosen, by the mean over runs of each run's best round. (The
published search uses the mean over all rounds.) Its choice for the paper's data sets is the default of the protocol;
for other data, `tuned` applies the choice to the rankers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from clickshift.core.spec import label, parse
from clickshift.errors import DataError, SpecError
from clickshift.experiments.click_vs_ips._report import ClickVsIps, best_settings
from clickshift.experiments.click_vs_ips.data import VERSION, PointwiseData
from clickshift.experiments.click_vs_ips.protocol import (
    RANKERS_COMPARED,
    build_run,
    parse_learner,
    ranking_metrics,
)
from clickshift.ranking import RANKERS, fit_runs
from clickshift.simulation.search_engine import Named
from clickshift.simulation.users import PBM

OPTIMISERS = ("adam", "adagrad", "sgd")
RATES = (0.1, 0.05, 0.01, 0.005, 0.001, 0.0005, 0.0001)
"""Learning rates of the published search."""
_DATA = PointwiseData()


@dataclass(frozen=True)
class TuningCell:
    """One task of the search: one model with one optimiser and learning rate, all seeds.

    Parameters
    ----------
    data
        The data set.
    model
        Name and spec text of the ranker.
    optimiser
        Name of the optimiser.
    rate
        Learning rate.
    sessions
        Number of training sessions.
    seeds
        Number of seeds.
    version
        Version of the rows.
    """

    data: PointwiseData
    model: tuple[str, str]
    optimiser: str
    rate: float
    sessions: int
    seeds: int
    version: int = VERSION

    @property
    def name(self) -> str:
        """Name of the cell in progress messages."""
        return f"{self.data.name}: {self.model[0]}, {self.optimiser} {self.rate:g}"

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per seed. Runs that fail, e.g. by divergence at a high rate, have an error and no loss."""
        user, runs = PBM(), []
        engines = [self.data.engine(seed) for seed in range(self.seeds)]
        for seed, engine in enumerate(engines):
            learner = parse_learner(self.model[1], self.data, seed)
            learner = replace(learner, optimiser=self.optimiser, learning_rate=self.rate)
            runs.append(build_run(learner, engine, user, engine.clicks(user, self.sessions, seed=seed)))
        setting: dict[str, Any] = {"data": self.data.name, "set": self.data.published_set, "model": self.model[0]}
        setting |= {"optimiser": self.optimiser, "rate": self.rate}
        try:
            rankers = fit_runs(runs)
        except DataError as error:
            return [setting | {"seed": seed, "failed": str(error)} for seed in range(self.seeds)]
        return [
            setting
            | {"seed": seed, "held_out_loss": float(ranker.held_out_loss), "rounds": ranker.rounds}
            | ranking_metrics(ranker.scores(engine.parts.test), engine, seed)
            for seed, (engine, ranker) in enumerate(zip(engines, rankers, strict=True))
        ]


@dataclass(frozen=True)
class Tuning(ClickVsIps):
    """The search: models x optimisers x learning rates, with five runs each on 100 million sessions.

    Parameters
    ----------
    data
        The data set.
    models
        Names and spec texts of the rankers.
    optimisers
        Names of the optimisers.
    rates
        Learning rates.
    sessions
        Number of training sessions.
    seeds
        Number of seeds.
    """

    data: PointwiseData = _DATA
    models: Named = RANKERS_COMPARED
    optimisers: tuple[str, ...] = OPTIMISERS
    rates: tuple[float, ...] = RATES
    sessions: int = 10**8
    seeds: int = 5

    def tasks(self) -> list[TuningCell]:
        """Return the tasks."""
        return [
            TuningCell(self.data, model, optimiser, rate, self.sessions, self.seeds)
            for model, optimiser, rate in product(self.models, self.optimisers, self.rates)
        ]


def tuned(models: Named, rows: Sequence[Mapping[str, Any]], *, data: str) -> Named:
    """Return the models, each with the optimiser and learning rate that a search chose for it.

    Parameters
    ----------
    models
        Names and spec texts of the rankers.
    rows
        Rows of a `Tuning` on the same data set.
    data
        Name of the data set.

    Returns
    -------
    tuple of (str, str)
        Names and spec texts with the chosen settings.

    Raises
    ------
    SpecError
        If the rows are not of a search ("not-tuning-rows") or of another data set ("different-data"), or a model has no
        setting without failed runs ("missing-setting").
    """
    if not all("optimiser" in row for row in rows):
        raise SpecError(
            "rankers must be tuned by rows of ips-tuning: these rows are of another experiment. Pass those of "
            "ips-tuning.",
            code="not-tuning-rows",
        )
    best = {line["model"]: line for line in best_settings(rows) if line["best"]}
    sets = {row["data"] for row in rows}
    if sets != {data}:
        raise SpecError(
            f"rankers for {data!r} must be tuned on it: these settings are for {', '.join(sorted(sets))!r}. "
            "Run ips-tuning on it.",
            code="different-data",
            data=data,
            tuned_on=sorted(sets),
        )
    for name, _ in models:
        if name not in best or not math.isfinite(best[name]["held_out_loss"]):
            raise SpecError(
                f"{name!r} has no setting that was tried and did not fail. Run ips-tuning again.",
                code="missing-setting",
                model=name,
            )
    return tuple(
        (
            name,
            label(replace(parse(text, RANKERS), optimiser=best[name]["optimiser"], learning_rate=best[name]["rate"])),
        )
        for name, text in models
    )
