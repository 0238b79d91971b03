"""The model-selection protocol: can one tell, before a new policy ranks, which click model will predict its clicks?

The grid of the CMIP paper (Deffayet et al. 2023): models learn from a log of one policy, are described by what can be
known then (held-out perplexity, nDCG, dependence on the logging policy), and are judged on lists of other policies.
`regret` says what choosing by such metrics costs, `predictors` which of them tell ood perplexity.

A cell is one model on one seed's log: every seed has a log of its own, so that seeds of models by counting and by EM
differ too.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from clickshift.core.rng import generator
from clickshift.core.spec import parse
from clickshift.debiasedness.agreement import agreement_ratio
from clickshift.debiasedness.classifier_cmi import Classifier
from clickshift.debiasedness.metrics import CMIP, MeanDependence
from clickshift.debiasedness.scored_pairs import ScoredPairs
from clickshift.experiments.models import Contender, check_predicts_clicks
from clickshift.learners.gradient import Gradient
from clickshift.metrics.click_prediction import bits_of, perplexity, perplexity_of
from clickshift.metrics.predictions import Predictions
from clickshift.metrics.ranking import ranking_quality
from clickshift.metrics.weighted_perplexity import weighted_perplexity
from clickshift.models.base import ClickModel
from clickshift.policies import POLICIES
from clickshift.simulation.search_engine import Named
from clickshift.simulation.selection_search_engine import SeedLogs, SelectionWorld
from clickshift.simulation.users import USERS

VERSION = 2
"""Of the rows: counted up when a change of the code changes numbers, so that old rows are not mixed with new ones."""

_WORLD = SelectionWorld()
_KSG = CMIP(permutations=0, subsamples=0)
_MEAN = MeanDependence(permutations=0, subsamples=0)
_CLASSIFIER = Classifier()
_RARE = 20
"""A label of fewer rows may be missing in one of the classifier's halves."""

MODELS_FROM_COUNTS = (
    Contender("dCTR", "Counting('dCTR', smoothing='fitted')"),
    Contender("drCTR", "Counting('drCTR', smoothing='fitted')"),
    Contender("PBM", "EM('PBM')"),
    Contender("UBM", "EM('UBM')"),
    Contender("DBN", "EM('DBN')"),
)
"""A free number per document, by its most likely value given the counts and a prior that the log itself tells."""


def _neural_models(rounds: int) -> tuple[Contender, ...]:
    """A free logit (CACM-minus) or vector (NCM) per document, and states of 32 as published."""
    return tuple(
        Contender(name, f"Gradient('{model}', tower='free', state=32, rounds={rounds})")
        for name, model in (("CACM-minus", "CACM_minus"), ("NCM", "NCM"))
    )


