"""Contenders: the models that protocols compare, by the names that tables give them, and one's own."""

from __future__ import annotations

import importlib
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from clickshift.core.files import content_key
from clickshift.core.spec import resolve
from clickshift.data.sessions import Sessions
from clickshift.errors import SpecError
from clickshift.learners import fit_seeds, learner_for
from clickshift.learners.base import Learner
from clickshift.models import MODELS, register
from clickshift.models.base import ClickModel

ORACLE = "user (oracle)"
"""The row of the user's own model: nothing predicts its clicks better."""
LOGGING = "logging policy"
"""The row of the ranker that made the log: it ranks, and predicts nothing."""
Role = Literal["click model", "candidate", "baseline", "peeking", "oracle"]
"""Click models and candidates are compared; baselines, a model that peeks and the oracle are shown beside them."""


@dataclass(frozen=True)
class Contender:
    """A model under comparison: its name in the tables and the learner that finds it."""

    name: str
    learner: str
    role: Role = "click model"
    content: str = ""
    """Of a candidate from a file: a digest of that file, since its name does not tell when it changed."""
    module: str = field(default="", repr=False)
    """Where a candidate's class is, as "package.module:Class"."""

    def make(self) -> Learner:
        if self.module:
            import_model(self.module)
        return learner_for(self.learner)

    def fit(self, train: Sessions, held_out: Sessions, seeds: int) -> list[ClickModel]:
        """A model per seed; one where seeds make no difference, which needs nothing held out."""
        learner = self.make()
        if _depends_on_seed(learner):
            return fit_seeds(learner, train, seeds, held_out=held_out)
        return [learner.fit(train)]


def import_model(path: str) -> str:
    """Import one's own model, given as "package.module:Class", and make it known. Returns its name.

    Modules are also looked for in the current folder, as `python -m` does; other processes get the same path.
    """
    module, _, name = path.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        model = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise SpecError(
            f"the candidate {path!r} cannot be imported: {error}. Write it as package.module:Class, and run where "
            "Python finds that module."
        ) from None
    if not (isinstance(model, type) and issubclass(model, ClickModel)):
        raise SpecError(f"the candidate {path!r} must be a subclass of ClickModel: got {model!r}.")
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
"""The paper's six, all with embeddings and a network, learned by gradient."""
BASELINES = tuple(
    Contender(name, name, "baseline") for name in ("rCTR", "dCTR", "drCTR", "TopPop", "TopPopObs", "RankTopObs")
)
PEEKING = Contender("ARM NC", "ARM_NC", "peeking")
TRUTH = Contender(ORACLE, "", "oracle")


def compared_model(text: str) -> Contender:
    """The paper's model of that name, as in its comparison, or any other learner; what it is compared with follows
    from what it can do."""
    if found := next((c for c in (*CLICK_MODELS, *BASELINES, PEEKING) if text in {c.name, c.learner}), None):
        return found
    learner = learner_for(text)
    name = getattr(learner, "model", None)
    model = resolve(name, MODELS) if isinstance(name, str) and name in MODELS else None
    if model is not None and model.peeks:
        return Contender(text, text, "peeking")
    naive = (model is not None and not model.predicts_clicks) or name in {"gCTR", *(c.name for c in BASELINES)}
    return Contender(text, text, "baseline" if naive else "click model")


def candidate_model(text: str) -> Contender:
    """One's own model, from a class that Python can import or a learner's text."""
    if ":" not in text:
        return Contender(f"{text} (candidate)", text, "candidate")
    name = import_model(text)
    file = importlib.import_module(text.partition(":")[0]).__file__
    return Contender(name, f"Gradient({name!r})", "candidate", content_key([Path(file)]) if file else "", text)


def _depends_on_seed(learner: Learner) -> bool:
    """Whether models of different seeds differ. EM and counting find the same one from every seed."""
    from clickshift.learners.gradient import Gradient

    return isinstance(learner, Gradient)


def check_predicts_clicks(contender: Contender) -> None:
    """Raise for a text that names nothing, and for a model that only ranks where clicks are compared."""
    name = getattr(contender.make(), "model", None)
    ranks_only = isinstance(name, str) and name in MODELS and not resolve(name, MODELS).predicts_clicks
    if ranks_only and contender.role != "baseline":
        raise SpecError(f"{name} ranks but predicts no clicks: it cannot be compared by perplexity. Choose another.")
