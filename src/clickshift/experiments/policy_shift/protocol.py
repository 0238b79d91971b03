"""The policy-shift protocol: does a click model still predict well when the ranker changes?

Models learn from a log of one policy and predict clicks on lists of others (Deffayet et al. 2022, section 5).
In-distribution (ind) perplexity is measured on held-out sessions of the training log, out-of-distribution (ood)
perplexity on lists of other policies. The policies that are derived from a model are evaluated on the simulated user.

A task is one model on one training log, with all its seeds and test logs. It is computed, stored and reused as a whole.

References
----------
Deffayet, R., Renders, J.-M. & de Rijke, M. (2022). Evaluating the robustness of click models to policy distributional
shift. ACM Transactions on Information Systems.
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
from clickshift.simulation.search_engine import Named, SimulatedLogs, World, check_specs

VERSION = 1
"""Version of the rows: raised when a change of the code changes numbers, so that old rows are not reused."""

_WORLD, _DERIVED = World(), DerivedPolicies()


@dataclass(frozen=True)
class Cell:
    """Task: one model on one training log.

    Parameters
    ----------
    world
        The simulated search engine, with the test policies.
    user
        Name and text of the simulated user.
    training
        Name and text of the logging policy.
    contender
        Model under comparison.
    seeds
        Number of seeds.
    derived
        Which policies are derived from the model; None for none.
    version
        Version of the rows.
    """

    world: World
    user: tuple[str, str]
    training: tuple[str, str]
    contender: Contender
    seeds: int
    derived: DerivedPolicies | None
    version: int = VERSION

    @property
    def log(self) -> str:
        """Name of the training log in tables of progress."""
        return f"{self.user[0]} users, {self.training[0]} log"

    @property
    def name(self) -> str:
        """Name of the task in progress messages."""
        return f"{self.contender.name}, {self.log}"

    def rows(self) -> list[dict[str, Any]]:
        """Fit and evaluate the model: rows of click prediction, ranking and derived policies, by seed."""
        logs = self.world.logs(self.user[1], self.training[1])
        common = {"user": self.user[0], "training": self.training[0]}
        common |= {"model": self.contender.name, "role": self.contender.role}
        return [common | row for row in self._rows(logs)]

    def _rows(self, logs: SimulatedLogs) -> Iterator[dict[str, Any]]:
        start = time.perf_counter()
        models = self._fit(logs)
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

    def _fit(self, logs: SimulatedLogs) -> list[ClickModel]:
        """Fit one model per seed; the oracle is the user's own model."""
        if self.contender.role == "oracle":
            return [logs.user]
        return self.contender.fit(logs.train, logs.held_out, self.seeds)


def rows_of(task: Cell) -> list[dict[str, Any]]:
    """Compute the rows of a task; a top-level function, as `clickshift.experiments.runner.run_tasks` needs.

    Parameters
    ----------
    task
        The task.

    Returns
    -------
    list of dict
        Its tidy rows.
    """
    return task.rows()


@dataclass(frozen=True)
class PolicyShift:
    """The policy-shift protocol: a grid of users, logging policies and models; by default at paper scale.

    Parameters
    ----------
    users
        Simulated users, as names and texts (`clickshift.simulation.users.USERS`).
    training
        Logging policies, as names and texts (`clickshift.policies.POLICIES`). A text may join several policies with
        " + ": each ranks an equal share of the log.
    contenders
        Models under comparison.
    world
        The simulated search engine, with the test policies.
    seeds
        Number of seeds of models fitted by gradient descent.
    derived
        Which policies are derived from click models and candidates; None for none.
    derived_users
        Names of the users on whom derived policies are evaluated. By default those of figure 2, for whom ranking by
        relevance is not optimal.

    Raises
    ------
    SpecError
        If a text names no user, policy or learner, or a model predicts no clicks ("cannot-predict-clicks").

    References
    ----------
    Deffayet, R., Renders, J.-M. & de Rijke, M. (2022). Evaluating the robustness of click models to policy
    distributional shift. ACM Transactions on Information Systems.

    Examples
    --------
    >>> protocol = PolicyShift(seeds=1)
    >>> len(protocol.cells()), protocol.cells()[1].name
    (117, 'PBM, DBN users, PL-oracle log')
    """

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

    def __post_init__(self) -> None:
        check_specs(self.world, self.users, self.training)
        for contender in self.contenders:
            if contender.role != "oracle":
                check_predicts_clicks(contender)

    def cells(self) -> list[Cell]:
        """Tasks of the grid. Tasks of one log follow each other, so that a process simulates it once."""
        return [
            Cell(self.world, user, training, contender, self.seeds, self._derived(user[0], contender))
            for user in self.users
            for training in self.training
            for contender in self.contenders
        ]

    def _derived(self, user: str, contender: Contender) -> DerivedPolicies | None:
        """Policies to derive: only from models that are compared, and only on `derived_users`."""
        return self.derived if user in self.derived_users and contender.role in {"click model", "candidate"} else None
