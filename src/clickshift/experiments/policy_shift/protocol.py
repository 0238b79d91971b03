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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from clickshift.core.progress import Progress, silent
from clickshift.display.tables import Rows
from clickshift.errors import SpecError
from clickshift.experiments._rows import check_row, click_rows, ranking_row, ranking_rows
from clickshift.experiments.experiment import Experiment, corpus_folder, settings_at_scale
from clickshift.experiments.models import (
    BASELINES,
    CLICK_MODELS,
    LOGGING,
    TRUTH,
    Contender,
    candidate_model,
    check_predicts_clicks,
    compared_model,
)
from clickshift.experiments.policy_shift._loss_parts import has_known_parts, sources_of_loss
from clickshift.experiments.policy_shift._report import PolicyShiftResult
from clickshift.experiments.policy_shift.derived_policies import DerivedPolicies
from clickshift.experiments.policy_shift.own_tables import OwnScores, TableLike, with_query_counts
from clickshift.experiments.runner import digest
from clickshift.io.datasets.letor import CorpusLike
from clickshift.metrics.ranking import head_queries
from clickshift.models.base import ClickModel
from clickshift.models.storage import load_seeds, save_seeds
from clickshift.simulation.search_engine import BUILTIN, Named, SimulatedLogs, World, check_specs, named_specs
from clickshift.simulation.users import USERS

VERSION = 2
"""Version of the rows: raised when a change of the code changes numbers, so that old rows are not reused.

Since version 2, the most examined situation of PBM and UBM by gradient has examination 1, the learning rate is halved
as PyTorch does, and dCTR ranks by its raw click rate."""

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
    models
        Folder that keeps fitted models; empty to keep none. It is not part of the task's digest.
    """

    world: World
    user: tuple[str, str]
    training: tuple[str, str]
    contender: Contender
    seeds: int
    derived: DerivedPolicies | None
    version: int = VERSION
    models: str = field(default="", repr=False, compare=False)

    @property
    def log(self) -> str:
        """Name of the training log in tables of progress."""
        return f"{self.user[0]} users, {self.training[0]} log"

    @property
    def name(self) -> str:
        """Name of the task in progress messages."""
        return f"{self.contender.name}, {self.log}"

    def rows(self, progress: Progress = silent) -> list[dict[str, Any]]:
        """Fit and evaluate the model: rows of click prediction, ranking and derived policies, by seed."""
        progress("simulating logs")
        logs = self.world.logs(self.user[1], self.training[1])
        common = {"user": self.user[0], "training": self.training[0]}
        common |= {"model": self.contender.name, "role": self.contender.role}
        return [common | row for row in self._rows(logs, progress)]

    def _rows(self, logs: SimulatedLogs, progress: Progress) -> Iterator[dict[str, Any]]:
        progress("fitting")
        start = time.process_time()
        models = self._fit(logs, progress)
        fit_seconds = {"fit_seconds": time.process_time() - start}
        progress("predicting the test logs")
        for row in click_rows(models, logs.test):
            yield row | fit_seconds
        if self.contender.role in {"candidate", "click model"} and not models[0].peeks:
            yield check_row(models, logs.user, logs.test)
            if has_known_parts(models[0], logs.user):
                for testing, parts in sources_of_loss(models[0], logs).items():
                    yield {"kind": "loss", "testing": testing, "seed": 0} | parts
        if self.contender.role == "oracle":
            head = head_queries(logs.impressions)
            yield {"model": LOGGING, "role": "baseline", "seed": 0} | ranking_row(
                logs.logging_score, logs.judged, head, 0
            )
        yield from ranking_rows(models, logs.judged, logs.impressions)
        if self.derived is not None and models[0].predicts_clicks and models[0].ranks_documents:
            rng = self.world.rng("derived", self.user[0], self.training[0], self.contender.name)
            yield from self.derived.rows(models, logs.seen, logs.user, logs.frequency, rng=rng, progress=progress)

    def _fit(self, logs: SimulatedLogs, progress: Progress) -> list[ClickModel]:
        """Fit one model per seed, or load those that an earlier run kept; the oracle is the user's own model."""
        if self.contender.role == "oracle":
            return [logs.user]
        if not self.models or self.contender.role == "baseline":
            return self.contender.fit(logs.train, logs.held_out, self.seeds, progress=progress)
        self.contender.make()  # imports the class of a candidate
        folder = Path(self.models) / digest(self._without_tests())
        if folder.exists():
            return load_seeds(folder)
        models = self.contender.fit(logs.train, logs.held_out, self.seeds, progress=progress)
        save_seeds(models, folder)
        return models

    def _without_tests(self) -> Cell:
        """Return the task without what a fitted model does not depend on: test policies and derived policies."""
        return replace(self, world=replace(self.world, testing=(), test_sessions=0), derived=None)


