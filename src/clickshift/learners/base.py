"""Learner: the interface of learners, what they need of a log, and the registry of learners by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from clickshift.core.progress import Progress, silent
from clickshift.core.spec import label, parse, resolve
from clickshift.counts.cascade import Cascade
from clickshift.counts.cells import Cells
from clickshift.data.corpus import Corpus
from clickshift.data.encoded_log import Log
from clickshift.errors import SpecError
from clickshift.models import MODELS
from clickshift.models._differentiable import Differentiable
from clickshift.models.base import ClickModel

__all__ = ["DEFAULT", "LEARNERS", "Learner", "Requirement", "fit_seeds", "learner_for"]

Requirement = Literal["sessions", "cells", "cascade"]
"""What a learner needs of a log: its sessions, or the counts `Cells` or `Cascade`."""

LEARNERS = {
    "Counting": "clickshift.learners.counting:Counting",
    "MaximumLikelihood": "clickshift.learners.likelihood:MaximumLikelihood",
    "EM": "clickshift.learners.likelihood:MaximumLikelihood",
    "Gradient": "clickshift.learners.gradient:Gradient",
    "ExpectedClicks": "clickshift.learners.expected_clicks:ExpectedClicks",
    "MixtureEM": "clickshift.learners.mixture:MixtureEM",
    "Stacking": "clickshift.learners.stacking:Stacking",
}
"""Learners by name, for texts such as "Counting('dCTR', strength=2)". "EM" is the former name of MaximumLikelihood."""

DEFAULT = {
    "gCTR": "Counting",
    "rCTR": "Counting",
    "dCTR": "Counting",
    "drCTR": "Counting",
    "COEC": "ExpectedClicks",
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
"""Default learner of each model, used where only a model is named."""


@runtime_checkable
class Learner(Protocol):
    """Interface of learners: anything with a `fit` method that returns a click model.

    An attribute `requires` says what the learner needs of a log: "sessions", "cells" or "cascade"; by default,
    sessions. A learner that requires cells has an attribute `by`, the situations by which they are counted. One that
    depends on a random seed has a method `fit_seeds`.
    """

    def fit(self, data: Any) -> ClickModel:
        """Estimate the parameters of a model from a log, or from counts of it if the learner takes them."""


def learner_for(text: str) -> Learner:
    """Return the learner that a text names.

    Parameters
    ----------
    text
        A model ("UBM"), which gets its default learner, also with options of it ("UBM(iterations=80)"); or a learner
        with its options ("MaximumLikelihood('UBM', iterations=80)").

    Returns
    -------
    Learner
        The learner.

    Raises
    ------
    SpecError
        If the text names neither a model nor a learner ("unknown-name"), or if an option is wrong.

    Examples
    --------
    >>> learner_for("dCTR")
    Counting(model='dCTR', smoothing='fixed', strength=1.0)
    >>> learner_for("dCTR(strength=2)")
    Counting(model='dCTR', smoothing='fixed', strength=2)
    """
    name, has_options, options = text.partition("(")
    default = DEFAULT.get(name.strip()) or _default_learner(name.strip())
    spec = text
    if default is not None:
        spec = f"{default}({name.strip()!r}, {options}" if has_options else f"{default}({text.strip()!r})"
    if spec.split("(")[0] in LEARNERS:
        learner: Learner = parse(spec, LEARNERS)
        return learner
    raise SpecError(
        f"{text!r} is neither a model nor a learner. Models: {', '.join(DEFAULT)}. "
        f"Learners: {', '.join(LEARNERS)}, e.g. \"{next(iter(DEFAULT.values()))}('{next(iter(DEFAULT))}')\".",
        code="unknown-name",
        value=text,
        known=[*DEFAULT, *LEARNERS],
    )


def _default_learner(name: str) -> str | None:
    """Return the default learner of a registered model that is not in `DEFAULT`: Gradient if it is differentiable."""
    differentiable = name in MODELS and issubclass(resolve(name, MODELS), Differentiable)
    return "Gradient" if differentiable else None


def fit_seeds(
    model: str | Learner,
    log: Log | Cells | Cascade,
    seeds: int = 10,
    *,
    held_out: Log | None = None,
    corpus: Corpus | None = None,
    progress: Progress = silent,
    checkpoint: str | Path | None = None,
) -> list[ClickModel]:
    """Fit one model per random seed.

    Parameters
    ----------
    model
        A model or learner by name, or a learner. Only `Gradient` depends on the seed; other learners return one model
        and take no options.
    log
        The training log; counts for learners that take them.
    seeds
        Number of seeds.
    held_out
        Log that decides when training stops; None holds out a part of `log`.
    corpus
        Corpus with the features for ``tower="features"``.
    progress
        Called with a message after each round of training.
    checkpoint
        File in which training is saved from time to time, and from which it is resumed.

    Returns
    -------
    list of ClickModel
        One model per seed.

    Raises
    ------
    SpecError
        If `Gradient` is given counts ("needs-sessions"), or if another learner is given options that only `Gradient`
        has ("bad-option").

    Examples
    --------
    >>> import clickshift as cs
    >>> log = cs.simulate(cs.builtin_corpus(5), cs.Uniform(), cs.users.PBM(), 2000, rng=0)
    >>> [type(model).__name__ for model in fit_seeds("rCTR", log, seeds=1)]
    ['RCTR']
    """
    learner = learner_for(model) if isinstance(model, str) else model
    if hasattr(learner, "fit_seeds"):
        if isinstance(log, Cells | Cascade):
            raise SpecError(
                f"{label(learner)} needs sessions, not counts. Pass the log itself.",
                code="needs-sessions",
                learner=label(learner),
            )
        models: list[ClickModel] = learner.fit_seeds(
            log, seeds, held_out=held_out, corpus=corpus, progress=progress, checkpoint=checkpoint
        )
        return models
    if seeds > 1 or held_out is not None or corpus is not None:
        raise SpecError(
            f"{label(learner)} gives the same model for every seed and takes no held-out log or features. "
            "Choose a model that is fitted by gradient, e.g. \"Gradient('PBM')\" or NCM.",
            code="bad-option",
            learner=label(learner),
        )
    return [learner.fit(log)]
