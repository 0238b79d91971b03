"""Interfaces of models that the gradient learner fits: their formulas, and the initial values of their parameters.

The formulas are written for any library with the array API (see `_formulas`): the learner traces them with JAX, the
model itself calls them with numpy. They see documents only through the outputs that a tower computes for each pair
(`by_pair`), so that a model does not depend on the kind of tower; the parameters that all sessions share are plain
arrays (`shared`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from clickshift.counts.cells import By, count_situations
from clickshift.data.vocabulary import Vocabulary
from clickshift.models._formulas import LOGIT_LIMIT, Array, Gru, Prob, sigmoid
from clickshift.models._histories import Histories
from clickshift.models.base import ClickModel, Evidence

Arrays = Mapping[str, Any]
"""Arrays by name, of numpy or of the library that traces."""
_MIN_START = 0.02
"""Smallest initial examination and its complement: from nearer to 0 or 1, it would hardly move."""


class Differentiable(ABC):
    """Interface of every model that the gradient learner fits."""

    network: ClassVar[bool] = False
    """True if the shared parameters are a network's weights, which take smaller steps than probabilities do."""

    @classmethod
    def outputs(cls, state: int) -> dict[str, int]:
        """Return the outputs that a tower must compute for every pair, as name and width.

        Parameters
        ----------
        state
            Size of a hidden state.
        """
        return {"attractiveness": 1}

    @classmethod
    def output_at_hole(cls, name: str) -> float:
        """Return the value of an output at a hole: a logit of attractiveness near 0, and 0 for any other input.

        Parameters
        ----------
        name
            Name of the output.
        """
        return -LOGIT_LIMIT if name == "attractiveness" else 0.0

    @classmethod
    @abstractmethod
    def start(cls, n_ranks: int, state: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Return the initial values of the shared parameters, by name.

        Parameters
        ----------
        n_ranks
            Length of the lists.
        state
            Size of a hidden state.
        rng
            Random generator.
        """

    @classmethod
    @abstractmethod
    def from_parameters(cls, vocabulary: Vocabulary, by_pair: Arrays, shared: Arrays, evidence: Evidence) -> ClickModel:
        """Make the model with these parameters.

        Parameters
        ----------
        vocabulary
            Queries, documents and pairs of the model.
        by_pair
            Outputs of the tower for the pairs of the vocabulary; the last row is for unseen pairs.
        shared
            Parameters that all sessions share.
        evidence
            How the parameters were estimated.
        """


class ExaminationBased(Differentiable):
    """Model in which a click needs attractiveness (an output) and examination (a table over situations).

    Such a model is fitted from counts.
    """

    situations: ClassVar[By]
    """Situations that examination depends on."""

    @classmethod
    @abstractmethod
    def examination_logits(cls, shared: Arrays, histories: Histories) -> Array:
        """Return the logits of examination in every situation; for situations "prefix", in each of the histories."""

    @classmethod
    def own_click_logit(cls, shared: Arrays, histories: Histories) -> Array:
        """Return what a click adds to its own logit: 0, except in `ARM_NC`."""
        return 0.0


class ExaminationTableBased(ExaminationBased):
    """Model whose examination is one free number per situation; that of the situation which is examined most is 1.

    That situation is the one with the largest entry of the shared parameter "reference", which is not learned: the
    first one, unless the learner finds that another one is examined more (docs/decisions/0003).
    """

    @override
    @classmethod
    def start(cls, n_ranks: int, state: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        n_situations = count_situations(cls.situations, n_ranks)
        return {"examination": np.zeros(n_situations), "reference": np.eye(1, n_situations)[0]}

    @override
    @classmethod
    def examination_logits(cls, shared: Arrays, histories: Histories) -> Array:
        logits, reference = shared["examination"], shared["reference"]
        xp = logits.__array_namespace__()
        is_reference = xp.arange(logits.shape[0]) == xp.argmax(reference)
        return xp.where(is_reference, xp.full_like(logits, LOGIT_LIMIT), logits)

    @override
    @classmethod
    def from_parameters(cls, vocabulary: Vocabulary, by_pair: Arrays, shared: Arrays, evidence: Evidence) -> ClickModel:
        attractiveness, examination = (
            sigmoid(np.asarray(logit, np.float64)).yes for logit in (by_pair["attractiveness"], shared["examination"])
        )
        examination[np.argmax(shared["reference"])] = 1.0
        return cls(vocabulary, attractiveness, examination, evidence=evidence)  # type: ignore[call-arg, return-value]


def start_examination(examination: Float[np.ndarray, " known"], n_situations: int) -> dict[str, np.ndarray]:
    """Return the shared parameters of `ExaminationTableBased` for an initial examination; 1/2 where it is not known."""
    known = np.clip(examination, _MIN_START, 1 - _MIN_START)
    logits, reference = np.zeros(n_situations), np.zeros(n_situations)
    logits[: len(known)] = np.log(known / (1 - known))
    reference[np.argmax(examination)] = 1.0
    return {"examination": logits, "reference": reference}


class Recurrent(Differentiable):
    """Model in which a gated recurrent unit (GRU) reads the list from the top.

    Its only output is "input", the contribution of a pair to the gates. Lists that begin with the same documents and
    clicks share their states: the model is trained on them as a tree.
    """

    network: ClassVar[bool] = True

    @override
    @classmethod
    def outputs(cls, state: int) -> dict[str, int]:
        return {"input": 3 * state}

    @classmethod
    @abstractmethod
    def unit(cls, shared: Arrays) -> tuple[Gru, Array]:
        """Return the recurrent unit, and the contribution of a click on the result above to its gates."""

    @classmethod
    @abstractmethod
    def readout(cls, shared: Arrays, state: Array) -> Prob:
        """Return the click probability in a state (`... state`)."""


class HistoryBased(Differentiable):
    """Model whose click probabilities are given by a formula for a whole list."""

    @classmethod
    @abstractmethod
    def click_given_history(cls, by_pair: Arrays, shared: Arrays, click: Array) -> Prob:
        """Return P(C_r = 1 | C_1..C_{r-1}), of shape `session rank`.

        Only the clicks above a result may be used for it.

        Parameters
        ----------
        by_pair
            Outputs of the tower at each result: of shape `session rank`, with one more dimension if wider than 1.
        shared
            Parameters that all sessions share.
        click
            All clicks of the sessions, of shape `session rank`.
        """


def uniform_weights(rng: np.random.Generator, *shape: int, inputs: int) -> np.ndarray:
    """Draw the initial weights of a layer with that many inputs: uniform within +-1 / sqrt(inputs)."""
    start: np.ndarray = rng.uniform(-1, 1, shape) / np.sqrt(inputs)
    return start