@dataclass(frozen=True)
class PolicyShift(Experiment[PolicyShiftResult]):
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
    models
        Folder that keeps fitted models, for later runs with other test policies; empty to keep none.

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
    >>> len(protocol.tasks()), protocol.tasks()[1].name
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
    models: str = field(default="", repr=False, compare=False)

    def __post_init__(self) -> None:
        check_specs(self.world, self.users, self.training)

    def check_models(self) -> None:
        """Check that every model exists and predicts clicks, unless it is a baseline."""
        for contender in self.contenders:
            if contender.role != "oracle":
                check_predicts_clicks(contender)

    def tasks(self) -> list[Cell]:
        """Tasks of the grid. Tasks of one log follow each other, so that a process simulates it once."""
        return [
            Cell(
                self.world,
                user,
                training,
                contender,
                self.seeds,
                self._derived(user[0], contender),
                models=self.models,
            )
            for user in self.users
            for training in self.training
            for contender in self.contenders
        ]

    def _derived(self, user: str, contender: Contender) -> DerivedPolicies | None:
        """Policies to derive: only from models that are compared, and only on `derived_users`."""
        return self.derived if user in self.derived_users and contender.role in {"click model", "candidate"} else None

    def result(self, rows: Rows, settings: Mapping[str, Any], failures: tuple[str, ...] = ()) -> PolicyShiftResult:
        """Make the result of the rows of finished tasks."""
        return PolicyShiftResult(rows, settings, failures, str(settings.get("table") or ""))

    def sources(self) -> dict[str, Any]:
        """Return the paths of the corpus and of tables."""
        tables = [path for _, path in self.world.tables]
        return {"corpus": self.world.corpus} | ({"tables": tables} if tables else {})


_PAPER = {field.name: field.default for field in fields(PolicyShift)}
SCALES: dict[str, dict[str, Any]] = {
    "quick": _PAPER
    | {
        "users": (PolicyShift.users[0], PolicyShift.users[2]),
        "training": PolicyShift.training[:1],
        "world": World(queries=200, sessions=20_000, test_sessions=5_000),
        "seeds": 3,
        "derived": DerivedPolicies(sessions=20_000),
    },
    "paper": _PAPER,
}
"""Settings by scale: "paper" is the whole grid of the paper, "quick" enough of it to see its main result in minutes."""


def policy_shift(
    output: str | Path | None = None,
    *,
    scale: str = "quick",
    candidates: Sequence[str] = (),
    corpus: CorpusLike = BUILTIN,
    users: Sequence[str] = (),
    training: Sequence[str] = (),
    testing: Sequence[str] = (),
    models: Sequence[str] = (),
    scores: TableLike | Sequence[TableLike] | Mapping[str, TableLike] | None = None,
    query_counts: TableLike | None = None,
    queries: int | None = None,
    sessions: int | None = None,
    test_sessions: int | None = None,
    seeds: int | None = None,
    derived: bool = True,
    search: str | None = None,
    penalties: Sequence[float] = (),
    fair: bool = False,
    seed: int | None = None,
    keep_models: bool = False,
    reference: bool = True,
    workers: int | None = None,
    cluster: str | None = None,
    progress: Progress = silent,
) -> PolicyShiftResult:
    """Fit click models on simulated logs of one policy and evaluate them on other policies' lists.

    What is empty or None stays as the scale has it. For a protocol of one's own, run a `PolicyShift`.

    Parameters
    ----------
    output
        Folder that keeps the rows of finished tasks: after an interruption, call again, and only the missing ones run.
        By default, a temporary folder.
    scale
        "quick" (minutes) or "paper" (the whole grid, ten seeds: an hour).
    candidates
        Own models to compare, as "package.module:Class" or as learners.
    corpus
        "builtin", a LETOR file or folder, a `Corpus`, or a data frame with the columns query, doc, label and features.
    users, training, testing
        Simulated users, logging policies of training logs, and policies of test logs: names of the full protocol, e.g.
        "PL-BM25", or their texts, e.g. "Feature(25)". " + " joins several policies of one log.
    models
        Click models to compare, in place of the paper's six.
    scores
        Rankers by their scores: a table with the columns query, doc and score, several, or several by name. A file is
        named after itself, or as "NAME=FILE". NAME ranks by the scores in `training`, `testing` and their texts, e.g.
        "PlackettLuce(NAME, temperature=1)"; "PL-NAME" is the text of the paper's LambdaMART with these scores. One that
        is named nowhere ranks a further test log. Scores are mapped to [0, 1] within each query.
    query_counts
        How often each query is asked: a table with the columns query and count. Other queries are left out. By default,
        the power law of the paper.
    queries, sessions, test_sessions
        Number of queries of the corpus, of sessions of each training log, and of sessions of each test log.
    seeds
        Number of models per task, from different random seeds.
    derived
        Whether to evaluate the policies that are derived from each model.
    search, penalties, fair
        Settings of the derived policies, as in `DerivedPolicies`.
    seed
        Random seed for the simulated search engine.
    keep_models
        Whether to keep fitted models in the folder `models` of `output`: another call with other test policies then
        trains no model again. At paper scale, those of NCM take gigabytes.
    reference
        Whether to use the reference rows that come with the package, where they apply.
    workers
        Number of worker processes; by default, one per core. With 0, the tasks run in this process.
    cluster
        Address of a Dask cluster to run on instead of this machine, e.g. "tcp://host:8786".
    progress
        Called with a line and a step for each finished task, and with texts on how far running tasks are.

    Returns
    -------
    PolicyShiftResult
        Rows, verdicts, tables and figures. A task that fails is among its `failures`.

    Raises
    ------
    SpecError
        If a name or text cannot be used ("unknown-name" for another scale), or models are to be kept without a folder
        ("bad-option"), before any work.
    FileError
        If a table of scores or of query frequencies cannot be used, e.g. "missing-score" if a document that may be
        ranked has no score.
    RunError
        "failed-tasks" if no task could be finished.

    References
    ----------
    Deffayet, R., Renders, J.-M. & de Rijke, M. (2022). Evaluating the robustness of click models to policy
    distributional shift. ACM Transactions on Information Systems.

    Examples
    --------
    >>> import clickshift as cs
    >>> small = {"users": ["DBN"], "testing": ["random"], "queries": 20, "sessions": 2000, "test_sessions": 200}
    >>> result = cs.policy_shift(models=["EM('PBM')"], candidates=["EM('UBM')"], derived=False, workers=0, **small)
    >>> [verdict["model"] for verdict in result.verdicts]
    ["EM('UBM') (candidate)", "EM('PBM')"]
    """
    with corpus_folder(output) as folder:
        protocol = protocol_at_scale(
            scale,
            folder,
            candidates=candidates,
            corpus=corpus,
            users=users,
            training=training,
            testing=testing,
            models=models,
            scores=scores,
            query_counts=query_counts,
            queries=queries,
            sessions=sessions,
            test_sessions=test_sessions,
            seeds=seeds,
            derived=derived,
            search=search,
            penalties=penalties,
            fair=fair,
            seed=seed,
        )
        if keep_models:
            protocol = replace(protocol, models=str(_models_folder(output)))
        return protocol.run(output, reference=reference, workers=workers, cluster=cluster, progress=progress)


