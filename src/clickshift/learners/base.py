"""Learner: how the parameters of a click model are found. `fit` chooses the usual learner for a model's name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from clickshift.core.spec import label, parse, resolve
from clickshift.counts.cascade import Cascade
from clickshift.counts.cells import Cells
from clickshift.data.corpus import Corpus
from clickshift.data.encoded_log import Log
from clickshift.errors import SpecError
from clickshift.models import MODELS
from clickshift.models._differentiable import Differentiable
from clickshift.models.base import ClickModel

LEARNERS = {
    "Counting": "clickshift.learners.counting:Counting",
    "MaximumLikelihood": "clickshift.learners.likelihood:MaximumLikelihood",
    "EM": "clickshift.learners.likelihood:MaximumLikelihood",
    "Gradient": "clickshift.learners.gradient:Gradient",
    "MixtureEM": "clickshift.learners.mixture:MixtureEM",
}
"""Learners by name, for texts such as "Counting('dCTR', strength=2)"."""

DEFAULT = {
    "gCTR": "Counting",
    "rCTR": "Counting",
    "dCTR": "Counting",
    "drCTR": "Counting",
    "TopPop": "Counting",
    "TopPopObs": "Counting",
    "RankTopObs": "Counting",
    "PBM": "MaximumLikelihood",
    "UBM": "MaximumLikelihood",
    "CM": "MaximumLikelihood",
    "DCM": "MaximumLikelihood",
    "CCM": "MaximumLikelihood",
    "SDBN": "MaximumLikelihood",
    "DBN": "MaximumLikelihood",
    "NCM": "Gradient",
    "CACM_minus": "Gradient",
    "ARM": "Gradient",
    "ARM_NC": "Gradient",
}
"""The learner that `fit` uses where only a model is named."""


@runtime_checkable
class Learner(Protocol):
    def fit(self, data: Any) -> ClickModel:
        """Find the parameters that explain a log, or counts of it where a learner takes them."""


def learner_for(text: str) -> Learner:
    """The learner that a text names: a model ("UBM") or a learner with its options ("EM('UBM', iterations=80)")."""
    usual = DEFAULT.get(text) or _default_learner(text)
    written = text if usual is None else f"{usual}({text!r})"
    if written.split("(")[0] in LEARNERS:
        learner: Learner = parse(written, LEARNERS)
        return learner
    raise SpecError(
        f"{text!r} is neither a model nor a learner. Models: {', '.join(DEFAULT)}. "
        f"Learners: {', '.join(LEARNERS)}, e.g. \"{next(iter(DEFAULT.values()))}('{next(iter(DEFAULT))}')\"."
    )


def _default_learner(name: str) -> str | None:
    """Of a model that is not ours: by gradient, if it can be."""
    registered = name in MODELS and issubclass(resolve(name, MODELS), Differentiable)
    return "Gradient" if registered else None


def fit_seeds(
    model: str | Learner,
    log: Log | Cells | Cascade,
    seeds: int = 10,
    *,
    held_out: Log | None = None,
    corpus: Corpus | None = None,
    progress: Callable[[str], None] = lambda said: None,
    checkpoint: str | Path | None = None,
) -> list[ClickModel]:
    """One model per seed. `Gradient.fit_seeds` explains the options; other learners give one model and take none."""
    from clickshift.learners.gradient import Gradient

    learner = learner_for(model) if isinstance(model, str) else model
    if isinstance(learner, Gradient):
        if isinstance(log, Cells | Cascade):
            raise SpecError(f"{label(learner)} needs sessions, not counts. Give it the log itself.")
        return learner.fit_seeds(log, seeds, held_out=held_out, corpus=corpus, progress=progress, checkpoint=checkpoint)
    if seeds > 1 or held_out is not None or corpus is not None:
        raise SpecError(
            f"{label(learner)} gives the same model for every seed and takes no held-out log or corpus. "
            "Models by gradient do, e.g. \"Gradient('PBM')\" or NCM."
        )
    return [learner.fit(log)]


def fit(model: str | Learner, log: Log) -> ClickModel:
    """Fit a click model on a log: by name, with the learner that suits it, or with a learner of your own."""
    return (learner_for(model) if isinstance(model, str) else model).fit(log)
