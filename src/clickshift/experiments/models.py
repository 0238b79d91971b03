"""The click models that the protocols compare, by their names in tables, and models of one's own."""

from __future__ import annotations

import importlib
import os
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from clickshift.core.files import content_key
from clickshift.core.progress import Progress, silent
from clickshift.core.spec import resolve
from clickshift.data.encoded_log import Log
from clickshift.errors import SpecError
from clickshift.learners import fit, learner_for
from clickshift.learners.base import DEFAULT, Learner, fit_seeds
from clickshift.models import MODELS, register
from clickshift.models.base import ClickModel

ORACLE = "user (oracle)"
"""Model name in the rows of the simulated user's own click model: no model predicts its clicks better."""
LOGGING = "logging policy"
"""Model name in the rows of the policy that ranked the log: it ranks documents and predicts no clicks."""
Role = Literal["click model", "candidate", "baseline", "peeking", "oracle"]
"""Role of a model in a comparison. Click models and candidates are compared with each other; baselines, models that
use the click they predict ("peeking") and the oracle are shown for reference."""


@dataclass(frozen=True)
class Contender:
    """A model under comparison: its name in the tables and the learner that fits it.

    Its specification text is part of every task's digest, so class and field names are stable.

    Parameters
    ----------
    name
        Name in the tables.
    learner
        Specification text of the learner, e.g. "Gradient('PBM')"; empty for the oracle.
    role
        Role in the comparison.
    content
        Digest of the source file of a candidate, because its name does not change when its code does.
    module
        Import path of a candidate's class, as "package.module:Class".
    """

    name: str
    learner: str
    role: Role = "click model"
    content: str = ""
    module: str = field(default="", repr=False)

    def make(self) -> Learner:
        """Create the learner; import the candidate's class first."""
        if self.module:
            import_model(self.module)
        return learner_for(self.learner)

    def fit(self, train: Log, held_out: Log, seeds: int, *, progress: Progress = silent) -> list[ClickModel]:
        """Fit one model per seed, or a single model if the learner does not depend on a seed.

        Parameters
        ----------
        train
            Sessions to learn from.
        held_out
            Sessions for early stopping; unused by learners without a seed.
        seeds
            Number of seeds.
        progress
            Called with a text after each round of training.

        Returns
        -------
        list of ClickModel
            The fitted models, in the order of their seeds.
        """
        learner = self.make()
        if _depends_on_seed(learner):
            return fit_seeds(learner, train, seeds, held_out=held_out, progress=progress)
        return [fit(learner, train)]


def import_model(path: str) -> str:
    """Import a click model of one's own and register it.

    Modules are also searched for in the current folder, as `python -m` does. Worker processes import the same path.

    Parameters
    ----------
    path
        Import path of the class, as "package.module:Class".

    Returns
    -------
    str
        Name of the class, under which it is registered.

    Raises
    ------
    SpecError
        If the class cannot be imported ("not-importable") or is not a click model ("not-a-model").
    """
    module, _, name = path.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        model = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise SpecError(
            f"the candidate {path!r} cannot be imported: {error}. Write it as package.module:Class, and run where "
            "Python finds that module.",
            code="not-importable",
            path=path,
        ) from None
    if not (isinstance(model, type) and issubclass(model, ClickModel)):
        raise SpecError(
            f"the candidate {path!r} must be a subclass of ClickModel: got {model!r}.", code="not-a-model", path=path
        )
    register(model)
    return model.__name__