def _models_folder(output: str | Path | None) -> Path:
    """Return the folder of kept models, which must be in the folder of a run."""
    if output is None:
        raise SpecError("models are kept in the folder of the run. Pass `output`.", code="bad-option", option="output")
    return Path(output).absolute() / "models"


def protocol_at_scale(
    scale: str,
    folder: Path,
    *,
    candidates: Sequence[str] = (),
    corpus: CorpusLike = BUILTIN,
    users: Sequence[str] = (),
    training: Sequence[str] = (),
    testing: Sequence[str] = (),
    models: Sequence[str] = (),
    scores: TableLike | Sequence[TableLike] | Mapping[str, TableLike] | None = None,
    query_counts: TableLike | None = None,
    seeds: int | None = None,
    derived: bool = True,
    search: str | None = None,
    penalties: Sequence[float] = (),
    fair: bool = False,
    **numbers: int | None,
) -> PolicyShift:
    """Return the protocol of a scale with some settings replaced.

    Parameters
    ----------
    scale, candidates, corpus, users, training, testing, models, scores, query_counts
        As in `policy_shift`.
    seeds, derived, search, penalties, fair
        As in `policy_shift`.
    folder
        Folder in which a corpus and tables that are objects are saved.
    **numbers
        Settings of `World`: queries, sessions, test_sessions and seed. None stays as the scale has it.

    Returns
    -------
    PolicyShift
        The protocol.

    Raises
    ------
    SpecError
        If a name or text cannot be used.
    """
    chosen = settings_at_scale(scale, SCALES)
    if models:
        others = tuple(c for c in chosen["contenders"] if c.role != "click model")
        chosen["contenders"] = tuple(dict.fromkeys((*others, *map(compared_model, models))))
    chosen["contenders"] += tuple(map(candidate_model, candidates))
    given: dict[str, Any] = {name: value for name, value in numbers.items() if value is not None}
    own = OwnScores.of(scores, folder)
    tests = [*(testing or dict(World.testing)), *own.unused([*testing, *training])]
    if testing or own.files:
        given["testing"] = own.named(tests, World.testing)
    if training:
        chosen["training"] = own.named(training, PolicyShift.training)
    world = replace(chosen["world"], **given).on_corpus(corpus, folder)
    chosen["world"] = own.in_world(with_query_counts(world, query_counts, folder))
    if users:
        chosen |= {"users": named_specs(users, PolicyShift.users, USERS), "derived_users": tuple(users)}
    policies = {"penalties": tuple(penalties), "fair": fair} | ({} if search is None else {"search": search})
    chosen["derived"] = replace(chosen["derived"], **policies) if derived else None
    chosen["seeds"] = seeds or chosen["seeds"]
    return PolicyShift(**chosen)