@dataclass(frozen=True)
class SelectionCell:
    """One model on one seed's log."""

    world: SelectionWorld
    user: tuple[str, str]
    training: tuple[str, str]
    contender: Contender
    seed: int
    version: int = VERSION

    @property
    def log(self) -> str:
        return f"{self.user[0]} users, {self.training[0]} log, seed {self.seed}"

    @property
    def name(self) -> str:
        return f"{self.contender.name}, {self.log}"

    def rows(self) -> list[dict[str, Any]]:
        """One row with what is known before deployment (kind "metrics"), and one per test policy (kind "clicks").

        There are two ind perplexities, as published: on held-out sessions (`val_perplexity`, by which strategies
        choose), and on lists that the same policy ranks without chance (`ind_perplexity`, of the R2 table).
        """
        logs = self.world.logs(self.user[1], self.training[1], self.seed)
        about = {"user": self.user[0], "training": self.training[0], "seed": self.seed}
        about |= {"model": self.contender.name, "role": self.contender.role}
        start = time.perf_counter()
        model = self._fitted(logs)
        seconds = {"fit_seconds": time.perf_counter() - start}
        bits = bits_of(Predictions.of(model, logs.held_out))
        tests = list(self._tests(model, logs, bits))
        ind = {"val_perplexity": perplexity_of(bits, logs.held_out.rankings.shown, logs.held_out.count).average}
        for test in tests:
            if test["shift"] == "ind":
                ind["ind_perplexity"] = test["perplexity"]
        return [about | row for row in ({"kind": "metrics", **ind, **self._metrics(model, logs), **seconds}, *tests)]

    def _fitted(self, logs: SeedLogs) -> ClickModel:
        learner = self.contender.make()
        if isinstance(learner, Gradient):
            return replace(learner, seed=self.seed).fit(logs.train, held_out=logs.held_out)
        return learner.fit(logs.train)

    def _tests(
        self, model: ClickModel, logs: SeedLogs, bits: Float[np.ndarray, "session rank"]
    ) -> Iterator[dict[str, Any]]:
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
        """What labels and the logging policy's scores say of the model's relevance.

        nDCG leaves out queries whose labels are all equal; the published one counts those without a relevant document
        as 0.
        """
        words = logs.judged.vocabulary
        relevance = model.relevance(model.vocabulary.pairs_of(words))
        rows = ScoredPairs.of_pairs(words, relevance, logs.logging_score, logs.label)
        names = (self.user[0], self.training[0], self.contender.name)
        quality = ranking_quality(relevance, logs.judged, rng=generator(self.seed, "ties", *names)).means()
        mean = _MEAN(rows, rng=0)
        return {
            **{name: quality[name] for name in ("nDCG@1", "nDCG@3", "nDCG@5", "nDCG@10")},
            "cmip": _KSG(rows, rng=generator(self.seed, "KSG", *names)).value,
            "cmip_classifier": _CLASSIFIER(_common(rows), generator(self.seed, "classifier", *names)),
            "mean_dependence": mean.value,
            "mean_dependence_slope": float(mean.slope),
            "agreement_ratio": agreement_ratio(rows),
            "judged_rows": len(rows),
            "distinct_sessions": len(logs.train),
        }


def _common(rows: ScoredPairs) -> ScoredPairs:
    """Without rows of rare labels."""
    _, label, count = np.unique(rows.label, return_inverse=True, return_counts=True)
    return rows[np.flatnonzero(count[label] >= _RARE)]


def rows_of(cell: SelectionCell) -> list[dict[str, Any]]:
    """`SelectionCell.rows` as a function, for processes."""
    return cell.rows()


@dataclass(frozen=True)
class ModelSelection:
    """Users x training policies x models x seeds; test policies belong to the world. Texts as on the command line.

    Training lists are drawn by Plackett-Luce on raw scores, test lists are sorted by them. DBN users stop at random
    after a click; the published code's never do (`GradedDBN(as_published=True)`), and it gives Carousel users clicks of
    .7071. By default at paper scale.
    """

    users: Named = (("PBM", "PBM"), ("DBN", "GradedDBN"), ("MixtureDBN", "MixtureDBN"), ("Carousel", "Carousel"))
    training: Named = (
        ("NoisyOracle", "PlackettLuce(NoisyOracle(sd=0.5, scale='label'), temperature=0.1)"),
        ("LambdaMART", "PlackettLuce(LambdaMART(rescale=False), temperature=0.1)"),
    )
    contenders: tuple[Contender, ...] = (*MODELS_FROM_COUNTS, *_neural_models(rounds=10))
    """Ten rounds are the published limit; with 5,000,000 sessions a round has about ten thousand steps."""
    world: SelectionWorld = _WORLD
    seeds: int = 10

    def __post_init__(self) -> None:
        for _, text in self.users:
            parse(text, USERS)
        for _, text in (*self.training, *self.world.testing):
            parse(text, POLICIES)
        for contender in self.contenders:
            check_predicts_clicks(contender)

    def cells(self) -> list[SelectionCell]:
        """Cells of one log stand together, so that a process makes it once."""
        return [
            SelectionCell(self.world, user, training, contender, seed)
            for user in self.users
            for training in self.training
            for seed in range(self.seeds)
            for contender in self.contenders
        ]


def quick_model_selection() -> ModelSelection:
    """Minutes, most of them to compile the neural models for every log: 200 queries, 200 sessions each, 3 seeds."""
    world = SelectionWorld(queries=200, sessions=40_000, held_out_sessions=8_000, test_sessions=8_000)
    return ModelSelection(contenders=(*MODELS_FROM_COUNTS, *_neural_models(rounds=200)), world=world, seeds=3)
