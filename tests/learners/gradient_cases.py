"""What the tests of the gradient learner share."""

from __future__ import annotations

import numpy as np

from clickshift.learners.gradient import Gradient
from clickshift.learners.gradient.preparation import Prepared, prepared
from clickshift.models.base import ClickModel
from clickshift.sessions import Sessions


def small(name: str, **options: object) -> Gradient:
    """A learner whose networks take little time."""
    return Gradient(name, **{"embedding": 8, "hidden": (8,), "state": 6, "rounds": 2, **options})  # type: ignore[arg-type]


def ready(learner: Gradient, log: Sessions) -> Prepared:
    return prepared(learner, learner._class(), log, log, None)


def arrays(model: ClickModel) -> list[np.ndarray]:
    parts = [model.relevance()] + [getattr(model, name, {}) for name in ("shared", "by_pair")]
    return [np.asarray(a) for part in parts for a in (part.values() if isinstance(part, dict) else [part])]
