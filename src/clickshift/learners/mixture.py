"""MixtureEM: expectation-maximisation for mixtures of click models."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

import numpy as np
from jaxtyping import Float

from clickshift.core.rng import generator
from clickshift.core.spec import check_options, label
from clickshift.counts.cells import Cells
from clickshift.data.encoded_log import Log
from clickshift.data.sessions import Sessions
from clickshift.errors import SpecError
from clickshift.learners.likelihood import MaximumLikelihood
from clickshift.models.base import ClickModel, Evidence, pair_table
from clickshift.models.mixture import Mixture

__all__ = ["MixtureEM"]


@final
@dataclass(frozen=True)
class MixtureEM:
    """Expectation-maximisation for a mixture of click models: each session follows one of several models.

    The E-step computes P(component | session); the M-step takes a few Newton steps of `MaximumLikelihood` for each
    component, on the sessions weighted by that probability. The initial weights are random, since two equal components
    would stay equal.

    Parameters
    ----------
    components
        Names of models that `MaximumLikelihood` fits, e.g. ("UBM", "DBN").
    iterations
        Number of EM iterations, at most.
    tolerance
        Gain of the log-likelihood, in nats, below which the iterations stop.
    inner
        Newton steps of each component in one M-step, at most.
    starts
        Number of random starts; the one with the largest likelihood is kept.
    seed
        Random seed of the starts.

    Raises
    ------
    SpecError
        If there are fewer than two components ("too-few-components"), or if one of them cannot be used
        ("bad-component", "unknown-name").

    Examples
    --------
    >>> import clickshift as cs
    >>> log = cs.simulate(cs.builtin_corpus(5), cs.Uniform(), cs.users.PBM(), 2000, rng=0)
    >>> model = cs.fit(MixtureEM(("PBM", "DBN"), iterations=2, starts=1), log)
    >>> [type(component).__name__ for component in model.components]
    ['PBM', 'DBN']
    """

    components: tuple[str, ...] | list[str]
    iterations: int = 100
    tolerance: float = 1.0
    inner: int = 4
    starts: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        check_options(self)
        if min(self.iterations, self.inner, self.starts) < 1:
            raise SpecError(
                f"a mixture needs iterations, inner and starts of 1 or more: got {self.iterations}, {self.inner} and "
                f"{self.starts}.",
                code="bad-option",
                starts=self.starts,
            )
        if len(self.components) < 2:
            raise SpecError(
                f"a mixture needs at least two components: got {list(self.components)}.",
                code="too-few-components",
                value=list(self.components),
            )
        for name in self.components:
            if name == "CM":
                raise SpecError(
                    "CM cannot be a component: it gives probability 0 to a second click. Use DCM.",
                    code="bad-component",
                    value=name,
                )
            MaximumLikelihood(name)

    def fit(self, data: Log) -> Mixture:
        """Estimate the components and their weights from a log.

        Parameters
        ----------
        data
            The training log.

        Returns
        -------
        Mixture
            The mixture with the largest likelihood over all starts.
        """
        runs = [self._run(data, generator(self.seed, "MixtureEM", k)) for k in range(self.starts)]
        return max(runs, key=lambda model: model.evidence.log_likelihood if model.evidence else -np.inf)

    def _run(self, data: Log, rng: np.random.Generator) -> Mixture:
        """Run EM from one random start."""
        data = data.merged() if isinstance(data, Sessions) else data
        count = np.concatenate([part.count for part in data.chunks()])
        learners = [MaximumLikelihood(name) for name in self.components]
        posterior = rng.dirichlet(np.full(len(learners), 2.0), len(data)).T
        models: list[ClickModel | None] = [None] * len(learners)
        before, total, steps = -np.inf, -np.inf, 0
        while steps < self.iterations:
            steps, before = steps + 1, total
            for k, learner in enumerate(learners):
                counts = learner.counts(data, weight=count * posterior[k])
                models[k] = learner.fit_from(counts, start=models[k], max_steps=self.inner)
            weights = np.array([count @ part for part in posterior]) / data.total
            mixture = Mixture(data.vocabulary, tuple(m for m in models if m is not None), weights / weights.sum())
            posterior, total = _component_posteriors(mixture, data)
            if total - before < self.tolerance:
                break
        return replace(mixture, evidence=self._evidence(data, total, steps, converged=total - before < self.tolerance))

    def _evidence(self, data: Log, log_likelihood: float, steps: int, *, converged: bool) -> Evidence:
        """Return the counts of the log, and how EM ended."""
        impressions, clicks = (pair_table(counts, unseen=0.0) for counts in Cells.of(data).by_pair())
        return Evidence(label(self), impressions, clicks, {}, log_likelihood, steps, converged)


def _component_posteriors(mixture: Mixture, data: Log) -> tuple[Float[np.ndarray, "component row"], float]:
    """Return P(component | session), and the log-likelihood of the log."""
    posteriors, total = [], 0.0
    for part in data.chunks():
        joint = np.log(mixture.weights)[:, None] + np.stack([c.log_likelihood(part) for c in mixture.components])
        largest = joint.max(axis=0)
        likelihood = largest + np.log(np.exp(joint - largest).sum(axis=0))
        posteriors.append(np.exp(joint - likelihood))
        total += float(part.count @ likelihood)
    return np.concatenate(posteriors, axis=1), total
