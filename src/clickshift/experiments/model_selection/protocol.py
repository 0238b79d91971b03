"""The model-selection protocol: which click model will predict clicks best once a new policy ranks?

The grid of the CMIP paper (Deffayet et al. 2023). Models learn from a log of one policy. They are described by metrics
that are known then (held-out perplexity, nDCG, dependence on the logging policy) and tested on lists of other policies.
`regret` computes what choosing by such metrics costs, `r2` how well they predict ood perplexity.

A task is one model on the log of one seed. Every seed has a log of its own, so that seeds also differ for models that
are fitted by counting and by maximum likelihood.

References
----------
Deffayet, R., Hager, P., Renders, J.-M. & de Rijke, M. (2023). An offline metric for the debiasedness of click models.
SIGIR.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from clickshift.core.progress import Progress, silent
from clickshift.core.rng import generator
from clickshift.core.spec import parse
from clickshift.debiasedness.agreement import agreement_ratio
from clickshift.debiasedness.classifier_cmi import Classifier
from clickshift.debiasedness.metrics import CMIP, MeanDependence
from clickshift.debiasedness.scored_pairs import ScoredPairs
from clickshift.display.tables import Rows
from clickshift.errors import SpecError
from clickshift.experiments.experiment import Experiment, corpus_folder, settings_at_scale
from clickshift.experiments.model_selection._report import ModelSelectionResult
from clickshift.experiments.models import Contender, check_predicts_clicks, compared_model
from clickshift.io.datasets.letor import CorpusLike
from clickshift.learners.gradient import Gradient
from clickshift.metrics.click_prediction import bits_of, perplexity, perplexity_of
from clickshift.metrics.predictions import Predictions
from clickshift.metrics.ranking import ranking_quality
from clickshift.metrics.weighted_perplexity import weighted_perplexity
from clickshift.models.base import ClickModel
from clickshift.policies import POLICIES
from clickshift.simulation.search_engine import BUILTIN, Named, SeedLogs, SelectionWorld, named_specs
from clickshift.simulation.users import USERS

VERSION = 2
"""Version of the rows: raised when a change of the code changes numbers, so that old rows are not reused."""
MAX_REPEATS = 10_000
"""Largest number of repetitions of a cross-validation: a run.json of others must not make a report take hours."""

_WORLD = SelectionWorld()
_CMIP_KSG = CMIP(permutations=0, subsamples=0)
_MEAN_DEPENDENCE = MeanDependence(permutations=0, subsamples=0)
_CMIP_CLASSIFIER = Classifier()
_MIN_LABEL_ROWS = 20
"""Labels with fewer rows are left out: they may be missing in one of the classifier's two folds."""

MODELS_FROM_COUNTS = (
    Contender("dCTR", "Counting('dCTR', smoothing='fitted')"),
    Contender("drCTR", "Counting('drCTR', smoothing='fitted')"),
    Contender("PBM", "EM('PBM')"),
    Contender("UBM", "EM('UBM')"),
    Contender("DBN", "EM('DBN')"),
)
"""Models with a free parameter per (query, document) pair, fitted from counts with a prior estimated from the log."""


def _neural_models(rounds: int) -> tuple[Contender, ...]:
    """Neural models with a free logit (CACM-minus) or vector (NCM) per document, and states of size 32 as published."""
    return tuple(
        Contender(name, f"Gradient('{model}', tower='free', state=32, rounds={rounds})")
        for name, model in (("CACM-minus", "CACM_minus"), ("NCM", "NCM"))
    )


