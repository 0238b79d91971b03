"""The policy-shift protocol with users, training and search of the authors' code, to see where differences come from.

References
----------
Deffayet, R., Renders, J.-M. & de Rijke, M. (2022). Evaluating the robustness of click models to policy distributional
shift. ACM Transactions on Information Systems.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
from typing_extensions import override

from clickshift import models
from clickshift.counts.cells import By, count_situations
from clickshift.data.vocabulary import Vocabulary
from clickshift.experiments.models import CLICK_MODELS, PEEKING, Contender
from clickshift.experiments.policy_shift.protocol import PolicyShift
from clickshift.models._differentiable import Arrays, ExaminationBased
from clickshift.models._formulas import Array, sigmoid
from clickshift.models._histories import Histories
from clickshift.models.base import ClickModel, Evidence

__all__ = ["FreePBM", "FreeUBM", "as_published"]


class _FreeExamination(ClickModel, ExaminationBased):
    """Model with a table of examination in which every situation is learned from 1/2 on (eq. 7 and 9)."""

    @override
    @classmethod
    def start(cls, n_ranks: int, state: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"examination": np.zeros(count_situations(cls.situations, n_ranks))}

    @override
    @classmethod
    def examination_logits(cls, shared: Arrays, histories: Histories) -> Array:
        return shared["examination"]


class FreePBM(_FreeExamination):
    """PBM by gradient as in the authors' code: no rank has examination 1. What is learned is a `PBM`."""

    situations: ClassVar[By] = "rank"

    @override
    @classmethod
    def from_parameters(cls, vocabulary: Vocabulary, by_pair: Arrays, shared: Arrays, evidence: Evidence) -> ClickModel:
        return models.PBM(vocabulary, *_probabilities(by_pair, shared), evidence=evidence)


class FreeUBM(_FreeExamination):
    """UBM by gradient as in the authors' code: no situation has examination 1. What is learned is a `UBM`."""

    situations: ClassVar[By] = "last_click"

    @override
    @classmethod
    def from_parameters(cls, vocabulary: Vocabulary, by_pair: Arrays, shared: Arrays, evidence: Evidence) -> ClickModel:
        return models.UBM(vocabulary, *_probabilities(by_pair, shared), evidence=evidence)


def _probabilities(by_pair: Arrays, shared: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """Return attractiveness by pair and examination by situation."""
    logits = (by_pair["attractiveness"], shared["examination"])
    attractiveness, examination = (sigmoid(np.asarray(logit, np.float64)).yes for logit in logits)
    return attractiveness, examination


_USERS = {
    "CoCM": "CoCM(reading='reference-code')",
    "CoCM-mismatch": "CoCM_mismatch(reading='reference-code')",
}
"""Users as in the authors' code, by name; DBN users are."""
_FREE = {"PBM": FreePBM, "UBM": FreeUBM}
_TRAINING = "learning_rate=0.001, batch=32, rounds=20"
"""Defaults of the authors' code."""
_ORDERS = 4032
"""Orders that the authors' search tries: 10! / 900."""


def as_published(protocol: PolicyShift) -> PolicyShift:
    """Return a protocol with the users, the training and the search of the authors' code, as far as they can be had.

    CoCM users browse as in the code. PBM and UBM learn the examination of all situations, from 1/2 on. The learning
    rate is .001, for batches of 32 and at most 20 epochs. Max-Reward is the best of 4,032 random orders. The halving of
    the learning rate, early stopping, sizes of embeddings and networks, the floor of attractiveness, and the settings
    of section 6.1 are those of the code anyway. docs/policy-shift.md lists what is not reproduced.

    Parameters
    ----------
    protocol
        The protocol to change; models that are not the paper's stay as they are.

    Examples
    --------
    >>> as_published(PolicyShift()).users[1]
    ('CoCM', "CoCM(reading='reference-code')")
    """
    users = tuple((name, _USERS.get(name, text)) for name, text in protocol.users)
    derived = protocol.derived and replace(protocol.derived, search="sampled", samples=_ORDERS)
    return replace(protocol, users=users, contenders=tuple(map(_trained, protocol.contenders)), derived=derived)


def _trained(contender: Contender) -> Contender:
    """Train a model of the paper as in the authors' code; return any other as it is."""
    if contender not in (*CLICK_MODELS, PEEKING):
        return contender
    free = _FREE.get(contender.name)
    if free is not None:
        text, module = f"Gradient({free.__name__!r}, {_TRAINING})", f"{free.__module__}:{free.__name__}"
        return replace(contender, learner=text, content="all examination free", module=module)
    model = {"CACM-minus": "CACM_minus", "ARM NC": "ARM_NC"}.get(contender.name, contender.name)
    return replace(contender, learner=f"Gradient({model!r}, {_TRAINING})")