CLICK_MODELS = tuple(
    Contender(name, f"Gradient('{model}')")
    for name, model in (
        ("PBM", "PBM"),
        ("UBM", "UBM"),
        ("DBN", "DBN"),
        ("NCM", "NCM"),
        ("CACM-minus", "CACM_minus"),
        ("ARM", "ARM"),
    )
)
"""The six click models of the policy-shift paper, all with embeddings and a network, fitted by gradient descent."""
BASELINES = tuple(
    Contender(name, name, "baseline") for name in ("rCTR", "dCTR", "drCTR", "TopPop", "TopPopObs", "RankTopObs")
)
"""The baselines of the policy-shift paper."""
PEEKING = Contender("ARM NC", "ARM_NC", "peeking")
"""The model of the policy-shift paper that uses the click it predicts."""
TRUTH = Contender(ORACLE, "", "oracle")
"""The simulated user's own click model."""


def by_likelihood(contender: Contender) -> Contender:
    """Fit a model of the paper by maximum likelihood if it can be; other models are returned as they are.

    Parameters
    ----------
    contender
        Model under comparison.

    Examples
    --------
    >>> [by_likelihood(model).learner for model in CLICK_MODELS[2:4]]
    ["MaximumLikelihood('DBN')", "Gradient('NCM')"]
    """
    classical = contender in CLICK_MODELS and DEFAULT.get(contender.name) == "MaximumLikelihood"
    return replace(contender, learner=f"MaximumLikelihood({contender.name!r})") if classical else contender


def compared_model(text: str) -> Contender:
    """Find a model of the policy-shift paper by name, or describe any other learner.

    Parameters
    ----------
    text
        Name in the paper's tables, e.g. "PBM", or the text of a learner, e.g. "EM('PBM')".

    Returns
    -------
    Contender
        The paper's own setting if there is one. Otherwise the role follows from what the model can do: "peeking" if it
        uses the click it predicts, "baseline" if it predicts no clicks or only counts them, else "click model".

    Raises
    ------
    SpecError
        If the text names no learner.
    """
    of_paper = (*CLICK_MODELS, *BASELINES, PEEKING)
    if listed := next((model for model in of_paper if text in {model.name, model.learner}), None):
        return listed
    learner = learner_for(text)
    name = getattr(learner, "model", None)
    model = resolve(name, MODELS) if isinstance(name, str) and name in MODELS else None
    if model is not None and model.peeks:
        return Contender(text, text, "peeking")
    baseline_names = {"gCTR", *(baseline.name for baseline in BASELINES)}
    is_baseline = (model is not None and not model.predicts_clicks) or name in baseline_names
    return Contender(text, text, "baseline" if is_baseline else "click model")


def candidate_model(text: str) -> Contender:
    """Describe a model of one's own, to be compared with the others.

    Parameters
    ----------
    text
        Import path of a class, as "package.module:Class", or the text of a learner.

    Returns
    -------
    Contender
        The model with the role "candidate".

    Raises
    ------
    SpecError
        If the class cannot be imported ("not-importable") or is not a click model ("not-a-model").
    """
    if ":" not in text:
        return Contender(f"{text} (candidate)", text, "candidate")
    name = import_model(text)
    file = importlib.import_module(text.partition(":")[0]).__file__
    return Contender(name, f"Gradient({name!r})", "candidate", content_key([Path(file)]) if file else "", text)


def _depends_on_seed(learner: Learner) -> bool:
    """Whether models of different seeds differ: maximum likelihood and counting give the same one from every seed."""
    from clickshift.learners.gradient import Gradient

    return isinstance(learner, Gradient)


def check_predicts_clicks(contender: Contender) -> None:
    """Check that a model under comparison exists, and that it predicts clicks unless it is a baseline.

    Parameters
    ----------
    contender
        The model under comparison.

    Raises
    ------
    SpecError
        If its text names no learner, or if it only ranks documents ("cannot-predict-clicks").
    """
    name = getattr(contender.make(), "model", None)
    ranks_only = isinstance(name, str) and name in MODELS and not resolve(name, MODELS).predicts_clicks
    if ranks_only and contender.role != "baseline":
        raise SpecError(
            f"{name} ranks documents but predicts no clicks, so its perplexity is undefined. Choose another model.",
            code="cannot-predict-clicks",
            model=name,
        )