@dataclass(frozen=True)
class SelectionCell:
    """Task: one model on the log of one seed.

    Parameters
    ----------
    world
        The simulated search engine.
    user
        Name and text of the simulated user.
    training
        Name and text of the logging policy.
    contender
        Model under comparison.
    seed
        Random seed of the log and of the model.
    version
        Version of the rows.
    """

    world: SelectionWorld
    user: tuple[str, str]
    training: tuple[str, str]
    contender: Contender
    seed: int
    version: int = VERSION

    @property
    def log(self) -> str:
        """Name of the log in tables of progress."""
        return f"{self.user[0]} users, {self.training[0]} log, seed {self.seed}"

    @property
    def name(self) -> str:
        """Name of the task in progress messages."""
        return f"{self.contender.name}, {self.log}"

    def rows(self, progress: Progress = silent) -> list[dict[str, Any]]:
        """Fit and evaluate the model: one row of metrics known before deployment, and one per test policy.

        The kinds of these rows are "metrics" and "clicks". There are two ind perplexities, as published: on held-out
        sessions (`val_perplexity`, by which strategies choose), and on lists that the same policy ranks without
        randomness (`ind_perplexity`, used in the R2 table).
        """
        progress("simulating logs")
        logs = self.world.logs(self.user[1], self.training[1], self.seed)
        progress("fitting")
        common = {"user": self.user[0], "training": self.training[0], "seed": self.seed}
        common |= {"model": self.contender.name, "role": self.contender.role}
        start = time.perf_counter()
        model = self._fit(logs, progress)
        seconds = {"fit_seconds": time.perf_counter() - start}
        progress("predicting the test logs, and measuring debiasedness")
        bits = bits_of(Predictions.of(model, logs.held_out))
        tests = list(self._tests(model, logs, bits))
        ind = {"val_perplexity": perplexity_of(bits, logs.held_out.rankings.shown, logs.held_out.count).average}
        for test in tests:
            if test["shift"] == "ind":
                ind["ind_perplexity"] = test["perplexity"]
        return [common | row for row in ({"kind": "metrics", **ind, **self._metrics(model, logs), **seconds}, *tests)]

    def _fit(self, logs: SeedLogs, progress: Progress) -> ClickModel:
        """Fit the model, with the task's seed if the learner has one."""
        learner = self.contender.make()
        if isinstance(learner, Gradient):
            return replace(learner, seed=self.seed).fit(logs.train, held_out=logs.held_out, progress=progress)
        return learner.fit(logs.train)

    def _tests(
        self, model: ClickModel, logs: SeedLogs, bits: Float[np.ndarray, "session rank"]
    ) -> Iterator[dict[str, Any]]:
        """Rows of the test policies; `bits` are the log losses of the held-out sessions."""
        for name, log in logs.test.items():
            target = logs.target_placement[name]
            weighted = weighted_perplexity(bits, logs.held_out, logging=logs.logging_placement, target=target)
            yield {
                "kind": "clicks",
                "testing": name,
                "shift": "ind" if name == self.training[0] else "ood",
                "perplexity": perplexity(model, log).average,
                "weighted_perplexity": weighted.perplexity.average,
                "effective_sessions": float(weighted.effective_sessions.mean()),
                "unseen_mass": weighted.unseen_mass,
            }

    def _metrics(self, model: ClickModel, logs: SeedLogs) -> dict[str, Any]:
        """Ranking quality of the model's relevance, and its dependence on the logging policy's scores.

        nDCG leaves out queries whose labels are all equal; the published nDCG counts queries without a relevant
        document as 0.
        """
        vocabulary = logs.judged.vocabulary
        relevance = model.relevance(model.vocabulary.pairs_of(vocabulary))
        rows = ScoredPairs.of_pairs(vocabulary, relevance, logs.logging_score, logs.label)
        names = (self.user[0], self.training[0], self.contender.name)
        quality = ranking_quality(relevance, logs.judged, rng=generator(self.seed, "ties", *names)).means()
        mean_dependence = _MEAN_DEPENDENCE(rows, rng=0)
        return {
            **{name: quality[name] for name in ("nDCG@1", "nDCG@3", "nDCG@5", "nDCG@10")},
            "cmip": _CMIP_KSG(rows, rng=generator(self.seed, "KSG", *names)).value,
            "cmip_classifier": _CMIP_CLASSIFIER(_without_rare_labels(rows), generator(self.seed, "classifier", *names)),
            "mean_dependence": mean_dependence.value,
            "mean_dependence_slope": float(mean_dependence.slope),
            "agreement_ratio": agreement_ratio(rows),
            "judged_rows": len(rows),
            "distinct_sessions": len(logs.train),
        }


