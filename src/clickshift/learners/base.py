"""Learner: how the parameters of a click model are found. `fit` chooses the usual learner for a model's name."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from clickshift.errors import SpecError
from clickshift.models.base import ClickModel
from clickshift.sessions import Sessions
from clickshift.spec import parse

LEARNERS = {
    "Counting": "clickshift.learners.counting:Counting",
    "EM": "clickshift.learners.em:EM",
    "MixtureEM": "clickshift.learners.mixed:MixtureEM",
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
    "PBM": "EM",
    "UBM": "EM",
    "CM": "EM",
    "DCM": "EM",
    "CCM": "EM",
    "SDBN": "EM",
    "DBN": "EM",
}
"""The learner that `fit` uses where only a model is named."""


@runtime_checkable
class Learner(Protocol):
    def fit(self, data: Sessions) -> ClickModel:
        """Find the parameters that explain the log."""


def learner_for(text: str) -> Learner:
    """The learner that a text names: a model ("UBM") or a learner with its options ("EM('UBM', iterations=80)")."""
    written = f"{DEFAULT[text]}({text!r})" if text in DEFAULT else text
    if written.split("(")[0] in LEARNERS:
        learner: Learner = parse(written, LEARNERS)
        return learner
    raise SpecError(
        f"{text!r} is neither a model nor a learner. Models: {', '.join(DEFAULT)}. "
        f"Learners: {', '.join(LEARNERS)}, e.g. \"{next(iter(DEFAULT.values()))}('{next(iter(DEFAULT))}')\"."
    )


def fit(model: str | Learner, log: Sessions) -> ClickModel:
    """Fit a click model on a log: by name, with the learner that suits it, or with a learner of your own."""
    return (learner_for(model) if isinstance(model, str) else model).fit(log)
