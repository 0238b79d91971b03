"""The policy-shift protocol: will a click model hold when the ranker changes?

Models learn from a log of one policy and predict clicks on lists of others (Deffayet et al. 2022, section 5).
In-distribution (ind) perplexity is on held-out sessions of the training log, out-of-distribution (ood) perplexity on
other policies' lists. The policies that a model would derive are tried on the user who clicked.

A cell is one model on one training log, with all its seeds and test logs: what is computed, kept and reused at once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from clickshift.experiments._rows import click_rows, ranking_row, ranking_rows
from clickshift.experiments.models import BASELINES, CLICK_MODELS, LOGGING, TRUTH, Contender, check_predicts_clicks
from clickshift.experiments.policy_shift.derived_policies import DerivedPolicies
from clickshift.metrics.ranking import head_queries
from clickshift.models.base import ClickModel
from clickshift.simulation.search_engine import Named, SimulatedLogs, World, check_texts

VERSION = 1
"""Of the rows: counted up when a change of the code changes numbers, so that old rows are not mixed with new ones."""

_WORLD, _DERIVED = World(), DerivedPolicies()


@dataclass(frozen=True)
class Cell:
    """One model on one training log."""

    world: World
    user: tuple[str, str]
    training: tuple[str, str]
    contender: Contender
    seeds: int
    derived: DerivedPolicies | None
    version: int = VERSION

    @property
    def log(self) -> str:
        return f"{self.user[0]} users, {self.training[0]} log"

    @property
    def name(self) -> str:
        return f"{self.contender.name}, {self.log}"

    def rows(self) -> list[dict[str, Any]]:
        logs = self.world.logs(self.user[1], self.training[1])
        about = {"user": self.user[0], "training": self.training[0]}
        about |= {"model": self.contender.name, "role": self.contender.role}
        return [about | row for row in self._judged(logs)]

    def _judged(self, logs: SimulatedLogs) -> Iterator[dict[str, Any]]:
        start = time.perf_counter()
        models = self._fitted(logs)
        fit_seconds = {"fit_seconds": time.perf_counter() - start}
        for row in click_rows(models, logs.test):
            yield row | fit_seconds
        if self.contender.role == "oracle":
            head = head_queries(logs.impressions)
            yield {"model": LOGGING, "role": "baseline", "seed": 0} | ranking_row(
                logs.logging_score, logs.judged, head, 0
            )
        yield from ranking_rows(models, logs.judged, logs.impressions)
        if self.derived is not None and models[0].predicts_clicks and models[0].ranks_documents:
            rng = self.world.rng("derived", self.user[0], self.training[0], self.contender.name)
            yield from self.derived.rows(models, logs.seen, logs.user, logs.frequency, rng=rng)

    def _fitted(self, logs: SimulatedLogs) -> list[ClickModel]:
        if self.contender.role == "oracle":
            return [logs.user]
        return self.contender.fit(logs.train, logs.held_out, self.seeds)


def rows_of(cell: Cell) -> list[dict[str, Any]]:
    """`Cell.rows` as a function, for processes."""
    return cell.rows()


@dataclass(frozen=True)
class PolicyShift:
    """Users x training policies x models; test policies belong to the world. Texts as on the command line."""

    users: Named = (("DBN", "DBN"), ("CoCM", "CoCM"), ("CoCM-mismatch", "CoCM_mismatch"))
    training: Named = (
        ("PL-oracle", "PlackettLuce(NoisyOracle, temperature=0.1, scores='log')"),
        ("PL-BM25", "PlackettLuce(BM25, temperature=0.03, scores='log')"),
        ("PL-LambdaMART", "PlackettLuce(LambdaMART, temperature=0.1, scores='log')"),
    )
    contenders: tuple[Contender, ...] = (TRUTH, *CLICK_MODELS, *BASELINES)
    world: World = _WORLD
    seeds: int = 10
    derived: DerivedPolicies | None = _DERIVED
    derived_users: tuple[str, ...] = ("CoCM", "CoCM-mismatch")
    """Users on whom derived policies are tried: those of figure 2, for whom the best document first is not best."""

    def __post_init__(self) -> None:
        check_texts(self.world, self.users, self.training)
        for contender in self.contenders:
            if contender.role != "oracle":
                check_predicts_clicks(contender)

    def cells(self) -> list[Cell]:
        """Cells of one log stand together, so that a process makes it once."""
        return [
            Cell(self.world, user, training, contender, self.seeds, self._derived(user[0], contender))
            for user in self.users
            for training in self.training
            for contender in self.contenders
        ]

    def _derived(self, user: str, contender: Contender) -> DerivedPolicies | None:
        return self.derived if user in self.derived_users and contender.role in {"click model", "candidate"} else None