def _without_rare_labels(rows: ScoredPairs) -> ScoredPairs:
    """Drop rows whose label has fewer than `_MIN_LABEL_ROWS` rows."""
    _, label, count = np.unique(rows.label, return_inverse=True, return_counts=True)
    return rows[np.flatnonzero(count[label] >= _MIN_LABEL_ROWS)]


@dataclass(frozen=True)
class ModelSelection(Experiment[ModelSelectionResult]):
    """The model-selection protocol: a grid of users, logging policies, models and seeds; by default at paper scale.

    Training lists are drawn by Plackett-Luce from raw scores; test lists are sorted by these scores. DBN users stop at
    random after a click; those of the published code never do (`GradedDBN(as_published=True)`), and its Carousel users
    have clicks of .7071.

    Parameters
    ----------
    users
        Simulated users, as names and texts (`clickshift.simulation.users.USERS`).
    training
        Logging policies, as names and texts (`clickshift.policies.POLICIES`).
    contenders
        Models under comparison. Ten rounds are the published limit; with 5,000,000 sessions a round has about ten
        thousand steps.
    world
        The simulated search engine, with the test policies.
    seeds
        Number of seeds, each with a log of its own.
    repeats
        Number of repetitions of the published cross-validation of the R2 table, at most 10,000.

    Raises
    ------
    SpecError
        If a text names no user, policy or learner, or a model predicts no clicks ("cannot-predict-clicks").

    References
    ----------
    Deffayet, R., Hager, P., Renders, J.-M. & de Rijke, M. (2023). An offline metric for the debiasedness of click
    models. SIGIR.

    Examples
    --------
    >>> protocol = ModelSelection(seeds=1)
    >>> len(protocol.tasks()), protocol.tasks()[0].name
    (56, 'dCTR, PBM users, NoisyOracle log, seed 0')
    """

    users: Named = (("PBM", "PBM"), ("DBN", "GradedDBN"), ("MixtureDBN", "MixtureDBN"), ("Carousel", "Carousel"))
    training: Named = (
        ("NoisyOracle", "PlackettLuce(NoisyOracle(sd=0.5, scale='label'), temperature=0.1)"),
        ("LambdaMART", "PlackettLuce(LambdaMART(rescale=False), temperature=0.1)"),
    )
    contenders: tuple[Contender, ...] = (*MODELS_FROM_COUNTS, *_neural_models(rounds=10))
    world: SelectionWorld = _WORLD
    seeds: int = 10
    repeats: int = 1000

    def __post_init__(self) -> None:
        for _, text in self.users:
            parse(text, USERS)
        for _, text in (*self.training, *self.world.testing):
            parse(text, POLICIES)
        if not 1 <= self.repeats <= MAX_REPEATS:
            raise SpecError(
                f"repeats must be between 1 and {MAX_REPEATS:,}: got {self.repeats:,}. The published value is 1,000.",
                code="bad-option",
                option="repeats",
                value=self.repeats,
            )

    def check_models(self) -> None:
        """Check that every model exists and predicts clicks, unless it is a baseline."""
        for contender in self.contenders:
            check_predicts_clicks(contender)

    def tasks(self) -> list[SelectionCell]:
        """Tasks of the grid. Tasks of one log follow each other, so that a process simulates it once."""
        return [
            SelectionCell(self.world, user, training, contender, seed)
            for user in self.users
            for training in self.training
            for seed in range(self.seeds)
            for contender in self.contenders
        ]

    def result(self, rows: Rows, settings: Mapping[str, Any], failures: tuple[str, ...] = ()) -> ModelSelectionResult:
        """Make the result of the rows of finished tasks."""
        return ModelSelectionResult(rows, settings, failures, self.repeats)

    def sources(self) -> dict[str, Any]:
        """Return the path of the corpus."""
        return {"corpus": self.world.corpus}


