"""Gradient: any click model whose formulas can be differentiated, on top of any tower, by Adam. This package alone
imports JAX."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from clickshift.core.spec import key, label, resolve
from clickshift.data.corpus import Corpus
from clickshift.data.encoded_log import Log
from clickshift.errors import ClickshiftWarning, SpecError
from clickshift.models import MODELS
from clickshift.models._differentiable import Differentiable
from clickshift.models.base import ClickModel, Evidence

if TYPE_CHECKING:
    from clickshift.learners.gradient._batches import Progress

TOWERS = ("embedding", "free", "features")


@final
@dataclass(frozen=True)
class Gradient:
    """Adam on mini-batches, with early stopping on held-out sessions.

    `tower` says how a pair becomes numbers: "embedding" (query and document embeddings of `embedding` numbers, then
    layers of `hidden` units: the policy-shift paper), "free" (one logit per pair: the CMIP paper), "features" (the
    `hidden` layers on the features of a corpus). `state` is the size of recurrent states. `held_out` of the sessions
    decide when to stop, unless a log is given for that. `learning_rate` None is what suits the tower.
    """

    model: str
    tower: str = "embedding"
    learning_rate: float | None = None
    batch: int = 512
    rounds: int = 200
    held_out: float = 0.1
    embedding: int = 64
    hidden: tuple[int, ...] = (64, 16)
    state: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        self._class()
        if self.tower not in TOWERS:
            raise SpecError(f"a tower must be one of {', '.join(TOWERS)}: got {self.tower!r}.")
        sizes = (self.batch, self.rounds, self.embedding, self.state, *self.hidden)
        if min(sizes) < 1 or (self.learning_rate is not None and not self.learning_rate > 0):
            raise SpecError("Gradient needs batch, rounds, sizes and learning_rate above 0.")

    def _class(self) -> type[Differentiable]:
        known: dict[str, type[Differentiable]] = {
            name: model for name in MODELS if issubclass(model := resolve(name, MODELS), Differentiable)
        }
        if self.model not in known:
            raise SpecError(f"Gradient does not fit {self.model!r}. It fits: {', '.join(known)}.")
        return known[self.model]

    def fit(self, data: Log, **options: Any) -> ClickModel:
        """Find the parameters from a log; see `fit_seeds` for the options."""
        return self.fit_seeds(data, [self.seed], **options)[0]

    def fit_seeds(
        self,
        data: Log,
        seeds: int | Sequence[int] = 10,
        *,
        held_out: Log | None = None,
        corpus: Corpus | None = None,
        progress: Progress = lambda said: None,
        checkpoint: str | Path | None = None,
    ) -> list[ClickModel]:
        """One model per seed, all trained in one program; a number of seeds means that many from `seed` on.

        `held_out` is the log that decides when to stop. `corpus` has the features of tower="features". `checkpoint` is
        a file that is written now and then and, if it is there, gone on from. Ctrl-C gives the best so far.
        """
        if importlib.util.find_spec("jax") is None or importlib.util.find_spec("optax") is None:
            raise SpecError("Gradient needs JAX and optax. Install them: pip install 'clickshift[neural]'.")
        from clickshift.learners.gradient._prepare import prepare
        from clickshift.learners.gradient.step import keep_compiled
        from clickshift.learners.gradient.trainer import train

        keep_compiled()
        numbers = list(range(self.seed, self.seed + seeds)) if isinstance(seeds, int) else list(seeds)
        if not numbers:
            raise SpecError("there must be at least one seed.")
        work = prepare(self, self._class(), data, held_out, corpus, progress)
        trained = train(
            work,
            seeds=numbers,
            rate=self.learning_rate or work.program.tower.learning_rate,
            rounds=self.rounds,
            progress=progress,
            checkpoint=None if checkpoint is None else Path(checkpoint),
            key=f"{key(self)} {numbers} {work.fingerprint}",
        )
        if trained.interrupted:
            warnings.warn(
                "interrupted: these are the best parameters so far, not the final ones.",
                ClickshiftWarning,
                stacklevel=2,
            )
        models = []
        for k, seed in enumerate(numbers):
            evidence = Evidence(
                label(replace(self, seed=seed)),
                work.impressions,
                work.clicks,
                held_out_loss=float(trained.loss[k]),
                iterations=int(trained.steps[k]),
                converged=bool(trained.converged[k]),
            )
            found = trained.found[k]
            models.append(self._class().from_parameters(work.vocabulary, found["by_pair"], found["shared"], evidence))
        return models
