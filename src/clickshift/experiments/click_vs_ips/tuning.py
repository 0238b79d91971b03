"""Which optimiser and learning rate suit which loss: the search of the IPS paper's appendix C.2.

The setting with the least held-out click loss wins, the mean over runs of each run's best round. (The published search
takes the mean over all rounds.) What it chose for the paper's sets is the default of `ClickRanker`; of another set,
`tuned` gives rankers its choice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from clickshift.core.spec import label, parse
from clickshift.errors import DataError, SpecError
from clickshift.experiments.click_vs_ips.data import PointwiseData
from clickshift.experiments.click_vs_ips.protocol import RANKERS_COMPARED, build_run, parse_learner, ranking_metrics
from clickshift.ranking import RANKERS, fit_runs
from clickshift.simulation.search_engine import Named
from clickshift.simulation.users import PBM

VERSION = 2
"""Of the rows: counted up when a change of the code changes numbers, so that old rows are not mixed with new ones."""

OPTIMISERS = ("adam", "adagrad", "sgd")
RATES = (0.1, 0.05, 0.01, 0.005, 0.001, 0.0005, 0.0001)
_DATA = PointwiseData()


@dataclass(frozen=True)
class TuningCell:
    """One model with one optimiser and rate, all runs."""

    data: PointwiseData
    model: tuple[str, str]
    optimiser: str
    rate: float
    sessions: int
    seeds: int
    version: int = VERSION

    @property
    def name(self) -> str:
        return f"{self.data.name}: {self.model[0]}, {self.optimiser} {self.rate:g}"

    def rows(self) -> list[dict[str, Any]]:
        """A run that fails, e.g. because its rate is so high that numbers overflow, has no losses."""
        user, runs = PBM(), []
        engines = [self.data.engine(seed) for seed in range(self.seeds)]
        for seed, engine in enumerate(engines):
            learner = parse_learner(self.model[1], self.data, seed)
            learner = replace(learner, optimiser=self.optimiser, learning_rate=self.rate)
            runs.append(build_run(learner, engine, user, engine.clicks(user, self.sessions, seed=seed)))
        about = {"data": self.data.name, "model": self.model[0], "optimiser": self.optimiser, "rate": self.rate}
        try:
            rankers = fit_runs(runs)
        except DataError as error:
            return [about | {"seed": seed, "failed": str(error)} for seed in range(self.seeds)]
        return [
            about
            | {"seed": seed, "held_out_loss": float(ranker.held_out_loss), "rounds": ranker.rounds}
            | ranking_metrics(ranker.scores(engine.parts.test), engine, seed)
            for seed, (engine, ranker) in enumerate(zip(engines, rankers, strict=True))
        ]


def rows_of(cell: TuningCell) -> list[dict[str, Any]]:
    """`TuningCell.rows` as a function, for processes."""
    return cell.rows()


@dataclass(frozen=True)
class Tuning:
    """Models x optimisers x learning rates, five runs each on 100 million sessions."""

    data: PointwiseData = _DATA
    models: Named = RANKERS_COMPARED
    optimisers: tuple[str, ...] = OPTIMISERS
    rates: tuple[float, ...] = RATES
    sessions: int = 10**8
    seeds: int = 5

    def cells(self) -> list[TuningCell]:
        return [
            TuningCell(self.data, model, optimiser, rate, self.sessions, self.seeds)
            for model, optimiser, rate in product(self.models, self.optimisers, self.rates)
        ]


def best_settings(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One line per model and setting with the means over its runs, and which has the least held-out loss."""
    groups: dict[tuple[str, str, float], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["model"], row["optimiser"], row["rate"]), []).append(row)
    lines: list[dict[str, Any]] = []
    for (model, optimiser, rate), group in groups.items():
        known = [row for row in group if "failed" not in row]
        means = {
            name: sum(row[name] for row in known) / len(known) if len(known) == len(group) else float("inf")
            for name in ("held_out_loss", "nDCG@10", "rounds")
        }
        lines.append({"model": model, "optimiser": optimiser, "rate": rate, "runs": len(group)} | means)
    for model in dict.fromkeys(line["model"] for line in lines):
        best = min((line for line in lines if line["model"] == model), key=lambda line: line["held_out_loss"])
        best["best"] = True
    return [{**line, "best": line.get("best", False)} for line in lines]


def tuned(models: Named, rows: Sequence[Mapping[str, Any]], *, data: str) -> Named:
    """The models, each with the optimiser and rate that these rows choose for it; they must be of the same set."""
    if not all("optimiser" in row for row in rows):
        raise SpecError("rankers must be tuned by rows of ips-tuning: these are of something else.")
    best = {line["model"]: line for line in best_settings(rows) if line["best"]}
    sets = {row["data"] for row in rows}
    if sets != {data}:
        raise SpecError(f"rankers of {data!r} must be tuned on it: these settings are of {', '.join(sorted(sets))!r}.")
    for name, _ in models:
        if name not in best or not math.isfinite(best[name]["held_out_loss"]):
            raise SpecError(f"{name!r} has no setting that was tried and did not fail. Run ips-tuning again.")
    return tuple(
        (
            name,
            label(replace(parse(text, RANKERS), optimiser=best[name]["optimiser"], learning_rate=best[name]["rate"])),
        )
        for name, text in models
    )