_PAPER = {field.name: field.default for field in fields(ModelSelection)}
SCALES: dict[str, dict[str, Any]] = {
    "quick": _PAPER
    | {
        "contenders": (*MODELS_FROM_COUNTS, *_neural_models(rounds=200)),
        "world": SelectionWorld(queries=200, sessions=40_000, held_out_sessions=8_000, test_sessions=8_000),
        "seeds": 3,
    },
    "paper": _PAPER,
}
"""Settings by scale: "paper" is the whole grid of the paper, "quick" enough of it to see its main result in minutes,
most of them spent compiling the neural models for every log."""


def model_selection(
    output: str | Path | None = None,
    *,
    scale: str = "quick",
    corpus: CorpusLike = BUILTIN,
    users: Sequence[str] = (),
    training: Sequence[str] = (),
    queries: int | None = None,
    sessions: int | None = None,
    seeds: int | None = None,
    models: Sequence[str] = (),
    repeats: int = 1000,
    reference: bool = True,
    workers: int | None = None,
    cluster: str | None = None,
    progress: Progress = silent,
) -> ModelSelectionResult:
    """Fit models on one policy's log, choose by metrics of that log, and measure the regret under another policy.

    What is empty or None stays as the scale has it. For a protocol of one's own, run a `ModelSelection`.

    Parameters
    ----------
    output
        Folder that keeps the rows of finished tasks: after an interruption, call again, and only the missing ones run.
        By default, a temporary folder.
    scale
        "quick" (minutes) or "paper" (5,000,000 sessions a log: days).
    corpus
        "builtin", a LETOR file or folder, a `Corpus`, or a data frame with the columns query, doc, label and features.
    users, training
        Simulated users and logging policies of training logs: names of the full protocol, e.g. "LambdaMART", or their
        texts.
    queries
        Number of queries of the corpus.
    sessions
        Number of sessions of a training log; the other logs have a fifth of it.
    seeds
        Number of logs per user and policy.
    models
        Models to choose from, instead of the paper's seven.
    repeats
        Number of repetitions of the published cross-validation.
    reference
        Whether to use the reference rows that come with the package, where they apply: the paper's grid for models from
        counts and the first seven seeds.
    workers
        Number of worker processes; by default, one per core. With 0, the tasks run in this process.
    cluster
        Address of a Dask cluster to run on instead of this machine, e.g. "tcp://host:8786".
    progress
        Called with a line and a step for each finished task, and with texts on how far running tasks are.

    Returns
    -------
    ModelSelectionResult
        Rows, regret, R2, tables and figures. A task that fails is among its `failures`.

    Raises
    ------
    SpecError
        If a name or text cannot be used ("unknown-name" for another scale), before any work.
    RunError
        "failed-tasks" if no task could be finished.

    References
    ----------
    Deffayet, R., Hager, P., Renders, J.-M. & de Rijke, M. (2023). An offline metric for the debiasedness of click
    models. SIGIR.

    Examples
    --------
    >>> import clickshift as cs
    >>> small = {"users": ["PBM"], "training": ["NoisyOracle"], "queries": 20, "sessions": 500, "seeds": 1}
    >>> result = cs.model_selection(models=["dCTR", "drCTR"], repeats=2, workers=0, **small)
    >>> result.regret[0]["strategy"]
    'PPL'
    """
    chosen = settings_at_scale(scale, SCALES)
    others = None if sessions is None else max(sessions // 5, 1)
    sizes = {"queries": queries, "sessions": sessions, "held_out_sessions": others, "test_sessions": others}
    given: dict[str, Any] = {name: size for name, size in sizes.items() if size is not None}
    chosen["users"] = named_specs(users, ModelSelection.users, USERS) or chosen["users"]
    chosen["training"] = named_specs(training, ModelSelection.training, POLICIES) or chosen["training"]
    if models:
        by_name = {contender.name: contender for contender in chosen["contenders"]}
        chosen["contenders"] = tuple(by_name.get(text) or compared_model(text) for text in dict.fromkeys(models))
    chosen |= {"seeds": seeds or chosen["seeds"], "repeats": repeats}
    with corpus_folder(output) as folder:
        chosen["world"] = replace(chosen["world"], **given).on_corpus(corpus, folder)
        protocol = ModelSelection(**chosen)
        return protocol.run(output, reference=reference, workers=workers, cluster=cluster, progress=progress)
