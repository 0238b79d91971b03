"""ClickRanker: how a ranker is learned from clicks. A specification, and runs of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from jaxtyping import Float

from clickshift.core.parallel import for_each
from clickshift.counts.cells import Cells
from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Sessions
from clickshift.errors import SpecError
from clickshift.ranking.labels import Trust, check_known, count_by_rank
from clickshift.ranking.prepare import PreparedRun, There, prepare_run, with_held_out
from clickshift.ranking.ranker import Ranker, warn_of_constants
from clickshift.ranking.trainer import Progress, train

LOSSES = ("ips", "pbm", "policy-aware", "affine", "doubly-robust", "listwise")
BIASES = ("given", "naive", "estimated")
TOWERS = ("network", "one-hot")
OPTIMISERS = ("adam", "adagrad", "sgd")
SIDE_BY_SIDE = 32
"""How many one-hot runs train in one program: enough to keep a core busy, few enough to end at the same time."""
Regression = Callable[[Corpus], np.ndarray]
"""From a corpus to the relevance of its pairs, 0 to 1; e.g. `ranker.relevance`."""


@final
@dataclass(frozen=True)
class ClickRanker:
    """A pointwise or listwise ranker on features, trained on click counts with early stopping.

    `loss`: "pbm" predicts clicks, sigmoid(score) x examination; the others predict relevance from corrected labels
    (`labels`): "ips" divides clicks by examination, "policy-aware" by a document's mean examination over all sessions
    of its query, "affine" takes out trust bias, "doubly-robust" corrects a regression where there are clicks to do so,
    and "listwise" is a softmax over each query's documents, of the labels of "ips" or "affine". Corrected losses have
    no lower bound where a label is above 1.

    `bias`: examination is "given" to `fit`, or "naive": everyone looks at everything; or it is "estimated" along with
    relevance, which "pbm" alone can. `tower`: a "network" of `hidden` ELU layers, each followed by `dropout`, on
    log-scaled features; or "one-hot", one logit for each value of the first feature, which numbers it from 0.

    Batches are of up to `batch` queries. A round is a pass over all of them; after `patience` rounds without progress
    on held-out clicks training stops, and the best round is kept. `clip` is the smallest propensity to divide by.
    `by_traffic`: a query counts by its sessions, or, as published, each query once. `learning_rate` None is what suits:
    for networks .001, or .0005 for "pbm" with given bias; for one-hot .1.
    """

    loss: str = "ips"
    bias: str = "given"
    tower: str = "network"
    hidden: tuple[int, ...] = (512, 256, 128)
    dropout: tuple[float, ...] = (0.0, 0.1, 0.1)
    optimiser: str = "adam"
    learning_rate: float | None = None
    batch: int = 50
    rounds: int = 200
    patience: int = 5
    clip: float | None = None
    by_traffic: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        for name, known in (("loss", LOSSES), ("bias", BIASES), ("tower", TOWERS), ("optimiser", OPTIMISERS)):
            if getattr(self, name) not in known:
                raise SpecError(f"{name} must be one of {', '.join(known)}: got {getattr(self, name)!r}.")
        if self.bias == "estimated" and self.loss != "pbm":
            raise SpecError(f"bias='estimated' needs loss='pbm': {self.loss!r} cannot learn examination.")
        if len(self.dropout) != len(self.hidden) or not all(0 <= share < 1 for share in self.dropout):
            raise SpecError(f"there must be a dropout from 0 to below 1 for each of {len(self.hidden)} hidden layers.")
        if min(self.batch, self.rounds, self.patience, *self.hidden, 1) < 1:
            raise SpecError("ClickRanker needs batch, rounds, patience and hidden sizes of 1 or more.")
        if self.learning_rate is not None and not self.learning_rate > 0:
            raise SpecError(f"a learning rate must be above 0: got {self.learning_rate}.")
        if self.clip is not None and (self.loss == "pbm" or not 0 < self.clip <= 1):
            raise SpecError("clip must be a propensity above 0, for a loss that divides by it: 'pbm' does not.")

    @property
    def rate(self) -> float:
        """The learning rate, as chosen or as it suits."""
        if self.learning_rate is not None:
            return self.learning_rate
        if self.tower == "one-hot":
            return 0.1
        return 5e-4 if self.loss == "pbm" and self.bias == "given" else 1e-3

    def fit(
        self,
        corpus: Corpus,
        clicks: Cells | Sessions,
        *,
        examination: Float[np.ndarray, " rank"] | None = None,
        trust: Trust | None = None,
        regression: Regression | None = None,
        held_out: tuple[Corpus, Cells | Sessions] | None = None,
        progress: Progress = lambda said: None,
    ) -> Ranker:
        """Learn from a log, or its counts by rank.

        `examination` or `trust` is what is known of users, for bias="given". `regression` is the relevance that
        loss="doubly-robust" corrects; by default that of a "policy-aware" ranker on the same clicks. `held_out` are
        clicks on other queries, perhaps of another corpus, that decide when to stop; by default those on a tenth of the
        queries, which are then not learned from.
        """
        judge = None if held_out is None else (held_out[0], count_by_rank(*held_out))
        if self.tower == "network":
            warn_of_constants(corpus)
        run = Run(self, corpus, count_by_rank(corpus, clicks), judge, examination, trust, regression)
        return train([_ready(run, {}, progress)], progress)[0]


@final
@dataclass(frozen=True, eq=False)
class Run:
    """A learner on the counts of a log, in the vocabulary of its corpus: the arguments of `ClickRanker.fit`."""

    learner: ClickRanker
    corpus: Corpus
    clicks: Cells
    held_out: tuple[Corpus, Cells] | None = None
    examination: Float[np.ndarray, " rank"] | None = None
    trust: Trust | None = None
    regression: Regression | None = None


def fit_runs(runs: Sequence[Run], *, progress: Progress = lambda said: None) -> list[Ranker]:
    """One ranker per run, the same as `fit` gives up to rounding; `progress` hears 1 for every finished run.

    Networks train in one thread each. One-hot runs of equal settings and sizes train side by side in one program.
    """
    found: dict[int, Ranker] = {}
    there: There = {}

    def together(numbers: Sequence[int], works: Sequence[PreparedRun]) -> None:
        found.update(zip(numbers, train(works, lambda said: None), strict=True))
        progress(len(numbers))

    networks = [k for k, run in enumerate(runs) if run.learner.tower == "network"]
    for_each(lambda k: together([networks[k]], [_ready(runs[networks[k]], there)]), len(networks))
    groups: dict[Any, list[tuple[int, PreparedRun]]] = {}
    for k, run in enumerate(runs):
        if run.learner.tower == "one-hot":
            work = _ready(run, there)
            groups.setdefault(work.group, []).append((k, work))
    heaps = [group[k : k + SIDE_BY_SIDE] for group in groups.values() for k in range(0, len(group), SIDE_BY_SIDE)]
    for_each(lambda k: together(*zip(*heaps[k], strict=True)), len(heaps))
    return [found[k] for k in range(len(runs))]


def _ready(run: Run, there: There, progress: Progress = lambda said: None) -> PreparedRun:
    check_known(run.learner.loss, run.learner.bias, run.examination, run.trust)
    run = with_held_out(run)
    if run.learner.loss == "doubly-robust" and run.regression is None:
        progress("fitting the regression")
        first = replace(run, learner=replace(run.learner, loss="policy-aware"))
        run = replace(run, regression=train([prepare_run(first, there)], lambda said: None)[0].relevance)
    return prepare_run(run, there)
