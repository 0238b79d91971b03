"""MixtureEM: a population of users who behave in different ways, and how many of each there are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

import numpy as np
from jaxtyping import Float

from clickshift.core.rng import generator
from clickshift.core.spec import label
from clickshift.counts.cells import Cells
from clickshift.data.encoded_log import Log
from clickshift.data.sessions import Sessions
from clickshift.errors import SpecError
from clickshift.learners.likelihood import MaximumLikelihood
from clickshift.models.base import ClickModel, Evidence, pair_table
from clickshift.models.mixture import Mixture


@final
@dataclass(frozen=True)
class MixtureEM:
    """EM around EM: how likely each session is of each kind, then a few steps of each kind's own EM on its share.

    Components are names of models that `MaximumLikelihood` fits, e.g. ("UBM", "DBN"). Sessions are shared out at random
    to begin with, for two equal components would never part; `starts` above 1 keeps the best of several beginnings.
    """

    components: tuple[str, ...]
    iterations: int = 100
    tolerance: float = 1.0
    inner: int = 4
    starts: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if len(self.components) < 2:
            raise SpecError(f"a mixture needs at least two components: got {list(self.components)}.")
        for name in self.components:
            if name == "CM":
                raise SpecError("CM cannot be a component: it gives probability 0 to a second click. Use DCM.")
            MaximumLikelihood(name)

    def fit(self, data: Log) -> Mixture:
        runs = [self._run(data, generator(self.seed, "MixtureEM", k)) for k in range(self.starts)]
        return max(runs, key=lambda model: model.evidence.log_likelihood if model.evidence else -np.inf)

    def _run(self, data: Log, rng: np.random.Generator) -> Mixture:
        data = data.merged() if isinstance(data, Sessions) else data
        count = np.concatenate([part.count for part in data.chunks()])
        learners = [MaximumLikelihood(name) for name in self.components]
        share = rng.dirichlet(np.full(len(learners), 2.0), len(data)).T
        models: list[ClickModel | None] = [None] * len(learners)
        before, total, steps = -np.inf, -np.inf, 0
        while steps < self.iterations:
            steps, before = steps + 1, total
            for k, learner in enumerate(learners):
                counts = learner.counts(data, weight=count * share[k])
                models[k] = learner.fit_from(counts, start=models[k], max_steps=self.inner)
            weights = np.array([count @ part for part in share]) / data.total
            mixture = Mixture(data.vocabulary, tuple(m for m in models if m is not None), weights / weights.sum())
            share, total = _component_posteriors(mixture, data)
            if total - before < self.tolerance:
                break
        return replace(mixture, evidence=self._evidence(data, total, steps, converged=total - before < self.tolerance))

    def _evidence(self, data: Log, log_likelihood: float, steps: int, *, converged: bool) -> Evidence:
        impressions, clicks = (pair_table(counts, unseen=0.0) for counts in Cells.of(data).by_pair())
        return Evidence(label(self), impressions, clicks, {}, log_likelihood, steps, converged)


def _component_posteriors(mixture: Mixture, data: Log) -> tuple[Float[np.ndarray, "component row"], float]:
    """P(component | session), and the log-likelihood of the log."""
    shares, total = [], 0.0
    for part in data.chunks():
        joint = np.log(mixture.weights)[:, None] + np.stack([c.log_likelihood(part) for c in mixture.components])
        top = joint.max(axis=0)
        likelihood = top + np.log(np.exp(joint - top).sum(axis=0))
        shares.append(np.exp(joint - likelihood))
        total += float(part.count @ likelihood)
    return np.concatenate(shares, axis=1), total
