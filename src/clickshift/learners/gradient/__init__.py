"""Gradient: the learner of every click model with differentiable formulas, on top of any tower, by Adam.

The modules of this package import JAX; importing the package itself does not.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np

from clickshift.core.progress import Progress, silent
from clickshift.core.spec import key, label, resolve
from clickshift.data.corpus import Corpus
from clickshift.data.encoded_log import Log
from clickshift.errors import SpecError
from clickshift.models import MODELS
from clickshift.models._differentiable import Differentiable
from clickshift.models.base import ClickModel, Evidence

__all__ = ["TOWERS", "Gradient"]

TOWERS = ("embedding", "free", "features")
"""Towers by name: how a (query, document) pair becomes the numbers that a click model needs."""


@final
@dataclass(frozen=True)
class Gradient:
    """Learner by stochastic gradient: Adam on mini-batches, with early stopping on held-out sessions.

    It fits every model in `MODELS` with differentiable formulas: PBM, UBM, DBN, NCM, CACM_minus, ARM, ARM_NC, and
    registered ones. It needs JAX and optax (``pip install 'clickshift[neural]'``).

    Parameters
    ----------
    model
        Name of the model.
    tower
        How a pair becomes numbers: "embedding" (query and document embeddings, then hidden layers: the policy-shift
        paper), "free" (one logit per pair: the CMIP paper), or "features" (hidden layers on the features of a corpus).
    learning_rate
        Learning rate of Adam; None for the default of the tower.
    batch
        Sessions in a batch.
    rounds
        Number of rounds, at most; training stops earlier if the held-out loss does not improve. A round is one epoch,
        or several on small logs.
    held_out
        Share of the sessions that is held out to decide when to stop, unless a held-out log is given.
    embedding
        Size of query and document embeddings.
    hidden
        Units of the hidden layers.
    state
        Size of recurrent states.
    seed
        Random seed of the initial parameters and of the order of batches.

    Raises
    ------
    SpecError
        If the model cannot be fitted by gradient ("unknown-name"), or if an option is wrong ("bad-option").

    References
    ----------
    Kingma, D. P. and Ba, J. (2015). Adam: a method for stochastic optimization. ICLR.
    Deffayet, R., Renders, J.-M. and de Rijke, M. (2022). Evaluating the robustness of click models to policy
    distributional shift. ACM TOIS.
    Deffayet, R. et al. (2023). An offline metric for the debiasedness of click models. SIGIR.

    Examples
    --------
    >>> Gradient("NCM", state=32).state
    32
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
            raise SpecError(
                f"tower must be one of {', '.join(TOWERS)}: got {self.tower!r}.",
                code="bad-option",
                option="tower",
                value=self.tower,
                known=list(TOWERS),
            )
        sizes = (self.batch, self.rounds, self.embedding, self.state, *self.hidden)
        if min(sizes) < 1 or (self.learning_rate is not None and not self.learning_rate > 0):
            raise SpecError(
                "Gradient needs batch, rounds, embedding, hidden, state and learning_rate above 0.",
                code="bad-option",
                batch=self.batch,
                learning_rate=self.learning_rate,
            )

    def _class(self) -> type[Differentiable]:
        """Return the class of the model."""
        models: dict[str, type[Differentiable]] = {
            name: model for name in MODELS if issubclass(model := resolve(name, MODELS), Differentiable)
        }
        if self.model not in models:
            raise SpecError(
                f"Gradient does not fit {self.model!r}. It fits: {', '.join(models)}.",
                code="unknown-name",
                value=self.model,
                known=list(models),
            )
        return models[self.model]

    def fit(self, data: Log, **options: Any) -> ClickModel:
        """Estimate the parameters from a log.

        Parameters
        ----------
        data
            The training log.
        **options
            Keyword arguments of `fit_seeds`.

        Returns
        -------
        ClickModel
            The model of the learner's seed.
        """
        return self.fit_seeds(data, [self.seed], **options)[0]

    def fit_seeds(
        self,
        data: Log,
        seeds: int | Sequence[int] = 10,
        *,
        held_out: Log | None = None,
        corpus: Corpus | None = None,
        progress: Progress = silent,
        checkpoint: str | Path | None = None,
    ) -> list[ClickModel]:
        """Estimate the parameters once per seed, all seeds in one compiled program.

        Ctrl-C ends training with the best parameters so far, and a warning ("interrupted").

        Parameters
        ----------
        data
            The training log.
        seeds
            Seeds, or their number: that many from the learner's seed on.
        held_out
            Log that decides when to stop; None holds out a share of `data`.
        corpus
            Corpus with the features for ``tower="features"``.
        progress
            Called with a message after each round, and while batches are prepared.
        checkpoint
            File in which training is saved from time to time; if it exists, training is resumed from it.

        Returns
        -------
        list of ClickModel
            One model per seed.

        Raises
        ------
        SpecError
            If JAX or optax is not installed ("missing-package"), if there is no seed ("bad-option"), or if the tower
            needs features and there are none ("no-features").
        DataError
            If there is nothing to learn from ("no-pairs", "no-sessions"), or if training diverges
            ("training-diverged").
        """
        if importlib.util.find_spec("jax") is None or importlib.util.find_spec("optax") is None:
            raise SpecError(
                "Gradient needs JAX and optax. Install them: pip install 'clickshift[neural]'.",
                code="missing-package",
                package="jax",
            )
        from clickshift.learners.gradient._prepare import prepare
        from clickshift.learners.gradient.trainer import ClickModelTask, early_stopping
        from clickshift.learners.training import keep_compiled, train

        keep_compiled()
        numbers = list(range(self.seed, self.seed + seeds)) if isinstance(seeds, int) else list(seeds)
        if not numbers:
            raise SpecError("there must be at least one seed: got none.", code="bad-option", option="seeds")
        training = prepare(self, self._class(), data, held_out, corpus, progress)
        task = ClickModelTask(training, numbers, [label(replace(self, seed=seed)) for seed in numbers])
        trained = train(
            task,
            early_stopping(self.rounds),
            rate=np.full(len(numbers), self.learning_rate or training.program.tower.learning_rate),
            progress=progress,
            checkpoint=None if checkpoint is None else Path(checkpoint),
            key=f"{key(self)} {numbers} {training.fingerprint}",
        )
        models = []
        for k, name in enumerate(task.names):
            evidence = Evidence(
                name,
                training.impressions,
                training.clicks,
                held_out_loss=float(trained.progress.best[k]),
                iterations=int(trained.progress.rounds[k]) * task.batches.steps,
                converged=bool(trained.progress.converged[k]),
            )
            parameters = trained.parameters[k]
            models.append(
                self._class().from_parameters(
                    training.vocabulary, parameters["by_pair"], parameters["shared"], evidence
                )
            )
        return models
