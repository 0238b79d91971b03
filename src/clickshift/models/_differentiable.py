"""What the gradient learner asks of a model's class: formulas, and where to start.

The formulas are written for any library with the array API (see `formulas`): the learner traces them, the model itself
calls them with numpy. What a tower computes for each pair (`by_pair`) is all that they see of documents, so that a
model does not know which tower it has; what all sessions share are plain arrays (`shared`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from clickshift.counts.cells import By, situations
from clickshift.data.vocabulary import Vocabulary
from clickshift.models._formulas import LOGIT_LIMIT, Array, Gru, Prob, sigmoid
from clickshift.models._histories import Histories
from clickshift.models.base import ClickModel, Evidence

Arrays = Mapping[str, Any]
"""Arrays by name, of numpy or of the library that traces."""


class Differentiable(ABC):
    network: ClassVar[bool] = False
    """True where the shared parameters are a network's weights, which take smaller steps than probabilities do."""

    @classmethod
    def outputs(cls, state: int) -> dict[str, int]:
        """What a tower must give for every pair, by name, and how many numbers; `state` is the size of a hidden
        state."""
        return {"attractiveness": 1}

    @classmethod
    @abstractmethod
    def start(cls, n_ranks: int, state: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Where the shared parameters start, by name."""

    @classmethod
    @abstractmethod
    def found(cls, vocabulary: Vocabulary, by_pair: Arrays, shared: Arrays, evidence: Evidence) -> ClickModel:
        """The model with these parameters: a tower's outputs, for the pairs of the vocabulary and unseen ones in the
        last row, and what is shared."""


class ExaminationBased(Differentiable):
    """A click needs attractiveness, an output, and examination, a table over situations: learned from counts."""

    situations: ClassVar[By]
    """What examination looks at."""

    @classmethod
    @abstractmethod
    def examination_logits(cls, shared: Arrays, histories: Histories) -> Array:
        """Logits of examination in every situation; by prefix, in every one of these histories."""

    @classmethod
    def peek(cls, shared: Arrays, histories: Histories) -> Array:
        """What the click itself adds to its own logit: nothing, but in `ARM_NC`."""
        return 0.0


class ExaminationTableBased(ExaminationBased):
    """Examination is one free number per situation. The first one is held at 1: see docs/decisions/0003."""

    @override
    @classmethod
    def start(cls, n_ranks: int, state: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"examination": np.zeros(situations(cls.situations, n_ranks) - 1)}

    @override
    @classmethod
    def examination_logits(cls, shared: Arrays, histories: Histories) -> Array:
        free = shared["examination"]
        xp = free.__array_namespace__()
        return xp.concat([xp.full((1,), LOGIT_LIMIT, dtype=free.dtype), free])

    @override
    @classmethod
    def found(cls, vocabulary: Vocabulary, by_pair: Arrays, shared: Arrays, evidence: Evidence) -> ClickModel:
        attractiveness, examined = (
            sigmoid(logit.astype(np.float64)).yes
            for logit in (by_pair["attractiveness"], np.append(np.inf, shared["examination"]))
        )
        return cls(vocabulary, attractiveness, examined, evidence=evidence)  # type: ignore[call-arg, return-value]


class Recurrent(Differentiable):
    """A gated recurrent unit reads the list from the top. Its only output is "input", what a pair adds to the gates.

    Lists that begin alike, with the same clicks, share their states: they are learned from as a tree.
    """

    network: ClassVar[bool] = True

    @override
    @classmethod
    def outputs(cls, state: int) -> dict[str, int]:
        return {"input": 3 * state}

    @classmethod
    @abstractmethod
    def unit(cls, shared: Arrays) -> tuple[Gru, Array]:
        """The unit, and what a click on the result above adds to its gates."""

    @classmethod
    @abstractmethod
    def readout(cls, shared: Arrays, state: Array) -> Prob:
        """The click probability in a state (`... state`)."""


class HistoryBased(Differentiable):
    """Any model whose click probabilities can be written down for a whole list."""

    @classmethod
    @abstractmethod
    def click_given_history(cls, by_pair: Arrays, shared: Arrays, click: Array) -> Prob:
        """P(C_r = 1 | C_1..C_{r-1}), shape `session rank`. Outputs of one number have that shape, wider ones one
        dimension more. Only clicks above a result may be used for it."""


def uniform_weights(rng: np.random.Generator, *shape: int, inputs: int) -> np.ndarray:
    """Where the weights of a layer with that many inputs start: uniform within 1 / sqrt(inputs)."""
    start: np.ndarray = rng.uniform(-1, 1, shape) / np.sqrt(inputs)
    return start
